"""Texture instructions as calls: operands of every kind, handles of every kind, what is refused."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from zluda.compiler.textures import OPCODES, expanded
from zluda.compiler.textures.expand import EXPANSIONS
from zluda.device.cpu import CpuDevice
from zluda.device.services import Services
from zluda.errors import LaunchError, UnsupportedError
from zluda.numerics.texture.layout import (
    Address,
    Descriptor,
    Filter,
    Flags,
    Format,
    Geometry,
    Kind,
    tight_levels,
)
from zluda.ptx import parse_module

_HEADER = ".version 8.3\n.target sm_80\n.address_size 64\n"
_KERNEL = """
.visible .entry k(.param .u64 out, .param .u64 tex) {
  .reg .b64 %d<4>; .reg .b32 %r<9>; .reg .f32 %f<9>; .reg .b16 %h<9>; .reg .pred %p<3>;
  ld.param.u64 %d0, [out]; ld.param.u64 %d1, [tex];
  mov.u32 %r8, %tid.x; mul.wide.u32 %d2, %r8, 16; add.u64 %d0, %d0, %d2;
  mov.f32 %f1, 0f00000000; mov.f32 %f2, %f1; mov.f32 %f3, %f1; mov.f32 %f4, %f1;
  cvt.rn.f32.u32 %f0, %r8;
  BODY
  st.global.v4.f32 [%d0], {%f1,%f2,%f3,%f4};
  ret;
}
"""


def _source(body: str, declarations: str = "") -> str:
    return _HEADER + declarations + _KERNEL.replace("BODY", body)


class _Bench:
    """A CPU device with a 2-D texture of 8 by 4 floats, texel (x, y) being x + 10 y, for handle 9."""

    def __init__(self) -> None:
        self.device = CpuDevice()
        self.services = Services(self.device)
        texels = np.add.outer(10 * np.arange(4), np.arange(8)).astype(np.float32)
        self.texels = self.device.allocate(texels.nbytes)
        self.device.write(self.texels, texels.tobytes())
        self.services.textures.set(9, self.descriptor())

    def descriptor(self, **options: object) -> Descriptor:
        levels, _ = tight_levels((8, 4, 1), 4, address=self.texels)
        return Descriptor(Kind.TEXTURE, Geometry.D2, Format.FLOAT, 1, levels, **options)  # type: ignore[arg-type]

    def run(self, source: str, *, handle: int = 9, bind: dict[str, Descriptor] | None = None) -> np.ndarray:
        code = self.device.load(parse_module(source))
        self.services.attach(code)
        self.services.ready()
        for name, descriptor in (bind or {}).items():
            self.services.textures.set(code.global_variable(name)[0], descriptor)
        out = self.device.allocate(32 * 16)
        parameters = struct.pack("<QQ", out, handle)
        self.device.launch(code.kernel("k"), (1, 1, 1), (32, 1, 1), parameters)
        self.device.synchronize()
        return np.frombuffer(self.device.read(out, 512), np.float32).reshape(32, 4)


@pytest.fixture(scope="module")
def bench() -> _Bench:
    return _Bench()


_X = np.minimum(np.arange(32), 7)


def test_an_object_is_read_through_its_handle(bench: _Bench) -> None:
    body = "tex.2d.v4.f32.f32 {%f1,_,%f3,_}, [%d1, {%f0, 0f40200000}];"  # y = 2.5
    assert bench.run(_source(body))[:, 0].tolist() == (_X + 20).tolist()


def test_only_lanes_whose_guard_holds_are_written(bench: _Bench) -> None:
    body = "setp.lt.u32 %p1, %r8, 3; @%p1 tex.2d.v4.f32.s32 {%f1,%f2,%f3,%f4}, [%d1, {%r8, %r8}];"
    assert bench.run(_source(body))[:5, 0].tolist() == [0, 11, 22, 0, 0]


@pytest.mark.slow
def test_a_reference_is_bound_by_its_address_and_has_a_sampler_of_its_own(bench: _Bench) -> None:
    declarations = ".global .texref image;\n.global .samplerref how;\n"
    body = (
        "mul.f32 %f0, %f0, 0f3D800000; tex.2d.v4.f32.f32 {%f1,%f2,%f3,%f4}, [image, how, {%f0, 0f00000000}];"
    )
    wrapping = bench.descriptor(
        flags=Flags.NORMALIZED_COORDINATES, address=(Address.WRAP, Address.WRAP, Address.WRAP)
    )
    got = bench.run(_source(body, declarations), bind={"image": bench.descriptor(), "how": wrapping})
    assert got[:, 0].tolist() == (np.arange(32) // 2 % 8).tolist()


def test_the_address_of_a_reference_may_be_in_a_register(bench: _Bench) -> None:
    body = """
      mov.u64 %d1, image;
      tex.2d.v4.f32.s32 {%f1,%f2,%f3,%f4}, [%d1, {1, 2}];
      istypep.texref %p1, image; selp.f32 %f2, 0f3F800000, 0f00000000, %p1;
      istypep.samplerref %p1, image; selp.f32 %f3, 0f3F800000, 0f00000000, %p1;
    """
    got = bench.run(_source(body, ".global .texref image;\n"), bind={"image": bench.descriptor()})
    assert got[0].tolist() == [21, 1, 0, 0]


def test_halves_are_packed_lowest_first(bench: _Bench) -> None:
    body = """
      tex.2d.v2.f16x2.s32 {%r1,%r2}, [%d1, {%r8, 0}]; mov.b32 %f1, %r1;
      tex.2d.v4.f16.s32 {%h1,%h2,%h3,%h4}, [%d1, {%r8, 1}]; cvt.f32.f16 %f2, %h1;
    """
    got = bench.run(_source(body))
    assert got[:8, 0].view(np.uint32).astype(np.uint16).view(np.float16).tolist() == [*range(8)]
    assert got[:9, 1].tolist() == [*range(10, 18), 0]  # and nothing out of range


def test_residence_is_always_true_and_a_depth_is_read_in_vain(bench: _Bench) -> None:
    body = """
      tex.2d.v4.f32.s32 {%f1,%f2,%f3,%f4}|%p1, [%d1, {%r8, 0}], %f0;
      selp.f32 %f2, 0f3F800000, 0f00000000, %p1;
    """
    got = bench.run(_source(body))
    assert got[:8, 0].tolist() == [*range(8)]
    assert got[:, 1].tolist() == [1] * 32


@pytest.mark.slow
def test_two_fetches_with_different_filters_are_two_descriptors(bench: _Bench) -> None:
    bench.services.textures.set(10, bench.descriptor(filter=Filter.LINEAR))
    body = """
      tex.2d.v4.f32.f32 {%f1,_,_,_}, [%d1, {%f0, 0f3F000000}];
      mov.u64 %d1, 10;
      tex.2d.v4.f32.f32 {%f2,_,_,_}, [%d1, {%f0, 0f3F000000}];
    """
    got = bench.run(_source(body))
    assert got[:9, 0].tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 7]
    assert got[:9, 1].tolist() == [0, 0.5, 1.5, 2.5, 3.5, 4.5, 5.5, 6.5, 7]


def test_a_handle_that_no_object_has_stops_the_launch(bench: _Bench) -> None:
    body = "tex.2d.v4.f32.s32 {%f1,%f2,%f3,%f4}, [%d1, {%r8, %r8}];"
    with pytest.raises(LaunchError, match="a texture or surface handle that no object has") as caught:
        bench.run(_source(body), handle=0x777)
    assert (caught.value.kernel, caught.value.thread) == ("k", (0, 0, 0))


def test_a_surface_access_out_of_range_stops_the_launch_where_it_shall(bench: _Bench) -> None:
    body = "mul.lo.u32 %r1, %r8, 4; suld.b.2d.b32.trap %r2, [%d1, {%r1, 3}]; mov.b32 %f1, %r2;"
    with pytest.raises(LaunchError, match=r"out of range \(.trap\)") as caught:
        bench.run(_source(body))
    assert caught.value.thread == (8, 0, 0)


@pytest.mark.parametrize(
    ("body", "what"),
    [
        ("tex.2dms.v4.f32.s32 {%f1,%f2,%f3,%f4}, [%d1, {%r1,%r2,%r3,%r3}];", "multisample"),
        ("txq.channel_order.b32 %r1, [%d1];", "txq.channel_order"),
        ("tex.cube.v4.f32.s32 {%f1,%f2,%f3,%f4}, [%d1, {%r1,%r2,%r3,%r3}];", "tex.cube.v4.f32.s32"),
    ],
)
def test_what_has_no_meaning_here_is_named(body: str, what: str) -> None:
    function = parse_module(_source(body)).function("k")
    with pytest.raises(UnsupportedError, match=what):
        expanded(function)


def test_a_function_without_textures_is_left_alone() -> None:
    function = parse_module(_source("mov.f32 %f1, %f0;")).function("k")
    assert expanded(function) is function


def test_what_is_expanded_is_known_without_importing_how() -> None:
    assert frozenset(EXPANSIONS) == OPCODES
