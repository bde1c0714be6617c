"""``FAULTS.md`` names tests that are there."""

from __future__ import annotations

import re
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def place_of(name: str) -> Path:
    return next((base / name for base in (HERE, ROOT) if (base / name).exists()), HERE / name)


def test_each_fault_has_its_test() -> None:
    rows = [
        line.split("|")[1:3] for line in (HERE / "FAULTS.md").read_text().splitlines() if line[:2] == "| "
    ]
    faults = {fault.strip(): tests for fault, tests in rows if not fault.strip().startswith("**")}
    assert len(faults) > 40
    wrong = []
    for fault, told in list(faults.items())[1:]:
        files = re.findall(r"`([\w/]+\.(?:py|cu))(?:::(\w+))?`|`(test_\w+|loop_\w+)`", told)
        text = ""
        for file, test, more in files:
            if file:
                text = place_of(file).read_text() if place_of(file).exists() else ""
            if not text or (f"def {test or more}" not in text and (test or more)):
                wrong.append((fault, file, test or more))
        if not files:
            wrong.append((fault, "no test", ""))
    assert not wrong
