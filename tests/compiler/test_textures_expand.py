"""Texture instructions as calls: operands of every kind, handles of every kind, what is refused."""

from __future__ import annotations

import struct
from dataclasses import replace

import numpy as np
import pytest

from zluda.compiler.textures import OPCODES, expanded
from zluda.compiler.textures.expand import EXPANSIONS, QUERIES
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
        module = parse_module(source)
        code = self.device.load(module)
        self.services.attach(code, module)
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
    fractions = bench.descriptor(flags=Flags.NORMALIZED_COORDINATES)
    wrapping = replace(fractions, address=(Address.WRAP, Address.WRAP, Address.WRAP))
    got = bench.run(_source(body, declarations), bind={"image": fractions, "how": wrapping})
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


_SAMPLERS = """
.global .texref image;
.global .samplerref how = {addr_mode_0 = wrap, filter_mode = linear};
.global .samplerref more[2] =
  {{force_unnormalized_coords = 1, addr_mode_0 = clamp_to_border}, {filter_mode = 1}};
"""


def test_a_sampler_is_what_its_initialiser_says(bench: _Bench) -> None:
    """By fractions, wrapped and filtered; by texels with a border; by fractions, filtered, wrapped at 0."""
    body = """
      mul.f32 %f7, %f0, 0f3D800000; mov.f32 %f8, 0f00000000;
      tex.2d.v4.f32.f32 {%f1,_,_,_}, [image, how, {%f7, %f8}];
      mov.u64 %d1, more;
      tex.2d.v4.f32.f32 {%f2,_,_,_}, [image, %d1, {%f0, %f8}];
      mov.u64 %d1, more+8;
      txq.filter_mode.b32 %r1, [%d1]; cvt.rn.f32.u32 %f3, %r1;
      mov.u64 %d1, how;
      txq.addr_mode_0.b32 %r1, [%d1]; txq.force_unnormalized_coords.b32 %r2, [more];
      mad.lo.u32 %r1, %r1, 16, %r2; cvt.rn.f32.u32 %f4, %r1;
    """
    independent = _source(body, _SAMPLERS).replace("sm_80", "sm_80, texmode_independent")
    image = bench.descriptor(flags=Flags.NORMALIZED_COORDINATES)
    got = bench.run(independent, bind={"image": image})
    # Lane n is at n / 2 texels; what a filter blends begins half a texel before, and row 0 is met by its end.
    before = (np.arange(32) - 1) // 2
    weight = np.where(np.arange(32) % 2, 0, 0.5)
    rows = np.where(True, 0.5 * 30, 0)  # half of row 3, which is wrapped to
    expected = (1 - weight) * (before % 8) + weight * ((before + 1) % 8) + rows
    assert got[:, 0].tolist() == expected.tolist()
    assert got[:10, 1].tolist() == [*range(8), 0, 0]
    assert got[0, 2:].tolist() == [1, 1]


def test_a_sampler_of_no_mode_is_refused(bench: _Bench) -> None:
    with pytest.raises(UnsupportedError, match=r"sampler with sideways for one of wrap.*variable how"):
        bench.run(_source("ret;", ".global .samplerref how = {addr_mode_1 = sideways};"))


def test_every_query_is_answered_and_other_samples_than_the_first_are_zeros(bench: _Bench) -> None:
    names = [q for q in QUERIES if q != "memory_layout"]
    asked = [
        f"txq.{q}.b32 %r1, [%d1]; setp.eq.u32 %p1, %r8, {n}; @%p1 mov.b32 %r2, %r1;"
        for n, q in enumerate(names)
    ]
    body = "mov.u32 %r2, 0;" + "".join(asked)
    body += "suq.memory_layout.b32 %r3, [%d1]; mov.b32 %f1, %r2; mov.b32 %f2, %r3; and.b32 %r1, %r8, 1;"
    body += "tex.2dms.v4.f32.s32 {%f3,_,_,_}, [%d1, {%r1, 3, 2, 0}]; mov.f32 %f4, %f0;"
    bench.services.textures.set(
        11,
        replace(
            bench.descriptor(filter=Filter.LINEAR, flags=Flags.NORMALIZED_COORDINATES),
            address=(Address.MIRROR, Address.BORDER, Address.WRAP),
        ),
    )
    got = bench.run(_source(body), handle=11).view(np.uint32)
    numbers = (8, 4, 0, 0, 0, 0, 0x10DE, 0x10B0, 1, 0, 1, 1, 4, 0)
    expected = dict(zip(names, numbers, strict=True))
    assert dict(zip(names, got[:, 0].tolist(), strict=False)) == expected
    assert got[:, 1].tolist() == [0] * 32
    assert got[:, 2].view(np.float32).tolist() == [23, 0] * 16


