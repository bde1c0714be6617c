"""Linking AMDGPU objects: what loads, what LLVM's own tools make of it, what is refused."""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from zluda.compiler import compile_kernel
from zluda.compiler.amd.code_object import CodeObject
from zluda.compiler.amd.linker import elf_hash, hash_table, link, read_object
from zluda.errors import Error, UnsupportedError
from zluda.ptx import parse_module

TARGETS = ("gfx1030", "gfx1100", "gfx90a")
PTX = """
.version 8.0
.target sm_90
.address_size 64
.visible .global .align 4 .u32 counter;
.visible .entry count(.param .u64 out)
{
    .reg .b64 %rd<3>;
    .reg .b32 %r<3>;
    .reg .f32 %f<3>;
    ld.param.u64 %rd1, [out];
    ld.global.f32 %f1, [%rd1];
    rcp.approx.ftz.f32 %f2, %f1;
    st.global.f32 [%rd1], %f2;
    atom.global.add.u32 %r1, [counter], 1;
    st.global.u32 [%rd1+4], %r1;
    ret;
}
"""


def _tool(name: str) -> str | None:
    """LLVM's tool, in whichever version is newest here."""
    found = sorted(Path("/usr/lib").glob(f"llvm-*/bin/{name}"), key=lambda p: int(p.parts[3][5:]))
    return str(found[-1]) if found and int(found[-1].parts[3][5:]) >= 17 else shutil.which(name)


@pytest.fixture(params=TARGETS)
def relocatable(request: pytest.FixtureRequest) -> bytes:
    return compile_kernel(parse_module(PTX), "count", request.param).code


def _got_words(data: bytes) -> list[int]:
    """What the global offset table holds."""
    code = CodeObject(data)
    offset, size = next((s[4], s[5]) for s in code._sections if s[1] == 1 and s[2] == 3)
    return [n for (n,) in struct.iter_unpack("<Q", data[offset : offset + size])]


def test_a_linked_object_has_its_kernel_and_tables(relocatable: bytes) -> None:
    code = CodeObject(link(relocatable, {"counter": 0x7F0000001000}))
    assert list(code.kernels) == ["count"]
    entry = code.kernel("count")
    assert entry.descriptor.kernarg_bytes == 8
    assert [(start, end) for start, end in code.code_ranges() if start <= entry.address < end]


def test_a_given_address_is_in_the_offset_table(relocatable: bytes) -> None:
    linked = link(relocatable, {"counter": 0x7F0000001000})
    assert _got_words(linked) == [0x7F0000001000]
    assert CodeObject(linked).load(0x1000)  # nothing is left to the loader


def test_other_symbols_are_left_to_the_loader(relocatable: bytes) -> None:
    code = CodeObject(link(relocatable))
    assert [kind for _, kind, _ in code._relocations()] == [3]  # R_AMDGPU_ABS64
    with pytest.raises(UnsupportedError, match="R_AMDGPU_ABS64"):
        code.load(0x1000)


def test_symbol_and_string_tables_are_there(relocatable: bytes, tmp_path: Path) -> None:
    """The HIP runtime refuses code objects without them."""
    tool = _tool("llvm-readelf")
    if tool is None:
        pytest.skip("llvm-readelf is not installed (apt-get install llvm-19): nobody else reads our files")
    path = tmp_path / "count.hsaco"
    path.write_bytes(link(relocatable))
    done = subprocess.run([tool, "-a", str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "warning" not in done.stderr and "error" not in done.stderr, done.stderr
    for word in (".symtab", ".strtab", ".dynsym", ".hash", "count.kd", "R_AMDGPU_ABS64", "AMDGPU Metadata"):
        assert word in done.stdout, word


def test_code_is_as_lld_links_it(relocatable: bytes, tmp_path: Path) -> None:
    """But for the distances between sections, which are literals of s_add and s_addc."""
    tool = _tool("ld.lld")
    if tool is None:
        pytest.skip("ld.lld is not installed (apt-get install lld-19): our linker is not held against it")
    source, output = tmp_path / "count.o", tmp_path / "count.so"
    source.write_bytes(relocatable)
    subprocess.run([tool, "-shared", "-o", str(output), str(source)], check=True)
    ours, theirs = CodeObject(link(relocatable)), CodeObject(output.read_bytes())
    assert set(ours.kernels) == set(theirs.kernels)
    assert ours.kernel("count").metadata == theirs.kernel("count").metadata
    words = []
    for code in (ours, theirs):
        start, size = code.kernel("count").address, code.symbols["count"].size
        words.append([n for (n,) in struct.iter_unpack("<I", code.image[start : start + size])])
    different = [i for i, (a, b) in enumerate(zip(*words, strict=True)) if a != b]
    relative = {r[1] // 4 for r in read_object(relocatable).relocations if r[2] in (8, 9, 10, 11)}
    assert set(different) <= relative


def test_hash_table_finds_every_symbol() -> None:
    names = ["count", "count.kd", "a", "b", "counter"]
    words = [n for (n,) in struct.iter_unpack("<I", hash_table(names))]
    buckets, chain = words[2 : 2 + words[0]], words[2 + words[0] :]
    for i, name in enumerate(names, 1):
        found = buckets[elf_hash(name) % words[0]]
        while found not in (0, i):
            found = chain[found]
        assert found == i


def test_hash_is_the_system_v_abis() -> None:
    assert elf_hash("printf") == 0x077905A6


@pytest.mark.parametrize("data", [b"", b"\x7fELF" + bytes(60), b"text"])
def test_what_is_no_object_is_refused(data: bytes) -> None:
    with pytest.raises(Error):
        link(data)
