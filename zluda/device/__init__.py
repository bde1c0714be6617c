"""Devices: the things that run kernels.

Owns the device protocol (``base.py``), its implementations (``cpu/``, ``cuda/``), :func:`open_device` and the
arrays-and-kernels interface it gives (``api.py``). May import ``zluda.compiler`` and what stands below it.

A driver or ``api.Device`` gives a device addresses, bytes and typed PTX modules; nothing here knows traces.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from zluda.device.api import Device

__all__ = ["open_device", "resolve"]


def resolve(name: str) -> str:
    """The full name of the device that ``name`` means, ``"auto"`` decided. Raises DeviceError."""
    from zluda.device import names

    return names.resolve(name)


def open_device(
    name: str = "auto",
    *,
    numerics: str | None = None,
    check: str = "none",
    contract: str = "auto",
    isolate: bool = False,
    schedule: int = 0,
) -> Device:
    """Open a device by name: ``"cpu"``, ``"gfx1030"``, ``"hip:N"``, ``"cuda:N"``, ``"nvptx:N"``, ``"auto"``.

    ``numerics`` says how approximate instructions are computed: ``"nvidia"``, as NVIDIA's units to the bit
    (the default on the CPU), or ``"native"``, by the device's own means (on AMD GPUs). ``check`` other than
    ``"none"`` tests accesses as they are made: ``"memory"``, on ``cpu`` and emulated GPUs, that they lie in
    live allocations; one that does not is a LaunchError naming kernel, block, thread, address, size and the
    nearest allocation. ``contract`` says which products and sums that PTX leaves open are rounded once:
    ``"auto"``, those that NVIDIA's assembler fuses, ``"on"``, all that may be, ``"off"``, none. A value that
    this version does not have raises UnsupportedError naming it. ``isolate=True`` runs translated code in a
    runner process; without it, a kernel on ``cpu`` that reaches where there is no memory ends this one.
    ``schedule`` other than 0 varies the order in which the CPU or an emulated AMD GPU runs blocks and warps,
    the same way for the same number. Raises DeviceError for a device that is not there.
    """
    from zluda import config
    from zluda.device import api

    config.load()
    return api.open_device(
        name, numerics=numerics, check=check, contract=contract, isolate=isolate, schedule=schedule
    )
