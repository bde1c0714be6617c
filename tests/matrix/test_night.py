"""A night: what is run, what is taken over, what is run again, what interrupts it."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from matrix_nights import ENDED, PLAN, Script, answer, corpus_of, night, states

from zluda.errors import Error
from zluda.matrix import night as module
from zluda.matrix.expectations import read_expectations
from zluda.matrix.night import places, run_night
from zluda.matrix.programs import find_programs
from zluda.matrix.store import RunFacts, Store
from zluda.matrix.watching import Limits, run_watched


@pytest.fixture
def store() -> Iterator[Store]:
    with Store("sqlite://", create=True) as made:
        yield made


def test_a_cell_of_which_nothing_changed_is_taken_over(store: Store, tmp_path: Path) -> None:
    corpus = corpus_of(tmp_path, "a", "b")
    script = Script({("a", "cpu"): ["identical"], ("b", "cpu"): ["unsupported"]})
    first = states(night(store, corpus, script))
    second = night(store, corpus, script)
    assert states(second) == first == {("a", "cpu"): "identical", ("b", "cpu"): "unsupported"}
    assert script.ran == [("a", "cpu"), ("b", "cpu")]  # once each
    assert list(store.cells(2)["taken_over"]) == [True, True]
    assert list(store.cells(2)["outcome"]) == list(store.cells(1)["outcome"])


@pytest.mark.parametrize(
    "what", ["trace", "compiler, and with it the code", "runtime", "environment", "fresh"]
)
def test_a_cell_is_run_again_when_what_decides_it_changed(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    corpus = corpus_of(tmp_path, "a")
    night(store, corpus, Script({("a", "cpu"): ["identical"]}))
    told, plan = answer("differs", code="c1"), PLAN
    if what == "trace":
        (corpus / "a.bin").write_text("another")
    elif what.startswith("compiler"):
        monkeypatch.setattr(module, "_compiler", lambda: "another")
    elif what == "runtime":
        monkeypatch.setattr(module, "runtime_version", lambda: "another")
    elif what == "environment":
        monkeypatch.setattr(module, "environment", lambda device: "another")
    else:
        plan = replace(PLAN, fresh=True)
    assert states(night(store, corpus, Script({("a", "cpu"): [told]}), plan=plan)) == {
        ("a", "cpu"): "differs"
    }


def test_a_changed_compiler_that_emits_the_same_code_runs_nothing_again(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = corpus_of(tmp_path, "a")
    night(store, corpus, Script({("a", "cpu"): ["identical"]}))
    monkeypatch.setattr(module, "_compiler", lambda: "another")
    script = Script({("a", "cpu"): [answer("differs", code="c0")]})  # which it would come to, were it run
    assert states(night(store, corpus, script)) == {("a", "cpu"): "identical"}


def test_nothing_is_taken_over_where_the_device_cannot_be_told(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(device: str) -> str:
        raise Error("nothing tells")

    monkeypatch.setattr(module, "environment", refuses)
    corpus, script = corpus_of(tmp_path, "a"), Script({("a", "cpu"): ["identical"]})
    night(store, corpus, script)
    night(store, corpus, script)
    assert len(script.ran) == 2


def test_a_failure_is_run_again_before_it_is_called_one(store: Store, tmp_path: Path) -> None:
    corpus = corpus_of(tmp_path, "bad", "shaky", "sound")
    script = Script(
        {
            ("bad", "cpu"): ["differs"],
            ("shaky", "cpu"): ["differs", "identical", "crash"],
            ("sound", "cpu"): ["identical"],
        }
    )
    found = dict(
        (place.program.name, result)
        for place, result in night(store, corpus, script, plan=replace(PLAN, retries=2))
    )
    assert {name: str(result.state) for name, result in found.items()} == {
        "bad": "differs",
        "shaky": "flaky",
        "sound": "identical",
    }
    cells = store.cells(1).set_index("program")
    assert list(cells["attempts"]) == [3, 3, 1] and list(cells["failures"]) == [3, 2, 0]
    assert cells.loc["shaky", "reason"].startswith("2 of 3 runs fail")


def test_an_expected_failure_is_run_once_and_a_flaky_cell_every_night(store: Store, tmp_path: Path) -> None:
    corpus = corpus_of(tmp_path, "bad", "shaky")
    (corpus / "expectations").mkdir()
    (corpus / "expectations" / "cpu.txt").write_text("differs bad/.* # known\nskip other/.* # never\n")
    script = Script({("bad", "cpu"): ["differs"], ("shaky", "cpu"): ["crash", "identical", "identical"]})
    assert states(night(store, corpus, script)) == {
        ("bad", "cpu"): "expected-fail",
        ("shaky", "cpu"): "flaky",
    }
    assert script.ran.count(("bad", "cpu")) == 1
    assert states(night(store, corpus, script))["shaky", "cpu"] == "identical"
    assert script.ran.count(("shaky", "cpu")) == 4


def test_what_is_skipped_or_missing_is_not_run_and_says_why(store: Store, tmp_path: Path) -> None:
    corpus = corpus_of(tmp_path, "long")
    (corpus / "expectations").mkdir()
    (corpus / "expectations" / "cpu.txt").write_text("skip long/.* # an hour\n")
    (corpus / "gone").mkdir()
    (corpus / "gone" / "record.toml").write_text('about = "gone"\n[record]\ncommand = ["./gone"]\n')
    found = night(store, corpus, Script({}))
    assert [(result.state, result.outcome.reason, result.expected) for _, result in found] == [
        ("not-run", "its trace is not here: zluda corpus record gone makes it", ""),
        ("not-run", "skipped: an hour", "an hour"),
    ]


@pytest.mark.parametrize(
    ("ended", "state", "reason"),
    [
        (replace(ENDED, status=-9), "infrastructure", "ended by signal 9"),
        (replace(ENDED, status=1, said="Traceback\nKeyError: 3\n"), "infrastructure", "KeyError: 3"),
        (replace(ENDED, status=-9, limit="no end after 60 s"), "not-run", "stopped: no end after 60 s"),
    ],
)
def test_a_process_that_fails_is_no_failure_of_the_program(
    store: Store, tmp_path: Path, ended: object, state: str, reason: str
) -> None:
    corpus = corpus_of(tmp_path, "a")
    script = Script({("a", "cpu"): [ended]})  # type: ignore[list-item]
    ((_, result),) = night(store, corpus, script)
    assert result.state == state and reason in result.outcome.reason
    night(store, corpus, script)
    assert len(script.ran) == 2  # it is not taken over


def test_an_interrupted_run_goes_on_with_the_cells_it_lacks(store: Store, tmp_path: Path) -> None:
    corpus = corpus_of(tmp_path, "a", "b", "c")
    programs = find_programs(corpus)
    script = Script({(name, "cpu"): ["identical"] for name in "abc"})
    number = store.begin_run(RunFacts())
    known = read_expectations(corpus, ["cpu"])
    interrupted = run_night(store, number, places(programs, ["cpu"], ()), PLAN, known, run=script)
    next(interrupted)
    interrupted.close()
    assert store.runs()[0]["finished"] is None and len(store.cells(number)) == 1
    night(store, corpus, script, number=number)
    assert list(store.cells(number)["program"]) == ["a", "b", "c"] and store.runs()[0]["finished"]
    assert sorted(script.ran) == [("a", "cpu"), ("b", "cpu"), ("c", "cpu")]


def test_several_cells_at_once_give_what_one_after_another_gives(store: Store, tmp_path: Path) -> None:
    corpus = corpus_of(tmp_path, *"abcdefgh")
    answers = {(name, device): ["identical"] for name in "abcdefgh" for device in ("cpu", "gfx1030")}
    devices = ("cpu", "gfx1030")
    one = states(night(store, corpus, Script(answers), devices=devices, plan=replace(PLAN, fresh=True)))
    four = night(store, corpus, Script(answers), devices=devices, plan=replace(PLAN, jobs=4, fresh=True))
    assert states(four) == one and len(four) == 16


def test_each_device_has_the_numerics_it_can(tmp_path: Path) -> None:
    programs = find_programs(corpus_of(tmp_path, "a"))
    assert [(place.device, place.numerics) for place in places(programs, ["cpu", "gfx1030"], ())] == [
        ("cpu", "nvidia"),
        ("gfx1030", "native"),
    ]
    assert len(places(programs, ["cpu", "gfx1030"], ("native", "nvidia"))) == 4


def test_a_process_is_ended_with_its_children_beyond_its_time_or_memory() -> None:
    child = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.stdin.read()])"
    began = time.monotonic()
    slow = run_watched(
        [sys.executable, "-c", child],
        given="import time; time.sleep(50)",
        limits=Limits(seconds=1, bytes=1 << 40),
    )
    assert slow.limit == "no end after 1 s" and time.monotonic() - began < 30
    big = "x = bytearray(200 << 20)\nimport time; time.sleep(50)"
    large = run_watched([sys.executable, "-c", child], given=big, limits=Limits(seconds=40, bytes=100 << 20))
    assert large.limit == "more than 100 MiB of memory" and large.peak_bytes > 100 << 20
    assert not [
        one
        for one in psutil.Process().children(recursive=True)
        if "time.sleep(50)" in " ".join(one.cmdline())
    ]


def test_a_process_that_ends_by_itself_is_told_with_what_it_said() -> None:
    ended = run_watched(
        [sys.executable, "-c", "import sys; sys.exit(sys.stdin.read())"],
        given="no",
        limits=Limits(seconds=40, bytes=1 << 40),
    )
    assert (ended.status, ended.limit, ended.said.strip()) == (1, "", "no")
