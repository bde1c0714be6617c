"""`zluda share`: the guilty launch and its neighbours as a small trace, and what is said of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from kernels import LAYOUT, MODULE, add, added, parameters, ramp
from python_device import PythonKernel, PythonSession
from trace_builder import TraceBuilder

import zluda
import zluda.replay.envelope  # what imports a session by name must not find the stand-in
from zluda.device.base import Dim3
from zluda.diff.results import Verdict
from zluda.errors import Error, TraceError
from zluda.isolate.share.preview import preview
from zluda.isolate.share.run import share
from zluda.isolate.share.words import as_dict, markdown, preview_lines
from zluda.replay.cutting import excerpt
from zluda.tracefile import open_trace

COUNT = 64
SIZE = 4 * COUNT
LINES = 'File "/home/ada/secret/model.cu", line 3\0'
Use = Callable[[Mapping[str, PythonKernel]], None]


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> Use:
    def use(chosen: Mapping[str, PythonKernel]) -> None:
        monkeypatch.setattr("zluda.replay.session.Session", lambda *_, **options: PythonSession(chosen))

    return use


def program(path: Path) -> list[int]:
    """Five sums, of which the second is of another buffer; a large buffer that nobody uses; the launches."""
    meta = {"command": ["./app", "--key=1"], "host": "ada-laptop", "working_directory": "/home/ada"}
    with TraceBuilder(path, **meta) as record:
        record.start()
        module, other = record.module(MODULE), record.module(MODULE)
        kernel = record.function(module, "add", LAYOUT)
        record.function(other, "add", LAYOUT)
        x, y, z, large = (record.allocate(size) for size in (SIZE, SIZE, SIZE, 1 << 20))
        for address, start in ((x, 0.0), (y, 0.5), (z, 9.0)):
            record.copy_in(address, ramp(COUNT, start))
        record.copy_in(large, LINES.encode() + bytes((1 << 20) - len(LINES)))
        launches, sums = [], ramp(COUNT)
        for number in range(5):
            target, before = (z, ramp(COUNT, 9.0)) if number == 1 else (x, sums)
            after = added(before, ramp(COUNT, 0.5))
            launches.append(record.launch(kernel, parameters(target, y, COUNT), {target: after}))
            sums = after if target == x else sums
        record.copy_out(x, SIZE)
    return launches


class WrongAt:
    """A kernel that does nothing when it is launched for the ``number``-th time (from 0)."""

    def __init__(self, number: int) -> None:
        self.left = number

    def __call__(self, device: object, grid: Dim3, block: Dim3, packed: bytes) -> None:
        self.left -= 1
        if self.left != -1:
            add(device, grid, block, packed)  # type: ignore[arg-type]


def test_the_first_launch_that_fails_is_cut_out_with_its_neighbours(tmp_path: Path, kernels: Use) -> None:
    source, part = tmp_path / "trace.bin", tmp_path / "part.bin"
    launches = program(source)
    kernels({"add": lambda *_: None})
    shared = share(source, part, launch=None, device="cpu")
    assert shared.launch.call == launches[0] and shared.found and shared.found.verdict is Verdict.DIFFERS
    with open_trace(part) as trace:
        assert [one.call for one in trace.iter_launches()] == launches[:2]
    kernels({"add": add})
    result = zluda.replay(part, device="cpu")
    assert result.verdict is Verdict.IDENTICAL and len(result.results) == 2


@pytest.mark.parametrize(("neighbours", "expected"), [(0, [2]), (1, [1, 2, 3]), (9, [0, 1, 2, 3, 4])])
def test_how_many_neighbours(tmp_path: Path, kernels: Use, neighbours: int, expected: list[int]) -> None:
    source, part = tmp_path / "trace.bin", tmp_path / "part.bin"
    launches = program(source)
    kernels({"add": add})
    shared = share(source, part, launch=str(launches[2]), device="cpu", neighbours=neighbours)
    assert shared.whole is None and shared.part.verdict is Verdict.IDENTICAL
    with open_trace(part) as trace:
        assert [one.call for one in trace.iter_launches()] == [launches[number] for number in expected]
        assert len(trace.module_list) == 1
        assert all(one.size == SIZE for one in trace.allocations)  # not the large one that nobody reaches
        assert len(trace.allocations) == (2 if neighbours == 0 else 3)


def test_an_excerpt_keeps_what_its_copies_use(tmp_path: Path, kernels: Use) -> None:
    """A copy between launches reads a buffer that no launch of the part reaches."""
    source, part = tmp_path / "trace.bin", tmp_path / "part.bin"
    with TraceBuilder(source) as record:
        record.start()
        kernel = record.function(record.module(MODULE), "add", LAYOUT)
        x, y, z, w = (record.allocate(SIZE) for _ in range(4))
        for address in (x, y, z, w):
            record.copy_in(address, ramp(COUNT, 0.5))
        first = record.launch(kernel, parameters(x, y, COUNT), {x: added(*[ramp(COUNT, 0.5)] * 2)})
        record.copy_within(y, z, SIZE)
        last = record.launch(kernel, parameters(w, y, COUNT), {w: added(*[ramp(COUNT, 0.5)] * 2)})
    with open_trace(source) as trace:
        excerpt(trace, part, first, last)
    with open_trace(part) as trace:
        assert sorted(one.base for one in trace.allocations) == [x, y, z, w]
    kernels({"add": add})
    assert zluda.replay(part, device="cpu").verdict is Verdict.IDENTICAL


def test_what_the_part_holds_is_told(tmp_path: Path, kernels: Use) -> None:
    source = tmp_path / "trace.bin"
    program(source)
    held = preview(source)
    assert held.kernels == (("add", 5),) and held.machine["host"] == "ada-laptop"
    assert "add" in held.texts
    large = next(one for one in held.buffers if one.size == 1 << 20)
    assert large.record == 1 << 20 and large.nonzero == len(LINES) - 1
    assert large.text.startswith('File "/home/ada/secret')
    numbers = [one for one in held.buffers if one.size == SIZE]
    assert len(numbers) == 3 and not any(one.text for one in numbers)


def test_redacted_parts_hold_neither_contents_nor_names(tmp_path: Path, kernels: Use) -> None:
    source, part = tmp_path / "trace.bin", tmp_path / "part.bin"
    launches = program(source)
    kernels({"add": add})
    shared = share(source, part, launch=str(launches[2]), device="cpu", redact=True)
    assert shared.preview.redacted and not shared.preview.machine and not shared.preview.texts
    assert all(not one.record and not one.text for one in shared.preview.buffers)
    data = part.read_bytes()
    for private in (b"ada-laptop", b"/home/ada", b"--key=1", ramp(COUNT, 0.5)[:64]):
        assert private not in data
    said = "\n".join(preview_lines(shared)) + markdown(shared)
    assert "digests only" in said and "ada" not in said.replace(str(tmp_path), "")


def test_the_block_says_what_went_wrong_and_how_to_see_it(tmp_path: Path, kernels: Use) -> None:
    source, part = tmp_path / "trace.bin", tmp_path / "part.bin"
    launches = program(source)
    kernels({"add": lambda *_: None})
    shared = share(source, part, device="cpu")
    text = markdown(shared)
    assert text.startswith(f"### `add` (launch {launches[0]}): differs on cpu")
    assert "recorded" in text and "differing elements" in text and "| host | ada-laptop |" in text
    assert "zluda replay part.bin --device cpu --numerics nvidia" in text
    found = as_dict(shared)
    assert (
        found["verdict"] == "differs" and found["sha256"] in text and found["holds"]["kernels"] == {"add": 2}
    )


def test_a_fault_that_needs_what_came_before_is_said_to(tmp_path: Path, kernels: Use) -> None:
    source = tmp_path / "trace.bin"
    program(source)
    wrong = WrongAt(3)
    kernels({"add": wrong})
    shared = share(source, tmp_path / "part.bin", device="cpu", neighbours=0)
    assert shared.found is not None and shared.found.verdict is Verdict.IDENTICAL
    assert "needs what came before" in markdown(shared)


def test_what_cannot_be_shared(tmp_path: Path, kernels: Use) -> None:
    source = tmp_path / "trace.bin"
    launches = program(source)
    kernels({"add": add})
    with pytest.raises(Error, match="nothing fails on cpu"):
        share(source, tmp_path / "part.bin", device="cpu")
    with pytest.raises(TraceError, match="no launch with its memory on record"):
        share(source, tmp_path / "part.bin", launch=str(launches[0] - 1), device="cpu")
    with pytest.raises(TraceError):
        share(source, source, launch=str(launches[0]), device="cpu")
    assert [path.name for path in tmp_path.iterdir()] == ["trace.bin"]
