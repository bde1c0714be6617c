"""Which traces there are to run, and what is known of them without opening them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from zluda.corpus import read_recipe
from zluda.corpus.recipe import FILE, TRACE
from zluda.errors import Error
from zluda.records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A row of the matrix. ``package`` is what it exercises ("" for a program of our own), ``problem`` says
    why it cannot be run.
    """

    name: str
    trace: Path
    about: str = ""
    package: str = ""
    problem: str = ""

    def digest(self) -> str:
        """BLAKE2b, 128 bits, of the trace file."""
        with self.trace.open("rb") as file:
            return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


def find_programs(corpus: Path, names: Iterable[str] = ()) -> list[Program]:
    """All programs below ``corpus``, by name: directories with a recipe or a ``trace.bin``, and other files
    that end in ``.bin``.

    With ``names``, those. Raises :class:`Error` for a name that is not there, and where there are none.
    """
    found = {program.name: program for program in _below(corpus)}
    if not found:
        raise Error(f"{corpus}: no traces (NAME/{TRACE}, or NAME.bin)")
    chosen = list(dict.fromkeys(names)) or sorted(found)
    for name in chosen:
        if name not in found:
            raise Error(f"{name}: not in {corpus}, which has {', '.join(sorted(found))}")
    return [found[name] for name in chosen]


def _below(corpus: Path) -> Iterable[Program]:
    for place in sorted(corpus.iterdir()):
        if place.is_file() and place.suffix == ".bin":
            yield Program(name=place.stem, trace=place)
        elif (place / FILE).exists():
            recipe = read_recipe(place)
            here = recipe.trace.exists()
            yield Program(
                name=recipe.name,
                trace=recipe.trace,
                about=recipe.about,
                package=recipe.package,
                problem="" if here else f"its trace is not here: zluda corpus record {recipe.name} makes it",
            )
        elif (place / TRACE).exists():
            yield Program(name=place.name, trace=place / TRACE)
