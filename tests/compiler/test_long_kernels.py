"""What is very long is compiled another way, to code that does the same."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from zluda.compiler.cpu import llvm
from zluda.device.cpu import CpuDevice
from zluda.ptx import parse_module

PTX = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 p) { .reg .b64 %a; .reg .b32 %r<3>; .reg .f32 %f<3>;
ld.param.u64 %a, [p]; mov.u32 %r1, %tid.x; mad.wide.u32 %a, %r1, 4, %a;
ld.global.f32 %f1, [%a]; fma.rn.ftz.f32 %f1, %f1, %f1, 0f3F800000; st.global.f32 [%a], %f1; ret; }
"""


def test_a_long_kernel_has_its_registers_allocated_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    levels = []
    machine = llvm.target_machine
    monkeypatch.setattr(llvm, "target_machine", lambda level=2: levels.append(level) or machine(level))
    monkeypatch.setattr(llvm, "_LONG", 5)
    monkeypatch.setenv("ZLUDA_CACHE_POLICY", "off")
    device = CpuDevice(threads=1)
    start = np.arange(32, dtype=np.float32)
    out = device.allocate(start.nbytes)
    device.write(out, start.tobytes())
    device.launch(device.load(parse_module(PTX)).kernel("k"), (1, 1, 1), (32, 1, 1), struct.pack("<Q", out))
    found = np.frombuffer(device.read(out, start.nbytes), np.float32)
    device.close()
    assert found.tolist() == (start * start + 1).tolist()
    assert 0 in levels
