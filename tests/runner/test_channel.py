"""The channel carries what is sent, whole and in order, and refuses what no side would write."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from zluda.driver import CudaError
from zluda.errors import DeviceError, Error, LaunchError, PtxError, UnsupportedError
from zluda.runner import channel as channels
from zluda.runner.channel import Channel, ChannelError
from zluda.runner.messages import decode_error, encode_error

RELAXED = settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 64) - 1)
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary(max_size=100)
)
MESSAGES = st.recursive(
    SCALARS, lambda inner: st.lists(inner).map(tuple) | st.dictionaries(st.text(), inner), max_leaves=20
)


class Pair:
    """Both sides of one channel in one process."""

    def __init__(self) -> None:
        self.fd = channels.create(b'{"device": "cpu"}')
        self.near, self.far = Channel(self.fd, near=True), Channel(self.fd, near=False)

    def poke(self, offset: int, data: bytes) -> None:
        os.pwrite(self.fd, data, offset)

    def close(self) -> None:
        self.near.close()
        self.far.close()
        os.close(self.fd)


@pytest.fixture
def pair() -> Iterator[Pair]:
    pair = Pair()
    yield pair
    pair.close()


def test_setup_is_there_for_the_runner(pair: Pair) -> None:
    assert pair.far.setup() == b'{"device": "cpu"}'


def test_nothing_sent_nothing_received(pair: Pair) -> None:
    assert pair.near.receive() is None


@RELAXED
@given(message=MESSAGES)
def test_what_is_sent_arrives(pair: Pair, message: object) -> None:
    pair.near.send(5, message)
    assert pair.far.receive() == (5, message)
    pair.far.send(5, message)
    assert pair.near.receive() == (5, message)


def test_frames_wrap_around_the_ring(pair: Pair) -> None:
    for sequence in range(300):
        body = bytes([sequence % 256]) * 4000  # × 300 is several times the ring
        pair.near.send(sequence, body)
        assert pair.far.receive() == (sequence, body)


@pytest.mark.parametrize("size", [channels.INLINE - 1, channels.INLINE, 1 << 20, (1 << 25) + 3])
def test_bulk_data_arrives(pair: Pair, size: int) -> None:
    data = os.urandom(1 << 16) * (size >> 16) + bytes(size & 0xFFFF)
    pair.near.send(1, (data, memoryview(data), {"k": bytearray(data)}))
    received = pair.far.receive()
    assert received is not None
    first, second, named = received[1]
    assert bytes(first) == bytes(second) == bytes(named["k"]) == data
    assert isinstance(first, memoryview) == (size >= channels.INLINE)


def test_bulk_memory_is_given_back(pair: Pair) -> None:
    pair.near.send(1, bytes(1 << 26))
    pair.far.receive()
    full = os.fstat(pair.fd).st_blocks
    pair.near.send(2, None)
    assert os.fstat(pair.fd).st_blocks < full / 2


@pytest.mark.parametrize("message", [object(), 1 << 64, -(1 << 63) - 1])
def test_what_cannot_be_sent(pair: Pair, message: object) -> None:
    with pytest.raises(ChannelError, match="cannot be sent"):
        pair.near.send(1, message)


def test_more_than_fits(pair: Pair) -> None:
    with pytest.raises(ChannelError, match="does not fit"):
        pair.near.send(1, ["x" * 4000] * 100)


def test_neither_side_can_resize_the_file(pair: Pair) -> None:
    for size in (0, channels.SIZE + 1):
        with pytest.raises(OSError):
            os.ftruncate(pair.fd, size)


def test_another_version_is_refused(pair: Pair) -> None:
    pair.poke(8, struct.pack("<I", channels.VERSION + 1))
    with pytest.raises(ChannelError, match="version 2"):
        Channel(pair.fd, near=True)


@RELAXED
@given(body=st.binary(max_size=200))
def test_a_malformed_body_is_an_error(pair: Pair, body: bytes) -> None:
    pair.far._out.push(1, body)
    try:
        pair.near.receive()
    except ChannelError:
        return  # anything else fails the test; some bytes are a message


@RELAXED
@given(
    head=st.integers(0, (1 << 64) - 1) | st.integers(0, 4 * channels.RING),
    tail=st.integers(0, (1 << 64) - 1) | st.integers(0, 4 * channels.RING),
    ring=st.binary(min_size=64, max_size=256),
)
def test_malformed_indices_and_frames_are_errors(head: int, tail: int, ring: bytes) -> None:
    pair = Pair()
    try:
        pair.poke(channels.REPLY_INDICES[0], struct.pack("<Q", head))
        pair.poke(channels.REPLY_INDICES[1], struct.pack("<Q", tail))
        pair.poke(channels.REPLY_RING + tail % channels.RING // 8 * 8, ring)
        try:
            pair.near.receive()
        except ChannelError:
            return
    finally:
        pair.close()


@RELAXED
@given(
    reference=st.binary(max_size=20)
    | st.tuples(*[st.integers(0, (1 << 64) - 1)] * 2).map(lambda t: struct.pack("<QQ", *t))
)
def test_references_outside_the_bulk_area_are_errors(pair: Pair, reference: bytes) -> None:
    try:
        view = pair.near._bulk_in.get(reference)
    except ChannelError:
        return
    assert len(view) == struct.unpack("<QQ", reference)[1]


class TestErrors:
    @pytest.mark.parametrize(
        "error",
        [
            CudaError(700, "cuX", "d", launch=LaunchError("m", kernel="k", block=(1, 2, 3), address=8)),
            CudaError("CUDA_ERROR_NO_BINARY_FOR_GPU", "cuX", "d", reason="no-ptx"),
            LaunchError("m", kernel="k", thread=(1, 2, 3)),
            UnsupportedError("wgmma", "kernel k"),
            PtxError("m", file="f", line=1, column=2, text="t", expected="e"),
            DeviceError("cpu", "m", remedy="r"),
            Error("plain"),
        ],
        ids=lambda error: type(error).__name__,
    )
    def test_cross_whole(self, pair: Pair, error: Error) -> None:
        pair.far.send(1, encode_error(error))
        received = pair.near.receive()
        assert received is not None
        copy = decode_error(received[1])
        assert type(copy) is type(error) and str(copy) == str(error)
        left, right = vars(copy).copy(), vars(error).copy()
        assert str(left.pop("launch", None)) == str(right.pop("launch", None))
        assert left == right

    @RELAXED
    @given(message=MESSAGES)
    def test_anything_else_is_refused(self, message: object) -> None:
        try:
            decode_error(message)
        except ChannelError:
            return
        pytest.fail("accepted")
