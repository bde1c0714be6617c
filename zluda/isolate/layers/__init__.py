"""Which layer is at fault where a launch differs: the record, lowering, code generation, the runtime, a unit.

One launch is run from its recorded inputs on every device at hand (``probes``), which gives facts; a table in
words says what they mean together (``table``). ``search`` asks for the runs that the table needs next, of one
launch or of all that differ.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from zluda.isolate.layers.table import ROWS, Row, decide

if TYPE_CHECKING:
    from zluda.isolate.layers.search import blame, isolate

__all__ = ["ROWS", "Row", "blame", "decide", "isolate"]


def __getattr__(name: str) -> Any:
    if name not in ("blame", "isolate"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from zluda.isolate.layers import search

    return getattr(search, name)
