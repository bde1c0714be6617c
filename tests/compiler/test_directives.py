"""Linkage, aliases, functions that do not come back, arrays of any size as parameters, registers of 8 bits.

ptxas 13.0 accepts each text.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import zluda

PTX = """
.version 9.0
.target sm_100
.address_size 64
.weak .global .align 4 .u32 weak_one = 5;
.common .global .align 4 .b32 common_one[2];
.func (.param .b32 r) twice(.param .b32 x)
{ .reg .b32 %x; ld.param.b32 %x, [x]; add.u32 %x, %x, %x; st.param.b32 [r], %x; ret; }
.func (.param .b32 r) also(.param .b32 x);
.alias also, twice;
.weak .func (.param .b32 r) thrice(.param .b32 x)
{ .reg .b32 %x; ld.param.b32 %x, [x]; mul.lo.u32 %x, %x, 3; st.param.b32 [r], %x; ret; }
.func leave(.param .b64 p) .noreturn
{ .reg .b64 %p; ld.param.b64 %p, [p]; st.u32 [%p+24], 77; exit; }
.func (.param .b32 r) weighed(.param .b32 n, .param .align 4 .b8 values[])
{ .reg .b32 %n, %x, %y; ld.param.b32 %n, [n]; ld.param.b32 %x, [values]; ld.param.b32 %y, [values+4];
  mad.lo.u32 %x, %x, %n, %y; st.param.b32 [r], %x; ret; }
.visible .entry linked(.param .u64 p)
{
    .reg .b64 %p, %f;
    .reg .b32 %r<9>;
    ld.param.u64 %p, [p];
    { .param .b32 x, r; st.param.b32 [x], 21; call (r), also, (x); ld.param.b32 %r0, [r]; }
    st.global.u32 [%p], %r0;
    { .param .b32 x, r; st.param.b32 [x], 11; call (r), thrice, (x); ld.param.b32 %r1, [r]; }
    st.global.u32 [%p+4], %r1;
    ld.global.u32 %r2, [weak_one];
    st.global.u32 [%p+8], %r2;
    ld.global.u32 %r3, [common_one+4];
    add.u32 %r3, %r3, 9;
    st.global.u32 [common_one+4], %r3;
    st.global.u32 [%p+12], %r3;
    { .param .b32 n, r; .param .align 4 .b8 b[8];
      st.param.b32 [n], 3; st.param.b32 [b], 4; st.param.b32 [b+4], 5;
      call (r), weighed, (n, b); ld.param.b32 %r4, [r]; }
    st.global.u32 [%p+16], %r4;
    mov.u64 %f, also;
    one: .callprototype (.param .b32 _) _ (.param .b32 _);
    { .param .b32 x, r; st.param.b32 [x], 4; call (r), %f, (x), one; ld.param.b32 %r5, [r]; }
    st.global.u32 [%p+20], %r5;
    { .param .b64 x; st.param.b64 [x], %p; call leave, (x); }
    st.global.u32 [%p+28], 1;
    ret;
}
.visible .entry bytes(.param .u64 p)
{
    .reg .b64 %p;
    .reg .b8 %b<4>;
    .reg .s8 %s;
    .reg .b32 %r;
    ld.param.u64 %p, [p];
    ld.global.v4.b8 {%b0, %b1, %b2, %b3}, [%p];
    st.global.v4.b8 [%p+4], {%b3, %b2, %b1, %b0};
    ld.global.v2.u8 {%b0, %b1}, [%p];
    st.global.v2.b8 [%p+8], {%b1, %b0};
    ld.global.s8 %s, [%p+3];
    cvt.s32.s8 %r, %s;
    st.global.b32 [%p+12], %r;
    ret;
}
"""


@pytest.fixture(scope="module", params=["cpu", "gfx1030"])
def loaded(request: pytest.FixtureRequest) -> Iterator[tuple[zluda.Device, zluda.Module]]:
    with zluda.open_device(request.param) as device:
        yield device, device.load_module(PTX)


def run(loaded: tuple[zluda.Device, zluda.Module], kernel: str, values: np.ndarray) -> np.ndarray:
    device, module = loaded
    array = device.array(values)
    module.kernel(kernel).launch(grid=1, block=1, args=[array])
    return np.asarray(array.numpy())


def test_functions_and_variables_by_their_linkage(loaded: tuple[zluda.Device, zluda.Module]) -> None:
    found = run(loaded, "linked", np.zeros(8, np.uint32))
    assert found.tolist() == [42, 33, 5, 9, 17, 8, 77, 0]


def test_registers_of_8_bits(loaded: tuple[zluda.Device, zluda.Module]) -> None:
    values = np.zeros(16, np.uint8)
    values[:4] = [1, 2, 3, 0x84]
    found = run(loaded, "bytes", values)
    assert found[4:10].tolist() == [0x84, 3, 2, 1, 2, 1]
    assert found[12:].view(np.int32).tolist() == [0x84 - 256]
