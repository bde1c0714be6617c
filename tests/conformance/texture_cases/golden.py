"""Results of an H200 for the texture cases, thinned: ``textures.npz``.

``python golden.py DIR`` makes it of what ``probe.py`` left in DIR: of each case at most :data:`ROWS` rows,
spread over all of them; cases that write a surface are kept whole. Those with races are left out. What
there was of other cases stays.
"""

from __future__ import annotations

import functools
import pathlib
import re
import sys
from dataclasses import replace

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from texture_cases.cases import all_cases
from texture_cases.spec import Array, Case

FILE = pathlib.Path(__file__).with_name("textures.npz")
ROWS = 192

_RACES = frozenset(f"surface.store.{form}.clamp" for form in ("2d", "v2"))  # two threads write one texel

_APART = "sums of texels whose exponents are far apart round otherwise"
KNOWN = {
    r"(filter\.spread\.3d|bits\.slices)\S*": (0.02, _APART),
    r"(footprint\.whole\.srgb|bits\.apart\S*)": (0.04, _APART),
}
"""Names of cases to the largest share of their rows that may differ from an H200's, and why."""


def allowed(name: str) -> float:
    """The share of a case's rows that may differ."""
    return max((share for pattern, (share, _) in KNOWN.items() if re.fullmatch(pattern, name)), default=0.0)


def thinned(case: Case) -> Case:
    """The case with the rows that are kept of it."""
    if case.texture.surface and not case.results:
        return case
    return replace(case, words=case.words[_kept(len(case.words))])


def _kept(count: int) -> Array:
    """Row numbers: all of few, else :data:`ROWS` of many, at uneven steps."""
    if count <= ROWS:
        return np.arange(count)
    return np.unique(np.linspace(0, count - 1, ROWS).astype(np.int64))


def golden_cases() -> dict[str, Case]:
    """The cases there are results of, thinned, by name."""
    known = {name.removesuffix(".after") for name in golden_results()}
    return {case.name: thinned(case) for case in all_cases() if case.name in known}


@functools.cache
def golden_results() -> dict[str, Array]:
    """A case's name, with ``.after`` for what a surface held afterwards, to its array."""
    with np.load(FILE) as archive:
        return {name: archive[name] for name in archive.files}


def main() -> int:
    found: dict[str, Array] = {}
    for path in sorted(pathlib.Path(sys.argv[1]).glob("textures-*.npz")):
        with np.load(path) as archive:
            found |= {name: archive[name] for name in archive.files}
    kept = dict(golden_results()) if FILE.exists() else {}
    for case in all_cases():
        if case.name in found and case.name not in _RACES and case.name != "query.istypep":
            rows = found[case.name]
            kept[case.name] = rows if case.texture.surface and not case.results else rows[_kept(len(rows))]
            if case.name + ".after" in found:
                kept[case.name + ".after"] = found[case.name + ".after"]
    np.savez_compressed(FILE, **kept)
    print(f"{len(kept)} arrays, {FILE.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
