"""`zluda trim`, `extract`, `strip`, `convert` and `recover` as a user sees them."""

from __future__ import annotations

import json
import os
import re
import sqlite3
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from zluda.cli.main import command
from zluda.errors import Error
from zluda.tracefile import open_trace

CORPUS = Path(__file__).parents[2] / "corpus" / "saxpy" / "trace.bin"


def run(*arguments: str | Path, status: int = 0) -> Result:
    result = CliRunner().invoke(command, [str(a) for a in arguments])
    assert result.exit_code == status, (result.output, result.exception)
    return result


def test_a_launch_of_the_corpus_alone_replays(tmp_path: Path) -> None:
    part = tmp_path / "part.bin"
    said = run("extract", CORPUS, "kernel:scale", "-o", part).stderr
    assert "launch 470 of _Z5scaleifPf" in said and "bytes of" in said
    replayed = run("replay", part, "--device", "cpu", "--json")
    answer = json.loads(replayed.stdout)
    assert (answer["verdict"], answer["launches"]) == ("identical", 1)


def test_a_part_of_the_corpus_is_said_in_a_line(tmp_path: Path) -> None:
    part = tmp_path / "part.bin"
    said = run("trim", CORPUS, "--select", "468-474", "-o", part).stderr
    assert said.startswith(f"zluda: {part}: calls 468 to 474, and ") and said.count("\n") == 1
    with open_trace(part) as trace:
        assert trace.meta["cut_from"] == {"trace": "trace.bin", "calls": "468-474"}


def test_no_launch_is_an_error(tmp_path: Path) -> None:
    result = CliRunner().invoke(command, ["extract", str(CORPUS), "3", "-o", str(tmp_path / "p")])
    assert isinstance(result.exception, Error) and "zluda dump --launches" in str(result.exception)


def test_json_lines_and_back(tmp_path: Path) -> None:
    lines, again, trace = tmp_path / "a.jsonl", tmp_path / "b.jsonl", tmp_path / "b.bin"
    run("convert", CORPUS, lines)
    run("convert", lines, trace)
    run("convert", trace, again)
    assert lines.read_bytes() == again.read_bytes()


def test_a_timeline_has_a_track_for_each_thread_and_stream(tmp_path: Path) -> None:
    page = tmp_path / "t.json"
    run("convert", CORPUS, page)
    events = json.loads(page.read_text())
    calls = [e for e in events if e.get("cat") == "driver"]
    with open_trace(CORPUS) as trace:
        assert len(calls) == trace.counts().calls
        recorded = list(trace.iter_calls())
    began = recorded[0].start_ns
    told = [(round(1000 * e["ts"]), round(1000 * e["dur"])) for e in calls]
    assert told == [(one.start_ns - began, one.end_ns - one.start_ns) for one in recorded]
    assert {e["args"]["name"] for e in events if e["ph"] == "M"} >= {"NVIDIA H200", "./saxpy result.bin"}


def test_converting_never_replaces_a_trace_by_something_else(tmp_path: Path) -> None:
    kept = tmp_path / "kept.json"
    kept.write_bytes(CORPUS.read_bytes())
    result = CliRunner().invoke(command, ["convert", str(CORPUS), str(kept)])
    assert isinstance(result.exception, Error) and "not replaced" in str(result.exception)
    assert kept.read_bytes() == CORPUS.read_bytes()
    source = tmp_path / "saxpy.cu"
    source.write_text("int main() {}")
    refused("holds no JSON; not replaced", "convert", CORPUS, source, "--to", "jsonl")
    assert source.read_text() == "int main() {}"
    source.write_text("")
    run("convert", CORPUS, source, "--to", "jsonl")
    run("convert", CORPUS, source, "--to", "chrome")
    refused("is a trace already|perhaps a trace already", "convert", CORPUS, tmp_path / "again.bin")
    assert {path.name for path in tmp_path.iterdir()} == {"kept.json", "saxpy.cu"}


def refused(message: str, *arguments: str | Path) -> None:
    result = CliRunner().invoke(command, [str(a) for a in arguments])
    assert isinstance(result.exception, Error), (result.output, result.exception)
    assert re.search(message, str(result.exception))


