"""Values that streams write and wait for, one by one and in batches."""

from __future__ import annotations

import struct

import pytest
from replay_case import Case

from zluda.diff.results import ReplayResult, Verdict

WAIT_32, WRITE_32, FLUSH, WAIT_64, WRITE_64, BARRIER = range(1, 7)
GEQ, EQ, AND, NOR = range(4)


def operations(*found: tuple[int, int, int, int]) -> bytes:
    """CUstreamBatchMemOpParams: operation, address, value, flags."""
    return b"".join(struct.pack("<I4xQQI20x", *one) for one in found)


def buffer(case: Case, *words: int) -> int:
    case.record.start()
    address = case.record.allocate(64)
    case.record.copy_in(address, struct.pack("<16I", *words, *[0] * (16 - len(words))))
    return address


def delivered(case: Case, address: int, *words: int, stream: int | None = None) -> ReplayResult:
    """Replay, with a copy at the end that delivered these words on NVIDIA."""
    data = struct.pack(f"<{len(words)}I", *words)
    if stream is None:
        case.record.copy_out(address, len(data), data=data)
    else:
        case.record.call(
            "cuMemcpyDtoHAsync_v2",
            srcDevice=address,
            ByteCount=len(data),
            hStream=stream,
            payload_out={"dstHost": data},
        )
    return case.replay({})


def test_written_values_are_written(case: Case) -> None:
    x = buffer(case, 1, 2, 3, 4)
    case.record.call("cuStreamWriteValue32_v2", addr=x, value=7)
    case.record.call("cuStreamWriteValue64_v2", addr=x + 8, value=0x900000008)
    result = delivered(case, x, 7, 2, 8, 9)
    assert [one.verdict for one in result.results] == [Verdict.IDENTICAL]
    assert result.exit_status() == 0


def test_a_batch_does_each_operation_in_order(case: Case) -> None:
    x = buffer(case, 1, 2, 3, 4)
    batch = operations(
        (WRITE_32, x, 5, 0),
        (WAIT_32, x, 5, EQ),
        (BARRIER, 0, 0, 0),
        (WRITE_64, x + 8, 1 << 32, 0),
        (WAIT_64, x + 8, 1, GEQ),
        (FLUSH, 0, 0, 0),
        (WRITE_32, x, 6, 0),
    )
    case.record.call("cuStreamBatchMemOp_v2", count=7, payload_in={"paramArray": batch})
    assert delivered(case, x, 6, 2, 0, 1).verdict is Verdict.IDENTICAL


def test_an_operation_that_is_not_known_is_a_gap(case: Case) -> None:
    x = buffer(case, 1)
    case.record.call("cuStreamBatchMemOp_v2", count=1, payload_in={"paramArray": operations((77, x, 5, 0))})
    case.record.call("cuStreamWriteValue32_v2", addr=x, value=7)
    result = delivered(case, x, 7)
    assert result.verdict is not Verdict.IDENTICAL or result.exit_status() == 2
    assert any("operation 77" in reason for reason in result.reasons)


@pytest.mark.parametrize(
    ("flags", "value", "holds"),
    [
        (GEQ, 5, True),
        (GEQ, 6, False),
        (GEQ, 0xFFFFFFF0, True),  # cyclic: 5 comes after it
        (EQ | 1 << 30, 5, True),
        (EQ, 4, False),
        (AND, 4, True),
        (AND, 2, False),
        (NOR, 5, True),
        (NOR, 0xFFFFFFFA, False),
    ],
)
def test_a_wait_holds_up_its_stream_alone(case: Case, flags: int, value: int, holds: bool) -> None:
    x = buffer(case, 5, 2)
    stream = case.record.stream()
    case.record.call("cuStreamWaitValue32_v2", stream=stream, addr=x, value=value, flags=flags)
    case.record.copy_out(x, 4)
    result = delivered(case, x, 5, stream=stream)
    first, second = (one.verdict for one in result.results)
    assert first is Verdict.IDENTICAL
    assert second is (Verdict.IDENTICAL if holds else Verdict.GAP)
    if not holds:
        assert "waits for a value at" in (result.results[1].reason or "")
