"""A preflight of files, directories and archives: from paths to a report."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from zluda.compiler import apart
from zluda.compiler.precompile.sources import is_promising
from zluda.device.names import NUMERICS, kind
from zluda.errors import Error, PtxError
from zluda.isolate.check.archives import is_archive, members
from zluda.isolate.check.calls import call_findings
from zluda.isolate.check.compiling import compile_modules
from zluda.isolate.check.images import Image, images, images_of_trace
from zluda.isolate.check.results import KINDS, FileReport, Finding, Kind, ModuleReport, Report
from zluda.isolate.check.symbols import symbol_findings
from zluda.isolate.check.verdicts import Preflight
from zluda.ptx import parse_module
from zluda.ptx.containers import Container, identify
from zluda.ptx.search import mapped
from zluda.tracefile import open_trace

DEFAULT_TARGETS = ("cpu", "gfx1030", "gfx1100", "gfx90a")

Progress = Callable[[int, int], None]
"""Called with (bytes done, bytes in all) of the file at hand."""

_SQLITE = b"SQLite format 3\0"
_HEAD = 1 << 16
_SMALL = 1 << 20  # bytes of stored PTX that are judged here: a fork and what it learns would cost more
_SHARES = 32  # of a file's PTX: what is done at once, and shown as progress
_MOST_LISTED = 1000  # findings of a module


def check(
    paths: Iterable[Path],
    targets: Sequence[str] = DEFAULT_TARGETS,
    *,
    compiles: bool = False,
    jobs: int = 0,
    progress: Progress | None = None,
) -> Report:
    """Say of every module in ``paths`` what would not translate, for each target.

    ``targets`` are ``cpu`` and AMD's; ``compiles``: what seems to translate is compiled, into the cache;
    ``jobs`` processes work at once (0: one a processor). What cannot be read is a file with a problem; in
    directories and archives, files without device code are passed over. The caller must have no other
    threads. Raises DeviceError for an unknown target, Error where there is no cache to compile into.
    """
    _known(targets)
    checker = _Checker(Preflight(targets), jobs, progress, compiles=compiles)
    return Report(tuple(targets), [file for path in paths for file in checker.path(path)], compiles)


def _known(targets: Iterable[str]) -> None:
    for target in targets:
        if target != "cpu":
            from zluda.compiler.amd.targets import target_id

            target_id(target)


class _Checker:
    def __init__(self, preflight: Preflight, jobs: int, progress: Progress | None, *, compiles: bool) -> None:
        self.preflight, self.jobs, self.progress, self.compiles = preflight, jobs, progress, compiles
        self._judged: dict[tuple[bytes, frozenset[str] | None], dict[str, Any]] = {}

    def path(self, path: Path) -> Iterator[FileReport]:
        """Reports of a file, or of all that a directory holds of interest."""
        if not path.is_dir():
            yield from self._file(path, named=True)
            return
        for file in sorted(p for p in path.rglob("*") if p.is_file() and not p.is_symlink()):
            yield from self._file(file, named=False)

    def _file(self, path: Path, *, named: bool) -> Iterator[FileReport]:
        if path.exists() and not path.is_file():  # a pipe would be waited for
            yield FileReport(str(path), problem="is a device or a pipe; zluda check looks at files")
            return
        try:
            with path.open("rb") as file:
                head = file.read(_HEAD)
                if head.startswith(_SQLITE):
                    yield self._trace(path)
                elif is_archive(path, head):
                    yield from self._archive(path, named=named)
                elif named or is_promising(head):
                    yield from self._content(file, str(path), named=named)
        except OSError as error:
            yield FileReport(str(path), problem=error.strerror or str(error))
        except Error as error:
            yield FileReport(str(path), problem=str(error).removeprefix(str(path)).lstrip(": "))

    def _archive(self, path: Path, *, named: bool) -> Iterator[FileReport]:
        found = False
        for name, file in members(path):
            head = file.read(_HEAD)
            if is_promising(head):
                for report in self._content(file, f"{path}!{name}", named=False):
                    found = True
                    yield report
        if named and not found:
            yield FileReport(str(path), problem="holds no device code")

    def _content(self, file: IO[bytes], name: str, *, named: bool) -> Iterator[FileReport]:
        with mapped(file) as data:
            report = FileReport(name)
            report.modules = self._modules(list(images(data, name, self.progress)))
            if identify(data) is Container.ELF:
                with suppress(PtxError):  # a table that is damaged was told with the modules
                    report.findings = list(symbol_findings(data))
            if named and not report.modules and not report.findings:
                report.problem = "holds no device code"
            if named or report.modules:
                yield report

    def _trace(self, path: Path) -> FileReport:
        with open_trace(path) as trace:
            found = self._modules(list(images_of_trace(trace, str(path))))
            return FileReport(str(path), found, list(call_findings(trace)))

    # --- modules -----------------------------------------------------------------------------------------

    def _modules(self, found: Sequence[Image]) -> list[ModuleReport]:
        """A report of each; of equal texts one is judged."""
        left = {
            (image.digest, image.launched): image
            for image in found
            if image.digest is not None and (image.digest, image.launched) not in self._judged
        }
        self._judge([*left.values()])
        with_ptx: set[str] = set()
        for image in found:
            if image.digest is not None:
                with_ptx.update(self._judged[image.digest, image.launched].get("names", ()))
        reports = [self._report(image, with_ptx) for image in found]
        if self.compiles:
            targets = {one: NUMERICS[kind(one)][0] for one in self.preflight.targets}
            compile_modules(list(zip(found, reports, strict=True)), targets, jobs=self.jobs)
        return reports

    def _judge(self, chosen: Sequence[Image]) -> None:
        total = sum(image.size for image in chosen)
        done = 0
        for share, outcomes in self._each(_shares(chosen, 1 if total <= _SMALL else _SHARES), total):
            for image, outcome in zip(share, outcomes, strict=True):
                assert image.digest is not None
                self._judged[image.digest, image.launched] = outcome
                done += image.size
            if self.progress is not None:
                self.progress(done, total)

    def _each(
        self, shares: Sequence[Sequence[Image]], total: int
    ) -> Iterator[tuple[Sequence[Image], list[dict[str, Any]]]]:
        if total <= _SMALL:
            yield from ((share, self._judged_here(share)) for share in shares)
            return
        for share, outcome in apart.each_apart(
            shares, lambda one: json.dumps(self._judged_here(one)).encode(), jobs=self.jobs
        ):
            if outcome.failure is None:
                yield share, json.loads(outcome.value)
            else:
                yield share, [{"problem": outcome.failure.reason} for _ in share]

    def _judged_here(self, share: Sequence[Image]) -> list[dict[str, Any]]:
        return [self._verdict(image) for image in share]

    def _verdict(self, image: Image) -> dict[str, Any]:
        """What JSON can hold of a module's verdict."""
        assert image.text is not None
        try:
            module = parse_module(image.text(), file=image.name)
            verdict = self.preflight.judge(module, image.launched, _MOST_LISTED)
        except PtxError as error:
            return {"problem": error.message, "line": error.line, "text": error.text}
        return {
            "names": verdict.kernels,
            "instructions": verdict.instructions,
            "refused": {target: sorted(names) for target, names in verdict.refused.items()},
            "findings": [finding.as_dict() for finding in verdict.findings],
        }

    def _report(self, image: Image, with_ptx: set[str]) -> ModuleReport:
        report = ModuleReport(image.name, image.offset, image.architectures, image.ptx)
        if image.problem:
            report.findings.append(Finding(Kind.DAMAGED, image.problem))
        elif image.digest is None:
            _tell_machine_code(report, image, with_ptx)
        else:
            _fill(report, self._judged[image.digest, image.launched])
        return report


