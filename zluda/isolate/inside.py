"""Where a launch first goes wrong inside, once its layer was looked for, and the AMD code there."""

from __future__ import annotations

from collections.abc import Iterable

from zluda.device import names
from zluda.diff.blame import Evidence
from zluda.errors import Error
from zluda.isolate.layers.probes import Run
from zluda.isolate.layers.search import EMULATED, Answer, first_difference
from zluda.ptx import parse_module
from zluda.records import dataclass
from zluda.tracefile import Trace

_RIGHT = ("cuda", "exact", "cpu", "interpreter", "cpu native", "emulator", "nvptx", "hip", "plain")
"""Runs that may hold, the best reference first; then the other AMD targets."""


@dataclass(frozen=True, slots=True)
class AmdCode:
    """AMD instructions for one line of PTX, or for the nearest ``lines`` that have any; or ``missing``, why
    there are none.
    """

    target: str
    lines: tuple[int, ...] = ()
    instructions: tuple[str, ...] = ()
    missing: str = ""


def look_inside(trace: Trace, answer: Answer) -> None:
    """Put into ``answer`` the first instruction that differs between a run that holds and one that fails.

    Does nothing where that was done.
    """
    if answer.difference is not None or answer.no_difference:
        return
    try:
        pair = runs_apart(answer)
    except Error as error:
        answer.no_difference = str(error)
        return
    _, answer.difference, answer.no_difference = first_difference(trace, answer.blame.call, *pair)


def runs_apart(answer: Answer) -> tuple[Run, Run]:
    """(a run that holds, the run that fails). Raises Error saying why there are no such two."""
    evidence = answer.blame.evidence
    wrong = _first(evidence, ("exact", "device"), "fails")
    right = _first(evidence, (*_RIGHT, *dict.fromkeys(one.probe for one in evidence)), "holds")
    if answer.result is not None and answer.result.kind == "copy":
        raise Error("a copy has no instructions")
    if wrong is None:
        raise Error("it does not fail when it is run from its recorded inputs")
    if right is None:
        raise Error("on no device at hand is it right")
    return Run(right.device, right.numerics), Run(wrong.device, wrong.numerics)


def _first(evidence: Iterable[Evidence], probes: Iterable[str], outcome: str) -> Evidence | None:
    found = {one.probe: one for one in evidence if one.outcome == outcome and one.numerics}
    return next((found[probe] for probe in probes if probe in found), None)


def amd_code(trace: Trace, call: int, device: str, line: int, *, numerics: str) -> AmdCode:
    """What a line of the launch's PTX is on the AMD GPU that ``device`` names, else on a usual one."""
    target = device if names.kind(device) == "gfx" else EMULATED
    try:
        return _amd_code(trace, call, target, line, numerics)
    except Error as error:
        return AmdCode(target, missing=str(error))


def _amd_code(trace: Trace, call: int, target: str, line: int, numerics: str) -> AmdCode:
    from zluda.compiler.amd.lines import amd_lines

    launch = trace.launch(call)
    modules = {module.id: module for module in trace.module_list}
    data = trace.ptx(modules[launch.module]) if launch.module is not None else None
    if data is None:
        return AmdCode(target, missing="its module has no PTX")
    module = parse_module(data.rstrip(b"\0").decode("utf-8", "replace"))
    found = amd_lines(module, launch.kernel, target, numerics=numerics)
    if line in found:
        return AmdCode(target, (line,), tuple(found[line]))
    before = max((one for one in found if 0 < one < line), default=None)
    after = min((one for one in found if one > line), default=None)
    near = tuple(one for one in (before, after) if one is not None)
    return AmdCode(target, near, tuple(text for one in near for text in found[one]))
