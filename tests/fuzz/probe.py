"""Which statements are PTX that the devices run: others would only end a program with an error."""

from __future__ import annotations

import collections
import functools
import re

from drawing import Drawer
from programs import Program
from statements import Statement, all_rows
from writing import alone

from zluda.compiler.refusals import refusals
from zluda.errors import PtxError
from zluda.ptx import Module, parse_module

_QUOTED = re.compile(r"%\w+|\b\d+\b")
_NUMBER = re.compile(r"(?<=%[a-z])\d+|(?<=[ +])\d+(?=[],;])")


def refusal(text: str) -> str:
    """What the CPU or an AMD GPU says of a module's kernel that it does not run; "" where they do."""
    try:
        module = parse_module(text)
        return _refused(module, "cpu") or _refused(module, "gfx1030")
    except PtxError as error:
        return f"not PTX: {error}"


def _refused(module: Module, device: str) -> str:
    return next((what for _, what in refusals(module, "k", device)), "")


class Probe:
    """Remembers which dotted opcodes are run; ``refused`` are those that are not, and what was said."""

    def __init__(self) -> None:
        self.refused: dict[str, str] = {}
        self.taken: set[str] = set()

    def __call__(self, statement: Statement) -> bool:
        form = _form(statement.text)
        if form in self.refused:
            return False
        if form not in self.taken:
            said = refusal(alone(Program((statement,))))
            if said:
                self.refused[form] = said
                return False
            self.taken.add(form)
        return True

    def reasons(self) -> collections.Counter[str]:
        """What was said of those that are refused, without registers' names and places, and how often."""
        return collections.Counter(
            _QUOTED.sub("…", said.rpartition(" (<ptx>")[0] or said) for said in self.refused.values()
        )


def _form(text: str) -> str:
    """A statement without the numbers of its registers and the values of its constants."""
    return _NUMBER.sub("#", text)


@functools.cache
def probe() -> Probe:
    """One for the process."""
    return Probe()


@functools.cache
def drawer(largest: int = 120) -> Drawer:
    """Draws programs of everything that is run."""
    return Drawer(all_rows(), probe(), largest)
