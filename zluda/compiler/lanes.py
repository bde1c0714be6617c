"""Lanes from one shape to another."""

from __future__ import annotations

import functools

from zluda.compiler.ir import Builder, Value, constant
from zluda.compiler.target import UNIFORM, VARYING, ZEROS, Geometry, Lanes, Shape


def uniform(value: Value, *, align: int = 1) -> Lanes:
    """One scalar for all lanes."""
    return Lanes(UNIFORM if align == 1 else Shape(ZEROS, 1, align), (value,))


def varying(parts: list[Value] | tuple[Value, ...], geometry: Geometry, b: Builder) -> Lanes:
    """One vector a group; scalars among the parts are splat."""
    return Lanes(VARYING, tuple(b.splat(p, geometry.width) for p in parts))


def base(lanes: Lanes, group: int) -> Value:
    """The base scalar that serves a group."""
    return lanes.parts[group if len(lanes.parts) > 1 else 0]


def group_pattern(lanes: Lanes, group: int, geometry: Geometry) -> tuple[int, ...]:
    """The offsets of one group's lanes."""
    assert lanes.shape.pattern is not None
    return lanes.shape.pattern[group * geometry.width : (group + 1) * geometry.width]


@functools.lru_cache(maxsize=4096)
def _constant_vector(element: str, values: tuple[int, ...]) -> Value:
    """A constant vector; the same few patterns occur over and over."""
    return Value(element, len(values), "<" + ", ".join(constant(element, v).typed for v in values) + ">")


def narrow(lanes: Lanes, group: int, b: Builder, geometry: Geometry) -> Value:
    """A group's value in the fewest lanes: a scalar where its lanes are equal, else a vector."""
    if lanes.shape.varying:
        return lanes.parts[group]
    pattern = group_pattern(lanes, group, geometry)
    value = base(lanes, group)
    if len(set(pattern)) == 1:
        return b.add(value, pattern[0]) if pattern[0] else value
    return b.add(b.splat(value, geometry.width), _constant_vector(value.type, pattern))


def vector(lanes: Lanes, group: int, b: Builder, geometry: Geometry) -> Value:
    """A group's value as a vector."""
    return b.splat(narrow(lanes, group, b, geometry), geometry.width)


def vectors(lanes: Lanes, b: Builder, geometry: Geometry) -> list[Value]:
    """All groups' values as vectors."""
    return [vector(lanes, g, b, geometry) for g in range(geometry.groups)]


def convert(lanes: Lanes, shape: Shape, b: Builder, geometry: Geometry) -> Lanes:
    """The same lanes in a shape at least as general."""
    if shape.varying:
        return lanes if lanes.shape.varying else Lanes(VARYING, tuple(vectors(lanes, b, geometry)))
    assert lanes.shape.pattern is not None
    if lanes.shape.pattern == shape.pattern:
        parts = lanes.parts if len(lanes.parts) == shape.bases else lanes.parts * shape.bases
    else:
        parts = tuple(narrow(lanes, g, b, geometry) for g in range(geometry.groups))
    return Lanes(shape, parts)
