"""Rows of the database into records. What does not fit raises TypeError, ValueError or LookupError.

SQLite's STRICT holds types only where it wrote the file itself, so a row is believed column by column.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from zluda.tracefile.arguments import ArgumentLayout
from zluda.tracefile.gpu_times import ClockFit, GpuTime, Moment
from zluda.tracefile.records import (
    Allocation,
    AllocationKind,
    Call,
    Counts,
    Direction,
    Fidelity,
    Function,
    Gap,
    Image,
    Launch,
    LeftOut,
    LoadedModule,
    ModuleKind,
    Noise,
    NoiseKind,
    Page,
    Parameter,
    Shape,
    Signature,
    Unproved,
)

SELECT_COUNTS = """
SELECT
    calls, calls - ended, threads,
    (SELECT count(*) FROM launch),
    (SELECT count(DISTINCT name) FROM function WHERE id IN (SELECT function FROM shape)),
    (SELECT count(*) FROM module),
    (SELECT count(DISTINCT module) FROM image WHERE kind = 'ptx'),
    (SELECT count(*) FROM allocation),
    (SELECT count(*) FROM page),
    (SELECT coalesce(sum(length), 0) FROM page),
    (SELECT count(*) FROM payload),
    (SELECT count(*) FROM blob),
    (SELECT coalesce(sum(count), 0) FROM gap)
