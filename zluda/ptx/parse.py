"""PTX text to a :class:`Module`.

The text is skimmed once: headers of functions, variables and the other directives at module level are
found, bodies only matched brace for brace. A body is parsed when its function is first asked for.
"""

from __future__ import annotations

import bisect
import contextlib
import gc
import re
from collections.abc import Iterator, Sequence

from zluda.errors import PtxError
from zluda.patterns import pattern
from zluda.ptx.body import BodyParser
from zluda.ptx.declarations import element_bytes, parse_variables
from zluda.ptx.module import Function, Variable
from zluda.ptx.source import Source
from zluda.ptx.tokens import Tokens
from zluda.records import dataclass

_CHUNK = pattern(
    r"""\s*(?:
      \.version\s+(\d+)\.(\d+)                                       # 1 2
    | \.target\s+([\w]+(?:\s*,\s*\w+)*)                              # 3
    | \.address_size\s+(\d+)                                         # 4
    | \.file\s+(\d+)\s+"([^"\n]*)"(?:\s*,\s*\d+\s*,\s*\d+)?           # 5 6
    | \.section\s+([.\w$]+)\s*\{                                     # 7
    | \.alias\s+([\w$%]+)\s*,\s*([\w$%]+)\s*;                        # 8 9
    | \.pragma\s+("[^"\n]*"(?:\s*,\s*"[^"\n]*")*)\s*;                # 10
    | \.loc\s[^\n]*(?P<loc>)                                         # 11
    | (\.[A-Za-z][^;{"=]*(?:"[^"\n]*"\s*;?[^;{"=]*)*)                # 12 declaration
    )""",
    re.VERBOSE,
)
_FUNCTION = pattern(r"\.(entry|func)\b")
_FUNCTION_NAME = pattern(
    r"\.(?:entry|func)\b(?:\s*\.attribute\s*\([^()]*(?:\([^()]*\))?[^()]*\))?"
    r"\s*(?:\([^)]*\))?\s*(?:\.noreturn\s+)?([A-Za-z_$%][\w$]*)"
)
_BEFORE_HEADER = pattern(r"[ \t]*(?:\.(?:extern|visible|weak|common)\s+)*")
_BRACE = pattern(r'[{}]|"[^"\n]*"')
_VARIABLE_NAME = pattern(r"([A-Za-z_$%][\w$]*)\s*(?:\[[^\]]*\]\s*)*\Z")


@dataclass(frozen=True, slots=True)
class _Extent:
    """Where a function lies: its header starts at ``start``, its body (if any) is [body, end)."""

    start: int
    body: int | None
    end: int


@dataclass(frozen=True, slots=True)
class Section:
    """A debug ``.section``: its name and its text, kept as it stands."""

    name: str
    text: str


