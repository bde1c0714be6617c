"""Where a replay's time went, as lines and as table cells: what ``zluda.isolate.profile`` found."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from zluda.report import words
from zluda.report.names import readable

_TIMES = {
    "measured": "measured",
    "modelled": "modelled from counted instructions and bytes, not measured",
    "host": "of this machine's processor",
}
COLUMNS = ("kernel", "launches", "NVIDIA", "here", "ratio", "bandwidth", "waves", "registers", "limit")


def heading(profile: Mapping[str, Any]) -> str:
    """What the times are of: ``Profile on gfx1030 (Radeon RX 6800), times modelled …``."""
    product = f" ({profile['product']})" if profile["product"] else ""
    recorded = profile["recorded_seconds"]
    beside = f"; NVIDIA took {words.seconds(recorded)}" if recorded is not None else ""
    return (
        f"profile on {profile['device']}{product}: {words.seconds(profile['seconds'])}"
        f" {_TIMES[profile['time']]}{beside}"
    )


def cells(kernel: Mapping[str, Any]) -> tuple[str, ...]:
    """A kernel's row, in the order of :data:`COLUMNS`; empty where nothing is known."""
    return (
        readable(kernel["kernel"]),
        f"{kernel['launches']:,}",
        words.seconds(kernel["recorded_seconds"]),
        words.seconds(kernel["seconds"]),
        "" if kernel["ratio"] is None else f"{kernel['ratio']:.2f}",
        _bandwidth(kernel),
        "" if kernel["occupancy"] is None else "{} of {}".format(*kernel["occupancy"]),
        _registers(kernel),
        kernel["limit"],
    )


def _bandwidth(kernel: Mapping[str, Any]) -> str:
    if kernel["bandwidth"] is None:
        return ""
    most = "≤ " if kernel["bytes_at_most"] else ""
    share = kernel["share_of_bandwidth"]
    of_peak = f" ({100 * share:.0f} %)" if share is not None else ""
    return f"{most}{kernel['bandwidth'] / 1e9:,.1f} GB/s{of_peak}"


def _registers(kernel: Mapping[str, Any]) -> str:
    if kernel["vgprs"] is None:
        return ""
    spilled = f", {kernel['spills']} spilled" if kernel["spills"] else ""
    return f"{kernel['vgprs']} + {kernel['sgprs']}{spilled}"


def top(profile: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """The kernels that matter, longest first."""
    kernels: Sequence[Mapping[str, Any]] = profile["kernels"]
    return kernels[: profile["top"]]


def lines(profile: Mapping[str, Any]) -> Iterator[str]:
    """The profile in plain lines: a kernel's figures, then its advice."""
    yield heading(profile)
    for kernel in top(profile):
        name, *rest = cells(kernel)
        told = [f"{title} {text}" for title, text in zip(COLUMNS[1:], rest, strict=True) if text]
        yield f"  {name}: {', '.join(told)}"
        yield f"    {kernel['advice']}"
    left_out = len(profile["kernels"]) - profile["top"]
    if left_out > 0:
        yield f"  … and {words.plural(left_out, 'kernel')} that took less (--json has all)"
