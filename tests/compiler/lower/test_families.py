"""The dispatch tables: what is in them, and what is imported when it is met."""

from __future__ import annotations

import subprocess
import sys

import pytest

from zluda.compiler.lower.families import LANEWISE, LOWERINGS, find
from zluda.compiler.lower.registry import Registry

TABLES = {"lanewise": LANEWISE, "warp": LOWERINGS}


@pytest.mark.parametrize("table", TABLES)
def test_opcodes_are_lowered_by_the_modules_that_are_imported_for_them(table: str) -> None:
    registered = {
        opcode: lowering.__module__.rpartition(".")[2] for opcode, lowering in TABLES[table].items()
    }
    assert registered == TABLES[table].modules


def test_no_opcode_is_in_both_tables() -> None:
    assert not LANEWISE.modules.keys() & LOWERINGS.modules.keys()


def test_what_has_no_lowering_is_in_neither_table() -> None:
    assert find("ld") is LOWERINGS["ld"]
    assert find("add") is None
    assert find("frobnicate") is None
    assert "frobnicate" not in LANEWISE and LANEWISE.get("frobnicate") is None
    with pytest.raises(KeyError):
        LANEWISE["frobnicate"]


def test_a_deleted_opcode_is_not_there() -> None:
    table: Registry[str] = Registry({"video": "vadd vsub"})
    del table["vadd"]
    assert "vadd" not in table and "vsub" in table
    table["vadd"] = "other"
    assert table["vadd"] == "other"


def test_a_module_that_does_not_register_what_it_is_said_to_is_an_error() -> None:
    table: Registry[str] = Registry({"video": "vsomething"})
    with pytest.raises(ImportError, match="video registers no vsomething"):
        table["vsomething"]


def test_only_what_is_asked_for_is_imported() -> None:
    program = """
import sys
from zluda.compiler.amd import compile
from zluda.compiler.lower.lanewise import LANEWISE
from zluda.compiler.lower.table import LOWERINGS
families = {f"zluda.compiler.lower.{m}" for m in ("logic", "video", "mbarrier", "convert", "nvidia")}
assert "vadd" in LANEWISE and "mbarrier" in LOWERINGS
assert not families & sys.modules.keys(), families & sys.modules.keys()
LANEWISE["and"]
assert families & sys.modules.keys() == {"zluda.compiler.lower.logic"}
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
