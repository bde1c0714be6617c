"""``record.toml``: what a program of the corpus is, and how it is built and recorded."""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from zluda.errors import Error
from zluda.records import dataclass

FILE = "record.toml"
TRACE = "trace.bin"
SHARED = {".cu": ("*.cuh",), ".py": ("*.py",)}
"""By the suffix of a program's own files, what programs of its kind share: files beside their directories."""

_RECORDED = "[recorded]"
_RESULTS = ("same", "none")
_COMPACT = (("strip", "--compact"),)
_LICENCES = frozenset(
    {"MIT OR Apache-2.0", "MIT", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "Zlib", "CC0-1.0"}
)
"""Permissive ones, by their SPDX names: PTX of packages is handed on with a trace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """A compiler, its flags, and the source that it makes ``./<name of the directory>`` of."""

    compiler: str
    source: str
    flags: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """One program. Names of files are relative to ``directory``; commands run in a directory of their own.

    ``package`` is what the program exercises: a framework's name, or "" for a program of our own. ``needs``
    are Python modules that must be there. ``results``: "same" when two runs write equal ``result.bin``,
    "none" when the program writes none. ``cut`` are ``zluda`` verbs with their options, each of which makes
    the next trace of the one before (``["strip", "--machine-code"]``). ``in_repository`` is false for a trace
    too large to be kept. ``expected`` is the verdict of a replay on the GPU that recorded it.
    """

    name: str
    directory: Path
    about: str
    package: str
    origin: str
    licence: str
    build: Build | None
    command: tuple[str, ...]
    capture: str
    options: tuple[str, ...]
    needs: tuple[str, ...]
    environment: Mapping[str, str]
    results: str
    cut: tuple[tuple[str, ...], ...]
    in_repository: bool
    expected: str
    recorded: Mapping[str, Any]

    @property
    def trace(self) -> Path:
        """Where its trace is, if it is there."""
        return self.directory / TRACE

    @property
    def sources(self) -> list[Path]:
        """Every file it is made from: its own, but recipe and trace, and what programs share."""
        own = sorted(p for p in self.directory.iterdir() if p.is_file() and p.name not in (FILE, TRACE))
        suffixes = sorted({file.suffix for file in own} & SHARED.keys())
        patterns = [pattern for suffix in suffixes for pattern in SHARED[suffix]]
        return own + [file for pattern in patterns for file in sorted(self.directory.parent.glob(pattern))]

    def source_digest(self) -> str:
        """BLAKE2b, 128 bits, of the sources: a trace says which it is of."""
        return hashlib.blake2b(
            b"".join(file.read_bytes() for file in self.sources), digest_size=16
        ).hexdigest()

    def completed(self, recorded: Mapping[str, Any]) -> str:
        """The text of ``record.toml`` with its ``[recorded]`` table replaced."""
        head = (self.directory / FILE).read_text().split(_RECORDED)[0].rstrip()
        lines = "".join(f"{key} = {_toml(value)}\n" for key, value in recorded.items())
        return f"{head}\n\n{_RECORDED}\n{lines}"


def find_recipes(corpus: Path, names: Iterable[str] = ()) -> list[Recipe]:
    """The programs below ``corpus``, or those that are named, in order. An :class:`Error` names one that is
    not there.
    """
    directories = sorted(path.parent for path in corpus.glob(f"*/{FILE}"))
    known = {directory.name: directory for directory in directories}
    if not known:
        raise Error(f"{corpus}: no program with a {FILE} (--corpus DIR says where the corpus is)")
    chosen = list(names) or list(known)
    for name in chosen:
        if name not in known:
            raise Error(f"{name}: not in {corpus}, which has {', '.join(known)}")
    return [read_recipe(known[name]) for name in dict.fromkeys(chosen)]


def read_recipe(directory: Path) -> Recipe:
    """The program in ``directory``; an :class:`Error` names the file and what is wrong in it."""
    file = directory / FILE
    try:
        text = tomllib.loads(file.read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise Error(f"{file}: {error}") from None
    table = _Table(file, text)
    build = table.table("build", default=None)
    record = table.table("record")
    recipe = Recipe(
        name=directory.name,
        directory=directory,
        about=table.string("about"),
        package=table.string("package", default=""),
        origin=table.string("origin", default="written for this corpus"),
        licence=table.string("licence", default="MIT OR Apache-2.0", choices=_LICENCES),
        build=build and _build(build),
        command=record.strings("command"),
        capture=record.string("capture", default="outputs", choices=("calls", "outputs", "full")),
        options=record.strings("options", default=()),
        needs=record.strings("needs", default=()),
        environment=record.string_map("environment"),
        results=record.string("results", default="same", choices=_RESULTS),
        cut=record.lists("cut") or _COMPACT,
        in_repository=record.flag("in_repository", default=True),
        expected=record.string("expected", default="identical"),
        recorded=text.get("recorded", {}),
    )
    record.done()
    table.done({"recorded"})
    if not recipe.command:
        raise Error(f"{file}: record.command is empty")
    return recipe


def _build(table: _Table) -> Build:
    build = Build(
        compiler=table.string("compiler"),
        source=table.string("source"),
        flags=table.strings("flags", default=()),
    )
    table.done()
    return build


def _toml(value: object) -> str:
    return json.dumps(
        value, ensure_ascii=False
    )  # strings, numbers, booleans and lists of them are alike in both


_MISSING: Any = object()


class _Table:
    """Typed look-ups that name the file and the key; a key that nobody asked for is an error, not ignored."""

    def __init__(self, file: Path, values: Mapping[str, Any], name: str = "") -> None:
        self._file, self._values, self._name = file, values, name
        self._asked: set[str] = set()

    def string(self, key: str, *, default: str = _MISSING, choices: Iterable[str] = ()) -> str:
        value = self._get(key, default)
        if not isinstance(value, str):
            raise self._wrong(key, "text")
        if choices and value not in choices:
            raise self._wrong(key, f"one of {', '.join(sorted(choices))}")
        return value

    def flag(self, key: str, *, default: bool) -> bool:
        value = self._get(key, default)
        if not isinstance(value, bool):
            raise self._wrong(key, "true or false")
        return value

    def strings(self, key: str, *, default: tuple[str, ...] = _MISSING) -> tuple[str, ...]:
        value = self._get(key, default)
        if not isinstance(value, list | tuple) or not all(isinstance(word, str) for word in value):
            raise self._wrong(key, "a list of text")
        return tuple(value)

    def lists(self, key: str) -> tuple[tuple[str, ...], ...]:
        value = self._get(key, ())
        if not isinstance(value, list | tuple) or not all(
            isinstance(words, list) and words and all(isinstance(word, str) for word in words)
            for words in value
        ):
            raise self._wrong(key, "a list of lists of text")
        return tuple(tuple(words) for words in value)

    def string_map(self, key: str) -> dict[str, str]:
        value = self._get(key, {})
        if not isinstance(value, dict) or not all(isinstance(word, str) for word in value.values()):
            raise self._wrong(key, "a table of text")
        return dict(value)

    def table(self, key: str, *, default: None = _MISSING) -> Any:
        value = self._get(key, default)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self._wrong(key, "a table")
        return _Table(self._file, value, f"{key}.")

    def done(self, also: Iterable[str] = ()) -> None:
        unknown = sorted(self._values.keys() - self._asked - set(also))
        if unknown:
            raise Error(f"{self._file}: unknown: {', '.join(self._name + key for key in unknown)}")

    def _get(self, key: str, default: Any) -> Any:
        self._asked.add(key)
        value = self._values.get(key, default)
        if value is _MISSING:
            raise Error(f"{self._file}: {self._name}{key} is missing")
        return value

    def _wrong(self, key: str, wanted: str) -> Error:
        return Error(f"{self._file}: {self._name}{key} must be {wanted}")
