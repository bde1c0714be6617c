"""What was recorded of arrays on the stand-in driver, replayed over kernels in Python."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pytest
from python_device import PythonDevice, PythonSession
from recorded_scenes import Recorded

import zluda
import zluda.replay.envelope
from zluda.device.base import Dim3
from zluda.diff.results import ReplayResult, Verdict
from zluda.driver.descriptors import Resource, ResourceType, Texture, View
from zluda.driver.translated import TranslatedDriver
from zluda.errors import LaunchError

Scene = Callable[..., Recorded]
PAINT, BOX, FROM_ARRAY, INDIRECT = range(4)
"""The results of the scene: launch 18, copies 21 and 23, launch 28."""


class OwnOrder(TranslatedDriver):
    """As NVIDIA's driver: arrays are in an order of its own, and it gives out its own handles."""

    def array_address(self, array: int) -> int:
        return 0

    def cuTexObjectCreate(
        self, resource: Resource, texture: Texture, view: View | None = None, *, handle: int | None = None
    ) -> int:
        return super().cuTexObjectCreate(resource, texture, view, handle=0x70 + (handle or 0))

    def cuSurfObjectCreate(self, resource: Resource, *, handle: int | None = None) -> int:
        return super().cuSurfObjectCreate(resource, handle=0x70 + (handle or 0))


class Painter:
    """The scene's kernels; ``session`` is where they run."""

    def __init__(self, *, wrong: bool = False) -> None:
        self.wrong = wrong
        self.session: PythonSession

    def objects(self, surface: int, texture: int) -> tuple[int, int]:
        """Where a surface's array and a texture's memory lie."""
        state = self.session.driver._state  # type: ignore[attr-defined]
        if surface not in dict(state.surface_objects.items()):
            raise LaunchError(f"no object has the handle {surface:#x}", kernel="paint", block=(0, 0, 0))
        array = state.arrays[state.surface_objects[surface].resource.at]
        resource = state.texture_objects[texture].resource
        assert resource.type == ResourceType.LINEAR
        return array.address, resource.at

    def paint(self, device: PythonDevice, grid: Dim3, block: Dim3, packed: bytes) -> None:
        surface, texture, to = struct.unpack("<3Q", packed[:24])
        array, numbers = self.objects(surface, texture)
        count = block[0]
        rows = [struct.unpack(f"<{count}I", device.read(at, 4 * count)) for at in (array, numbers)]
        sums = [(a + b) & 0xFFFFFFFF for a, b in zip(*rows, strict=True)]
        device.write(to, struct.pack(f"<{count}I", *sums))
        if self.wrong:
            sums[7] ^= 1
        device.write(array + 160, struct.pack(f"<{count}I", *sums))

    def paint_indirect(self, device: PythonDevice, grid: Dim3, block: Dim3, packed: bytes) -> None:
        self.paint(device, grid, block, device.read(struct.unpack("<Q", packed[:8])[0], 24))


def replay(
    monkeypatch: pytest.MonkeyPatch,
    recorded: Recorded,
    painter: Painter,
    driver: type[TranslatedDriver] = TranslatedDriver,
) -> ReplayResult:
    class Session(PythonSession):
        def _make(self) -> None:
            super()._make()
            self.driver = driver(self.device)  # type: ignore[arg-type]

    def start(device: str, plan: object, **options: Any) -> Session:
        painter.session = Session({"paint": painter.paint, "paint_indirect": painter.paint_indirect})
        return painter.session

    monkeypatch.setattr("zluda.replay.session.Session", start)
    return zluda.replay(recorded.trace, device="cpu")  # type: ignore[no-any-return]


def test_arrays_are_replayed_and_compared(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    result = replay(monkeypatch, scene("arrays"), Painter())
    assert [(one.call, one.verdict) for one in result.results] == [
        (18, Verdict.IDENTICAL),
        (21, Verdict.IDENTICAL),
        (23, Verdict.IDENTICAL),
        (28, Verdict.IDENTICAL),
    ]
    assert "array 40×30 f32" in {buffer.name for buffer in result.results[PAINT].buffers}
    assert result.results[PAINT].written_share == 1.0
    assert not result.relocated and not result.meta["not_replayed"]


def test_a_wrong_texel_is_told_with_its_array_and_place(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = replay(monkeypatch, scene("arrays"), Painter(wrong=True))
    painted = result.results[PAINT]
    assert painted.verdict is Verdict.DIFFERS
    (array,) = [buffer for buffer in painted.buffers if not buffer.identical]
    assert (array.name, array.element_type, array.differing) == ("array 40×30 f32", "f32", 1)
    assert (array.first[0].index, array.first[0].place) == (47, "(7, 1)")
    box = result.results[BOX]
    assert [(one.index, one.place) for one in box.buffers[0].first] == [(47, "(7, 1)")]
    assert box.verdict is Verdict.INHERITED and "after call 18" in box.reason
    assert result.results[FROM_ARRAY].verdict is Verdict.IDENTICAL  # of another array


def test_a_driver_with_an_order_and_handles_of_its_own(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Handles in parameters are exchanged; one that memory holds cannot be told from a number: a gap."""
    result = replay(monkeypatch, scene("arrays"), Painter(), OwnOrder)
    assert [one.verdict for one in result.results] == [Verdict.IDENTICAL] * 3 + [Verdict.GAP]
    assert "memory holds texture or surface 0x1; it is 0x71 here" in result.results[INDIRECT].reason
    assert [(one["kind"], one["recorded"], one["replayed"]) for one in result.relocated] == [
        ("handle", "0x1", "0x71"),
        ("handle", "0x3", "0x73"),
    ]


@pytest.mark.parametrize("driver", [TranslatedDriver, OwnOrder])
@pytest.mark.parametrize("capture", ["outputs", "calls"])
def test_whatever_boxes_are_copied_a_replay_delivers_the_same(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, driver: type[TranslatedDriver], capture: str
) -> None:
    result = replay(monkeypatch, scene("boxes", "1", capture=capture), Painter(), driver)
    assert len(result.results) == 15
    expected = Verdict.IDENTICAL if capture == "outputs" else Verdict.NOT_COMPARED
    assert {one.verdict for one in result.results} == {expected}
    assert not result.meta["not_replayed"]


def test_without_memory_on_record_copies_bring_the_hosts_rows(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = replay(monkeypatch, scene("arrays", capture="calls"), Painter())
    assert {one.verdict for one in result.results} == {Verdict.NOT_COMPARED}
    assert len(result.results) == 4