class Module:
    """One PTX module. Functions are parsed when first asked for, and one bad one does not lose the rest.

    ``version`` is (major, minor) of ``.version``; ``target`` the words of ``.target``; ``address_size`` 32
    or 64; ``files`` the ``.file`` table; ``aliases`` maps ``.alias`` names to functions.
    """

    def __init__(self, text: str, file: str = "<ptx>") -> None:
        self.file = file
        self.version: tuple[int, int] = (0, 0)
        self.target: tuple[str, ...] = ()
        self.address_size = 64
        self.files: dict[int, str] = {}
        self.aliases: dict[str, str] = {}
        self.pragmas: list[str] = []
        self.sections: list[Section] = []
        self._source = Source(text, file)
        self._extents: dict[str, _Extent] = {}
        self._entries: list[str] = []
        self._functions: dict[str, Function] = {}
        self._errors: dict[str, PtxError] = {}
        self._chunks: dict[str, tuple[int, int]] = {}
        self._variables: dict[str, Variable] | None = None
        _Skimmer(self, self._source).skim()

    @property
    def source(self) -> str:
        """The text the module was made from."""
        return self._source.text

    @property
    def code(self) -> str:
        """The text with comments blanked out: offsets and lines are the same."""
        return self._source.code

    def span(self, name: str) -> tuple[int, int | None, int]:
        """Offsets of a function's header, of its body (None where it has none) and of its end, where the
        body's ``}`` or the ``;`` stands. KeyError where there is no such function.
        """
        extent = self._extents[name]
        return extent.start, extent.body, extent.end

    def line(self, offset: int) -> int:
        """The line (1-based) of an offset."""
        return self._source.location(offset).line

    @property
    def function_names(self) -> tuple[str, ...]:
        """Every ``.entry`` and ``.func``, declarations without a body too, in the order of the text."""
        return tuple(self._extents)

    @property
    def kernel_names(self) -> tuple[str, ...]:
        """The ``.entry`` functions that have a body."""
        return tuple(self._entries)

    def defines(self, name: str) -> bool:
        """Whether a function of this name has a body here."""
        extent = self._extents.get(name)
        return extent is not None and extent.body is not None

    @property
    def variables(self) -> dict[str, Variable]:
        """Variables of module scope by name; those that do not parse are in :meth:`errors` instead."""
        if self._variables is None:
            self._variables = {}
            for name, (start, end) in self._chunks.items():
                try:
                    self._parse_variables(start, end)
                except PtxError as error:
                    self._errors[name] = error
        return self._variables

    def function(self, name: str) -> Function:
        """The parsed function; raises :class:`PtxError` when it does not parse, or when there is none."""
        name = self.aliases.get(name, name)
        if name in self._errors:
            raise self._errors[name]
        found = self._functions.get(name)
        if found is None:
            extent = self._extents.get(name)
            if extent is None:
                known = ", ".join(self._entries[:5]) or "none"
                raise PtxError(
                    "no such function", file=self.file, text=name, expected=f"one of the kernels {known}"
                )
            found = self._parse_function(name, extent)
            self._functions[name] = found
        return found

    def errors(self) -> dict[str, PtxError]:
        """Parse everything; the functions and variables that are lost, with why."""
        _ = self.variables
        for name in self._extents:
            try:
                self.function(name)
            except PtxError as error:
                self._errors[name] = error
        return dict(self._errors)

    def _parse_function(self, name: str, extent: _Extent) -> Function:
        try:
            with _collector_paused():
                return BodyParser(
                    self._source, self._element_bytes, self._space, architecture(self.target)
                ).parse(extent.start, extent.body, extent.end)
        except PtxError as error:
            self._errors[name] = error
            raise

    def _element_bytes(self, name: str) -> int | None:
        """Size of an element of a variable, 0 for a function, None for what the module does not declare."""
        variable = self.variables.get(name)
        if variable is not None:
            return element_bytes(variable)
        return 0 if name in self._extents or name in self.aliases else None

    def _space(self, name: str) -> str:
        """State space of a variable, "" for what is not in memory."""
        variable = self.variables.get(name)
        return variable.space if variable is not None and variable.type.kind != "ref" else ""

    def _parse_variables(self, start: int, end: int) -> None:
        tokens = Tokens(self._source, start, end)
        for variable in parse_variables(tokens):
            known = self._variables.get(variable.name) if self._variables is not None else None
            if known is None or known.linkage == "extern":
                assert self._variables is not None
                self._variables[variable.name] = variable
        if tokens.token:
            tokens.fail("',' or ';'")


