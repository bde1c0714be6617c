"""Which instructions of a module a target's lowering refuses, without compiling it.

Each form of instruction (``ptx/forms.py``) is lowered once for each target, in a sample of the module that
was met first with it, and the outcome stands for all instructions of that form. What depends on a whole
function rather than on an instruction (shared memory beyond the target's, a shape of control flow) is seen by
compiling only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from zluda.compiler.refusals import refusals
from zluda.errors import Error, PtxError
from zluda.isolate.check.results import Finding, Kind
from zluda.ptx import Instruction, Module, parse_module
from zluda.ptx.forms import Form, FormTable, places_of, sample
from zluda.records import dataclass

WHOLE_TEXT = 1 << 18
"""Characters up to which all of a module is parsed: of larger ones, the sampled instructions are."""

_REACHING = "__zluda_reaches_{}"
_REACHING_KERNEL = """
.visible .entry {kernel}()
{{
    .reg .b64 %zluda;
    mov.u64 %zluda, {function};
    ret;
}}
"""


@dataclass(frozen=True, slots=True)
class ModuleVerdict:
    """A module's kernels, its instructions, and what was found; ``refused`` is by target."""

    kernels: tuple[str, ...]
    instructions: int
    refused: Mapping[str, frozenset[str]]
    findings: tuple[Finding, ...]


class Preflight:
    """Judges any number of modules for some targets; what it learnt of a form serves all later ones."""

    def __init__(self, targets: Sequence[str]) -> None:
        self.targets = tuple(targets)
        self._table = FormTable()
        self._refused: dict[Form, dict[str, str]] = {}  # form → what each target that refuses it says

    def judge(
        self, module: Module, launched: Iterable[str] | None = None, limit: int | None = None
    ) -> ModuleVerdict:
        """``launched``: the kernels that matter (None: all). ``limit`` caps the findings that are listed.

        A function that does not parse is a finding, as far as it is parsed: see :data:`WHOLE_TEXT`.
        """
        names = [name for name in module.function_names if module.defines(name)]
        broken = module.errors() if len(module.source) <= WHOLE_TEXT else {}
        uses = {name: self._table.forms_of(module, name) for name in names if name not in broken}
        broken |= self._learn(module, uses)
        kernels = [name for name in module.kernel_names if launched is None or name in launched]
        refused: dict[str, set[str]] = {target: set() for target in self.targets}
        findings: list[Finding] = [
            Finding(Kind.PTX, error.message, line=error.line, text=error.text)
            for name, error in broken.items()
            if name not in names
        ]
        for kernel in kernels:
            for function in [kernel, *_reached(module, kernel, names)]:
                if function in broken:
                    found = [_broken(broken[function], kernel, function)]
                else:
                    found = list(self._findings(module, kernel, function, uses[function]))
                for one in found:
                    for target in one.targets or self.targets:
                        refused[target].add(kernel)
                findings += found if limit is None else found[: max(limit - len(findings), 0)]
        return ModuleVerdict(
            tuple(kernels),
            sum(sum(forms.values()) for forms in uses.values()),
            {target: frozenset(found) for target, found in refused.items()},
            tuple(findings),
        )

    def _findings(
        self, module: Module, kernel: str, function: str, forms: Mapping[Form, int]
    ) -> Iterator[Finding]:
        """One for each thing that is said, at the first of the instructions of which it is."""
        bad = {form for form in forms if self._refused.get(form)}
        places = places_of(module, function, bad) if bad else {}
        said: dict[tuple[str, tuple[str, ...]], list[Form]] = {}
        for form in sorted(places, key=lambda one: places[one]):
            by_reason: dict[str, list[str]] = {}
            for target, what in self._refused[form].items():
                by_reason.setdefault(what, []).append(target)
            for what, targets in by_reason.items():
                everywhere = len(targets) == len(self.targets)
                said.setdefault((what, () if everywhere else tuple(targets)), []).append(form)
        for (what, some), same in said.items():
            place = places[same[0]]
            text = " ".join(module.code[place : module.code.index(";", place) + 1].split())
            inner = "" if function == kernel else function
            count = sum(forms[form] for form in same)
            yield Finding(Kind.INSTRUCTION, what, some, kernel, inner, module.line(place), text, count)

    # --- forms that were not met before ------------------------------------------------------------------

    def _learn(self, module: Module, uses: Mapping[str, Mapping[Form, int]]) -> dict[str, PtxError]:
        """Lower one instruction of each new form; functions that are not PTX, and why."""
        new = {form for forms in uses.values() for form in forms if form not in self._refused}
        chosen: dict[str, dict[int, Form]] = {}
        for name, forms in uses.items():
            mine = new & forms.keys()
            if mine:
                chosen[name] = {place: form for form, place in places_of(module, name, mine).items()}
                new -= mine
        broken: dict[str, PtxError] = {}
        for places in chosen.values():
            self._refused |= {form: {} for form in places.values()}
        if chosen:
            few = _with_reaching(sample(module, chosen).module, chosen)
            for name, places in chosen.items():
                try:
                    self._lower(few, name, places)
                except Error:  # of the sample: the function itself says what is wrong, or is lowered whole
                    broken |= self._whole(module, name, places)
        return broken

    def _lower(self, few: Module, name: str, places: Mapping[int, Form]) -> None:
        function = few.function(name)
        forms = [places[place] for place in sorted(places)]
        by_line = {
            instruction.location.line: form
            for instruction, form in zip(function.instructions, forms, strict=False)
        }
        for target in self.targets:
            for instruction, what in _refusals(few, name, target):
                form = by_line.get(instruction.location.line)
                if form is not None:
                    self._refused[form][target] = what

    def _whole(self, module: Module, name: str, places: Mapping[int, Form]) -> dict[str, PtxError]:
        try:
            module.function(name)
        except PtxError as error:
            return {name: error}
        by_line = {module.line(place): form for place, form in places.items()}
        for target in self.targets:
            try:
                for instruction, what in _refusals(_with_reaching(module, [name]), name, target):
                    form = by_line.get(instruction.location.line)
                    if form is not None:
                        self._refused[form][target] = what
            except PtxError as error:
                return {name: error}
            except Error as error:  # of all of it: whatever is met first
                for form in places.values():
                    self._refused[form].setdefault(target, str(error))
        return {}


def _refusals(module: Module, name: str, target: str) -> Iterator[tuple[Instruction, str]]:
    if module.function(name).is_entry:
        return refusals(module, name, target, stops=True)
    return refusals(module, _REACHING.format(name), target, function=name, stops=True)


def _with_reaching(module: Module, names: Iterable[str]) -> Module:
    """The module with a kernel for each of these functions that is none, which reaches it."""
    added = [
        _REACHING_KERNEL.format(kernel=_REACHING.format(name), function=name)
        for name in names
        if name not in module.kernel_names
    ]
    return parse_module(module.source + "".join(added), file=module.file) if added else module


def _reached(module: Module, kernel: str, names: Sequence[str]) -> list[str]:
    """The functions that a kernel may call, by the names in its text and theirs."""
    others = [name for name in names if name not in module.kernel_names]
    found: dict[str, None] = {}
    pending = [kernel] if others else []
    while pending:
        _, body, end = module.span(pending.pop())
        text = module.code[body or 0 : end]
        more = [name for name in others if name not in found and name in text]
        found |= dict.fromkeys(more)
        pending += more
    return list(found)


def _broken(error: PtxError, kernel: str, function: str) -> Finding:
    inner = "" if function == kernel else function
    what = f"{error.message}; expected {error.expected}" if error.expected else error.message
    return Finding(Kind.PTX, what, (), kernel, inner, error.line, error.text)
