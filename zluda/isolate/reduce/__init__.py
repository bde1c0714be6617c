"""A launch that goes wrong, made small: fewer blocks, fewer bytes, less PTX, for as long as it goes wrong
alike.

``reduce_launch`` runs every candidate (``case``) on the device that is right and on the one that is wrong
(``question``): the shape and memory of the launch (``launch``), then its PTX by delta debugging (``program``,
``instructions``). What is left becomes a folder ``repro/`` with a trace, its PTX and a test that fails
(``repro``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zluda.isolate.reduce.search import Reduced, reduce_launch

__all__ = ["Reduced", "reduce_launch"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from zluda.isolate.reduce import search

    return getattr(search, name)
