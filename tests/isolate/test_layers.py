"""The search for the layer: what it runs, and what it makes of what it sees. Runs are told, not made."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from zluda.diff.blame import Layer, Sure
from zluda.diff.results import BufferComparison, Element, LaunchResult, Verdict
from zluda.errors import Error, TraceError
from zluda.isolate.layers import ROWS, decide
from zluda.isolate.layers import search as searching
from zluda.isolate.layers.probes import Run, Seen
from zluda.isolate.layers.search import OTHERS, STEPS, Asked, Search, not_run, seam_of, suspect_of
from zluda.isolate.values import Difference, Kind
from zluda.tracefile import open_trace

CALL, KERNEL = 17, "k"
RIGHT = Verdict.IDENTICAL


def wrong(bits: int = 1, verdict: Verdict = Verdict.DIFFERS) -> LaunchResult:
    """A result in which one element is these bits."""
    element = Element(3, 0x100C, 0.0, 1.0, 0, bits, 1.0)
    buffer = BufferComparison(1, "x", 0x1000, 0, 64, "f32", 64, 16, 1, (element,))
    return LaunchResult(CALL, "launch", KERNEL, verdict, buffers=(buffer,))


def result(what: LaunchResult | Verdict | None, reason: str = "") -> LaunchResult | None:
    return LaunchResult(CALL, "launch", KERNEL, what, reason) if isinstance(what, Verdict) else what


class Told:
    """Stands for a Prober: results by (device, numerics, level), anything else is not at hand."""

    def __init__(
        self, results: Mapping[tuple[str, ...], LaunchResult | Verdict], *, meta: Mapping[str, Any] = {},
        unproved: Sequence[Any] = (), contradicts: str = "",
    ) -> None:  # fmt: skip
        self._results, self._contradicts = dict(results), contradicts
        self.asked: list[Run] = []
        self.varies = self.wrote = self.lost = self.unlike = ""
        self.rows: tuple[int, str] | None = None
        self.trace = SimpleNamespace(path="trace.bin", meta=dict(meta), unproved=list(unproved))

    def tell(self, text: str) -> None:
        """Nobody listens."""

    def see(self, run: Run, calls: Iterable[int]) -> Seen:
        if list(calls):
            self.asked.append(run)
        found = result(self._results.get((run.device, run.numerics, *([run.level] if run.level else []))))
        return Seen(run, {} if found is None else {CALL: found}, "" if found is not None else "not there")

    def contradicted(self, call: int) -> str:
        return self._contradicts

    def wrong_write(self, run: Run, call: int) -> str:
        return self.wrote

    def varying(self, call: int) -> str:
        return self.varies

    def unlike_asked(self, call: int) -> str:
        return self.unlike

    def lost_memory(self, run: Run, call: int) -> str:
        return self.lost

    def emulated_otherwise(self, target: str, call: int) -> tuple[int, str]:
        if self.rows is None:
            raise Error("AMD's pseudo-code is not at hand")
        return self.rows


PROVED = {
    "proof": {
        "done": True, "device": "NVIDIA H200", "driver_version": 13000, "runs": 2, "seconds": 1.0,
        "launches": {"identical": 1}, "copies": {}, "noisy": [], "first": None,
    }
}  # fmt: skip


def answer(
    told: Told,
    device: str = "gfx1030",
    *,
    numerics: str = "native",
    stream: LaunchResult | None = None,
    seam: str = "seam untold",
    monkeypatch: pytest.MonkeyPatch | None = None,
) -> Any:
    emulated = device if device.startswith("gfx") else "gfx1030"
    search = Search(told, Asked(device, numerics, emulated), inside=monkeypatch is not None)  # type: ignore[arg-type]
    if monkeypatch is not None:
        monkeypatch.setattr(searching, "first_difference", lambda *_: (seam, None, "as told"))
    suspect = stream or wrong()
    (found,) = search.answers([suspect], in_stream=True)
    return found.blame


G, GX, CPU, CPUN = ("gfx1030", "native"), ("gfx1030", "nvidia"), ("cpu", "nvidia"), ("cpu", "native")
CUDA, NVPTX, PLAIN = ("cuda:0", "nvidia"), ("nvptx:0", "nvidia"), ("gfx1030", "nvidia", "0")
HIP, HIPX = ("hip:0", "native"), ("hip:0", "nvidia")
BAD = wrong()


@pytest.mark.parametrize(
    ("results", "layer", "sure"),
    [
        ({G: BAD, CUDA: BAD}, Layer.RECORD, Sure.CERTAIN),
        ({G: RIGHT}, Layer.RUNTIME, Sure.LIKELY),
        ({G: BAD, GX: BAD, CPU: BAD}, Layer.LOWERING, Sure.CERTAIN),
        ({G: BAD, GX: BAD, CPU: wrong(2)}, Layer.LOWERING, Sure.LIKELY),
        ({G: BAD, CUDA: RIGHT, GX: BAD, CPU: BAD, NVPTX: BAD}, Layer.LOWERING, Sure.CERTAIN),
        ({G: BAD, GX: RIGHT, CPUN: RIGHT}, Layer.HARDWARE, Sure.LIKELY),
        ({G: BAD, GX: RIGHT, CPUN: BAD}, Layer.LOWERING, Sure.LIKELY),
        ({G: BAD, GX: BAD, CPU: RIGHT, PLAIN: RIGHT}, Layer.CODE_GENERATION, Sure.CERTAIN),
        ({G: BAD, GX: BAD, CPU: RIGHT, PLAIN: BAD, HIPX: RIGHT}, Layer.HARDWARE, Sure.CERTAIN),
        ({G: wrong(0, Verdict.CRASH), GX: wrong(0, Verdict.CRASH), CPU: wrong(0, Verdict.CRASH)},
         Layer.LOWERING, Sure.CERTAIN),
    ],
)  # fmt: skip
def test_an_emulated_gpu_is_wrong(results: dict[Any, Any], layer: Layer, sure: Sure) -> None:
    found = answer(Told(results, meta=PROVED))
    assert (found.layer, found.sure) == (layer, sure), found


@pytest.mark.parametrize(
    ("interpreted", "meta", "layer", "sure"),
    [
        (RIGHT, {}, Layer.LOWERING, Sure.CERTAIN),
        (RIGHT, PROVED, Layer.LOWERING, Sure.CERTAIN),
        (BAD, {}, Layer.RECORD, Sure.LIKELY),
        (BAD, PROVED, Layer.RUNTIME, Sure.LIKELY),
        (wrong(2), {}, Layer.LOWERING, Sure.LIKELY),
        (None, {}, Layer.LOWERING, Sure.LIKELY),
    ],
)
def test_the_interpreter_judges_where_the_cpu_and_amd_code_are_wrong_alike(
    interpreted: LaunchResult | Verdict | None, meta: dict[str, Any], layer: Layer, sure: Sure
) -> None:
    third = {} if interpreted is None else {("interpreter", "nvidia"): interpreted}
    told = Told({G: BAD, GX: BAD, CPU: BAD, **third}, meta=meta)
    found = answer(told)
    assert (found.layer, found.sure) == (layer, sure), found
    assert Run("interpreter", "nvidia") in told.asked


def test_the_interpreter_is_not_asked_where_the_cpu_is_right() -> None:
    told = Told({G: BAD, GX: BAD, CPU: RIGHT, PLAIN: RIGHT})
    answer(told)
    assert Run("interpreter", "nvidia") not in told.asked


@pytest.mark.parametrize(
    ("seam", "others", "layer"),
    [
        ("own seam", "fail", Layer.LOWERING),
        ("shared seam", "fail", Layer.HARDWARE),
        ("shared seam", "hold", Layer.CODE_GENERATION),
        ("shared seam", "part", Layer.CODE_GENERATION),
        ("seam untold", "hold", Layer.CODE_GENERATION),
        ("seam untold", "fail", Layer.LOWERING),
    ],
)
def test_amd_code_alone_is_wrong(
    seam: str, others: str, layer: Layer, monkeypatch: pytest.MonkeyPatch
) -> None:
    states = {"fail": (BAD, BAD), "hold": (RIGHT, RIGHT), "part": (RIGHT, BAD)}[others]
    beside = {(name, "nvidia"): one for name, one in zip(OTHERS[1:], states, strict=True)}
    told = Told({G: BAD, GX: BAD, CPU: RIGHT, PLAIN: BAD, **beside}, meta=PROVED)
    found = answer(told, seam=seam, monkeypatch=monkeypatch)
    assert found.layer is layer and found.sure is Sure.LIKELY


@pytest.mark.parametrize(
    ("rows", "seam", "layer", "sure"),
    [
        ((20, "v_add_f32 lane 3"), "own seam", Layer.HARDWARE, Sure.CERTAIN),
        ((20, ""), "own seam", Layer.LOWERING, Sure.LIKELY),
        ((20, ""), "shared seam", Layer.LOWERING, Sure.LIKELY),
        ((0, ""), "shared seam", Layer.HARDWARE, Sure.LIKELY),
        (None, "shared seam", Layer.HARDWARE, Sure.LIKELY),
    ],
)
def test_amd_s_pseudo_code_tells_the_emulator_from_the_code(
    rows: tuple[int, str] | None, seam: str, layer: Layer, sure: Sure, monkeypatch: pytest.MonkeyPatch
) -> None:
    beside = {(name, "nvidia"): BAD for name in OTHERS[1:]}
    told = Told({G: BAD, GX: BAD, CPU: RIGHT, PLAIN: BAD, **beside}, meta=PROVED)
    told.rows = rows
    found = answer(told, seam=seam, monkeypatch=monkeypatch)
    assert (found.layer, found.sure) == (layer, sure)
    assert ("v_add_f32 lane 3" in found.reason) == bool(rows and rows[1])


def test_memory_that_does_not_hold_what_is_put_there_is_the_runtime() -> None:
    """Whatever the record seems to say of itself: that goes through the same memory."""
    told = Told({G: BAD, GX: BAD, CPU: BAD}, contradicts="#20 cuMemcpyDtoH_v2")
    assert answer(told).layer is Layer.RECORD
    told.lost = "allocation 0x7000+0x10 reads 00000000, not 01020304"
    found = answer(told)
    assert (found.layer, found.sure) == (Layer.RUNTIME, Sure.CERTAIN)
    assert "allocation 0x7000+0x10" in found.reason


@pytest.mark.parametrize(
    ("verdict", "reason", "layer"),
    [
        (Verdict.UNSUPPORTED, "unsupported: redux.sync.max.s32", Layer.LOWERING),
        (Verdict.GAP, "the compiler wrote LLVM IR that is not valid: argument type", Layer.LOWERING),
        (Verdict.GAP, "the emulator wrote LLVM IR that is not valid: argument type", Layer.HARDWARE),
        (Verdict.GAP, "the record has no memory before it", Layer.UNKNOWN),
    ],
)
def test_what_cannot_be_run_is_the_fault_of_what_translates_it(
    verdict: Verdict, reason: str, layer: Layer
) -> None:
    suspect = LaunchResult(CALL, "launch", KERNEL, verdict, reason)
    found = answer(Told({G: suspect}), stream=suspect)
    assert found.layer is layer and reason in found.reason
    held = LaunchResult(CALL - 1, "launch", KERNEL, RIGHT)
    assert not_run([held, suspect]) is (None if layer is Layer.UNKNOWN else suspect)


def test_an_object_that_is_not_as_it_was_asked_for_is_the_runtime() -> None:
    """Every device has it, so all are wrong alike."""
    told = Told({G: BAD, GX: BAD, CPU: BAD}, meta=PROVED)
    assert answer(told).layer is Layer.LOWERING
    told.unlike = "variable zeros+0x0 holds 0xa5 when loaded, not 0x00"
    found = answer(told)
    assert (found.layer, found.sure) == (Layer.RUNTIME, Sure.CERTAIN)
    assert "variable zeros" in found.reason


@pytest.mark.parametrize(
    ("results", "layer"),
    [
        ({CPU: BAD, GX: BAD}, Layer.LOWERING),
        ({CPU: BAD, GX: RIGHT}, Layer.CODE_GENERATION),
        ({CPU: BAD, GX: RIGHT, ("cpu", "nvidia", "0"): RIGHT}, Layer.CODE_GENERATION),
        ({CPU: BAD}, Layer.LOWERING),
    ],
)
def test_the_cpu_is_wrong(results: dict[Any, Any], layer: Layer) -> None:
    assert answer(Told(results, meta=PROVED), "cpu", numerics="nvidia").layer is layer


@pytest.mark.parametrize(
    ("results", "layer"),
    [
        ({HIP: BAD, HIPX: RIGHT, CPUN: RIGHT}, Layer.HARDWARE),
        ({HIP: BAD, HIPX: BAD, CPU: RIGHT, GX: RIGHT}, Layer.RUNTIME),
        ({HIP: BAD, HIPX: BAD, CPU: BAD, GX: BAD}, Layer.LOWERING),
        ({HIP: wrong(0, Verdict.CRASH), HIPX: BAD, CPU: RIGHT, GX: RIGHT}, Layer.RUNTIME),
    ],
)
def test_an_amd_gpu_is_wrong(results: dict[Any, Any], layer: Layer) -> None:
    assert answer(Told(results, meta=PROVED), "hip:0").layer is layer


def test_without_a_proof_the_record_may_be_wrong() -> None:
    found = answer(Told({G: BAD, GX: BAD, CPU: BAD}))
    assert (found.layer, found.sure) == (Layer.LOWERING, Sure.LIKELY)
    assert "not proved" in found.reason and "NVIDIA GPU" in found.needs


def test_an_nvidia_gpu_that_comes_to_the_record_proves_it() -> None:
    found = answer(Told({G: BAD, CUDA: RIGHT, GX: BAD, CPU: BAD}))
    assert (found.layer, found.sure, found.needs) == (Layer.LOWERING, Sure.CERTAIN, "")


def test_a_record_that_its_own_copies_contradict_is_wrong() -> None:
    found = answer(Told({G: BAD, GX: BAD, CPU: BAD}, meta=PROVED, contradicts="#20 cuMemcpyDtoH_v2"))
    assert (found.layer, found.sure) == (Layer.RECORD, Sure.CERTAIN)
    assert any("#20" in one.seen for one in found.evidence)


@pytest.mark.parametrize(
    ("verdict", "layer"), [("differs", Layer.RECORD), ("noise", Layer.LOWERING), ("gap", Layer.LOWERING)]
)
def test_what_the_recording_gpu_did_not_prove(verdict: str, layer: Layer) -> None:
    row = SimpleNamespace(call=CALL, verdict=verdict, reason="")
    assert answer(Told({G: BAD, GX: BAD, CPU: BAD}, meta=PROVED, unproved=[row])).layer is layer


@pytest.mark.parametrize(
    ("results", "layer"),
    [
        ({G: BAD, CUDA: BAD}, Layer.UNKNOWN),
        ({G: BAD, GX: BAD, CPU: wrong(2)}, Layer.UNKNOWN),
        ({G: BAD, GX: BAD, CPU: BAD}, Layer.LOWERING),
    ],
)
def test_what_depends_on_the_order_of_threads_may_be_noise(results: dict[Any, Any], layer: Layer) -> None:
    told = Told(results)
    told.varies = "atom.global.add.f32"
    found = answer(told)
    assert found.layer is layer
    assert ("--learn-noise" in found.needs) == (layer is Layer.UNKNOWN)


def test_what_inherits_and_holds_alone_is_not_to_blame() -> None:
    stream = wrong(1, Verdict.INHERITED)
    told = Told({G: RIGHT})
    found = answer(told, stream=stream)
    assert found.layer is Layer.INPUTS and not found.layer.named
    assert len(told.asked) == 1  # nothing else needs to be run


def test_a_call_before_it_that_writes_wrong_is_named() -> None:
    told = Told({G: RIGHT})
    told.wrote = "#12 cuMemsetD8_v2"
    found = answer(told)
    assert (found.layer, found.sure) == (Layer.RUNTIME, Sure.CERTAIN)
    assert found.reason.endswith(": #12 cuMemsetD8_v2")


def test_what_is_not_translated_is_named() -> None:
    reason = "tex.grad is not supported"
    found = answer(Told({G: result(Verdict.UNSUPPORTED, reason)}))  # type: ignore[dict-item]
    assert found.layer is Layer.LOWERING and reason in found.reason


def test_what_could_not_be_judged_cannot_be_told() -> None:
    found = answer(Told({G: result(Verdict.GAP, "its texture is not on record")}))  # type: ignore[dict-item]
    assert found.layer is Layer.UNKNOWN and "its texture is not on record" in found.reason


def test_threads_that_wait_for_others_of_their_warp() -> None:
    hang = LaunchResult(CALL, "launch", KERNEL, Verdict.HANG, "needs independent thread scheduling")
    found = answer(Told({G: hang, GX: hang, CPU: RIGHT}, meta=PROVED))
    assert (found.layer, found.sure) == (Layer.HARDWARE, Sure.CERTAIN)


def test_copies_are_the_runtimes() -> None:
    copy = LaunchResult(CALL, "copy", "cuMemcpyDtoH_v2", Verdict.DIFFERS, buffers=BAD.buffers)
    assert answer(Told({G: copy}), stream=copy).layer is Layer.RUNTIME
    held = LaunchResult(CALL, "copy", "cuMemcpyDtoH_v2", Verdict.IDENTICAL)
    assert answer(Told({G: held}), stream=copy).layer is Layer.RUNTIME


def test_every_row_can_be_reached() -> None:
    """No row stands behind one that takes all its cases."""
    for number, row in enumerate(ROWS):
        assert decide(row.when) is row, f"row {number}, {sorted(row.when)}, is never chosen"


def test_every_step_is_a_fact_of_the_table() -> None:
    """A run is made for an outcome of it, or for what it is looked into for."""
    own = {
        "writes": "writes part", "varies": "varies", "memory": "memory parts", "objects": "objects part",
        "record": "record contradicts", "rows": "rows fail", "seam": "own seam", "others": "others fail",
    }  # fmt: skip
    facts = {fact for row in ROWS for fact in row.when}
    for step in STEPS:
        wanted = {own[step.probe]} if step.probe in own else {f"{step.probe} holds", f"{step.probe} fails"}
        assert wanted & facts, step


@pytest.mark.parametrize(
    ("kind", "text", "seam"),
    [
        (Kind.VALUE, "add.f32 %f1, %f2, %f3;", "shared seam"),
        (Kind.VALUE, "@%p1 mul.lo.s32 %r1, %r2, %r3;", "shared seam"),
        (Kind.VALUE, "shfl.sync.down.b32 %r1, %r2, %r3, %r4, %r5;", "own seam"),
        (Kind.VALUE, "ld.global.f32 %f1, [%rd1];", "own seam"),
        (Kind.STORE, "st.global.f32 [%rd1], %f1;", "own seam"),
        (Kind.CONTROL, "@%p1 bra L1;", "seam untold"),
    ],
)
def test_the_seam_of_an_instruction(kind: Kind, text: str, seam: str) -> None:
    place = ((0, 0, 0), (0, 0, 0), 0, ())
    found = Difference(kind, 1, text, "", "k", "%f1", "f32", *place, "cpu", "gfx1030", "1", "2", 1, 2)
    assert seam_of(found) == seam


SAXPY = Path(__file__).parents[2] / "corpus" / "saxpy" / "trace.bin"


def test_a_suspect_is_a_launch_or_a_copy() -> None:
    with open_trace(SAXPY) as trace:
        launch = next(trace.iter_launches())
        copy = next(trace.iter_copies())
        assert suspect_of(trace, launch.call).kind == "launch"
        assert (suspect_of(trace, copy.sequence).kind, suspect_of(trace, copy.sequence).kernel) == (
            "copy",
            copy.function,
        )
        with pytest.raises(TraceError, match="neither launches a kernel nor copies"):
            suspect_of(trace, 0)
        with pytest.raises(TraceError):
            suspect_of(trace, 10**6)
