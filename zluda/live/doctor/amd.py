"""AMD GPUs: kernel driver, device files and who may use them, HIP runtime, hip-python."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from zluda.device.amd.hip.probe import Found
from zluda.device.amd.hip.runtime import NO_BINDING, NO_RUNTIME
from zluda.live.doctor.check import Check, State
from zluda.live.doctor.machine import Machine

_VENDOR, _DISPLAY, _ACCELERATOR = "0x1002", "0x03", "0x12"  # PCI vendor of AMD; PCI base classes
_HIP = ("hip",)
_BUILT_FOR = 6  # the first HIP that hip-python was made for
_GROUPS = ("video", "render")


def checks(machine: Machine) -> Iterator[Check]:
    """From the hardware up to the runtime; what is above something that is not there is not looked at."""
    cards = list(_cards(machine))
    kfd = machine.path("dev/kfd")
    wsl = machine.path("dev/dxg").exists()
    runtime = list(_runtime(machine, expected=bool(cards) or wsl))
    answers = any(check.name.startswith("hip:") and check.holds for check in runtime)
    yield _hardware(cards, wsl=wsl, needed_for=() if answers else _HIP)
    if cards and not wsl:
        yield _driver(machine)
    if kfd.exists():
        yield from _files(machine, [kfd, *sorted(machine.path("dev/dri").glob("renderD*"))])
    yield from runtime


def _cards(machine: Machine) -> Iterator[str]:
    """PCI addresses of AMD's GPUs."""
    for device in sorted(machine.path("sys/bus/pci/devices").glob("*")):
        kind = machine.text(device / "class")
        if machine.text(device / "vendor") == _VENDOR and kind.startswith((_DISPLAY, _ACCELERATOR)):
            yield device.name


def _hardware(cards: list[str], *, wsl: bool, needed_for: tuple[str, ...]) -> Check:
    """``needed_for`` is nothing where a device answers that is on no bus (WSL's, or an emulated one)."""
    if wsl:
        return Check("AMD GPU", State.OK, "by WSL (/dev/dxg)")
    if not cards:
        return Check("AMD GPU", State.ABSENT, "none on the PCI bus", needed_for=needed_for)
    return Check("AMD GPU", State.OK, f"on the PCI bus at {', '.join(cards)}")


def _driver(machine: Machine) -> Check:
    if not machine.path("sys/module/amdgpu").exists():
        fix = "sudo modprobe amdgpu; where there is no such module, install amdgpu-dkms from ROCm"
        return Check("amdgpu kernel driver", State.FAULT, "not loaded", fix, _HIP)
    if not machine.path("dev/kfd").exists():
        fix = "use a kernel with CONFIG_HSA_AMD; in a container, pass --device=/dev/kfd --device=/dev/dri"
        return Check("amdgpu kernel driver", State.FAULT, "loaded, but there is no /dev/kfd", fix, _HIP)
    version = machine.text(machine.path("sys/module/amdgpu/version"))
    return Check("amdgpu kernel driver", State.OK, version or "the kernel's own", needed_for=_HIP)


def _files(machine: Machine, files: list[Path]) -> Iterator[Check]:
    name = "device files"
    if len(files) == 1:
        fix = "in a container, pass --device=/dev/dri; else see `dmesg` for why amdgpu made none"
        yield Check(name, State.FAULT, "/dev/kfd, but no /dev/dri/renderD*", fix, _HIP)
    shut = [path for path in files if not machine.usable(path)]
    shown = ", ".join("/" + str(path.relative_to(machine.root)) for path in shut or files)
    if shut:
        owners = {machine.group_of(path) for path in shut} & set(_GROUPS)
        missing = sorted((owners or set(_GROUPS)) - machine.groups)
        yield Check(name, State.FAULT, f"{shown}: no permission", _permission(machine, missing), _HIP)
        return
    yield Check(name, State.OK, shown, needed_for=_HIP)
    lacking = [group for group in _GROUPS if group not in machine.groups]
    if lacking and machine.user != "root":
        found = f"{machine.user} is not in {' and '.join(lacking)}, and can use the files all the same"
        yield Check("groups", State.WARNING, found, _permission(machine, lacking))
    else:
        yield Check("groups", State.OK, ", ".join(sorted(machine.groups & set(_GROUPS))) or machine.user)


def _permission(machine: Machine, groups: list[str]) -> str:
    if not groups:
        return "run where the files are writable (they belong to groups that this user is in already)"
    return f"sudo usermod -a -G {','.join(groups)} {machine.user}, then log in again"


def _runtime(machine: Machine, *, expected: bool) -> Iterator[Check]:
    binding = machine.version_of("hip-python")
    missing = State.FAULT if expected else State.ABSENT
    if not binding:
        yield Check("hip-python", missing, "not installed", NO_BINDING, _HIP)
        return
    yield Check("hip-python", State.OK, binding, needed_for=_HIP)
    found = machine.hip()
    if not found.version:
        yield Check("HIP runtime", missing, found.error or "not found", NO_RUNTIME, _HIP)
        return
    yield _versions(binding, found)
    for gpu in found.gpus:
        yield Check(gpu.name, State.OK, f"{gpu.product} ({gpu.target})", needed_for=_HIP)
    for name, why in found.errors.items():
        yield Check(name, State.FAULT, why, "see docs/amd.md for the targets there are", _HIP)
    if not found.gpus and not found.errors:
        fix = "see the faults above; HIP_VISIBLE_DEVICES and ROCR_VISIBLE_DEVICES hide devices"
        yield Check("HIP devices", missing, found.error or "none", fix if expected else "", _HIP)


def _versions(binding: str, found: Found) -> Check:
    """A binding calls what its own version has; a runtime of another may lack some of it."""
    ours, theirs = binding.split(".")[0], found.version.split(".")[0]
    if ours == theirs:
        return Check("HIP runtime", State.OK, found.version, needed_for=_HIP)
    text = f"{found.version}; hip-python {binding} is made for HIP {ours}: entries that are missing are named"
    old = int(theirs) < _BUILT_FOR
    fix = f"install HIP {_BUILT_FOR} or later" if old else f"pip install 'hip-python=={theirs}.*'"
    return Check("HIP runtime", State.WARNING, text, fix, _HIP)
