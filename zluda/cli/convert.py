"""`zluda convert`: a trace as JSON lines and back, as a timeline; kernel archives as traces."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

import click

from zluda.cli.say import say

_FORMS = ("jsonl", "chrome", "trace")


@click.command(name="convert")
@click.argument("file", metavar="FILE")
@click.argument("output", metavar="OUTPUT")
@click.option(
    "--to",
    "form",
    type=click.Choice(_FORMS),
    help="jsonl: every row; chrome: a timeline for Perfetto; trace: from JSON lines or a kernel archive."
    "  [default: by OUTPUT's suffix .jsonl, .json, other]",
)
def command(file: str, output: str, form: str | None) -> None:
    """Write FILE in another form to OUTPUT, which may be - for standard output (not for a trace).

    A trace becomes JSON lines, which become the same trace again, or a timeline. A file of JSON lines or a
    kernel_N_NAME.tar.zst archive becomes a trace.

    Example: zluda convert trace.bin timeline.json
    """
    from pathlib import Path

    from zluda.errors import Error

    form = form or {".jsonl": "jsonl", ".json": "chrome"}.get(Path(output).suffix, "trace")
    if form == "trace":
        if output == "-":
            raise Error("a trace is not written to standard output; name a file")
        _to_trace(file, output)
        say(f"{output}: {Path(output).stat().st_size:,} bytes")
        return
    from zluda.tracefile import open_trace

    with open_trace(file) as trace, _open(output) as stream:
        if form == "jsonl":
            from zluda.tracefile.jsonl import write_jsonl as write
        else:
            from zluda.report.timeline import write_timeline as write
        count = write(trace, stream)
    if output != "-":
        say(f"{output}: {count:,} {'lines' if form == 'jsonl' else 'events'}")


def _to_trace(file: str, output: str) -> None:
    from pathlib import Path

    if file.endswith((".tar.zst", ".tzst")):
        from zluda.replay.kernel_archive import convert

        convert(Path(file), Path(output))
        return
    from zluda.errors import TraceError
    from zluda.tracefile.jsonl import read_jsonl

    try:
        with open(file, encoding="utf-8") as lines:
            read_jsonl(lines, Path(output), name=file)
    except UnicodeDecodeError as error:
        raise TraceError("is neither JSON lines nor a .tar.zst archive", file=file) from error


@contextmanager
def _open(output: str) -> Iterator[TextIO]:
    """The file to write; a trace that is there is not overwritten by something else."""
    if output == "-":
        import sys

        yield sys.stdout
        return
    from pathlib import Path

    from zluda.errors import Error

    with_magic = Path(output)
    if with_magic.is_file() and with_magic.open("rb").read(16) == b"SQLite format 3\0":
        raise Error(f"{output}: is there and is a database, perhaps a trace; not replaced")
    with open(output, "w", encoding="utf-8") as stream:
        yield stream
