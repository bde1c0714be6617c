"""What the recorder makes of a module's image: which PTX, which variables, what the GPU ran."""

from __future__ import annotations

from pathlib import Path

import pytest
from container_writer import Entry, fatbin

from zluda.trace.images import read_module
from zluda.tracefile import Fidelity, ModuleKind

CUBIN = (Path(__file__).parents[1] / "ptx" / "data" / "variables_sm90.cubin").read_bytes()
VARIABLES = ["table", "counter", "hidden", "factors", "managed", "$str"]
PTX = b".version 8.0\n.target sm_90\n.address_size 64\n.global .u32 counter;\n.extern .global .u32 other;\n"


def test_ptx_is_what_the_gpu_ran() -> None:
    contents = read_module([PTX], 90)
    assert (contents.kind, contents.fidelity) == (ModuleKind.PTX, Fidelity.SAME_PTX)
    assert contents.globals == ["counter"]


def test_machine_code_has_its_variables_on_record() -> None:
    """Else a kernel that updates one would differ in every replay of the machine code itself."""
    contents = read_module([CUBIN], 90)
    assert (contents.kind, contents.fidelity, contents.found) == (ModuleKind.CUBIN, Fidelity.UNKNOWN, [])
    assert contents.globals == VARIABLES


@pytest.mark.parametrize("compression", ["", "zstd"])
def test_a_fat_binary_without_ptx_has_those_of_the_machine_code_that_runs(compression: str) -> None:
    native = Entry(CUBIN, 90, kind=2, compression=compression)
    other = Entry(b"\x7fELF of another GPU", 75, kind=2)
    contents = read_module([fatbin(other, native)], 90)
    assert (contents.kind, contents.found, contents.problem) == (ModuleKind.FATBIN, [], "")
    assert contents.globals == VARIABLES
    assert read_module([fatbin(other, native)], 86).globals == []


def test_ptx_beside_machine_code_is_what_is_replayed() -> None:
    contents = read_module([fatbin(Entry(CUBIN, 90, kind=2), Entry(PTX, 90))], 90)
    assert (contents.fidelity, contents.globals) == (Fidelity.SIBLING, ["counter"])
    assert [image.architecture for image in contents.found] == ["compute_90"]


@pytest.mark.parametrize("image", [CUBIN[:200], fatbin(Entry(CUBIN[:3000], 90, kind=2))])
def test_a_damaged_image_is_recorded_with_what_is_wrong(image: bytes) -> None:
    contents = read_module([image], 90)
    assert "ELF file" in contents.problem
    assert contents.globals == []
