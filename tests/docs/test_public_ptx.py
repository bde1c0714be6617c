"""The page of public PTX is what the results say."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "public_ptx.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("public_ptx", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_a_page_of_results(script: ModuleType, tmp_path: Path) -> None:
    lines = [
        {
            "versions": {"warp": "2", "triton": "1"},
            "date": "2030-01-02",
            "incomplete": {"warp": "stopped half way"},
        },
        {"file": "x/warp/a.ptx", "kernels": 5, "failed": {"cpu": [["k", "tcgen05 (kernel k, line 3)"]]}},
        {"file": "x/warp/b.ptx", "kernels": 2, "failed": {}},
        {"file": "x/triton/a.ptx", "kernels": 1, "failed": {}},
    ]
    file = tmp_path / "results.json"
    file.write_text("\n".join(map(json.dumps, lines)))
    targets = ["cpu", "gfx1030"]
    tallies, date = script.read_results(file, targets)
    text = script.page(tallies, targets, date)
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert rows[1:4] == [
        "| triton | 1 | 1 | 1 | 1 | 1 |",
        "| warp | 2 | 2 | 7 | 6 | 7 |",
        "| all |  | 3 | 8 | 7 | 8 |",
    ]
    assert rows[5:] == ["| warp | cpu | tcgen05 | 1 |"]
    assert "Of 2030-01-02;" in text
    assert "* warp: stopped half way" in text and "* triton" not in text


def test_the_page_is_what_the_kept_results_say(script: ModuleType) -> None:
    tallies, date = script.read_results(SCRIPT.parent / "public_ptx" / "results.jsonl", ["cpu", "gfx1030"])
    page = SCRIPT.parents[1] / "docs" / "public-ptx.md"
    assert page.read_text() == script.page(tallies, ["cpu", "gfx1030"], date)
