#!/usr/bin/env python3
"""Kill programs that are being recorded, their recorders, or both, at random moments, on a host with an
NVIDIA GPU; what had returned by then must be on record. With the programs of ``tests/trace/gpu``:

    scripts/record_kills.py --counting cuLaunchKernel,cuMemAlloc,cuMemFree -- ./killed {account}
    scripts/record_kills.py --counting nvtxMark --even -- python3 killed_step.py {account}

The program is started anew for each kill, with the name of a file in the place of ``{account}``. It keeps a
64-bit word there for each function that is counted (in any of its forms): how many calls of it had returned.
``--even``: between two calls of that function there are always as many launches.
Each trace is then opened, checked against the account and read to its end. Prints a line for each kill; the
exit status is 1 if one lost something.

``ZLUDA`` names the command to use (default: ``python3 -m zluda``).
"""

from __future__ import annotations

import argparse
import os
import random
import shlex
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from zluda.tracefile import Trace, open_trace
from zluda.tracefile.ring import CONTROL

ZLUDA = shlex.split(os.environ.get("ZLUDA", f"{sys.executable} -m zluda"))
KILLED = ("application", "recorder", "session", "session and recorder", "everything")
LAUNCH = "cuLaunchKernel"
WARM = 3  # calls of the function of --even before steps are alike
SECONDS = 90.0


class Lost(Exception):
    """What a kill came to that it must not."""


def account_of(path: Path, count: int) -> tuple[int, ...]:
    """How many calls of each function had returned, by the program's own account."""
    try:
        return struct.unpack_from(f"<{count}Q", path.read_bytes())
    except (FileNotFoundError, struct.error):
        return (0,) * count


def check(trace: Trace, counting: Sequence[str], returned: Sequence[int], *, even: bool) -> int:
    """The number of calls on record. Raises :class:`Lost`."""
    recorded: Counter[str] = Counter()
    launches = {launch.call: launch for launch in trace.iter_launches()}
    steps, calls = [0], 0
    for call in trace.iter_calls():
        if call.sequence != calls:
            raise Lost(f"call {calls} is missing")
        calls += 1
        if call.end_ns is None or call.result not in (0, None):
            continue
        for name in counting:
            recorded[name] += call.function.startswith(name)
        if call.function.startswith(LAUNCH):
            steps[-1] += 1
            if call.sequence not in launches or not launches[call.sequence].parameters:
                raise Lost(f"launch {call.sequence} has no parameters")
        if even and call.function.startswith(counting[0]):
            steps.append(0)
    for name, count in zip(counting, returned, strict=True):
        if recorded[name] < count:
            raise Lost(f"{recorded[name]} calls of {name} are on record, {count} had returned")
    if even and len(set(steps[WARM:-1])) > 1:
        raise Lost(f"steps of {sorted(set(steps[WARM:-1]))} launches")
    return calls


def wait_until(condition: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + SECONDS
    while not condition():
        if time.monotonic() > end:
            raise Lost(f"{what}: not in {SECONDS:.0f} s")
        time.sleep(0.02)


def running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def one(options: argparse.Namespace, killed: str, pause: float) -> int:
    """One recording that is killed; the number of calls on record."""
    with tempfile.TemporaryDirectory(dir=options.directory, ignore_cleanup_errors=True) as place:
        trace, account = Path(place, "trace.bin"), Path(place, "account")
        control = Path(f"{trace}.rings/control")
        program = [part.replace("{account}", str(account)) for part in options.program]
        line = [*ZLUDA, "trace", "--capture", options.capture, "-o", str(trace), "--", *program]
        told = Path(place, "told")
        with open(told, "wb") as errors:
            session = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=errors)
        pids = {"session": session.pid}
        try:
            wait_until(
                lambda: session.poll() is not None or account_of(account, 1)[0] >= WARM,
                "the program at work",
            )
            if session.poll() is not None:
                raise Lost(f"ended by itself: {told.read_text()[-2000:]}")
            page = control.read_bytes()
            for name, word in {"recorder": "RECORDER_PID", "application": "APP_PID"}.items():
                pids[name] = struct.unpack_from("<Q", page, CONTROL[word])[0]
            time.sleep(pause)
            returned = account_of(account, len(options.counting))
            for name, pid in pids.items():
                if name in killed or killed == "everything":
                    kill(pid)
            kill(pids["application"])
            wait_until(lambda: not running(pids["application"]), "the end of the program")
            session.wait(SECONDS)
            wait_until(lambda: not running(pids["recorder"]), "the end of the recorder")
            with open_trace(trace) as opened:
                calls = check(opened, options.counting, returned, even=options.even)
            if control.parent.exists():
                raise Lost("rings are left")
            return calls
        finally:
            for pid in pids.values():
                kill(pid)
            session.wait()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--counting", required=True, type=lambda text: text.split(","))
    parser.add_argument("--even", action="store_true")
    parser.add_argument("--kills", type=int, default=25)
    parser.add_argument("--jobs", type=int, default=4, help="recordings at a time")
    parser.add_argument("--seconds", type=float, default=600, help="after which none is begun any more")
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--capture", default="full", choices=("calls", "outputs", "full"))
    parser.add_argument("--directory", type=Path, help="for the traces, which are deleted")
    parser.add_argument("program", nargs="+")
    options = parser.parse_args()
    chosen, end = random.Random(options.seed), time.monotonic() + options.seconds
    moments = [(chosen.choice(KILLED), chosen.uniform(0, 1.5)) for _ in range(options.kills)]

    def attempt(moment: tuple[str, float]) -> tuple[str, int | str | None]:
        killed, pause = moment
        if time.monotonic() > end:
            return "", None
        about = f"{killed} after {pause:.3f} s"
        try:
            return about, one(options, killed, pause)
        except Exception as error:  # any fault is one of the recorder's; the others still run
            return about, f"{type(error).__name__}: {error}"

    done = []
    with ThreadPoolExecutor(options.jobs) as pool:
        for number, (about, result) in enumerate(pool.map(attempt, moments)):
            if result is None:
                continue
            done.append((about, result))
            said = f"{result} calls on record" if isinstance(result, int) else result
            print(f"kill {number}, of {about}: {said}", flush=True)
    calls = [result for _, result in done if isinstance(result, int)]
    print(
        f"{len(calls)} of {len(done)} kills: every call that had returned is on record ({sum(calls)} calls)"
    )
    return int(len(calls) < len(done) or not done)


if __name__ == "__main__":
    sys.exit(main())
