"""Parts of a trace: `trim` and `extract` keep what the part needs, and its verdicts."""

from __future__ import annotations

from pathlib import Path

import pytest
from kernels import LAYOUT, MODULE, add, added, parameters, ramp
from python_device import PythonDevice
from replay_case import Case
from trace_builder import BASE

import zluda
from zluda.device.base import Dim3
from zluda.diff.results import ReplayResult, Verdict
from zluda.errors import TraceError
from zluda.replay.cutting import Cut, extract, trim
from zluda.tracefile import Selection, TraceWriter, open_trace
from zluda.tracefile.stripping import Part, strip
from zluda.tracefile.subset import STATE_CALL

COUNT = 64
SIZE = 4 * COUNT
PART = "part.bin"


def wrong(device: PythonDevice, grid: Dim3, block: Dim3, packed: bytes) -> None:
    """A kernel that does nothing."""


def program(case: Case) -> list[int]:
    """Sums over and over into one buffer, between things that come and go; the launches' numbers."""
    record = case.record
    record.start()
    gone = record.module(MODULE)
    record.function(gone, "add", LAYOUT)
    record.unload(gone)
    module = record.module(MODULE)
    kernel = record.function(module, "add", LAYOUT)
    x, y, unused = record.allocate(SIZE), record.allocate(SIZE), record.allocate(SIZE)
    record.copy_in(x, ramp(COUNT))
    record.copy_in(y, ramp(COUNT, 0.5))
    record.copy_in(unused, ramp(COUNT, 9))
    launches, sums = [], ramp(COUNT)
    for _ in range(4):
        short_lived = record.allocate(SIZE)
        record.fill(short_lived, 7, COUNT)
        sums = added(sums, ramp(COUNT, 0.5))
        launches.append(record.launch(kernel, parameters(x, y, COUNT), {x: sums}))
        record.free(short_lived)
        record.copy_out(x, SIZE)
    return launches


def trimmed(case: Case, tmp_path: Path, text: str) -> tuple[Path, Cut]:
    case.record.__exit__()
    part = tmp_path / PART
    with open_trace(case.path) as source:
        return part, trim(source, part, Selection.parse(text))


def verdicts(result: ReplayResult) -> list[tuple[int, Verdict]]:
    return [(one.call, one.verdict) for one in result.results]


def test_a_part_has_the_verdicts_of_the_whole(case: Case, tmp_path: Path) -> None:
    launches = program(case)
    part, _ = trimmed(case, tmp_path, f"{launches[2]}-{launches[3]}")
    whole = case.replay({"add": add})
    result = zluda.replay(part, device="cpu")
    assert verdicts(result) == [v for v in verdicts(whole) if launches[2] <= v[0] <= launches[3]]
    assert result.verdict is Verdict.IDENTICAL
    assert result.meta["not_replayed"] == {}


def test_a_wrong_kernel_is_found_in_a_part(case: Case, tmp_path: Path) -> None:
    launches = program(case)
    part, _ = trimmed(case, tmp_path, f"{launches[2]}")
    case.replay({"add": wrong})
    assert verdicts(zluda.replay(part, device="cpu")) == [(launches[2], Verdict.DIFFERS)]


def test_memory_at_a_kept_call_is_that_of_the_whole(case: Case, tmp_path: Path) -> None:
    launches = program(case)
    part, cut = trimmed(case, tmp_path, f"{launches[1]}-{launches[3]}")
    with open_trace(case.path) as whole, open_trace(part) as kept:
        assert [c.sequence for c in kept.iter_calls(cut.first)] == [*range(cut.first, cut.last + 1)]
        for call in range(cut.first, cut.last + 1):
            for one in kept.live_allocations(call):
                assert kept.read_allocation(one.id, call, 0, one.size) == whole.read_allocation(
                    one.id, call, 0, one.size
                )


