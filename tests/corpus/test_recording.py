"""``zluda corpus record`` on a host whose compiler, driver and recorder are stand-ins of a few lines."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NVIDIA_SMI = "echo 'NVIDIA Test, 580.1'"
NVCC = """\
[ "$1" = --version ] && printf 'x\\nCuda compilation tools, release 13.0, V13.0.88\\nBuild cuda\\n' && exit
while [ "$1" != -o ]; do shift; done
printf '#!/bin/sh\\necho %s > $1\\necho right\\n' "$RESULT" > "$2"; chmod +x "$2"
"""
ZLUDA = """\
if [ "$1" = trace ]; then echo trace > "$5"; shift 6; exec "$@"; fi
if [ "$1" = strip ]; then cp "$2" "$5"; exit; fi
if [ "$1" = info ]; then printf '{"meta": {"proof": %s}}' "$PROOF"; exit; fi
case "$2" in *nbody*) echo '{"verdict": "differs"}'; exit 1;; esac
echo '{"verdict": "identical"}'
"""


PROVED = '{"done": true, "runs": 2, "launches": {"identical": 4}, "first": null}'


@pytest.fixture
def host(tmp_path: Path) -> Path:
    for name, text in {"nvidia-smi": NVIDIA_SMI, "nvcc": NVCC, "zluda": ZLUDA}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    return tmp_path


def _record(host: Path, result: str, *programs: str, proof: str = PROVED) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "PATH": f"{host}:{os.environ['PATH']}",
        "ZLUDA": str(host / "zluda"),
        "TMPDIR": str(host),
        "RESULT": result,
        "PROOF": proof,
    }
    command = [sys.executable, "-m", "zluda", "corpus", "record", *programs]
    command += ["--corpus", str(ROOT / "corpus"), "--out", str(host / "corpus.tar")]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)


def test_every_program_is_recorded_and_its_record_completed(host: Path) -> None:
    done = _record(host, "same", "saxpy", "black_scholes")
    assert done.returncode == 0, done.stdout + done.stderr
    with tarfile.open(host / "corpus.tar") as archive:
        names = archive.getnames()
        recipe = archive.extractfile("black_scholes/record.toml")
        assert recipe is not None
        recorded = tomllib.loads(recipe.read().decode())["recorded"]
    assert names == [f"{p}/{n}" for p in ("saxpy", "black_scholes") for n in ("trace.bin", "record.toml")]
    assert recorded["gpu"] == "NVIDIA Test" and recorded["nvcc"] == "13.0"
    assert recorded["replayed_on_cuda_0"] == "identical" and recorded["trace_bytes"] == 6
    assert len(recorded["source"]) == 32
    assert recorded["proved"] == "4 identical in 2 runs"


@pytest.mark.parametrize(
    "proof",
    [
        "null",
        '{"done": false, "reason": "no GPU"}',
        PROVED.replace("null", '{"call": 7, "kernel": "k", "verdict": "differs", "reason": ""}'),
    ],
)
def test_a_trace_that_does_not_prove_itself_fails(host: Path, proof: str) -> None:
    done = _record(host, "same", "saxpy", proof=proof)
    assert done.returncode == 1
    assert "trace.bin: not proved" in done.stderr


def test_a_replay_that_differs_fails_and_the_others_go_on(host: Path) -> None:
    done = _record(host, "same", "nbody", "saxpy")
    assert done.returncode == 1
    assert "nbody on cuda:0: not identical" in done.stderr and "saxpy: recorded" in done.stderr
    assert "1 of 2 programs recorded" in done.stderr
    with tarfile.open(host / "corpus.tar") as archive:
        recipe = archive.extractfile("nbody/record.toml")
        assert recipe is not None
        assert tomllib.loads(recipe.read().decode())["recorded"]["replayed_on_cuda_0"] == "differs"


def test_results_that_change_from_run_to_run_are_refused(host: Path) -> None:
    done = _record(host, "$$", "saxpy")  # the program writes its own process number
    assert done.returncode == 1
    assert "two runs of saxpy gave different results" in done.stderr
