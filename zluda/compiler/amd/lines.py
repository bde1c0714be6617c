"""Which LLVM IR and which AMD instructions a line of PTX becomes.

LLVM keeps track: what is written for a PTX instruction has that instruction's line as its debug location, and
the assembly says where lines begin (``.loc``). Debug locations change no code.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from zluda.compiler.amd.compile import kernel_ir, level
from zluda.compiler.amd.llvm import Options, emit
from zluda.compiler.amd.targets import target_id
from zluda.compiler.amd.unit import build_unit
from zluda.ptx import Module
from zluda.records import dataclass

_DEFINE = re.compile(r"(define .*?)( \{)$")
_LOC = re.compile(r"\s+\.loc\s+\d+ (\d+)")
_MARK = "; ptx "  # and the number of the line
_FIRST = 10  # numbers of metadata of our own; the module's are below

_HEAD = """\
!llvm.dbg.cu = !{{!{unit}}}
!{unit} = distinct !DICompileUnit(language: DW_LANG_C99, file: !{file}, emissionKind: LineTablesOnly)
!{file} = !DIFile(filename: "kernel.ptx", directory: "")
!{type} = !DISubroutineType(types: !{{}})
!{version} = !{{i32 2, !"Debug Info Version", i32 3}}
"""


@dataclass(frozen=True, slots=True)
class Translation:
    """Of one kernel and what it calls: line of the module's PTX → lines of IR, as it is before LLVM's passes,
    and AMD instructions, in the order of the assembly.

    What LLVM makes of several lines stands at one of them, and what it loses track of at the line before it
    in the assembly; 0 is what belongs to no line.
    """

    ir: dict[int, list[str]]
    assembly: dict[int, list[str]]


def amd_lines(
    module: Module, kernel: str, target: str, *, numerics: str = "native", contract: str = "auto"
) -> dict[int, list[str]]:
    """The AMD instructions of a :func:`translation`. Raises what compiling raises."""
    return translation(module, kernel, target, numerics=numerics, contract=contract).assembly


def translation(
    module: Module, kernel: str, target: str, *, numerics: str = "native", contract: str = "auto"
) -> Translation:
    """A kernel compiled for an AMD target, by lines of its PTX. Raises what compiling raises."""
    unit = build_unit(module, kernel, contract)
    unit.numerics = numerics
    unit.ir.marks = True
    chosen = target_id(target).target
    text = kernel_ir(unit, chosen)
    assembly = emit(located(text), Options(target, chosen.wave_size, "asm", level(unit))).decode()
    return Translation(_by_line(_marked(text)), _by_line(_instructions(assembly)))


def _by_line(found: Iterable[tuple[int, str]]) -> dict[int, list[str]]:
    lines: dict[int, list[str]] = {}
    for line, text in found:
        lines.setdefault(line, []).append(text)
    return lines


def _marked(text: str) -> Iterator[tuple[int, str]]:
    """(line of PTX, line of IR) of all functions' bodies; 0 before a function's first mark."""
    line, inside = 0, False
    for ir in text.split("\n"):
        if _DEFINE.fullmatch(ir):
            line, inside = 0, True
        elif ir == "}":
            inside = False
        elif inside and ir.startswith(_MARK):
            line = int(ir[len(_MARK) :])
        elif inside and ir:
            yield line, ir


def located(text: str) -> str:
    """IR with marks (``; ptx 17``) as IR with debug locations."""
    lines: list[str] = []
    metadata: list[str] = []
    unit, file, type_, version = range(_FIRST, _FIRST + 4)
    following = _FIRST + 4
    scope, at = 0, ""
    numbers: dict[int, int] = {}

    def location(number: int) -> str:
        nonlocal following
        if number not in numbers:
            numbers[number], following = following, following + 1
            place = f"line: {number}, column: 0, scope: !{scope}"
            metadata.append(f"!{numbers[number]} = !DILocation({place})")
        return f", !dbg !{numbers[number]}"

    for line in text.split("\n"):
        define = _DEFINE.fullmatch(line)
        if define is not None:
            scope, following, at, numbers = following, following + 1, "", {}
            name = f'distinct !DISubprogram(name: "f{scope}", scope: !{file}, file: !{file}, type: !{type_}, '
            metadata.append(f"!{scope} = {name}unit: !{unit}, spFlags: DISPFlagDefinition)")
            line = f"{define[1]} !dbg !{scope}{define[2]}"
        elif line == "}":
            scope = 0
        elif scope and line.startswith(_MARK):
            at = location(int(line[len(_MARK) :]))
        elif scope and line and not line.endswith(":"):
            at = at or location(0)  # calls of functions with locations need one
            line += at
        lines.append(line)
    flags = "!llvm.module.flags = !{"
    told = _HEAD.format(unit=unit, file=file, type=type_, version=version)
    return "\n".join(lines).replace(flags, f"{flags}!{version}, ") + told + "\n".join(metadata) + "\n"


def _instructions(assembly: str) -> Iterator[tuple[int, str]]:
    """(line of PTX, instruction) of all code; 0 where no line is known."""
    line = 0
    for text in assembly.split("\n"):
        place = _LOC.match(text)
        if place is not None:
            line = int(place[1])
            continue
        code = text.partition(";")[0].strip()
        if text.startswith("\t") and code and not code.startswith("."):
            yield line, " ".join(code.split())
