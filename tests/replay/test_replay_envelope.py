"""Replays in native numerics: what is inside the envelope, what is not, and what follows either."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kernels import ADD, HEADER, LAYOUT, added, parameters
from trace_builder import TraceBuilder

import zluda
from zluda.diff.results import Verdict
from zluda.errors import Error
from zluda.numerics.mufu import FUNCTIONS
from zluda.tracefile import open_trace

COUNT = 512
SIZE = 4 * COUNT
SHAPE: dict[str, Any] = {"grid": (4, 1, 1), "block": (128, 1, 1)}

SUM = "add.rn.f32 %f3, %f1, %f2;"
ROOT = ADD.replace("add(", "root(").replace("add_param", "root_param")
ROOT = ROOT.replace(SUM, "rsqrt.approx.f32 %f3, %f2;")
CALLED = """
.func (.param .b32 result) root_of(.param .b32 x)
{
    .reg .f32 %f<3>;
    ld.param.f32 %f1, [x];
    rsqrt.approx.f32 %f2, %f1;
    st.param.f32 [result], %f2;
    ret;
}
"""
CALL = """
    {
    .param .b32 x;
    .param .b32 result;
    st.param.f32 [x], %f2;
    call (result), root_of, (x);
    ld.param.f32 %f3, [result];
    }
