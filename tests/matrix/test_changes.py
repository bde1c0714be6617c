"""Two runs side by side: cells, and kernels' times."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from matrix_nights import stored_night

from zluda.errors import Error
from zluda.matrix.changes import compare
from zluda.matrix.speed import speed_changes
from zluda.matrix.store import Store


@pytest.fixture
def store() -> Iterator[Store]:
    with Store("sqlite://", create=True) as made:
        yield made


def test_tells_what_became_better_worse_other_new_and_gone(store: Store) -> None:
    before = {
        "same": "identical",
        "still-bad": "differs",
        "finer": "within",
        "broken": "identical",
        "mended": "crash",
        "shaky": "identical",
        "lost": "within",
        "gone": "identical",
        "worse-told": "unsupported",
    }
    after = {
        **before,
        "finer": "identical",
        "broken": "differs",
        "mended": "noise",
        "shaky": "flaky",
        "lost": "unsupported",
        "new": "identical",
        "worse-told": "hang",
    }
    del after["gone"]
    a = stored_night(store, {(name, "cpu"): found for name, found in before.items()})
    b = stored_night(store, {(name, "cpu"): found for name, found in after.items()})
    found = compare(store, a, b)
    assert {cell.program: str(cell.change) for cell in found.cells} == {
        "broken": "regressed",
        "shaky": "regressed",
        "lost": "regressed",
        "worse-told": "regressed",
        "gone": "removed",
        "finer": "changed",
        "new": "added",
        "mended": "improved",
    }
    assert found.same == 2 and found.counts["regressed"] == 4
    assert found.cells[0].program == "broken"
    assert compare(store, a, a).cells == ()


def test_a_failure_for_another_reason_has_changed(store: Store) -> None:
    a = stored_night(store, {("p", "cpu"): "differs"}, reason="#3 k: differs, element 1")
    b = stored_night(store, {("p", "cpu"): "differs"}, reason="#9 k: differs, element 7")
    (cell,) = compare(store, a, b).cells
    assert cell.change == "changed" and cell.reason == "#9 k: differs, element 7"


SLOW, FAST = [1.10, 1.12, 1.11, 1.14, 1.13], [1.00, 1.02, 1.01, 1.03, 0.99]
CELL = {("p", "cpu"): "identical"}


def test_a_kernel_whose_code_changed_and_whose_times_lie_apart_became_slower(store: Store) -> None:
    a = stored_night(store, CELL, code="c0", seconds=FAST)
    b = stored_night(store, CELL, code="c1", seconds=SLOW)
    (one,) = speed_changes(store, a, b)
    assert (one.program, one.kernel, one.what, one.samples) == ("p", "k", "seconds", (5, 5))
    assert one.ratio == pytest.approx(1.12 / 1.01) and 0 < one.chance < 0.01
    (other,) = speed_changes(store, b, a)
    assert other.ratio < 1


@pytest.mark.parametrize(
    ("code", "host", "seconds"),
    [
        ("c0", "host", SLOW),  # the code is the same, whatever the clock says
        ("", "host", SLOW),  # or nothing tells
        ("c1", "another", SLOW),
        ("c1", "host", SLOW[:4]),  # too few
        ("c1", "host", [1.03, 1.04, 1.035, 1.045, 1.05]),  # apart, but by less than 5 %
        ("c1", "host", [0.9, 1.3, 0.95, 1.25, 1.2]),  # farther, but not apart
    ],
)
def test_says_nothing_of_times_that_prove_nothing(
    store: Store, code: str, host: str, seconds: list[float]
) -> None:
    a = stored_night(store, CELL, code="c0", seconds=FAST)
    b = stored_night(store, CELL, code=code, host=host, seconds=seconds)
    assert speed_changes(store, a, b) == []


def test_instructions_of_an_emulator_are_exact_and_one_count_is_enough(store: Store) -> None:
    a = stored_night(store, CELL, code="c0", instructions=[1000])
    b = stored_night(store, CELL, code="c1", instructions=[1060])
    c = stored_night(store, CELL, code="c2", instructions=[1065])
    (one,) = speed_changes(store, a, b)
    assert (one.what, one.before, one.after, one.chance) == ("instructions", 1000, 1060, 0)
    assert speed_changes(store, b, c) == []  # below 5 %


def test_names_runs_as_people_do(store: Store) -> None:
    numbers = [stored_night(store, CELL, commit=commit * 10) for commit in ("abcd", "bcde", "abcd")]
    assert [store.run_number(name) for name in ("last", "last-1", "2", "abcd", "bcdeb")] == [
        numbers[2],
        numbers[1],
        2,
        numbers[2],
        numbers[1],
    ]
    for name in ("last-3", "last-x", "4", "abc", "ffff"):
        with pytest.raises(Error, match="no finished run"):
            store.run_number(name)
