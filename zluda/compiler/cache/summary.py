"""What the kernel cache holds, for people and scripts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from zluda import config
from zluda.compiler.cache.store import COMPILED, MIB, Store, unpack
from zluda.records import dataclass


@dataclass(frozen=True, slots=True)
class Summary:
    """Sizes in bytes. ``targets`` counts this user's own entries by target; ``confined`` those of runners."""

    directory: str
    policy: str
    limit: int
    entries: int
    size: int
    targets: dict[str, int]
    confined: int
    damaged: int

    def as_dict(self) -> dict[str, Any]:
        """For ``--json``."""
        return {name: getattr(self, name) for name in self.__slots__}

    def lines(self) -> Iterator[str]:
        """For a person to read."""
        yield f"directory  {self.directory}"
        yield f"policy     {self.policy}"
        yield f"holds      {self.entries} entries, {self.size / MIB:.1f} of {self.limit // MIB} MiB"
        for target, count in self.targets.items():
            yield f"  {target:16} {count}"
        if self.confined:
            yield f"  {'of replays':16} {self.confined}"
        if self.damaged:
            yield f"  {'damaged':16} {self.damaged} (made again when they are needed)"


def summary(store: Store) -> Summary:
    """Look at all entries."""
    entries = list(store.entries())
    targets: Counter[str] = Counter()
    damaged = 0
    for entry in entries:
        if entry.suffix == COMPILED:
            data = store.raw(entry)
            found = unpack(entry.key, data) if data is not None else None
            damaged += found is None
            if found is not None:
                targets[found[0].split(" ")[0] or "unknown"] += 1
    return Summary(
        directory=str(store.path),
        policy=config.load().cache_policy,
        limit=store.limit,
        entries=len(entries),
        size=sum(e.size for e in entries),
        targets=dict(sorted(targets.items())),
        confined=sum(e.suffix != COMPILED for e in entries),
        damaged=damaged,
    )
