"""What the driver makes of modules and texture objects, held against what was asked of it.

Every device runs a launch with the same driver's objects, so a fault there looks like one of what devices
share: the lowering. Here nothing is launched. A module is loaded, and a texture's descriptor made, as in a
replay, and the outcome is compared with the recorded bytes as the CUDA Driver API describes them, read by
code of its own: the image of a fatbin (the newest architecture not above the GPU's), variables (zero where
they have no value), and how a texture is sampled (``CUDA_TEXTURE_DESC``).
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator

from zluda.device.base import Device
from zluda.device.cpu import CpuDevice
from zluda.device.images import ptx_text
from zluda.driver.descriptors import decode_texture
from zluda.driver.translated.resources import sampled
from zluda.numerics.texture.layout import Descriptor, Flags, Format, Geometry, Kind, Level
from zluda.ptx import Module, parse_module
from zluda.ptx.containers import KIND_PTX, Container, entries_of, identify
from zluda.ptx.parse import decode
from zluda.tracefile import Call, Launch, Trace

_CC_MAJOR, _CC_MINOR = 75, 76  # CUdevice_attribute
_TEXTURE = struct.Struct("<3i i 3I 3f 4f")
"""``CUDA_TEXTURE_DESC``: addressMode[3], filterMode, flags, maxAnisotropy, mipmapFilterMode, mipmapLevelBias,
minMipmapLevelClamp, maxMipmapLevelClamp, borderColor[4]."""
_FLAGS = {"normalised coordinates": (0x02, Flags.NORMALIZED_COORDINATES), "sRGB": (0x10, Flags.SRGB)}
"""``CU_TRSF_NORMALIZED_COORDINATES`` and ``CU_TRSF_SRGB``."""

_ANY = Descriptor(Kind.TEXTURE, Geometry.D2, Format.FLOAT, 1, [Level(0, 4, 4, 1)])
"""What is sampled does not matter here."""


def unlike_asked(trace: Trace, launch: Launch) -> str:
    """The first object of a launch that is not as it was asked for, in words; empty where all are.

    Raises Error for a module that cannot be loaded, and for descriptors that are refused.
    """
    return next((one for one in _faults(trace, launch) if one), "")


def _faults(trace: Trace, launch: Launch) -> Iterator[str]:
    device = CpuDevice(threads=1)
    try:
        loaded = next((one for one in trace.module_list if one.id == launch.module), None)
        if loaded is not None and loaded.images:
            data = trace.image(loaded.images[0])
            text = ptx_text(data, device)
            if text is not None:
                yield image_fault(data, text, device)
                yield variables_fault(parse_module(text), device)
        for call in trace.iter_calls(0, launch.call):
            if call.function == "cuTexObjectCreate" and call.result == 0:
                yield texture_fault(call)
    finally:
        device.close()


def image_fault(data: bytes, taken: str, device: Device) -> str:
    """That the PTX ``taken`` from an image is not the newest that the GPU can be given; empty where it is."""
    if identify(data) not in (Container.FATBIN, Container.ELF):
        return ""
    capability = 10 * device.attribute(_CC_MAJOR) + device.attribute(_CC_MINOR)
    there = [e for e in entries_of(data) if e.kind == KIND_PTX and e.portable and e.arch <= capability]
    newest = max((one.arch for one in there), default=None)
    if newest is None or any(decode(one.payload()) == taken for one in there if one.arch == newest):
        return ""
    target = re.search(r"^\s*\.target\s+(\w+)", taken, re.MULTILINE)
    loaded = target[1] if target is not None else "no architecture"
    return f"of the images for {', '.join(f'sm_{one.arch}' for one in there)} that for {loaded} was loaded"


def variables_fault(module: Module, device: Device) -> str:
    """The first variable that does not hold its value, or zeros without one, when its module was loaded."""
    code = device.load(module)
    try:
        for variable in module.variables.values():
            if variable.space not in ("global", "const") or variable.relocations:
                continue
            address, size = code.global_variable(variable.name)
            wanted = (variable.initializer or b"") + bytes(size - len(variable.initializer or b""))
            held = bytes(device.read(address, size))
            if held != wanted:
                at = next(i for i, (x, y) in enumerate(zip(held, wanted, strict=True)) if x != y)
                values = f"{held[at]:#04x} when loaded, not {wanted[at]:#04x}"
                return f"variable {variable.name}+{at:#x} holds {values}"
    finally:
        code.unload()
    return ""


def texture_fault(call: Call) -> str:
    """In what a texture object is sampled otherwise than its recorded descriptor says, if in anything."""
    data = call.pointees.get("pTexDesc")
    if not isinstance(data, bytes) or len(data) < _TEXTURE.size:
        return ""
    made = sampled(_ANY, decode_texture(data))
    *modes, filter_mode, flags, anisotropy, mip_filter, bias, low, high, r, g, b, a = _TEXTURE.unpack_from(
        data
    )
    asked = {
        "address modes": (tuple(modes), tuple(map(int, made.address))),
        "filter": (filter_mode, int(made.filter)),
        "filter between levels": (mip_filter, int(made.mip_filter)),
        "anisotropy": (anisotropy, made.max_anisotropy),
        "levels": ((bias, low, high), (made.mip_bias, made.min_lod, made.max_lod)),
        "border colour": ((r, g, b, a), tuple(made.border)),
        **{name: (bool(flags & bit), bool(made.flags & flag)) for name, (bit, flag) in _FLAGS.items()},
    }
    for name, (wanted, got) in asked.items():
        if wanted != got:
            return f"the texture of #{call.sequence} has {name} {got}, not {wanted}"
    return ""
