"""PTX modules for tests, with the same kernels in numpy (what NVIDIA computes) and on a PythonDevice."""

from __future__ import annotations

import struct

import numpy as np
from python_device import PythonDevice

from zluda.device.base import Dim3

LAYOUT = ((0, 8), (8, 8), (16, 4))
"""Parameters of :data:`ADD`: destination, source, count."""

HEADER = ".version 8.0\n.target sm_80\n.address_size 64\n"

STORE = """
.visible .entry {name}(.param .u64 p)
{{
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [p];
    st.global.u32 [%rd1], {value};
    ret;
}}
"""
"""A kernel to be given a ``name``, and a ``value`` that each thread stores to where ``p`` points."""

ADD = """
.visible .entry add(.param .u64 add_param_0, .param .u64 add_param_1, .param .u32 add_param_2)
{
    .reg .pred %p<2>;
    .reg .f32 %f<4>;
    .reg .b32 %r<6>;
    .reg .b64 %rd<8>;
    ld.param.u64 %rd1, [add_param_0];
    ld.param.u64 %rd2, [add_param_1];
    ld.param.u32 %r1, [add_param_2];
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mad.lo.s32 %r5, %r2, %r3, %r4;
    setp.ge.u32 %p1, %r5, %r1;
    @%p1 bra DONE;
    cvta.to.global.u64 %rd3, %rd1;
    cvta.to.global.u64 %rd4, %rd2;
    mul.wide.u32 %rd5, %r5, 4;
    add.s64 %rd6, %rd3, %rd5;
    add.s64 %rd7, %rd4, %rd5;
    ld.global.f32 %f1, [%rd6];
    ld.global.f32 %f2, [%rd7];
    add.rn.f32 %f3, %f1, %f2;
    st.global.f32 [%rd6], %f3;
DONE:
    ret;
}
"""
"""``destination[i] += source[i]`` for f32."""

OTHER = ADD.replace("add(", "other(").replace("add_param", "other_param")
"""The same under another name."""

BROKEN = """
.visible .entry broken(.param .u64 broken_param_0)
{
    .reg .b32 %r<2>;
    frobnicate.u32 %r1, 1;
    ret;
}
"""

MODULE = HEADER + ADD + OTHER


def parameters(destination: int, source: int, count: int) -> bytes:
    """Packed parameters of ``add``."""
    return struct.pack("<QQI", destination, source, count)


def add(device: PythonDevice, grid: Dim3, block: Dim3, packed: bytes) -> None:
    """What :data:`ADD` does."""
    destination, source, count = struct.unpack("<QQI", packed)
    total = np.frombuffer(device.read(destination, 4 * count), "<f4") + np.frombuffer(
        device.read(source, 4 * count), "<f4"
    )
    device.write(destination, total.astype("<f4").tobytes())


def floats(*values: float) -> bytes:
    """f32 values as bytes."""
    return np.array(values, "<f4").tobytes()


def ramp(count: int, start: float = 0.0) -> bytes:
    """``start``, ``start + 1``, … as f32 bytes."""
    return (np.arange(count, dtype="<f4") + np.float32(start)).tobytes()


def added(first: bytes, second: bytes) -> bytes:
    """What NVIDIA's add of two f32 buffers leaves."""
    return (np.frombuffer(first, "<f4") + np.frombuffer(second, "<f4")).tobytes()
