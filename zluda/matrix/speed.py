"""What became slower or faster between two runs, and the emulator's instruction counts.

Times of one kernel's launches, in replays that were measured for it, are compared by a rank test, which asks
nothing of how they are distributed. Only where the kernel's code changed: the same code on the same host is
as fast as it was, whatever the clock says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import select

from zluda.matrix.schema import cell, outcome, program, sample, slot
from zluda.records import dataclass

if TYPE_CHECKING:
    import pandas

    from zluda.matrix.store import Store

SAMPLES = 5
"""The fewest measurements on each side that are compared."""
EFFECT = 0.05
"""The least change of the median that is told, as a share."""
CHANCE = 0.01
"""How likely two sets of samples of the same times are at most to look so different (Mann-Whitney, two-sided;
five against five that do not overlap: 0.008).
"""


@dataclass(frozen=True, slots=True)
class SpeedChange:
    """A kernel whose time changed: medians in seconds, or instructions of emulated waves, which are exact."""

    program: str
    device: str
    numerics: str
    kernel: str
    what: str  # "seconds" or "instructions"
    before: float
    after: float
    chance: float  # 0 of what is exact
    samples: tuple[int, int]

    @property
    def ratio(self) -> float:
        """Above 1: slower than before."""
        return self.after / self.before

    def to_json(self) -> dict[str, Any]:
        """For ``--json`` and the site."""
        return {
            "program": self.program,
            "device": self.device,
            "numerics": self.numerics,
            "kernel": self.kernel,
            "what": self.what,
            "before": self.before,
            "after": self.after,
            "ratio": round(self.ratio, 4),
            "chance": round(self.chance, 5),
            "samples": list(self.samples),
        }


_KEY = ["program", "device", "numerics", "kernel"]


def speed_changes(store: Store, a: int, b: int) -> list[SpeedChange]:
    """Kernels of run ``b`` that became slower or faster than in run ``a``, the worst first.

    Samples are those of the outcomes that the two runs have; a verdict that was taken over brings its own
    along. Both must come from one host.
    """
    # What both runs have is the same code: most of it, on most nights.
    before, after = samples_of(store, a, but_not_of=b), samples_of(store, b, but_not_of=a)
    known = dict(iter(before.groupby(_KEY)))
    found = []
    for key, new in after.groupby(_KEY):
        if key in known:
            found += _changes(dict(zip(_KEY, map(str, key), strict=True)), known[key], new)
    return sorted(found, key=lambda change: -change.ratio)


def samples_of(store: Store, number: int, *, but_not_of: int | None = None) -> pandas.DataFrame:
    """The measurements that stand behind a run's cells; without those behind another's too."""
    other = select(cell.c.outcome).where(cell.c.run == but_not_of)
    return store.frame(
        select(
            program.c.name.label("program"),
            slot.c.device,
            slot.c.numerics,
            sample.c.kernel,
            sample.c.code,
            sample.c.host,
            sample.c.seconds,
            sample.c.instructions,
        )
        .join(outcome, sample.c.outcome == outcome.c.id)
        .join(slot, outcome.c.slot == slot.c.id)
        .join(program, slot.c.program == program.c.id)
        .join(cell, cell.c.outcome == outcome.c.id)
        .where(cell.c.run == number, cell.c.outcome.not_in(other))
    )


def _changes(where: dict[str, str], old: pandas.DataFrame, new: pandas.DataFrame) -> list[SpeedChange]:
    known = set(old["code"]) | set(new["code"])
    if "" in known or set(old["code"]) & set(new["code"]):
        return []  # the code is the same, or nothing tells
    found = []
    counts = old["instructions"].dropna(), new["instructions"].dropna()
    if len(counts[0]) and len(counts[1]):
        least = float(counts[0].median()), float(counts[1].median())
        if abs(least[1] / least[0] - 1) >= EFFECT:
            sizes = len(counts[0]), len(counts[1])
            found.append(_change(where, "instructions", least, 0.0, sizes))
    times = [side.loc[side["host"] == new["host"].iloc[0], "seconds"].dropna() for side in (old, new)]
    if min(map(len, times)) >= SAMPLES:
        chance = _chance(times[0].tolist(), times[1].tolist())
        medians = float(times[0].median()), float(times[1].median())
        if chance <= CHANCE and abs(medians[1] / medians[0] - 1) >= EFFECT:
            sizes = len(times[0]), len(times[1])
            found.append(_change(where, "seconds", medians, chance, sizes))
    return found


def _change(
    where: dict[str, str], what: str, medians: tuple[float, float], chance: float, sizes: tuple[int, int]
) -> SpeedChange:
    before, after = medians
    return SpeedChange(**where, what=what, before=before, after=after, chance=chance, samples=sizes)


def _chance(a: list[float], b: list[float]) -> float:
    from scipy.stats import mannwhitneyu

    return float(mannwhitneyu(a, b, alternative="two-sided").pvalue)
