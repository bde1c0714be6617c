"""What ptxas accepts parses, what it refuses is an error: statements drawn from the whole table."""

from __future__ import annotations

import gzip
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import needs
import pytest

from zluda.ptx import parse_module

ROOT = Path(__file__).parents[2]
RECORDED = Path(__file__).parent / "data" / "ptxas_verdicts.txt.gz"
LOOSE = 0.01
"""The share of statements that ptxas refuses and this parser does not: words in an order that ptxas does not
take, ``.b128`` registers for what is narrower, and what later versions of PTX have."""

QUIRKS = {
    "red.relaxed.add.v4.f32 [%generic_shared+32], {0f33D6BF95, %q1, %l1, 0fC2C80000};",
    "set.finite.geu.f32.f64 %f5, %d1, %d0;",
}
"""What ptxas accepts against the ISA: registers of several widths in a vector, a word of ``testp``."""


def recorded() -> tuple[str, list[tuple[bool, str]]]:
    head, *lines = gzip.decompress(RECORDED.read_bytes()).decode().splitlines()
    return head, [(line[0] == "+", line[2:]) for line in lines]


@pytest.fixture(scope="module")
def recorder() -> ModuleType:
    sys.path.insert(0, str(ROOT / "tests/fuzz"))
    spec = importlib.util.spec_from_file_location("recorder", ROOT / "scripts/record_ptxas_verdicts.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_statements_of_every_row_are_judged_as_ptxas_judges_them(recorder: ModuleType) -> None:
    _, verdicts = recorded()
    assert len(verdicts) > 3000
    lost = parse_module(recorder.module([text for _, text in verdicts])[0]).errors()
    judged = [(good, f"k{i}" not in lost, text) for i, (good, text) in enumerate(verdicts)]
    assert {text for good, ours, text in judged if good and not ours} == QUIRKS
    accepted = [text for good, ours, text in judged if ours and not good]
    assert len(accepted) / len(judged) < LOOSE, accepted[:20]


@pytest.mark.slow
@needs.ptxas
def test_ptxas_still_judges_so(recorder: ModuleType) -> None:
    head, verdicts = recorded()
    if head != f"ptxas {recorder.version()} {recorder.TARGET}":
        pytest.skip(
            f"the verdicts are of {head}, ptxas here is {recorder.version()}:"
            " it is not asked again; scripts/record_ptxas_verdicts.py records its own"
        )
    some = verdicts[::7]
    assert recorder.verdicts([text for _, text in some]) == [good for good, _ in some]
