"""Typed numbers for the semantic table: an IR value that knows whether it is signed, unsigned or floating.

A row such as ``D.u32 = (S0.u32 << S1.u32) + S2.u32`` is Python over these objects; the operators choose
LLVM's instruction by the operands' kind. Floating-point operators obey the MODE register's rounding.
"""

from __future__ import annotations

from zluda.compiler.ir import FLOAT_BITS, FLOAT_OF_BITS, Builder, Value, constant
from zluda.compiler.lower import rounding
from zluda.records import dataclass

_FLOAT_PREDICATES = {"lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge", "eq": "oeq", "ne": "une"}


@dataclass(slots=True)
class FloatMode:
    """MODE.FP_ROUND and MODE.FP_DENORM (RDNA2 ISA 3.3.5). ``rounding`` and ``flush_*`` by width.

    ``rounding`` values are those of :mod:`zluda.compiler.lower.rounding`: rn, rp, rm, rz.
    """

    bits: int = 0xF0

    _ROUNDING = ("rn", "rp", "rm", "rz")

    def rounding(self, width: int) -> str:
        """The rounding mode of f32 (``width`` 32) or of f16 and f64."""
        return self._ROUNDING[self.bits & 3 if width == 32 else self.bits >> 2 & 3]

    def _denormals(self, width: int) -> int:
        return self.bits >> 4 & 3 if width == 32 else self.bits >> 6 & 3

    def flushes_inputs(self, width: int) -> bool:
        return not self._denormals(width) & 1

    def flushes_results(self, width: int) -> bool:
        return not self._denormals(width) & 2


@dataclass(frozen=True, slots=True)
class Context:
    """What an operator needs beside its operands."""

    builder: Builder
    lanes: int
    mode: FloatMode


def element_of(name: str) -> tuple[str, str]:
    """Kind and LLVM type of a table type: ``"u32"`` is ``("u", "i32")``, ``"f32"`` is ``("f", "float")``."""
    kind, bits = name[0], name[1:]
    return (kind, FLOAT_OF_BITS[int(bits)]) if kind == "f" else ("u" if kind == "b" else kind, f"i{bits}")


@dataclass(frozen=True, slots=True, eq=False)
class Typed:
    """A value of one kind: ``"u"`` and ``"i"`` integers, ``"f"`` floating, ``"b"`` a condition (``i1``)."""

    context: Context
    value: Value
    kind: str

    @property
    def width(self) -> int:
        return self.value.width

    @property
    def type_name(self) -> str:
        """The table's name for its type."""
        return f"{self.kind}{self.width}"

    def like(self, value: Value, kind: str | None = None) -> Typed:
        return Typed(self.context, value, kind or self.kind)

    def lift(self, other: Typed | int | float) -> Value:
        """Another operand as a value of this one's type."""
        if isinstance(other, Typed):
            return other.value
        number = float(other) if self.kind == "f" else int(other)
        return constant(self.value.type, number)

    # --- integer and floating arithmetic ---------------------------------------------------------------

    def _arithmetic(self, op: str, x: Value, y: Value) -> Typed:
        b = self.context.builder
        if self.kind == "f":
            return self.like(float_operation(self.context, f"f{op}", x, y))
        return self.like(b.binary(op, x, y))

    def __add__(self, other: Typed | int | float) -> Typed:
        return self._arithmetic("add", self.value, self.lift(other))

    def __radd__(self, other: int | float) -> Typed:
        return self._arithmetic("add", self.lift(other), self.value)

    def __sub__(self, other: Typed | int | float) -> Typed:
        return self._arithmetic("sub", self.value, self.lift(other))

    def __rsub__(self, other: int | float) -> Typed:
        return self._arithmetic("sub", self.lift(other), self.value)

    def __mul__(self, other: Typed | int | float) -> Typed:
        return self._arithmetic("mul", self.value, self.lift(other))

    def __truediv__(self, other: Typed | int | float) -> Typed:
        return self.like(self.context.builder.fdiv(self.value, self.lift(other)))

    def __rtruediv__(self, other: int | float) -> Typed:
        return self.like(self.context.builder.fdiv(self.lift(other), self.value))

    def __neg__(self) -> Typed:
        b = self.context.builder
        return self.like(b.fneg(self.value) if self.kind == "f" else b.neg(self.value))

    # --- bits ------------------------------------------------------------------------------------------

    def __and__(self, other: Typed | int) -> Typed:
        return self.like(self.context.builder.and_(self.value, self.lift(other)))

    def __or__(self, other: Typed | int) -> Typed:
        return self.like(self.context.builder.or_(self.value, self.lift(other)))

    def __xor__(self, other: Typed | int) -> Typed:
        return self.like(self.context.builder.xor(self.value, self.lift(other)))

    def __invert__(self) -> Typed:
        return self.like(self.context.builder.not_(self.value))

    def _amount(self, other: Typed | int) -> Value:
        """A shift's amount: the low bits only, at this value's width."""
        b = self.context.builder
        if not isinstance(other, Typed):
            return self.lift(other)
        return b.and_(b.resize(other.value, self.value.type), self.width - 1)

    def __lshift__(self, other: Typed | int) -> Typed:
        return self.like(self.context.builder.shl(self.value, self._amount(other)))

    def __rshift__(self, other: Typed | int) -> Typed:
        op = "ashr" if self.kind == "i" else "lshr"
        return self.like(self.context.builder.binary(op, self.value, self._amount(other)))

    # --- comparisons -----------------------------------------------------------------------------------

    def compare(self, predicate: str, other: Typed | int | float) -> Typed:
        """``predicate`` is lt, le, gt, ge, eq, ne, or an LLVM floating-point predicate."""
        b = self.context.builder
        if self.kind == "f":
            text = _FLOAT_PREDICATES.get(predicate, predicate)
            return self.like(b.fcmp(text, self.value, self.lift(other)), "b")
        sign = "" if predicate in ("eq", "ne") else "s" if self.kind == "i" else "u"
        return self.like(b.icmp(sign + predicate, self.value, self.lift(other)), "b")

    def __lt__(self, other: Typed | int | float) -> Typed:
        return self.compare("lt", other)

    def __le__(self, other: Typed | int | float) -> Typed:
        return self.compare("le", other)

    def __gt__(self, other: Typed | int | float) -> Typed:
        return self.compare("gt", other)

    def __ge__(self, other: Typed | int | float) -> Typed:
        return self.compare("ge", other)

    def __eq__(self, other: Typed | int | float) -> Typed:  # type: ignore[override]
        return self.compare("eq", other)

    def __ne__(self, other: Typed | int | float) -> Typed:  # type: ignore[override]
        return self.compare("ne", other)

    # --- other types -----------------------------------------------------------------------------------

    def bits(self, name: str) -> Typed:
        """The same bits as another type of equal width."""
        kind, element = element_of(name)
        return self.like(self.context.builder.bitcast(self.value, element), kind)

    def convert(self, name: str) -> Typed:
        """The same number in another type, rounded as MODE says; integers are extended by their own sign."""
        kind, element = element_of(name)
        b, x = self.context.builder, self.value
        if self.kind == "f":
            return self.like(float_narrow(self.context, x, element) if kind == "f" else x, kind)
        if kind == "f":
            return self.like(integer_to_float(self.context, x, element, signed=self.kind == "i"), kind)
        if self.kind == "b":
            return self.like(b.zext(x, element), kind)
        return self.like(b.resize(x, element, signed=self.kind == "i"), kind)


