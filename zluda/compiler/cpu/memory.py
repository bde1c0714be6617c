"""Loads and stores on the CPU: by the shape of the address, one scalar, one vector, or a gather."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from zluda.compiler.analysis.shapes import group_uniform
from zluda.compiler.cpu.addresses import AddressOps
from zluda.compiler.cpu.special import context_pointer
from zluda.compiler.ir import Value, constant, mangle
from zluda.compiler.lanes import base, group_pattern, narrow, uniform, vector
from zluda.compiler.target import VARYING, ZEROS, Geometry, Lanes, Shape
from zluda.ptx.types import ScalarType

if TYPE_CHECKING:
    from zluda.compiler.codegen import FunctionCodegen

T = TypeVar("T")


class MemoryOps(AddressOps):
    """The memory part of the CPU's TargetOps."""

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
        self.check_access(f, space, address, offset, size * count)
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
        whole, gathered = self._by_shape(
            f,
            lanes,
            size,
            mask,
            lambda first: self._load_rows(f, self.pointer(f, space, first, offset), element, size, 1, mask)[
                0
            ],
            lambda: self._gather(f, self.pointer(f, space, lanes, offset), element, size, mask),
        )
        return f.b.phi(element, self.geometry.width, [whole, gathered])

    def _by_shape(
        self,
        f: FunctionCodegen,
        lanes: Value,
        size: int,
        mask: Value | None,
        together: Callable[[Value], T],
        apart: Callable[[], T],
    ) -> tuple[tuple[T, str], tuple[T, str]]:
        """One access where active lanes are consecutive, another elsewhere; each with its block."""
        b, width = f.b, self.geometry.width
        first = b.extract(lanes, 0)
        steps = b.vector(lanes.type, [i * size for i in range(width)])
        scattered = b.icmp("ne", b.add(b.splat(first, width), steps), lanes)
        if mask is not None:
            scattered = b.and_(scattered, mask)
        condition, row, rest, join = b.any(scattered), b.fresh("row"), b.fresh("apart"), b.fresh("join")
        b.cond_branch(condition, rest, row)
        b.label(row)
        whole = together(first)
        b.branch(join)
        b.label(rest)
        single = apart()
        b.branch(join)
        b.label(join)
        return (whole, row), (single, rest)

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
        self.check_access(f, space, address, offset, size * len(values))
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
        self._by_shape(
            f,
            lanes,
            size,
            mask,
            lambda first: self._store_rows(f, self.pointer(f, space, first, offset), [value], size, mask),
            lambda: scatter(f, value, self.pointer(f, space, lanes, offset), size, mask),
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
