"""NVIDIA's architectures as targets: names, and the PTX that LLVM is to write for them."""

from __future__ import annotations

import re

from zluda.errors import DeviceError
from zluda.records import dataclass

_NAME = re.compile(r"sm_(\d+)([af]?)")

LEAST_PTX: dict[int, int] = {
    70: 60,
    72: 61,
    75: 63,
    80: 70,
    86: 71,
    87: 74,
    89: 78,
    90: 80,
    100: 86,
    101: 86,
    103: 88,
    120: 87,
    121: 88,
}
"""Architecture → the first version of PTX that has it with all of its forms (PTX ISA, "Release Notes")."""

_FAMILY_PTX = 88
"""The first version of PTX that has ``sm_100f`` and its like (PTX ISA, ".target")."""

_FIRST_WITH: dict[str, int] = {"": 0, "a": 90, "f": 100}
"""Suffix → the first architecture that has it."""

_VERSIONS: tuple[int, ...] = (60, 61, 62, 63, 64, 65, *range(70, 79), *range(80, 89), 90)
"""What LLVM 22 knows."""


@dataclass(frozen=True, slots=True)
class Target:
    """``sm_90``: the architecture's number, and the letter of the set of features that only it has."""

    architecture: int
    suffix: str = ""

    @property
    def name(self) -> str:
        return f"sm_{self.architecture}{self.suffix}"

    def ptx(self, wanted: tuple[int, int]) -> int:
        """The version to write for a module of version ``wanted``: no newer than need be, so that the driver
        that took the module takes this too."""
        family = _FAMILY_PTX if self.suffix == "f" else 0
        least = max(LEAST_PTX[self.architecture], family, 10 * wanted[0] + wanted[1])
        for version in _VERSIONS:
            if version >= least:
                return version
        return _VERSIONS[-1]


def is_target(name: str) -> bool:
    """Whether a target's name is of this kind."""
    return name.startswith("sm_")


def target(name: str) -> Target:
    """The target so named. Raises DeviceError for one that is not in the table."""
    match = _NAME.fullmatch(name)
    if match is None or int(match[1]) not in LEAST_PTX or int(match[1]) < _FIRST_WITH[match[2]]:
        known = ", ".join(f"sm_{number}" for number in LEAST_PTX)
        raise DeviceError(name, "no such NVIDIA target", remedy=f"expected one of {known}, or sm_90a")
    return Target(int(match[1]), match[2])