# --- floating point under MODE ------------------------------------------------------------------------


def float_operation(context: Context, op: str, *operands: Value) -> Value:
    """``fadd``, ``fsub``, ``fmul`` or ``fma``, rounded as MODE says."""
    b = context.builder
    values = b.unify(*operands)
    mode = context.mode.rounding(values[0].width)
    if mode != "rn":
        if op == "fsub":
            op, values = "fadd", [values[0], b.fneg(values[1])]
        return _directed(b, op.removeprefix("f") if op != "fma" else "fma", values, mode)
    if op == "fma" and values[0].type == "half":  # else LLVM calls what a process may not have
        return float_narrow(context, rounding.exact_double(b, "fma", values), "half")
    if op == "fma":
        return b.intrinsic("fma", *values)
    return b.binary(op, *values)


def _directed(b: Builder, op: str, values: list[Value], mode: str) -> Value:
    """An operation rounded towards plus or minus infinity or zero, by arithmetic alone."""
    element = values[0].type
    if mode == "rm":  # rm(f(x)) = -rp(-f(x)); the sign goes into one factor or both terms
        flipped = [b.fneg(values[0]), *values[1:]]
        if op != "mul":
            flipped[-1] = b.fneg(values[-1])
        return b.fneg(_directed(b, op, flipped, "rp"))
    if element != "double":
        exact = rounding.exact_double(b, op, values)
        exact = rounding.narrow_odd(b, exact) if element == "half" else exact
        return rounding.narrow(b, exact, element, mode)
    one, zero = b.const(element, 1.0), b.const(element, 0.0)
    if op == "add":
        nearest, factors = b.fadd(*values), (values[0], one, values[1])
    elif op == "mul":
        nearest, factors = b.fmul(*values), (values[0], values[1], zero)
    else:
        nearest, factors = b.intrinsic("fma", *values), (values[0], values[1], values[2])
    error = rounding.residual(b, *factors, nearest)
    return rounding.directed_double(b, nearest, error, mode, values)


def float_narrow(context: Context, x: Value, element: str) -> Value:
    """A floating value in another floating type."""
    b = context.builder
    width = {"half": 16, "float": 32, "double": 64}[element]
    if width >= x.width:
        return b.cast("fpext", x, element) if width > x.width else x
    mode = context.mode.rounding(width)
    if mode != "rn":
        return rounding.narrow(b, x, element, mode)
    if x.type == "double" and element == "half":
        return b.cast("fptrunc", rounding.narrow_odd(b, x), element)
    return b.cast("fptrunc", x, element)


def integer_to_float(context: Context, x: Value, element: str, *, signed: bool) -> Value:
    """An integer as a floating number."""
    b = context.builder
    op = "sitofp" if signed else "uitofp"
    if element == "double" or context.mode.rounding(FLOAT_BITS[element]) == "rn":
        return b.cast(op, x, element)
    return rounding.narrow(b, b.cast(op, x, "double"), element, context.mode.rounding(x.width))
