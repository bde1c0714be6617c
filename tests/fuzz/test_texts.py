"""Damaged and hostile PTX ends in a module or in a PtxError, soon."""

from __future__ import annotations

import pytest
from texts import hostile, mutated, verdict

HOSTILE = dict(hostile())


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_texts_are_judged_soon(name: str) -> None:
    assert verdict(HOSTILE[name], 20) in ("module", "error")


def test_damaged_texts_end_in_a_module_or_an_error() -> None:
    said = {seed: verdict(mutated(seed), 20) for seed in range(2000)}
    assert {seed: v for seed, v in said.items() if v not in ("module", "error")} == {}
    assert (
        sum(v == "module" for v in said.values()) > 100
    )  # many are damaged little enough to be judged deeply
