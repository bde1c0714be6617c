#!/usr/bin/env python3
"""Which instruction forms of real PTX are refused, on which device.

``tests/ptx/data/opcode_forms.txt`` lists the 754 forms that a survey of public PTX met. A statement of each
is lowered for each device; with ``--compile`` all that are lowered become machine code too. Exits 1 if any is
refused.

    python scripts/frequency_coverage.py [--compile]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import ptx_support
from ptx_support import CONTROL, DEVICES, HEAD, TENSOR, Case

from zluda.compiler import compile_kernel
from zluda.errors import UnsupportedError
from zluda.ptx import parse_module
from zluda.ptx.instructions import find_opcode

FORMS = Path(__file__).resolve().parents[1] / "tests" / "ptx" / "data" / "opcode_forms.txt"
FLOW = """.version 8.0
.target sm_80
.address_size 64
.func (.param .b32 r) f (.param .b32 a) { ret; }
.visible .entry k(.param .u64 p) { .reg .pred %p; .reg .u32 %r; .param .b32 a; .param .b32 r;
mov.u32 %r, %tid.x; setp.eq.u32 %p, %r, 3; st.param.b32 [a], %r;
@STATEMENT@
end: exit; }
"""
"""A program with one edge of the control-flow graph, or a call."""
EDGES = {"bra": "@%p {} end;", "call": "{} (r), f, (a);", "ret": "@%p {};", "exit": "@%p {};"}


def frequent_forms() -> list[str]:
    """The dotted opcodes of the survey."""
    return FORMS.read_text().split()


def cases(dotted: str) -> list[Case]:
    """The rows of the instruction table that a dotted opcode may be of."""
    return [Case(f.row, dotted, tuple(dotted.split(".")[1:])) for f in find_opcode(dotted).forms]


def statements(dotted: Sequence[str]) -> dict[str, str]:
    """For each form a statement that parses. Raises LookupError for one that none could be made for."""
    found = {}
    for name in dotted:
        texts = (ptx_support.statement(case) for case in cases(name))
        found[name] = next((t for t in texts if t is not None and ptx_support.parses([t])), "")
        if not found[name]:
            raise LookupError(f"no statement for {name}")
    return found


def flow_refused(dotted: str, device: str) -> str:
    """What compiling a program with this edge or call says; nothing where it compiles."""
    text = FLOW.replace("@STATEMENT@", EDGES[dotted.split(".")[0]].format(dotted))
    try:
        compile_kernel(parse_module(text), "k", device, block=(64, 1, 1))
    except UnsupportedError as error:
        return error.what
    return ""


def refused(dotted: Sequence[str], device: str) -> dict[str, str]:
    """The forms that a device does not have, and what is said of each."""
    by_kind: dict[str, list[str]] = {"flow": [], "tensor": [], "rest": []}
    for name in dotted:
        opcode = name.split(".")[0]
        by_kind["flow" if opcode in CONTROL else "tensor" if opcode in TENSOR else "rest"].append(name)
    said = {name: flow_refused(name, device) for name in by_kind["flow"]}
    said |= {
        name: "" if any(map(ptx_support.is_tensor_form, cases(name))) else name for name in by_kind["tensor"]
    }
    texts = statements(by_kind["rest"])
    said |= dict(zip(texts, ptx_support.refused(list(texts.values()), device), strict=True))
    return {name: what for name, what in said.items() if what}


def compile_all(dotted: Sequence[str], missing: Mapping[str, str], device: str) -> int:
    """All forms that are lowered, in one kernel, to machine code; its size in bytes."""
    plain = [n for n in dotted if n not in missing and n.split(".")[0] not in CONTROL | TENSOR]
    text = HEAD + "\n".join(statements(plain).values()) + "\nret;\n}\n"
    return len(compile_kernel(parse_module(text), "k", device, block=(64, 1, 1)).code)


def main() -> int:
    """Print what is refused."""
    parser = argparse.ArgumentParser(description="Which instruction forms of real PTX are refused.")
    parser.add_argument("--compile", action="store_true", help="to machine code as well")
    arguments = parser.parse_args()
    forms = frequent_forms()
    failed = False
    for device in DEVICES:
        missing = refused(forms, device)
        failed |= bool(missing)
        print(f"{device}: {len(forms) - len(missing)} of {len(forms)} forms")
        for name, what in missing.items():
            print(f"  {name}" + (f"  ({what})" if what != name else ""))
        if arguments.compile:
            print(f"  {compile_all(forms, missing, device)} bytes of machine code")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
