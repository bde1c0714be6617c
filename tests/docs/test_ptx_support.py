"""The table of what PTX runs where says what happens."""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any

import pytest

from zluda.compiler import compile_kernel
from zluda.ptx import parse_module

ROOT = Path(__file__).parents[2]
_REFUSED = "fma cvt multimem tex txq suld clusterlaunchcontrol tensormap redux ldmatrix cp tcgen05 istypep"
_RUN = "add mul fma mad cvt setp set ld st atom red shfl mbarrier cp vadd vset4 prmt lop3 bfe div rcp"


@pytest.fixture(scope="module")
def tables() -> Any:
    sys.path[:0] = [str(ROOT / part) for part in ("scripts", "tests/conformance", "tests/support")]
    import ptx_support

    return ptx_support


def test_every_form_that_is_refused_is_named(tables: Any) -> None:
    refused = 0
    for row in tables.support(_REFUSED.split()):
        for device in tables.DEVICES:
            for case, said in row.refused[device].items():
                assert said.startswith(row.row.opcode), (case.dotted, said)
                refused += 1
    assert refused > 200


@pytest.mark.parametrize("device", ["cpu", "gfx1030", "gfx90a"])
def test_forms_that_run_become_machine_code(tables: Any, device: str) -> None:
    pick = random.Random(7)
    rows = tables.support(_RUN.split())
    cases = [
        pick.choice([c for c in r.cases if c not in r.refused[device]])
        for r in rows
        if r.cell(device) != "no"
    ]
    statements = [tables.statement(case) for case in cases]
    text = tables.HEAD + "\n".join(statements) + "\nret;\n}\n"
    compiled = compile_kernel(parse_module(text), "k", device, block=(64, 1, 1))
    assert len(statements) > 60
    assert compiled.code.startswith(b"\x7fELF")


def test_the_page_shows_what_cannot_run(tables: Any) -> None:
    page = (ROOT / "docs" / "ptx-support.md").read_text()
    lines = {line.split("|")[1].strip(): line for line in page.splitlines() if line.startswith("| `")}
    assert "| no | no | no | no |" in lines["`tcgen05.fence`"]
    assert "| exact | exact | exact | exact |" in lines["`fma.rnd.type`"]
    assert "| exact | native | native | native |" in lines["`sin.approx{.ftz}.type`"]
