"""Calls, launches and modules as pandas frames, for people."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, fields
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
    columns = ["call", *(field.name for field in fields(Call) if field.name != "sequence")]
    rows = (asdict(call) | {"call": call.sequence} for call in islice(trace.iter_calls(start, stop), limit))
    return _frame(rows, columns, ["parent", "end_ns", "result"])


def launches(trace: Trace, start: int, stop: int | None, limit: int | None) -> pandas.DataFrame:
    columns = [field.name for field in fields(Launch)]
    rows = (asdict(launch) for launch in islice(trace.iter_launches(start, stop), limit))
    frame = _frame(rows, columns, ["module", "gpu_time_ns"])
    return frame.assign(fidelity=frame["fidelity"].astype(str))


def modules(trace: Trace) -> pandas.DataFrame:
    return _frame(_module_rows(trace), ["module", *_MODULE_COLUMNS], ["unload_call"])


def _module_rows(trace: Trace) -> Iterator[dict[str, Any]]:
    for module in trace.module_list:
        values = (
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
        yield {"module": module.id, **dict(zip(_MODULE_COLUMNS, values, strict=True))}


def _frame(rows: Iterable[dict[str, Any]], columns: list[str], optional: list[str]) -> pandas.DataFrame:
    """A frame indexed by its first column; ``optional`` columns are integers that may be missing (Int64)."""
    frame = pandas.DataFrame(list(rows), columns=columns)
    return frame.astype(dict.fromkeys(optional, "Int64")).set_index(columns[0])
