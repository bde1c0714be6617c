"""Record a program of the corpus again, on a host with an NVIDIA GPU: build, run, record, prove, cut, replay.

Every step is the command that a user would type, so that the corpus is also a test of them.
"""

from __future__ import annotations

import datetime
import hashlib
import importlib.util
import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from zluda.corpus.recipe import TRACE, Recipe
from zluda.errors import Error
from zluda.records import dataclass

_RESULT = "result.bin"
_HERE = "{here}"  # in a command: the program's directory in the corpus


class StepFailed(Error):
    """A command that did not do what it should; the text holds the command and its output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """A program's new trace, the table ``[recorded]`` of it, and by device what its replay printed where that
    was not as expected.
    """

    trace: Path
    facts: Mapping[str, Any]
    unexpected: Mapping[str, str]


def host_facts() -> dict[str, str]:
    """The GPU, its driver, nvcc, and today's date; a :class:`StepFailed` where one cannot be told."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader", "--id=0"]
    gpu, driver = (word.strip() for word in _run(query, Path.cwd(), {}, 60).strip().split(","))
    lines = _run(["nvcc", "--version"], Path.cwd(), {}, 60).splitlines()
    release = next((line for line in lines if "release" in line), "release ?, ")
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    nvcc = release.split("release")[1].split(",")[0].strip()
    return {"gpu": gpu, "driver": driver, "nvcc": nvcc, "date": today}


def record(
    recipe: Recipe,
    work: Path,
    *,
    host: Mapping[str, str],
    replay_on: Sequence[str] = ("cuda:0",),
    zluda: Sequence[str] = (sys.executable, "-m", "zluda"),
    timeout: float = 300,
) -> Recorded:
    """Record ``recipe`` in the empty directory ``work``. Where two runs are to give the same results, they
    are compared byte for byte, and with those of the recorded run: recording is seen to change nothing.

    ``timeout`` is of any one step, in seconds. A :class:`StepFailed` says which one failed.
    """
    _needs(recipe)
    steps = _Steps(recipe, work, list(zluda), timeout)
    steps.build()
    plain = steps.results(steps.command)
    if plain != steps.results(steps.command):
        raise StepFailed(f"two runs of {recipe.name} gave different results")
    trace = work / TRACE
    options = ["--capture", recipe.capture, *recipe.options]
    if steps.results([*zluda, "trace", *options, "-o", str(trace), "--", *steps.command]) != plain:
        raise StepFailed(f"{recipe.name} gave other results while it was recorded")
    proof = steps.proved(trace)
    for number, verb in enumerate(recipe.cut):
        before = trace.with_name(f"before-{number}.bin")
        trace.rename(before)
        steps.run([*zluda, verb[0], str(before), *verb[1:], "-o", str(trace)])
    facts: dict[str, Any] = {
        **host,
        "proved": proof,
        "source": recipe.source_digest(),
        **({"results": hashlib.blake2b(plain, digest_size=16).hexdigest()} if plain else {}),
        **({"versions": _versions(recipe.needs)} if recipe.needs else {}),
        "trace_bytes": trace.stat().st_size,
    }
    unexpected = {}
    for device in replay_on:
        verdict, printed = steps.replayed(trace, device)
        facts[f"replayed_on_{device.replace(':', '_')}"] = verdict
        if verdict != recipe.expected:
            unexpected[device] = printed
    return Recorded(trace=trace, facts=facts, unexpected=unexpected)


class _Steps:
    def __init__(self, recipe: Recipe, work: Path, zluda: list[str], timeout: float) -> None:
        self._recipe, self._work, self._zluda, self._timeout = recipe, work, zluda, timeout
        here = str(recipe.directory.resolve())
        self.command = [word.replace(_HERE, here) for word in recipe.command]

    def run(self, command: list[str]) -> str:
        return _run(command, self._work, self._recipe.environment, self._timeout)

    def build(self) -> None:
        build = self._recipe.build
        if build is not None:
            source = str((self._recipe.directory / build.source).resolve())
            self.run([build.compiler, *build.flags, "-o", self._recipe.name, source])

    def results(self, command: list[str]) -> bytes:
        """What the program leaves in ``result.bin``; nothing where it is to leave none."""
        file = self._work / _RESULT
        file.unlink(missing_ok=True)
        printed = self.run(command)
        if self._recipe.results == "none":
            return b""
        if not file.exists():
            raise StepFailed(f"{shlex.join(command)} wrote no {_RESULT}\n{printed}")
        return file.read_bytes()

    def proved(self, trace: Path) -> str:
        """What its GPU gave, running it again; StepFailed where that is neither as recorded nor noise."""
        about = json.loads(self.run([*self._zluda, "info", str(trace), "--json"]))["meta"].get("proof")
        if not about or not about["done"]:
            raise StepFailed(f"{trace}: not proved: {about and about['reason']}")
        if about["first"] is not None:
            raise StepFailed(f"{trace}: not proved: {about['first']}")
        counts = ", ".join(f"{count} {verdict}" for verdict, count in about["launches"].items())
        return f"{counts} in {about['runs']} runs"

    def replayed(self, trace: Path, device: str) -> tuple[str, str]:
        """The verdict of a replay, and what was printed; "failed" where there is none."""
        command = [*self._zluda, "replay", str(trace), "--device", device, "--json"]
        done = _finished(command, self._work, {}, self._timeout)
        try:
            verdict = json.loads(done.stdout)["verdict"]
        except (ValueError, KeyError):
            verdict = "failed"
        return verdict, done.stdout + done.stderr


def _needs(recipe: Recipe) -> None:
    tools = [recipe.build.compiler] if recipe.build is not None else []
    missing = [tool for tool in tools if shutil.which(tool) is None]
    missing += [module for module in recipe.needs if importlib.util.find_spec(module) is None]
    if missing:
        raise StepFailed(f"{recipe.name} needs {', '.join(missing)}, which this host does not have")


def _versions(modules: Sequence[str]) -> str:
    """``torch 2.11.0, triton 3.6.0``: as the modules say themselves."""
    line = "import importlib, sys; m = importlib.import_module(sys.argv[1]); print(m.__version__)"
    found = (
        _run([sys.executable, "-c", line, module], Path.cwd(), {}, 120).split()[-1] for module in modules
    )
    return ", ".join(f"{module} {version}" for module, version in zip(modules, found, strict=True))


def _run(command: list[str], cwd: Path, environment: Mapping[str, str], timeout: float) -> str:
    """Standard output of a command that must end with status 0."""
    done = _finished(command, cwd, environment, timeout)
    if done.returncode != 0:
        raise StepFailed(
            f"$ {shlex.join(command)}\nexit status {done.returncode}\n{done.stdout}{done.stderr}"
        )
    return done.stdout


def _finished(
    command: list[str], cwd: Path, environment: Mapping[str, str], timeout: float
) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command,
            cwd=cwd,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="backslashreplace",
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise StepFailed(f"$ {shlex.join(command)}\nno end after {timeout:g} s") from None
    except OSError as error:
        raise StepFailed(f"$ {shlex.join(command)}\n{error}") from None
