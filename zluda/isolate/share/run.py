"""From a trace to one that can be sent: which launch, what stands around it, and whether the part still shows
the fault.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import zluda
from zluda.diff.results import LaunchResult, ReplayResult
from zluda.errors import Error, TraceError
from zluda.isolate.share.preview import Preview, preview
from zluda.records import dataclass
from zluda.replay.cutting import excerpt, extract
from zluda.tracefile import Launch, Selection, Trace, open_trace
from zluda.tracefile.replacing import check_place
from zluda.tracefile.stripping import Part, strip

Progress = Callable[[int, int], None]

_STEP = 1 << 20


@dataclass(frozen=True, slots=True)
class Shared:
    """What was written, and what is to be said of it.

    ``launch`` is the guilty one, ``first`` and ``last`` the calls around it that the part has; ``whole`` is
    what a replay of the source found (None: not asked), ``part`` what one of the part did, before anything
    was taken out of it.
    """

    source: Path
    path: Path
    launch: Launch
    first: int
    last: int
    whole: ReplayResult | None
    part: ReplayResult
    preview: Preview
    digest: str

    @property
    def found(self) -> LaunchResult | None:
        """The launch in the replay of the part."""
        return next((one for one in self.part.results if one.call == self.launch.call), None)


def share(
    source: Path,
    target: Path | None = None,
    *,
    launch: str | None = None,
    device: str = "auto",
    numerics: str | None = None,
    neighbours: int = 1,
    redact: bool = False,
    progress: Progress | None = None,
) -> Shared:
    """Write the guilty launch of ``source`` and its neighbours to ``target``, and replay that on ``device``.

    ``launch`` is its call's number, or ``kernel:regex``; without it the source is replayed, and the first
    launch that fails is taken. ``target`` None: ``NAME-launch-N.bin`` in the current directory.
    ``neighbours`` launches before and after it come along (0: it alone, with the memory that it reaches).
    ``redact`` takes out contents and names; machine code goes where there is PTX. Raises TraceError where the
    launch is none or its memory is not on record, Error where nothing fails, and what a replay raises.
    """
    with open_trace(source) as trace:
        whole = None
        if launch is None:
            whole = zluda.replay(source, device, numerics=numerics, progress=progress)
            one = _first_failing(trace, whole)
        else:
            one = _named(trace, launch)
        path = target or Path(f"{source.stem}-launch-{one.call}.bin")
        check_place(path, source)
        cut = path.with_name(f"{path.name}.cut")
        try:
            first, last = _cut(trace, cut, one, neighbours)
            part = zluda.replay(cut, whole.device if whole else device, numerics=numerics)
            _strip(cut, path, redact=redact)
        finally:
            cut.unlink(missing_ok=True)
    return Shared(source, path, one, first, last, whole, part, preview(path), _digest(path))


def _first_failing(trace: Trace, result: ReplayResult) -> Launch:
    """The launch that first parts; of a copy that does, the launch before it."""
    found = result.first_divergence
    if found is None:
        verdict = f"nothing fails on {result.device} (verdict {result.verdict})"
        raise Error(f"{trace.path}: {verdict}; --launch names a launch")
    before = [one for one in trace.iter_launches(0, found.result.call + 1) if one.left_out is None]
    if not before:
        raise TraceError("fails before any launch", file=str(trace.path), call=found.result.call)
    return before[-1]


def _named(trace: Trace, launch: str) -> Launch:
    selection = Selection.parse(launch)
    low, high = selection.bounds
    meant = (one for one in trace.iter_launches(low, high) if selection.contains(one.call, one.kernel))
    found = next((one for one in meant if one.left_out is None), None)
    if found is None:
        raise TraceError(
            f"{launch} is no launch with its memory on record; zluda dump --launches shows them",
            file=str(trace.path),
        )
    return found


def _cut(trace: Trace, path: Path, one: Launch, neighbours: int) -> tuple[int, int]:
    if not neighbours and not trace.graphs.is_node(trace.call(one.call)):
        extract(trace, path, one.call)
        return one.call, one.call
    calls = [each.call for each in trace.iter_launches() if each.left_out is None]
    at = calls.index(one.call)
    first, last = calls[max(at - neighbours, 0)], calls[min(at + neighbours, len(calls) - 1)]
    cut = excerpt(trace, path, first, last)
    return cut.first, cut.last


def _strip(cut: Path, path: Path, *, redact: bool) -> None:
    parts = [Part.MACHINE_CODE, *([Part.CONTENTS, Part.NAMES] if redact else [])]
    with open_trace(cut) as trace:
        strip(trace, path, parts)


def _digest(path: Path) -> str:
    """SHA-256, which every system has a command for."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_STEP):
            digest.update(chunk)
    return digest.hexdigest()
