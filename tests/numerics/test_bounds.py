"""Every approximate instruction, however it is computed, is as near to the exact value as its bound says.

Exact values are numpy's, in float64, which has 29 bits more than the results have.
"""

from __future__ import annotations

from collections.abc import Iterator

import approximate_cases as cases
import numpy as np
import pytest

from zluda.compiler.amd import approximate as amd
from zluda.compiler.cpu import approximate as cpu
from zluda.compiler.lower.nvidia import NVIDIA
from zluda.device.amd import AmdDevice
from zluda.device.api import Device
from zluda.device.cpu import CpuDevice
from zluda.numerics.bounds import BOUNDS, F64, Limit

SEED = 20261130
# What float64 cannot tell, in ULP of the result; rsqrt.approx.f64's own results are float64.
SLACK = {name: 0.6 if row.format == F64 else 1e-5 for name, row in BOUNDS.items()}


def check(device: Device, name: str, *, documented: bool) -> None:
    a, b = cases.arguments(name, SEED)
    result = cases.run(device, name, a, b)
    where = cases.outside(name, a, b, result, documented=documented, slack=SLACK[name])
    assert not len(where), cases.report(name, a, b, result, where, documented=documented)


@pytest.fixture(scope="module", params=["cpu", "gfx1030", "gfx1100", "gfx90a"])
def native(request: pytest.FixtureRequest) -> Iterator[Device]:
    name = request.param
    with Device(
        CpuDevice(numerics="native") if name == "cpu" else AmdDevice(name, numerics="native")
    ) as opened:
        yield opened


@pytest.mark.parametrize("name", BOUNDS)
def test_native_is_inside_what_ptx_documents(native: Device, name: str) -> None:
    check(native, name, documented=True)


@pytest.mark.parametrize("name", [name for name in BOUNDS if name.endswith("f16")])
def test_native_is_inside_for_every_16_bit_argument(native: Device, name: str) -> None:
    a = np.arange(1 << 16, dtype="<u2")
    result = cases.run(native, name, a, a)
    where = cases.outside(name, a, a, result, documented=True, slack=SLACK[name])
    assert not len(where), cases.report(name, a, a, result, where, documented=True)


@pytest.fixture(scope="module")
def nvidia() -> Iterator[Device]:
    with Device(CpuDevice()) as opened:
        yield opened


@pytest.mark.parametrize("name", BOUNDS)
def test_nvidia_is_inside_what_is_allowed(nvidia: Device, name: str) -> None:
    check(nvidia, name, documented=False)


def test_nvidia_passes_its_documented_bound_of_ex2(nvidia: Device) -> None:
    """So the table's measured column is needed, and the check above can fail."""
    with pytest.raises(AssertionError, match="outside"):
        a = np.linspace(-140, -126, cases.COUNT).astype("<f4").view("<u4")
        result = cases.run(nvidia, "ex2.approx.f32", a, a)
        where = cases.outside("ex2.approx.f32", a, a, result, documented=True)
        assert not len(where), cases.report("ex2.approx.f32", a, a, result, where, documented=True)


@pytest.fixture(scope="module")
def envelope() -> Iterator[Device]:
    with Device(CpuDevice(numerics="envelope")) as opened:
        yield opened


def perturb(device: Device, share: float, pattern: int = 0, seed: int = 0) -> None:
    inner = device._device
    assert isinstance(inner, CpuDevice)
    inner.perturb(share, pattern, seed)


@pytest.mark.parametrize("name", BOUNDS)
def test_moved_results_stay_inside_and_use_the_whole_bound(envelope: Device, name: str) -> None:
    for told in ((1.0, 0, 0), (1.0, 1, 0), (1.0, 0, 7)):
        perturb(envelope, *told)
        check(envelope, name, documented=False)
    perturb(envelope, 1.0)
    a, b = cases.arguments(name, SEED)
    want = cases.expected(name, a, b, documented=False)
    moved = cases.to_numbers(name, cases.run(envelope, name, a, b))
    with np.errstate(all="ignore"):
        usable = np.isfinite(moved) & np.isfinite(want.exact) & (np.abs(want.exact) > 1e-30)
        share_used = (np.abs(moved - want.exact)[usable] / want.width[usable]).max()
    assert share_used > 0.7


def test_without_a_shift_results_are_the_nearest_to_the_exact_ones(envelope: Device) -> None:
    perturb(envelope, 0.0)
    for name in ("rcp.approx.f32", "ex2.approx.f32", "lg2.approx.f32", "sin.approx.f32", "tanh.approx.f32"):
        a, b = cases.arguments(name, SEED)
        got = cases.to_numbers(name, cases.run(envelope, name, a, b))
        want = cases.expected(name, a, b, documented=False)
        near = np.isfinite(want.exact) & (np.abs(want.exact) < cases.largest(BOUNDS[name]))
        near &= np.abs(cases.to_numbers(name, a)) < 1e4
        error = np.abs(got[near] - want.exact[near]) / cases.spacing(BOUNDS[name], want.exact[near])
        assert error.max() <= 0.5 + 1e-4, name


def test_direction_is_a_function_of_argument_and_seed(envelope: Device) -> None:
    a, b = cases.arguments("rsqrt.approx.f32", SEED)
    results = []
    for seed in (1, 1, 2):
        perturb(envelope, 1.0, 0, seed)
        results.append(cases.run(envelope, "rsqrt.approx.f32", a, b))
    assert (results[0] == results[1]).all()
    assert (results[0] != results[2]).mean() > 0.2


def test_every_instruction_has_a_row_in_every_table() -> None:
    assert set(amd.NATIVE) == set(cpu.NATIVE) == set(NVIDIA) == set(BOUNDS)


def test_every_piece_has_a_bound() -> None:
    assert all(piece.allowed != Limit() for row in BOUNDS.values() for piece in row.pieces)


@pytest.mark.parametrize(
    "name, argument, upto",
    [("sin.approx.f32", 6.0, 6.28), ("sin.approx.f32", 7.0, 314.2), ("lg2.approx.f32", 0.5, 0.5)],
)
def test_piece_of_an_argument(name: str, argument: float, upto: float) -> None:
    assert BOUNDS[name].piece(argument).upto == pytest.approx(upto, abs=0.1)
