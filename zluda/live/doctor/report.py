"""All checks, and which uses of this machine they leave."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from zluda.live.doctor import amd, host, nvidia
from zluda.live.doctor.check import Check
from zluda.live.doctor.machine import Machine
from zluda.records import dataclass

# Use → what it is to a person.
USES = {
    "cpu": "replay on the CPU",
    "gfx": "replay on emulated AMD GPUs",
    "hip": "replay on AMD GPUs",
    "cuda": "replay on NVIDIA GPUs",
    "trace": "record",
}


@dataclass(frozen=True, slots=True)
class Report:
    """What was found, in order."""

    checks: tuple[Check, ...]

    def against(self, use: str) -> tuple[Check, ...]:
        """What rules a use out."""
        return tuple(check for check in self.checks if use in check.needed_for and not check.holds)

    @property
    def fit(self) -> dict[str, bool]:
        """Use → whether this machine is fit for it."""
        return {use: not self.against(use) for use in USES}

    @property
    def exit_status(self) -> int:
        """0 where the CPU can replay, which every machine should; 2 else."""
        return 0 if self.fit["cpu"] else 2

    def lines(self) -> Iterator[str]:
        """For a person."""
        for check in self.checks:
            yield from check.lines()
        yield ""
        for use, meaning in USES.items():
            against = self.against(use)
            reasons = "; ".join(f"{check.name}: {check.found}" for check in against)
            yield f"{use}: {meaning}: " + (f"no ({reasons})" if against else "yes")

    def to_json(self) -> dict[str, Any]:
        """``{"fit": {use: bool}, "checks": [{name, state, found, fix, needed_for}]}``"""
        return {"fit": self.fit, "checks": [check.as_dict() for check in self.checks]}


def examine(machine: Machine | None = None) -> Report:
    """Look at this machine."""
    machine = machine or Machine()
    parts = (host.checks(machine), amd.checks(machine), nvidia.checks(machine))
    return Report(tuple(check for part in parts for check in part))
