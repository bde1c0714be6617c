"""A kernel at fault as the page shows it: each line of its PTX beside its LLVM IR and its AMD instructions.

Where the layer was asked for, the first instruction that differs is looked for too, and marked.
"""

from __future__ import annotations

from collections.abc import Mapping

from zluda.compiler.amd.lines import Translation, translation
from zluda.device import names
from zluda.diff.results import CountsAs, LaunchResult, ReplayResult, Verdict
from zluda.errors import Error
from zluda.isolate.inside import look_inside
from zluda.isolate.layers.search import EMULATED, isolate
from zluda.ptx import Module, parse_module
from zluda.report.lines import Line, Listing
from zluda.tracefile import Trace

MOST_KERNELS = 5
MOST_LINES = 400
"""Lines of PTX that are shown of a kernel: around the one at fault, where that is known."""

_LONGEST = 240  # characters of a line of IR, PTX or assembly
_MOST_CHARACTERS = 300_000
_MOST_AT_A_LINE = 60  # lines of IR, or instructions, of a line of PTX


def listings(
    trace: Trace, result: ReplayResult, *, inside: bool = False, time_limit: float | None = None
) -> Mapping[str, Listing]:
    """Kernel → its code, of the first kernels whose launches differ in their own right, or die.

    ``inside``: run the first such launch of each on other devices, instruction by instruction, to mark the
    first that differs. What cannot be compiled or looked into says why in its listing.
    """
    guilty: dict[str, LaunchResult] = {}
    for one in result.results:
        fails = one.verdict.counts_as is CountsAs.FAILS and one.verdict is not Verdict.INHERITED
        if one.kind == "launch" and fails:
            guilty.setdefault(one.kernel, one)
    chosen = list(guilty.values())[:MOST_KERNELS]
    return {one.kernel: _listing(trace, result, one, inside=inside, time_limit=time_limit) for one in chosen}


def _listing(
    trace: Trace, result: ReplayResult, launch: LaunchResult, *, inside: bool, time_limit: float | None
) -> Listing:
    target = result.device if names.kind(result.device) == "gfx" else EMULATED
    try:
        module = _module(trace, launch)
        numerics = result.numerics if names.kind(result.device) in ("gfx", "hip") else "native"
        found = translation(module, launch.kernel, target, numerics=numerics, contract=result.contract)
    except Error as error:
        return Listing(launch.kernel, target, missing=str(error))
    line, told = _first_difference(trace, result, launch, time_limit) if inside else (0, "")
    lines = _lines(module.source, found)
    shown = _fitting(lines, line)
    return Listing(launch.kernel, target, tuple(shown), line, told, len(lines) - len(shown))


def _module(trace: Trace, launch: LaunchResult) -> Module:
    number = trace.launch(launch.call).module
    data = next((trace.ptx(one) for one in trace.module_list if one.id == number), None)
    if data is None:
        raise Error("its module has no PTX")
    return parse_module(data.rstrip(b"\0").decode("utf-8", "replace"))


def _first_difference(
    trace: Trace, result: ReplayResult, launch: LaunchResult, time_limit: float | None
) -> tuple[int, str]:
    """(line of PTX, what differs there), or (0, why there is none)."""
    try:
        (answer,) = isolate(
            trace,
            result.device,
            [launch],
            numerics=result.numerics,
            contract=result.contract,
            time_limit=time_limit,
            in_stream=result.mode != "isolated",
        )
        look_inside(trace, answer)
    except Error as error:
        return 0, f"No line is marked: {error}"
    if answer.difference is None:
        return 0, f"No line is marked: {answer.no_difference}"
    found = answer.difference
    where = f"block {found.block}, thread {found.thread}"
    return found.ptx_line, (
        f"First differs at line {found.ptx_line} in launch #{launch.call}, {where}: {found.register} is"
        f" {found.value_a} on {found.device_a}, {found.value_b} on {found.device_b}."
    )


def _lines(source: str, found: Translation) -> list[Line]:
    """From each run of lines that something was made of, with what lies between them."""
    text = source.split("\n")
    marked = sorted(number for number in {*found.ir, *found.assembly} if 0 < number <= len(text))
    lines = []
    for before, number in zip([0, *marked], marked, strict=False):
        if before and number - before <= 3:  # labels and empty lines
            lines += [_line(at, text, found) for at in range(before + 1, number) if text[at - 1].strip()]
        lines.append(_line(number, text, found))
    return lines


def _line(number: int, text: list[str], found: Translation) -> Line:
    ir, amd = (_cut(side.get(number, [])) for side in (found.ir, found.assembly))
    return Line(number, text[number - 1].strip()[:_LONGEST], ir, amd)


def _cut(lines: list[str]) -> tuple[str, ...]:
    more = len(lines) - _MOST_AT_A_LINE
    shown = [line[:_LONGEST] for line in lines[:_MOST_AT_A_LINE]]
    return (*shown, f"… {more} more") if more > 0 else tuple(shown)


def _fitting(lines: list[Line], number: int) -> list[Line]:
    """Around a line, as many as a page has room for."""
    most = MOST_LINES
    while len(shown := _around(lines, number, most)) > 1 and _size(shown) > _MOST_CHARACTERS:
        most //= 2
    return shown


def _around(lines: list[Line], number: int, most: int) -> list[Line]:
    if len(lines) <= most:
        return lines
    at = next((place for place, line in enumerate(lines) if line.number >= number), 0) if number else 0
    first = min(max(at - most // 2, 0), len(lines) - most)
    return lines[first : first + most]


def _size(lines: list[Line]) -> int:
    return sum(len(text) for line in lines for text in (line.ptx, *line.ir, *line.amd))
