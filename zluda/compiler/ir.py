"""Text LLVM IR, written once for scalars and vectors.

A :class:`Value` is an LLVM element type, a number of lanes (1: a scalar) and the text that names it.
A :class:`Builder` writes one function's body; where a scalar operand meets a vector one it is splat, so
code above this file never asks how many lanes there are. A :class:`Module` collects functions, constant
tables and the declarations they need. Text is ten times quicker to build than llvmlite's object IR.

Floating-point instructions carry no fast-math flags: results are IEEE 754 round-to-nearest-even,
subnormals kept, NaN payloads unspecified.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import field

from zluda.compiler.values import (
    FLOAT_BITS,
    FLOAT_OF_BITS,
    Operand,
    Value,
    constant,
    constant_text,
    float_to_bits,
    mangle,
    type_bits,
    vector_type,
)
from zluda.records import dataclass

__all__ = [
    "FLOAT_BITS",
    "FLOAT_OF_BITS",
    "Builder",
    "Module",
    "Operand",
    "Value",
    "constant",
    "float_to_bits",
    "mangle",
    "type_bits",
    "vector_type",
]


def address_space(pointer: str) -> str:
    """What a definition writes for a pointer type's address space: ``" addrspace(5)"``, or nothing."""
    return pointer.removeprefix("ptr")


@dataclass(slots=True)
class Module:
    """One LLVM module's text. Everything is keyed by name and written once.

    ``stack`` and ``tables`` are the types of pointers to stack memory and to constant tables; ``helpers`` the
    attributes of helper functions. ``approximate`` computes approximate instructions (None: as NVIDIA does).
    ``any_nan``: which of its NaNs a float is does not matter, so they stay the machine's;
    ``nan_by_arithmetic``: they are NVIDIA's where arithmetic gave them, and made so elsewhere. ``compact``:
    what takes many instructions is rather called than written out. ``quick``: LLVM folds no constants before
    its code generator does. ``marks``: a comment says which line of PTX the lines after it are for.
    """

    stack: str = "ptr"
    tables: str = "ptr"
    helpers: str = "noinline nounwind"
    approximate: Approximate | None = None
    any_nan: bool = False
    nan_by_arithmetic: bool = False
    compact: bool = False
    quick: bool = False
    marks: bool = False
    declarations: dict[str, str] = field(default_factory=dict)
    globals: dict[str, str] = field(default_factory=dict)
    functions: dict[str, str] = field(default_factory=dict)

    def declare(self, name: str, signature: str) -> None:
        """Declare ``@name``; ``signature`` is ``"ret (args)"``."""
        if name not in self.functions:
            result, arguments = signature.split(" (", 1) if " (" in signature else (signature, ")")
            self.declarations.setdefault(name, f"declare {result} @{name}({arguments}")

    def table(self, name: str, element: str, values: Iterable[int]) -> Value:
        """A constant array of integers as a module global; returns its address."""
        if name not in self.globals:
            items = [
                f"{element} {constant_text(element, v & ((1 << type_bits(element)) - 1))}" for v in values
            ]
            body = ", ".join(items)
            self.globals[name] = (
                f"@{name} = internal unnamed_addr{address_space(self.tables)} constant "
                f"[{len(items)} x {element}] [{body}], align 64"
            )
        return Value(self.tables, 1, f"@{name}")

    def define(self, name: str, header: str, body: Builder) -> None:
        """Add ``define <header> { body }``; ``header`` is everything between ``define`` and the brace."""
        self.declarations.pop(name, None)
        self.functions[name] = f"define {header} {{\n{body.text()}}}"

    def function(
        self,
        name: str,
        parameters: Sequence[tuple[str, int]],
        emit: Callable[[Builder, list[Value]], Value],
        *,
        attributes: str = "",
    ) -> str:
        """Define an internal function once, from ``emit(builder, arguments) -> result``; returns its name."""
        if name not in self.functions:
            self.functions[name] = ""  # a recursive use finds the name taken
            builder = Builder(self)
            arguments = [Value(element, lanes, f"%a{i}") for i, (element, lanes) in enumerate(parameters)]
            result = emit(builder, arguments)
            builder.ret(result)
            formal = ", ".join(a.typed for a in arguments)
            self.define(
                name, f"internal {result.ir_type} @{name}({formal}) {attributes or self.helpers}", builder
            )
        return name

    def text(self) -> str:
        """The whole module."""
        parts = [*self.globals.values(), *self.functions.values()]
        parts += [text for name, text in self.declarations.items() if name not in self.functions]
        return "\n".join(parts) + "\n"


