"""What forked processes make for each other (``zluda/compiler/siblings.py``)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest

from zluda.compiler import siblings
from zluda.compiler.apart import each_apart

ONE, OTHER = "0" * 63 + "1", "f" * 64
CLASHING = "0" * 62 + "21"  # its lock is on the same byte as ONE's


@pytest.fixture
def pool() -> Iterator[siblings.Pool]:
    pool = siblings.Pool()
    yield pool
    pool.close()


def never() -> bytes:
    raise AssertionError("made once more")


def forked(work: Callable[[], None]) -> int:
    """A process that does this and ends with status 0, or 1 where it raised."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
            os._exit(0)
        finally:
            os._exit(1)
    return pid


def status(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_what_one_process_made_another_finds(pool: siblings.Pool) -> None:
    def make_two() -> None:
        pool.get(ONE, lambda: b"one" * 1000, wait=True)
        pool.get(OTHER, lambda: b"", wait=True)

    assert status(forked(make_two)) == 0
    assert pool.get(ONE, never, wait=False) == b"one" * 1000
    assert pool.get(OTHER, never, wait=False) == b""
    assert pool.get(CLASHING, lambda: b"not that one", wait=False) == b"not that one"


def test_what_another_process_is_at_is_waited_for_or_not(pool: siblings.Pool) -> None:
    begun, tell_begun = os.pipe()
    go_on, tell = os.pipe()

    def slowly() -> bytes:
        os.write(tell_begun, b"x")
        os.read(go_on, 1)
        return b"made"

    maker = forked(lambda: assert_equal(pool.get(ONE, slowly, wait=True), b"made"))
    os.read(begun, 1)
    assert pool.get(ONE, never, wait=False) is None
    assert pool.get(OTHER, lambda: b"other", wait=False) == b"other"
    waiter = forked(lambda: assert_equal(pool.get(ONE, never, wait=True), b"made"))
    os.write(tell, b"x")
    assert (status(maker), status(waiter)) == (0, 0)
    for end in (begun, tell_begun, go_on, tell):
        os.close(end)


def assert_equal(found: bytes | None, expected: bytes) -> None:
    assert found == expected


def test_a_process_that_ends_leaves_its_work_to_another(pool: siblings.Pool) -> None:
    assert status(forked(lambda: assert_equal(pool.get(ONE, lambda: os._exit(7), wait=True), b""))) == 7
    assert pool.get(ONE, lambda: b"made here", wait=False) == b"made here"


def test_a_failure_is_the_callers_and_the_next_may_try(pool: siblings.Pool) -> None:
    with pytest.raises(AssertionError, match="made once more"):
        pool.get(ONE, never, wait=True)
    assert pool.get(ONE, lambda: b"made", wait=False) == b"made"


def test_tasks_that_are_done_apart_share_what_they_make() -> None:
    counter = os.memfd_create("count")

    def make() -> bytes:
        os.write(counter, b"x")
        return b"shared"

    def work(_: int) -> bytes:
        return siblings.once(ONE, make, wait=True) or b""

    done = [outcome.get() for _, outcome in each_apart(range(6), work, jobs=3)]
    assert done == [b"shared"] * 6
    assert os.fstat(counter).st_size == 1
    os.close(counter)


def test_without_a_pool_each_makes_its_own() -> None:
    assert siblings.once(ONE, lambda: b"first", wait=False) == b"first"
    assert siblings.once(ONE, lambda: b"second", wait=True) == b"second"
