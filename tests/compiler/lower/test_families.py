"""The dispatch table: what is imported when it is met."""

from __future__ import annotations

import pytest

from zluda.compiler.lower.families import LANEWISE, LOWERINGS, find
from zluda.compiler.lower.table import RARE


@pytest.mark.parametrize("opcode", RARE)
def test_a_rare_opcode_is_lowered_by_the_module_that_is_imported_for_it(
    opcode: str,
) -> None:
    lowering = find(opcode)
    assert lowering is not None and lowering.__module__ == f"zluda.compiler.lower.{RARE[opcode]}"
    assert opcode not in LANEWISE


def test_other_opcodes_are_found_or_not_without_an_import() -> None:
    assert find("ld") is LOWERINGS["ld"]
    assert find("add") is None
    assert find("frobnicate") is None
