"""Python, LLVM, the kernel cache, and the tools around them."""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Iterator

from zluda import config
from zluda.errors import Error
from zluda.live.doctor.check import Check, State
from zluda.live.doctor.machine import Machine

_OLDEST_PYTHON = (3, 11)
_OLDEST_LLVMLITE, _OLDEST_FRIDA = "0.50", "17.0"  # pyproject.toml asks for them
_MIB = 1 << 20


def checks(machine: Machine) -> Iterator[Check]:
    """Everything that is no GPU's."""
    yield _python()
    yield _confinement()
    yield _llvmlite(machine)
    yield _settings(machine)
    yield from _cache(machine)
    yield _disassembler()
    yield _frida(machine)
    yield _compiler(machine)


def _python() -> Check:
    version = platform.python_version()
    fit = sys.version_info >= _OLDEST_PYTHON
    wanted = ".".join(map(str, _OLDEST_PYTHON))
    state = State.OK if fit else State.FAULT
    return Check("Python", state, version, "" if fit else f"install Python {wanted} or newer", _ALL)


def _confinement() -> Check:
    from zluda.runner.confine import machine_supported

    where = f"{platform.system()} on {platform.machine()}"
    if machine_supported():
        return Check("confinement of translated code", State.OK, f"seccomp, {where}", needed_for=_REPLAYS)
    fix = "use Linux on x86-64 or aarch64"
    return Check("confinement of translated code", State.FAULT, f"none for {where}", fix, _REPLAYS)


def _llvmlite(machine: Machine) -> Check:
    version = machine.version_of("llvmlite")
    fix = f"pip install 'llvmlite>={_OLDEST_LLVMLITE}'"
    if not version:
        return Check("llvmlite", State.FAULT, "not installed", fix, _REPLAYS)
    try:
        import llvmlite.binding as llvm

        llvm_version = ".".join(map(str, llvm.llvm_version_info))
    except (ImportError, OSError) as error:
        return Check("llvmlite", State.FAULT, f"{version}, which does not load: {error}", fix, _REPLAYS)
    if _older(version, _OLDEST_LLVMLITE):
        return Check("llvmlite", State.FAULT, f"{version}, which is too old", fix, _REPLAYS)
    return Check("llvmlite", State.OK, f"{version} (LLVM {llvm_version})", needed_for=_REPLAYS)


def _settings(machine: Machine) -> Check:
    set_here = sorted(name for name in machine.environment if name.startswith("ZLUDA_"))
    try:
        config.load(machine.environment)
    except Error as error:
        return Check("settings", State.FAULT, str(error), "see `zluda doctor --env`", _ALL)
    return Check("settings", State.OK, ", ".join(set_here) or "all defaults", needed_for=_ALL)


def _cache(machine: Machine) -> Iterator[Check]:
    from zluda.compiler.cache import store

    try:
        settings = config.load(machine.environment)
    except Error:  # told by the settings' own check
        return
    if settings.cache_policy == "off":
        yield Check("kernel cache", State.WARNING, "off", "unset ZLUDA_CACHE_POLICY to keep compiled kernels")
        return
    try:
        place = store.directory(settings)
    except OSError as error:
        found = f"{error.strerror}: nothing is kept"
        yield Check("kernel cache", State.WARNING, found, "set HOME, or name a directory by ZLUDA_CACHE_DIR")
        return
    fix = f"make {place} a directory that only you can write to, or name another by ZLUDA_CACHE_DIR"
    if not os.path.lexists(place):  # opening it would make it
        above = next(parent for parent in place.parents if os.path.lexists(parent))
        if above.is_dir() and os.access(above, os.W_OK | os.X_OK):
            yield Check("kernel cache", State.OK, f"{place}: not made yet")
        elif settings.cache_dir:
            yield Check("kernel cache", State.FAULT, f"{place} cannot be made", fix, _REPLAYS)
        else:
            yield Check("kernel cache", State.WARNING, f"{place} cannot be made: nothing is kept", fix)
        return
    try:
        opened = store.open_configured(settings)
    except Error as error:
        yield Check("kernel cache", State.FAULT, str(error), fix, _REPLAYS)
        return
    if opened is None or not os.access(place, os.W_OK):
        yield Check("kernel cache", State.WARNING, f"{place} cannot be written: nothing is kept", fix)
        return
    entries = list(opened.entries())
    size = sum(entry.size for entry in entries) / _MIB
    held = f"{place}: {len(entries)} entries, {size:.1f} of {opened.limit // _MIB} MiB"
    yield Check("kernel cache", State.OK, held)


def _disassembler() -> Check:
    from zluda.compiler.amd import disassembler
    from zluda.compiler.amd.targets import target, target_names
    from zluda.errors import DeviceError

    libraries: dict[str, list[str]] = {}
    lacking = []
    for name in target_names():
        try:
            libraries.setdefault(disassembler.library_for(target(name))[1], []).append(name)
        except DeviceError:
            lacking.append(name)
    name = "LLVM disassembler"
    found = "; ".join(f"{path} ({names[0]} to {names[-1]})" for path, names in libraries.items())
    if not libraries:
        return Check(name, State.ABSENT, "none for AMD GPUs", disassembler.REMEDY, ("gfx",))
    if lacking:
        return Check(name, State.WARNING, f"{found}; none for {', '.join(lacking)}", disassembler.REMEDY)
    return Check(name, State.OK, found, needed_for=("gfx",))


def _frida(machine: Machine) -> Check:
    version = machine.version_of("frida")
    fix = "pip install 'zluda[trace]'"
    if not version:
        return Check("frida", State.ABSENT, "not installed", fix, ("trace",))
    if _older(version, _OLDEST_FRIDA):
        return Check("frida", State.FAULT, f"{version}, which is too old", fix, ("trace",))
    return Check("frida", State.OK, version, needed_for=("trace",))


def _compiler(machine: Machine) -> Check:
    found = next((path for name in ("cc", "gcc", "clang") if (path := machine.which(name))), None)
    if found:
        return Check("C compiler", State.OK, found)
    fix = "install gcc or clang (only the tests need one)"
    return Check("C compiler", State.ABSENT, "none", fix)


def _older(version: str, oldest: str) -> bool:
    """Whether a version's first two numbers are lower; not where it has none."""
    found, least = (re.match(r"(\d+)\.(\d+)", text) for text in (version, oldest))
    if found is None or least is None:
        return False
    return tuple(map(int, found.groups())) < tuple(map(int, least.groups()))


_REPLAYS = ("cpu", "gfx", "hip")
_ALL = ("cpu", "gfx", "hip", "cuda", "trace")
