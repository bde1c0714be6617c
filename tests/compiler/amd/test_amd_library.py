"""A kernel with texture functions behind it is given the registers and the scratch that all of them take."""

from __future__ import annotations

import re

import pytest

from zluda.compiler import compile_kernel
from zluda.compiler.amd.code_object import CodeObject
from zluda.compiler.amd.disassembler import Disassembler
from zluda.compiler.amd.linker import link
from zluda.ptx import parse_module

KERNEL = """
.version 8.0
.target sm_90
.address_size 64
.visible .entry sample(.param .u64 out, .param .u64 handle)
{
  .reg .b64 %rd<3>; .reg .f32 %f<6>;
  ld.param.u64 %rd1, [out]; ld.param.u64 %rd2, [handle];
  mov.f32 %f5, 0f3f000000;
  tex.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%rd2, {%f5, %f5}];
  st.global.f32 [%rd1], %f1;
  ret;
}
"""


def _highest(kind: str, texts: list[str]) -> int:
    """The registers of a kind that instructions name: the number behind the last."""
    found = [0]
    for text in texts:
        for first, last in re.findall(rf"\b{kind}\[?(\d+)(?::(\d+)\])?", text.split("//")[0]):
            found.append(int(last or first) + 1)
    return max(found)


@pytest.mark.parametrize(("target", "version"), [("gfx1030", 5), ("gfx90a", 5), ("gfx1100", 4)])
def test_descriptor_and_metadata_cover_what_is_behind_the_kernel(target: str, version: int) -> None:
    compiled = compile_kernel(parse_module(KERNEL), "sample", target, code_object_version=version)
    code = CodeObject(link(compiled.code, {name: 0x10000 for name in compiled.symbols}))
    assert list(code.kernels) == ["sample"]
    entry = code.kernel("sample")
    descriptor, told = entry.descriptor, entry.metadata
    disassembler = Disassembler(code.target, told[".wavefront_size"])
    texts = [
        line.text for start, end in code.code_ranges() for line in disassembler.lines(code.image, start, end)
    ]
    assert sum("s_swappc_b64" in text for text in texts) > 5
    granule = 8 if descriptor.wave32 or code.target.packed_f32 else 4
    allocated = ((descriptor.rsrc1 & 63) + 1) * granule
    assert 40 < _highest("v", texts) <= told[".vgpr_count"] <= allocated < told[".vgpr_count"] + granule
    assert _highest("s", texts) <= told[".sgpr_count"]
    if code.target.generation == 9:
        assert told[".sgpr_count"] <= ((descriptor.rsrc1 >> 6 & 15) // 2 + 1) * 16
        assert (descriptor.rsrc3 & 63) == -(-told[".vgpr_count"] // 4) - 1
    assert descriptor.private_bytes == told[".private_segment_fixed_size"]
    assert not descriptor.dynamic_stack and not told.get(".uses_dynamic_stack")


def test_scratch_is_that_of_the_deepest_calls() -> None:
    """A function writes at most up to its frame's end, and the next frame begins there: s32 moves by it."""
    compiled = compile_kernel(parse_module(KERNEL), "sample", "gfx1100")
    code = CodeObject(link(compiled.code, {name: 0x10000 for name in compiled.symbols}))
    (start, end), *_ = code.code_ranges()
    lines = Disassembler(code.target, 32).lines(code.image, start, end)
    grown = re.compile(r"s_addk?_[iu]32 s32, (?:s32, )?(0x[0-7]\w{,3}|\d+)$")
    frames = [int(m[1], 0) for line in lines if (m := grown.match(line.text))]
    assert len(frames) >= 4
    scratch = code.kernel("sample").descriptor.private_bytes
    assert max(frames) < scratch <= sum(frames) + 2048
