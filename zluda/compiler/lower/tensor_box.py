"""A box of a tensor, moved element by element: the function that a tensor copy calls (PTX ISA 5.5, 9.7.9.27).

Held to an H200 for tiled and im2col maps: rows of a swizzled box lie a whole span apart; what lies outside
of the tensor is zero, or 0x7FF7 in each 16 bits; tensor floats are rounded as they are loaded; stores are
made in whole chunks of 16 bytes along the first dimension. What the hardware calls an illegal instruction
stops here too: a first coordinate off those chunks, a store that begins below 0, an im2col copy that begins
outside of its bounding box, an im2col store whose bounding box leaves the tensor.

Interleaved, a tensor has one dimension more than its map counts: the first are the channels of a slice, 16 or
32 bytes that lie together. Each element of the map's first dimension is then a row of the box. The last
dimension but one numbers the slices; a box has one of them.
"""

from __future__ import annotations

from collections.abc import Callable

from zluda.compiler import tensor_map
from zluda.compiler.ir import Builder, Module, Value, constant
from zluda.compiler.lower.read_modify_write import instruction_name, is_computed, swap_loop
from zluda.compiler.tensor_map import FIELDS, MODE, PIXELS, Field
from zluda.ptx.types import ScalarType
from zluda.records import dataclass

ILLEGAL = -1
"""What the function gives instead of the box's bytes where the hardware calls it an illegal instruction."""

_FLAT = "ptr"
_NOWHERE = -(1 << 40)  # below all places in a tensor
_NAN_HALVES = 0x7FF77FF77FF77FF7
_INTEGERS = {2: ScalarType.U32, 3: ScalarType.S32, 4: ScalarType.U64, 5: ScalarType.S64}
_HALVES = {tensor_map.HALF: ScalarType.F16, tensor_map.BRAIN: ScalarType.BF16}
_REALS = {
    tensor_map.SINGLE: ScalarType.F32,
    tensor_map.SINGLE_FLUSHED: ScalarType.F32,
    tensor_map.DOUBLE: ScalarType.F64,
}
_WORDS = {2: ScalarType.B32, 3: ScalarType.B32, 4: ScalarType.B64, 5: ScalarType.B64}
_COUNTED = {2: ScalarType.U32}
_REDUCED = {
    **dict.fromkeys(("and", "or", "xor"), _WORDS),
    **dict.fromkeys(("inc", "dec"), _COUNTED),
    **dict.fromkeys(("min", "max"), _INTEGERS | _HALVES),
    "add": _INTEGERS | _HALVES | _REALS,
}
"""Operation → the types that it reduces, by the hardware's number."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of tensor copy. ``mode`` is ``tile im2col im2col_no_offs gather4 scatter4``."""

    dimensions: int
    mode: str
    store: bool = False
    reduce: str = ""

    @property
    def im2col(self) -> bool:
        return self.mode.startswith("im2col")

    @property
    def exists(self) -> bool:
        """Whether there are such copies of so many dimensions."""
        return self.dimensions == 2 if self.rows_given else self.dimensions >= 3 or not self.im2col

    @property
    def rows_given(self) -> bool:
        """Whether coordinates name four rows."""
        return self.mode in ("gather4", "scatter4")

    @property
    def coordinates(self) -> int:
        return 5 if self.rows_given else self.dimensions

    @property
    def offsets(self) -> int:
        return self.dimensions - 2 if self.mode == "im2col" else 0

    @property
    def name(self) -> str:
        return f"tensor.{'store' if self.store else 'load'}.{self.dimensions}.{self.mode}.{self.reduce}"


def box_function(module: Module, kind: Kind) -> str:
    """``i32 (i64 map, i64 shared, i32 coordinates…, i32 offsets…)`` over generic addresses.

    It gives the bytes of the box, or :data:`ILLEGAL`.
    """
    words = [("i32", 1)] * (kind.coordinates + kind.offsets)
    return module.function(kind.name, [("i64", 1), ("i64", 1), *words], lambda b, a: _Box(b, kind, a).write())


def read_field(b: Builder, base: Value, field: Field, element: str = "i32") -> Value:
    """A field of the tensor map at a pointer, with what is added to it, as an integer of ``element``."""
    value = b.zext(_bits(b, base, field.at, field.bits), "i64")
    if field.more:
        value = b.or_(value, b.shl(b.zext(_bits(b, base, field.more_at, field.more), "i64"), field.bits))
    return b.resize(b.add(b.shl(value, field.dropped), field.bias), element)