def test_what_was_freed_or_unloaded_before_a_part_is_left_out(case: Case, tmp_path: Path) -> None:
    launches = program(case)
    part, cut = trimmed(case, tmp_path, f"{launches[3]}")
    with open_trace(part) as kept:
        assert len(kept.module_list) == 1
        assert [a.size for a in kept.allocations] == [SIZE] * 4  # x, y, unused, and the last short-lived
        assert [launch.call for launch in kept.iter_launches()] == [launches[3]]
        functions = [call.function for call in kept.iter_calls(0, cut.first)]
        assert functions.count("cuModuleLoadData") == 1
        assert "cuMemFree_v2" not in functions and "cuMemcpyDtoH_v2" not in functions


def test_a_launch_alone_has_the_memory_that_it_reaches(case: Case, tmp_path: Path) -> None:
    launches = program(case)
    case.record.__exit__()
    part = tmp_path / PART
    with open_trace(case.path) as source:
        extract(source, part, launches[2])
        with pytest.raises(TraceError, match="launched nothing"):
            extract(source, tmp_path / "other.bin", launches[2] + 1)
    with open_trace(part) as kept:
        assert [a.base for a in kept.allocations] == [BASE, BASE + 512]  # x and y, not what is unused
    case.replay({"add": add})
    assert verdicts(zluda.replay(part, device="cpu")) == [(launches[2], Verdict.IDENTICAL)]


def test_memory_stands_at_the_call_before_the_part(case: Case, tmp_path: Path) -> None:
    """That call is kept where it makes something, else a call of no driver's takes its place."""
    launches = program(case)
    part, cut = trimmed(case, tmp_path, f"{launches[1] - 1}-{launches[1]}")  # after a call that allocates
    with open_trace(part) as kept:
        assert kept.call(cut.first - 1).function == "cuMemAlloc_v2"
    part, cut = trimmed(case, tmp_path, f"{launches[1]}")  # after a memset
    with open_trace(part) as kept:
        assert kept.call(cut.first - 1).function == STATE_CALL


def test_a_part_from_the_first_call_needs_no_state(case: Case, tmp_path: Path) -> None:
    launches = program(case)
    part, cut = trimmed(case, tmp_path, f"0-{launches[0]}")
    assert (cut.first, cut.last, cut.calls) == (0, launches[0], frozenset())
    case.replay({"add": add})
    assert verdicts(zluda.replay(part, device="cpu")) == [(launches[0], Verdict.IDENTICAL)]


def test_kernels_choose_the_ends(case: Case, tmp_path: Path) -> None:
    launches = program(case)
    _, cut = trimmed(case, tmp_path, "kernel:add")
    assert (cut.first, cut.last) == (launches[0], launches[-1])


def test_a_part_can_be_cut_again(case: Case, tmp_path: Path) -> None:
    launches = program(case)
    part, _ = trimmed(case, tmp_path, f"{launches[1]}-{launches[3]}")
    again = tmp_path / "again.bin"
    with open_trace(part) as source:
        extract(source, again, launches[3])
    case.replay({"add": add})
    assert verdicts(zluda.replay(again, device="cpu")) == [(launches[3], Verdict.IDENTICAL)]


def test_a_part_is_trimmed_by_the_numbers_of_the_whole(case: Case, tmp_path: Path) -> None:
    """Which go beyond the count of its calls; ends of ranges are those of calls that are there."""
    launches = program(case)
    part, _ = trimmed(case, tmp_path, f"{launches[1]}-{launches[3]}")
    again = tmp_path / "again.bin"
    with open_trace(part) as source:
        assert source.counts().calls < launches[3]
        for text, ends in (
            (f"{launches[3]}", (launches[3], launches[3])),
            (f"{launches[2]}-999999", (launches[2], launches[3])),
            (f"{launches[2]}-999999,kernel:none", (launches[2], launches[3])),
            (f"{launches[1]}-{launches[3]}/2", (launches[1], launches[3] - (launches[3] - launches[1]) % 2)),
        ):
            cut = trim(source, again, Selection.parse(text))
            assert (cut.first, cut.last) == ends, text
        for text in ("999999", "kernel:none"):
            with pytest.raises(TraceError, match="no call of this trace is selected"):
                trim(source, again, Selection.parse(text))


