"""Textures and surfaces give on each device what an H200 gave: every case whose form and place it was asked.

What is known not to be its every bit is listed in :data:`texture_cases.golden.KNOWN`.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
from texture_cases.golden import allowed, golden_cases, golden_results
from texture_cases.on_device import Runner
from texture_cases.on_model import run_on_model
from texture_cases.probe import kernel_text
from texture_cases.spec import Array, Case

from zluda.device.cpu import CpuDevice


def differing(got: Array, expected: Array) -> Array:
    """Which rows differ in a bit."""
    left, right = (np.ascontiguousarray(a).reshape(len(a), -1).view(np.uint8) for a in (got, expected))
    differs: Array = (left != right).any(axis=1)
    return differs


@functools.cache
def groups() -> dict[str, list[Case]]:
    """The cases by their kernel, whose first case gives it a name."""
    found: dict[str, list[Case]] = {}
    for case in golden_cases().values():
        found.setdefault(kernel_text(case), []).append(case)
    return {cases[0].name: cases for cases in found.values()}


QUICK = {
    "cpu": ("gather.r", "integer.linear.f32x1", "surface.load.2d.zero.-3"),
    "gfx1030": ("gather.r",),
}
SLOW = {
    "gfx1030": ("coord.2d.wrap", "mip.level.p", "surface.reduce.add.u32.clamp"),
    "gfx90a": ("coord.2d.wrap",),
}


def _marks(device: str, name: str) -> Any:
    if name in QUICK.get(device, ()):
        return ()
    return pytest.mark.slow if device == "cpu" or name in SLOW.get(device, ()) else pytest.mark.nightly


@functools.cache
def _runner(device: str) -> Runner:
    if device == "cpu":
        return Runner(CpuDevice())
    from zluda.device.amd.device import AmdDevice

    return Runner(AmdDevice(device))


@pytest.mark.parametrize(
    ("device", "name"),
    [
        pytest.param(device, name, marks=_marks(device, name), id=f"{device} {name}")
        for device in ("cpu", "gfx1030", "gfx90a")
        for name in groups()
    ],
)
def test_device_gives_what_an_h200_gave(device: str, name: str) -> None:
    results = golden_results()
    wrong = []
    for case in groups()[name]:
        for suffix, got in _runner(device).run(case).items():
            expected = (
                results[case.name + suffix][:, : got.shape[1]] if not suffix else results[case.name + suffix]
            )
            share = float(differing(got, expected).mean())
            if share > allowed(case.name):
                wrong.append(f"{case.name}{suffix}: {share:.1%} of rows")
    assert not wrong, wrong


def test_model_gives_what_an_h200_gave() -> None:
    tried, wrong = 0, []
    for name, case in golden_cases().items():
        got = run_on_model(case)
        if got is None:
            continue
        tried += 1
        share = float(differing(got, golden_results()[name][:, : got.shape[1]]).mean())
        if share > allowed(name):
            wrong.append(f"{name}: {share:.1%}")
    assert tried > 400
    assert not wrong, wrong
