"""The native driver's arrays and objects over the stand-in driver, whose C structures are its own."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from recorded_scenes import StandIn

from zluda.device.cuda.libcuda import LibCuda
from zluda.driver import descriptors
from zluda.driver.native import NativeDriver
from zluda.driver.table import driver_api

sys.path.insert(0, str(Path(__file__).parents[1] / "driver"))

import gpu_smoke


@pytest.fixture
def driver(standin: StandIn, monkeypatch: pytest.MonkeyPatch) -> NativeDriver:
    library = LibCuda(standin.driver)
    monkeypatch.setattr("zluda.device.cuda.libcuda.load", lambda: library)
    driver = NativeDriver(0)
    driver.cuInit()
    driver.cuCtxCreate(0, 0)
    monkeypatch.setattr(gpu_smoke, "context", lambda driver: 0)
    return driver


def test_arrays_of_every_kind_by_ranges_of_their_linearised_contents(driver: NativeDriver) -> None:
    assert gpu_smoke.arrays(driver) == "8 kinds of arrays"


def test_descriptors_and_copies_go_through_the_librarys_structures(driver: NativeDriver) -> None:
    assert gpu_smoke.objects(driver).startswith("handles 0x1, 0x2, 0x3, 0x4, 0x5;")


def test_structures_have_the_sizes_and_places_that_cudas_headers_give() -> None:
    layouts = driver_api()["layouts"]
    end = descriptors.CopyEnd(1, 2, 3, 4, 5, 6, 7, 8, 9)
    copy = descriptors.Copy(end, end._replace(x=10), 11, 12, 13)
    places = {"srcY": 2, "srcZ": 3, "srcMemoryType": 4, "srcHost": 5, "srcDevice": 6, "srcArray": 7}
    places |= {"srcPitch": 8, "srcHeight": 9, "dstXInBytes": 10, "WidthInBytes": 11, "Depth": 13}
    _check(descriptors.encode_copy(copy), layouts["CUDA_MEMCPY3D"], places)
    flat = {name: value for name, value in places.items() if name in layouts["CUDA_MEMCPY2D"]["fields"]}
    assert len(flat) == 8
    _check(descriptors.encode_copy_2d(copy), layouts["CUDA_MEMCPY2D"], flat)
    assert descriptors.decode_copy(descriptors.encode_copy(copy)) == copy
    pitched = descriptors.Resource(3, 21, 22, 23, 0, 24, 25, 26)
    fields = {"resType": 3, "res.pitch2D.devPtr": 21, "res.pitch2D.format": 22, "res.pitch2D.numChannels": 23}
    fields |= {"res.pitch2D.width": 24, "res.pitch2D.height": 25, "res.pitch2D.pitchInBytes": 26}
    _check(descriptors.encode_resource(pitched), layouts["CUDA_RESOURCE_DESC"], fields)
    linear = descriptors.Resource(2, 31, 32, 33, 34)
    fields = {"res.linear.devPtr": 31, "res.linear.format": 32, "res.linear.sizeInBytes": 34}
    _check(descriptors.encode_resource(linear), layouts["CUDA_RESOURCE_DESC"], fields)
    assert descriptors.decode_resource(descriptors.encode_resource(linear)) == linear
    texture = descriptors.Texture((1, 2, 3), 4, 5, 6, 7)
    fields = {"filterMode": 4, "flags": 5, "maxAnisotropy": 6, "mipmapFilterMode": 7}
    _check(descriptors.encode_texture(texture), layouts["CUDA_TEXTURE_DESC"], fields)
    view = descriptors.View(1, 2, 3, 4, 5, 6, 7, 8)
    _check(
        descriptors.encode_view(view),
        layouts["CUDA_RESOURCE_VIEW_DESC"],
        dict(zip(layouts["CUDA_RESOURCE_VIEW_DESC"]["fields"], range(1, 9), strict=True)),
    )
    assert descriptors.decode_view(descriptors.encode_view(view)) == view
    shape = descriptors.ArrayShape(1, 2, 3, 4, 5, 6)
    names = ("Width", "Height", "Depth", "Format", "NumChannels", "Flags")
    _check(
        descriptors.encode_array_3d(shape),
        layouts["CUDA_ARRAY3D_DESCRIPTOR"],
        dict(zip(names, range(1, 7), strict=True)),
    )


def _check(data: bytes, layout: dict[str, object], values: dict[str, int]) -> None:
    assert len(data) == layout["size"]
    fields = layout["fields"]
    assert isinstance(fields, dict)
    for name, value in values.items():
        offset, size = fields[name]
        assert int.from_bytes(data[offset : offset + size], "little") == value, name
