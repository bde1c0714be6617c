"""The corpus through hip-python and AMD's libamdhip64: what NVIDIA computed, on emulated GPUs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hip_standin import StandIn

pytestmark = pytest.mark.usefixtures("shared_cache")

CORPUS = Path(__file__).parents[3] / "corpus"
PROGRAMS = (
    *("black_scholes", "histogram", "matmul", "nbody", "reduction", "saxpy"),
    pytest.param("textures", marks=pytest.mark.nightly),
)


def replay(standin: StandIn, target: str, program: str, numerics: str) -> dict[str, Any]:
    trace = CORPUS / program / "trace.bin"
    arguments = ("replay", trace, "--device", "hip:0", "--numerics", numerics, "--json")
    done = standin.run(target, "-m", "zluda", *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("target", ["gfx1030", "gfx90a"])
def test_every_launch_is_identical(standin: StandIn, target: str, program: str) -> None:
    found = replay(standin, target, program, "nvidia")
    assert found["verdict"] == "identical"
    assert found["identical"] + found["not_compared"] == found["launches"] + found["copies"]
    assert found["identical"] >= 4
    assert (found["device"], found["emulated"], found["product"]) == ("hip:0", True, f"emulated {target}")
    # HIP 5 reserves no addresses: every allocation is elsewhere, and the result says so.
    assert found["relocated"] and all(one["recorded"] != one["replayed"] for one in found["relocated"])


def test_native_arithmetic_is_inside_the_envelope(standin: StandIn) -> None:
    found = replay(standin, "gfx1030", "black_scholes", "native")
    assert found["verdict"] == "within" and found["numerics"] == "native"


def test_the_terminal_says_that_the_gpu_is_emulated(standin: StandIn) -> None:
    done = standin.run("gfx90a", "-m", "zluda", "replay", CORPUS / "saxpy" / "trace.bin", "-d", "hip:0")
    assert done.returncode == 0, done.stdout + done.stderr
    headline, *details = done.stdout.splitlines()
    assert headline.endswith("identical on hip:0 (emulated gfx90a, native numerics)")
    assert len(details) == 1
    assert re.fullmatch(r"  2 allocations.* relocated; words that point into them were exchanged", details[0])
