"""The matrix's store and site at size: a year of nights of 500 programs on 20 devices, made up.

``python -m bench.matrix [PROGRAMS DEVICES NIGHTS]``. Each night a five-hundredth of the cells comes to
something new, with three kernels and their measurements; the others are taken over. Cells go to the store a
hundred at a time.
"""

from __future__ import annotations

import datetime
import random
import sys
import tempfile
import time
from pathlib import Path

from zluda.matrix.changes import compare
from zluda.matrix.site import write_site
from zluda.matrix.store import CellResult, KernelRow, Outcome, RunFacts, Sample, Store

CHANGING = 0.002
BATCH = 100
KERNELS = 3
FOUND = {"identical": 80, "within": 10, "differs": 4, "unsupported": 5, "crash": 1}
FEATURES = (
    "f64 arithmetic",
    "shuffle",
    "atomics",
    "textures",
    "barrier",
    "tensor cores: mma",
    "vectors",
    "fence",
)


def _outcome(draw: random.Random, program: str, device: str) -> Outcome:
    found = draw.choices(list(FOUND), list(FOUND.values()))[0]
    names = [f"kernel_{number}" for number in range(KERNELS)]
    codes = {name: f"{draw.getrandbits(64):x}" for name in names}
    return Outcome(
        program=program,
        device=device,
        numerics="native",
        trace=_digest(program),
        found=found,
        verdict=found,
        code=f"{draw.getrandbits(64):x}",
        reason="" if found in ("identical", "within") else f"#{draw.randrange(99)} kernel_0: {found}",
        launches=10,
        held=9,
        seconds=draw.random(),
        kernels=[KernelRow(name=one, verdict=found, launches=3, held=3, code=codes[one]) for one in names],
        samples=[
            Sample(kernel=one, code=codes[one], seconds=None, instructions=draw.randrange(1000, 2000))
            for one in names
        ],
    )


def _digest(program: str) -> str:
    return program.encode().hex().ljust(32, "0")[:32]


def _fill(store: Store, programs: list[str], devices: list[str], nights: int) -> tuple[float, float]:
    """Write the nights; cells a second of the first, in which all is new, and of all."""
    draw = random.Random(1)
    for name in programs:
        store.add_program(name, f"what {name} does", draw.choice(["", "PyTorch"]), f"corpus/{name}/trace.bin")
        store.add_trace(
            _digest(name), 1000, {"ptx": {one: draw.randrange(1, 50) for one in draw.sample(FEATURES, 3)}}
        )
    known: dict[tuple[str, str], Outcome] = {}
    begin = datetime.datetime(2026, 1, 1, 3, tzinfo=datetime.UTC)
    spent, first = 0.0, 0.0
    for night in range(nights):
        at = (begin + datetime.timedelta(days=night)).isoformat()
        facts = RunFacts(
            commit=f"{draw.getrandbits(160):040x}", subject=f"Change {night}", host="h", corpus="corpus"
        )
        number = store.begin_run(facts, started=at)
        cells = {}
        for key in ((name, device) for name in programs for device in devices):
            if key not in known or draw.random() < CHANGING:
                known.pop(key, None)
            cells[key] = known.get(key) or _outcome(draw, *key)
        results = [CellResult(outcome=one, state=one.found) for one in cells.values()]
        start = time.perf_counter()
        for at_row in range(0, len(results), BATCH):
            store.add(number, results[at_row : at_row + BATCH])
        spent += time.perf_counter() - start
        first = first or len(results) / spent
        store.finish_run(number, finished=at)
        if any(one.id is None for one in cells.values()):
            rows = store.cells(number)
            for name, device, identity in zip(rows["program"], rows["device"], rows["outcome"], strict=True):
                old = cells[name, device]
                known[name, device] = Outcome(
                    program=name, device=device, numerics="native", found=old.found, id=int(identity)
                )
    return first, len(programs) * len(devices) * nights / spent


def main() -> None:
    """Print one line a figure."""
    programs, devices, nights = map(int, sys.argv[1:4] or ("500", "20", "365"))
    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / "nights.db"
        with Store(str(file), create=True) as store:
            names = [f"program_{number:03}" for number in range(programs)]
            first, rate = _fill(store, names, [f"gfx{900 + number}" for number in range(devices)], nights)
            size = file.stat().st_size >> 20
            print(f"{programs} programs x {devices} devices x {nights} nights, SQLite: {size} MiB")
            print(f"cells a second: {first:,.0f} where all is new, {rate:,.0f} over all nights; wanted 1,000")
            start = time.process_time()
            compare(store, nights - 1, nights)
            print(f"comparing the last two nights: {time.process_time() - start:.1f} s of processor time")
            start, busy = time.perf_counter(), time.process_time()
            write_site(store, Path(place) / "site", nights)
            size = sum(one.stat().st_size for one in (Path(place) / "site").rglob("*") if one.is_file())
            index = (Path(place) / "site" / "index.html").stat().st_size
            print(
                f"the site of the last night: {time.perf_counter() - start:.1f} s, wanted < 30 s"
                f" ({time.process_time() - busy:.1f} s of processor time);"
                f" {size >> 20} MiB, index.html {index / 1e6:.1f} MB"
            )


if __name__ == "__main__":
    main()
