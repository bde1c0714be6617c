"""Which layer is at fault where a launch differs: what ``zluda isolate`` and ``replay --blame`` answer."""

from __future__ import annotations

from enum import Enum, StrEnum
from typing import Any

from zluda.records import dataclass


class Layer(Enum):
    """Where a fault lies; the value is its name in text and JSON."""

    meaning: str

    def __new__(cls, name: str, meaning: str) -> Layer:
        member = object.__new__(cls)
        member._value_ = name
        member.meaning = meaning
        return member

    RECORD = "record", "the trace is not what the GPU computes from these inputs"
    LOWERING = "lowering", "the translation of PTX to LLVM IR"
    CODE_GENERATION = "code generation", "from LLVM IR to machine code"
    RUNTIME = "runtime", "what surrounds kernels: driver calls, memory, order, copies"
    HARDWARE = "hardware unit", "what executes an instruction: the GPU's unit, or the emulator's model of it"
    INPUTS = "inputs", "an earlier launch: this one is right on what is on record"
    NONE = "none", "nothing: it holds"
    UNKNOWN = "cannot tell", "more is needed to tell"

    def __str__(self) -> str:
        return str(self.value)

    @property
    def named(self) -> bool:
        """Whether it is a layer that can be mended."""
        return self not in (Layer.INPUTS, Layer.NONE, Layer.UNKNOWN)


class Sure(StrEnum):
    """How far an answer goes."""

    CERTAIN = "certain"  # nothing else explains all that was seen
    LIKELY = "likely"  # the reason says what else would


ABSENT = "absent"
"""The outcome of a run on a device that is not at hand."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """One run of the launch: ``device`` with ``how``, its ``outcome`` and what was seen.

    Outcomes are ``holds``, ``fails``, ``untold`` and :data:`ABSENT`. ``numerics`` is empty where it was no
    run on a device.
    """

    probe: str
    device: str
    how: str
    outcome: str
    seen: str
    numerics: str = ""

    def to_json(self) -> dict[str, str]:
        return {
            "probe": self.probe,
            "device": self.device,
            "numerics": self.numerics,
            "how": self.how,
            "outcome": self.outcome,
            "seen": self.seen,
        }


@dataclass(frozen=True, slots=True)
class Blame:
    """The layer that is at fault for one launch or copy: why, in words, and what would tell more."""

    call: int
    kernel: str
    layer: Layer
    sure: Sure
    reason: str
    needs: str = ""
    evidence: tuple[Evidence, ...] = ()

    def __str__(self) -> str:
        if self.layer is Layer.UNKNOWN:
            return f"cannot tell: {self.reason}"
        likely = ", likely" if self.layer.named and self.sure is Sure.LIKELY else ""
        return f"{self.layer}{likely}: {self.reason}"

    def to_json(self, *, evidence: bool = True) -> dict[str, Any]:
        """``evidence``: with all runs."""
        told = {
            "call": self.call,
            "kernel": self.kernel,
            "layer": self.layer.value,
            "sure": self.sure.value,
            "reason": self.reason,
            "needs": self.needs,
        }
        return {**told, "evidence": [one.to_json() for one in self.evidence]} if evidence else told
