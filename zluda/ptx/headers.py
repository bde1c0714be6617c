"""Function headers: linkage, parameters and performance directives (PTX ISA 5.1.6, 11.1, 11.4)."""

from __future__ import annotations

from dataclasses import field

from zluda.ptx.declarations import LINKAGES, attribute_list, parse_variables
from zluda.ptx.module import Variable
from zluda.ptx.source import Source
from zluda.ptx.tokens import Tokens
from zluda.records import dataclass


@dataclass(slots=True)
class Header:
    """Everything of a function before its body."""

    name: str
    is_entry: bool
    linkage: str
    parameters: tuple[Variable, ...]
    returns: tuple[Variable, ...]
    directives: dict[str, tuple[int, ...]]
    pragmas: list[str] = field(default_factory=list)
    attributes: list[str] = field(default_factory=list)


_DIRECTIVES = frozenset(
    {
        "maxntid",
        "reqntid",
        "minnctapersm",
        "maxnctapersm",
        "maxnreg",
        "maxclusterrank",
        "reqnctapercluster",
        "explicitcluster",
        "blocksareclusters",
        "noreturn",
        "abi_preserve",
        "abi_preserve_control",
    }
)


def parse_header(source: Source, start: int, end: int) -> Header:
    """``[.linkage] .entry|.func [(returns)] name [(parameters)] directives``."""
    tokens = Tokens(source, start, end)
    linkage = ""
    while tokens.token[1:] in LINKAGES:
        linkage = tokens.advance()[1:]
    is_entry = tokens.token == ".entry"
    if tokens.token not in (".entry", ".func"):
        tokens.fail(".entry or .func")
    tokens.advance()
    attributes = list(attribute_list(tokens)) if tokens.accept(".attribute") else []
    returns = parameter_list(tokens) if tokens.token == "(" else ()
    directives: dict[str, tuple[int, ...]] = {}
    if tokens.accept(".noreturn"):
        directives["noreturn"] = ()
    header = Header(tokens.name(), is_entry, linkage, (), returns, directives, [], attributes)
    if tokens.token == "(":
        header.parameters = parameter_list(tokens)
    while tokens.token:
        _directive(tokens, header)
    return header


def parameter_list(tokens: Tokens) -> tuple[Variable, ...]:
    """``(.param .u64 a, .reg .b32 b)``."""
    tokens.expect("(")
    parameters: list[Variable] = []
    while tokens.token != ")":
        parameters += parse_variables(tokens, many=False)
        if not tokens.accept(","):
            break
    tokens.expect(")")
    return tuple(parameters)


def _directive(tokens: Tokens, header: Header) -> None:
    word = tokens.token
    if word == ".pragma":
        tokens.advance()
        header.pragmas.append(tokens.advance().strip('"'))
        tokens.accept(";")
    elif word == ".attribute":
        tokens.advance()
        header.attributes += attribute_list(tokens)
    elif word[:1] == "." and word[1:] in _DIRECTIVES:
        tokens.advance()
        header.directives[word[1:]] = _integers(tokens)
        tokens.accept(";")
    else:
        tokens.fail("a directive such as .maxntid, or the body")


def _integers(tokens: Tokens) -> tuple[int, ...]:
    values: list[int] = []
    while tokens.token and tokens.token[0].isdigit():
        values.append(tokens.integer())
        if not tokens.accept(","):
            break
    return tuple(values)
