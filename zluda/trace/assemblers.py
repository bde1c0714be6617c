"""``ptxas`` among the children of a program that is recorded: what it made of which PTX.

Triton, XLA and programs that run nvcc have it make machine code, which they hand to the driver without its
PTX, and delete the files. So such a child is traced: its PTX is read before it runs, and what it made when it
is about to end, before its parent can know. It gets no agent, for it does not use the driver.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shlex
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePath

from zluda.ptx.containers import Container, identify
from zluda.records import dataclass
from zluda.trace.hold import Seized
from zluda.trace.programs import seen_by
from zluda.tracefile.blobs import MAX_BLOB_BYTES

NAME = "ptxas"
"""How the file's name begins: there is a ``ptxas-blackwell``, too. agent/execs.c has it as well."""

_OUTPUT, _STRING, _OPTIONS = (
    ("-o", "--output-file"),
    ("-ias", "--input-as-string"),
    ("-optf", "--options-file"),
)
_DEFAULT_OUTPUT = "elf.o"


class Assembled:
    """PTX by the machine code that was made of it, kept in a directory: the session puts it there, and makes
    the directory for the first, and the processes that write traces look for it.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def keep(self, cubin: bytes, text: bytes) -> None:
        self.directory.mkdir(mode=0o700, exist_ok=True)
        path = self._path(cubin)
        part = path.with_suffix(f".{os.getpid()}.part")
        part.write_bytes(text)
        part.replace(path)

    def find(self, cubin: bytes) -> bytes | None:
        """The text; None where none of the children made this."""
        try:
            return self._path(cubin).read_bytes()
        except OSError:
            return None

    def _path(self, cubin: bytes) -> Path:
        return self.directory / f"{hashlib.sha256(cubin).hexdigest()}.ptx"


@dataclass(frozen=True, slots=True)
class Work:
    """What a command line asks for: one text, and the name of what is made of it."""

    text: bytes
    output: str


def is_assembler(command: Sequence[str]) -> bool:
    """Whether a command line is one of ``ptxas``."""
    return bool(command) and PurePath(command[0]).name.startswith(NAME)


def work_of(arguments: Sequence[str], read: Callable[[str], bytes | None]) -> Work | None:
    """What ``ptxas`` with these arguments is to do; None where it is nothing that is loaded afterwards (no
    text, or several, which make several files). ``read`` gives what a file holds, None where it cannot be
    read.
    """
    output, texts = _DEFAULT_OUTPUT, []
    words = iter(_expanded(arguments, read))
    for word in words:
        option, given, value = word.partition("=")
        if not option.startswith("-"):
            texts.append(read(word) or b"")
        elif option in _OUTPUT:
            output = value if given else next(words, "")
        elif option in _STRING:
            texts.append(os.fsencode(value if given else next(words, "")))
    texts = [text for text in texts if identify(text) is Container.PTX]
    return Work(texts[0], output) if len(texts) == 1 else None


def _expanded(arguments: Sequence[str], read: Callable[[str], bytes | None]) -> Iterator[str]:
    """With what stands in files of options in the place of those."""
    words = iter(arguments)
    for word in words:
        option, given, value = word.partition("=")
        if option in _OPTIONS:
            content = read(value if given else next(words, "")) or b""
            with contextlib.suppress(ValueError):  # an open quotation mark, which ptxas refuses
                yield from shlex.split(os.fsdecode(content))
        else:
            yield word


def watch(process: Seized, command: Sequence[str], assembled: Assembled, is_over: Callable[[], bool]) -> None:
    """Let a stopped ``ptxas`` run, and keep what it made; or until nobody is interested any more. Raises
    :class:`zluda.Error` where it may not be traced.
    """

    def read(name: str) -> bytes | None:
        try:
            with open(seen_by(process.pid, name), "rb") as file:
                content = file.read(MAX_BLOB_BYTES + 1)
        except (OSError, ValueError):  # not there, no file, no name
            return None
        return content if len(content) <= MAX_BLOB_BYTES else None

    work = work_of(command[1:], read)
    if work is None or not process.stopped_at_end(is_over):
        return
    cubin = read(work.output)
    if cubin is not None and identify(cubin) is Container.CUBIN:
        with contextlib.suppress(OSError):  # no room: the module has no PTX then, and says so
            assembled.keep(cubin, work.text)