def _tell_machine_code(report: ModuleReport, image: Image, with_ptx: set[str]) -> None:
    """A module without PTX: with ``-rdc=true`` the linked machine code of others, whose PTX is there."""
    built_for = ", ".join(image.architectures) or "one architecture"
    count = len(image.machine_code)
    if image.machine_code and image.machine_code <= with_ptx:
        report.findings.append(
            Finding(Kind.LINKED, f"machine code ({built_for}) of kernels whose PTX is there", count=count)
        )
    elif image.machine_code:
        report.machine_code = count
        what = f"machine code only ({built_for})"
        report.findings.append(Finding(Kind.MACHINE_CODE, what, count=count))


def _fill(report: ModuleReport, verdict: dict[str, Any]) -> None:
    if "problem" in verdict:
        found = Finding(
            Kind.PTX, verdict["problem"], line=verdict.get("line", 0), text=verdict.get("text", "")
        )
        report.findings.append(found)
        return
    report.kernels, report.instructions = len(verdict["names"]), verdict["instructions"]
    report.refused = {target: frozenset(names) for target, names in verdict["refused"].items()}
    report.findings = [
        Finding(
            KINDS[row["kind"]],
            row["what"],
            tuple(row["targets"]),
            row["kernel"],
            row["function"],
            row["line"],
            row["text"],
            row["count"],
        )
        for row in verdict["findings"]
    ]


def _shares(found: Sequence[Image], count: int) -> list[list[Image]]:
    """At most ``count`` parts of about the same size, large ones first."""
    parts: list[tuple[int, list[Image]]] = [(0, []) for _ in range(min(count, len(found)))]
    for image in sorted(found, key=lambda one: -one.size):
        size, images_ = parts[0]
        images_.append(image)
        parts[0] = (size + image.size, images_)
        parts.sort(key=lambda part: part[0])
    return [images_ for _, images_ in sorted(parts, key=lambda part: -part[0])]
