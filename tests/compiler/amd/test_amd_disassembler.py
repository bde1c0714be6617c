"""Finding LLVM's disassembler, and what it says."""

from __future__ import annotations

import pytest

from zluda.compiler.amd import disassembler
from zluda.compiler.amd.disassembler import Disassembler
from zluda.compiler.amd.targets import target
from zluda.errors import DeviceError, UnsupportedError
from zluda.isolate.opinion.assembly import assemble, text_section


def test_lines_carry_offsets_and_sizes() -> None:
    code, _ = text_section(assemble("gfx1030", "s_nop 0\n v_add_f32 v0, 0x40490fdb, v1\n s_endpgm\n"))
    lines = list(Disassembler(target("gfx1030")).lines(code, 0, 16))
    assert [(line.offset, line.size) for line in lines] == [(0, 4), (4, 8), (12, 4)]
    assert lines[1].text == "v_add_f32_e32 v0, 0x40490fdb, v1"


def test_wave_size_changes_what_masks_are_called() -> None:
    code, _ = text_section(assemble("gfx1030", "v_cmp_eq_u32 vcc_lo, v0, v1\n"))
    assert "vcc_lo" in Disassembler(target("gfx1030"), 32).at(code, 0).text
    assert "vcc," in Disassembler(target("gfx1030"), 64).at(code, 0).text


def test_bytes_that_are_no_instruction_are_named() -> None:
    with pytest.raises(UnsupportedError, match=r"machine code ff ff ff ff .*offset 0x4, target gfx1030"):
        Disassembler(target("gfx1030")).at(b"\0\0\0\0" + b"\xff" * 8, 4)


def test_without_a_library_the_remedy_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disassembler, "candidates", lambda: [(13, "/nowhere/libLLVM-13.so")])
    disassembler.library_for.cache_clear()
    with pytest.raises(DeviceError, match="apt-get install libllvm19"):
        Disassembler(target("gfx1100"))
    disassembler.library_for.cache_clear()
