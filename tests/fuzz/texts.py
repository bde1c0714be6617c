"""Damaged PTX: whatever the text, it ends in a module or in a ``PtxError``.

    python tests/fuzz/texts.py --count 100000 --seed 1

mutates corpus programs, this repository's other PTX and drawn programs by characters, tokens and lines.
Prints every text that ended in anything else, or took longer than :data:`SECONDS`.
"""

from __future__ import annotations

import argparse
import functools
import random
import re
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

from zluda.errors import PtxError
from zluda.ptx import parse_module
from zluda.tracefile import open_trace

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 5.0
"""How long a text of a few kilobytes may take."""
MEMORY = 4 << 30
"""Bytes of address space that the script keeps to."""
LARGEST = 6000
"""Characters of a text that is mutated."""

_TOKEN = re.compile(r"\s+|//[^\n]*|[\w.$%]+|\"[^\"\n]*\"|.", re.DOTALL)
_STRANGE = [
    "\0",
    "\xff",
    "é",
    "→",
    "\u202e",
    "𝟙",
    "\x1b",
    "{",
    "}",
    "(",
    ")",
    "[",
    "]",
    ";",
    ",",
    '"',
    "/*",
    "//",
    "@",
]
_NUMBERS = [
    *("0", "-1", "0x", "08", "1e999", "0f", "0f3F80000", "0dFFFFFFFFFFFFFFFF", "9" * 40, "0x" + "F" * 40),
    *("18446744073709551616", "-9223372036854775809", "0b", "0b102", "1.0e", "4294967296", "0xFFFFFFFFU"),
]
_WORDS = [
    *(".reg", ".param", ".func", ".entry", ".global", ".align", ".b8", ".v4", ".f32", ".pred", ".extern"),
    *(".visible", ".weak", ".version", ".target", ".branchtargets", ".callprototype", ".section", ".loc"),
    *("%tid.x", "%p", "_", "ret", "call", "bra", "mov", "mad.wide", ".u999", "add", "ld.param.v2"),
]


@functools.cache
def seeds() -> list[str]:
    """What is mutated: kernels short enough to be many."""
    from drawing import Drawer
    from statements import all_rows
    from writing import alone

    found = [path.read_text() for path in sorted((ROOT / "tests/ptx/data").glob("*.ptx"))]
    for trace in sorted((ROOT / "corpus").glob("*/trace.bin")):
        with open_trace(trace) as opened:
            texts = map(opened.ptx, opened.module_list)
            found += [text.decode() for text in texts if text]
    drawn = [alone(Drawer(all_rows(), largest=20).program(seed)) for seed in range(30)]
    whole = {_whole(text) for text in found + drawn}
    return sorted(text for text in whole if not parse_module(text).errors())


def _whole(text: str) -> str:
    """The text's beginning up to the end of a function, so that it is a module."""
    end = text.rfind("\n}", 0, LARGEST)
    return text[: end + 2] if end > 0 else text[:LARGEST]


# --- mutations -------------------------------------------------------------------------------------------

Mutation = Callable[[random.Random, str], str]


def _characters(rng: random.Random, text: str) -> str:
    at = rng.randrange(len(text) + 1)
    match rng.randrange(4):
        case 0:
            return text[:at] + text[at + rng.randint(1, 4) :]
        case 1:
            return text[:at] + rng.choice(_STRANGE) + text[at:]
        case 2:
            return text[:at] + chr(rng.randrange(1, 256)) + text[at + 1 :]
    return text[:at]


def _tokens(rng: random.Random, text: str) -> str:
    tokens = _TOKEN.findall(text)
    solid = [i for i, token in enumerate(tokens) if not token.isspace()]
    if not solid:
        return text + rng.choice(_WORDS)
    at, other = rng.choice(solid), rng.choice(solid)
    match rng.randrange(6):
        case 0:
            tokens[at] = ""
        case 1:
            tokens[at] = tokens[other]
        case 2:
            tokens[at], tokens[other] = tokens[other], tokens[at]
        case 3:
            tokens[at] = rng.choice(_WORDS)
        case 4:
            tokens[at] += " " + rng.choice(_WORDS + _NUMBERS)
        case 5:
            numbers = [i for i in solid if tokens[i][0].isdigit()]
            tokens[rng.choice(numbers or solid)] = rng.choice(_NUMBERS)
    return "".join(tokens)


