"""`zluda cache`: look into the kernel cache, empty it, take it elsewhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from zluda.errors import Error

if TYPE_CHECKING:
    from zluda.compiler.cache.store import Store


@click.group(name="cache")
def command() -> None:
    """The kernel cache: machine code of kernels that were compiled before.

    ZLUDA_CACHE_DIR says where it is, ZLUDA_CACHE_POLICY (off, normal, aggressive) whether and how much.

    Example: zluda cache info
    """


@command.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def info(as_json: bool) -> None:
    """Where the cache is, what it holds, and its limit.

    Example: zluda cache info --json
    """
    from zluda.compiler.cache.summary import summary

    found = summary(_store())
    if as_json:
        click.echo(json.dumps(found.as_dict()))
    else:
        click.echo("\n".join(found.lines()))


@command.command()
def clear() -> None:
    """Remove all entries.

    Example: zluda cache clear
    """
    count, size = _store().clear()
    click.echo(f"removed {count} entries, {size} bytes")


@command.command(name="export")
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False))
def export_command(file: Path) -> None:
    """Write what this user compiled to FILE, for `zluda cache import` elsewhere.

    Example: zluda cache export kernels.tar
    """
    from zluda.compiler.cache.archive import export_to

    count, size = export_to(_store(), file)
    click.echo(f"{file}: {count} entries, {size} bytes")


@command.command(name="import")
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False))
def import_command(file: Path) -> None:
    """Add the entries of an exported FILE, each checked. They are machine code: trust whoever made them.

    Example: zluda cache import kernels.tar
    """
    from zluda.compiler.cache.archive import import_from

    count, new = import_from(_store(), file)
    click.echo(f"{file}: {count} entries, {new} of them new")


def _store() -> Store:
    from zluda.compiler.cache import open_store

    store = open_store()
    if store is None:
        raise Error("there is no kernel cache: its directory cannot be made; name one in ZLUDA_CACHE_DIR")
    return store
