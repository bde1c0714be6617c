"""Every form that a survey of public PTX met is lowered on every device."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from zluda.compiler.lower import families  # noqa: F401  (registers every lowering)

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def coverage() -> Any:
    sys.path[:0] = [str(ROOT / "scripts")]
    import frequency_coverage

    return frequency_coverage


@pytest.mark.parametrize("device", ["cpu", "gfx1030", "gfx90a"])
def test_every_form_of_the_survey_is_lowered(coverage: Any, device: str) -> None:
    forms = coverage.frequent_forms()
    assert len(forms) == 754
    refused = coverage.refused(forms, device)
    assert refused == {}


def test_what_has_no_lowering_is_told(coverage: Any) -> None:
    known = "add.s32"
    refused = coverage.refused([known, "tcgen05.fence::before_thread_sync"], "cpu")
    assert list(refused) == ["tcgen05.fence::before_thread_sync"]


def test_a_form_no_statement_can_be_made_for_is_an_error(coverage: Any) -> None:
    with pytest.raises(LookupError):
        coverage.statements(["bra"])