FROM (SELECT count(*) AS calls, count(end_ns) AS ended, count(DISTINCT thread) AS threads FROM call)
"""  # in the order of the fields of Counts

NO_TIMES = (
    "(SELECT NULL AS call, NULL AS clock, NULL AS start_ns, NULL AS duration_ns WHERE false) AS gpu_time"
)
"""In the place of the table of GPU times, where a trace has none."""

SELECT_LAUNCH = """
SELECT launch.call, shape, stream, parameters, coalesce(duration_ns, gpu_time_ns), captured
FROM launch LEFT JOIN {times} ON gpu_time.call = launch.call
"""

SELECT_KERNELS = """
SELECT name, module, count(*), sum(coalesce(duration_ns, gpu_time_ns))
FROM launch JOIN shape ON launch.shape = shape.id JOIN function ON shape.function = function.id
LEFT JOIN {times} ON gpu_time.call = launch.call
GROUP BY name, module ORDER BY min(launch.call)
"""

# Each launch with the calls around it, all the way out; of those that are library calls, the outermost
# counts.
SELECT_LAUNCHES_BELOW = """
WITH RECURSIVE inside(launch, at) AS (
    SELECT call, call FROM launch
    UNION ALL
    SELECT inside.launch, parent FROM inside JOIN call ON sequence = at WHERE parent < sequence
), library(launch, at) AS (
    SELECT launch, min(at) FROM inside JOIN call ON sequence = at WHERE signature IN ({signatures}) GROUP BY
    launch
)
SELECT signature, count(*), sum(coalesce(duration_ns, gpu_time_ns))
FROM library JOIN call ON sequence = at JOIN launch ON launch.call = library.launch
LEFT JOIN {times} ON gpu_time.call = library.launch
GROUP BY signature ORDER BY min(at)
"""

_WORD = (1 << 64) - 1


def meta(row: Sequence[Any]) -> tuple[str, Any]:
    return _text(row[0]), json.loads(row[1])


def open_call(row: Sequence[Any]) -> tuple[int, bytes]:
    sequence, arguments = row
    return _integer(sequence), _bytes(arguments)


def number(row: Sequence[Any]) -> int:
    return _integer(row[0])


def signature(row: Sequence[Any]) -> Signature:
    parameters = tuple(
        Parameter(_text(name), _text(type_name), Direction(direction), _count(size))
        for name, type_name, direction, size in json.loads(row[2])
    )
    return Signature(_integer(row[0]), _text(row[1]), parameters)


def call(row: Sequence[Any], signature: Signature, layout: ArgumentLayout) -> Call:
    sequence, thread, parent, _, start_ns, end_ns, result, blob = row
    arguments, pointees, before = layout.decode(_bytes(blob), result)
    return Call(
        _integer(sequence),
        _integer(thread),
        _optional(parent),
        signature.function,
        arguments,
        pointees,
        _integer(start_ns),
        _optional(end_ns),
        _optional(result),
        before,
    )


def payload_piece(row: Sequence[Any]) -> tuple[int, Direction, int, int, int]:
    parameter, direction, offset, length, blob = row
    return _count(parameter), Direction(direction), _count(offset), _count(length), _integer(blob)


def image(row: Sequence[Any]) -> tuple[int, Image]:
    owner, kind, architecture, origin, size, blob = row
    return _integer(owner), Image(
        ModuleKind(kind), _text(architecture), _text(origin), _count(size), _integer(blob)
    )


def module(row: Sequence[Any], images: tuple[Image, ...]) -> LoadedModule:
    key, kind, origin, handle, load_call, unload_call = row
    return LoadedModule(
        _integer(key),
        ModuleKind(kind),
        _text(origin),
        _word(handle),
        _integer(load_call),
        _optional(unload_call),
        images,
    )


def function(row: Sequence[Any]) -> Function:
    key, handle, first_call, owner, name, layout = row
    return Function(
        _integer(key), _word(handle), _integer(first_call), _optional(owner), _text(name), _layout(layout)
    )


def shape(row: Sequence[Any]) -> tuple[int, Shape]:
    key, owner, *sizes, shared_bytes, attributes, fidelity = row
    grid_x, grid_y, grid_z, block_x, block_y, block_z, cluster_x, cluster_y, cluster_z = map(_count, sizes)
    return _integer(key), Shape(
        _integer(owner),
        (grid_x, grid_y, grid_z),
        (block_x, block_y, block_z),
        (cluster_x, cluster_y, cluster_z),
        _count(shared_bytes),
        _bytes(attributes),
        Fidelity(fidelity),
    )


def launch(row: Sequence[Any], shape: Shape, function: Function) -> Launch:
    sequence, _, stream, parameters, gpu_time_ns, captured = row
    return Launch(
        call=_integer(sequence),
        function=function.id,
        kernel=function.name,
        handle=function.handle,
        module=function.module,
        grid=shape.grid,
        block=shape.block,
        cluster=shape.cluster,
        shared_bytes=shape.shared_bytes,
        stream=_word(stream),
        attributes=shape.attributes,
        parameters=_bytes(parameters),
        layout=function.layout,
        gpu_time_ns=_optional(gpu_time_ns),
        fidelity=shape.fidelity,
        captured=captured == 1,
        left_out=LeftOut(captured) if _integer(captured) > 1 else None,
    )


def gpu_time(row: Sequence[Any], clocks: Mapping[int, ClockFit]) -> GpuTime:
    sequence, clock, start_ns, duration_ns = map(_integer, row)
    fit = clocks.get(clock)
    return GpuTime(
        sequence, clock, start_ns, _count(duration_ns), None if fit is None else fit.host(start_ns)
    )


def moment(row: Sequence[Any]) -> Moment:
    clock, gpu_ns, host_ns, error_ns = map(_integer, row)
    return Moment(clock, gpu_ns, host_ns, _count(error_ns))


def allocation(row: Sequence[Any]) -> Allocation:
    key, base, size, kind, name, owner, born, died = row
    return Allocation(
        _integer(key),
        _word(base),
        _count(size),
        AllocationKind(kind),
        _text(name),
        _optional(owner),
        _integer(born),
        _optional(died),
    )


def page(row: Sequence[Any]) -> Page:
    sequence, owner, offset, length, blob = row
    return Page(_integer(sequence), _integer(owner), _count(offset), _count(length), _integer(blob))


def kernel(row: Sequence[Any]) -> tuple[str, int | None, int, int | None]:
    name, owner, launches, time_ns = row
    return _text(name), _optional(owner), _count(launches), _optional(time_ns)


def launches_below(row: Sequence[Any]) -> tuple[int, int, int | None]:
    signature, launches, time_ns = row
    return _integer(signature), _count(launches), _optional(time_ns)


def gap(row: Sequence[Any]) -> Gap:
    return Gap(_optional(row[0]), _text(row[1]), _text(row[2]), _integer(row[3]))


def proof(row: Sequence[Any]) -> Unproved:
    return Unproved(_integer(row[0]), _text(row[1]), _text(row[2]))


def noise(row: Sequence[Any]) -> Noise:
    call, allocation, kind, element, origin, elements, mask, row_bytes, ulp, absolute, unbounded, runs = row
    return Noise(
        call=_integer(call),
        allocation=_integer(allocation),
        kind=NoiseKind(kind),
        element_type=_text(element),
        origin=_count(origin),
        elements=_count(elements),
        mask=_integer(mask),
        row_bytes=_row_bytes(row_bytes, kind),
        max_ulp=_distance(ulp),
        max_absolute=_distance(absolute),
        unbounded=bool(_count(unbounded)),
        runs=_count(runs),
    )


def counts(row: Sequence[Any]) -> Counts:
    return Counts(*(_count(value) for value in row))


def _layout(text: str | None) -> tuple[tuple[int, int], ...] | None:
    if text is None:
        return None
    return tuple((_count(offset), _count(size)) for offset, size in json.loads(text))


def _integer(value: Any) -> int:
    if type(value) is not int:
        raise TypeError(f"{value!r} where a whole number is expected")
    return value


def _count(value: Any) -> int:
    if _integer(value) < 0:
        raise ValueError(f"{value} where a size or a number from 0 is expected")
    return int(value)


def _optional(value: Any) -> int | None:
    return None if value is None else _integer(value)


def _word(value: Any) -> int:
    return _integer(value) & _WORD


def _row_bytes(value: Any, kind: Any) -> int:
    if (_count(value) > 0) != (kind == NoiseKind.SET):
        raise ValueError(f"rows of {value} bytes")
    return int(value)


def _distance(value: Any) -> float | None:
    if value is not None and (type(value) is not float or not value >= 0):
        raise TypeError(f"{value!r} where a distance is expected")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} where text is expected")
    return value


def _bytes(value: Any) -> bytes:
    if not isinstance(value, bytes):
        raise TypeError(f"{value!r} where bytes are expected")
    return value
