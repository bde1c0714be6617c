"""Loads and stores on the CPU: by the shape of the address, one scalar, one vector, or a gather.

A generic address is a host address. The shared and local spaces are windows: ``host - window base``. A
kernel's parameters and module variables are at host addresses; local variables, a call's parameters and a
function's parameters lie on the stack, one slot a lane side by side.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from zluda.compiler.analysis.shapes import UNIFORM, ZEROS, constant_shape, group_uniform, lowest_bit
from zluda.compiler.cpu.context import FAULT_CODES
from zluda.compiler.cpu.special import context_field, context_pointer, warp_number
from zluda.compiler.ir import Value, constant, mangle
from zluda.compiler.lanes import base, group_pattern, narrow, uniform, varying, vector
from zluda.compiler.layout import parameter_layout, round_up
from zluda.compiler.target import VARYING, WARP, Geometry, Lanes, Shape
from zluda.errors import UnsupportedError
from zluda.ptx.module import Variable
from zluda.ptx.types import ScalarType

if TYPE_CHECKING:
    from zluda.compiler.codegen import FunctionCodegen

_STACK_ALIGN = 64
_PARAMETER_ALIGN = 16


def lane_stride(variable: Variable) -> int:
    """Bytes from one lane's copy of a stack variable to the next's."""
    return max(round_up(variable.size, max(variable.align, 1)), 1)


class MemoryOps:
    """The memory part of the CPU's TargetOps."""

    geometry: Geometry

    # --- windows and symbols ---------------------------------------------------------------------------

    def window(self, f: FunctionCodegen, space: str) -> Value:
        """The host address at which a space's window begins: 0 but for shared and local memory."""
        field = {"shared": "shared", "local": "stack_low"}.get(space)
        return context_field(f, field, "i64") if field else constant("i64", 0)

    def in_window(self, f: FunctionCodegen, space: str, address: Lanes) -> Lanes:
        """``isspacep`` (PTX ISA 9.7.9.17); kernel parameters are part of the global window."""
        b = f.b
        parts = []
        for part in (
            f.vectors(address) if address.shape.varying or any(address.shape.pattern or ()) else address.parts
        ):
            inside = {s: self._inside(f, s, part) for s in ("shared", "local", "const", "param")}
            inside["global"] = b.not_(b.or_(b.or_(inside["shared"], inside["local"]), inside["const"]))
            parts.append(inside[space])
        return varying(parts, self.geometry, b) if len(parts) > 1 else uniform(parts[0])

    def _inside(self, f: FunctionCodegen, space: str, address: Value) -> Value:
        b = f.b
        if space == "const":
            found: Value = constant("i1", 0)
            for variable in f.unit.module.variables.values():
                if variable.space == "const" and variable.size:
                    start = self._module_variable(f, variable.name)
                    found = b.or_(b.icmp("ult", b.sub(address, start), variable.size), found)
            return found
        size = {
            "shared": lambda: b.zext(context_field(f, "shared_bytes", "i32"), "i64"),
            "local": lambda: b.sub(
                context_field(f, "stack_high", "i64"), context_field(f, "stack_low", "i64")
            ),
            "param": lambda: b.zext(context_field(f, "param_bytes", "i32"), "i64"),
        }[space]()
        start = context_field(f, "params", "i64") if space == "param" else self.window(f, space)
        return b.icmp("ult", b.sub(address, start), size)

    def symbol_shape(self, f: FunctionCodegen, name: str) -> Shape:
        """The shape of :meth:`symbol`."""
        variable = _stack_variable(f, name)
        if variable is not None:
            stride = lane_stride(variable)
            return Shape(tuple(lane * stride for lane in range(WARP)), 1, _STACK_ALIGN)
        if name in f.unit.shared.offsets:
            return constant_shape(f.unit.shared.offsets[name])
        if name in _parameter_offsets(f):
            return Shape(ZEROS, 1, lowest_bit(_parameter_offsets(f)[name] | _PARAMETER_ALIGN))
        module_variable = f.unit.module.variables.get(name)
        if module_variable is not None:
            return Shape(ZEROS, 1, max(module_variable.align, 1))
        return UNIFORM

    def symbol(self, f: FunctionCodegen, name: str) -> Lanes:
        """The address of a variable, parameter or function in its own space. Raises UnsupportedError."""
        shape = self.symbol_shape(f, name)
        if _stack_variable(f, name) is not None:
            return Lanes(shape, (self._stack_address(f, name),))
        if shape.constant is not None:
            return Lanes(shape, (constant("i32", shape.constant),))
        offsets = _parameter_offsets(f)
        if name in offsets:
            return Lanes(shape, (f.b.add(context_field(f, "params", "i64"), offsets[name]),))
        if name in f.function.variables or name in f.unit.module.variables:
            return Lanes(shape, (self._module_variable(f, name),))
        if name in f.unit.module.function_names:
            return uniform(constant("i64", f.unit.handle(name)))
        raise UnsupportedError(f"address of {name}")

    def _module_variable(self, f: FunctionCodegen, name: str) -> Value:
        """A module variable's address, from the table the device fills in; loaded at the function's entry."""
        table = context_field(f, "symbols", "i64")
        index = f.unit.symbol_index(name)

        def lines() -> list[str]:
            return [
                f"%symbol.{index}.a = add i64 {table.ref}, {8 * index}",
                f"%symbol.{index}.p = inttoptr i64 %symbol.{index}.a to ptr",
                f"%symbol.{index} = load i64, ptr %symbol.{index}.p, align 8",
            ]

        return f.at_entry(f"symbol.{index}", "i64", lines)

    def _stack_address(self, f: FunctionCodegen, name: str) -> Value:
        """The first lane's copy of a local variable or parameter; local addresses are in their window."""
        pointer = f.stack_variables.get(name)
        if pointer is None:
            variable = _stack_variable(f, name)
            assert variable is not None
            pointer = f.b.alloca("i8", count=WARP * lane_stride(variable))
            f.stack_variables[name] = pointer
        address = f.b.cast("ptrtoint", pointer, "i64")
        variable = f.function.variables.get(name)
        if variable is not None and variable.space == "local":
            address = f.b.sub(address, self.window(f, "local"))
        return address

    # --- pointers --------------------------------------------------------------------------------------

    def pointer(self, f: FunctionCodegen, space: str, address: Value, offset: int) -> Value:
        """Host pointers, one a lane of ``address``, ``offset`` bytes further."""
        b = f.b
        if space in ("shared", "local"):
            start = b.cast("inttoptr", self.window(f, space), "ptr")
            inside = b.resize(address, "i32" if space == "shared" else "i64")
            if inside.lanes == 1:
                inside = b.zext(inside, "i64")
            pointer = b.gep(start, inside)
        else:
            pointer = b.cast("inttoptr", b.resize(address, "i64"), "ptr")
        return b.gep(pointer, offset) if offset else pointer

    def check_alignment(self, f: FunctionCodegen, space: str, address: Lanes, offset: int, size: int) -> None:
        """Stop the launch when an active lane's address is not a multiple of the access (PTX ISA 6.4.1.1)."""
        shape, b = address.shape, f.b
        if size <= 1:
            return
        pattern = shape.pattern
        if pattern is not None and all((p + offset) % size == 0 for p in pattern) and shape.align % size == 0:
            return
        checked = (*(p.ref for p in address.parts), pattern, offset % size, size)
        if checked in f.checked:
            return
        f.checked.add(checked)
        parts = [narrow(address, g, b, self.geometry) for g in range(self.geometry.groups)]
        if pattern is not None and shape.bases == 1 and all(p % size == pattern[0] % size for p in pattern):
            parts = [b.add(address.parts[0], pattern[0])]
        bad = [b.icmp("ne", b.and_(b.add(p, offset), size - 1), 0) for p in parts]
        if f.mask is not None and len(parts) == self.geometry.groups > 1:
            bad = [b.and_(x, m) for x, m in zip(bad, f.mask, strict=True)]
        elif len(bad) > 1:
            bad = [b.splat(x, self.geometry.width) for x in bad]
        wrong = b.any(bad[0])
        for x in bad[1:]:
            wrong = b.or_(wrong, b.any(x))
        fault, fine = b.fresh("misaligned"), b.fresh("aligned")
        b.cond_branch(wrong, fault, fine)
        b.label(fault)
        self._report(f, "misaligned", bad, parts, offset)
        b.label(fine)

    def _report(
        self, f: FunctionCodegen, kind: str, bad: list[Value], parts: list[Value], offset: int
    ) -> None:
        """Fault for the first bad lane, giving its thread and address."""
        b, width = f.b, self.geometry.width
        if len(bad) == 1:
            lane = b.intrinsic("cttz", f.mask_bits(), False)
            address = parts[0]
        else:
            lane = b.intrinsic("cttz", f.pack_bits(bad), False)
            spot = b.alloca("i64", width, count=len(parts))
            for g, part in enumerate(parts):
                b.store(b.splat(b.resize(part, "i64"), width), b.gep(spot, g * width * 8), align=64)
            address = b.load("i64", b.gep(spot, b.zext(lane, "i64"), "i64"), align=8)
        thread = b.add(b.shl(warp_number(), 5), lane)
        where = b.add(b.resize(address, "i64"), offset)
        b.call("zluda_fault", [context_pointer(), constant("i32", FAULT_CODES[kind]), thread, where])
        b.unreachable()

    # --- loads -----------------------------------------------------------------------------------------

    def load(
        self,
        f: FunctionCodegen,
        space: str,
        address: Lanes,
        offset: int,
        type: ScalarType,
        count: int,
        *,
        volatile: bool,
        invariant: bool = False,
    ) -> list[Lanes]:
        """See :class:`~zluda.compiler.target.TargetOps`."""
        size = type.bits // 8
        element = f"i{type.bits}"
        self.check_alignment(f, space, address, offset, size * count)
        suffix = ", !invariant.load !0" if invariant else ""
        if address.shape.uniform:
            pointer = self.pointer(f, space, address.parts[0], offset)
            return [
                uniform(self._scalar(f, element, pointer, i * size, size, volatile, suffix))
                for i in range(count)
            ]
        groups = range(self.geometry.groups)
        if group_uniform(address.shape, self.geometry):
            pointers = [
                self._safe(f, self.pointer(f, space, narrow(address, g, f.b, self.geometry), offset), g)
                for g in groups
            ]
            shape = Shape(ZEROS, self.geometry.groups)
            return [
                Lanes(
                    shape,
                    tuple(self._scalar(f, element, p, i * size, size, volatile, suffix) for p in pointers),
                )
                for i in range(count)
            ]
        columns = [self._load_group(f, space, address, offset, element, size, count, g) for g in groups]
        return [Lanes(VARYING, tuple(column[i] for column in columns)) for i in range(count)]

    def _scalar(
        self,
        f: FunctionCodegen,
        element: str,
        pointer: Value,
        offset: int,
        size: int,
        volatile: bool,
        suffix: str,
    ) -> Value:
        at = f.b.gep(pointer, offset) if offset else pointer
        kind = "load volatile" if volatile else "load"
        return f.b.define(element, 1, f"{kind} {element}, {at.typed}, align {size}{suffix}")

    def _safe(self, f: FunctionCodegen, pointer: Value, group: int) -> Value:
        """The pointer, or readable memory for a group none of whose lanes executes."""
        if f.mask is None:
            return pointer
        return f.b.select(f.b.any(f.mask[group]), pointer, context_pointer())

    def _load_group(
        self,
        f: FunctionCodegen,
        space: str,
        address: Lanes,
        offset: int,
        element: str,
        size: int,
        count: int,
        g: int,
    ) -> list[Value]:
        mask = f.mask[g] if f.mask is not None else None
        stride = _stride(address, g, self.geometry)
        if stride == size * count:
            first = f.b.add(base(address, g), group_pattern(address, g, self.geometry)[0])
            pointer = self.pointer(f, space, first, offset)
            return self._load_rows(f, pointer, element, size, count, mask)
        lanes = vector(address, g, f.b, self.geometry)
        if count == 1 and size >= 4 and space != "local" and address.shape.varying:
            return [self._load_checked(f, space, lanes, offset, element, size, mask)]
        return [
            self._gather(f, self.pointer(f, space, lanes, offset + i * size), element, size, mask)
            for i in range(count)
        ]

    def _gather(
        self, f: FunctionCodegen, pointers: Value, element: str, size: int, mask: Value | None
    ) -> Value:
        return f.b.gather(element, pointers, align=size, mask=mask)

    def _load_rows(
        self, f: FunctionCodegen, pointer: Value, element: str, size: int, count: int, mask: Value | None
    ) -> list[Value]:
        """``count`` elements a lane, the lanes side by side: one wide load, then one shuffle an element."""
        width, b = self.geometry.width, f.b
        total = width * count
        if mask is None:
            wide = b.load(element, pointer, total, align=size)
        else:
            spread = b.shuffle(mask, None, [i // count for i in range(total)]) if count > 1 else mask
            wide = masked_load(f, element, pointer, total, size, spread)
        if count == 1:
            return [wide]
        return [b.shuffle(wide, None, range(i, total, count)) for i in range(count)]

    def _load_checked(
        self,
        f: FunctionCodegen,
        space: str,
        lanes: Value,
        offset: int,
        element: str,
        size: int,
        mask: Value | None,
    ) -> Value:
        """A load whose addresses are, as often, consecutive without our knowing: tested when it runs."""
        b, width = f.b, self.geometry.width
        first = b.extract(lanes, 0)
        steps = b.vector(lanes.type, [i * size for i in range(width)])
        apart = b.icmp("ne", b.add(b.splat(first, width), steps), lanes)
        if mask is not None:
            apart = b.and_(apart, mask)
        scattered, row, rest, join = b.any(apart), b.fresh("row"), b.fresh("gather"), b.fresh("loaded")
        b.cond_branch(scattered, rest, row)
        b.label(row)
        whole = self._load_rows(f, self.pointer(f, space, first, offset), element, size, 1, mask)[0]
        b.branch(join)
        b.label(rest)
        gathered = self._gather(f, self.pointer(f, space, lanes, offset), element, size, mask)
        b.branch(join)
        b.label(join)
        return b.phi(element, width, [(whole, row), (gathered, rest)])

    # --- stores ----------------------------------------------------------------------------------------

    def store(
        self,
        f: FunctionCodegen,
        space: str,
        address: Lanes,
        offset: int,
        type: ScalarType,
        values: list[Lanes],
        *,
        volatile: bool,
    ) -> None:
        """See :class:`~zluda.compiler.target.TargetOps`. Of lanes with one address the last one wins."""
        size = type.bits // 8
        self.check_alignment(f, space, address, offset, size * len(values))
        if address.shape.uniform and all(v.shape.uniform for v in values):
            pointer = self.pointer(f, space, address.parts[0], offset)
            for i, value in enumerate(values):
                at = f.b.gep(pointer, i * size) if i else pointer
                kind = "store volatile" if volatile else "store"
                f.b.emit(f"{kind} {value.parts[0].typed}, {at.typed}, align {size}")
            return
        for g in range(self.geometry.groups):
            parts = [vector(v, g, f.b, self.geometry) for v in values]
            self._store_group(f, space, address, offset, parts, size, g)

    def _store_group(
        self,
        f: FunctionCodegen,
        space: str,
        address: Lanes,
        offset: int,
        values: list[Value],
        size: int,
        g: int,
    ) -> None:
        mask = f.mask[g] if f.mask is not None else None
        if _stride(address, g, self.geometry) == size * len(values):
            first = f.b.add(base(address, g), group_pattern(address, g, self.geometry)[0])
            self._store_rows(f, self.pointer(f, space, first, offset), values, size, mask)
            return
        lanes = vector(address, g, f.b, self.geometry)
        if len(values) == 1 and space != "local" and address.shape.varying:
            self._store_checked(f, space, lanes, offset, values[0], size, mask)
            return
        for i, value in enumerate(values):
            scatter(f, value, self.pointer(f, space, lanes, offset + i * size), size, mask)

    def _store_rows(
        self, f: FunctionCodegen, pointer: Value, values: list[Value], size: int, mask: Value | None
    ) -> None:
        """Lanes side by side: the elements interleaved into one wide store."""
        width, count, b = self.geometry.width, len(values), f.b
        wide = _interleave(f, values)
        if mask is None:
            b.store(wide, pointer, align=size)
            return
        spread = b.shuffle(mask, None, [i // count for i in range(width * count)]) if count > 1 else mask
        masked_store(f, wide, pointer, size, spread)

    def _store_checked(
        self,
        f: FunctionCodegen,
        space: str,
        lanes: Value,
        offset: int,
        value: Value,
        size: int,
        mask: Value | None,
    ) -> None:
        b, width = f.b, self.geometry.width
        first = b.extract(lanes, 0)
        steps = b.vector(lanes.type, [i * size for i in range(width)])
        apart = b.icmp("ne", b.add(b.splat(first, width), steps), lanes)
        if mask is not None:
            apart = b.and_(apart, mask)
        scattered, row, rest, join = b.any(apart), b.fresh("row"), b.fresh("scatter"), b.fresh("stored")
        b.cond_branch(scattered, rest, row)
        b.label(row)
        self._store_rows(f, self.pointer(f, space, first, offset), [value], size, mask)
        b.branch(join)
        b.label(rest)
        scatter(f, value, self.pointer(f, space, lanes, offset), size, mask)
        b.branch(join)
        b.label(join)


def _parameter_offsets(f: FunctionCodegen) -> dict[str, int]:
    """A kernel's parameters in the packed buffer, which the device aligns to 16 bytes."""
    return (
        {s.name: s.offset for s in parameter_layout(f.function.parameters)[0]} if f.function.is_entry else {}
    )


def masked_load(
    f: FunctionCodegen, element: str, pointer: Value, lanes: int, align: int, mask: Value
) -> Value:
    """``llvm.masked.load``; lanes that are off are zero."""
    zero = f.b.splat(constant(element, 0), lanes)
    name = f"llvm.masked.load.{mangle(element, lanes)}.p0"
    return f.b.call(name, [pointer, constant("i32", align), mask, zero], element, lanes)


def masked_store(f: FunctionCodegen, value: Value, pointer: Value, align: int, mask: Value) -> None:
    """``llvm.masked.store``."""
    name = f"llvm.masked.store.{mangle(value.type, value.lanes)}.p0"
    f.b.call(name, [value, pointer, constant("i32", align), mask])


def scatter(f: FunctionCodegen, value: Value, pointers: Value, align: int, mask: Value | None) -> None:
    """``llvm.masked.scatter``: in lane order, as overlapping addresses need."""
    chosen = f.b.splat(mask if mask is not None else constant("i1", 1), pointers.lanes)
    name = f"llvm.masked.scatter.{mangle(value.type, value.lanes)}.{mangle('ptr', pointers.lanes)}"
    f.b.call(name, [value, pointers, constant("i32", align), chosen])


def _interleave(f: FunctionCodegen, values: list[Value]) -> Value:
    """Lane 0 of each value, lane 1 of each, and so on. One, two, four or eight values."""
    b = f.b
    if len(values) == 1:
        return values[0]
    width = values[0].lanes
    joined = list(values)
    while len(joined) > 1:
        n = joined[0].lanes
        pairs = zip(joined[::2], joined[1::2], strict=True)
        joined = [b.shuffle(x, y, range(2 * n)) for x, y in pairs]
    count = len(values)
    return b.shuffle(joined[0], None, [(i % count) * width + i // count for i in range(width * count)])


def _stride(address: Lanes, group: int, geometry: Geometry) -> int | None:
    """Bytes from each lane of a group to the next, where they are all the same."""
    if address.shape.varying:
        return None
    pattern = group_pattern(address, group, geometry)
    steps = {y - x for x, y in itertools.pairwise(pattern)}
    return steps.pop() if len(steps) == 1 else None


def _stack_variable(f: FunctionCodegen, name: str) -> Variable | None:
    """A local variable, a call's parameter, or a function's parameter: what has a copy a lane."""
    variable = f.function.variables.get(name)
    if variable is not None and variable.space in ("local", "param"):
        return variable
    if f.function.is_entry:
        return None
    return next(
        (v for v in (*f.function.parameters, *f.function.returns) if v.name == name and v.space == "param"),
        None,
    )
