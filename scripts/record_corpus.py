#!/usr/bin/env python3
"""Record the corpus on a host with an NVIDIA GPU, nvcc and the recorder.

    scripts/record_corpus.py --out DIRECTORY [--replay-on cuda:0 cpu] [PROGRAM …]

For each program: build it as its ``record.toml`` says; run it twice and compare its results byte for byte;
record it and compare again, so that recording is seen to change nothing; see that the trace proves itself;
replay it.
``DIRECTORY/corpus.tar`` then holds ``<program>/trace.bin`` and the completed ``record.toml``, to be unpacked
over ``corpus/``. A program that fails is reported with its output, the others still run, and the exit status
is 1.

``ZLUDA`` names the command to use (default: ``python3 -m zluda``).
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import json
import os
import shlex
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
CORPUS = ROOT / "corpus"
ZLUDA = shlex.split(os.environ.get("ZLUDA", f"{sys.executable} -m zluda"))
TIMEOUT = 120  # seconds for any one step


class StepFailed(Exception):
    """A command that did not do what it should; the text holds its output."""


def run(command: list[str], cwd: Path, *, status: int = 0) -> str:
    """Standard output of a command that must end with ``status``."""
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}"}
    try:
        done = subprocess.run(
            command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=TIMEOUT, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise StepFailed(
            f"$ {shlex.join(command)}\nno end after {TIMEOUT} s\n{error.stdout or ''}{error.stderr or ''}"
        ) from None
    if done.returncode != status:
        raise StepFailed(
            f"$ {shlex.join(command)}\nexit status {done.returncode}\n{done.stdout}{done.stderr}"
        )
    return done.stdout


def build(program: str, recipe: dict[str, Any], directory: Path) -> None:
    """Compile ``corpus/<program>/<source>`` to ``directory/<program>``."""
    source = str(CORPUS / program / recipe["build"]["source"])
    run([recipe["build"]["compiler"], *recipe["build"]["flags"], "-o", program, source], directory)


def source_digest(program: str) -> str:
    """BLAKE2b of the program's source with what the programs share: a trace says which source it is of."""
    recipe = tomllib.loads((CORPUS / program / "record.toml").read_text())
    files = (CORPUS / program / recipe["build"]["source"], CORPUS / "support.cuh")
    return hashlib.blake2b(b"".join(file.read_bytes() for file in files), digest_size=16).hexdigest()


def results(command: list[str], directory: Path) -> tuple[str, bytes]:
    """Run; what it printed and the result file it wrote."""
    file = directory / "result.bin"
    file.unlink(missing_ok=True)
    printed = run(command, directory)
    return printed, file.read_bytes()


def record(program: str, directory: Path) -> dict[str, Any]:
    """Build, run twice, record; returns what ``[recorded]`` is to say of it."""
    recipe = tomllib.loads((CORPUS / program / "record.toml").read_text())
    build(program, recipe, directory)
    command = recipe["record"]["command"]
    first, second = results(command, directory), results(command, directory)
    if first != second:
        raise StepFailed(f"two runs of {program} gave different results:\n{first[0]}{second[0]}")
    trace = directory / "trace.bin"
    tracing = [*ZLUDA, "trace", "--capture", recipe["record"]["capture"], "-o", str(trace), "--", *command]
    printed, data = results(tracing, directory)
    if data != first[1]:
        raise StepFailed(f"{program} gave other results while it was recorded:\n{printed}")
    proof = proved(trace)
    return {
        "proved": proof,
        "source": source_digest(program),
        "results": hashlib.blake2b(data, digest_size=16).hexdigest(),
        "trace_bytes": trace.stat().st_size,
    }


def proved(trace: Path) -> str:
    """What running the trace again on its GPU gave; StepFailed where that is not all as recorded or noise."""
    about = json.loads(run([*ZLUDA, "info", str(trace), "--json"], trace.parent))["meta"].get("proof")
    if not about or not about["done"]:
        raise StepFailed(f"{trace}: not proved: {about and about['reason']}")
    if about["first"] is not None:
        raise StepFailed(f"{trace}: not proved: {about['first']}")
    counts = ", ".join(f"{count} {verdict}" for verdict, count in about["launches"].items())
    return f"{counts} in {about['runs']} runs"


def replayed(directory: Path, device: str) -> tuple[str, str]:
    """Replay the trace; the verdict, and what was printed."""
    command = [*ZLUDA, "replay", str(directory / "trace.bin"), "--device", device, "--json"]
    try:
        text = run(command, directory)
    except StepFailed as failure:
        return "failed", str(failure)
    return json.loads(text)["verdict"], text


def host_facts() -> dict[str, str]:
    """The GPU, its driver, nvcc, and today's date."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader", "--id=0"]
    gpu, driver = (word.strip() for word in run(query, ROOT).strip().split(","))
    nvcc = (
        run(["nvcc", "--version"], ROOT).strip().splitlines()[-2].split("release")[-1].split(",")[0].strip()
    )
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    return {"gpu": gpu, "driver": driver, "nvcc": nvcc, "date": today}


def completed_recipe(program: str, recorded: dict[str, Any]) -> str:
    """The program's ``record.toml`` with its ``[recorded]`` table replaced."""
    head = (CORPUS / program / "record.toml").read_text().split("[recorded]")[0]
    return (
        head + "[recorded]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in recorded.items())
    )


def main() -> int:
    """Command line; 1 when any program failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("programs", nargs="*", metavar="PROGRAM")
    parser.add_argument("--out", type=Path, required=True, metavar="DIRECTORY")
    parser.add_argument("--replay-on", nargs="*", default=["cuda:0"], metavar="DEVICE")
    options = parser.parse_args()
    programs = options.programs or sorted(path.parent.name for path in CORPUS.glob("*/record.toml"))
    options.out.mkdir(parents=True, exist_ok=True)
    facts, failed = host_facts(), []
    work = Path(os.environ.get("TMPDIR", "/tmp")) / f"zluda-corpus-{os.getpid()}"
    with tarfile.open(options.out / "corpus.tar", "w") as archive:
        for program in programs:
            directory = work / program
            directory.mkdir(parents=True)
            try:
                recorded = {**facts, **record(program, directory)}
            except StepFailed as failure:
                failed.append(program)
                print(f"{program}: FAILED\n{failure}", flush=True)
                continue
            print(f"{program}: recorded, {recorded['trace_bytes']} bytes", flush=True)
            for device in options.replay_on:
                verdict, text = replayed(directory, device)
                recorded[f"replayed_on_{device.replace(':', '_')}"] = verdict
                if verdict != "identical":
                    failed.append(program)
                    print(f"{program} on {device}: FAILED\n{text}", flush=True)
            (directory / "record.toml").write_text(completed_recipe(program, recorded))
            for name in ("trace.bin", "record.toml"):
                archive.add(directory / name, f"{program}/{name}")
    total = sum(path.stat().st_size for path in work.glob("*/trace.bin"))
    done = len(programs) - len(set(failed))
    print(f"{done} of {len(programs)} programs recorded and replayed, {total} bytes of traces;", end=" ")
    print(f"failed: {', '.join(dict.fromkeys(failed)) or 'none'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
