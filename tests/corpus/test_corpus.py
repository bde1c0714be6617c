"""Every trace of the corpus, recorded on an H200, holds on the CPU and on emulated AMD GPUs, by command."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

import zluda
from zluda.corpus import find_recipes, read_recipe
from zluda.diff.results import Verdict

pytestmark = pytest.mark.usefixtures("shared_cache")

CORPUS = Path(__file__).parents[2] / "corpus"
OURS = {
    "async_copy",
    "black_scholes",
    "cooperative",
    "half_precision",
    "histogram",
    "matmul",
    "nbody",
    "reduction",
    "saxpy",
}
OURS |= {"tensor_cores", "textures"}
PROGRAMS = sorted(OURS)
"""Those that are looked at most closely, on every device."""
MORE = sorted({path.parent.name for path in CORPUS.glob("*/trace.bin")} - OURS)
"""The rest: every day on the CPU, and a few on an emulated GPU."""
BY_DAY = ("graphs", "integers", "vision")


LONG = {"half_precision": "gfx1030", "tensor_cores": "gfx1100", "textures": "gfx1030"}
"""Programs whose machine code takes long to make ready for emulation, and where they are tried by day."""


def _marks(program: str, device: str) -> Any:
    if program not in LONG or device == "cpu":
        return ()
    return pytest.mark.slow if device == LONG[program] else pytest.mark.nightly


# What native numerics do, these show on one AMD target as on three: they compute with integers, or exactly.
ONE_NATIVE = {"async_copy": "gfx90a", "cooperative": "gfx1030"}


def _cases(*, native: bool) -> list[Any]:
    """Texture units are no approximate instructions: what native numerics do there, they do nightly.

    In NVIDIA's numerics the CPU has its own tests, which look closer; all programs are replayed there by
    command as well, by one.
    """

    def marks(program: str, device: str) -> Any:
        nightly = program == "textures" or (program == "half_precision" and device != "cpu")
        nightly = nightly or (device != "cpu" and device != ONE_NATIVE.get(program, device))
        return pytest.mark.nightly if native and nightly else _marks(program, device)

    return [
        pytest.param(program, device, marks=marks(program, device))
        for program in PROGRAMS
        for device in (*(["cpu"] if native else []), "gfx1030", "gfx1100", "gfx90a")
    ]


def _zluda(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "zluda", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def _recipe(program: str) -> dict[str, Any]:
    return tomllib.loads((CORPUS / program / "record.toml").read_text())


def _source_digest(program: str) -> str:
    files = (CORPUS / program / f"{program}.cu", CORPUS / "support.cuh")
    return hashlib.blake2b(b"".join(file.read_bytes() for file in files), digest_size=16).hexdigest()


def test_all_programs_are_there() -> None:
    recipes = find_recipes(CORPUS)
    assert len(recipes) >= 40 and {recipe.name for recipe in recipes} >= OURS
    assert {recipe.package for recipe in recipes} >= {"", "PyTorch", "Triton", "JAX", "CuPy"}
    assert [r.name for r in recipes if r.trace.exists() != r.in_repository] == []


@pytest.mark.parametrize(("program", "device"), _cases(native=False))
def test_trace_is_identical(program: str, device: str) -> None:
    trace = CORPUS / program / "trace.bin"
    done = _zluda("replay", trace, "--device", device, "--numerics", "nvidia", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(done.stdout)
    assert result["verdict"] == "identical"
    assert result["device"] == device and result["emulated"] == (device != "cpu")
    assert result["launches"] >= 3 and result["copies"] >= 1
    assert result["identical"] == result["launches"] + result["copies"]
    assert result["first_divergence"] is None


APPROXIMATE = {"black_scholes": 3, "half_precision": 1, "nbody": 10}
"""Programs with approximate instructions, and how many launches of theirs have any."""


@pytest.mark.parametrize(("program", "device"), _cases(native=True))
def test_trace_holds_in_native_numerics(program: str, device: str) -> None:
    """On AMD unasked; launches with approximate instructions differ, inside their envelope, and no others."""
    asked = ["--numerics", "native"] if device == "cpu" else []
    done = _zluda("replay", CORPUS / program / "trace.bin", "--device", device, *asked, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(done.stdout)
    assert result["numerics"] == "native"
    assert result["within"] == APPROXIMATE.get(program, 0)
    assert result["identical"] == result["launches"] + result["copies"] - result["within"]
    inside = [reason for reason in result["reasons"] if reason.startswith("inside the envelope of ")]
    assert len(inside) == len(result["reasons"])


@pytest.mark.parametrize("program", PROGRAMS)
def test_every_launch_is_identical_on_the_cpu_and_has_all_of_its_written_bytes_compared(program: str) -> None:
    result = zluda.replay(CORPUS / program / "trace.bin", device="cpu", numerics="nvidia")
    assert result.verdict is Verdict.IDENTICAL and result.first_divergence is None
    assert {one.verdict for one in result.results} == {Verdict.IDENTICAL}
    launches = [one for one in result.results if one.kind == "launch"]
    assert len(launches) >= 3 and len(launches) < len(result.results)
    assert all(sum(buffer.bytes_compared for buffer in one.buffers) > 0 for one in launches)
    assert {one.written_share for one in launches} == {1.0}


@pytest.mark.parametrize("program", PROGRAMS)
def test_record_says_how_it_was_made(program: str) -> None:
    recipe = _recipe(program)
    assert recipe["build"]["source"] == f"{program}.cu" and (CORPUS / program / f"{program}.cu").exists()
    ptx_only = {f"arch=compute_{arch},code=compute_{arch}" for arch in ("90", "90a")}
    assert ptx_only & set(recipe["build"]["flags"])
    assert recipe["record"]["capture"] == "outputs"
    recorded = recipe["recorded"]
    assert recorded["gpu"] == "NVIDIA H200"
    assert recorded["replayed_on_cuda_0"] == "identical"
    assert recorded["proved"].endswith("identical in 2 runs")
    assert recorded["trace_bytes"] == (CORPUS / program / "trace.bin").stat().st_size
    assert recorded["source"] == _source_digest(program), "record it again"
    assert recorded["driver"] and recorded["nvcc"] and recorded["date"] and recorded["results"]


def _identical_on(program: str, device: str) -> None:
    result = zluda.replay(CORPUS / program / "trace.bin", device=device, numerics="nvidia")
    assert result.verdict is Verdict.IDENTICAL, result.first_divergence
    launches = [one.verdict for one in result.results if one.kind == "launch"]
    proved = dict(reversed(one.split(" ", 1)) for one in _proof(program))
    assert launches.count(Verdict.IDENTICAL) >= int(proved["identical"]) > 0
    assert set(launches) <= {Verdict.IDENTICAL, Verdict.NOT_COMPARED, Verdict.NOT_REPLAYED}


def _proof(program: str) -> list[str]:
    """``["15 identical", "252 not-replayed"]``"""
    proved: str = _recipe(program)["recorded"]["proved"]
    return proved.removesuffix(" in 2 runs").split(", ")


@pytest.mark.parametrize("program", MORE)
def test_more_programs_are_identical_on_the_cpu(program: str) -> None:
    _identical_on(program, "cpu")


@pytest.mark.parametrize(
    ("program", "device"),
    [
        pytest.param(program, device, marks=pytest.mark.slow if by_day else pytest.mark.nightly)
        for program in MORE
        for device in ("gfx1030", "gfx1100", "gfx90a")
        for by_day in [program in BY_DAY and device == "gfx1030"]
    ],
)
def test_more_programs_are_identical_on_emulated_gpus(program: str, device: str) -> None:
    _identical_on(program, device)


@pytest.mark.parametrize("program", MORE)
def test_more_records_say_how_they_were_made(program: str) -> None:
    recipe = read_recipe(CORPUS / program)
    recorded = recipe.recorded
    assert recorded["gpu"] == "NVIDIA H200" and recorded["driver"] and recorded["date"]
    assert recorded["source"] == recipe.source_digest(), "record it again"
    assert recorded["trace_bytes"] == recipe.trace.stat().st_size
    assert not recipe.needs or recorded["versions"]


def test_black_scholes_is_built_without_contraction() -> None:
    assert "-fmad=false" in _recipe("black_scholes")["build"]["flags"]


def test_traces_are_small_together() -> None:
    sizes = {path.parent.name: path.stat().st_size for path in CORPUS.glob("*/trace.bin")}
    assert sum(sizes[program] for program in OURS) < 3_000_000 and sum(sizes.values()) < 10_000_000


@pytest.mark.slow
def test_one_command_replays_all_and_writes_one_page(tmp_path: Path) -> None:
    page = tmp_path / "index.html"
    traces = [CORPUS / program / "trace.bin" for program in PROGRAMS]
    done = _zluda("replay", *traces, "--device", "cpu", "--html", page)
    assert done.returncode == 0, done.stdout + done.stderr
    text = page.read_text()
    for program in PROGRAMS:
        assert program in text
    assert "http://" not in text.replace("http://www.w3.org", "") and "<script src" not in text
