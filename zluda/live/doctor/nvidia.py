"""NVIDIA GPUs: kernel driver and devices, as its files under ``/proc`` tell of them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from zluda.live.doctor.check import Check, State
from zluda.live.doctor.machine import Machine

_CUDA = ("cuda", "trace")
_VERSION = re.compile(r"\s(\d+\.\d+(\.\d+)?)\s")
_MODEL = re.compile(r"^Model:\s*(.+)$", re.MULTILINE)


def checks(machine: Machine) -> Iterator[Check]:
    """The driver, then each GPU."""
    version = machine.text(machine.path("proc/driver/nvidia/version"))
    if not version:
        yield Check("NVIDIA driver", State.ABSENT, "none (needed to record programs)", needed_for=_CUDA)
        return
    number = _VERSION.search(version)
    yield Check("NVIDIA driver", State.OK, number[1] if number else version.splitlines()[0], needed_for=_CUDA)
    if not machine.path("dev/nvidiactl").exists():
        fix = "sudo nvidia-modprobe; in a container, use the NVIDIA container toolkit (--gpus all)"
        yield Check("NVIDIA device files", State.FAULT, "no /dev/nvidiactl", fix, _CUDA)
    information = sorted(machine.path("proc/driver/nvidia/gpus").glob("*/information"))
    for ordinal, file in enumerate(information):
        model = _MODEL.search(machine.text(file))
        name = model[1].strip() if model else "unnamed"
        yield Check(f"cuda:{ordinal}", State.OK, f"{name} at {file.parent.name}", needed_for=_CUDA)
    if not information:
        fix = "see `nvidia-smi` and `dmesg`"
        yield Check("NVIDIA GPU", State.FAULT, "the driver has none", fix, _CUDA)
