"""Random PTX programs and mutants of the corpus: whether the CPU and emulated AMD GPUs compute the same bits.

    python tests/fuzz/fuzz.py --seconds 900            # or: make fuzz SECONDS=900
    python tests/fuzz/fuzz.py --seed 1234 --count 1    # one program again
    python tests/fuzz/fuzz.py --again build/fuzz/1234  # a program that was kept, as it stands in its .ptx
    python tests/fuzz/fuzz.py --mutants --seconds 900  # mutants: or, with programs by turns, --mix

Prints the seed of each program that differs, cuts it down, and keeps it in ``--out``: ``kernel.ptx``,
``launch.json`` (the launch's shape), and the buffers it is given; of a mutant ``trace.bin``, which
``zluda replay`` takes, and ``changes.txt``. Status 1 if any did.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import mutants
from launches import DEVICES, Inputs, compare, inputs_of, launch, open_device
from probe import drawer, probe
from programs import Program
from shrink import shrink
from trial import Fault, apart
from writing import ptx

BUFFERS = {"registers": "in.bin", "own": "own.bin", "sums": "sums.bin", "parameter": "parameter.bin"}


def examine(seed: int, devices: tuple[str, ...], out: Path | None, tries: int = 200) -> Fault | None:
    """Draw a seed's program and run it; what differs is cut down and kept."""
    program = drawer().program(seed)
    fault = apart(program, devices)
    if fault is None or out is None:
        return fault
    print(f"seed {seed}: {fault}\n  cutting down {program.size()} statements …", flush=True)
    needed = (devices[0], fault.device) if fault.device in devices[1:] else devices
    smaller = shrink(program, lambda p: fault.like(apart(p, needed, 30)), tries)
    keep(smaller, fault, out / str(seed))
    print(f"  {smaller.size()} statements in {out / str(seed)}", flush=True)
    return fault


def examine_mutant(seed: int, devices: tuple[str, ...], out: Path | None, tries: int = 60) -> Fault | None:
    """As :func:`examine`, of the mutant of a seed."""
    mutant = mutants.drawn(seed)
    fault = mutants.trial(mutant, devices)
    if fault is None or out is None:
        return fault
    print(
        f"mutant {seed} of {mutant.program}: {fault}\n  cutting down {len(mutant.steps)} changes …",
        flush=True,
    )
    smaller = mutants.shrink(mutant, lambda m: fault.like(mutants.trial(m, (fault.device,))), tries)
    directory = out / f"mutant-{seed}"
    directory.mkdir(parents=True, exist_ok=True)
    modules, changes = mutants.mutated(smaller)
    mutants.write_trace(smaller.program, modules, directory / "trace.bin")
    (directory / "changes.txt").write_text("\n".join([smaller.program, str(fault), *changes]) + "\n")
    print(f"  {len(changes)} changes in {directory}", flush=True)
    return fault


def keep(program: Program, fault: Fault, directory: Path) -> None:
    """What it takes to run a program again without this one."""
    directory.mkdir(parents=True, exist_ok=True)
    inputs = inputs_of(program)
    (directory / "kernel.ptx").write_text(ptx(program))
    for field, name in BUFFERS.items():
        (directory / name).write_bytes(getattr(inputs, field))
    shape = {"threads": program.threads, "blocks": program.blocks, "uniform": inputs.uniform}
    (directory / "launch.json").write_text(json.dumps({**shape, "seed": program.seed, "fault": str(fault)}))


def again(directory: Path, devices: tuple[str, ...]) -> int:
    """Run a kept program; 1 if devices differ."""
    shape = json.loads((directory / "launch.json").read_text())
    program = Program((), (), shape["threads"], shape["blocks"], shape["seed"])
    buffers = {field: (directory / name).read_bytes() for field, name in BUFFERS.items()}
    inputs = Inputs(uniform=shape["uniform"], **buffers)
    text = (directory / "kernel.ptx").read_text()
    results = {name: launch(open_device(name), text, program, inputs) for name in devices}
    found = [compare(name, results[devices[0]], result) for name, result in results.items()]
    for difference in filter(None, found):
        print(f"{difference.device} differs: {difference.place}, {difference.detail}")
    return int(any(found))


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, help="the first program's (default: the time)")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--count", type=int, default=1 << 30)
    parser.add_argument("--devices", default=",".join(DEVICES))
    parser.add_argument("--out", type=Path, default=Path("build/fuzz"))
    parser.add_argument("--tries", type=int, default=200, help="of cutting down")
    parser.add_argument("--most", type=int, default=20, help="stop after so many faults")
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument("--mutants", action="store_true", help="mutants of the corpus instead of programs")
    kinds.add_argument("--mix", action="store_true", help="programs and mutants by turns")
    parser.add_argument("--refused", action="store_true", help="say why statements were not taken")
    parser.add_argument("--again", type=Path, metavar="DIRECTORY")
    options = parser.parse_args()
    devices = tuple(options.devices.split(","))
    if options.again:
        return again(options.again, devices)
    first = options.seed if options.seed is not None else int(time.time())
    turns = [examine_mutant] if options.mutants else [examine, examine_mutant] if options.mix else [examine]
    print(f"seeds from {first}, {', '.join(devices)}", flush=True)
    end, faults, done = time.monotonic() + options.seconds, [], 0
    while done < options.count and time.monotonic() < end and len(faults) < options.most:
        fault = turns[done % len(turns)](first + done, devices, options.out, options.tries)
        faults += [(first + done, fault)] if fault else []
        done += 1
        if done % 50 == 0:
            print(f"{done} programs, {len(faults)} faults", flush=True)
    forms = probe()
    print(
        f"{done} tried, of {len(forms.taken)} statements' shapes ({len(forms.refused)} refused): "
        f"{len(faults)} faults {[seed for seed, _ in faults]}"
    )
    if options.refused:
        print("\n".join(f"{count:5} {why}" for why, count in forms.reasons().most_common()))
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
