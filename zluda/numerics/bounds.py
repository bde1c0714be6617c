"""How far each approximate instruction may be from the exact value: one table.

A bound is what NVIDIA documents (PTX ISA 9.7.3 and 9.7.4) and what an H200 was measured to do over all of its
inputs, whichever is larger: the GPU passes its documented bound in places (``ex2.approx.f32`` below 2**-126:
2.38 ULP where 2 are promised), and has none in others. Quotients and ``rsqrt.approx.f64`` have too many
inputs: no error of the former was measured, and the latter's is that of NVIDIA's model on a million. Names
are the instructions' own, element by element: a packed form is two of its element's.
"""

from __future__ import annotations

import math

from zluda.records import dataclass


@dataclass(frozen=True, slots=True)
class Limit:
    """A distance from the exact value: the largest of its parts.

    ``ulp`` is in units in the last place of the exact value in the result's type, ``relative`` a share of the
    exact value, ``absolute`` a number.
    """

    ulp: float = 0.0
    relative: float = 0.0
    absolute: float = 0.0

    def __str__(self) -> str:
        parts = [f"{self.ulp:g} ULP"] if self.ulp else []
        parts += [f"relative {_power(self.relative)}"] if self.relative else []
        parts += [f"absolute {_power(self.absolute)}"] if self.absolute else []
        return ", ".join(parts) or "none"


@dataclass(frozen=True, slots=True)
class Piece:
    """The bound for arguments of magnitude up to ``upto`` (of the divisor, for a division)."""

    upto: float = math.inf
    documented: Limit = Limit()
    measured: Limit = Limit()

    @property
    def allowed(self) -> Limit:
        """The larger of the two."""
        a, b = self.documented, self.measured
        return Limit(max(a.ulp, b.ulp), max(a.relative, b.relative), max(a.absolute, b.absolute))


@dataclass(frozen=True, slots=True)
class Format:
    """A result's type: stored bits of its mantissa, exponent of its smallest normal."""

    mantissa: int
    min_exponent: int


F16, BF16, F32, F64 = Format(10, -14), Format(7, -126), Format(23, -126), Format(52, -1022)
F64_HIGH = Format(20, -1022)
"""The high word of an f64, which is all that ``rcp.approx.ftz.f64`` and ``rsqrt.approx.ftz.f64`` give."""


@dataclass(frozen=True, slots=True)
class Bound:
    """One approximate instruction.

    ``function`` is what it approximates, ``format`` its result's type, ``pieces`` its bound by ranges of the
    argument, ``ftz`` whether subnormal arguments and results are zeros. ``range`` is the largest magnitude of
    a result, where there is one.
    """

    instruction: str
    function: str
    format: Format
    pieces: tuple[Piece, ...]
    ftz: bool = False
    range: float | None = None

    def piece(self, magnitude: float) -> Piece:
        """The piece that an argument's magnitude is in; infinities and NaN are in the last."""
        return next((p for p in self.pieces if magnitude <= p.upto), self.pieces[-1])


def _power(value: float) -> str:
    exponent = math.log2(value)
    if exponent == round(exponent, 3):
        return f"2^{exponent:g}"
    return f"{value:.3g}"


def _ulp(documented: float, measured: float, upto: float = math.inf) -> Piece:
    return Piece(upto, Limit(ulp=documented), Limit(ulp=measured))


_RANGE_OF_LAST_BIT = 48039.0  # beyond it the reduced argument of an f32 says nothing any more
_TRIGONOMETRIC = (
    Piece(2 * math.pi, Limit(absolute=2**-20.5), Limit(absolute=4.04e-7)),
    Piece(100 * math.pi, Limit(absolute=2**-14.7), Limit(absolute=3.7e-5)),
    Piece(_RANGE_OF_LAST_BIT, Limit(), Limit(absolute=5.0e-3)),
    Piece(math.inf, Limit(), Limit(absolute=2.0)),
)
_LOGARITHM = (
    Piece(0.5, Limit(relative=2**-22), Limit(ulp=2.31)),
    Piece(2.0, Limit(absolute=2**-22), Limit(absolute=2.15e-7)),
    Piece(math.inf, Limit(relative=2**-22), Limit(ulp=1.39)),
)
_QUOTIENT = (Piece(documented=Limit(ulp=2.0)),)
_HIGH_WORD = (Piece(measured=Limit(relative=2**-20)),)


def _pair(name: str, function: str, pieces: tuple[Piece, ...], range: float | None = None) -> list[Bound]:
    """The two f32 forms."""
    return [
        Bound(f"{name}.ftz.f32", function, F32, pieces, ftz=True, range=range),
        Bound(f"{name}.f32", function, F32, pieces, range=range),
    ]


_ROWS = [
    *_pair("rcp.approx", "rcp", (_ulp(1.0, 0.985),)),
    *_pair("rsqrt.approx", "rsqrt", (Piece(documented=Limit(relative=2**-22.9), measured=Limit(ulp=1.52)),)),
    *_pair("sqrt.approx", "sqrt", (Piece(documented=Limit(relative=2**-23), measured=Limit(ulp=0.945)),)),
    Bound("ex2.approx.ftz.f32", "ex2", F32, (_ulp(2.0, 2.06),), ftz=True),
    Bound("ex2.approx.f32", "ex2", F32, (_ulp(2.0, 2.06, upto=126.0), _ulp(2.0, 2.39))),
    *_pair("lg2.approx", "lg2", _LOGARITHM),
    *_pair("sin.approx", "sin", _TRIGONOMETRIC, range=1.0),
    *_pair("cos.approx", "cos", _TRIGONOMETRIC, range=1.0),
    Bound(
        "tanh.approx.f32", "tanh", F32, (Piece(math.inf, Limit(relative=2**-11), Limit(ulp=134)),), range=1.0
    ),
    *_pair("div.approx", "div_approx", _QUOTIENT),
    *_pair("div.full", "div", _QUOTIENT),
    Bound("ex2.approx.f16", "ex2", F16, (Piece(math.inf, Limit(relative=2**-9.9), Limit(ulp=1.001)),)),
    Bound(
        "ex2.approx.ftz.bf16",
        "ex2",
        BF16,
        (Piece(math.inf, Limit(relative=2**-7), Limit(ulp=1.001)),),
        ftz=True,
    ),
    Bound(
        "tanh.approx.f16",
        "tanh",
        F16,
        (Piece(math.inf, Limit(absolute=2**-10.987), Limit(ulp=1.01)),),
        range=1.0,
    ),
    Bound(
        "tanh.approx.bf16",
        "tanh",
        BF16,
        (Piece(math.inf, Limit(absolute=2**-8), Limit(ulp=1.001)),),
        range=1.0,
    ),
    Bound("rcp.approx.ftz.f64", "rcp", F64_HIGH, _HIGH_WORD, ftz=True),
    Bound("rsqrt.approx.ftz.f64", "rsqrt", F64_HIGH, _HIGH_WORD, ftz=True),
    Bound("rsqrt.approx.f64", "rsqrt", F64, (Piece(measured=Limit(relative=2**-51)),)),
]

BOUNDS: dict[str, Bound] = {row.instruction: row for row in _ROWS}
"""Every approximate instruction by its name."""