def test_lines_come_from_standard_input_too(tmp_path: Path) -> None:
    lines = run("convert", CORPUS, "-", "--to", "jsonl").stdout
    result = CliRunner().invoke(command, ["convert", "-", str(tmp_path / "b.bin")], input=lines)
    assert result.exit_code == 0, result.exception
    with open_trace(CORPUS) as one, open_trace(tmp_path / "b.bin") as other:
        assert one.counts() == other.counts()


VERBS = {
    "info": (),
    "dump": (),
    "trim": ("--select", "0", "-o", "b.bin"),
    "extract": ("0", "-o", "b.bin"),
    "strip": ("-o", "b.bin"),
    "recover": ("-o", "b.bin"),
    "convert": ("b.jsonl",),
    "diff": (CORPUS,),
}


@pytest.mark.parametrize("verb", VERBS)
def test_a_pipe_is_no_trace_and_nobody_waits_for_it(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    refused("pipe: is a device or a pipe", verb, "pipe", *VERBS[verb])
    assert list(tmp_path.iterdir()) == [tmp_path / "pipe"]


def test_nothing_is_to_be_recovered_of_what_was_no_trace(tmp_path: Path) -> None:
    other = tmp_path / "other.bin"
    other.write_text("no trace")
    result = CliRunner().invoke(command, ["recover", str(other)])
    assert "not a trace" in str(result.exception) and "-o PATH" not in str(result.exception)
    refused("No such file", "recover", tmp_path / "none.bin", "-o", tmp_path / "b.bin")


def test_rows_that_vanish_without_a_trace_are_not_called_recovered(tmp_path: Path) -> None:
    """The table of launches is said to stand where an empty one does: it reads well, and has no rows."""
    bad, whole = tmp_path / "bad.bin", tmp_path / "whole.bin"
    bad.write_bytes(CORPUS.read_bytes())
    connection = sqlite3.connect(bad)
    with connection:
        connection.execute("PRAGMA writable_schema = ON")
        empty = "(SELECT rootpage FROM sqlite_schema WHERE name = 'noise')"
        connection.execute(f"UPDATE sqlite_schema SET rootpage = {empty} WHERE name = 'proof'")
    connection.close()
    said = run("recover", bad, "-o", whole, status=1).stderr
    assert "lost: what is lost cannot be told: damaged" in said
    with open_trace(whole) as trace:
        assert not any(launch.captured for launch in trace.iter_launches())


def test_numbers_that_no_call_has_are_refused(tmp_path: Path) -> None:
    for number in (str(1 << 64), "9" * 5000):
        refused("expected 17, 0-100", "trim", CORPUS, "--select", f"0-{number}", "-o", tmp_path / "b.bin")
    run("dump", CORPUS, "--select", f"479-{10**18 - 1}")


def test_without_machine_code_it_replays_and_without_contents_it_says_so(tmp_path: Path) -> None:
    code, bare = tmp_path / "code.bin", tmp_path / "bare.bin"
    run("strip", CORPUS, "-o", code)
    assert json.loads(run("replay", code, "--device", "cpu", "--json").stdout)["verdict"] == "identical"
    run("strip", CORPUS, "--contents", "-o", bare)
    result = CliRunner().invoke(command, ["diff", str(bare), str(CORPUS)])
    assert "stripped of contents" in str(result.exception)
    said = run("replay", bare, "--device", "cpu", status=2).output
    assert "could not be judged" in said and "the record has digests only" in said
    assert "4 of 2 kernels" in run("info", bare).output


def test_recovering(tmp_path: Path) -> None:
    cut, whole = tmp_path / "cut.bin", tmp_path / "whole.bin"
    assert "nothing to recover; 480 calls" in run("recover", CORPUS).stderr
    cut.write_bytes(CORPUS.read_bytes()[:300_000])
    result = CliRunner().invoke(command, ["recover", str(cut)])
    assert "truncated" in str(result.exception) and "-o PATH" in str(result.exception)
    said = run("recover", cut, "-o", whole, status=1).stderr
    assert "480 calls, 4 launches" in said and "lost: " in said
    run("info", whole)


@pytest.mark.parametrize("verb", ["trim", "extract", "strip", "convert", "recover"])
def test_help_has_an_example(verb: str) -> None:
    assert f"Example: zluda {verb} " in run(verb, "--help").output
