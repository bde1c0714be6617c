"""The first PTX instruction of a launch whose value differs between two devices, although its inputs agree.

``first_difference(trace, launch, "cpu", "gfx1030")`` instruments the launch's PTX (``instrument``), so that
it runs alike on every device that takes PTX; runs it on both; reads what the threads of one warp computed, in
the order in which each of them did (``log``); and goes along both (``align``). Which warp: that which last
wrote the first byte in which the two devices' results differ (``writers``); from a load on, that which wrote
what was loaded (``search``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from zluda.isolate.values.difference import Difference, Kind

if TYPE_CHECKING:
    from zluda.isolate.values.search import first_difference

__all__ = ["Difference", "Kind", "first_difference"]


def __getattr__(name: str) -> Any:
    if name != "first_difference":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from zluda.isolate.values import search

    return search.first_difference
