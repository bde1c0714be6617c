"""Control flow inside one instruction: for the lanes of a condition, once or as long as it holds.

Registers must be read before: what is read inside would be missing behind.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from zluda.compiler.ir import Value

if TYPE_CHECKING:
    from zluda.compiler.codegen import FunctionCodegen

Lanes = Sequence[Value]
"""An ``i1`` vector a group."""


def if_lanes(f: FunctionCodegen, condition: Lanes, body: Callable[[], None]) -> None:
    """``body`` for the active lanes for which ``condition`` holds; skipped when there are none."""
    inside, past = f.b.fresh("some"), f.b.fresh("past")
    _enter(f, condition, inside, past, body)
    f.b.branch(past)
    f.b.label(past)


def while_lanes(f: FunctionCodegen, condition: Callable[[], Lanes], body: Callable[[], None]) -> None:
    """``body`` again and again for the active lanes for which ``condition`` holds, until there are none."""
    head, inside, past = f.b.fresh("again"), f.b.fresh("round"), f.b.fresh("past")
    f.b.branch(head)
    f.b.label(head)
    _enter(f, condition(), inside, past, body)
    f.b.branch(head)
    f.b.label(past)


def _enter(f: FunctionCodegen, condition: Lanes, inside: str, past: str, body: Callable[[], None]) -> None:
    going = tuple(f.b.and_(m, c) for m, c in zip(f.mask_vectors(), condition, strict=True))
    some = f.b.any(going[0])
    for group in going[1:]:
        some = f.b.or_(some, f.b.any(group))
    f.b.cond_branch(some, inside, past)
    f.b.label(inside)
    checked = set(f.checked)  # what is found aligned inside need not have been looked at
    with f.masked(going):
        body()
    f.checked = checked
