"""A kernel's code out of the cache, or compiled and put there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from zluda.compiler.cache import current

if TYPE_CHECKING:
    from zluda.compiler.target import CompiledKernel
    from zluda.compiler.unit import Unit


def compiled(
    unit: Unit, target: str, options: Mapping[str, object], make: Callable[[], CompiledKernel]
) -> CompiledKernel:
    """``make()``, or what it gave the last time for a kernel of the same meaning, target and options.

    ``options`` must name everything beside the unit that ``make`` depends on. What ``make`` raises is raised.
    """
    cache = current()
    if cache is None:
        return make()
    from zluda.compiler.cache.entry import decode, encode
    from zluda.compiler.cache.key import kernel_key

    key = kernel_key(unit, target, options)
    found = cache.get(key)
    if found is not None:
        return decode(found, unit)
    result = make()
    payload = encode(result, unit)
    if payload is not None:
        cache.put(key, payload, label=f"{target} {unit.kernel.name}")
    return result
