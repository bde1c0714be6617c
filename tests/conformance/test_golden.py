"""Every instruction form gives on each device, bit for bit, what an H200 gave for the very same PTX."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import golden_file
import judge
import pytest
from isa_forms import FAMILIES, all_forms
from isa_forms.form import Form, expand
from isa_forms.inputs import BLOCK, operands
from isa_forms.kernels import Group, groups, result_bytes

import zluda

# Device → one kernel in so many is quick, one in so many is for `make test`; the rest is nightly.
DEVICES = {"cpu": (12, 1), "interpreter": (6, 3), "gfx1030": (24, 2), "gfx1100": (48, 6), "gfx90a": (48, 6)}


def _wanted(config: pytest.Config) -> list[Form]:
    pattern = config.getoption("--forms", default="")
    return [form for form in all_forms() if re.search(pattern, form.name)]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "group" in metafunc.fixturenames:
        everything = bool(metafunc.config.getoption("--forms", default=""))
        cases = [
            pytest.param(
                name,
                group,
                id=f"{name} {group.name}",
                marks=() if everything else _mark(name, n, group, *steps),
            )
            for name, steps in DEVICES.items()
            for n, group in enumerate(_groups(name, _wanted(metafunc.config)))
        ]
        metafunc.parametrize(("device_name", "group"), cases)


TENSOR = frozenset(form.name for name in ("tensor", "sparse_wgmma") for form in FAMILIES[name].forms())


def _mark(device: str, number: int, group: Group, quick: int, slow: int) -> Any:
    """Kernels of a single form are many, and the costly ones: of them one in six times as many is quick.

    Emulated, a matrix product takes minutes to make ready: nightly. `tests/compiler` and the corpus run some.
    """
    if device != "cpu" and not TENSOR.isdisjoint(form.name for form in group.forms):
        return pytest.mark.nightly
    if number % (6 * quick if len(group.forms) == 1 else quick) == 0:
        return ()
    return pytest.mark.slow if number % slow == 0 else pytest.mark.nightly


def _groups(device: str, forms: list[Form]) -> list[Group]:
    """Kernels; forms that are known not to hold on the device are alone."""
    known = judge.excused(device, forms)
    usable = groups(form for form in forms if form.name not in known)
    return [*usable, *(Group(form.name, form.sources, (form,)) for form in forms if form.name in known)]


@pytest.fixture(scope="module")
def devices() -> Iterator[Callable[[str], Any]]:
    opened: dict[str, Any] = {}

    def get(name: str) -> Any:
        if name not in opened:
            opened[name] = zluda.open_device(name, numerics="nvidia")
        return opened[name]

    yield get
    for device in opened.values():
        device.close()


@pytest.fixture(scope="module")
def golden() -> dict[str, golden_file.Expected]:
    return golden_file.load()[0]


def test_form_gives_the_gpus_bits(
    device_name: str,
    group: Group,
    devices: Callable[[str], Any],
    golden: dict[str, golden_file.Expected],
) -> None:
    known = judge.excused(device_name, group.forms)
    wrong = []
    for outcome in judge.judge(devices(device_name), group, golden):
        expected = known[outcome.form].outcome if outcome.form in known else "identical"
        if outcome.kind != expected:
            wrong.append(f"{outcome.form}: {outcome.kind}, not {expected}: {outcome.detail}")
    assert not wrong, "\n" + "\n".join(wrong)


def test_golden_file_holds_every_form_and_nothing_else(golden: dict[str, golden_file.Expected]) -> None:
    """But for families that await a GPU, which may be there."""
    assert {form.name for form in all_forms()} <= set(golden)
    assert set(golden) <= {form.name for form in all_forms(awaiting=True)}
    for group in groups(form for form in all_forms(awaiting=True) if form.name in golden):
        for form in group.forms:
            assert len(golden[form.name].digests) == group.count // BLOCK
            assert len(golden[form.name].head) % result_bytes(form) == 0 < len(golden[form.name].head)


def test_operands_are_those_the_gpu_was_given() -> None:
    recorded = golden_file.load()[1]["operands"]
    sources = {" ".join(group.sources) for group in groups(all_forms())}
    assert sources <= set(recorded)
    assert set(recorded) <= {" ".join(group.sources) for group in groups(all_forms(awaiting=True))}
    for sources, digest in recorded.items():
        assert golden_file.operand_digest(operands(tuple(sources.split()))) == digest, sources


def test_golden_file_names_the_gpu_and_stays_small() -> None:
    meta = golden_file.load()[1]
    assert meta["gpu"] == "NVIDIA H200"
    assert golden_file.PATH.stat().st_size <= golden_file.MAXIMUM_BYTES


@pytest.mark.parametrize("device", DEVICES)
def test_every_exception_names_as_many_forms_as_it_says(device: str) -> None:
    names = [form.name for form in all_forms()]
    for entry in judge.exceptions(device):
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
    assert len(FAMILIES[family].forms()) > 20
