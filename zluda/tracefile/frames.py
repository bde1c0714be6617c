"""Calls, launches and modules as pandas frames, for people."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

import pandas

from zluda.tracefile.records import Call, Launch

if TYPE_CHECKING:
    from zluda.tracefile.reader import Trace

_MODULE_COLUMNS = (
    *("kind", "origin", "handle", "load_call", "unload_call"),
    *("images", "bytes", "has_ptx", "kernels"),
)


def calls(trace: Trace, start: int, stop: int | None, limit: int | None) -> pandas.DataFrame:
    columns = ["call", *Call._fields[1:]]  # its first field is the number
    return _frame(islice(trace.iter_calls(start, stop), limit), columns, ["parent", "end_ns", "result"])


def launches(trace: Trace, start: int, stop: int | None, limit: int | None) -> pandas.DataFrame:
    rows = islice(trace.iter_launches(start, stop), limit)
    frame = _frame(rows, list(Launch._fields), ["module", "gpu_time_ns"])
    return frame.assign(fidelity=frame["fidelity"].astype(str))


def modules(trace: Trace) -> pandas.DataFrame:
    return _frame(_module_rows(trace), ["module", *_MODULE_COLUMNS], ["unload_call"])


def _module_rows(trace: Trace) -> Iterator[tuple[Any, ...]]:
    for module in trace.module_list:
        yield (
            module.id,
            module.kind.value,
            module.origin,
            module.handle,
            module.load_call,
            module.unload_call,
            len(module.images),
            sum(image.size for image in module.images[:1]),
            module.ptx_image is not None,
            [function.name for function in trace.functions if function.module == module.id],
        )


def _frame(rows: Iterable[tuple[Any, ...]], columns: list[str], optional: list[str]) -> pandas.DataFrame:
    """A frame indexed by its first column; ``optional`` columns are integers that may be missing (Int64)."""
    # Column by column: pandas' own inference makes floats of integers and None, and nanoseconds lose digits.
    columns_of = zip(*rows, strict=True)
    values = {name: list(column) for name, column in zip(columns, columns_of, strict=False)}
    frame = pandas.DataFrame(
        {
            name: pandas.array(values.get(name, []), dtype="Int64")
            if name in optional
            else pandas.Series(values.get(name, []), dtype=None if values else object)
            for name in columns
        }
    )
    return frame.set_index(columns[0])
