"""``v[%r1+2]``: an array's element as an address, its index in a register, as ptxas reads it.

In SASS (ptxas 13.0) the index is 32 bits, extended by its register's sign, and the distance is index times
a scalar's size modulo 2^32, extended with zeros: also where rows or vectors are declared.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import zluda

HEAD = """.version 8.8
.target sm_90
.address_size 64
.extern .global .u64 calls[2];
.extern .global .u32 late[4];
.visible .entry k(.param .u64 pa, .param .u64 pb)
{ .reg .b32 %r<32>; .reg .b64 %l<16>; .reg .b16 %h<4>; .reg .s16 %i<4>; .reg .b8 %c<4>; .reg .f32 %f<4>;
  .shared .align 4 .u32 sh[64]; .local .align 4 .u32 own[8];
  .param .b32 in; .param .b32 out;
  mov.u32 %r0, %tid.x; ld.param.u64 %l0, [pa]; ld.param.u64 %l1, [pb];
  mad.wide.u32 %l2, %r0, 8, %l0; mad.wide.u32 %l3, %r0, 4, %l1;
  ld.global.u64 %l4, [%l2]; ld.global.u32 %r4, [%l2]; ld.global.u16 %h1, [%l2]; ld.global.s16 %i1, [%l2];
  ld.global.u8 %c1, [%l2]; mov.u64 %l5, grid[4]; ld.global.u32 %r5, [%l0];
"""
TAIL = """
  st.global.u32 [%l3], %r9; ret; }
.visible .func (.param .b32 r) twice(.param .b32 a)
{ .reg .b32 %r<2>; ld.param.b32 %r0, [a]; shl.b32 %r0, %r0, 1; st.param.b32 [r], %r0; ret; }
.visible .func (.param .b32 r) square(.param .b32 a)
{ .reg .b32 %r<2>; ld.param.b32 %r0, [a]; mul.lo.u32 %r0, %r0, %r0; st.param.b32 [r], %r0; ret; }
.visible .global .align 8 .u64 calls[2] = { twice, square };
.visible .global .align 4 .u32 late[4] = { 50, 51, 52, 53 };
"""
BEFORE = """
.global .align 4 .u32 grid[4][4] = { {100, 101, 102, 103}, {104, 105, 106, 107}, {108, 109} };
.global .align 16 .v4 .u32 quads[2] = { {200, 201, 202, 203}, {204, 205, 206, 207} };
.const .align 4 .u32 fixed[16] = { 300, 301, 302, 303, 304, 305, 306, 307, 308 };
.global .align 2 .u16 halves[16] = { 400, 401, 402, 403, 404, 405, 406, 407, 408 };
"""
LANES = np.arange(32, dtype=np.uint64) % 4


@pytest.fixture(scope="module", params=["cpu", "gfx1030"])
def device(request: pytest.FixtureRequest) -> Iterator[Any]:
    with zluda.open_device(request.param) as opened:
        yield opened


def results(device: Any, bodies: dict[str, str], given: np.ndarray) -> dict[str, list[int]]:
    """What each body leaves in ``%r9`` of 32 threads; ``%l4`` is the thread's word, ``%r4`` its low half."""
    head, rest = HEAD.split(".visible .entry k(")
    kernels = [f".visible .entry k{i}({rest}{body}" for i, body in enumerate(bodies.values())]
    end, functions = TAIL.split("\n.visible .func", 1)
    text = head + BEFORE + f"{end}\n".join(kernels) + end + "\n.visible .func" + functions
    module = device.load_module(text)
    found = {}
    for i, body in enumerate(bodies):
        out = device.array(np.full(32, 0xA5A5A5A5, np.uint32))
        module.kernel(f"k{i}").launch(grid=1, block=32, args=[device.array(given), out])
        found[body] = out.numpy().tolist()
    return found


