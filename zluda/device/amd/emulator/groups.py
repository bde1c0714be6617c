"""One element a lane, in memory: groups of 16 lanes at consecutive addresses by vector accesses.

Most accesses are of that kind; groups that read one address load a scalar, and the rest goes lane by lane.
"""

from __future__ import annotations

from collections.abc import Callable

from zluda.compiler.ir import Builder, Value, constant, mangle, type_bits

_GROUP = 16  # lanes of 32 bits in the widest host register


def _first_of_groups(b: Builder, values: Value) -> Value:
    """Each lane's value from the first lane of its group of 16."""
    return b.shuffle(values, None, [lane & ~(_GROUP - 1) for lane in range(values.lanes)])


def _all_active(b: Builder, condition: Value, mask: Value) -> Value:
    """Whether a condition holds in every lane of ``mask``."""
    return b.icmp("eq", b.or_(b.reshape(condition, mask.type, 1), b.not_(mask)), -1)


def _consecutive(b: Builder, positions: Value, element: str, mask: Value) -> Value:
    """Whether, in each group of lanes, active lanes' positions follow one another from the group's first."""
    size = type_bits(element) // 8
    steps = b.vector(positions.type, [lane % _GROUP * size for lane in range(positions.lanes)])
    return _all_active(b, b.icmp("eq", positions, b.add(_first_of_groups(b, positions), steps)), mask)


def _uniform(b: Builder, positions: Value, mask: Value) -> Value:
    """Whether, in each group of lanes, active lanes have the position of the group's first."""
    return _all_active(b, b.icmp("eq", positions, _first_of_groups(b, positions)), mask)


def _groups(b: Builder, values: Value) -> list[Value]:
    """A vector cut into groups of 16 lanes."""
    starts = range(0, values.lanes, _GROUP)
    return [b.shuffle(values, None, range(start, start + _GROUP)) for start in starts]


def _join(b: Builder, parts: list[Value]) -> Value:
    """Groups laid end to end."""
    while len(parts) > 1:
        lanes = 2 * parts[0].lanes
        parts = [b.shuffle(parts[i], parts[i + 1], range(lanes)) for i in range(0, len(parts), 2)]
    return parts[0]


def _load_groups(
    b: Builder, element: str, positions: Value, mask: Value, pointer: Callable[[Value], Value]
) -> Value:
    """One masked vector load a group, from its first lane's position."""
    parts = []
    for group, active in enumerate(_groups(b, b.reshape(mask, "i1", positions.lanes))):
        parts.append(masked_load(b, element, pointer(b.extract(positions, group * _GROUP)), active))
    return _join(b, parts)


def _load_uniform(
    b: Builder, element: str, positions: Value, mask: Value, pointer: Callable[[Value], Value]
) -> Value:
    """One scalar a group, in all of its lanes."""
    zero = b.alloca(element, align=8)
    b.store(constant(element, 0), zero, align=8)
    active = b.reshape(mask, "i1", positions.lanes)
    parts = []
    for group, lanes in enumerate(_groups(b, active)):
        place = pointer(b.extract(positions, group * _GROUP))
        safe = b.select(b.any(lanes), place, zero)  # a group without active lanes may have any position
        parts.append(b.splat(b.load(element, safe, align=1), _GROUP))
    return b.select(active, _join(b, parts), 0)


def load_by_shape(
    b: Builder, element: str, positions: Value, mask: Value, pointer: Callable[[Value], Value]
) -> Value:
    """Load an element a lane: a vector a group, a scalar a group, or lane by lane."""

    def apart() -> Value:
        result = two_ways(
            b,
            _uniform(b, positions, mask),
            lambda: _load_uniform(b, element, positions, mask, pointer),
            lambda: b.gather(
                element, pointer(positions), align=1, mask=b.reshape(mask, "i1", positions.lanes)
            ),
        )
        assert result is not None
        return result

    result = two_ways(
        b,
        _consecutive(b, positions, element, mask),
        lambda: _load_groups(b, element, positions, mask, pointer),
        apart,
    )
    assert result is not None
    return result


def store_by_shape(
    b: Builder, value: Value, positions: Value, mask: Value, pointer: Callable[[Value], Value]
) -> None:
    """Store an element a lane: a vector a group, or lane by lane."""
    active = b.reshape(mask, "i1", positions.lanes)

    def together() -> None:
        for group, (part, lanes) in enumerate(zip(_groups(b, value), _groups(b, active), strict=True)):
            masked_store(b, part, pointer(b.extract(positions, group * _GROUP)), lanes)

    def apart() -> None:
        scatter(b, value, pointer(positions), active)

    two_ways(b, _consecutive(b, positions, value.type, mask), together, apart)


def two_ways(
    b: Builder,
    condition: Value,
    vector: Callable[[], Value | None],
    lanes: Callable[[], Value | None],
) -> Value | None:
    """One access where ``condition`` holds, else the other; joins the results."""
    together, apart, done = b.fresh("together"), b.fresh("apart"), b.fresh("done")
    b.cond_branch(condition, together, apart)
    b.label(together)
    first = vector()
    b.branch(f"{together}.end")
    b.label(f"{together}.end")
    b.branch(done)
    b.label(apart)
    second = lanes()
    b.branch(f"{apart}.end")
    b.label(f"{apart}.end")
    b.branch(done)
    b.label(done)
    if first is None or second is None:
        return None
    return b.phi(first.type, first.lanes, [(first, f"{together}.end"), (second, f"{apart}.end")])


def masked_load(b: Builder, element: str, pointer: Value, mask: Value) -> Value:
    zero = b.splat(constant(element, 0), mask.lanes)
    name = f"llvm.masked.load.{mangle(element, mask.lanes)}.p0"
    return b.call(name, [pointer, constant("i32", 1), mask, zero], element, mask.lanes)


def masked_store(b: Builder, value: Value, pointer: Value, mask: Value) -> None:
    b.call(
        f"llvm.masked.store.{mangle(value.type, value.lanes)}.p0", [value, pointer, constant("i32", 1), mask]
    )


def scatter(b: Builder, value: Value, pointers: Value, mask: Value) -> None:
    """Store one element a lane at its own pointer."""
    name = f"llvm.masked.scatter.{mangle(value.type, value.lanes)}.{mangle('ptr', value.lanes)}"
    b.call(name, [value, pointers, constant("i32", 1), mask])
