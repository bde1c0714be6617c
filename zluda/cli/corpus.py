"""`zluda corpus`: the programs that are recorded, and recording them again."""

from __future__ import annotations

import json
import os
import shlex
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

from zluda.cli.say import say

if TYPE_CHECKING:
    from zluda.corpus import Recipe
    from zluda.corpus.recording import Recorded

_CORPUS = click.option(
    "--corpus",
    metavar="DIR",
    default="corpus",
    show_default=True,
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="Where the programs are.",
)


@click.group(name="corpus")
def command() -> None:
    """Programs that were recorded on an NVIDIA GPU, with their sources, and recording them again.

    Example: zluda corpus list
    """


@command.command(name="list")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@_CORPUS
@click.option(
    "--tags", "with_tags", is_flag=True, help="Also what their traces use of PTX, driver, libraries."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def list_command(names: tuple[str, ...], corpus: Path, with_tags: bool, as_json: bool) -> None:
    """What each program is, and what is on record of it.

    Example: zluda corpus list --tags
    """
    from rich.console import Console
    from rich.table import Table

    from zluda.corpus import find_recipes

    recipes = find_recipes(corpus, names)
    tags = {recipe.name: _tags(recipe) for recipe in recipes} if with_tags or as_json else {}
    if as_json:
        click.echo(json.dumps([_as_dict(recipe, tags[recipe.name]) for recipe in recipes]))
        return
    table = Table("program", "what", "size", "recorded on", box=None)
    if with_tags:
        table.add_column("tags")
    for recipe in recipes:
        size = f"{recipe.trace.stat().st_size >> 10} KiB" if recipe.trace.exists() else "not here"
        about = f"{recipe.package}: {recipe.about}" if recipe.package else recipe.about
        found = tags.get(recipe.name)
        names_of = ", ".join(_tag_names(found)) if found else ""
        row = [recipe.name, about, size, str(recipe.recorded.get("gpu", "–"))]
        table.add_row(*row, *([names_of] if with_tags else []))
    Console().print(table)


@command.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@_CORPUS
@click.option(
    "-o",
    "--out",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Put traces and recipes into this tar archive instead of the corpus.",
)
@click.option(
    "--replay-on",
    metavar="DEVICE,...",
    default="cuda:0",
    show_default=True,
    help="Replay each new trace on these devices.",
)
@click.option(
    "--timeout",
    metavar="SECONDS",
    type=click.FloatRange(1),
    default=300,
    show_default=True,
    help="Of one step.",
)
def record(names: tuple[str, ...], corpus: Path, out: Path | None, replay_on: str, timeout: float) -> None:
    """Build and record programs again, all without a NAME, on a host with an NVIDIA GPU.

    Each runs twice and its results are compared byte for byte, and with those of the recorded run; its
    trace is to prove itself, and to replay. A program that fails is reported with its output, and the others
    still run.

    Exits 0 when all were recorded and replayed as expected, 1 when not. ZLUDA names the command that
    records, if not this one.

    Example: zluda corpus record saxpy matmul
    """
    from zluda.corpus import find_recipes
    from zluda.corpus.recording import StepFailed, host_facts
    from zluda.corpus.recording import record as record_one

    recipes = find_recipes(corpus, names)
    zluda = shlex.split(os.environ.get("ZLUDA", "")) or [sys.executable, "-m", "zluda"]
    host = host_facts()
    failed, total = [], 0
    with tempfile.TemporaryDirectory(prefix="zluda-corpus-") as work:
        done: list[tuple[Recipe, Recorded]] = []
        for recipe in recipes:
            directory = Path(work) / recipe.name
            directory.mkdir()
            try:
                recorded = record_one(
                    recipe,
                    directory,
                    host=host,
                    replay_on=[device for device in replay_on.split(",") if device],
                    zluda=zluda,
                    timeout=timeout,
                )
            except StepFailed as failure:
                failed.append(recipe.name)
                _say_lines(f"{recipe.name}: FAILED", str(failure))
                continue
            total += recorded.trace.stat().st_size
            say(f"{recipe.name}: recorded, {recorded.trace.stat().st_size} bytes; {recorded.facts['proved']}")
            for device, printed in recorded.unexpected.items():
                failed.append(recipe.name)
                _say_lines(f"{recipe.name} on {device}: not {recipe.expected}", printed)
            done.append((recipe, recorded))
        _keep(done, out)
    count = len(recipes) - len(set(failed))
    say(
        f"{count} of {len(recipes)} programs recorded and replayed as expected, {total} bytes of traces"
        + (f"; failed: {', '.join(dict.fromkeys(failed))}" if failed else "")
    )
    sys.exit(1 if failed else 0)


def _say_lines(title: str, text: str) -> None:
    """A line, and below it what a command printed."""
    from zluda.tracefile.text import printable

    say(title)
    for line in text.splitlines():
        print(f"  {printable(line)}", file=sys.stderr)


def _replaces_anything(_target: Path) -> None:
    """Recipes and archives are no traces, and are meant to be replaced."""


def _keep(done: list[tuple[Recipe, Recorded]], out: Path | None) -> None:
    """Put traces and completed recipes into the archive ``out``, or over those of the corpus."""
    from zluda.corpus.recipe import FILE, TRACE
    from zluda.tracefile.replacing import replacing

    for recipe, recorded in done:
        (recorded.trace.parent / FILE).write_text(recipe.completed(recorded.facts))
    if out is not None:
        with replacing(out, check=_replaces_anything) as part, tarfile.open(part, "w") as archive:
            for recipe, recorded in done:
                for name in (TRACE, FILE):
                    archive.add(recorded.trace.parent / name, f"{recipe.name}/{name}")
        return
    for recipe, recorded in done:
        for name in (TRACE, FILE):
            with replacing(recipe.directory / name, check=_replaces_anything) as part:
                part.write_bytes((recorded.trace.parent / name).read_bytes())


def _tags(recipe: Recipe) -> dict[str, object] | None:
    from zluda.corpus import tags_of
    from zluda.tracefile import open_trace

    if not recipe.trace.exists():
        return None
    with open_trace(recipe.trace) as trace:
        return tags_of(trace).as_dict()


def _tag_names(tags: dict[str, object]) -> list[str]:
    return [name for part in ("ptx", "driver", "libraries") for name in tags[part]]  # type: ignore[attr-defined]


def _as_dict(recipe: Recipe, tags: dict[str, object] | None) -> dict[str, object]:
    return {
        "name": recipe.name,
        "about": recipe.about,
        "package": recipe.package,
        "origin": recipe.origin,
        "licence": recipe.licence,
        "trace": str(recipe.trace) if recipe.trace.exists() else None,
        "in_repository": recipe.in_repository,
        "expected": recipe.expected,
        "tags": tags,
        "recorded": dict(recipe.recorded),
    }
