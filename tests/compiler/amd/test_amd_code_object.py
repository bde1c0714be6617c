"""Reading code objects: kernels, metadata, loading; what is refused."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
import zstandard

from zluda.compiler.amd.code_object import CodeObject
from zluda.compiler.amd.targets import target, target_names, target_of_machine
from zluda.errors import DeviceError, Error
from zluda.isolate.opinion.assembly import Kernel, code_object

DATA = Path(__file__).parents[2] / "device" / "amd" / "data"


@pytest.fixture(params=["gfx1030", "gfx1100", "gfx90a"])
def general(request: pytest.FixtureRequest) -> CodeObject:
    return CodeObject(zstandard.decompress((DATA / f"general.{request.param}.co.zst").read_bytes()))


def test_kernels_and_their_arguments_are_read(general: CodeObject) -> None:
    assert len(general.kernels) == 23
    kernel = general.kernel("k_vadd")
    assert [(a.offset, a.size, a.kind) for a in kernel.arguments[:4]] == [
        (0, 8, "global_buffer"),
        (8, 8, "global_buffer"),
        (16, 8, "global_buffer"),
        (24, 4, "by_value"),
    ]
    assert general.kernel("k_reduce").descriptor.lds_bytes == 1024
    assert kernel.descriptor.wave32 == (general.target.name != "gfx90a")


def test_loading_keeps_code_and_moves_only_relocated_words(general: CodeObject) -> None:
    address = 0x7000_0000_0000
    image = general.load(address)
    changed = {i & ~7 for i, (a, b) in enumerate(zip(image, general.image, strict=True)) if a != b}
    for word in changed:
        assert struct.unpack_from("<Q", image, word)[0] - address in general.relocated_addresses()


def test_a_descriptor_gives_user_registers_in_order(general: CodeObject) -> None:
    names = [name for name, _ in general.kernel("k_call").descriptor.user_sgprs]
    assert names[-1] == ("kernarg_segment_ptr" if general.target.generation >= 11 else "flat_scratch_init")


@pytest.mark.parametrize("cut", [0, 16, 100, 3000])
def test_a_damaged_code_object_is_an_error(cut: int) -> None:
    data = code_object("gfx1030", "k:\n s_endpgm\n", [Kernel("k")])
    with pytest.raises(Error):
        CodeObject(data[:cut])


def test_other_elf_files_are_refused() -> None:
    with pytest.raises(Error, match="not an ELF file"):
        CodeObject(b"PK" + b"\0" * 100)
    with pytest.raises(Error, match="not a linked AMD GPU code object"):
        CodeObject(Path("/proc/self/exe").read_bytes())


def test_targets_are_found_by_name_and_by_machine() -> None:
    for name in target_names():
        assert target_of_machine(target(name).elf_machine) is target(name)
    assert target_of_machine(0xFF) is None
    with pytest.raises(DeviceError, match="expected one of gfx900"):
        target("gfx1")
    assert target("gfx1030").waves_per_simd(64, 32) == 16
    assert target("gfx90a").waves_per_simd(128, 64) == 4