Approximate = Callable[["Builder", str, list[Value]], Value]
"""Computes one element of an approximate instruction, by its name in ``numerics.bounds.BOUNDS``.

Operands and result are ``float``, for f64 its bits (``i64``). 16-bit operands are widened to ``float``; their
results are ``half``, or a bf16's bits (``i16``).
"""

_FOLDS: dict[str, Callable[[int, int, int], int]] = {
    "add": lambda x, y, w: x + y,
    "sub": lambda x, y, w: x - y,
    "mul": lambda x, y, w: x * y,
    "and": lambda x, y, w: x & y,
    "or": lambda x, y, w: x | y,
    "xor": lambda x, y, w: x ^ y,
    "shl": lambda x, y, w: x << min(y, w),
    "lshr": lambda x, y, w: x >> min(y, w),
}
_COMPARE: dict[str, Callable[[int, int], bool]] = {
    "eq": lambda x, y: x == y,
    "ne": lambda x, y: x != y,
    "ult": lambda x, y: x < y,
    "ule": lambda x, y: x <= y,
    "ugt": lambda x, y: x > y,
    "uge": lambda x, y: x >= y,
}
_RIGHT_IDENTITY = {"add": 0, "sub": 0, "or": 0, "xor": 0, "shl": 0, "lshr": 0, "ashr": 0, "mul": 1}


_ARITHMETIC = (
    *("fadd ", "fsub ", "fmul ", "fdiv ", "fneg float ", "sitofp ", "uitofp "),
    "call float @llvm.fabs.",
    *("call float @llvm.fma.", "call float @llvm.sqrt.", "call float asm "),
    *("call float @llvm.minimumnum.", "call float @llvm.maximumnum."),
)
"""How instructions begin whose NaN is the machine's own."""


_IDENTITY = re.compile(
    r"^fmul .*\b0x[3B]FF0{13}\b|^fdiv float \S+ 0x[3B]FF0{13}$"
    r"|^fadd .*\b0x[08]0{15}\b|^fsub float \S+ 0x[08]0{15}$"
)
"""What LLVM leaves out, and the rounding of a NaN with it: a product with one, a sum with zero."""

_ZERO = re.compile(r"fneg float 0x[08]0{15}$")
_SIGNS = ("fneg ", "call float @llvm.fabs.", "select ")
_NAMES = re.compile(r"%[\w.]+")


