"""The PTX of a module image that a device is to run."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from zluda.device.base import Device

_CC_MAJOR, _CC_MINOR = 75, 76  # CUdevice_attribute


def ptx_text(data: bytes, device: Device) -> str | None:
    """The PTX text in ``data`` (PTX, fatbin or ELF) that suits ``device``; None where there is no PTX at all.

    NVIDIA's rule first: the newest architecture not above the device's. Where all are above it, the oldest:
    translation does not depend on the architecture as machine code does, and an instruction that the device
    does not have is named when it is met.
    """
    from zluda.ptx.containers import best_ptx, ptx_from

    best = best_ptx(data, 10 * device.attribute(_CC_MAJOR) + device.attribute(_CC_MINOR))
    if best is None:
        best = min(ptx_from(data), key=lambda image: image.arch, default=None)
    return None if best is None else best.text
