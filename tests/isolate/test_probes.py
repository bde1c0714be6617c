"""Probes that run no launch: memory put in place and read back; AMD instructions by themselves."""

from __future__ import annotations

from pathlib import Path

import pytest
from one_launch import record
from seeding import Change, run

from zluda.errors import Error
from zluda.isolate.layers.probes import Prober
from zluda.tracefile import open_trace

COPY = """
.visible .entry copied(.param .u64 to, .param .u64 from)
{
    .reg .b32 %r<3>;
    .reg .b64 %rd<5>;
    ld.param.u64 %rd1, [to];
    ld.param.u64 %rd2, [from];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd3, %r1, 4;
    add.s64 %rd4, %rd2, %rd3;
    ld.global.u32 %r2, [%rd4];
    max.u32 %r2, %r2, 5;
    add.s64 %rd4, %rd1, %rd3;
    st.global.u32 [%rd4], %r2;
    ret;
}
"""

SCRIPT = """
import json, sys
from zluda.isolate.layers.probes import Prober, Run
from zluda.tracefile import open_trace
with open_trace(sys.argv[1]) as trace:
    print(json.dumps(Prober(trace).lost_memory(Run("cpu", "nvidia"), int(sys.argv[2]))))
"""


@pytest.fixture
def recorded(tmp_path: Path) -> tuple[Path, int]:
    path = tmp_path / "trace.bin"
    return path, record(path, COPY, "copied", [bytes(128), bytes(range(128))])


def test_memory_that_is_put_in_place_reads_as_the_record_has_it(recorded: tuple[Path, int]) -> None:
    assert run((), SCRIPT, str(recorded[0]), str(recorded[1])) == ""


def test_memory_that_loses_what_is_put_there_is_told_with_the_place(recorded: tuple[Path, int]) -> None:
    short = Change(
        "zluda.driver.translated.memory",
        "self._state.device.write(destination, data)",
        "self._state.device.write(destination, bytes(data)[:-32])",
    )
    told = run((short,), SCRIPT, str(recorded[0]), str(recorded[1]))
    assert isinstance(told, str) and told.endswith("+0x60 reads 00000000, not 60616263")


def test_the_emulator_is_asked_for_the_instructions_of_the_kernel(
    recorded: tuple[Path, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    from zluda.isolate import opinion

    asked: list[set[str]] = []

    def told(target: str, names: set[str]) -> opinion.Opinion:
        asked.append(names)
        return opinion.Opinion(("v_max_u32", "v_mov_b32"), ("v_max_u32 lane 1", "v_mov_b32 lane 2"))

    monkeypatch.setattr(opinion, "opinion", told)
    with open_trace(recorded[0]) as trace:
        assert Prober(trace).emulated_otherwise("gfx1030", recorded[1]) == (2, "v_max_u32 lane 1, and 1 more")
        with pytest.raises(Error):
            Prober(trace).emulated_otherwise("gfx1030", recorded[1] - 1)
    assert "v_max_u32" in asked[0] and not any(name.endswith("_e32") for name in asked[0])
