"""Making a file that appears when it is whole, in the place of one that may be lost."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from zluda.errors import TraceError
from zluda.tracefile import schema
from zluda.tracefile.ring import rings_directory


@contextmanager
def replacing(
    target: Path, *, source: Path | None = None, check: Callable[[Path], None] = schema.check_replaceable
) -> Iterator[Path]:
    """Gives a name beside ``target`` to write at. What was written there becomes ``target`` at the end of the
    block; where the block fails, ``target`` is as it was before.

    Raises :class:`TraceError` where ``target`` cannot be written, is the ``source``, or is there and
    ``check`` refuses to lose it (by default: what is no trace).
    """
    check_place(target, source)
    check(target)
    part = target.with_name(f".zluda-{os.getpid()}-{secrets.token_hex(4)}.part")
    try:
        yield part
        with schema.sqlite_errors(target):
            for name in schema.sidecars(target):  # of the trace that was there
                name.unlink(missing_ok=True)
            part.replace(target)
    except TraceError as error:
        if error.file == str(part):
            raise TraceError(error.message, file=str(target), offset=error.offset, call=error.call) from error
        raise
    finally:
        for name in (part, *schema.sidecars(part)):
            name.unlink(missing_ok=True)


def check_place(target: Path, source: Path | None = None) -> None:
    """Raises :class:`TraceError` where no file can be made at ``target``, or it is the one that is read."""
    with schema.sqlite_errors(target):
        if str(target) == "-":
            raise TraceError("a trace is not written to standard output; name a file")
        if not target.name or target.is_dir():
            raise TraceError("is a directory; name a file", file=str(target))
        if not target.parent.is_dir():
            raise TraceError(f"cannot be made: there is no directory {target.parent}", file=str(target))
        if not os.access(target.parent, os.W_OK):
            raise TraceError(
                f"cannot be made: the directory {target.parent} is not writable", file=str(target)
            )
        if source is not None and target.exists() and source.exists() and target.samefile(source):
            raise TraceError("is the file that is read; choose another name", file=str(target))
        if rings_directory(target).exists():
            raise TraceError(
                f"what a killed recorder left of it is in {target.name}.rings; open it first,"
                " or choose another name",
                file=str(target),
            )
