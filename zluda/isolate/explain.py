"""One launch that went wrong on one screen: 80 columns, 24 lines, no colours."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Iterator
from typing import Any

from zluda.diff.blame import ABSENT, Evidence
from zluda.diff.kernel_class import bound, classes_of
from zluda.diff.results import LaunchResult, json_number
from zluda.isolate.inside import AmdCode, amd_code, look_inside
from zluda.isolate.layers.search import Answer
from zluda.records import dataclass
from zluda.report import words
from zluda.report.names import readable
from zluda.tracefile import Trace
from zluda.tracefile.text import printable

COLUMNS, LINES = 80, 23
"""Of a terminal; its last line is the prompt's."""

_INDENT = 9
_TITLE = "title"
_PTX_LINES = 2


@dataclass(slots=True)
class Explanation:
    """All that is known of one launch that went wrong."""

    trace: str
    device: str
    answer: Answer
    held_to: str
    code: AmdCode | None

    @property
    def result(self) -> LaunchResult | None:
        return self.answer.result

    def to_json(self) -> dict[str, Any]:
        """The object that ``zluda isolate --json`` prints."""
        result, difference = self.result, self.answer.difference
        found = None if result is None else result.first_difference
        return {
            "trace": self.trace,
            "device": self.device,
            **self.answer.blame.to_json(),
            "verdict": None if result is None else result.verdict.value,
            "bound": self.held_to or None,
            "buffer": None if found is None else found[0].label,
            "index": None if found is None else found[1].index,
            "recorded": None if found is None else json_number(found[1].recorded),
            "replayed": None if found is None else json_number(found[1].replayed),
            "instruction": None if difference is None else dataclasses.asdict(difference),
            "no_instruction": self.answer.no_difference,
            "amd": None if self.code is None else dataclasses.asdict(self.code),
        }

    def lines(self) -> list[str]:
        """The screen. Where it is too long, AMD instructions are left out, then runs."""
        head = [*self._title(), *self._element(), *self._layer()]
        inside, code, runs = list(self._inside()), list(self._code()), list(self._runs())
        code = _cut(code, max(LINES - len(head) - len(inside) - len(runs), 3), "instructions")
        runs = _cut(runs, max(LINES - len(head) - len(inside) - len(code), 2), "runs")
        return [printable(line)[:COLUMNS].rstrip() for line in (*head, *inside, *code, *runs)][:LINES]

    # --- parts --------------------------------------------------------------------------------------------

    def _title(self) -> Iterator[str]:
        blame, result = self.answer.blame, self.result
        verdict = "not run" if result is None else result.verdict.value
        shape = "" if result is None or result.grid is None else f" {_shape(result)}"
        yield from _wrapped(
            _TITLE, f"#{blame.call} {readable(blame.kernel)}{shape} on {self.device}: {verdict}", 2
        )

    def _element(self) -> Iterator[str]:
        result = self.result
        found = None if result is None else result.first_difference
        if found is None:
            if result is not None and result.reason:
                yield from _wrapped("why", result.reason, 3)
            return
        buffer, element = found
        count = f"{buffer.differing:,} of {buffer.elements:,} differ"
        yield from _wrapped("values", f"{words.difference(buffer, element)}; {count}", 2)
        if self.held_to:
            yield from _wrapped("bound", self.held_to, 2)

    def _layer(self) -> Iterator[str]:
        blame = self.answer.blame
        yield from _wrapped("layer", str(blame), 3)
        if blame.needs:
            yield from _wrapped("needs", blame.needs, 2)

    def _inside(self) -> Iterator[str]:
        found = self.answer.difference
        if found is None:
            if self.answer.no_difference:
                yield from _wrapped("inside", f"no instruction: {self.answer.no_difference}", 3)
            return
        source = f"  ({found.source})" if found.source else ""
        yield from _wrapped("PTX", f"line {found.ptx_line}{source}: {found.text}", _PTX_LINES)
        thread = f"block {found.block}, thread {found.thread}, time {found.occurrence + 1}"
        yield from _wrapped(
            "where",
            f"{found.function}, {thread}" if found.function != self.answer.blame.kernel else thread,
            1,
        )
        for name, value in ((found.device_a, found.value_a), (found.device_b, found.value_b)):
            yield from _wrapped("", f"{name}: {found.register} = {value}", 1)
        given = ", ".join(f"{one.register} = {one.value}" for one in found.inputs)
        if given:
            yield from _wrapped("", f"both: {given}", 2)
        if found.within:
            yield from _wrapped("", found.within, 1)

    def _code(self) -> Iterator[str]:
        code = self.code
        if code is None:
            return
        if code.missing:
            yield from _wrapped("AMD", f"{code.target}: {code.missing}", 2)
            return
        found = self.answer.difference
        other = found is not None and code.lines != (found.ptx_line,)
        near = f", of lines {' and '.join(map(str, code.lines))}, the nearest that have any" if other else ""
        yield from _wrapped("AMD", f"{code.target}{near}:", 1)
        yield from (f"{'':{_INDENT}}{text}" for text in code.instructions)

    def _runs(self) -> Iterator[str]:
        evidence = [one for one in self.answer.blame.evidence if one.probe != "instruction"]
        runs = [_run(one) for one in evidence if one.outcome != ABSENT]
        missing = [one.device for one in evidence if one.outcome == ABSENT]
        for number, told in enumerate(dict.fromkeys(runs)):  # some probes are one run
            yield from _wrapped("runs" if number == 0 else "", told, 1)
        if missing:
            yield from _wrapped("", f"not at hand: {', '.join(dict.fromkeys(missing))}", 1)


def explain(
    trace: Trace, device: str, numerics: str, answer: Answer, *, contract: str = "auto"
) -> Explanation:
    """Complete an answer with what a screen tells: the first instruction that differs, its AMD code."""
    look_inside(trace, answer)
    found, code = answer.difference, None
    if found is not None:
        code = amd_code(trace, answer.blame.call, device, found.ptx_line, numerics=numerics)
    kind = classes_of(str(trace.path)).get(answer.blame.kernel)
    held_to = (
        "" if kind is None else f"{kind.kind.value}, {bound(kind, numerics=numerics, contract=contract)}"
    )
    return Explanation(str(trace.path), device, answer, held_to, code)


def _run(one: Evidence) -> str:
    where = ", ".join(part for part in (one.device, one.how) if part)
    return f"{where}: {one.seen}"


def _shape(result: LaunchResult) -> str:
    return f"<<<{_dim(result.grid)}, {_dim(result.block)}>>>"


def _dim(dim: tuple[int, int, int] | None) -> str:
    x, y, z = dim or (0, 0, 0)
    return str(x) if y == z == 1 else f"({x}, {y}, {z})"


def _wrapped(name: str, text: str, most: int) -> Iterator[str]:
    """``text`` behind ``name`` in at most so many lines; what is longer ends in ``…``."""
    indent = 0 if name == _TITLE else _INDENT
    name = "" if name == _TITLE else name
    found = textwrap.wrap(
        " ".join(text.split()),
        COLUMNS - indent,
        max_lines=most,
        placeholder=" …",
        break_on_hyphens=False,
    )
    for number, line in enumerate(found):
        yield f"{name if number == 0 else '':{indent}}{line}"


def _cut(lines: list[str], most: int, what: str) -> list[str]:
    if len(lines) <= most:
        return lines
    left = len(lines) - most + 1
    return [*lines[: most - 1], f"{'':{_INDENT}}… {left} more {what}"]