"""
CALLER = CALLED + ADD.replace("add(", "caller(").replace("add_param", "caller_param").replace(SUM, CALL)
SCALED = ".visible .global .align 4 .f32 scale = 0f00000000;\n" + ADD.replace("add(", "scaled(").replace(
    "add_param", "scaled_param"
).replace(SUM, "rsqrt.approx.f32 %f3, %f2;\n    ld.global.f32 %f1, [scale];\n    mul.rn.f32 %f3, %f3, %f1;")

RESIDUE = """rsqrt.approx.f32 %f3, %f2;
    mul.rn.f32 %f4, %f2, %f2;
    mul.f32 %f5, %f2, %f2;
    sub.f32 %f5, %f5, %f4;
    fma.rn.f32 %f3, %f5, 0f501502F9, %f3;"""
UNFUSED = ADD.replace("add(", "unfused(").replace("add_param", "unfused_param").replace("%f<4>", "%f<6>")
UNFUSED = UNFUSED.replace(SUM, RESIDUE)

RECORDS = """mad.lo.s32 %r3, %r5, 3, -700;
    add.s64 %rd6, %rd6, %rd5;
    st.global.f32 [%rd6], %f3;
    st.global.u32 [%rd6+4], %r3;"""
RECORD = ROOT.replace("root(", "record(").replace("root_param", "record_param")
RECORD = RECORD.replace("st.global.f32 [%rd6], %f3;", RECORDS)


def roots(source: bytes) -> bytes:
    """What an H200 computes."""
    return FUNCTIONS["rsqrt.approx.f32"](np.frombuffer(source, "<u4")).astype("<u4").tobytes()


class Program:
    """``x = 1/sqrt(y)`` by a kernel of the given text, then ``x += y``, then a copy to the host."""

    def __init__(self, path: Path, text: str, name: str) -> None:
        self.path = path
        self.record = record = TraceBuilder(path)
        record.start()
        self.module = record.module(HEADER + ADD + text)
        self.add = record.function(self.module, "add", LAYOUT)
        self.kernel = record.function(self.module, name, LAYOUT)
        self.x, self.y = record.allocate(SIZE), record.allocate(SIZE)
        values = np.linspace(0.5, 9.5, COUNT).astype("<f4")
        record.copy_in(self.x, bytes(SIZE))
        record.copy_in(self.y, values.tobytes())
        self.source = values.tobytes()

    def finish(self, result: bytes, *reaches: int) -> Path:
        """Launch both kernels, the first leaving ``result``."""
        record, packed = self.record, parameters(self.x, self.y, COUNT)
        record.launch(self.kernel, packed, {self.x: result}, reaches=reaches, **SHAPE)
        record.launch(self.add, packed, {self.x: added(result, self.source)}, **SHAPE)
        record.copy_out(self.x, SIZE)
        record.__exit__()
        return self.path


def root_program(path: Path, change: Callable[[bytearray], None] | None = None) -> Path:
    program = Program(path, ROOT, "root")
    result = bytearray(roots(program.source))
    if change is not None:
        change(result)
    return program.finish(bytes(result))


def replayed(path: Path, numerics: str, **options: Any) -> Any:
    return zluda.replay(path, device="cpu", numerics=numerics, **options)


def verdicts(result: Any) -> list[Verdict]:
    return [one.verdict for one in result.results]


def test_what_follows_a_launch_inside_is_judged_on_the_recorded_inputs(tmp_path: Path) -> None:
    result = replayed(root_program(tmp_path / "trace.bin"), "native")
    assert verdicts(result) == [Verdict.WITHIN, Verdict.IDENTICAL, Verdict.IDENTICAL]
    assert result.exit_status() == 0 and result.verdict is Verdict.WITHIN
    reason = result.results[0].reason
    assert reason.startswith("inside the envelope of rsqrt.approx.f32: ")
    assert "of parameter 0 at 0." in reason
    assert result.results[0].buffers[0].differing > 10


def test_the_same_trace_has_the_same_envelope(tmp_path: Path) -> None:
    path = root_program(tmp_path / "trace.bin")
    first, second = (replayed(path, "native").results[0].reason for _ in range(2))
    assert first == second


def test_one_element_outside_is_named(tmp_path: Path) -> None:
    def spoil(result: bytearray) -> None:
        value = struct.unpack_from("<f", result, 4 * 17)[0]
        struct.pack_into("<f", result, 4 * 17, value * (1 - 2e-6))

    result = replayed(root_program(tmp_path / "trace.bin", spoil), "native")
    assert verdicts(result) == [Verdict.DIFFERS, Verdict.INHERITED, Verdict.INHERITED]
    assert "outside the envelope of rsqrt.approx.f32: element 17 of parameter 0" in result.results[0].reason
    assert result.exit_status() == 1


def test_nvidia_numerics_have_no_envelope(tmp_path: Path) -> None:
    def one_ulp(result: bytearray) -> None:
        result[4 * 17] ^= 1

    result = replayed(root_program(tmp_path / "trace.bin", one_ulp), "nvidia")
    assert result.results[0].verdict is Verdict.DIFFERS
    assert "envelope" not in result.results[0].reason
    assert verdicts(replayed(root_program(tmp_path / "good.bin"), "nvidia"))[0] is Verdict.IDENTICAL


def exact_program(path: Path, change: Callable[[bytearray], None]) -> Path:
    """Only exact kernels: ``x += y`` with one input a NaN, the first result changed."""
    program = Program(path, ADD.replace("add(", "other(").replace("add_param", "other_param"), "other")
    record, first = program.record, bytearray(SIZE)
    struct.pack_into("<I", first, 4 * 7, 0x7FC00000)
    record.copy_in(program.x, bytes(first))
    result = bytearray(added(bytes(first), program.source))
    struct.pack_into("<I", result, 4 * 7, 0x7FFFFFFF)
    change(result)
    packed = parameters(program.x, program.y, COUNT)
    record.launch(program.kernel, packed, {program.x: bytes(result)}, **SHAPE)
    record.__exit__()
    return path


def test_a_kernel_without_approximate_instructions_has_no_tolerance(tmp_path: Path) -> None:
    def one_ulp(result: bytearray) -> None:
        result[4 * 17] ^= 1

    result = replayed(exact_program(tmp_path / "trace.bin", one_ulp), "native")
    assert verdicts(result) == [Verdict.DIFFERS]


@pytest.mark.parametrize("nan", [0x7FC00000, 0xFFC00000])
def test_payloads_of_computed_nans_are_within_in_native_numerics(tmp_path: Path, nan: int) -> None:
    path = exact_program(tmp_path / "trace.bin", lambda result: struct.pack_into("<I", result, 4 * 7, nan))
    native, nvidia = replayed(path, "native"), replayed(path, "nvidia")
    assert verdicts(native) == [Verdict.WITHIN]
    assert native.results[0].reason == "differs only in NaN payloads"
    assert verdicts(nvidia) == [Verdict.DIFFERS]


@pytest.mark.parametrize("bits", [0xFFFFFFFF, 0xFFFFFFF0, 0xFFC12345])
def test_what_may_be_a_negative_integer_is_no_nan(tmp_path: Path, bits: int) -> None:
    path = exact_program(tmp_path / "trace.bin", lambda result: struct.pack_into("<I", result, 4 * 7, bits))
    assert verdicts(replayed(path, "native")) == [Verdict.DIFFERS]


def test_exact_kernels_keep_the_sign_of_zero(tmp_path: Path) -> None:
    program = Program(tmp_path / "trace.bin", ADD.replace("add(", "o(").replace("add_param", "o_param"), "o")
    record, result = program.record, bytearray(SIZE)
    struct.pack_into("<f", result, 4 * 7, -0.0)
    record.copy_in(program.y, bytes(SIZE))
    record.copy_in(program.x, struct.pack("<f", 1.0) * COUNT)
    packed = parameters(program.x, program.y, COUNT)
    record.launch(program.kernel, packed, {program.x: struct.pack("<f", 1.0) * COUNT}, **SHAPE)
    record.copy_in(program.x, bytes(SIZE))
    record.launch(program.kernel, packed, {program.x: bytes(result)}, **SHAPE)
    record.__exit__()
    assert verdicts(replayed(tmp_path / "trace.bin", "native"))[-1] is Verdict.DIFFERS


def test_instructions_of_functions_that_a_kernel_calls_count(tmp_path: Path) -> None:
    program = Program(tmp_path / "trace.bin", CALLER, "caller")
    result = replayed(program.finish(roots(program.source)), "native")
    assert verdicts(result) == [Verdict.WITHIN, Verdict.IDENTICAL, Verdict.IDENTICAL]


def test_module_variables_are_inputs_of_an_envelope(tmp_path: Path) -> None:
    program = Program(tmp_path / "trace.bin", SCALED, "scaled")
    scale = program.record.variable(program.module, "scale", 0x7F0000A00000, struct.pack("<f", 2.0))
    doubled = np.frombuffer(roots(program.source), "<f4") * np.float32(2)
    result = replayed(program.finish(doubled.tobytes(), scale), "native")
    assert verdicts(result) == [Verdict.WITHIN, Verdict.IDENTICAL, Verdict.IDENTICAL]


@pytest.mark.parametrize(
    ("word", "value", "verdict"),
    [
        (0, None, Verdict.WITHIN),
        (31, 3 * 15 - 701, Verdict.DIFFERS),  # an integer, one less
        (31, -1, Verdict.DIFFERS),
        (31, 0x7FFFFFFF, Verdict.DIFFERS),
        (30, 0x3F800000, Verdict.DIFFERS),  # a root, another number
    ],
)
def test_records_of_floats_and_integers_have_envelopes(
    tmp_path: Path, word: int, value: int | None, verdict: Verdict
) -> None:
    program = Program(tmp_path / "trace.bin", RECORD, "record")
    x = program.record.allocate(2 * SIZE)
    program.record.copy_in(x, bytes(2 * SIZE))
    result = np.zeros((COUNT, 2), "<i4")
    result[:, 0] = np.frombuffer(roots(program.source), "<i4")
    result[:, 1] = np.arange(COUNT) * 3 - 700
    if value is not None:
        result.flat[word] = value
    packed = parameters(x, program.y, COUNT)
    program.record.launch(program.kernel, packed, {x: result.tobytes()}, **SHAPE)
    program.record.__exit__()
    replay = replayed(program.path, "native").results[0]
    assert (replay.verdict, replay.buffers[0].element_type) == (verdict, "bytes")
    assert f"32-bit word {word} of parameter 0" in replay.reason or value is None


def test_an_envelope_has_the_contraction_of_the_replay(tmp_path: Path) -> None:
    program = Program(tmp_path / "trace.bin", UNFUSED, "unfused")
    path = program.finish(roots(program.source))
    assert verdicts(replayed(path, "native", contract="off"))[0] is Verdict.WITHIN
    assert verdicts(replayed(path, "native", contract="on"))[0] is Verdict.DIFFERS


def test_a_written_replay_has_what_the_device_computed(tmp_path: Path) -> None:
    path, output = root_program(tmp_path / "trace.bin"), tmp_path / "replayed.bin"
    result = replayed(path, "native", output=output)
    with open_trace(str(path)) as record, open_trace(str(output)) as written:
        launch = next(iter(record.iter_launches()))
        base = struct.unpack_from("<Q", launch.parameters)[0]
        sides = [trace.read_memory(launch.call, base, SIZE)[0] for trace in (record, written)]
    left, right = (np.frombuffer(side, "<u4") for side in sides)
    assert (left != right).sum() == result.results[0].buffers[0].differing > 0


def test_where_no_envelope_can_be_drawn_the_launch_differs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise Error("no runner today")

    monkeypatch.setattr("zluda.replay.envelope.Envelopes._run", fail)
    result = replayed(root_program(tmp_path / "trace.bin"), "native")
    assert result.results[0].verdict is Verdict.DIFFERS
    assert result.results[0].reason == "no envelope could be drawn: no runner today"
