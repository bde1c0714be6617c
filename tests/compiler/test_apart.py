"""Compiling in processes forked for it: what they give, and how they end."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time

import pytest

from zluda.compiler.amd.llvm import Options, emit
from zluda.compiler.apart import Failure, Outcome, _Queue, each_apart
from zluda.errors import Error, PtxError, UnsupportedError


def outcomes(work: object, tasks: list[int], jobs: int = 2) -> dict[int, Outcome]:
    return dict(each_apart(tasks, work, jobs=jobs))  # type: ignore[arg-type]


def test_gives_every_task_s_bytes() -> None:
    found = outcomes(lambda n: bytes([n]) * 100_000 * n, list(range(9)))  # more than a pipe holds
    assert [found[n].get() for n in range(9)] == [bytes([n]) * 100_000 * n for n in range(9)]


def test_processes_that_take_at_once_take_each_task_once() -> None:
    count, takers = 100_000, 4
    context = multiprocessing.get_context("fork")
    queue, taken, together = _Queue(count), context.SimpleQueue(), context.Barrier(takers)

    def take() -> None:
        together.wait()
        taken.put(list(iter(queue.take, None)))

    processes = [context.Process(target=take) for _ in range(takers)]
    for process in processes:
        process.start()
    numbers = [number for _ in processes for number in taken.get()]
    for process in processes:
        process.join()
    assert sorted(numbers) == list(range(count)) and queue.left() == 0
    queue.close()


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (UnsupportedError("frobnicate", "kernel k"), "unsupported"),
        (PtxError("no", file="a.ptx", line=3), "ptx"),
        (Error("no"), "error"),
        (ZeroDivisionError("no"), "internal"),
    ],
)
def test_what_is_raised_there_is_told_here(error: Exception, kind: str) -> None:
    def work(n: int) -> bytes:
        if n:
            raise error
        return b"fine"

    found = outcomes(work, [0, 1, 2])
    assert found[0] == Outcome(b"fine")
    assert found[1] == found[2]
    failure = found[1].failure
    assert failure is not None and failure.kind == kind and str(error) in failure.reason
    with pytest.raises(Error, match=r"no|frobnicate"):
        found[1].get()


def test_llvm_s_end_is_told_and_takes_nobody_along() -> None:
    bad = 'target triple = "amdgcn-amd-amdhsa"\ndefine amdgpu_kernel void @k() {{ {} ret void }}\n'
    texts = [bad.format(""), bad.format('call void asm "", "{v9999}"(i32 0)')]

    def work(n: int) -> bytes:
        if n == 2:
            os.write(2, b"LLVM ERROR: Cannot select: x\nPLEASE submit a bug report\n")
            os.abort()
        return emit(texts[n], Options("gfx1030", 32))

    found = outcomes(work, [2, 0, 1])
    assert found[2].failure == Failure("crash", "LLVM failed (SIGABRT): LLVM ERROR: Cannot select: x")
    assert found[0].get()[:4] == b"\x7fELF"
    assert found[1].failure is not None


def test_jobs_are_at_once_and_no_more() -> None:
    began = time.monotonic()
    outcomes(lambda n: time.sleep(0.2) or b"", [1, 2, 3, 4], jobs=4)  # type: ignore[func-returns-value]
    assert time.monotonic() - began < 0.7
    began = time.monotonic()
    outcomes(lambda n: time.sleep(0.1) or b"", [1, 2, 3], jobs=1)  # type: ignore[func-returns-value]
    assert time.monotonic() - began > 0.3


def test_who_stops_listening_leaves_no_process() -> None:
    def work(n: int) -> bytes:
        if n:
            time.sleep(60)
        return str(os.getpid()).encode()

    running = each_apart([0, 1, 2], work, jobs=3)
    next(running)
    running.close()  # type: ignore[attr-defined]
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


def test_a_process_that_is_killed_is_a_crash() -> None:
    found = outcomes(lambda n: os.kill(os.getpid(), signal.SIGKILL) or b"", [1])  # type: ignore[func-returns-value]
    assert found[1].failure == Failure("crash", "LLVM failed (SIGKILL): no message")