@contextlib.contextmanager
def _collector_paused() -> Iterator[None]:
    """No cycle collection while one body is parsed: it makes many small objects and no cycles, and passing
    over all of them again and again costs a third of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


class _Skimmer:
    """Finds what stands at module level and fills a :class:`Module`."""

    def __init__(self, module: Module, source: Source) -> None:
        self.module, self.source = module, source
        self.position = 0
        self.headers = _header_starts(source.code)

    def skim(self) -> None:
        code = self.source.code
        end = len(code)
        while (start := self.source.skip_blank(self.position)) < end:
            if code[start] == ";":
                self.position = start + 1
                continue
            match = _CHUNK.match(code, start)
            if match is None:
                line = code[start : start + 80].split("\n", 1)[0]
                raise self.source.error(start, "not a module directive", line, ".version, .entry, .global, …")
            self.position = match.end()
            self._chunk(match, start)
        if self.module.version == (0, 0):
            raise self.source.error(0, "no .version directive", code[:40], ".version before anything else")

    def _chunk(self, match: re.Match[str], start: int) -> None:
        module = self.module
        major, minor, target, size, index, file, section, alias, aliasee, pragma = match.group(*range(1, 11))
        if major:
            module.version = (int(major[:6]), int(minor[:6]))
        elif target:
            module.target = tuple(word.strip() for word in target.split(","))
        elif size:
            self._address_size(size, match.start(4))
        elif index:
            module.files[int(index[:9])] = file
        elif section:
            self._section(section, match.end(), start)
        elif alias:
            module.aliases[alias] = aliasee
        elif pragma:
            module.pragmas += re.findall(r'"([^"]*)"', pragma)
        elif match.group("loc") is None:
            self._declaration(start)

    def _address_size(self, size: str, offset: int) -> None:
        if size not in ("32", "64"):
            raise self.source.error(offset, "not an address size", size, "32 or 64")
        self.module.address_size = int(size)

    def _section(self, name: str, body: int, start: int) -> None:
        end = self._closing_brace(body, len(self.source.code))
        if end is None:
            raise self.source.error(start, "section without '}'", name, "'}'")
        self.module.sections.append(Section(name, self.source.text[body:end].strip()))
        self.position = end + 1

    def _declaration(self, start: int) -> None:
        code = self.source.code
        stop = code[self.position] if self.position < len(code) else ""
        head = code[start : self.position]
        if _FUNCTION.search(head):
            self._function(start, head, stop)
            return
        if stop == "=":
            stop_at = code.find(";", self.position)
            self.position = stop_at if stop_at >= 0 else len(code)
            stop = ";" if stop_at >= 0 else ""
        if stop != ";":
            raise self.source.error(start, "declaration without ';'", head, "';' at its end")
        name = _VARIABLE_NAME.search(head.split("=")[0].split(",")[0])
        if name is None:
            raise self.source.error(start, "not a declaration", head, "a state space, a type and a name")
        key = name.group(1)
        if key in self.module._chunks:
            key = f"{key}@{start}"
        self.module._chunks[key] = (start, self.position)
        self.position += 1

    def _function(self, start: int, head: str, stop: str) -> None:
        match = _FUNCTION_NAME.search(head)
        if match is None:
            raise self.source.error(start, "function without a name", head, "a name")
        name, is_entry = match.group(1), ".entry" in match.group()
        if stop == "{":
            body = self.position + 1
            following = bisect.bisect_left(self.headers, body)
            limit = self.headers[following] if following < len(self.headers) else len(self.source.code)
            close = self._closing_brace(body, limit)
            extent = _Extent(start, body, limit if close is None else close)
            self.position = limit if close is None else close + 1
            if close is None:
                self.module._errors[name] = self.source.error(
                    start, "function without '}'", name, "'}' at its end"
                )
        elif stop == ";":
            extent = _Extent(start, None, self.position)
            self.position += 1
        else:
            raise self.source.error(start, "function without a body", head, "'{' or ';'")
        self._add(name, is_entry, extent)

    def _add(self, name: str, is_entry: bool, extent: _Extent) -> None:
        known = self.module._extents.get(name)
        if known is not None and known.body is not None:
            if extent.body is not None:
                self.module._errors[name] = self.source.error(extent.start, "function defined twice", name)
            return
        self.module._extents[name] = extent
        if is_entry and extent.body is not None:
            self.module._entries.append(name)

    def _closing_brace(self, start: int, end: int) -> int | None:
        """Offset of the ``}`` that closes a block opened just before ``start``."""
        depth = 1
        for match in _braces(self.source.code, start, end):
            depth += 1 if match.group() == "{" else -1
            if depth == 0:
                return match.start()
        return None


def architecture(target: Sequence[str]) -> int:
    """The number of a target (90 of ``sm_90a``); of none, or one that is none, more than any has."""
    found = re.fullmatch(r"sm_(\d{1,4})\w*", target[0]) if target else None
    return int(found[1]) if found else 10_000


def _header_starts(code: str) -> list[int]:
    """Where lines begin that can only be function headers: a body without ``}`` ends there at the latest."""
    starts = []
    for word in (".entry", ".func"):
        at = code.find(word)
        while at >= 0:
            line = code.rfind("\n", 0, at) + 1
            if (
                _BEFORE_HEADER.fullmatch(code, line, at)
                and not code[at + len(word) : at + len(word) + 1].isalnum()
            ):
                starts.append(line)
            at = code.find(word, at + 1)
    return sorted(starts)


def _braces(code: str, start: int, end: int) -> Iterator[re.Match[str]]:
    for match in _BRACE.finditer(code, start, end):
        if match.group()[0] != '"':
            yield match


def parse_module(data: str | bytes, file: str = "<ptx>") -> Module:
    """A module from PTX text; trailing NULs are dropped.

    Raises :class:`PtxError` for what is wrong at module level; what is wrong inside a function is raised by
    :meth:`Module.function`.
    """
    if isinstance(data, bytes | bytearray | memoryview):
        data = decode(bytes(data), file)
    return Module(data.rstrip("\0"), file)


def decode(data: bytes, file: str = "<ptx>") -> str:
    """PTX bytes as text: ASCII, with UTF-8 in comments and strings; raises :class:`PtxError`."""
    data = data.rstrip(b"\0")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return data.decode("latin-1")
