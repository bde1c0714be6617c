"""Machine code must not care how far apart its sections land: the linker aborts the process where it does."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from zluda import open_trace
from zluda.compiler import compile_kernel
from zluda.ptx import parse_module

ABSOLUTE_64 = 1  # R_X86_64_64


def relocation_types(elf: bytes) -> set[int]:
    """The types in all SHT_RELA sections of a 64-bit object."""
    (table,) = struct.unpack_from("<Q", elf, 40)
    entry_size, count = struct.unpack_from("<HH", elf, 58)
    types = set()
    for index in range(count):
        kind, _, _, offset, size = struct.unpack_from("<IQQQQ", elf, table + index * entry_size + 4)
        if kind == 4:
            types |= {struct.unpack_from("<I", elf, at + 8)[0] for at in range(offset, offset + size, 24)}
    return types


CORPUS = sorted((Path(__file__).parents[2] / "corpus").glob("*/trace.bin"))


def _check(path: Path, kernels: slice) -> None:
    with open_trace(path) as trace:
        texts = [text for module in trace.module_list if (text := trace.ptx(module)) is not None]
    assert texts
    modules = [parse_module(text) for text in texts]
    for module, name in [(one, name) for one in modules for name in one.kernel_names][kernels]:
        assert relocation_types(compile_kernel(module, name, "cpu", block=(128, 1, 1)).code) == {ABSOLUTE_64}


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.parent.name)
def test_kernels_have_absolute_relocations_alone(path: Path) -> None:
    """The code model decides it, for one kernel as for all; texture functions are merged into theirs."""
    _check(path, slice(1))


@pytest.mark.nightly
@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.parent.name)
def test_every_other_kernel_has_absolute_relocations_alone(path: Path) -> None:
    _check(path, slice(1, None))