class Builder:
    """Writes the body of one function. Operands may be Values, or Python numbers beside a Value."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.entry: list[str] = []  # allocas, ahead of everything else
        self.lines: list[str] = []
        self._next = 0
        self.normal: set[str] = set()  # floats, or their bits, known not to be subnormal numbers: their refs
        self._known: dict[str, Value] = {}  # values of this basic block, by their text
        self.arithmetic: set[str] | None = set() if module.nan_by_arithmetic else None
        self.widened: set[str] = set()
        self.zeros: set[str] = set()

    def text(self) -> str:
        """The body, one instruction a line."""
        start = 1 if self.lines and self.lines[0].endswith(":") else 0  # allocas go below the entry's label
        lines = (*self.lines[:start], *self.entry, *self.lines[start:])
        return "".join(f"{line}\n" for line in lines)

    def fresh(self, hint: str = "v") -> str:
        """A name not used before in this function (without ``%``)."""
        self._next += 1
        return f"{hint}.{self._next}"

    def emit(self, line: str) -> None:
        """Write one line as it is."""
        self.lines.append(line)

    def define(self, element: str, lanes: int, text: str) -> Value:
        """Write ``%fresh = text`` and return the new value."""
        name = "%" + self.fresh()
        self.lines.append(f"{name} = {text}")
        if self.arithmetic is not None:
            self._note_nan(name, text)
        return Value(element, lanes, name)

    def _note_nan(self, name: str, text: str) -> None:
        """Note what a new value's NaN is: arithmetic's, or that of an operand in a wider format."""
        assert self.arithmetic is not None
        if text.startswith("fpext ") or (
            text.startswith(_SIGNS) and self.widened.intersection(_NAMES.findall(text))
        ):
            self.widened.add(name)
        if _ZERO.match(text) is not None:
            self.zeros.add(name)
        same = _IDENTITY.search(text) is not None or (
            text.startswith("fadd ") and self.zeros.intersection(_NAMES.findall(text))
        )
        known = text.startswith(_ARITHMETIC) and not same
        if known or self._passes_on(text):
            self.arithmetic.add(name)

    def _passes_on(self, text: str) -> bool:
        """Whether a value is one of two that arithmetic gave, or such a one in another format.

        LLVM leaves out a widening with the narrowing of what it gave.
        """
        assert self.arithmetic is not None
        words = text.split(" ", 1)[0]
        if words == "fpext":
            return True
        if text.startswith("fptrunc double "):
            return False  # f64 keeps payloads, and so does what is made of it
        if words == "fptrunc":
            source = text.split(" to ", 1)[0].rpartition(" ")[2]
            return source in self.arithmetic and source not in self.widened
        if not text.startswith("select i1 "):
            return False
        either = (part.rpartition(" ")[2] for part in text.split(", ")[1:])
        return all(ref in self.arithmetic or not ref.startswith("%") for ref in either)

    def pure(self, element: str, lanes: int, text: str) -> Value:
        """:meth:`define` for what depends on its operands alone: written once in a basic block."""
        found = self._known.get(text)
        if found is None:
            found = self._known[text] = self.define(element, lanes, text)
        return found

    # --- constants and lanes ---------------------------------------------------------------------------

    def const(self, element: str, value: int | float) -> Value:
        """See :func:`constant`."""
        return constant(element, value)

    def splat(self, value: Value, lanes: int) -> Value:
        """``value`` in every lane; a value that has ``lanes`` lanes already is returned as it is."""
        if value.lanes == lanes:
            return value
        if value.bits is not None:
            text = "zeroinitializer" if value.bits == 0 else f"splat ({value.typed})"
            return Value(value.type, lanes, text)
        wide = vector_type(value.type, lanes)
        one = self.pure(value.type, lanes, f"insertelement {wide} poison, {value.typed}, i64 0")
        text = f"shufflevector {one.typed}, {wide} poison, <{lanes} x i32> zeroinitializer"
        return self._as_normal(self.pure(value.type, lanes, text), value)

    def _as_normal(self, result: Value, *sources: Value) -> Value:
        """``result``, which is one of the ``sources`` (or differs in sign): as normal as they are."""
        if all(s.ref in self.normal for s in sources):
            self.normal.add(result.ref)
        return result

    def vector(self, element: str, values: Sequence[int]) -> Value:
        """A constant vector of the given bit patterns, one a lane."""
        if len(values) == 1:
            return constant(element, values[0])
        items = ", ".join(constant(element, v).typed for v in values)
        return Value(element, len(values), f"<{items}>")

    def unify(self, *operands: Operand) -> list[Value]:
        """Python numbers become constants of the Values' type; scalars are splat where one is a vector."""
        element = next(o.type for o in operands if isinstance(o, Value))
        values = [o if isinstance(o, Value) else constant(element, o) for o in operands]
        lanes = values[0].lanes
        if all(v.lanes == lanes for v in values):
            return values
        lanes = max(v.lanes for v in values)
        return [self.splat(v, lanes) for v in values]

    def extract(self, vector: Value, lane: int | Value) -> Value:
        """One lane as a scalar."""
        if vector.lanes == 1:
            return vector
        index = f"i64 {lane}" if isinstance(lane, int) else lane.typed
        return self.pure(vector.type, 1, f"extractelement {vector.typed}, {index}")

    def insert(self, vector: Value, scalar: Value, lane: int | Value) -> Value:
        """``vector`` with one lane replaced."""
        if vector.lanes == 1:
            return scalar
        index = f"i64 {lane}" if isinstance(lane, int) else lane.typed
        return self.pure(vector.type, vector.lanes, f"insertelement {vector.typed}, {scalar.typed}, {index}")

    def shuffle(self, first: Value, second: Value | None, mask: Sequence[int]) -> Value:
        """``shufflevector``: result lane i is lane ``mask[i]`` of both vectors laid end to end; -1: any."""
        if len(mask) == 1 or first.lanes == 1:
            picked = [first if second is None or m < first.lanes else second for m in mask]
            lanes = [self.extract(v, max(m, 0) % first.lanes) for v, m in zip(picked, mask, strict=True)]
            return self.pack(lanes)
        other = second.typed if second is not None else f"{first.ir_type} poison"
        items = ", ".join("i32 poison" if m < 0 else f"i32 {m}" for m in mask)
        return self.pure(
            first.type, len(mask), f"shufflevector {first.typed}, {other}, <{len(mask)} x i32> <{items}>"
        )

    def pack(self, scalars: Sequence[Value]) -> Value:
        """Scalars laid side by side into a vector."""
        if len(scalars) == 1:
            return scalars[0]
        vector = Value(scalars[0].type, len(scalars), "poison")
        for i, scalar in enumerate(scalars):
            vector = self.insert(vector, scalar, i)
        return vector

    # --- arithmetic ------------------------------------------------------------------------------------

    def binary(self, op: str, x: Operand, y: Operand) -> Value:
        """Any two-operand LLVM instruction whose result has its operands' type."""
        element = x.type if isinstance(x, Value) else y.type if isinstance(y, Value) else ""
        x = x if isinstance(x, Value) else constant(element, x)
        y = y if isinstance(y, Value) else constant(element, y)
        if y.bits is not None and element[0] == "i":
            if y.bits == _RIGHT_IDENTITY.get(op):
                return x
            if x.bits is not None and op in _FOLDS:
                return constant(element, _FOLDS[op](x.bits, y.bits, x.width))
        x, y = self.unify(x, y)
        return self.pure(element, x.lanes, f"{op} {x.typed}, {y.ref}")

    def add(self, x: Operand, y: Operand) -> Value:
        return self.binary("add", x, y)

    def sub(self, x: Operand, y: Operand) -> Value:
        return self.binary("sub", x, y)

    def mul(self, x: Operand, y: Operand) -> Value:
        return self.binary("mul", x, y)

    def udiv(self, x: Operand, y: Operand) -> Value:
        """Undefined for a zero divisor, as LLVM's: guard first."""
        return self.binary("udiv", x, y)

    def sdiv(self, x: Operand, y: Operand) -> Value:
        """Undefined for a zero divisor and for INT_MIN / -1, as LLVM's: guard first."""
        return self.binary("sdiv", x, y)

    def urem(self, x: Operand, y: Operand) -> Value:
        return self.binary("urem", x, y)

    def srem(self, x: Operand, y: Operand) -> Value:
        return self.binary("srem", x, y)

    def and_(self, x: Operand, y: Operand) -> Value:
        return self.binary("and", x, y)

    def or_(self, x: Operand, y: Operand) -> Value:
        return self.binary("or", x, y)

    def xor(self, x: Operand, y: Operand) -> Value:
        return self.binary("xor", x, y)

    def not_(self, x: Value) -> Value:
        return self.binary("xor", x, -1)

    def neg(self, x: Value) -> Value:
        return self.binary("sub", 0, x)

    def shl(self, x: Operand, y: Operand) -> Value:
        """Poison for an amount of the width or more, as LLVM's."""
        return self.binary("shl", x, y)

    def lshr(self, x: Operand, y: Operand) -> Value:
        return self.binary("lshr", x, y)

    def ashr(self, x: Operand, y: Operand) -> Value:
        return self.binary("ashr", x, y)

    def mul_high(self, x: Value, y: Value, *, signed: bool) -> Value:
        """The high half of the double-width product of two integers."""
        x, y = self.unify(x, y)
        width = x.width
        if width <= 32 or x.lanes == 1:
            wide = f"i{2 * width}"
            extend = self.sext if signed else self.zext
            product = self.mul(extend(x, wide), extend(y, wide))
            return self.trunc(self.lshr(product, width), x.type)
        high = self._mul_high_by_parts(x, y)
        if signed:  # the unsigned product counts 2^64 too often for each negative factor
            excess = self.add(self.and_(self.ashr(x, 63), y), self.and_(self.ashr(y, 63), x))
            high = self.sub(high, excess)
        return high

    def _mul_high_by_parts(self, x: Value, y: Value) -> Value:
        """Unsigned 64-bit high product from four 32-bit ones: vectors have no 128-bit product."""
        x0, x1 = self.and_(x, 0xFFFFFFFF), self.lshr(x, 32)
        y0, y1 = self.and_(y, 0xFFFFFFFF), self.lshr(y, 32)
        middle = self.add(self.mul(x1, y0), self.lshr(self.mul(x0, y0), 32))
        carry = self.add(self.mul(x0, y1), self.and_(middle, 0xFFFFFFFF))
        return self.add(self.add(self.mul(x1, y1), self.lshr(middle, 32)), self.lshr(carry, 32))

    def fadd(self, x: Operand, y: Operand) -> Value:
        return self.binary("fadd", x, y)

    def fsub(self, x: Operand, y: Operand) -> Value:
        return self.binary("fsub", x, y)

    def fmul(self, x: Operand, y: Operand) -> Value:
        return self.binary("fmul", x, y)

    def fdiv(self, x: Operand, y: Operand) -> Value:
        return self.binary("fdiv", x, y)

    def frem(self, x: Operand, y: Operand) -> Value:
        return self.binary("frem", x, y)

    def fneg(self, x: Value) -> Value:
        return self._as_normal(self.pure(x.type, x.lanes, f"fneg {x.typed}"), x)

    def icmp(self, predicate: str, x: Operand, y: Operand) -> Value:
        """``predicate``: eq ne ugt uge ult ule sgt sge slt sle. The result is ``i1``."""
        x, y = self.unify(x, y)
        if x.bits is not None and y.bits is not None and predicate in _COMPARE:
            return constant("i1", int(_COMPARE[predicate](x.bits, y.bits)))
        return self.pure("i1", x.lanes, f"icmp {predicate} {x.typed}, {y.ref}")

    def fcmp(self, predicate: str, x: Operand, y: Operand) -> Value:
        """``predicate``: oeq ogt oge olt ole one ord and ueq … une uno. The result is ``i1``."""
        x, y = self.unify(x, y)
        return self.pure("i1", x.lanes, f"fcmp {predicate} {x.typed}, {y.ref}")

    def select(self, condition: Value, x: Operand, y: Operand) -> Value:
        """``condition ? x : y``; a scalar condition picks whole vectors."""
        if condition.bits is not None:
            x, y = self.unify(x, y)
            return x if condition.bits else y
        x, y = self.unify(x, y)
        lanes = max(condition.lanes, x.lanes)
        if condition.lanes > 1:
            x, y = self.splat(x, lanes), self.splat(y, lanes)
        return self._as_normal(
            self.pure(x.type, lanes, f"select {condition.typed}, {x.typed}, {y.typed}"), x, y
        )

    def cast(self, op: str, x: Value, element: str) -> Value:
        """Any LLVM conversion (``zext``, ``fptosi``, ``bitcast``, ``ptrtoint`` …) to another element type."""
        if x.type == element:
            return x
        if x.bits is not None and op in ("bitcast", "trunc", "zext"):
            return constant(element, x.bits)
        if x.bits is not None and op == "sext":
            return constant(element, x.bits - (x.bits >> (x.width - 1) << x.width))
        return self.pure(element, x.lanes, f"{op} {x.typed} to {vector_type(element, x.lanes)}")

    def zext(self, x: Value, element: str) -> Value:
        return self.cast("zext", x, element)

    def sext(self, x: Value, element: str) -> Value:
        return self.cast("sext", x, element)

    def trunc(self, x: Value, element: str) -> Value:
        return self.cast("trunc", x, element)

    def bitcast(self, x: Value, element: str) -> Value:
        """The same bits as another element type of equal width."""
        return self._as_normal(self.cast("bitcast", x, element), x)

    def resize(self, x: Value, element: str, *, signed: bool = False) -> Value:
        """An integer at another width: truncated, zero-extended or sign-extended."""
        if type_bits(element) <= x.width:
            return self.trunc(x, element)
        return self.cast("sext" if signed else "zext", x, element)

    def reshape(self, x: Value, element: str, lanes: int) -> Value:
        """A bitcast that changes the number of lanes (``<16 x i1>`` to ``i16``)."""
        if (x.type, x.lanes) == (element, lanes):
            return x
        return self.pure(element, lanes, f"bitcast {x.typed} to {vector_type(element, lanes)}")

    def any(self, mask: Value) -> Value:
        """Whether any lane of an ``i1`` value is set, as a scalar."""
        if mask.lanes == 1:
            return mask
        return self.icmp("ne", self.reshape(mask, f"i{mask.lanes}", 1), 0)

    def all(self, mask: Value) -> Value:
        """Whether all lanes of an ``i1`` value are set, as a scalar."""
        if mask.lanes == 1:
            return mask
        return self.icmp("eq", self.reshape(mask, f"i{mask.lanes}", 1), -1)

    # --- calls -----------------------------------------------------------------------------------------

    def intrinsic(
        self,
        name: str,
        *arguments: Value | int | float | bool,
        result: str = "",
        overloads: Sequence[str] | None = None,
    ) -> Value:
        """Call ``@llvm.name`` lane by lane, mangled by the first argument's type.

        A Python bool is an immediate ``i1`` (``ctlz``'s second argument). ``result`` is the result's element
        type where it is not the first argument's; ``overloads`` the mangled types where there are several.
        """
        numbers: list[Operand] = [a for a in arguments if not isinstance(a, bool)]
        values = iter(self.unify(*numbers))
        flags = {True: constant("i1", 1), False: constant("i1", 0)}
        actual = [flags[a] if isinstance(a, bool) else next(values) for a in arguments]
        first = actual[0]
        mangled = overloads if overloads is not None else [mangle(first.type, first.lanes)]
        callee, element = ".".join(["llvm", name, *mangled]), result or first.type
        return self.pure(element, first.lanes, self._call(callee, actual, element, first.lanes))

    def is_constant(self, x: Value) -> Value:
        """Whether LLVM comes to know the value of a scalar: as an ``i1`` that it then knows as well."""
        if x.bits is not None:
            return constant("i1", 1)
        return self.intrinsic("is.constant", x, result="i1")

    def convert_saturating(self, name: str, x: Value, element: str) -> Value:
        """``llvm.fptosi.sat`` or ``llvm.fptoui.sat``: clamped to the integer's range, NaN to 0."""
        overloads = [mangle(element, x.lanes), mangle(x.type, x.lanes)]
        return self.intrinsic(name, x, result=element, overloads=overloads)

    def call(self, name: str, arguments: Sequence[Value], result: str = "void", lanes: int = 1) -> Value:
        """Call ``@name``, declared when the module does not define it; ``void`` gives a nameless Value."""
        text = self._call(name, arguments, result, lanes)
        if result == "void":
            self.emit(text)
            return Value("void", 1, "")
        return self.define(result, lanes, text)

    def _call(self, name: str, arguments: Sequence[Value], result: str, lanes: int) -> str:
        ir_type = vector_type(result, lanes)
        if name not in self.module.declarations:
            self.module.declare(name, f"{ir_type} ({', '.join(a.ir_type for a in arguments)})")
        return f"call {ir_type} @{name}({', '.join(a.typed for a in arguments)})"

    # --- memory ----------------------------------------------------------------------------------------

    def alloca(self, element: str, lanes: int = 1, *, count: int = 1, align: int = 64) -> Value:
        """Stack memory, allocated once at the function's entry."""
        name = "%" + self.fresh("m")
        space = self.module.stack
        where = f",{address_space(space)}" if space != "ptr" else ""
        self.entry.append(f"{name} = alloca {vector_type(element, lanes)}, i32 {count}, align {align}{where}")
        return Value(space, 1, name)

    def load(
        self, element: str, pointer: Value, lanes: int = 1, *, align: int = 1, suffix: str = ""
    ) -> Value:
        """Load consecutive lanes from one address; ``suffix`` is metadata, with its comma."""
        text = f"load {vector_type(element, lanes)}, {pointer.typed}, align {align}{suffix}"
        return self.define(element, lanes, text)

    def store(self, value: Value, pointer: Value, *, align: int = 1) -> None:
        """Store consecutive lanes at one address."""
        self.emit(f"store {value.typed}, {pointer.typed}, align {align}")

    def gep(self, pointer: Value, index: Operand, element: str = "i8") -> Value:
        """``pointer + index * sizeof(element)``; a vector of indices gives a vector of pointers."""
        offset = index if isinstance(index, Value) else constant("i64", int(index))
        lanes = max(pointer.lanes, offset.lanes)
        return self.pure(pointer.type, lanes, f"getelementptr {element}, {pointer.typed}, {offset.typed}")

    def gather(self, element: str, pointers: Value, *, align: int, mask: Value | None = None) -> Value:
        """Load one element a lane from a value of pointers; lanes whose mask is off are zero."""
        lanes = pointers.lanes
        if lanes == 1 and mask is None:
            return self.load(element, pointers, align=align)
        zero = self.splat(constant(element, 0), lanes)
        chosen = self.splat(mask if mask is not None else constant("i1", 1), lanes)
        overloads = [mangle(element, lanes), mangle(pointers.type, lanes)]
        arguments = [pointers, constant("i32", align), chosen, zero]
        return self.call(".".join(["llvm.masked.gather", *overloads]), arguments, element, lanes)

    # --- control flow ----------------------------------------------------------------------------------

    def label(self, name: str) -> None:
        """Begin a basic block."""
        self.lines.append(f"{name}:")
        self._known.clear()

    def branch(self, label: str) -> None:
        self.emit(f"br label %{label}")

    def cond_branch(self, condition: Value, then: str, otherwise: str) -> None:
        """Branch on a scalar ``i1``."""
        self.emit(f"br {condition.typed}, label %{then}, label %{otherwise}")

    def switch(self, value: Value, default: str, cases: Iterable[tuple[int, str]]) -> None:
        """Branch on a scalar integer."""
        arms = " ".join(f"{value.type} {number}, label %{label}" for number, label in cases)
        self.emit(f"switch {value.typed}, label %{default} [ {arms} ]")

    def phi(self, element: str, lanes: int, incoming: Sequence[tuple[Value, str]]) -> Value:
        """Must stand at the head of its block."""
        arms = ", ".join(f"[ {value.ref}, %{label} ]" for value, label in incoming)
        return self.define(element, lanes, f"phi {vector_type(element, lanes)} {arms}")

    def ret(self, value: Value | None = None) -> None:
        self.emit("ret void" if value is None or value.type == "void" else f"ret {value.typed}")

    def unreachable(self) -> None:
        self.emit("unreachable")
