"""The command line as a whole: one clear line for whatever is wrong, and the right status."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from zluda import config
from zluda.cli.main import command
from zluda.errors import Error
from zluda.report.recording import facts
from zluda.tracefile import TraceWriter

LINE = [sys.executable, "-m", "zluda"]


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*LINE, *arguments], capture_output=True, text=True, env={**os.environ, **environment}, timeout=60
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nonsense"], "No such command 'nonsense'"),
        (["replay"], "Missing argument 'FILE...'. (see zluda replay --help)"),
        (["info", "--bogus", "x"], "No such option"),
        (["trace", "--bogus", "1"], "No such option"),
        (["dump", "x", "--launches", "--gaps"], "give one of --launches"),
        (["dump", "x", "--select", "5", "--ptx", "1"], "--select does not go with --ptx"),
        (["dump", "x", "--select", ""], "nothing in it"),
        (["trace", "--capture", "all", "x"], "'all' is not one of"),
        (["replay", "--device", "", "x"], "no such device"),
        (["info", ""], "Is a directory"),
        (["replay", "-d", "cpu", ""], "Is a directory"),
        (["dump", "a\x1b[31m\nb"], "a\\x1b[31m b: No such file or directory"),
    ],
)
def test_a_wrong_argument_is_one_line_and_status_2(arguments: list[str], message: str) -> None:
    result = run(*arguments)
    assert result.returncode == 2
    assert result.stderr.startswith("zluda: ") and result.stderr.count("\n") == 1
    assert message in result.stderr


def test_without_a_verb_there_is_help() -> None:
    result = run()
    assert result.returncode == 2
    assert "Verbs:" in result.stderr


@pytest.mark.parametrize("verb", [["info"], ["dump"], ["replay", "--json"]])
def test_output_that_cannot_be_written(tmp_path: Path, verb: list[str]) -> None:
    trace = tmp_path / "t.bin"
    TraceWriter.create(trace, {"command": ["x" * 100_000]}).close()
    with open("/dev/full", "w") as full:
        result = subprocess.run(
            [*LINE, *verb, str(trace), *(["--memory", "-1:0:4096"] if verb == ["dump"] else [])],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
        )
    assert result.returncode == 2
    assert "output: No space left on device" in result.stderr and "Traceback" not in result.stderr


def test_a_terminal_without_unicode(tmp_path: Path) -> None:
    trace = tmp_path / "t.bin"
    TraceWriter.create(trace, {"gpu": "Größe"}).close()
    result = run("info", str(trace), PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert (result.returncode, result.stderr) == (0, "")
    assert "Gr\\xf6\\xdfe" in result.stdout


def test_a_reader_that_goes_is_no_verdict(tmp_path: Path) -> None:
    trace = tmp_path / "t.bin"
    TraceWriter.create(trace, {"command": ["x" * 1_000_000]}).close()
    with subprocess.Popen([*LINE, "info", str(trace)], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as run:
        assert run.stdout is not None and run.stderr is not None
        run.stdout.close()
        assert run.stderr.read() == b""
    assert run.returncode == 2


@pytest.mark.parametrize("verb", [["info"], ["dump"], ["replay", "--device", "cpu"], ["trace"]])
def test_a_variable_of_a_later_version_is_refused_by_every_verb(verb: list[str]) -> None:
    result = run(*verb, "/nowhere", ZLUDA_TEXTURE_CACHE="1")
    assert (result.returncode, result.stderr.count("\n")) == (2, 1)
    assert "ZLUDA_TEXTURE_CACHE is set, but this version does not have that feature yet" in result.stderr


@pytest.mark.parametrize("call", ["zluda.open_device('cpu')", "zluda.replay('/nowhere', device='cpu')"])
def test_and_by_the_python_interface(call: str) -> None:
    code = f"import zluda\ntry: {call}\nexcept zluda.Error as error: print(error)"
    environment = {**os.environ, "ZLUDA_CC": "8.9"}
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert "ZLUDA_CC is set" in result.stdout


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        *((name, "1", f"{name} is set, but this version") for name in config.NOT_BUILT),
        ("ZLUDA_DEVCIE", "cpu", "no such variable; there is ZLUDA_DEVICE"),
        ("ZLUDA_DEVICE", "", "ZLUDA_DEVICE is set to nothing"),
    ],
)
def test_variables_are_known_or_refused(variable: str, value: str, message: str) -> None:
    with pytest.raises(Error, match=message):
        config.load({variable: value})


def test_the_variable_that_there_is() -> None:
    assert config.load({"ZLUDA_DEVICE": "cuda:1", "PATH": "x"}).device == "cuda:1"
    assert config.load({}).device == "auto"


@pytest.mark.parametrize("verb", [["trace", "--verify-limit"], ["replay", "--time-limit"]])
@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf", "soon"])
def test_a_limit_is_a_number_of_seconds_above_0(verb: list[str], value: str) -> None:
    result = CliRunner().invoke(command, [*verb, value, "x"])
    assert result.exit_code == 2 and verb[1] in str(result.output) + str(result.exception)


def test_meta_of_other_kinds_is_shown_as_it_stands() -> None:
    assert ("Left out", "5") in facts({"left_out": 5, "stripped": "contents"})
    assert ("Stripped of", "contents") in facts({"left_out": 5, "stripped": "contents"})
