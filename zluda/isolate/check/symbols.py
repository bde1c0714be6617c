"""What an executable or library asks of CUDA's driver and libraries."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from zluda.driver.table import driver_api
from zluda.isolate.check.results import Finding, Kind
from zluda.library.table import library_api
from zluda.ptx.elf import Buffer, imported_symbols, needed_libraries

_DRIVER = re.compile(r"cu[A-Z][A-Za-z0-9]+(?:_v\d+)?(?:_pt[sd][zs])?")


def symbol_findings(data: Buffer) -> Iterator[Finding]:
    """Of an ELF file: driver functions whose effect the runtime does not have, and libraries with kernels.

    Functions that a program asks for at run time (``cuGetProcAddress``: all that a static CUDA runtime uses)
    are not among its symbols. Raises PtxError where the file is damaged.
    """
    yield from driver_findings(imported_symbols(data))
    libraries = library_api()["libraries"]
    for file in needed_libraries(data):
        name = next((name for name, stem in libraries.items() if file.partition(".")[0] == stem), None)
        if name is not None:
            yield Finding(Kind.LIBRARY, f"{name}: kernels of {file} run as well; zluda check that file")


def driver_findings(names: Iterable[str]) -> Iterator[Finding]:
    """Of imported symbols: those of the driver that it lacks, and those whose effect is not replayed."""
    known = driver_api()["functions"]
    version = f"CUDA {driver_api()['cuda_version'] // 1000}"
    for name in sorted(set(names)):
        if _DRIVER.fullmatch(name) is None:
            continue
        row = known.get(name)
        if row is None:
            yield Finding(Kind.SYMBOL, f"{name}: no function of {version}'s driver")
        elif not row["replay"] and row["effect"] == "effect":
            yield Finding(Kind.SYMBOL, f"{name}: its effect is not replayed")
