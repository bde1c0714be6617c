"""Seed the bugs one by one, and print the score.

    python -m bench.detect [--jobs N] [--seed N] [--drawn N] [--only TEXT] [--no-alarms] [--write PAGE]

Exits 1 where a score is below what is aimed at, or where there is a false alarm.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from itertools import islice
from pathlib import Path

from bench.detect.bugs import BUGS, Bug
from bench.detect.drawing import drawn, places
from bench.detect.programs import PROGRAMS, trace_of
from bench.detect.running import Found, false_alarms, has_effect, look

AIMS = {"flagged": 95, "layer": 90, "instruction": 75}
_BEGIN, _END = "<!-- score -->", "<!-- end of score -->"
_MOST = 10  # times as many are drawn as are wanted, before that is given up


def _places(jobs: int) -> dict[tuple[str, str], list[Bug]]:
    """What can be drawn of each kind for each program. A process each, which tracing spoils."""
    keys = [(kind, program) for kind in ("emulator", "lowering") for program in PROGRAMS]
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=spawn, max_tasks_per_child=1) as pool:
        return dict(zip(keys, pool.map(places, *zip(*keys, strict=True)), strict=True))


def _effective(
    bugs: Iterator[Bug], count: int, jobs: int, traces: Path
) -> tuple[list[Found], list[Bug], list[str]]:
    """The first ``count`` that have an effect, in their order; those without; what broke the tool itself.

    What replays as recorded has an effect nevertheless where the device leaves other bytes than without it.
    """
    found: list[Found] = []
    idle: list[Bug] = []
    broken: list[str] = []
    left = islice(bugs, _MOST * count)
    with ThreadPoolExecutor(jobs) as pool:
        while len(found) < count and (batch := list(islice(left, jobs))):
            for bug, one in zip(batch, pool.map(lambda bug: _try(bug, traces), batch), strict=True):
                if isinstance(one, str):
                    print(f"{bug.name[:60]:60} broke the tool: {one[-120:]!r}", flush=True)
                    broken.append(one)
                elif one.flagged or has_effect(bug):
                    _tell(one)
                    found.append(one)
                else:
                    idle.append(bug)
    return found[:count], idle, broken


def _try(bug: Bug, traces: Path) -> Found | str:
    try:
        return look(bug, traces)
    except RuntimeError as error:
        return str(error)


def _tell(found: Found) -> None:
    marks = " ".join(
        f"{name} {'-' if right is None else 'yes' if right else 'NO'}"
        for name, right in _marks(found).items()
    )
    print(
        f"{found.bug.name[:60]:60} {marks}  {found.layer}: {found.instruction} ({found.seconds:.0f} s)",
        flush=True,
    )


def _marks(found: Found) -> dict[str, bool | None]:
    """What is right of an answer; None where no instruction is at fault."""
    instruction = found.instruction_right if found.bug.instructions else None
    return {"flagged": found.flagged, "layer": found.layer_right, "instruction": instruction}


def totals(found: list[Found]) -> dict[str, tuple[int, int]]:
    """Of each column how many are right, of how many."""
    rows = [_marks(one) for one in found]
    asked = {name: [row[name] for row in rows if row[name] is not None] for name in AIMS}
    return {name: (sum(map(bool, values)), len(values)) for name, values in asked.items()}


def table(found: list[Found]) -> str:
    """The Markdown table of bugs, and a row of totals."""
    signs = {True: "yes", False: "**no**", None: "–"}
    lines = ["| bug | at fault | flagged | layer | instruction | it said |", "|---|---|---|---|---|---|"]
    for one in found:
        wanted = " ".join([one.bug.layer, *(f"`{text}`" for text in one.bug.instructions[:4])])
        said = f"{one.layer} `{one.instruction}`" if one.instruction else one.layer
        name = one.bug.name.replace("|", "\\|")
        marks = " | ".join(signs[mark] for mark in _marks(one).values())
        lines.append(f"| {name} | {wanted} | {marks} | {said.replace('|', chr(92) + '|')} |")
    return "\n".join(lines)


def _share(right: int, of: int) -> str:
    return f"{right} of {of} ({100 * right / of:.0f} %)" if of else "none of none"


def score(name: str, found: list[Found]) -> str:
    """One line: the totals of some bugs."""
    return f"{name}: " + ", ".join(f"{column} {_share(*part)}" for column, part in totals(found).items())


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench.detect", description=__doc__)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--drawn", type=int, default=20)
    parser.add_argument("--only", default="", help="bugs written by hand whose name has this")
    parser.add_argument("--no-alarms", action="store_true", help="leave the traces without a bug out")
    parser.add_argument("--write", type=Path)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        return _run(chosen, Path(folder))


def _run(chosen: argparse.Namespace, traces: Path) -> int:
    mine = [bug for bug in BUGS if chosen.only in bug.name]
    for program in dict.fromkeys([*PROGRAMS, *(bug.program for bug in mine)]):
        trace_of(program, traces)
    with ThreadPoolExecutor(chosen.jobs) as pool:
        hand = []
        for one in pool.map(lambda bug: look(bug, traces), mine):
            _tell(one)
            hand.append(one)
    lines = [score("written by hand", hand)]
    others: list[Found] = []
    if chosen.drawn and not chosen.only:
        others, idle, broken = _effective(
            drawn(_places(chosen.jobs), chosen.seed), chosen.drawn, chosen.jobs, traces
        )
        lines.append(score(f"drawn with seed {chosen.seed}", others))
        lines.append(
            f"drawn and replaced: {len(idle)} without effect, {len(broken)} that broke the tool itself"
        )
    lines.append(score("all", [*hand, *others]))
    alarms: list[str] = []
    if not chosen.no_alarms:
        count, alarms = false_alarms("gfx1030", traces)
        lines.append(
            f"false alarms without a bug: {len(alarms)} of {count} traces {', '.join(alarms)}".rstrip()
        )
    print("\n".join(lines))
    if chosen.write is not None:
        before, _, rest = chosen.write.read_text().partition(_BEGIN)
        body = "\n".join(f"- {line}" for line in lines)
        page = f"{before}{_BEGIN}\n{body}\n\n{table([*hand, *others])}\n{_END}{rest.partition(_END)[2]}"
        chosen.write.write_text(page)
    missed = [name for name, (right, of) in totals([*hand, *others]).items() if 100 * right < AIMS[name] * of]
    if missed:
        print(f"below what is aimed at: {', '.join(f'{name} {AIMS[name]} %' for name in missed)}")
    return 1 if missed or alarms else 0


if __name__ == "__main__":
    sys.exit(main())
