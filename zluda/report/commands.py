"""The commands that show a part of the page again, as a POSIX shell takes them."""

from __future__ import annotations

import re
import shlex

from zluda.device import names
from zluda.diff.results import LaunchResult, ReplayResult


def of_result(result: ReplayResult) -> str:
    """A replay, or a comparison of two traces, as this one was."""
    if result.other:
        return shlex.join(["zluda", "diff", result.trace, result.other])
    mode = ["--mode", "isolated"] if result.mode == "isolated" else []
    return shlex.join([*_replay(result), *mode])


def of_kernel(result: ReplayResult, kernel: str) -> list[tuple[str, str]]:
    """(what it is for, command) of one kernel's launches; of two traces there is none."""
    if result.other:
        return []
    pattern = re.escape(kernel).replace(",", r"\x2c")  # a comma begins another selection
    chosen = ["--select", f"kernel:^{pattern}$"]
    return [("These launches, from recorded inputs", shlex.join([*_alone(result), *chosen]))]


def of_launch(result: ReplayResult, launch: LaunchResult) -> list[tuple[str, str]]:
    """(what it is for, command) of one launch or copy."""
    call = str(launch.call)
    if launch.kind == "copy" or result.other:
        traces = [one for one in (result.trace, result.other) if one]
        return [
            ("The call as recorded", shlex.join(["zluda", "dump", one, "--select", call])) for one in traces
        ]
    return [
        ("Explain it", shlex.join([*_replay(result), "--explain", call])),
        ("Alone, from recorded inputs", shlex.join([*_alone(result), "--select", call])),
        (
            "A trace of it alone",
            shlex.join(["zluda", "extract", result.trace, call, "-o", f"launch-{call}.bin"]),
        ),
    ]


def _alone(result: ReplayResult) -> list[str]:
    return [*_replay(result), "--mode", "isolated"]


def _replay(result: ReplayResult) -> list[str]:
    words = ["zluda", "replay", result.trace, "--device", result.device]
    if result.numerics != names.chosen_numerics(result.device, None):
        words += ["--numerics", result.numerics]
    if result.contract != "auto":
        words += ["--contract", result.contract]
    return words
