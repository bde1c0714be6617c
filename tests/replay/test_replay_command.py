"""`zluda replay` as a user meets it: what it prints, and its exit status."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from kernels import LAYOUT, MODULE, add, added, parameters, ramp
from replay_case import Case

import zluda.cli.main
from zluda.tracefile import open_trace

CORPUS = Path(__file__).parents[2] / "corpus"
COUNT = 64
SIZE = 4 * COUNT
NOTHING = {"add": lambda *_: None}


@pytest.fixture
def run(case: Case, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):  # type: ignore[no-untyped-def]
    """Runs ``zluda replay …``; gives (status, output, errors)."""

    def run(*arguments: object, kernels: object = None) -> tuple[int, str, str]:
        case._use(kernels or {"add": add})  # type: ignore[arg-type]
        monkeypatch.setattr(sys, "argv", ["zluda", "replay", *map(str, arguments)])
        with pytest.raises(SystemExit) as exit:
            zluda.cli.main.main()
        captured = capsys.readouterr()
        return int(exit.value.code or 0), captured.out, captured.err

    return run


@pytest.fixture
def trace(case: Case) -> Path:
    record = case.record
    record.start()
    kernel = record.function(record.module(MODULE), "add", LAYOUT)
    other = record.function(next(iter(record._modules)), "other", LAYOUT)
    x, y = record.allocate(SIZE), record.allocate(SIZE)
    record.copy_in(x, ramp(COUNT))
    record.copy_in(y, ramp(COUNT, 0.5))
    for function in (kernel, other):
        record.launch(
            function, parameters(x, y, COUNT), {x: added(record.read(x, SIZE), record.read(y, SIZE))}
        )
    record.copy_out(x, SIZE)
    record.__exit__()
    return case.path


BOTH = {"add": add, "other": add}


def test_success_says_so_and_exits_0(run, trace: Path) -> None:  # type: ignore[no-untyped-def]
    status, out, err = run(trace, "--device", "cpu", kernels=BOTH)
    assert status == 0
    assert "identical" in out and "cpu" in out
    assert err == ""


def test_a_difference_names_the_launch_and_exits_1(run, trace: Path) -> None:  # type: ignore[no-untyped-def]
    status, out, _ = run(trace, "--device", "cpu", kernels={"add": NOTHING["add"], "other": add})
    assert status == 1
    assert "#9" in out or "add" in out
    assert "element 0" in out or "recorded" in out


def test_what_cannot_be_told_exits_2_unless_allowed(run, trace: Path) -> None:  # type: ignore[no-untyped-def]
    assert run(trace, "--device", "cpu")[0] == 2
    assert run(trace, "--device", "cpu", "--allow", "unsupported")[0] == 0
    assert run(trace, "--device", "cpu", "--allow", "no-ptx,gap")[0] == 2


def test_auto_says_which_device_it_is(run, trace: Path) -> None:  # type: ignore[no-untyped-def]
    status, _, err = run(trace, kernels=BOTH)
    assert status == 0
    assert err == "device auto is cpu\n"


def test_json_is_one_object_and_nothing_else(run, trace: Path) -> None:  # type: ignore[no-untyped-def]
    status, out, _ = run(trace, "--json", "--device", "cpu", kernels=BOTH)
    found = json.loads(out)
    assert (status, found["verdict"], found["identical"], found["device"]) == (0, "identical", 3, "cpu")


def test_several_files_exit_as_the_worst(run, trace: Path, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    missing = tmp_path / "missing.bin"
    status, out, err = run(trace, missing, trace, "--device", "cpu", kernels=BOTH)
    assert status == 2
    assert out.count("identical") >= 2
    assert err.count("\n") == 1 and "missing.bin" in err
    assert run(trace, missing, "--device", "cpu", kernels={**BOTH, **NOTHING})[0] == 1


def test_the_page_is_written(run, trace: Path, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    page = tmp_path / "report.html"
    assert run(trace, trace, "--device", "cpu", "--html", page, kernels=BOTH)[0] == 0
    text = page.read_text()
    assert "<html" in text and "identical" in text


def test_each_device_is_replayed_on_once(run, trace: Path) -> None:  # type: ignore[no-untyped-def]
    status, out, err = run(trace, "-d", "cpu,gfx1030", "-d", "cpu", "--json", kernels=BOTH)
    assert (status, err) == (0, "")
    assert len(out.splitlines()) == 2


def test_devices_are_shown_side_by_side(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "report.html"
    arguments = [str(CORPUS / "saxpy/trace.bin"), "-d", "cpu,gfx1030", "--html", str(page)]
    monkeypatch.setattr(sys, "argv", ["zluda", "replay", *arguments])
    with pytest.raises(SystemExit) as exit:
        zluda.cli.main.main()
    assert exit.value.code == 0
    table = capsys.readouterr().out.splitlines()[-4:]
    assert table[0].split() == ["trace", "cpu", "gfx1030", "(emulated,", "native", "numerics)"]
    assert table[2].split() == ["saxpy", "✓", "identical", "✓", "identical"]
    assert "Saxpy identical on cpu and gfx1030 (emulated, native numerics)" in page.read_text("utf-8")


def test_an_empty_trace_exits_2(run, case: Case) -> None:  # type: ignore[no-untyped-def]
    case.record.__exit__()
    status, out, _ = run(case.path, "--device", "cpu")
    assert status == 2
    assert "nothing was compared" in out


@pytest.mark.parametrize(
    "arguments",
    [
        ("{tmp}/missing.bin",),
        ("{tmp}/text.bin",),
        ("{trace}", "--mode", "alone"),
        ("{trace}", "--jobs", "2"),
        ("{trace}", "--mode", "isolated", "-o", "{tmp}/out.bin"),
        ("{trace}", "--device", "nvptx:x"),
        ("{trace}", "--allow", "differs"),
        ("{trace}", "--select", "kernel:["),
        ("{trace}", "{trace}", "-o", "{tmp}/out.bin"),
        ("{trace}", "-d", "cpu,gfx1030", "-o", "{tmp}/out.bin"),
        ("{trace}", "-d", "cpu,"),
    ],
)
def test_bad_input_is_one_line_and_exits_2(
    run, trace: Path, tmp_path: Path, arguments: tuple[str, ...]
) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "text.bin").write_text("not a trace at all\n" * 100)
    status, out, err = run(*(word.format(tmp=tmp_path, trace=trace) for word in arguments))
    assert status == 2
    assert out == ""
    lines = [line for line in err.splitlines() if line != "device auto is cpu"]
    assert len(lines) == 1 and lines[0].startswith("zluda: ")


FIRST_WRONG = {"add": NOTHING["add"], "other": add}


def test_blame_names_the_layer_of_each_that_fails(run, trace: Path, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    """Here the stand-ins for all devices, the interpreter among them, agree against the record."""
    page = tmp_path / "page.html"
    status, out, _ = run(trace, "-d", "cpu", "--blame", "--html", page, kernels=FIRST_WRONG)
    first, *rest = out.splitlines()
    assert status == 1
    assert first.endswith("; the record is likely at fault"), first
    assert "; layer: record, likely: " in rest[0], rest[0]
    assert "; layer: inputs: from its recorded inputs it holds" in rest[1]
    assert "Layer: record, likely" in page.read_text("utf-8")
    told = json.loads(run(trace, "-d", "cpu", "--blame", "--json", kernels=FIRST_WRONG)[1])
    assert [one["layer"] for one in told["blame"]] == ["record", "inputs", "inputs"]


def test_blame_of_an_isolated_replay(run, trace: Path) -> None:  # type: ignore[no-untyped-def]
    options = ("-d", "cpu", "--mode", "isolated", "--blame", "--json")
    told = json.loads(run(trace, *options, kernels=FIRST_WRONG)[1])
    assert [one["layer"] for one in told["blame"]] == ["record"]
    assert (told["differs"], told["inherited"]) == (1, 0)


def test_what_holds_has_nobody_to_blame(run, trace: Path) -> None:  # type: ignore[no-untyped-def]
    status, out, _ = run(trace, "-d", "cpu", "--blame", "--json", kernels=BOTH)
    assert status == 0 and json.loads(out)["blame"] == []


@pytest.mark.parametrize("alone", [("--explain", 1), ("--learn-noise", "--json")])
@pytest.mark.parametrize(
    "other",
    [
        ("--html", "page.html"),
        ("--output", "out.bin"),
        ("--blame",),
        ("--profile",),
        ("--mode", "isolated"),
        ("--select", "0"),
        ("--allow", "gap"),
        ("--schedule", 0),
        ("--check", "memory"),
        ("--dtype", "add:0=f32"),
    ],
)
def test_options_without_an_effect_are_refused(run, alone: Any, other: Any) -> None:  # type: ignore[no-untyped-def]
    status, out, err = run("trace.bin", "-d", "cpu", *alone, *other)
    assert (status, out) == (2, "") and err.count("\n") == 1
    assert f"{alone[0]} is a question of its own: not with {other[0]}" in err


def test_one_launch_is_explained(run, trace: Path) -> None:  # type: ignore[no-untyped-def]
    with open_trace(trace) as opened:
        call = next(opened.iter_launches()).call
    status, out, _ = run(trace, "-d", "cpu", "--explain", call, kernels=FIRST_WRONG)
    assert status == 1
    lines = out.splitlines()
    assert lines[0].startswith(f"#{call} add <<<") and lines[0].endswith("on cpu: differs")
    assert any(line.startswith("layer    record, likely") for line in lines)
    assert "inside   no instruction: on no device at hand is it right" in lines
    status, out, _ = run(trace, "-d", "cpu", "--explain", call, kernels=BOTH)
    assert status == 0 and "layer    none: from its recorded inputs it holds" in out
