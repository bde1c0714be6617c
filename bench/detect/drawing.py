"""Bugs drawn by a seeded mutator from the lowerings and from the emulator's table.

Drawn is among what the programs execute: lines of ``zluda/compiler/lower`` that are run when a program is
lowered, and rows of AMD instructions in its machine code. So what a bug is to be found at follows from where
it was put, and nobody chooses it: the opcodes whose lowering runs the line, or the PTX instructions whose AMD
code has the instruction.
"""

# ruff: noqa: E501 (a row is a line)
from __future__ import annotations

import importlib
import random
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from bench.detect.bugs import HARDWARE, LOWERING, Bug
from bench.detect.programs import PROGRAMS
from bench.detect.support import Change
from zluda.ptx import parse_module

_TABLES = tuple(f"zluda.device.amd.emulator.table.{name}" for name in ("vector_float", "vector_integer"))

# a word of a lowering, or of the table, and what may stand there instead
_LOWERING = (
    (r"\bb\.add\(", "b.sub("), (r"\bb\.sub\(", "b.add("), (r"\bb\.and_\(", "b.or_("), (r"\bb\.or_\(", "b.xor("),
    (r"\bb\.xor\(", "b.and_("), (r"\bb\.ashr\(", "b.lshr("), (r"\bb\.lshr\(", "b.ashr("), (r"\bb\.zext\(", "b.sext("),
    (r'"slt"', '"ult"'), (r'"ult"', '"ule"'), (r'"sle"', '"slt"'), (r'"olt"', '"ole"'), (r'"oge"', '"ogt"'),
    (r'"eq"', '"ne"'), (r'"uno"', '"ord"'), (r'"smax"', '"umax"'), (r'"smin"', '"umin"'), (r'"umin"', '"smin"'),
    (r"\b31\b", "15"), (r"\b32\b", "31"), (r"\bwidth - 1\b", "width - 2"), (r"signed=signed", "signed=not signed"),
)  # fmt: skip
_TABLE = (
    (r" \+ ", " - "), (r" - ", " + "), (r" & ", " | "), (r" \| ", " & "), (r" \^ ", " | "), (r" >> ", " << "),
    (r" << ", " >> "), (r"smaller\(", "larger("), (r"larger\(", "smaller("),
    (r"S1\.u32", "S0.u32"), (r"S1\.f32", "S0.f32"), (r"S2\.f32", "S1.f32"), (r"S1\.i32", "S0.i32"), (r"S0\.i32", "S1.i32"),
    (r"D\.f32 = (.*)", r"D.f32 = flush(\1)"), (r"D\.u32 = (.*)", r"D.u32 = (\1) + 1"),
)  # fmt: skip


def opcode_of(text: str) -> str:
    """The opcode of an instruction as it is written."""
    words = text.split()
    return next((word for word in words if not word.startswith("@")), "").partition(".")[0].rstrip(";")


# --- what the programs execute ----------------------------------------------------------------------------


