"""Compiling what a preflight found to translate: what is certain, and takes as long as it takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from zluda.compiler.precompile.run import DEFAULT_BLOCK, ModuleResult, precompile
from zluda.compiler.precompile.sources import Shape, Source
from zluda.isolate.check.images import Image
from zluda.isolate.check.results import Finding, Kind, ModuleReport
from zluda.ptx.parse import decode


def compile_modules(
    found: Sequence[tuple[Image, ModuleReport]], targets: Mapping[str, str], *, jobs: int = 0
) -> None:
    """Compile the kernels of all images into the cache, for targets with their numerics, and add what fails
    to the images' reports. Raises Error where there is no cache.
    """
    with_text = [(image, report) for image, report in found if image.text is not None]
    sources = [_source(image) for image, _ in with_text]
    for (_, report), result in zip(with_text, precompile(sources, targets, jobs=jobs), strict=True):
        _add(report, result)


def _source(image: Image) -> Source:
    assert image.text is not None
    launched = image.launched
    shapes = None if launched is None else {kernel: (Shape(DEFAULT_BLOCK),) for kernel in launched}
    return Source(image.name, decode(image.text()), shapes)


def _add(report: ModuleReport, result: ModuleResult) -> None:
    refused = {target: set(names) for target, names in report.refused.items()}
    failed: dict[tuple[str, str], list[str]] = {}
    for one in result.kernels:
        if one.failed and one.kernel not in refused.setdefault(one.target, set()):
            refused[one.target].add(one.kernel)
            failed.setdefault((one.kernel, one.reason), []).append(one.target)
    for (kernel, reason), targets in failed.items():
        report.findings.append(Finding(Kind.COMPILER, reason, tuple(targets), kernel))
    report.refused = {target: frozenset(names) for target, names in refused.items()}
