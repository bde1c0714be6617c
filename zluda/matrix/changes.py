"""What differs between two runs: cells added, removed, improved, regressed, changed."""

from __future__ import annotations

from collections import Counter
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from zluda.matrix.states import quality
from zluda.records import dataclass

if TYPE_CHECKING:
    from zluda.matrix.store import Store


class Change(StrEnum):
    """What became of a cell, the worst first."""

    REGRESSED = "regressed"
    REMOVED = "removed"
    CHANGED = "changed"  # another verdict or reason, no better and no worse
    ADDED = "added"
    IMPROVED = "improved"


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell that is not as it was. ``before`` and ``after`` are states, "" where there was none."""

    change: Change
    program: str
    device: str
    numerics: str
    before: str
    after: str
    reason_before: str
    reason: str
    code_changed: bool

    def to_json(self) -> dict[str, Any]:
        """For ``--json`` and the site."""
        return {
            "change": str(self.change),
            "program": self.program,
            "device": self.device,
            "numerics": self.numerics,
            "before": self.before or None,
            "after": self.after or None,
            "reason_before": self.reason_before,
            "reason": self.reason,
            "code_changed": self.code_changed,
        }


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two runs by number, the cells that are not alike, and how many are."""

    a: int
    b: int
    cells: tuple[Cell, ...]
    same: int

    @property
    def counts(self) -> dict[str, int]:
        """How many of each change, all of them."""
        found = Counter(cell.change for cell in self.cells)
        return {str(change): found[change] for change in Change}

    def to_json(self) -> dict[str, Any]:
        """For ``--json``."""
        cells = [cell.to_json() for cell in self.cells]
        return {"a": self.a, "b": self.b, **self.counts, "same": self.same, "cells": cells}


def compare(store: Store, a: int, b: int) -> Comparison:
    """Run ``b`` against run ``a``.

    Better and worse go by the verdict, so that writing an expectation down neither mends nor breaks a cell;
    a cell that an expectation calls otherwise, or that fails for another reason, has changed.
    """
    import pandas

    key = ["program", "device", "numerics"]
    kept = [*key, "state", "found", "verdict", "reason", "code"]
    before, after = (store.cells(number)[kept] for number in (a, b))
    both = before.merge(after, on=key, how="outer", suffixes=("_before", "_after"), indicator=True)
    rows = both.astype(object).where(pandas.notna(both), None)
    found = []
    for record in rows.to_dict("records"):
        row = {str(column): value for column, value in record.items()}
        change = _change(row)
        if change is not None:
            found.append(
                Cell(
                    change=change,
                    **{column: row[column] for column in key},
                    before=row["state_before"] or "",
                    after=row["state_after"] or "",
                    reason_before=row["reason_before"] or "",
                    reason=row["reason_after"] or "",
                    code_changed=bool(row["code_before"] and row["code_before"] != row["code_after"]),
                )
            )
    order = {change: rank for rank, change in enumerate(Change)}
    found.sort(key=lambda cell: (order[cell.change], cell.program, cell.device, cell.numerics))
    return Comparison(a, b, tuple(found), len(rows) - len(found))


def _change(row: dict[str, Any]) -> Change | None:
    if row["_merge"] == "left_only":
        return Change.REMOVED
    if row["_merge"] == "right_only":
        return Change.ADDED
    before, after = (_quality(row[f"found_{side}"], row[f"verdict_{side}"]) for side in ("before", "after"))
    if before != after:
        return Change.IMPROVED if after > before else Change.REGRESSED
    alike = all(row[f"{what}_before"] == row[f"{what}_after"] for what in ("state", "found"))
    return None if alike and (after == 2 or row["reason_before"] == row["reason_after"]) else Change.CHANGED


def _quality(found: str, verdict: str | None) -> int:
    return 0 if found == "flaky" else quality(verdict)
