"""Mutants of the corpus's kernels: other PTX that means the same, replayed on the recorded launches.

A mutant is a trace of the corpus in whose module some places are written otherwise (``mutating.py``), one for
each of its steps. Its launches must leave what an NVIDIA GPU left of the program as it was recorded, bit for
bit. Before that, contraction is decided and written out: ptxas pairs products and sums of the program that it
was given, so mutants are replayed with contraction off.
"""

from __future__ import annotations

import functools
import random
import shutil
import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from mutating import mutate
from trial import Fault

import zluda
from zluda.compiler.contract import contract_function
from zluda.diff.results import Verdict
from zluda.errors import Error
from zluda.ptx import Module
from zluda.ptx.module import Function
from zluda.ptx.printer import print_module
from zluda.tracefile import open_trace
from zluda.tracefile.blobs import BlobStore

CORPUS = Path(__file__).parents[2] / "corpus"
PROGRAMS = tuple(sorted(path.stem for path in CORPUS.glob("*/*.cu") if (path.parent / "trace.bin").exists()))
"""Those of one module, which nvcc built."""
LONG = ("half_precision", "tensor_cores", "textures")
"""Programs whose machine code takes long to make ready for emulation: drawn for the CPU alone."""
_HANGS_AFTER = 60.0
"""Seconds of a launch."""


@dataclass(frozen=True)
class Mutant:
    """A program of the corpus, and the seeds of the changes that are made to it, one after the other."""

    program: str
    steps: tuple[int, ...]
    seed: int = 0


def drawn(seed: int, programs: tuple[str, ...] = PROGRAMS, most: int = 60) -> Mutant:
    """The mutant of a seed."""
    rng = random.Random(f"mutant {seed}")
    steps = tuple(rng.randrange(1 << 32) for _ in range(rng.randint(most // 3, most)))
    return Mutant(rng.choice(programs), steps, seed)


class _Changed(Module):
    """A module some of whose functions are others."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.changed: dict[str, Function] = {}

    def function(self, name: str) -> Function:
        return self.changed.get(name) or super().function(name)


@functools.cache
def texts(program: str) -> tuple[str, ...]:
    """The PTX of a program's modules, with every rounding explicit."""
    with open_trace(str(CORPUS / program / "trace.bin")) as trace:
        found = [trace.ptx(module) for module in trace.module_list]
    made = []
    for text in found:
        module = _Changed((text or b"").decode())
        module.changed = {
            name: replace(contract_function(module.function(name)), debug_lines=(), pragmas=())
            for name in module.function_names
        }
        made.append(print_module(module))
    return tuple(made)


def mutated(mutant: Mutant) -> tuple[tuple[str, ...], list[str]]:
    """The mutant's modules, and what was changed: "kernel: kind" for each step that found a place."""
    modules = [_Changed(text) for text in texts(mutant.program)]
    places = [(m, n) for m in modules for n in m.function_names if m.function(n).body]
    done = []
    for step in mutant.steps:
        module, name = places[step % len(places)]
        kind, function = mutate(module.function(name), step)
        if kind:
            module.changed[name] = function
            done.append(f"{name}: {kind}")
    return tuple(print_module(module) for module in modules), done


def write_trace(program: str, modules: tuple[str, ...], path: Path) -> None:
    """The program's trace with other PTX."""
    shutil.copy(CORPUS / program / "trace.bin", path)
    with open_trace(str(path)) as trace:
        images = [(module.id, module.images.index(module.ptx_image)) for module in trace.module_list]
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = MEMORY")
        blobs = BlobStore(connection)
        for (module, ordinal), text in zip(images, modules, strict=True):
            data = text.encode()
            connection.execute(
                "UPDATE image SET blob = ?, size = ? WHERE module = ? AND ordinal = ?",
                (blobs.put(data), len(data), module, ordinal),
            )


def trial(mutant: Mutant, devices: tuple[str, ...]) -> Fault | None:
    """Replay the mutant; None where every launch and copy is identical to the record."""
    modules, _ = mutated(mutant)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "trace.bin"
        write_trace(mutant.program, modules, path)
        for device in devices if mutant.program not in LONG else devices[:1]:
            try:
                result = zluda.replay(
                    path, device, numerics="nvidia", contract="off", time_limit=_HANGS_AFTER
                )
            except Error as error:
                return Fault(device, type(error).__name__, str(error))
            wrong = [one for one in result.results if one.verdict is not Verdict.IDENTICAL]
            if wrong:
                return Fault(device, wrong[0].verdict.value, f"call {wrong[0].call}, {wrong[0].reason}")
    return None


def shrink(mutant: Mutant, fails: Callable[[Mutant], bool], tries: int = 60) -> Mutant:
    """A mutant of fewer steps for which ``fails`` still holds; asks at most ``tries`` times."""
    size = len(mutant.steps)
    while size and tries:
        for at in range(0, len(mutant.steps), size):
            less = replace(mutant, steps=mutant.steps[:at] + mutant.steps[at + size :])
            tries -= 1
            if fails(less):
                mutant = less
                break
            if not tries:
                break
        else:
            size //= 2
        size = min(size, len(mutant.steps))
    return mutant
