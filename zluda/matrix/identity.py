"""Whether a verdict is known already: what decides it, as digests.

A verdict follows from the trace (the inputs of its launches), the device with its driver, the machine code
that is emitted for the launched kernels, and what runs and judges them. Where all four are as they were, so
is the verdict. Two of them are known before anything is compiled; where the compiler's sources are the same,
so is the third.
"""

from __future__ import annotations

import hashlib
import platform
import re
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import metadata
from pathlib import Path

from zluda.device import names
from zluda.errors import Error
from zluda.records import dataclass

RUNTIME = (
    "zluda.device",
    "zluda.diff",
    "zluda.driver",
    "zluda.library",
    "zluda.numerics",
    "zluda.replay",
    "zluda.runner",
    "zluda.tracefile",
)
"""Packages that run and judge: a change in them may change any verdict."""

MAKES_CODE = frozenset(
    f"zluda.compiler{name}"
    for name in (
        *("", ".amd", ".amd.report", ".amd.unit", ".analysis", ".analysis.varying", ".contract"),
        *(".contract.kinds", ".contract.rule", ".lower", ".lower.approximate", ".nvptx"),
        *(".nvptx.surroundings", ".nvptx.unit", ".ranges", ".services", ".unit"),
        *(".apart", ".cache", ".cache.key", ".cache.store", ".precompile.run", ".precompile.sources"),
    )
)
"""Modules of the compiler whose work is seen in the code they emit, or that keep it. All others that runtime
packages import are taken for a part of the runtime.
"""

_IMPORT = re.compile(r"^ *from (zluda\.compiler[\w.]*) import (\([^)]*\)|[^\n]*)", re.MULTILINE)
_SOURCE = Path(__file__).resolve().parents[2]
_NVIDIA = Path("/proc/driver/nvidia")


@dataclass(frozen=True, slots=True)
class Code:
    """What a device runs of a trace: a digest of all of it, and of each kernel's ("" where there is none)."""

    digest: str
    kernels: Mapping[str, str]


@cache
def runtime_version() -> str:
    """Digest of the sources of what runs and judges."""
    from zluda.compiler.cache.key import source_digest

    digest = hashlib.blake2b(source_digest(*RUNTIME).encode(), digest_size=16)
    for name in runtime_modules():
        digest.update(name.encode() + _file(name).read_bytes())
    return digest.hexdigest()


@cache
def runtime_modules() -> tuple[str, ...]:
    """The compiler's modules that runtime packages use while a program runs, by their import statements."""
    found: set[str] = set()
    for package in RUNTIME:
        for file in (_SOURCE / package.replace(".", "/")).rglob("*.py"):
            for module, names_of in _IMPORT.findall(file.read_text("utf-8")):
                found.add(module)
                found.update(f"{module}.{name}" for name in re.findall(r"\w+", names_of))
    return tuple(sorted(name for name in found - MAKES_CODE if _file(name).exists()))


def _file(module: str) -> Path:
    place = _SOURCE / module.replace(".", "/")
    return place / "__init__.py" if place.is_dir() else place.with_suffix(".py")


def environment(device: str) -> str:
    """What else a device's results may depend on: processor, driver, libraries.

    Raises :class:`Error` where that cannot be told; then no verdict of that device is taken over.
    """
    kind = names.kind(device)
    if kind in ("cpu", "gfx"):
        from zluda.compiler.cache.key import host_version, llvm_version

        parts = [host_version(), llvm_version()]
        return " ".join(parts + ([f"disassembler {_version('rocm-llvm-python')}"] if kind == "gfx" else []))
    if kind == "hip":
        from zluda.device.amd.hip.probe import probe

        answer = probe()
        gpu = next((gpu for gpu in answer.gpus if gpu.name == device), None)
        if gpu is None:
            raise Error(f"device {device}: does not answer")
        return f"{platform.release()} HIP {answer.version} {gpu.product} {gpu.target}"
    if kind in ("cuda", "nvptx"):
        told = [path.read_text(errors="replace") for path in sorted(_NVIDIA.glob("gpus/*/information"))]
        models = [line for text in told for line in text.splitlines() if line.startswith("Model")]
        version = _NVIDIA / "version"
        if models and version.exists():
            return " ".join([version.read_text().splitlines()[0], *models])
    raise Error(f"device {device}: nothing tells which driver it has")


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "none"


def code_of(trace: Path, device: str, numerics: str) -> Code:
    """Compile the launched kernels for ``device``, each in a process apart, and digest what comes out.

    A kernel that cannot be compiled counts by why. On ``cuda:N`` what runs are the modules as recorded. Goes
    through the kernel cache, so a replay after it compiles nothing. Raises :class:`Error` where there is no
    cache, and for devices whose code depends on a driver that is not asked here (``nvptx:N``).
    """
    kind = names.kind(device)
    if kind == "cuda":
        return Code(_digest(["recorded", trace.name]), {})
    from zluda.compiler.precompile.run import precompile
    from zluda.compiler.precompile.sources import sources

    found = list(sources(trace))
    modules = precompile(found, {_target(device): numerics}, jobs=1)
    kernels: dict[str, list[str]] = {}
    problems = []
    for module in modules:
        problems.append(module.problem)
        for kernel in module.kernels:
            told = f"{kernel.block} {kernel.cluster} {kernel.code or kernel.status + kernel.reason}"
            kernels.setdefault(kernel.kernel, []).append(told)
    each = {name: _digest(sorted(parts)) for name, parts in sorted(kernels.items())}
    return Code(_digest([*problems, *(f"{name} {code}" for name, code in each.items())]), each)


def _target(device: str) -> str:
    kind = names.kind(device)
    if kind in ("cpu", "gfx"):
        return device
    if kind == "hip":
        from zluda.device.amd.hip.probe import probe

        for gpu in probe().gpus:
            if gpu.name == device:
                return gpu.target
    raise Error(f"device {device}: its code is not told without a launch")


def _digest(parts: Iterable[str]) -> str:
    return hashlib.blake2b("\0".join(parts).encode(), digest_size=16).hexdigest()
