"""What running a trace again on the GPU that recorded it gave: the object that `meta` has under ``proof``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, field
from typing import Any

from zluda.diff.results import CountsAs, Verdict
from zluda.errors import TraceError
from zluda.records import dataclass

META = "proof"
"""The key in `meta`."""


@dataclass(frozen=True, slots=True)
class First:
    """The first launch or copy that speaks against a trace; where none does, the first that cannot tell."""

    call: int
    kernel: str
    verdict: str
    reason: str


@dataclass(frozen=True, slots=True)
class Proof:
    """``done`` false: it was not made, for a ``reason``. Else ``launches`` and ``copies`` count verdicts by
    their names, each launch and copy by the worst of its ``runs``; ``noisy`` are kernels that vary (the first
    few).
    """

    done: bool
    reason: str = ""
    device: str = ""
    driver_version: int = 0
    runs: int = 0
    seconds: float = 0.0
    launches: Mapping[str, int] = field(default_factory=dict)
    copies: Mapping[str, int] = field(default_factory=dict)
    noisy: tuple[str, ...] = ()
    first: First | None = None

    @property
    def holds(self) -> bool:
        """Whether it was made, something was compared, and nothing speaks against the trace."""
        return self.done and CountsAs.HOLDS in self._counts and not self.fails

    @property
    def fails(self) -> bool:
        """Whether a launch or copy came out otherwise, and nothing excuses it."""
        return CountsAs.FAILS in self._counts

    @property
    def _counts(self) -> set[CountsAs]:
        return {counts_as(name) for name in (*self.launches, *self.copies)}

    def to_json(self) -> dict[str, Any]:
        """For `meta`."""
        return asdict(self) if self.done else {"done": False, "reason": self.reason}

    @classmethod
    def of(cls, meta: Mapping[str, Any], file: str) -> Proof | None:
        """What a trace's `meta` says; None where it says nothing. Raises TraceError where it is damaged."""
        value = meta.get(META)
        if value is None:
            return None
        try:
            return cls._parsed(value)
        except (TypeError, KeyError, ValueError, AttributeError) as error:
            raise TraceError(f"damaged: the proof in meta cannot be read ({error!r})", file=file) from error

    @classmethod
    def _parsed(cls, value: Any) -> Proof:
        if value["done"] is not True:
            return cls(False, str(value["reason"]))
        first = value["first"]
        return cls(
            done=True,
            device=str(value["device"]),
            driver_version=int(value["driver_version"]),
            runs=int(value["runs"]),
            seconds=float(value["seconds"]),
            launches={str(name): int(count) for name, count in value["launches"].items()},
            copies={str(name): int(count) for name, count in value["copies"].items()},
            noisy=tuple(map(str, value["noisy"])),
            first=None
            if first is None
            else First(int(first["call"]), str(first["kernel"]), str(first["verdict"]), str(first["reason"])),
        )


_COUNTS_AS = {str(verdict.value): verdict.counts_as for verdict in Verdict}


def counts_as(verdict: str) -> CountsAs:
    """What a verdict of this name counts as; of one that is not known here, nothing can be told."""
    return _COUNTS_AS.get(verdict, CountsAs.CANNOT_TELL)