def test_a_function_without_textures_is_left_alone() -> None:
    function = parse_module(_source("mov.f32 %f1, %f0;")).function("k")
    assert expanded(function) is function


def test_what_is_expanded_is_known_without_importing_how() -> None:
    assert frozenset(EXPANSIONS) == OPCODES


def _calls(body: str) -> list[tuple[str, list[str]]]:
    """What a kernel calls, with the values that are passed: registers by name, numbers as they are."""
    found, passed = [], []
    for one in expanded(parse_module(_source(body)).function("k")).instructions:
        if one.opcode == "st" and one.slots.get("space") == "param":
            value = one.operands[1]
            passed.append(str(getattr(value, "name", getattr(value, "value", value))))
        if one.opcode == "call":
            name = next(o.name for o in one.operands if getattr(o, "name", "").startswith("__zluda_"))
            found.append((name, passed))
            passed = []
    return found


@pytest.mark.parametrize(
    ("instruction", "called"),
    [
        (
            "tex.2d.v4.f32.f32 {%f1,%f2,%f3,%f4}, [%d1, {%f0,%f1}], {%r1,%r2};",
            ("tex_2d", "%d1 %d1 %f0 %f1 0 0 %r1 %r2"),
        ),
        (
            "tex.level.2d.v4.f32.f32 {%f1,%f2,%f3,%f4}, [%d1, {%f0,%f1}], %f2, {%r1,%r2};",
            ("tex_2d", "%d1 %d1 %f0 %f1 %f2 1 %r1 %r2"),
        ),
        (
            "tex.grad.2d.v4.f32.f32 {%f1,%f2,%f3,%f4}, [%d1, {%f0,%f1}], {%f2,%f3}, {%f4,%f5}, {%r1,%r2};",
            ("grad_2d", "%d1 %d1 %f0 %f1 %f2 %f3 %f4 %f5 %r1 %r2"),
        ),
        (
            "tex.grad.3d.v4.f32.f32 {%f1,%f2,%f3,%f4}, [%d1, {%f0,%f1,%f2,%f2}],"
            " {%f3,%f4,%f5,%f5}, {%f6,%f7,%f8,%f8};",
            ("lod_3d", "%d1 %d1 %f0 %f1 %f2 %f3 %f4 %f5 %f6 %f7 %f8"),
        ),
        (
            "tld4.b.2d.v4.f32.f32 {%f1,%f2,%f3,%f4}, [%d1, {%f0,%f1}], {%r1,%r2};",
            ("tld4_2d", "%d1 %d1 %f0 %f1 2 %r1 %r2"),
        ),
        ("suld.b.2d.b32.zero %r1, [%d1, {%r2,%r3}];", ("surface_2d", "%d1 %r2 %r3 4 2 0")),
        ("suld.b.2d.b32.clamp %r1, [%d1, {%r2,%r3}];", ("surface_2d", "%d1 %r2 %r3 4 1 0")),
        ("suld.b.2d.v2.b32.trap {%r1,%r4}, [%d1, {%r2,%r3}];", ("surface_2d", "%d1 %r2 %r3 8 0 0")),
        ("sust.p.2d.v2.b32.zero [%d1, {%r2,%r3}], {%r4,%r5};", ("sust_2d", "%d1 %r2 %r3 2 %r4 %r5 0 0")),
        ("sured.p.add.2d.b32.clamp [%d1, {%r2,%r3}], %r4;", ("surface_2d", "%d1 %r2 %r3 0 1 1")),
        ("sured.b.add.2d.u32.clamp [%d1, {%r2,%r3}], %r4;", ("surface_2d", "%d1 %r2 %r3 4 1 1")),
        ("suq.width.b32 %r1, [%d1];", ("query", "%d1 0 0 1")),
        ("txq.level.height.b32 %r1, [%d1], %r2;", ("query", "%d1 1 %r2 0")),
    ],
)
def test_what_a_form_has_is_passed_in_order(instruction: str, called: tuple[str, str]) -> None:
    name, values = _calls(instruction)[0]
    assert (name.removeprefix("__zluda_"), " ".join(values)) == called


def test_a_level_that_gradients_choose_is_chosen() -> None:
    body = (
        "tex.grad.3d.v4.f32.f32 {%f1,%f2,%f3,%f4}, [%d1, {%f0,%f1,%f2,%f2}],"
        " {%f3,%f4,%f5,%f5}, {%f6,%f7,%f8,%f8};"
    )
    name, values = _calls(body)[1]
    assert name == "__zluda_tex_3d" and values[6] == "1"


def test_a_reduction_that_names_no_sign_is_unsigned() -> None:
    function = expanded(
        parse_module(_source("sured.p.min.2d.b32.clamp [%d1, {%r2,%r3}], %r4;")).function("k")
    )
    assert [one.type.spelling for one in function.instructions if one.opcode == "red"] == ["u32"]
