"""Device names, and which options each device of this version has."""

from __future__ import annotations

from zluda.errors import DeviceError, UnsupportedError
from zluda.patterns import pattern

# Kind → the numerics it has, its default first. An NVIDIA GPU's own arithmetic is NVIDIA's.
NUMERICS: dict[str, tuple[str, ...]] = {
    "cpu": ("nvidia", "native"),
    "interpreter": ("nvidia",),
    "cuda": ("nvidia", "native"),
    "gfx": ("native", "nvidia"),
    "hip": ("native", "nvidia"),
    "nvptx": ("nvidia", "native"),
}
ENVELOPE = "envelope"
"""Numerics of the CPU device in a runner that draws envelopes (``zluda.replay.envelope``)."""
CHECKS: dict[str, tuple[str, ...]] = {
    "cpu": ("none", "memory"),
    "interpreter": ("none", "memory"),
    "gfx": ("none", "memory"),
    "cuda": ("none",),
    "hip": ("none",),
    "nvptx": ("none",),
}
"""Kind → which accesses it can test as they are made."""
CONTRACTS = ("auto", "on", "off")

_NAMES = pattern(r"(?P<kind>cpu|interpreter|(?P<gpu>cuda|hip|nvptx)(:(?P<ordinal>\d+))?|gfx[0-9a-f]+)")


def resolve(name: str) -> str:
    """The full name of a device: ``"auto"`` decided, ``"cuda"`` as ``"cuda:0"``.

    Raises DeviceError, naming the device, for one that this version does not have.
    """
    if name == "auto":
        from zluda.device.amd.hip.probe import gpu_answers

        return "hip:0" if gpu_answers() else "cpu"
    match = _NAMES.fullmatch(name)
    if match is None:
        raise DeviceError(
            name, "no such device", remedy="expected auto, cpu, interpreter, cuda:N, hip:N, nvptx:N or gfxNNN"
        )
    gpu = match["gpu"]
    full = f"{gpu}:{int(match['ordinal'] or 0)}" if gpu else name
    if kind(full) == "gfx":
        from zluda.compiler.amd.targets import target

        target(full)
    return full


def kind(name: str) -> str:
    """``"cpu"``, ``"cuda"``, ``"gfx"`` …: a full name without its number."""
    return "gfx" if name.startswith("gfx") else name.partition(":")[0]


def chosen_numerics(name: str, wanted: str | None) -> str:
    """The numerics of device ``name``: what is wanted, or its default."""
    return wanted or NUMERICS.get(kind(name), ("nvidia",))[0]


def check_options(name: str, *, numerics: str | None, check: str, contract: str, schedule: int = 0) -> None:
    """Raise UnsupportedError for an option's value that device ``name`` does not have in this version."""
    if schedule and kind(name) not in ("cpu", "gfx"):
        raise UnsupportedError(f"schedule={schedule}", f"device {name}; cpu and emulated AMD GPUs have it")
    if schedule < 0:
        raise UnsupportedError(f"schedule={schedule}", f"device {name}; expected 0 or more")
    wanted = {
        "numerics": (numerics, (None, *NUMERICS[kind(name)])),
        "check": (check, CHECKS[kind(name)]),
        "contract": (contract, CONTRACTS if kind(name) != "cuda" else CONTRACTS[:1]),
    }
    for option, (value, known) in wanted.items():
        if value not in known:
            expected = ", ".join(repr(k) for k in known if k is not None)
            raise UnsupportedError(f"{option}={value!r}", f"device {name}; expected {expected}")
