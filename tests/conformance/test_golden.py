"""Every instruction form gives on the CPU device, bit for bit, what an H200 gave for the very same PTX."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import golden_file
import judge
import pytest
from isa_forms import FAMILIES, all_forms
from isa_forms.form import Form, expand
from isa_forms.inputs import BLOCK, operands
from isa_forms.kernels import Group, groups, result_bytes

import zluda

DEVICE = "cpu"
QUICK = 12  # one kernel in so many is not slow


def _wanted(config: pytest.Config) -> list[Form]:
    pattern = config.getoption("--forms", default="")
    return [form for form in all_forms() if re.search(pattern, form.name)]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "group" not in metafunc.fixturenames:
        return
    forms = _wanted(metafunc.config)
    known = judge.excused(DEVICE, forms)
    usable = groups(form for form in forms if form.name not in known)
    alone = [Group(form.name, form.sources, (form,)) for form in forms if form.name in known]
    quick = bool(metafunc.config.getoption("--forms", default=""))
    metafunc.parametrize(
        "group",
        [
            pytest.param(group, id=group.name, marks=() if quick or n % QUICK == 0 else pytest.mark.slow)
            for n, group in enumerate([*usable, *alone])
        ],
    )


@pytest.fixture(scope="module")
def device() -> Iterator[Any]:
    with zluda.open_device(DEVICE) as opened:
        yield opened


@pytest.fixture(scope="module")
def golden() -> dict[str, golden_file.Expected]:
    return golden_file.load()[0]


def test_form_gives_the_gpus_bits(group: Group, device: Any, golden: dict[str, golden_file.Expected]) -> None:
    known = judge.excused(DEVICE, group.forms)
    wrong = []
    for outcome in judge.judge(device, group, golden):
        expected = known[outcome.form].outcome if outcome.form in known else "identical"
        if outcome.kind != expected:
            wrong.append(f"{outcome.form}: {outcome.kind}, not {expected}: {outcome.detail}")
    assert not wrong, "\n" + "\n".join(wrong)


def test_golden_file_holds_every_form_and_nothing_else(golden: dict[str, golden_file.Expected]) -> None:
    assert sorted(golden) == sorted(form.name for form in all_forms())
    for group in groups(all_forms()):
        for form in group.forms:
            assert len(golden[form.name].digests) == group.count // BLOCK
            assert len(golden[form.name].head) % result_bytes(form) == 0 < len(golden[form.name].head)


def test_operands_are_those_the_gpu_was_given() -> None:
    recorded = golden_file.load()[1]["operands"]
    assert {" ".join(group.sources) for group in groups(all_forms())} == set(recorded)
    for sources, digest in recorded.items():
        assert golden_file.operand_digest(operands(tuple(sources.split()))) == digest, sources


def test_golden_file_names_the_gpu_and_stays_small() -> None:
    meta = golden_file.load()[1]
    assert meta["gpu"] == "NVIDIA H200"
    assert golden_file.PATH.stat().st_size <= golden_file.MAXIMUM_BYTES


def test_every_exception_names_as_many_forms_as_it_says() -> None:
    names = [form.name for form in all_forms()]
    for entry in judge.exceptions(DEVICE):
        matched = [name for name in names if re.fullmatch(entry.forms, name)]
        assert len(matched) == entry.count, f"{entry.forms}: {len(matched)}"
        assert entry.outcome in ("differs", "unsupported") and entry.reason


def test_a_changed_result_is_seen_in_head_and_tail(golden: dict[str, golden_file.Expected]) -> None:
    form = next(form for form in all_forms() if form.name == "add.u32")
    size = BLOCK * result_bytes(form)
    data = bytearray(size)
    expected = golden_file.Expected(tuple(golden_file.digests(bytes(data), 4)), bytes(1024))
    assert judge.compare(form, bytes(data), expected).kind == "identical"
    data[8] ^= 1
    outcome = judge.compare(form, bytes(data), expected)
    assert outcome.kind == "differs" and outcome.detail.startswith("result 2 of (u32 0x")
    data[8] ^= 1
    data[-1] ^= 0x80
    assert judge.compare(form, bytes(data), expected).detail == f"among results 0..{BLOCK - 1} (by digest)"


def test_rows_expand_to_every_spelling() -> None:
    assert list(expand("add[.rn|.rz][.sat].(u32|s32)")) == [
        f"add{rounding}{saturate}.{kind}"
        for rounding in ("", ".rn", ".rz")
        for saturate in ("", ".sat")
        for kind in ("u32", "s32")
    ]


@pytest.mark.parametrize("family", FAMILIES)
def test_families_have_forms(family: str) -> None:
    assert len(FAMILIES[family].forms()) > 100