def test_a_part_of_a_redacted_trace_keeps_digests_and_verdicts(case: Case, tmp_path: Path) -> None:
    record = case.record
    record.start()
    module = record.module(MODULE)
    kernel = record.function(module, "add", LAYOUT)
    x, y = record.allocate(SIZE), record.allocate(SIZE)
    record.fill(x, 0, COUNT)
    record.fill(y, 0, COUNT)
    launches = [
        record.launch(kernel, parameters(x, y, COUNT), {x: bytes(SIZE), y: bytes(SIZE)}) for _ in range(3)
    ]
    record.copy_in(y, ramp(COUNT))
    launches.append(record.launch(kernel, parameters(x, y, COUNT), {x: ramp(COUNT)}))
    record.__exit__()
    redacted, part = tmp_path / "redacted.bin", tmp_path / PART
    with open_trace(case.path) as source:
        strip(source, redacted, [Part.CONTENTS])
    case.replay({"add": add})
    whole = verdicts(zluda.replay(redacted, device="cpu"))
    with open_trace(redacted) as source:
        trim(source, part, Selection.parse(f"{launches[1]}-{launches[3]}"))
    assert verdicts(zluda.replay(part, device="cpu")) == [v for v in whole if v[0] >= launches[1]]
    with open_trace(redacted) as source:
        extract(source, part, launches[3])
    assert verdicts(zluda.replay(part, device="cpu")) == [(launches[3], Verdict.GAP)]


def test_the_state_is_the_rows_that_hold_and_no_more(tmp_path: Path) -> None:
    """Neither what later rows cover, nor pages that nobody wrote: 2^40 bytes cost nothing."""
    size = 1 << 40
    with TraceWriter.create(tmp_path / "a.bin") as writer:
        signature = writer.signature("cuMemsetD8_v2", [])
        writer.add_calls([(call, 1, None, signature, call, call, 0, b"") for call in range(8)])
        memory = writer.add_allocation(0, BASE, size)
        writer.add_page(1, memory, 0, b"a" * 100)
        writer.add_page(2, memory, 50, b"b" * 100)  # over half of it
        writer.add_page(3, memory, 0, b"c" * 20)
        writer.add_page(4, memory, 40, b"d" * 200)  # over all of the second
        writer.add_page(4, memory, size - 3, b"end", found=True)
    with open_trace(tmp_path / "a.bin") as source:
        trim(source, tmp_path / PART, Selection.parse("6-7"))
        with open_trace(tmp_path / PART) as kept:
            pages = kept.pages(5)
            assert [(one.offset, kept.page_data(one)[:1]) for one in pages] == [
                (0, b"a"),
                (0, b"c"),
                (40, b"d"),
                (size - 3, b"e"),
            ]
            for offset in (0, size - 300):
                expected = source.read_allocation(memory, 7, offset, 300)
                assert kept.read_allocation(memory, 7, offset, 300) == expected


def test_a_trace_is_not_cut_into_itself(case: Case, tmp_path: Path) -> None:
    program(case)
    case.record.__exit__()
    with open_trace(case.path) as source, pytest.raises(TraceError, match="choose another name"):
        trim(source, case.path, Selection.parse("1-2"))
    with open_trace(case.path) as source, pytest.raises(TraceError, match="no call of this trace"):
        trim(source, tmp_path / PART, Selection.parse("100000"))
    assert not (tmp_path / PART).exists()


def test_every_table_is_cut() -> None:
    """A table that the format gains must be thought of here."""
    from zluda.tracefile import schema, subset

    assert {*subset._ROWS, "blob"} == set(schema.table_names())
