"""A preflight for people: on a terminal, and as Markdown for an issue."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TextIO

from zluda.isolate.check.results import FileReport, Finding, Kind, ModuleReport, Report, TargetVerdict
from zluda.report.names import readable
from zluda.report.words import plural
from zluda.tracefile.text import printable

_WORDS = {
    "translates": "everything translates",
    "partly": "some of it does not translate",
    "no": "nothing of it translates",
    "nothing": "no device code was found",
}
_UNITS = {
    Kind.INSTRUCTION: "instruction",
    Kind.CALL: "call",
    Kind.GAP: "time",
    Kind.MACHINE_CODE: "kernel",
    Kind.LINKED: "kernel",
}
_LISTED = 20  # places of one kind of finding
_MODULES = 30  # of a file


def verdict_line(verdict: TargetVerdict) -> str:
    """``gfx1030: some of it does not translate (40 of 42 kernels do; 2 refused)``."""
    total = verdict.translate + verdict.refused + verdict.machine_code
    parts = [f"{verdict.translate} of {total} kernels do"] if total else []
    if verdict.refused:
        parts.append(f"{verdict.refused} refused")
    if verdict.machine_code:
        parts.append(f"{verdict.machine_code} are machine code only")
    if verdict.other_errors:
        parts.append(f"{verdict.other_errors} other problems")
    return f"{verdict.target}: {_WORDS[verdict.word]}" + (f" ({'; '.join(parts)})" if parts else "")


def print_report(report: Report, out: TextIO) -> None:
    """The verdicts, then each file: its modules, and what was found, the gravest first."""
    for verdict in report.verdicts:
        out.write(verdict_line(verdict) + "\n")
    for file in report.files:
        out.write(f"\n{printable(file.path)}: {_contents(file)}\n")
        for line in _file_lines(file):
            out.write(f"  {line}\n")
    if not report.compiled:
        out.write("\nBy the forms of instructions; --compile compiles every kernel, for certain.\n")


def _contents(file: FileReport) -> str:
    if file.problem:
        return printable(file.problem)
    if not file.modules:
        return "no device code"
    kernels = sum(one.kernels for one in file.modules)
    instructions = sum(one.instructions for one in file.modules)
    with_ptx = sum(bool(one.ptx) for one in file.modules)
    found = f"{plural(len(file.modules), 'module')}, {with_ptx} with PTX"
    return f"{found}: {plural(kernels, 'kernel')}, {plural(instructions, 'instruction')}"


def _file_lines(file: FileReport) -> Iterator[str]:
    if len(file.modules) <= _MODULES:
        yield from (_module_line(one) for one in file.modules)
    else:
        built = Counter(name for one in file.modules for name in one.architectures)
        yield "built for " + ", ".join(f"{name} ({count})" for name, count in built.most_common())
    for finding, places in _grouped(file):
        yield f"{finding.kind.level}: {_what(finding)}{_times(finding, places)}"
        yield from (f"  {place}" for place in _places(finding, places))


def _module_line(module: ModuleReport) -> str:
    built = ", ".join(module.architectures) or module.ptx or "unknown"
    held = f"{plural(module.kernels, 'kernel')}, {plural(module.instructions, 'instruction')}"
    return f"{printable(module.name)}: {held}; {built}"


Place = tuple[ModuleReport | None, Finding]


def _grouped(file: FileReport) -> list[tuple[Finding, list[Place]]]:
    """Findings that say the same, errors first, then by how often they were made."""
    groups: dict[tuple[str, str, tuple[str, ...]], list[Place]] = {}
    for module, finding in file.every_finding():
        key = (finding.kind.value, finding.what, finding.targets)
        groups.setdefault(key, []).append((module, finding))
    order = ["error", "warning", "note"]
    ranked = sorted(groups.values(), key=lambda places: (order.index(places[0][1].kind.level), -len(places)))
    return [(places[0][1], places) for places in ranked]


def _what(finding: Finding) -> str:
    on = f" [{', '.join(finding.targets)}]" if finding.targets else ""
    return f"{printable(finding.what)}{on}"


def _times(finding: Finding, places: Iterable[Place]) -> str:
    count = sum(one.count for _, one in places)
    unit = _UNITS.get(finding.kind)
    return f" ({plural(count, unit)})" if unit else ""


def _places(finding: Finding, places: list[Place]) -> Iterator[str]:
    if finding.kind not in (Kind.INSTRUCTION, Kind.PTX, Kind.COMPILER, Kind.DAMAGED):
        return
    for module, one in places[:_LISTED]:
        name = printable(module.name) if module is not None else ""
        line = f":{one.line}" if one.line else ""
        where = f" in {readable(one.kernel)}" if one.kernel else ""
        through = f", by its function {readable(one.function)}" if one.function else ""
        text = f": {printable(one.text)}" if one.text else ""
        yield f"{name}{line}{where}{through}{text}"
    if len(places) > _LISTED:
        yield f"and {len(places) - _LISTED} more places"


def markdown(report: Report) -> str:
    """A table of verdicts, and one of what was found."""
    lines = ["## zluda check", "", "| target | verdict | translate | refused | machine code only |"]
    lines.append("|---|---|---|---|---|")
    for one in report.verdicts:
        lines.append(
            f"| `{one.target}` | {_WORDS[one.word]} | {one.translate} | {one.refused} | {one.machine_code} |"
        )
    for file in report.files:
        lines += ["", f"### {_cell(file.path)}", "", f"{_cell(_contents(file))}", ""]
        groups = _grouped(file)
        if groups:
            lines += ["| | what | targets | times | first place |", "|---|---|---|---|---|"]
        for finding, places in groups:
            first = next(_places(finding, places), "")
            count = sum(one.count for _, one in places)
            targets = ", ".join(finding.targets) or "all"
            cells = [finding.kind.level, finding.what, targets, str(count), first]
            lines.append("| " + " | ".join(map(_cell, cells)) + " |")
    return "\n".join([*lines, ""])


def _cell(text: str) -> str:
    return printable(text).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")
