"""A broken lowering makes the corpus say so: the replay names a difference, in the kernel that uses it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from seeding import environment
from seeding.table import FAULTS

HERE = Path(__file__).parent
CORPUS = HERE.parents[1] / "corpus"

# fault → (program that must notice, words of which one is in the name of the first kernel that differs)
NOTICED = {
    "add_is_sub": ("black_scholes", ("price_options",)),
    "fma_rounds_twice": ("nbody", ("step",)),
    "fma_rounds_down": ("matmul", ("multiply", "update")),
    "shuffle_ignores_the_lane": ("reduction", ("reduce",)),
    "ballot_is_inverted": ("reduction", ("warp_scan",)),
    "atomic_add_is_or": ("histogram", ("count",)),
    "atomic_maximum_is_minimum": ("histogram", ("extremes",)),
    "square_root_is_off_by_one": ("black_scholes", ("price_options",)),
    "reciprocal_square_root_is_off_by_one": ("nbody", ("step",)),
    "terms_are_rounded": ("tensor_cores", ("wmma_f16",)),
    "metadata_is_of_the_next_chunk": ("tensor_cores", ("mma_sparse",)),
    "matrices_are_not_turned": ("tensor_cores", ("turn",)),
    "barrier_does_nothing": ("histogram", ("count", "extremes", "equalisation")),
}


# The same for constants of native numerics that are off by 1e-4: fault → (program, kernel).
NOTICED_BY_ENVELOPE = {
    "native_power_is_off": ("black_scholes", "price_options"),
    "native_logarithm_is_off": ("black_scholes", "sensitivities"),
    "native_root_is_off": ("nbody", "step"),
}


def _replay(program: str, fault: str, *options: str) -> tuple[int, dict[str, Any]]:
    command = [
        sys.executable,
        "-m",
        "zluda",
        "replay",
        str(CORPUS / program / "trace.bin"),
        "--json",
        *(options or ("--device", "cpu")),
    ]
    seeded = environment(FAULTS[fault])
    done = subprocess.run(command, capture_output=True, text=True, env=seeded, timeout=300, check=False)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


QUICK = ("shuffle_ignores_the_lane", "atomic_add_is_or")


@pytest.mark.parametrize(
    "mutation", [pytest.param(m, marks=() if m in QUICK else pytest.mark.slow) for m in NOTICED]
)
def test_broken_lowering_is_noticed(mutation: str) -> None:
    program, kernels = NOTICED[mutation]
    status, result = _replay(program, mutation)
    assert status == 1
    assert result["differs"] > 0
    first = result["first_divergence"]
    assert any(word in first["kernel"] for word in kernels), first


@pytest.mark.parametrize(
    "mutation, device",
    [
        ("native_power_is_off", "gfx1100"),
        pytest.param("native_power_is_off", "cpu", marks=pytest.mark.slow),
        pytest.param("native_logarithm_is_off", "gfx1030", marks=pytest.mark.slow),
        pytest.param("native_root_is_off", "gfx90a", marks=pytest.mark.slow),
    ],
)
def test_broken_native_lowering_is_outside_the_envelope(mutation: str, device: str) -> None:
    program, kernel = NOTICED_BY_ENVELOPE[mutation]
    status, result = _replay(program, mutation, "--device", device, "--numerics", "native")
    assert status == 1
    first = result["first_divergence"]
    assert kernel in first["kernel"] and first["verdict"] == "differs"
    assert first["reason"].startswith("outside the envelope of ")


def test_the_hook_alone_changes_nothing() -> None:
    status, result = _replay("saxpy", "nothing")
    assert (status, result["verdict"]) == (0, "identical")
