"""What is said of a shared trace: a preview for the sender, a block for the bug report."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Iterator
from typing import Any

import zluda
from zluda.diff.results import CountsAs, LaunchResult, Verdict
from zluda.isolate.share.preview import Preview
from zluda.isolate.share.run import Shared
from zluda.report import words
from zluda.report.names import readable
from zluda.report.recording import facts
from zluda.tracefile import open_trace
from zluda.tracefile.text import printable

_SHOWN = 12


def preview_lines(shared: Shared) -> Iterator[str]:
    """What the file holds, and what of it tells of the sender."""
    held = shared.preview
    yield f"{shared.path} ({words.size(held.file_bytes)}): calls {shared.first} to {shared.last}"
    yield from _listed("kernels", [f"{readable(name)} ({count})" for name, count in held.kernels])
    yield from _buffers(held)
    yield from _listed("machine", [f"{name}: {value}" for name, value in held.machine.items()])
    yield from _listed("texts given to calls", held.texts)
    yield from _listed("source files named in PTX", held.sources)
    yield from _listed("modules from", held.modules)
    if held.stripped:
        yield f"taken out: {', '.join(part.replace('-', ' ') for part in held.stripped)}"
    if not held.redacted:
        yield "contents of memory are in it; --redact takes them and the machine's names out"


def _listed(title: str, found: Iterable[str]) -> Iterator[str]:
    rows = list(found)
    if rows:
        yield f"{title}:"
        yield from (f"  {printable(row)}" for row in rows[:_SHOWN])
        if len(rows) > _SHOWN:
            yield f"  and {len(rows) - _SHOWN} more"


def _buffers(held: Preview) -> Iterator[str]:
    rows = []
    for one in sorted(held.buffers, key=lambda one: -one.record):
        known = "digests only" if held.redacted else f"{words.size(one.record)} on record"
        share = f", {one.nonzero / one.record:.0%} not zero" if one.record else ""
        text = f', text: "{one.text}…"' if one.text else ""
        rows.append(f"{one.address:#x} {one.name}, {words.size(one.size)}: {known}{share}{text}")
    yield from _listed("buffers", rows)


def markdown(shared: Shared) -> str:
    """A block to paste: the fault, the machines and versions, how to see it again."""
    found, launch = shared.found, shared.launch
    kernel = readable(launch.kernel)
    lines = [
        f"### `{_code(kernel)}` (launch {launch.call}): {_verdict(found)} on {shared.part.device}",
        "",
        *_told(shared),
        "",
        "| | |",
        "|---|---|",
        *(f"| {name} | {_cell(value)} |" for name, value in _facts(shared)),
        "",
        f"Attached: `{_code(shared.path.name)}` ({words.size(shared.preview.file_bytes)}, "
        f"SHA-256 `{shared.digest}`). To see it again:",
        "",
        "```",
        _command(shared),
        "```",
        "",
    ]
    return "\n".join(lines)


def _verdict(found: LaunchResult | None) -> str:
    return str(found.verdict) if found is not None else "not replayed"


def _told(shared: Shared) -> Iterator[str]:
    found = shared.found
    if found is not None and found.reason:
        yield _cell(found.reason)
    if found is not None and found.first_difference is not None:
        buffer, element = found.first_difference
        where = f"{_cell(buffer.label)} ({buffer.element_type})"
        yield (
            f"First of {buffer.differing:,} differing elements in {where}: "
            f"index {element.index}, recorded {element.recorded}, replayed {element.replayed}."
        )
    if shared.whole is not None:
        yield f"Of the whole trace: {_cell(words.headline(shared.whole))}."
        if found is None or found.verdict.counts_as is not CountsAs.FAILS:
            yield "In this part alone it does not fail: it needs what came before."
    if shared.preview.redacted:
        yield "Contents were taken out, so a replay of this file can compare only what it computes itself."


def _facts(shared: Shared) -> Iterator[tuple[str, str]]:
    launch = shared.launch
    yield "launch", f"grid {launch.grid}, block {launch.block}, {launch.shared_bytes} bytes of shared memory"
    product = f" ({shared.part.product})" if shared.part.product else ""
    emulated = ", emulated" if shared.part.emulated else ""
    yield "replayed on", f"{shared.part.device}{product}{emulated}, {shared.part.numerics} numerics"
    yield "zluda", f"{zluda.__version__}, Python {platform.python_version()}, {platform.system()}"
    with open_trace(shared.path) as trace:
        yield from ((name.lower(), value) for name, value in facts(trace.meta) if name not in ("Left out",))


def _command(shared: Shared) -> str:
    """What replays the part as it was replayed here."""
    result = shared.part
    return f"zluda replay {shared.path.name} --device {result.device} --numerics {result.numerics}"


def _cell(text: str) -> str:
    return printable(text).replace("|", "\\|").replace("<", "&lt;")


def _code(text: str) -> str:
    return printable(text).replace("`", "'")


def as_dict(shared: Shared) -> dict[str, Any]:
    """For ``--json``."""
    found = shared.found
    return {
        "file": str(shared.path),
        "sha256": shared.digest,
        "launch": shared.launch.call,
        "kernel": shared.launch.kernel,
        "calls": [shared.first, shared.last],
        "device": shared.part.device,
        "verdict": (found.verdict if found is not None else Verdict.NOT_REPLAYED).value,
        "reason": found.reason if found is not None else "",
        "command": _command(shared),
        "holds": shared.preview.as_dict(),
    }