def _bits(b: Builder, base: Value, at: int, count: int) -> Value:
    width = 64 if count > 32 else 32
    place = at // width * width
    word = b.load(f"i{width}", b.gep(base, place // 8), align=width // 8)
    word = b.lshr(word, at - place)
    return word if count == width else b.and_(word, (1 << count) - 1)


class _Box:
    """Writes the function's body."""

    def __init__(self, b: Builder, kind: Kind, arguments: list[Value]) -> None:
        self.b, self.kind = b, kind
        address, self.shared, *words = arguments
        self.map = b.cast("inttoptr", address, _FLAT)
        self.at = [b.sext(w, "i64") for w in words[: kind.coordinates]]
        self.offsets = [b.zext(w, "i64") for w in words[kind.coordinates :]]
        self.result = b.alloca("i32", align=4)

    def _field(self, name: str, index: int = 0, element: str = "i64") -> Value:
        return read_field(self.b, self.map, FIELDS[name][index], element)

    def write(self) -> Value:
        b = self.b
        self._read()
        self._stop(self._illegal(), ILLEGAL)
        rows, columns = self._extent()
        self.pitch = b.select(
            b.icmp("eq", self.swizzle, 0),
            b.shl(columns, self.size_log),
            b.shl(constant("i64", 16), self.swizzle),
        )
        total = b.shl(b.mul(rows, columns), self.size_log)
        b.store(b.trunc(total, "i32"), self.result, align=4)
        self._rows(rows, columns)
        b.branch("end")
        b.label("end")
        return b.load("i32", self.result, align=4)

    # --- the map ---------------------------------------------------------------------------------------

    def _read(self) -> None:
        b, dims = self.b, range(self.kind.dimensions)
        type_field = FIELDS["elemtype"][0]
        self.type = read_field(b, self.map, Field(type_field.at, type_field.bits))
        self.rounded = b.icmp("ne", read_field(b, self.map, Field(type_field.more_at, 1)), 0)
        packed = sum((size.bit_length() - 1) << 4 * n for n, size in tensor_map.ELEMENTS.items())
        spread = b.lshr(constant("i64", packed), b.zext(b.shl(self.type, 2), "i64"))
        self.size_log = b.and_(spread, 3)
        interleave = self._field("interleave_layout")
        self.interleaved, self.slice = b.icmp("ne", interleave, 0), b.shl(interleave, 4)
        self.swizzle = self._field("swizzle_mode")
        self.filled = b.icmp("ne", self._field("fill_mode"), 0)
        self.sizes = [self._field("global_dim", d) for d in dims]
        self.strides = [self.slice, *(self._field("global_stride", d - 1) for d in dims if d)]
        self.steps = [self._field("element_stride", d) for d in dims]
        self.starts = list(self.at)
        self._read_first_dimension()
        if self.kind.im2col:
            self._read_corners()

    def _read_first_dimension(self) -> None:
        """It lies along a row; across rows, of which there is but one along it, where it is interleaved."""
        none, one = constant("i64", 0), constant("i64", 1)
        self.column = self._either(none, self.at[0])
        self.width = self._either(self.b.lshr(self.slice, self.size_log), self.sizes[0])
        self.starts[0] = self._either(self.at[0], none)
        self.sizes[0] = self._either(self.sizes[0], one)
        self.steps[0] = self._either(self.steps[0], one) if self.kind.im2col else one

    def _either(self, interleaved: Value, other: Value) -> Value:
        return self.b.select(self.interleaved, interleaved, other)

    def _read_corners(self) -> None:
        """The bounding box along each dimension but the last; ``bounded`` are those of space.

        They begin with the second, or with the first where it is interleaved. Along others no place is left.
        """
        b, others = self.b, self.kind.dimensions - 1
        lower, upper = tensor_map.corner_fields(self.kind.dimensions)

        def signed(field: Field) -> Value:
            narrow = b.trunc(read_field(b, self.map, field), f"i{field.bits}")
            return b.sext(narrow, "i64")

        low, high = [signed(f) for f in lower], [signed(f) for f in upper]
        self.leaves = constant("i1", 0)
        for below, above in zip(low, high, strict=True):
            self.leaves = b.or_(self.leaves, b.or_(b.icmp("slt", below, 0), b.icmp("sgt", above, 0)))
        self.lowest, self.highest, self.bounded = [], [], []
        for d, (size, start) in enumerate(zip(self.sizes[:others], self.starts, strict=False)):
            nowhere = constant("i64", _NOWHERE)
            lasts = [b.sub(b.add(size, h), 1) for h in high]
            of_slices = (low[d], lasts[d]) if d < others - 1 else (start, nowhere)
            of_pixels = (low[d - 1], lasts[d - 1]) if d else (start, nowhere)
            self.lowest.append(self._either(of_slices[0], of_pixels[0]))
            self.highest.append(self._either(of_slices[1], of_pixels[1]))
            self.bounded.append(self._either(constant("i1", d < others - 1), constant("i1", d > 0)))

    def _illegal(self) -> Value:
        """Where the hardware stops: another rank or mode than the instruction's, or an impossible place."""
        b, kind = self.b, self.kind
        rank = b.add(self._field("rank"), 1)
        mode = read_field(b, self.map, MODE)
        bad = b.or_(b.icmp("ne", rank, kind.dimensions), b.icmp("ne", mode, int(kind.im2col)))
        chunk = b.and_(b.shl(self.column, self.size_log), 15)
        bad = b.or_(bad, b.icmp("ne", chunk, 0))
        if kind.store:
            for place in self.at:
                bad = b.or_(bad, b.icmp("slt", place, 0))
        if kind.im2col:
            corners = zip(self.starts, self.lowest, self.highest, self.bounded, strict=False)
            for place, low, high, bounded in corners:
                beyond = b.or_(b.icmp("slt", place, low), b.icmp("sgt", place, high))
                bad = b.or_(bad, b.and_(bounded, beyond))
            bad = b.or_(bad, self.leaves) if kind.store else bad
        return bad

    def _stop(self, condition: Value, why: int) -> None:
        b = self.b
        stop, on = b.fresh("stop"), b.fresh("on")
        b.cond_branch(condition, stop, on)
        b.label(stop)
        b.store(constant("i32", why), self.result, align=4)
        b.branch("end")
        b.label(on)

    def _extent(self) -> tuple[Value, Value]:
        """Rows of the box, and elements of a row."""
        b, kind = self.b, self.kind
        columns, one = self._field("box_dim"), constant("i64", 1)
        along = self._either(self.width, columns)
        if kind.im2col:
            return read_field(b, self.map, PIXELS, "i64"), along
        self.counts = [self._either(columns, one)]
        for d in range(1, kind.dimensions):
            step = self.steps[d]
            count = b.udiv(b.sub(b.add(self._field("box_dim", d), step), 1), step)
            self.counts.append(self._either(one, count) if d == kind.dimensions - 2 else count)
        if kind.rows_given:
            return constant("i64", 4), along
        rows = one
        for count in self.counts:
            rows = b.mul(rows, count)
        return rows, along

    # --- rows ------------------------------------------------------------------------------------------

    def _rows(self, rows: Value, columns: Value) -> None:
        b = self.b
        self.places = [b.alloca("i64", align=8) for _ in range(self.kind.dimensions)]
        for slot, place in zip(self.places, self.starts, strict=False):
            b.store(place, slot, align=8)
        number = b.alloca("i64", align=8)
        b.store(constant("i64", 0), number, align=8)
        head, body, done = b.fresh("row"), b.fresh("inside"), b.fresh("rows")
        b.branch(head)
        b.label(head)
        n = b.load("i64", number, align=8)
        b.cond_branch(b.icmp("ult", n, rows), body, done)
        b.label(body)
        self._row(n, columns)
        b.store(b.add(n, 1), number, align=8)
        self._advance(n)
        b.branch(head)
        b.label(done)

    def _row(self, n: Value, columns: Value) -> None:
        """One row's elements; where its tensor coordinates are outside, all of them are."""
        b = self.b
        places = [b.load("i64", slot, align=8) for slot in self.places]
        none = constant("i64", 0)
        offsets = [self._either(*o) for o in zip([*self.offsets, none], [none, *self.offsets], strict=True)]
        for i, offset in enumerate(offsets):
            places[i] = b.add(places[i], offset)
        inside = constant("i1", 1)
        address = self._field("global_address")
        for place, size, stride in zip(places, self.sizes, self.strides, strict=True):
            inside = b.and_(b.icmp("ult", place, size), inside)
            address = b.add(address, b.mul(place, stride))
        width = self.width
        if self.kind.store:  # whole chunks
            bytes_wide = b.and_(b.add(b.shl(width, self.size_log), 15), -16)
            width = b.lshr(bytes_wide, self.size_log)
        start = b.add(self.shared, b.mul(n, self.pitch))
        column = b.alloca("i64", align=8)
        b.store(constant("i64", 0), column, align=8)
        head, body, done = b.fresh("column"), b.fresh("element"), b.fresh("columns")
        b.branch(head)
        b.label(head)
        k = b.load("i64", column, align=8)
        b.cond_branch(b.icmp("ult", k, columns), body, done)
        b.label(body)
        x = b.add(self.column, k)
        here = b.and_(inside, b.icmp("ult", x, width))
        self._element(
            self._swizzled(b.add(start, b.shl(k, self.size_log))),
            b.add(address, b.shl(x, self.size_log)),
            here,
        )
        b.store(b.add(k, 1), column, align=8)
        b.branch(head)
        b.label(done)

    def _swizzled(self, address: Value) -> Value:
        """Chunks of 16 bytes within a span turn with the number of the row of 128 bytes."""
        b = self.b
        mask = b.sub(b.shl(constant("i64", 1), self.swizzle), 1)
        return b.xor(address, b.shl(b.and_(b.lshr(address, 7), mask), 4))

    def _advance(self, n: Value) -> None:
        """On to the next row: along each dimension until its end, then the next one by a step."""
        b, kind = self.b, self.kind
        if kind.rows_given:
            row = self.at[-1]
            for i in (2, 1):
                row = b.select(b.icmp("eq", n, i - 1), self.at[1 + i], row)
            b.store(row, self.places[1], align=8)
            return
        done = b.fresh("advanced")
        for d, slot in enumerate(self.places):
            moved = b.add(b.load("i64", slot, align=8), self.steps[d])
            b.store(moved, slot, align=8)
            if d == len(self.places) - 1:
                break
            wrap = b.fresh("wrap")
            b.cond_branch(self._still(d, moved), done, wrap)
            b.label(wrap)
            b.store(self.lowest[d] if kind.im2col else self.starts[d], slot, align=8)
        b.branch(done)
        b.label(done)

    def _still(self, d: int, place: Value) -> Value:
        """Whether a place along dimension ``d`` is still in the box."""
        b = self.b
        if self.kind.im2col:
            return b.icmp("sle", place, self.highest[d])
        end = b.add(self.starts[d], b.mul(self.counts[d], self.steps[d]))
        return b.icmp("slt", place, end)

    # --- elements --------------------------------------------------------------------------------------

    def _element(self, shared: Value, address: Value, inside: Value) -> None:
        b = self.b
        near, far = (b.cast("inttoptr", a, _FLAT) for a in (shared, address))
        if self.kind.reduce:
            self._when(inside, lambda: self._reduce(near, far))
        elif self.kind.store:
            self._when(
                inside, lambda: self._by_size(lambda e, n: b.store(b.load(e, near, align=n), far, align=n))
            )
        else:
            self._by_size(lambda e, n: self._load(e, n, near, far, inside))

    def _when(self, condition: Value, body: Callable[[], None]) -> None:
        b = self.b
        some, past = b.fresh("some"), b.fresh("past")
        b.cond_branch(condition, some, past)
        b.label(some)
        body()
        b.branch(past)
        b.label(past)

    def _by_size(self, body: Callable[[str, int], None]) -> None:
        b, done = self.b, self.b.fresh("moved")
        labels = [b.fresh(f"bytes{1 << n}") for n in range(4)]
        b.switch(self.size_log, labels[0], list(enumerate(labels)))
        for n, label in enumerate(labels):
            b.label(label)
            body(f"i{8 << n}", 1 << n)
            b.branch(done)
        b.label(done)

    def _load(self, element: str, align: int, near: Value, far: Value, inside: Value) -> None:
        b = self.b
        fill = b.select(self.filled, b.const(element, _NAN_HALVES), b.const(element, 0))
        slot = b.alloca(element, align=8)
        b.store(fill, slot, align=align)

        def fetch() -> None:
            value = b.load(element, far, align=align)
            b.store(self._rounded(value) if element == "i32" else value, slot, align=align)

        self._when(inside, fetch)
        b.store(b.load(element, slot, align=align), near, align=align)

    def _rounded(self, value: Value) -> Value:
        """To ten bits of mantissa where the map says so: to nearest, ties away from zero."""
        b = self.b
        nan = b.icmp("ugt", b.and_(value, 0x7FFFFFFF), 0x7F800000)
        nearest = b.select(nan, b.const("i32", 0x7FFFE000), b.and_(b.add(value, 0x1000), 0xFFFFE000))
        return b.select(self.rounded, nearest, value)

    def _reduce(self, near: Value, far: Value) -> None:
        """An atomic operation of the map's type; one that the operation has not is an illegal instruction."""
        b, done, none = self.b, self.b.fresh("reduced"), self.b.fresh("none")
        types = _REDUCED[self.kind.reduce]
        labels = {n: b.fresh("type") for n in types}
        b.switch(self.type, none, list(labels.items()))
        for n, label in labels.items():
            b.label(label)
            self._update(types[n], near, far, flushed=n == tensor_map.SINGLE_FLUSHED)
            b.branch(done)
        b.label(none)
        b.store(constant("i32", ILLEGAL), self.result, align=4)
        b.branch(done)
        b.label(done)

    def _update(self, type: ScalarType, near: Value, far: Value, *, flushed: bool) -> None:
        b, op, order = self.b, self.kind.reduce, 'syncscope("agent") monotonic'
        align = type.bits // 8
        value = b.load(f"i{type.bits}", near, align=align)
        if not is_computed(op, type):
            b.define(
                value.type, 1, f"atomicrmw {instruction_name(op, type)} {far.typed}, {value.typed} {order}"
            )
            return
        if op == "add" and type is ScalarType.F32 and not flushed:
            op = "add.noftz"
        swap_loop(b, far, value, op, type, order)
