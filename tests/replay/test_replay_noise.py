"""A trace run again by what recorded it: what varies is learnt, and excuses later replays."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest
from kernels import LAYOUT, MODULE, added, floats, parameters, ramp
from kernels import add as add_kernel
from python_device import PythonDevice, PythonKernel, PythonSession
from trace_builder import TraceBuilder

import zluda
from zluda.device.base import Dim3
from zluda.diff.proof import Proof
from zluda.diff.results import ReplayResult, Verdict
from zluda.replay.proof import prove
from zluda.report.proof import sentence
from zluda.tracefile import NoiseKind, open_trace
from zluda.tracefile.stripping import Part, strip

COUNT = 64
SIZE = 4 * COUNT
Sessions = Callable[[Mapping[str, PythonKernel]], list[PythonSession]]

# What of a kernel's text says which class it is of; what it does is a Python function's to say.
TEXT = """
.visible .entry NAME(.param .u64 p0, .param .u64 p1, .param .u32 p2)
{
    .reg .b32 %r<4>;
    .reg .f32 %f<3>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [p0];
    ld.param.u64 %rd2, [p1];
    ld.global.TYPE %f1, [%rd2];
    BODY
    ret;
}
"""
SUM = TEXT.replace("NAME", "total").replace("BODY", "red.global.add.f32 [%rd1], %f1;").replace("TYPE", "f32")
PLAIN = TEXT.replace("NAME", "plain").replace("BODY", "st.global.f32 [%rd1], %f1;").replace("TYPE", "f32")
TIMED = TEXT.replace("NAME", "timed").replace("TYPE", "f32")
TIMED = TIMED.replace("BODY", "mov.u32 %r1, %clock; st.global.f32 [%rd1], %f1;")
LIST = (
    TEXT.replace("NAME", "append")
    .replace("BODY", "atom.global.add.u32 %r1, [%rd2], 1; st.global.u32 [%rd1], %r1;")
    .replace("TYPE", "f32")
)
RECORDED = floats(*(1.0 + i for i in range(COUNT)))


def moved(*changes: tuple[int, float]) -> bytes:
    """What was recorded with some elements further by so many units in the last place."""
    bits = np.frombuffer(RECORDED, "<u4").copy()
    for index, ulp in changes:
        bits[index] += np.uint32(ulp)
    return bits.tobytes()


def leaves(*contents: bytes) -> PythonKernel:
    """A kernel that leaves these at its first parameter, one a launch."""
    left: Iterator[bytes] = iter(contents)

    def kernel(device: PythonDevice, grid: Dim3, block: Dim3, packed: bytes) -> None:
        device.write(struct.unpack("<QQI", packed)[0], next(left))

    return kernel


class Program:
    """One launch of a kernel that left ``RECORDED``, one that adds to it, and a copy of the sum."""

    def __init__(self, path: Path, sessions: Sessions, text: str, name: str, **meta: object) -> None:
        self.path, self._sessions, self.name = path, sessions, name
        with TraceBuilder(path, **meta) as record:
            record.start()
            module = record.module(MODULE + text)
            self.x, y = record.allocate(SIZE), record.allocate(SIZE)
            record.copy_in(self.x, bytes(SIZE))
            record.copy_in(y, ramp(COUNT))
            packed = parameters(self.x, y, COUNT)
            first = record.function(module, name, LAYOUT)
            self.call = record.launch(first, packed, {self.x: RECORDED})
            after = added(RECORDED, ramp(COUNT))
            record.launch(record.function(module, "add", LAYOUT), packed, {self.x: after})
            record.copy_out(self.x, SIZE)

    def _use(self, contents: tuple[bytes, ...]) -> None:
        self._sessions({self.name: leaves(*contents), "add": add_kernel})

    def prove(self, *runs: bytes, again: int = 0, **options: object) -> Proof:
        """Each run leaves one of these; with ``again``, several of them."""
        self._use(runs)
        runs_of_trace = len(runs) // (1 + again)
        return prove(self.path, "cpu", runs=runs_of_trace, again=again, **options)  # type: ignore[arg-type]

    def replay(self, *contents: bytes) -> ReplayResult:
        self._use(contents)
        return zluda.replay(self.path, device="cpu")  # type: ignore[no-any-return, operator]


@pytest.fixture
def program(tmp_path: Path, sessions: Sessions) -> Callable[..., Program]:
    return lambda text, name, **meta: Program(tmp_path / "trace.bin", sessions, text, name, **meta)


Make = Callable[..., Program]


def verdicts(result: ReplayResult) -> list[str]:
    return [one.verdict.value for one in result.results]


# --- learning ----------------------------------------------------------------------------------------


def test_a_trace_that_comes_out_alike_is_proved(program: Make) -> None:
    sums = program(SUM, "total")
    proof = sums.prove(RECORDED, RECORDED)
    assert sentence(proof) == "proved: 2 of 2 launches identical twice"
    with open_trace(sums.path) as trace:
        assert Proof.of(trace.meta, "") == proof
        assert (trace.unproved, trace.noise) == ([], [])
    assert (proof.runs, proof.device, proof.driver_version) == (2, "zluda cpu", 13000)


def test_what_varies_is_kept_with_its_mask_and_distances(program: Make) -> None:
    sums = program(SUM, "total")
    proof = sums.prove(moved((3, 2)), moved((3, 1), (10, 3)))
    assert sentence(proof) == "proved: 1 of 2 launches identical twice, 1 noise (total)"
    assert proof.holds
    with open_trace(sums.path) as trace:
        (noise,) = trace.noise
        assert (noise.call, noise.kind, noise.element_type) == (sums.call, NoiseKind.ELEMENTS, "f32")
        bits = np.unpackbits(np.frombuffer(trace.noise_mask(noise), np.uint8), bitorder="little")
        assert [noise.origin // 4 + i for i in np.flatnonzero(bits)] == [3, 10]
        assert (noise.max_ulp, noise.unbounded, noise.runs) == (3.0, False, 2)
        assert noise.max_absolute == 3 * 2.0**-20
        (row,) = trace.unproved
        assert (row.call, row.verdict) == (sums.call, "noise")
        assert row.reason.startswith("red.add.f32; element 3 of parameter 0: recorded 4.0")


def test_runs_add_up_where_they_are_asked_to(program: Make) -> None:
    sums = program(SUM, "total")
    sums.prove(moved((3, 2)), RECORDED)
    proof = sums.prove(moved((7, 5)), keep=True)
    assert sentence(proof) == "proved: 1 of 2 launches identical 3 times, 1 noise (total)"
    assert verdicts(sums.replay(moved((3, 4), (7, 1)))) == ["noise", "identical", "identical"]
    assert sums.prove(RECORDED, keep=True).runs == 4
    assert sums.prove(RECORDED).runs == 1
    with open_trace(sums.path) as trace:
        assert trace.noise == []


def test_a_launch_that_varies_is_run_again_from_its_inputs(program: Make) -> None:
    sums = program(SUM, "total")
    left = [moved((i, i % 3 + 1)) for i in range(6)]
    proof = sums.prove(*left, again=2)
    assert (proof.runs, sentence(proof)) == (2, "proved: 1 of 2 launches identical twice, 1 noise (total)")
    with open_trace(sums.path) as trace:
        (noise,) = trace.noise
        assert int.from_bytes(trace.noise_mask(noise), "little") == 0b111111
        assert noise.max_ulp == 3.0


def test_one_that_does_not_vary_is_run_once(program: Make) -> None:
    """There is nothing that a second launch could leave."""
    assert program(SUM, "total").prove(RECORDED, RECORDED, RECORDED, again=2).launches == {"identical": 2}
    assert program(PLAIN, "plain").prove(moved((1, 1)), moved((1, 1)), again=1).fails


def test_a_plain_kernel_that_varies_is_no_noise(program: Make) -> None:
    plain = program(PLAIN, "plain")
    proof = plain.prove(moved((3, 2)), RECORDED)
    assert not proof.holds
    assert sentence(proof) == (
        f"not proved: 1 of 2 launches identical twice, 1 differs; first #{plain.call} plain: differs,"
        " nothing in its kernel depends on the order of threads;"
        " element 3 of parameter 0: recorded 4.0, replayed 4.000000953674316"
    )
    result = plain.replay(moved((3, 2)))
    assert verdicts(result)[0] == "differs"
    reason = "it varies on NVIDIA too, but nothing in its kernel depends on the order of threads"
    assert result.results[0].reason == reason


# --- judging -----------------------------------------------------------------------------------------


def test_what_follows_noise_is_judged_on_the_recorded_memory(program: Make) -> None:
    sums = program(SUM, "total")
    sums.prove(moved((3, 1)))
    result = sums.replay(moved((3, 2)))
    assert verdicts(result) == ["noise", "identical", "identical"]
    assert result.results[0].reason == "1 element differs no further than on NVIDIA itself (red.add.f32)"
    assert result.exit_status() == 0


@pytest.mark.parametrize(
    ("left", "verdict", "reason"),
    [
        (moved((3, 4)), Verdict.NOISE, ""),
        (moved((3, 5)), Verdict.DIFFERS, "not as element 3 of parameter 0, further from the record than it"),
        (
            moved((3, 1), (4, 1), (5, 1)),
            Verdict.DIFFERS,
            "element 4 of parameter 0 (and 1 more), which does not vary",
        ),
    ],
)
def test_noise_is_inside_the_mask_and_four_times_the_distance(
    program: Make, left: bytes, verdict: Verdict, reason: str
) -> None:
    timed = program(TIMED, "timed")
    timed.prove(moved((3, 1)))
    found = timed.replay(left).results[0]
    assert found.verdict is verdict
    assert reason in found.reason


def test_a_quarter_that_varies_stands_for_all_that_changed(program: Make) -> None:
    timed = program(TIMED, "timed")
    timed.prove(moved(*((i, 2) for i in range(0, COUNT, 4))))
    assert verdicts(timed.replay(moved((5, 8), (6, 1))))[0] == "noise"
    timed.prove(moved(*((i, 2) for i in range(0, COUNT, 5))))
    assert verdicts(timed.replay(moved((6, 1))))[0] == "differs"


def test_of_a_float_sum_all_that_changed_may_vary(program: Make) -> None:
    sums = program(SUM, "total")
    sums.prove(moved((3, 1)))
    assert verdicts(sums.replay(moved((9, 4), (11, 1))))[0] == "noise"
    assert verdicts(sums.replay(moved((9, 5))))[0] == "differs"


def test_launches_of_a_kernel_share_how_far_it_varies(tmp_path: Path, sessions: Sessions) -> None:
    path = tmp_path / "trace.bin"
    with TraceBuilder(path) as record:
        record.start()
        module = record.module(MODULE + SUM + TIMED)
        x, y = record.allocate(SIZE), record.allocate(SIZE)
        record.copy_in(y, ramp(COUNT))
        for name in ("total", "total", "timed"):
            record.copy_in(x, bytes(SIZE))
            record.launch(record.function(module, name, LAYOUT), parameters(x, y, COUNT), {x: RECORDED})
    sessions({"total": leaves(moved((3, 1)), RECORDED), "timed": leaves(RECORDED)})
    assert prove(path, "cpu", runs=1, again=0).launches == {"identical": 2, "noise": 1}
    sessions({"total": leaves(RECORDED, moved((8, 2))), "timed": leaves(moved((8, 2)))})
    found = zluda.replay(path, device="cpu")  # type: ignore[operator]
    assert verdicts(found) == ["identical", "noise", "differs"]


def test_nan_is_noise_only_where_nvidia_gave_one(program: Make) -> None:
    sums = program(SUM, "total")
    nan = floats(float("nan"), *np.frombuffer(RECORDED, "<f4")[1:])
    sums.prove(moved((0, 1)))
    assert verdicts(sums.replay(nan))[0] == "differs"
    sums.prove(nan)
    assert verdicts(sums.replay(nan))[0] == "noise"


def test_integers_have_no_near_and_far(program: Make) -> None:
    ticks = program(TIMED.replace("timed", "ticks").replace("f32", "u32").replace("%f1", "%r2"), "ticks")
    ticks.prove(moved((3, 1)))
    assert verdicts(ticks.replay(moved((3, 1 << 20))))[0] == "noise"
    assert verdicts(ticks.replay(moved((4, 1))))[0] == "differs"


# --- lists that come in another order ----------------------------------------------------------------


def listed(order: np.ndarray, *, row: int = 4) -> bytes:
    rows = np.frombuffer(RECORDED, np.uint8).reshape(-1, row)
    return rows[order].tobytes()


def test_a_list_may_come_in_any_order(program: Make) -> None:
    lists = program(LIST, "append")
    proof = lists.prove(listed(np.roll(np.arange(COUNT), 3)), listed(np.arange(COUNT)[::-1]))
    assert sentence(proof) == "proved: 1 of 2 launches identical twice, 1 noise (append)"
    with open_trace(lists.path) as trace:
        (noise,) = trace.noise
        assert (noise.kind, noise.row_bytes) == (NoiseKind.SET, 4)
    shuffled = np.random.default_rng(1).permutation(COUNT)
    assert verdicts(lists.replay(listed(shuffled)))[0] == "noise"
    lost = bytearray(listed(shuffled))
    lost[:4] = lost[4:8]
    found = lists.replay(bytes(lost)).results[0]
    assert found.verdict is Verdict.DIFFERS
    assert "parameter 0 does not hold the same rows of 4 bytes" in found.reason


def test_rows_stay_whole(program: Make) -> None:
    lists = program(LIST, "append")
    rows = COUNT // 2
    lists.prove(listed(np.roll(np.arange(rows), 1), row=8), listed(np.arange(rows)[::-1], row=8))
    with open_trace(lists.path) as trace:
        assert trace.noise[0].row_bytes == 8
    torn = listed(np.roll(np.arange(COUNT), 1))
    assert verdicts(lists.replay(torn))[0] == "differs"


def test_a_list_that_is_none_once_is_none(program: Make) -> None:
    lists = program(LIST, "append")
    lists.prove(listed(np.roll(np.arange(COUNT), 3)), moved((0, 1)))
    with open_trace(lists.path) as trace:
        assert trace.noise[0].kind is NoiseKind.ELEMENTS


# --- in graphs ---------------------------------------------------------------------------------------


def passed_on(device: PythonDevice, grid: Dim3, block: Dim3, packed: bytes) -> None:
    """Writes what stands at its second parameter to its first."""
    target, source, _ = struct.unpack("<QQI", packed)
    device.write(target, device.read(source, SIZE))


def test_of_a_graph_what_comes_after_noise_may_vary_too(tmp_path: Path, sessions: Sessions) -> None:
    path = tmp_path / "trace.bin"
    with TraceBuilder(path) as record:
        record.start()
        module = record.module(MODULE + SUM + PLAIN)
        x, y, z = (record.allocate(SIZE) for _ in range(3))
        for one in (x, y, z):
            record.copy_in(one, bytes(SIZE))
        kernels_of = [record.function(module, name, LAYOUT) for name in ("total", "plain")]
        graph = record.call("cuGraphLaunch", hGraph=record.handle(), hStream=0)
        record.capture = False
        for kernel, pair in zip(kernels_of, ((x, y), (z, x)), strict=True):
            record.launch(kernel, parameters(*pair, COUNT), {pair[0]: RECORDED}, parent=graph)
        end = record.call("cuStreamQuery", hStream=0, parent=graph)
        for one in (x, z):
            record.put(end, one, RECORDED, whole_pages=True)

    def kernels(left: bytes) -> dict[str, PythonKernel]:
        return {"total": leaves(left), "plain": passed_on}

    sessions(kernels(moved((3, 1))))
    found = zluda.replay(path, device="cpu")  # type: ignore[operator]
    assert verdicts(found) == ["differs", "inherited"]
    sessions(kernels(moved((3, 1))))
    proof = prove(path, "cpu", runs=1)
    assert (proof.launches, proof.noisy) == ({"noise": 2}, ("total", "plain"))
    sessions(kernels(moved((3, 2))))
    found = zluda.replay(path, device="cpu")  # type: ignore[operator]
    assert verdicts(found) == ["noise", "noise"]


# --- where nothing is proved --------------------------------------------------------------------------


def test_a_trace_of_another_gpu_is_not_proved(program: Make) -> None:
    sums = program(SUM, "total", gpu="NVIDIA H200")
    assert sentence(sums.prove(RECORDED)) == (
        "not proved: device cpu: is an zluda cpu; the trace is of an NVIDIA H200"
    )


def test_a_device_that_is_not_there_is_the_reason(program: Make, tmp_path: Path) -> None:
    sums = program(SUM, "total")
    proof = prove(sums.path, "gfx0")
    assert not proof.done
    assert "gfx0" in proof.reason
    with open_trace(sums.path) as trace:
        assert Proof.of(trace.meta, "") == proof


def test_a_proof_that_fails_leaves_an_earlier_one(program: Make) -> None:
    sums = program(SUM, "total")
    earlier = sums.prove(moved((3, 1)))
    assert not sums.prove(RECORDED, limit=-1.0).done
    with open_trace(sums.path) as trace:
        assert Proof.of(trace.meta, "") == earlier
        assert len(trace.noise) == 1


def test_who_interrupts_a_proof_keeps_the_trace(program: Make, sessions: Sessions) -> None:
    sums = program(SUM, "total")

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    sessions({"total": interrupted, "add": add_kernel})
    assert sentence(prove(sums.path, "cpu")) == "not proved: it was interrupted"
    assert sums.prove(RECORDED).holds


def test_time_is_limited(program: Make) -> None:
    sums = program(SUM, "total")
    assert "not proved: its time of 0 s was up after" in sentence(sums.prove(RECORDED, limit=0.0))


@pytest.mark.parametrize(
    ("meta", "reason"), [({"capture": "calls"}, "--capture calls records no memory to compare with")]
)
def test_what_has_nothing_to_compare_says_so(program: Make, meta: dict[str, str], reason: str) -> None:
    sums = program(SUM, "total", **meta)
    assert sums.prove(RECORDED) == Proof(False, reason)


def test_a_trace_of_digests_is_proved_without_noise(program: Make, tmp_path: Path) -> None:
    sums = program(SUM, "total")
    with open_trace(sums.path) as trace:
        strip(trace, tmp_path / "digests.bin", [Part.CONTENTS])
    sums.path = tmp_path / "digests.bin"
    proof = sums.prove(RECORDED, RECORDED)
    assert proof.done and not proof.fails
    assert sums.prove(moved((3, 1)), RECORDED).launches.get("noise") is None
    with open_trace(sums.path) as trace:
        assert trace.noise == []


def test_a_trace_without_launches_has_nothing_to_prove(tmp_path: Path) -> None:
    with TraceBuilder(tmp_path / "a.bin") as record:
        record.start()
    assert prove(tmp_path / "a.bin", "cpu").reason == "it has no launches"