class _Lines:
    """Lines of the lowerings that are run, by the opcode that is being lowered."""

    def __init__(self) -> None:
        self.opcode = ""
        self.run: dict[tuple[str, int], set[str]] = defaultdict(set)

    def lowering(self, register: Any, opcode: str) -> None:
        """Have a table's lowering say when it runs."""
        lower = register[opcode]

        def told(*arguments: Any) -> Any:
            before, self.opcode = self.opcode, self.opcode or opcode
            sys.settrace(self._call)
            try:
                return lower(*arguments)
            finally:
                self.opcode = before
                if not before:
                    sys.settrace(None)

        register[opcode] = told

    def _call(self, frame: FrameType, event: str, argument: Any) -> Any:
        return self._line if "/zluda/compiler/lower/" in frame.f_code.co_filename else None

    def _line(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            self.run[frame.f_code.co_filename, frame.f_lineno].add(self.opcode)
        return self._line


def lowered_lines(ptx: str) -> dict[tuple[str, int], frozenset[str]]:
    """(file, line) of the lowerings → the opcodes of a kernel ``k`` that run it. Spoils this process."""
    from zluda.compiler.amd.lines import amd_lines
    from zluda.compiler.lower.families import LANEWISE, LOWERINGS

    lines = _Lines()
    for register in (LANEWISE, LOWERINGS):
        for opcode in list(register):
            lines.lowering(register, opcode)
    amd_lines(parse_module(ptx), "k", "gfx1030")
    return {place: frozenset(opcodes) for place, opcodes in lines.run.items()}


def machine_rows(ptx: str) -> dict[str, frozenset[str]]:
    """AMD instructions of a kernel ``k``, without suffix → the opcodes at whose lines they are."""
    from zluda.compiler.amd.lines import amd_lines

    text = ptx.split("\n")
    found: dict[str, set[str]] = defaultdict(set)
    for line, instructions in amd_lines(parse_module(ptx), "k", "gfx1030").items():
        opcode = opcode_of(text[line - 1]) if line else ""
        for one in instructions:
            name = re.sub(r"_(e32|e64|sdwa|dpp|e64_dpp)$", "", one.split()[0])
            found[name].add(opcode)
    return {name: frozenset(filter(None, opcodes)) for name, opcodes in found.items()}


# --- the places -----------------------------------------------------------------------------------------


def _changed(text: str, rules: tuple[tuple[str, str], ...]) -> list[str]:
    found = []
    for pattern, instead in rules:
        for match in re.finditer(pattern, text):
            found.append(text[: match.start()] + match.expand(instead) + text[match.end() :])
    return found


def _of_lowering(program: str) -> Iterator[Bug]:
    """One for each word of a line that can be changed, where the line stands once in its file."""
    for (file, number), opcodes in sorted(lowered_lines(PROGRAMS[program].ptx).items()):
        source = Path(file).read_text()
        line = source.splitlines()[number - 1]
        if source.count(line) != 1 or line.strip().startswith(("def ", '"""', "#")):
            continue
        for new in _changed(line, _LOWERING):
            module = f"zluda.compiler.lower.{Path(file).stem}"
            name = f"{Path(file).stem}:{number} {new.strip()}"
            yield Bug(name, program, LOWERING, tuple(sorted(opcodes)), (Change(module, line, new),))


def _of_emulator(program: str) -> Iterator[Bug]:
    """One for each word that can be changed in a row of an instruction that the program has."""
    used = machine_rows(PROGRAMS[program].ptx)
    for module in _TABLES:
        source = Path(str(importlib.import_module(module).__file__)).read_text()
        for line in source.splitlines():
            names, bar, statements = line.partition(" | ")
            hit = [name for name in names.strip().split("/") if name in used]
            if not bar or not hit or source.count(line) != 1:
                continue
            opcodes = tuple(sorted(frozenset().union(*(used[name] for name in hit))))
            for new in _changed(statements, _TABLE):
                change = Change(module, line, f"{names} | {new}")
                yield Bug(f"{hit[0]}: {new}", program, HARDWARE, opcodes, (change,))


def places(kind: str, program: str) -> list[Bug]:
    """All that can be drawn for a program; ``kind`` is ``lowering`` (spoils this process) or ``emulator``."""
    return list(_of_lowering(program) if kind == "lowering" else _of_emulator(program))


def drawn(bugs: dict[tuple[str, str], list[Bug]], seed: int) -> Iterator[Bug]:
    """In the order of drawing, without end of a place's kind: a kind by turns, a program, a place of it."""
    rng = random.Random(seed)
    kinds = sorted({kind for kind, _ in bugs})
    seen: set[tuple[Change, ...]] = set()
    while True:
        for kind in kinds:
            program = rng.choice(
                sorted(program for one, program in bugs if one == kind and bugs[one, program])
            )
            bug = rng.choice(bugs[kind, program])
            if bug.changes not in seen:
                seen.add(bug.changes)
                yield bug
