"""``matrix.json``: a night for programs; ``matrix.schema.json`` is its schema (JSON Schema 2020-12)."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

from zluda.matrix.site.gather import Cell, Row, Sheet

VERSION = 1

CELL = (
    *("state", "found", "verdict", "reason", "expected", "taken_over", "code", "attempts", "failures"),
    *("seconds", "peak_bytes", "launches", "held", "untold", "product", "emulated", "since", "reproduce"),
    "suspects",
)
"""What of a cell is told as it is."""


def schema() -> dict[str, Any]:
    """The schema of :func:`to_json`."""
    text = resources.files("zluda.matrix.site").joinpath("matrix.schema.json").read_text("utf-8")
    return dict(json.loads(text))


def to_json(sheet: Sheet) -> dict[str, Any]:
    """The night as one object."""
    return {
        "schema": VERSION,
        "run": run_json(sheet),
        "states": dict(sheet.counts),
        "columns": [{"device": one.device, "numerics": one.numerics} for one in sheet.columns],
        "programs": [_program(row) for row in sheet.rows],
        "changes": None if sheet.changes is None else sheet.changes.to_json(),
        "speed": [one.to_json() for one in sheet.speeds],
        "features": [
            {
                "feature": name,
                "device": column.device,
                "numerics": column.numerics,
                "state": share.counts_as.value,
                "holds": share.holds,
                "fails": share.fails,
                "cannot_tell": share.untold,
                "launches": share.launches,
            }
            for name, shares in sheet.features.items()
            for column, share in shares.items()
        ],
    }


def run_json(sheet: Sheet) -> dict[str, Any]:
    """Which run it is."""
    kept = ("id", "started", "finished", "commit", "subject", "dirty", "version", "host", "corpus")
    found = {key: sheet.run[key] for key in kept}
    return {**found, "dirty": bool(found["dirty"]), "last_good": sheet.last_good}


def _program(row: Row) -> dict[str, Any]:
    return {
        "name": row.name,
        "about": row.about,
        "package": row.package,
        "trace": row.path,
        "tags": {kind: dict(counts) for kind, counts in row.tags.items() if isinstance(counts, dict)},
        "cells": [_cell(one) for one in row.cells.values()],
    }


def _cell(one: Cell) -> dict[str, Any]:
    return {
        "device": one.column.device,
        "numerics": one.column.numerics,
        **{name: getattr(one, name) for name in CELL},
        "history": [list(step) for step in one.history],
        "kernels": [
            {
                "kernel": kernel.name,
                "verdict": kernel.verdict,
                "launches": kernel.launches,
                "held": kernel.held,
                "class": kernel.kind,
                "code": kernel.code,
            }
            for kernel in one.kernels
        ],
    }
