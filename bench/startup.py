"""How long a user waits: start of the command, import, cold replay of the smallest trace.

Wall time of fresh processes, best and median. Ratios are to a bare ``python -c pass`` measured between them.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RUNS = 9


def smallest_trace() -> Path:
    """The smallest trace of the corpus."""
    return min(ROOT.glob("corpus/*/trace.bin"), key=lambda path: path.stat().st_size)


def wall(command: Sequence[str]) -> float:
    """Seconds from start to exit; raises CalledProcessError unless the status is 0."""
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=ROOT)
    return time.perf_counter() - start


def main() -> None:
    """Print one line a command."""
    python = sys.executable
    trace = smallest_trace()
    cases = {
        "python -c pass": ([python, "-c", "pass"], None),
        "import zluda": ([python, "-c", "import zluda"], 0.1),
        "zluda --help": ([python, "-m", "zluda", "--help"], 0.25),
        f"zluda replay corpus/{trace.parent.name}/trace.bin --device cpu": (
            [python, "-m", "zluda", "replay", str(trace), "--device", "cpu"],
            1.5,
        ),
    }
    times: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(RUNS):  # interleaved, so that a busy moment hits all of them
        for name, (command, _limit) in cases.items():
            times[name].append(wall(command))
    base = statistics.median(times["python -c pass"])
    for name, (_command, limit) in cases.items():
        best, median = min(times[name]), statistics.median(times[name])
        wanted = f", wanted < {limit} s above python" if name == "import zluda" else f", wanted < {limit} s"
        print(
            f"{name}: {best:.3f} s best, {median:.3f} s median, {median / base:.1f} x python"
            + (wanted if limit else "")
        )


if __name__ == "__main__":
    main()
