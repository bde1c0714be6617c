"""`zluda convert`: a trace as JSON lines and back, as a timeline; kernel archives as traces."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

import click

from zluda.cli.say import say

_FORMS = ("jsonl", "chrome", "trace")
_DATABASE = (b"SQLite format 3\0",)
_JSON = (b"[", b"{")


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

    A trace becomes JSON lines, which become the same trace again, or a timeline. A file of JSON lines (- for
    standard input) or a kernel_N_NAME.tar.zst archive becomes a trace.

    Example: zluda convert trace.bin timeline.json
    """
    from zluda.errors import Error

    form = form or {".jsonl": "jsonl", ".json": "chrome"}.get(Path(output).suffix, "trace")
    if form == "trace":
        if output == "-":
            raise Error("a trace is not written to standard output; name a file")
        _to_trace(file, output)
        say(f"{output}: {Path(output).stat().st_size:,} bytes")
        return
    from zluda.tracefile import open_trace

    with open_trace(file) as trace, _open(output, trace.path) as stream:
        if form == "jsonl":
            from zluda.tracefile.jsonl import write_jsonl as write
        else:
            from zluda.report.timeline import write_timeline as write
        count = write(trace, stream)
    if output != "-":
        say(f"{output}: {count:,} {'lines' if form == 'jsonl' else 'events'}")


def _to_trace(file: str, output: str) -> None:
    if file.endswith((".tar.zst", ".tzst")):
        from zluda.replay.kernel_archive import convert

        convert(Path(file), Path(output))
        return
    from zluda.tracefile.jsonl import lines_of, read_jsonl

    if file == "-":
        read_jsonl(lines_of(sys.stdin, "standard input"), Path(output), name="standard input")
        return
    _refuse_a_trace(Path(file), output)
    with open(file, encoding="utf-8") as stream:
        read_jsonl(lines_of(stream, file), Path(output), name=file)


def _refuse_a_trace(path: Path, output: str) -> None:
    """A trace is not made of a trace: perhaps the suffix was forgotten."""
    from zluda.errors import TraceError

    if path.is_file() and _begins(path, _DATABASE):
        raise TraceError(
            f"is a trace already; say what to make of it: --to jsonl or chrome, or {output}.jsonl",
            file=str(path),
        )


def _begins(path: Path, with_what: tuple[bytes, ...]) -> bool:
    with path.open("rb") as stream:
        return stream.read(max(map(len, with_what))).startswith(with_what)


@contextmanager
def _open(output: str, source: Path) -> Iterator[TextIO]:
    """The file to write, which is there when it is whole; a device or a pipe is written to as it is."""
    target = Path(output)
    if output == "-":
        yield sys.stdout
    elif target.exists() and not target.is_file() and not target.is_dir():
        with target.open("w", encoding="utf-8") as stream:
            yield stream
    else:
        from zluda.tracefile.replacing import replacing

        with (
            replacing(target, source=source, check=_check_replaceable) as part,
            part.open("w", encoding="utf-8") as stream,
        ):
            yield stream


def _check_replaceable(path: Path) -> None:
    """A slip must not cost a trace, a program or a source file: what is no JSON is not replaced."""
    from zluda.errors import TraceError

    if path.exists() and path.stat().st_size and not _begins(path, _JSON):
        raise TraceError("is there and holds no JSON; not replaced, choose another name", file=str(path))