def _modifiers(rng: random.Random, text: str) -> str:
    """A word of an instruction left out, doubled, or taken from another."""
    words = list(re.finditer(r"\.[a-z]\w*(::\w+)*", text))
    if not words:
        return text
    one, other = rng.choice(words), rng.choice(words)
    new = rng.choice(["", one.group() * 2, other.group(), other.group() + one.group()])
    return text[: one.start()] + new + text[one.end() :]


def _lines(rng: random.Random, text: str) -> str:
    lines = text.splitlines(keepends=True)
    if not lines:
        return text
    at, other = rng.randrange(len(lines)), rng.randrange(len(lines))
    match rng.randrange(4):
        case 0:
            del lines[at : at + rng.randint(1, 3)]
        case 1:
            lines.insert(other, lines[at])
        case 2:
            lines[at], lines[other] = lines[other], lines[at]
        case 3:
            lines[at] = (
                rng.choice(seeds()).splitlines(keepends=True)[0] if rng.random() < 0.1 else lines[other]
            )
    return "".join(lines)


MUTATIONS: tuple[Mutation, ...] = (_characters, _tokens, _tokens, _modifiers, _modifiers, _lines)


def mutated(seed: int) -> str:
    """A text with one to four mutations."""
    rng = random.Random(seed)
    text = rng.choice(seeds())
    for _ in range(rng.choice([1, 1, 1, 2, 3, 4])):
        text = rng.choice(MUTATIONS)(rng, text)
    return text


# --- by hand ---------------------------------------------------------------------------------------------

_HEAD = ".version 8.0\n.target sm_90\n.address_size 64\n"


