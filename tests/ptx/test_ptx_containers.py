"""PTX in fatbins, ELF files and plain text."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from container_writer import Entry, elf, fatbin
from hypothesis import given, settings
from hypothesis import strategies as st

from zluda.errors import PtxError
from zluda.ptx import parse_module
from zluda.ptx.containers import (
    KIND_ELF,
    KIND_PTX,
    Container,
    best_cubin,
    best_ptx,
    entries_of,
    fatbin_entries,
    fatbin_size,
    identify,
    ptx_from,
)
from zluda.ptx.elf import cubin_variables, sections_with_bytes

CUBIN = (Path(__file__).parent / "data" / "variables_sm90.cubin").read_bytes()
REAL = (Path(__file__).parent / "data" / "nvcc_sm75_sm90.fatbin").read_bytes()


def ptx(arch: int, name: str = "k") -> bytes:
    filler = "".join(f"// line {i}\n" for i in range(50))
    return f".version 8.3\n.target sm_{arch}\n.address_size 64\n{filler}.entry {name} {{ ret; }}\n".encode()


def test_nvcc_fatbin() -> None:
    entries = entries_of(REAL)
    assert [(e.kind, e.arch, e.compressed) for e in entries] == [(1, 75, True), (2, 90, False), (1, 90, True)]
    assert entries[0].options == "--generate-line-info"
    assert entries[0].version == (9, 0)
    images = ptx_from(REAL)
    assert [image.arch for image in images] == [75, 90]
    for image in images:
        assert parse_module(image.text).kernel_names == ("_Z4tinyPi",)


@pytest.mark.parametrize("compression", ["", "zstd", "lz4"])
def test_compressions(compression: str) -> None:
    data = fatbin(Entry(ptx(80), 80, compression=compression, options="-O1 --maxrregcount=32", name="a.cu"))
    (entry,) = fatbin_entries(data)
    assert (entry.compressed, entry.options, entry.name) == (
        compression != "",
        "-O1 --maxrregcount=32",
        "a.cu",
    )
    assert entry.payload().rstrip(b"\0") == ptx(80)
    assert ptx_from(data)[0].text == ptx(80).decode()
    assert ptx_from(data)[0].options == "-O1 --maxrregcount=32"


def test_identify() -> None:
    assert identify(ptx(90)) is Container.PTX
    assert identify(b"// a comment\n" * 50 + ptx(90)) is Container.PTX
    assert identify(REAL) is Container.FATBIN
    assert identify(elf({})) is Container.ELF
    assert identify(elf({}, machine=190)) is Container.CUBIN
    assert identify(b"") is Container.UNKNOWN
    assert identify(b"PK\x03\x04 zip") is Container.UNKNOWN


def test_executables_hold_several_fatbins() -> None:
    first, second = fatbin(Entry(ptx(75, "a"), 75)), fatbin(Entry(ptx(90, "b"), 90, compression="zstd"))
    data = elf({".text": b"code", ".nv_fatbin": first + bytes(16) + second, "__nv_relfatbin": fatbin()})
    assert [parse_module(image.text).kernel_names for image in ptx_from(data)] == [("a",), ("b",)]
    assert {section.name for section in sections_with_bytes(data)} == {
        ".text",
        ".nv_fatbin",
        "__nv_relfatbin",
        ".shstrtab",
    }


def test_plain_text_says_what_it_targets() -> None:
    (image,) = ptx_from(ptx(75) + b"\0\0")
    assert (image.arch, image.ptx_version, image.portable) == (75, (8, 3), True)
    assert best_ptx(ptx(90), 75) is not None


def test_machine_code_alone_has_no_ptx() -> None:
    assert ptx_from(fatbin(Entry(b"\x7fELF", 90, kind=KIND_ELF))) == []
    assert best_ptx(elf({}, machine=190), 90) is None
    assert KIND_PTX != KIND_ELF


@pytest.mark.parametrize(
    ("capability", "arch"), [(70, None), (75, 75), (86, 80), (89, 80), (90, 90), (100, 90), (120, 90)]
)
def test_the_newest_architecture_not_above_the_device_is_taken(capability: int, arch: int | None) -> None:
    specific = 0x100011
    data = fatbin(
        Entry(ptx(75), 75), Entry(ptx(90), 90), Entry(ptx(80), 80), Entry(ptx(100), 100, flags=specific)
    )
    best = best_ptx(data, capability)
    if capability == 100:
        arch = 100
    assert (best.arch if best else None) == arch


@pytest.mark.parametrize("cut", [1, 8, 15, 40, 100, -8, -1])
def test_truncated_fatbins_say_so(cut: int) -> None:
    data = fatbin(Entry(ptx(90), 90))[:cut]
    with pytest.raises(PtxError):
        ptx_from(data)
    if len(data) >= 16:
        with pytest.raises(PtxError, match="truncated"):
            list(fatbin_entries(data))


def test_corrupt_payloads_say_so() -> None:
    for compression in ("zstd", "lz4"):
        data = bytearray(fatbin(Entry(ptx(90) * 20, 90, compression=compression)))
        data[80:120] = bytes(40)
        with pytest.raises(PtxError, match=r"corrupt|decompressed"):
            ptx_from(bytes(data))


def test_a_size_that_lies_is_refused() -> None:
    data = bytearray(fatbin(Entry(ptx(90), 90, compression="zstd")))
    struct.pack_into("<Q", data, 16 + 56, 1 << 40)
    with pytest.raises(PtxError, match="at most"):
        ptx_from(bytes(data))
    struct.pack_into("<Q", data, 16 + 56, 10)
    with pytest.raises(PtxError, match="decompressed to"):
        ptx_from(bytes(data))


def test_foreign_bytes() -> None:
    with pytest.raises(PtxError, match="neither"):
        ptx_from(b"MZ\x90\0")
    with pytest.raises(PtxError, match="no fatbin"):
        fatbin_size(bytes(32))
    with pytest.raises(PtxError, match="ELF"):
        ptx_from(b"\x7fELF" + bytes(40))


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_damage_ends_in_a_list_or_a_ptx_error(data: st.DataObject) -> None:
    whole = bytearray(
        data.draw(
            st.sampled_from([REAL, elf({".nv_fatbin": REAL}), fatbin(Entry(ptx(80), 80, compression="lz4"))])
        )
    )
    for _ in range(data.draw(st.integers(1, 5))):
        # mostly in headers, where sizes and offsets are
        at = data.draw(st.one_of(st.integers(0, min(200, len(whole) - 1)), st.integers(0, len(whole) - 1)))
        whole[at] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(whole)))
    try:
        images = ptx_from(bytes(whole[: cut or len(whole)]))
    except PtxError:
        return
    assert isinstance(images, list)


def test_variables_of_a_cubin() -> None:
    """Whatever their binding; not shared memory, nor what is only declared."""
    names = cubin_variables(CUBIN)
    assert names == ["table", "counter", "hidden", "factors", "managed", "$str"]
    (native,) = (entry.payload() for entry in entries_of(REAL) if entry.kind == KIND_ELF)
    assert cubin_variables(native) == []


@pytest.mark.parametrize(
    ("capability", "arch"), [(75, None), (80, 80), (86, 80), (89, 80), (90, 90), (100, 100), (103, None)]
)
def test_the_machine_code_that_a_device_would_run(capability: int, arch: int | None) -> None:
    plain = [Entry(b"\x7fELF %03d" % one, one, kind=KIND_ELF, compression="zstd") for one in (80, 90)]
    specific = Entry(b"\x7fELF 100", 100, kind=KIND_ELF, flags=0x100011)
    found = best_cubin(fatbin(*plain, specific), capability)
    assert found == (None if arch is None else b"\x7fELF %03d" % arch)
    assert best_cubin(CUBIN, capability) == CUBIN


@pytest.mark.parametrize("where", [58, 60, 62])  # e_shentsize, e_shnum, e_shstrndx
def test_a_damaged_section_table_is_an_error(where: int) -> None:
    damaged = bytearray(CUBIN)
    struct.pack_into("<H", damaged, where, 1 if where == 58 else 0xFFFF)
    with pytest.raises(PtxError, match="ELF file truncated"):
        cubin_variables(bytes(damaged))


@settings(max_examples=200, deadline=None)
@given(st.integers(64, len(CUBIN) - 1), st.integers(0, 255))
def test_a_damaged_cubin_gives_names_or_an_error(where: int, value: int) -> None:
    damaged = bytearray(CUBIN)
    damaged[where] = value
    try:
        names = cubin_variables(bytes(damaged))
    except PtxError:
        return
    assert all(isinstance(name, str) for name in names)
