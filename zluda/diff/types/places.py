"""Where a value points: what it is counted from, in which steps, and with which rest.

The domain of congruences (Granger, "Static analysis of arithmetical congruences"): a value is one of
``origin + rest + k * step``, k any integer. An index times 24 is a multiple of 24 whatever the index is, so
an access to ``p[i].third`` of a structure of 24 bytes is known to be 8 bytes, say, after a multiple of 24
from ``p``: which field it is, without knowing i. Step 0 is a single value.

32-bit arithmetic that wraps is not followed: a step that is no power of two would not survive it, and no
index of an array wraps.
"""

from __future__ import annotations

from math import gcd
from typing import NamedTuple


class Origin(NamedTuple):
    """What an address is counted from: the 8 bytes of a parameter at ``offset``, or (offset 0) a variable."""

    name: str
    offset: int = 0


class Term(NamedTuple):
    """``factor`` times the 32- or 64-bit parameter, times what is not known: a row's pitch, mostly."""

    parameter: Origin
    factor: int


class Place(NamedTuple):
    """A value, as the module says. ``whole`` is the parameter that it is, unchanged, if it is one."""

    origins: frozenset[Origin] = frozenset()
    step: int = 1
    rest: int = 0
    terms: frozenset[Term] = frozenset()
    whole: Origin | None = None

    @property
    def exact(self) -> int | None:
        """The number that it is; None for a pointer and for what is not known."""
        return self.rest if self.step == 0 and not self.origins else None


ANYTHING = Place()
_MOST_TERMS = 8


def number(value: int) -> Place:
    """A constant."""
    return Place(step=0, rest=value)


def joined(one: Place, other: Place) -> Place:
    """Either of two."""
    if one == other:
        return one
    step = gcd(one.step, other.step, one.rest - other.rest)
    whole = one.whole if one.whole == other.whole else None
    return _place(one.origins | other.origins, step, one.rest, one.terms | other.terms, whole)


def added(one: Place, other: Place) -> Place:
    terms = one.terms | other.terms
    if one.whole is not None and other.exact is None and other.whole is None:
        terms |= {Term(one.whole, 1)} if not one.origins else set()
    return _place(one.origins | other.origins, gcd(one.step, other.step), one.rest + other.rest, terms)


def negative(one: Place) -> Place:
    """The negative of a number; of a pointer's, a distance, which points nowhere."""
    if one.origins:
        return Place(terms=one.terms)
    return _place(frozenset(), one.step, -one.rest, one.terms)


def product(one: Place, other: Place) -> Place:
    """Pointers are not multiplied, so the result is a number; a parameter times an index is a term."""
    step = gcd(one.step * other.step, one.step * other.rest, one.rest * other.step)
    terms = set()
    for side, by in ((one, other), (other, one)):
        factor = by.exact
        if factor is not None:
            terms |= {Term(term.parameter, term.factor * factor) for term in side.terms}
            if side.whole is not None:
                terms.add(Term(side.whole, factor))
        elif side.whole is not None and by.whole is None:
            terms.add(Term(side.whole, 1))
    return _place(frozenset(), step, one.rest * other.rest, frozenset(terms))


def masked(one: Place, mask: int) -> Place:
    """``one & mask``: with low bits cleared still near its origin, which is aligned to as much."""
    low = (mask & -mask) if mask else 0
    if mask and mask & (mask + 1) == 0:  # the low bits alone
        return _place(frozenset(), gcd(one.step, mask + 1), one.rest)
    if low > 1:
        return _place(one.origins, low, 0, one.terms)
    return Place(one.origins, 1, 0, one.terms)


def mixed(one: Place, other: Place) -> Place:
    """``|`` and ``^``: as far as a power of two divides both, the sum of them."""
    if one.exact is not None and other.exact is not None:
        return ANYTHING
    step = gcd(one.step, other.step)
    power = step & -step
    return _place(one.origins | other.origins, power, one.rest ^ other.rest, one.terms | other.terms)


def _place(
    origins: frozenset[Origin],
    step: int,
    rest: int,
    terms: frozenset[Term] = frozenset(),
    whole: Origin | None = None,
) -> Place:
    kept = terms if len(terms) <= _MOST_TERMS else frozenset()
    return Place(origins, abs(step), rest % step if step else rest, kept, whole)