def hostile() -> Iterator[tuple[str, str]]:
    """Texts that are made to hurt, by name."""
    deep = 20_000

    def kernel(body: str) -> str:
        return f"{_HEAD}.visible .entry k(.param .u64 p) {{\n{body}\nret;\n}}\n"

    yield "nothing", ""
    yield "a zero byte", "\0"
    yield "zero bytes", _HEAD + "\0" * 1000
    yield "a byte order mark", "\ufeff" + _HEAD
    yield "lone surrogates", _HEAD + "\udcff\ud800"
    yield "blocks in blocks", kernel("{" * deep + "}" * deep)
    yield "blocks without ends", kernel("{" * deep)
    yield "ends without blocks", kernel("}" * deep)
    yield "parentheses in constants", kernel(f"mov.u32 %r, {'(' * deep}1{')' * deep};")
    yield "parentheses without ends", _HEAD + f".global .b32 x = {'(' * deep}1;"
    yield "signs", _HEAD + f".global .b32 x = {'-' * deep}1;"
    yield "negations", _HEAD + f".global .b32 x = {'!~' * deep}1;"
    yield "sums", _HEAD + f".global .b32 x = {'1+' * deep}1;"
    yield "choices", _HEAD + f".global .b32 x = {'1?' * deep}1{':0' * deep};"
    yield "shifts", _HEAD + ".global .b64 x = 1 << 99999999999999;"
    yield "division by zero", _HEAD + ".global .b64 x = 1 / 0; .global .b64 y = 1 % 0;"
    yield "braces in initializers", _HEAD + f".global .b32 x[1] = {'{' * deep}1{'}' * deep};"
    yield "vectors in vectors", kernel(f"mov.b64 {'{' * deep}%r{'}' * deep}, %d;")
    yield "a number of a million digits", _HEAD + ".global .b32 x = " + "9" * 1_000_000 + ";"
    yield "a hexadecimal number of a million digits", _HEAD + ".global .b32 x = 0x" + "F" * 1_000_000 + ";"
    yield "a float of a million digits", _HEAD + ".global .f32 x = 0." + "1" * 1_000_000 + "e99999999;"
    yield "a name of a million letters", _HEAD + ".global .b32 " + "x" * 1_000_000 + ";"
    yield "a line of a million spaces", _HEAD + " " * 1_000_000 + "x"
    yield "a million lines", _HEAD + "\n" * 1_000_000 + "x"
    yield "a comment without end", _HEAD + "/* " + "*" * 1_000_000
    yield "comments in comments", _HEAD + "/*" * deep + "*/" * deep
    yield "a string without end", _HEAD + '.file 1 "' + "a" * 1_000_000
    yield "a huge array", _HEAD + ".global .b8 x[18446744073709551615];"
    yield "a huge array with a value", _HEAD + ".global .b8 x[99999999999999] = {1};"
    yield "a huge array of arrays", _HEAD + ".global .b64 x[4294967295][4294967295][4294967295] = {{{1}}};"
    yield "an array of negative size", _HEAD + ".global .b8 x[-1];"
    yield "a huge alignment", _HEAD + ".global .align 18446744073709551616 .b8 x;"
    yield "many registers", kernel(".reg .b32 %r<4294967295>; mov.b32 %r4294967294, 1;")
    yield "more registers than there are numbers", kernel(f".reg .b32 %r<{'9' * 50}>;")
    yield "many names", kernel(".reg .b32 " + ", ".join(f"%a{i}" for i in range(100_000)) + ";")
    yield "many modifiers", kernel("add" + ".u32" * deep + " %r, %r, %r;")
    yield "many operands", kernel("add.u32 " + "1, " * deep + "1;")
    yield "many labels", kernel("\n".join(f"L{i}:" for i in range(deep)))
    yield "many labels in a line", kernel("".join(f"L{i}:" for i in range(deep)))
    yield "colons", kernel("a ? b : " * deep + ";")
    yield (
        "many parameters",
        _HEAD + ".entry k(" + ", ".join(f".param .b8 p{i}" for i in range(deep)) + ") { }",
    )
    yield "a version of many digits", ".version " + "9" * 10_000 + ".0\n.target sm_90\n"
    yield "a target that is none", ".version 8.0\n.target sm_" + "9" * 5000 + "\n"
    yield "a function inside a function", kernel(".func f() { ret; }")
    yield "a function that is itself twice", kernel("") + kernel("")
    yield "a recursive table", kernel("T: .branchtargets T;")
    yield "words of other letters", kernel("ａｄｄ.u32 %r, %r, %r;")
    yield "digits of other scripts", _HEAD + ".global .b32 x[٣] = {٣};"


# --- judging ---------------------------------------------------------------------------------------------


class TooLong(Exception):
    """A text took longer than it may."""


def _alarm(number: int, frame: FrameType | None) -> None:
    raise TooLong


def verdict(text: str, seconds: float = SECONDS) -> str:
    """``"module"`` or ``"error"``; anything else is a fault, and says what happened."""
    before = signal.signal(signal.SIGALRM, _alarm)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        return "error" if parse_module(text).errors() else "module"
    except PtxError:
        return "error"
    except TooLong:
        return f"longer than {seconds:g} s"
    except Exception as error:  # what is looked for
        return f"{type(error).__name__}: {str(error)[:200]}"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def main() -> int:
    """Command line; 1 if any text ended in something else."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    found: dict[str, int] = {}
    bad, start = 0, time.monotonic()
    for seed in range(options.seed, options.seed + options.count):
        said = verdict(mutated(seed))
        found[said.split(":")[0]] = found.get(said.split(":")[0], 0) + 1
        if said not in ("module", "error"):
            bad += 1
            print(f"seed {seed}: {said}", flush=True)
    print(f"{options.count} texts from seed {options.seed} in {time.monotonic() - start:.0f} s: {found}")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
