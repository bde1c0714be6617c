"""Programs of the corpus whose launches are small enough come out on the interpreter as on an H200."""

from __future__ import annotations

from pathlib import Path

import pytest

import zluda

CORPUS = Path(__file__).parents[3] / "corpus"
QUICK = ("saxpy", "reduction")
OTHERS = ("histogram", "matmul", "black_scholes", "half_precision", "textures", "cooperative")


@pytest.mark.parametrize(
    "program", [*QUICK, *(pytest.param(name, marks=pytest.mark.nightly) for name in OTHERS)]
)
def test_every_launch_is_identical(program: str) -> None:
    result = zluda.replay(CORPUS / program / "trace.bin", device="interpreter")
    compared = [one for one in result.results if one.verdict.value != "not-compared"]
    assert compared and {one.verdict.value for one in compared} == {"identical"}