def test_elements_are_scalars_and_their_index_any_integer_register(device: Any) -> None:
    cases = {
        "32": ("ld.global.u32 %r9, grid[%r4];", 100 + LANES),
        "64": ("ld.global.u32 %r9, grid[%l4];", 100 + LANES),
        "16": ("ld.global.u32 %r9, grid[%h1];", 100 + LANES),
        "8": ("ld.global.u32 %r9, grid[%c1];", 100 + LANES),
        "uniform": ("ld.global.u32 %r9, grid[%r5+3];", 103 + 0 * LANES),
        "further": ("ld.global.u32 %r9, grid[%r4+2];", 102 + LANES),
        "constant": ("ld.global.u32 %r9, grid[5];", 105 + 0 * LANES),
        "vectors": ("ld.global.u32 %r9, quads[%r4];", 200 + LANES),
        "vector": ("ld.global.u32 %r9, quads[5];", 205 + 0 * LANES),
        "pair": ("shl.b32 %r4, %r4, 1; ld.global.v2.u32 {%r8, %r9}, quads[%r4];", 201 + 2 * LANES),
        "const": ("ld.const.u32 %r9, fixed[%r4+1];", 301 + LANES),
        "generic": ("ld.u32 %r9, grid[%r4];", 100 + LANES),
        "u16": ("ld.global.u16 %r9, halves[%r4+4];", 404 + LANES),
        "mov": ("mov.u64 %l6, grid[%r4+1]; ld.global.u32 %r9, [%l6+4];", 102 + LANES),
        "cvta": ("cvta.global.u64 %l6, grid[%r4]; ld.u32 %r9, [%l6];", 100 + LANES),
        "special": (
            "mov.u32 %r8, sh; mov.u32 %r9, sh[%laneid]; sub.u32 %r9, %r9, %r8;",
            4 * np.arange(32),
        ),
    }
    found = results(device, {name: body for name, (body, _) in cases.items()}, LANES)
    assert found == {name: list(wanted) for name, (_, wanted) in cases.items()}


def test_the_index_is_32_bits_and_so_is_the_distance(device: Any) -> None:
    """The upper half of a 64-bit index is not looked at; 2^30 elements of 4 bytes are no distance."""
    given = LANES + np.uint64(1 << 30) + np.uint64(7 << 32)
    found = results(
        device, {"64": "ld.global.u32 %r9, grid[%l4];", "32": "ld.global.u32 %r9, grid[%r4];"}, given
    )
    assert found["64"] == found["32"] == list(100 + LANES)


def test_signs(device: Any) -> None:
    """A signed register's sign is extended to 32 bits; the distance of element -1 is 2^32 - 4."""
    cases = {
        "s16": "ld.global.u32 %r9, grid[%i1+4];",
        "far": "mov.u64 %l6, grid[%i1]; mov.u64 %l7, grid; sub.u64 %l6, %l6, %l7; shr.u64 %l6, %l6, 2; "
        "cvt.u32.u64 %r9, %l6;",
    }
    found = results(device, cases, np.full(32, 0xFFFF, np.uint64))
    assert found == {"s16": [103] * 32, "far": [0x3FFFFFFF] * 32}


def test_stores_in_every_space(device: Any) -> None:
    cases = {
        "shared": "st.shared.u32 sh[%r0+1], %r4; bar.sync 0; xor.b32 %r8, %r0, 1;"
        " ld.shared.u32 %r9, sh[%r8+1];",
        "mapped": "st.shared.u32 sh[%r0], %r4; mapa.u64 %l6, sh[%r0], 0; ld.u32 %r9, [%l6];",
        "local": "st.local.u32 own[%r4], %r0; ld.local.u32 %r9, own[%r4];",
        "global": "st.global.u32 late[%r4], %r4; ld.global.u32 %r9, late[%r4];",
    }
    found = results(device, cases, LANES)
    assert found["mapped"] == list(LANES)
    assert found["shared"] == [int(LANES[i ^ 1]) for i in range(32)]
    assert found["local"] == list(range(32))
    assert found["global"] == list(LANES)


def test_a_table_of_functions_declared_before_it_is_defined(device: Any) -> None:
    """As Dr.Jit calls: ``callables`` is external where it is used, and visible at the module's end."""
    call = """shr.u32 %r8, %r4, 1; ld.global.u64 %l6, calls[%r8];
      { proto: .callprototype (.param .b32 _) _ (.param .b32 _);
        st.param.b32 [in], %r0; call (out), %l6, (in), proto; ld.param.b32 %r9, [out]; }"""
    found = results(device, {"call": call, "late": "ld.global.u32 %r9, late[%r4];"}, LANES)
    assert found["call"] == [i * i if i & 2 else 2 * i for i in range(32)]
    assert found["late"] == list(50 + LANES)
