"""What a preflight found: findings, the modules and files that they are in, and a verdict for each target."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from enum import Enum
from typing import Any

from zluda.records import dataclass


class Kind(Enum):
    """Kinds of findings: the name that reports and SARIF's rules have, how grave it is, and its meaning.

    Errors decide verdicts. Warnings are of what may not be met: a symbol that is imported is not yet called.
    """

    level: str
    meaning: str

    def __new__(cls, name: str, level: str, meaning: str) -> Kind:
        member = object.__new__(cls)
        member._value_, member.level, member.meaning = name, level, meaning
        return member

    INSTRUCTION = "instruction", "error", "An instruction has no lowering for the target."
    COMPILER = "compiler", "error", "The kernel does not compile for the target."
    PTX = "ptx", "error", "The text is not valid PTX."
    MACHINE_CODE = "machine-code", "error", "The module holds NVIDIA machine code only: nothing to translate."
    CALL = "call", "error", "A recorded call has an effect that is not replayed."
    DAMAGED = "damaged", "error", "A container of device code is truncated or corrupt."
    SYMBOL = "symbol", "warning", "A driver function is imported whose effect is not replayed."
    GAP = "gap", "warning", "Something was not captured when the trace was recorded."
    LINKED = "linked", "note", "Machine code that was linked of modules whose PTX is there as well."
    LIBRARY = "library", "note", "The program stands on a library of NVIDIA's with kernels of its own."


KINDS = {kind.value: kind for kind in Kind}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing in one place. ``targets`` empty: all. ``line`` is 1-based, in the module's PTX; 0 for none.

    ``text`` is the instruction; ``count`` says how often it stands in the kernel (calls: was made).
    """

    kind: Kind
    what: str
    targets: tuple[str, ...] = ()
    kernel: str = ""
    function: str = ""
    line: int = 0
    text: str = ""
    count: int = 1

    def as_dict(self) -> dict[str, Any]:
        """For ``--json``."""
        return {
            "kind": self.kind.value,
            "level": self.kind.level,
            "what": self.what,
            "targets": list(self.targets),
            "kernel": self.kernel,
            "function": self.function,
            "line": self.line,
            "text": self.text,
            "count": self.count,
        }


@dataclass(slots=True)
class ModuleReport:
    """One module: its place in the file, what it was built for, and how its kernels fare.

    ``kernels`` are those with PTX that count (of a trace: those that were launched); ``machine_code`` those
    without. ``refused`` has, for each target, the kernels that would not translate. ``ptx`` names the image
    that was looked at (``compute_90``).
    """

    name: str
    offset: int = 0
    architectures: tuple[str, ...] = ()
    ptx: str = ""
    kernels: int = 0
    machine_code: int = 0
    instructions: int = 0
    refused: Mapping[str, frozenset[str]] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """For ``--json``."""
        return {
            "module": self.name,
            "offset": self.offset,
            "architectures": list(self.architectures),
            "ptx": self.ptx or None,
            "kernels": self.kernels,
            "machine_code_kernels": self.machine_code,
            "instructions": self.instructions,
            "refused": {target: sorted(names) for target, names in self.refused.items()},
            "findings": [finding.as_dict() for finding in self.findings],
        }


@dataclass(slots=True)
class FileReport:
    """A file, or a member of an archive (``wheel.whl!lib/x.so``); ``problem`` says why nothing was read."""

    path: str
    modules: list[ModuleReport] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    problem: str = ""

    def every_finding(self) -> Iterator[tuple[ModuleReport | None, Finding]]:
        """With the module that each is in; None for those of the file."""
        yield from ((None, finding) for finding in self.findings)
        for module in self.modules:
            yield from ((module, finding) for finding in module.findings)

    def as_dict(self) -> dict[str, Any]:
        """For ``--json``."""
        return {
            "file": self.path,
            "problem": self.problem,
            "findings": [finding.as_dict() for finding in self.findings],
            "modules": [module.as_dict() for module in self.modules],
        }


@dataclass(frozen=True, slots=True)
class TargetVerdict:
    """How all kernels fare on one target."""

    target: str
    translate: int
    refused: int
    machine_code: int
    other_errors: int

    @property
    def word(self) -> str:
        """``translates``, ``partly`` or ``no``; ``nothing`` where there is no device code."""
        if self.refused or self.machine_code or self.other_errors:
            return "partly" if self.translate else "no"
        return "translates" if self.translate else "nothing"

    def as_dict(self) -> dict[str, Any]:
        """For ``--json``."""
        return {
            "verdict": self.word,
            "translate": self.translate,
            "refused": self.refused,
            "machine_code": self.machine_code,
            "other_errors": self.other_errors,
        }


@dataclass(slots=True)
class Report:
    """All files, for all targets. ``compiled``: kernels were compiled, not only their instructions' forms."""

    targets: tuple[str, ...]
    files: list[FileReport]
    compiled: bool = False

    def verdict(self, target: str) -> TargetVerdict:
        """How all kernels of all files fare on a target."""
        modules = [module for file in self.files for module in file.modules]
        refused = sum(len(module.refused.get(target, ())) for module in modules)
        kernels = sum(module.kernels for module in modules)
        other = [
            finding
            for file in self.files
            for _, finding in file.every_finding()
            if finding.kind in (Kind.CALL, Kind.DAMAGED) or (finding.kind is Kind.PTX and not finding.kernel)
        ]
        machine_code = sum(module.machine_code for module in modules)
        return TargetVerdict(target, kernels - refused, refused, machine_code, len(other))

    @property
    def verdicts(self) -> Sequence[TargetVerdict]:
        """One for each target."""
        return [self.verdict(target) for target in self.targets]

    @property
    def exit_status(self) -> int:
        """0: all translates, on each target; 1: some does not; 2: something could not be read, or nothing
        was found.
        """
        words = {verdict.word for verdict in self.verdicts}
        if any(file.problem for file in self.files) or words <= {"nothing"}:
            return 2
        return 0 if words == {"translates"} else 1

    def as_dict(self) -> dict[str, Any]:
        """For ``--json``."""
        return {
            "targets": {verdict.target: verdict.as_dict() for verdict in self.verdicts},
            "by": "compiling" if self.compiled else "instruction forms",
            "files": [file.as_dict() for file in self.files],
        }
