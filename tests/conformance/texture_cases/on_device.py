"""Texture cases on a device of zluda's own: texels and descriptors in its memory, the kernel run there."""

from __future__ import annotations

from typing import Any

import numpy as np

from texture_cases.probe import kernel_text
from texture_cases.spec import (
    AS_INTEGER,
    FORMATS,
    NO_TRILINEAR,
    NORMALIZED,
    SEAMLESS,
    SRGB,
    Array,
    Case,
    Texture,
)
from zluda.device.base import Device
from zluda.device.textures import Textures
from zluda.numerics.texture.layout import (
    Address,
    Descriptor,
    Filter,
    Flags,
    Format,
    Geometry,
    Kind,
    Level,
    tight_levels,
)
from zluda.ptx import parse_module

HANDLE = 0x100005
PITCH = 512


def descriptor_of(texture: Texture, address: int) -> tuple[Descriptor, bytes]:
    """The descriptor of a texture whose texels are at ``address``, and the bytes to put there."""
    format, channels = Format(FORMATS[texture.format][0]), texture.channels
    width, height, depth = (max(n, 1) for n in texture.size)
    geometry = Geometry(sum(n > 0 for n in texture.size))
    layers = 1
    if texture.cube:
        geometry |= Geometry.CUBE
        layers = texture.slices // 6
    elif texture.slices:
        layers = texture.slices
    if texture.slices and (not texture.cube or texture.slices > 6):
        geometry |= Geometry.LAYERED
    texel = channels * format.bytes
    if texture.resource == "pitch":
        rows = [row.tobytes().ljust(PITCH, b"\xa5") for row in texture.texels()[0]]
        levels, data = [Level(address, PITCH, PITCH * height, width, height)], b"".join(rows)
    else:
        levels, _ = tight_levels(
            (width, height, depth), texel, levels=texture.levels, slices=texture.slices or 1, address=address
        )
        data = b"".join(texture.texels(v).tobytes() for v in range(texture.levels))
    if texture.resource == "linear":
        geometry |= Geometry.BUFFER
    return (
        Descriptor(
            *(Kind.SURFACE if texture.surface else Kind.TEXTURE, geometry, format, channels, levels),
            layers=layers,
            flags=_flags(texture),
            address=(Address(texture.address[0]), Address(texture.address[1]), Address(texture.address[2])),
            filter=Filter(texture.filter),
            mip_filter=Filter(texture.mip_filter),
            max_anisotropy=texture.anisotropy,
            mip_bias=texture.bias,
            min_lod=texture.lod[0],
            max_lod=texture.lod[1],
            border=texture.border,
        ),
        data,
    )


def _flags(texture: Texture) -> Flags:
    found = Flags(0)
    for bit, flag in (
        (NORMALIZED, Flags.NORMALIZED_COORDINATES),
        (SRGB, Flags.SRGB),
        (SEAMLESS, Flags.SEAMLESS_CUBE),
        (NO_TRILINEAR, Flags.NO_TRILINEAR_OPTIMIZATION),
    ):
        found |= flag if texture.flags & bit else Flags(0)
    whole = texture.flags & AS_INTEGER or texture.format in ("f16", "f32", "u32", "s32")
    return found if whole else found | Flags.READ_NORMALIZED


class Runner:
    """Runs cases on one device. Kernels of one form are compiled once."""

    def __init__(self, device: Device) -> None:
        self.device, self.textures = device, Textures(device)
        self.kernels: dict[str, Any] = {}

    def kernel(self, case: Case) -> Any:
        text = kernel_text(case)
        if text not in self.kernels:
            code = self.device.load(parse_module(text, file=case.name))
            root, _ = code.global_variable("__zluda_textures")
            self.device.write(root, self.textures.root.to_bytes(8, "little"))
            self.kernels[text] = code.kernel("probe")
        return self.kernels[text]

    def run(self, case: Case) -> dict[str, Array]:
        """The case's arrays as ``probe.run_case`` gives them."""
        device, n = self.device, len(case.words)
        kernel = self.kernel(case)
        _, data = descriptor_of(case.texture, 0)
        at = device.allocate(len(data) + 256)
        device.write(at, data)
        self.textures.set(HANDLE, descriptor_of(case.texture, at)[0])
        source, target = device.allocate(case.words.nbytes), device.allocate(20 * n)
        device.write(source, np.ascontiguousarray(case.words).tobytes())
        parameters = np.array([HANDLE, source, target, n], np.uint64).tobytes()[:28]
        device.launch(kernel, (-(-n // 256), 1, 1), (256, 1, 1), parameters)
        device.synchronize()
        out = np.frombuffer(device.read(target, 20 * n), np.uint32).reshape(n, 5)
        keep = [*range(case.results)] + ([4] if "%p" in case.form else [])
        found = {"": out[:, keep]}
        if case.texture.surface and not case.results:
            after = np.frombuffer(device.read(at, len(data)), case.texture.dtype)
            found[".after"] = after.reshape(case.texture.shape())
        for address in (at, source, target):
            device.free(address)
        return found
