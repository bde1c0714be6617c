"""Forty OpenCL kernels, compiled by clang for three targets (scripts/build_amd_kernels.sh), run right."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import amd_opencl_cases as cases
import numpy as np
import pytest
import zstandard

from zluda.device.amd.emulator.device import EmulatedCode, EmulatedDevice

DATA = Path(__file__).parent / "data"
TARGETS = ("gfx1030", "gfx1100", "gfx90a")


def read(file: str, target: str) -> bytes:
    return zstandard.decompress((DATA / f"{file}.{target}.co.zst").read_bytes())


@pytest.fixture(scope="module", params=TARGETS)
def loaded(request: pytest.FixtureRequest) -> Iterator[tuple[EmulatedDevice, dict[str, EmulatedCode]]]:
    device = EmulatedDevice(request.param)
    yield device, {f: device.load_code_object(read(f, request.param), file=f) for f in ("general", "idioms")}
    device.close()


@pytest.mark.parametrize("name", list(cases.CASES))
def test_kernel_computes_what_numpy_does(
    loaded: tuple[EmulatedDevice, dict[str, EmulatedCode]], name: str
) -> None:
    device, code = loaded
    file, case = cases.CASES[name]
    arguments, outcome = case(np.random.default_rng(1), device.target.wave_size)
    device.launch(
        code[file].kernel(name),
        cases.GRIDS.get(name, (cases.BLOCKS, 1, 1)),
        cases.BLOCK_SHAPES.get(name, (cases.BLOCK, 1, 1)),
        cases.pack(arguments),
        shared_bytes=cases.SHARED_BYTES.get(name, 0),
    )
    for got, expected, tolerance in outcome():
        if tolerance:
            np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance)
        else:
            np.testing.assert_array_equal(got, expected.astype(got.dtype))
