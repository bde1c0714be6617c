"""Finding the instruction inside a launch, with one fault each seeded into zluda."""

from __future__ import annotations

from typing import Any

import numpy
import pytest
from kernels import HEADER
from one_launch import record
from seeding import run
from seeding.table import FAULTS

from zluda.isolate.values import first_difference

SCRIPT = """
import dataclasses, json, sys
from zluda.isolate.values import first_difference
found = first_difference(sys.argv[1], int(sys.argv[2]), "cpu", "gfx1030")
print(json.dumps(None if found is None else dataclasses.asdict(found)))
"""

MIXING = (
    HEADER
    + """
.file 1 "mix.cu"
.visible .entry mix(.param .u64 mix_param_0, .param .u64 mix_param_1)
{
    .reg .b32 %r<14>;
    .reg .b64 %rd<6>;
    .shared .align 4 .b8 tile[512];
    ld.param.u64 %rd1, [mix_param_0];
    ld.param.u64 %rd2, [mix_param_1];
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, %ctaid.x;
    shl.b32 %r3, %r2, 7;
    add.u32 %r4, %r3, %r1;
    mul.wide.u32 %rd3, %r4, 4;
    add.s64 %rd4, %rd1, %rd3;
    add.s64 %rd5, %rd2, %rd3;
    ld.global.u32 %r5, [%rd5];
    .loc 1 17 5
    brev.b32 %r6, %r5;
    .loc 1 18 5
    shl.b32 %r7, %r1, 2;
    mov.u32 %r8, tile;
    add.u32 %r9, %r8, %r7;
    st.shared.u32 [%r9], %r6;
    bar.sync 0;
    xor.b32 %r10, %r7, 256;
    add.u32 %r11, %r8, %r10;
    ld.shared.u32 %r12, [%r11];
    add.u32 %r13, %r12, 1;
    st.global.u32 [%rd4], %r13;
    ret;
}
"""
)
"""A thread stores its number's bits reversed; another warp adds one to it."""


@pytest.fixture(scope="module")
def mixing(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, int]:
    path = tmp_path_factory.mktemp("mixing") / "trace.bin"
    count = 256
    data = numpy.arange(count, dtype="<u4").tobytes()
    return str(path), record(path, MIXING, "mix", [bytes(4 * count), data], grid=(2, 1, 1), block=(128, 1, 1))


def test_devices_that_agree_have_no_difference(mixing: tuple[str, int]) -> None:
    assert first_difference(*mixing, "cpu", "cpu") is None


def line_of(ptx: str, text: str) -> int:
    return next(n for n, line in enumerate(ptx.splitlines(), 1) if text in line)


@pytest.mark.slow
def test_the_writer_of_what_was_loaded_is_followed(mixing: tuple[str, int]) -> None:
    """Wrong is the third warp of the second block alone, which stores nothing that is wrong itself."""
    found: Any = run(FAULTS["v_bfrev_b32_is_wrong_for_200"], SCRIPT, mixing[0], str(mixing[1]))
    assert found["text"] == "brev.b32 %r6, %r5;"
    assert (found["kind"], found["ptx_line"]) == ("value", line_of(MIXING, "brev.b32"))
    assert found["source"] == "mix.cu:17"
    assert (found["block"], found["thread"], found["occurrence"]) == ([1, 0, 0], [200 - 128, 0, 0], 0)
    assert (found["bits_a"], found["bits_b"]) == (0x13000000, 0x13000004)
    assert found["inputs"] == [{"register": "%r5", "type": "b32", "value": "0x000000C8", "bits": 200}]
    assert [word in line for word, line in zip(("+0x220", "global", "shared"), found["path"], strict=True)]
