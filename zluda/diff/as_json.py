"""Parts of ``zluda replay --json``: kernels with class and bound; comparisons that found a difference.

``docs/verdicts.md`` has the schema.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

from zluda.diff.results import BufferComparison, Element, LaunchResult, ReplayResult, json_number

MOST_DIFFERENCES = 100
"""Launches and copies that are told in full: those that fail before those that hold, each in call order."""


def kernels(result: ReplayResult) -> dict[str, Any]:
    """Kernel → its class, the instructions that make it one, the bound used, and launches by verdict."""
    verdicts: dict[str, Counter[str]] = {}
    for one in result.results:
        if one.kind == "launch":
            verdicts.setdefault(one.kernel, Counter())[one.verdict.key] += 1
    return {name: {**_class(result, name), "verdicts": dict(counts)} for name, counts in verdicts.items()}


def _class(result: ReplayResult, kernel: str) -> dict[str, Any]:
    found = result.classes.get(kernel)
    if found is None:
        return {"class": None, "causes": [], "bound": None}
    return {"class": found.kind.value, "causes": list(found.names), "bound": result.bound(kernel)}


def differences(result: ReplayResult) -> tuple[list[dict[str, Any]], int]:
    """(the first that are not identical, how many more there are)"""
    found = [one for one in result.results if any(buffer.differing for buffer in one.buffers)]
    found.sort(key=lambda one: (one.verdict.counts_as.value != "fails", one.call))
    shown = [_difference(result, one) for one in found[:MOST_DIFFERENCES]]
    return shown, len(found) - len(shown)


def _difference(result: ReplayResult, one: LaunchResult) -> dict[str, Any]:
    known = result.classes.get(one.kernel)
    return {
        "call": one.call,
        "kind": one.kind,
        "kernel": one.kernel,
        "verdict": one.verdict.value,
        "reason": one.reason,
        "class": None if known is None else known.kind.value,
        "bound": result.bound(one.kernel) or None,
        "buffers": [buffer_json(buffer) for buffer in one.buffers if buffer.differing],
    }


def buffer_json(buffer: BufferComparison) -> dict[str, Any]:
    """One comparison that found a difference."""
    return {
        "buffer": buffer.label,
        "allocation": buffer.allocation,
        "address": f"{buffer.base + buffer.offset:#x}",
        "bytes": buffer.size,
        "bytes_compared": buffer.bytes_compared,
        "element_type": buffer.element_type,
        "confidence": str(buffer.layout.confidence),
        "elements": buffer.elements,
        "differing": buffer.differing,
        "metrics": [one.to_json() for one in buffer.metrics],
        "first": [_element(element) for element in buffer.first],
    }


def _element(element: Element) -> dict[str, Any]:
    return {
        "index": element.index,
        "place": element.place,
        "address": f"{element.address:#x}",
        "element_type": element.type,
        "recorded": json_number(element.recorded),
        "replayed": json_number(element.replayed),
        "recorded_bits": f"{element.recorded_bits:#x}",
        "replayed_bits": f"{element.replayed_bits:#x}",
        "ulp": element.ulp if element.ulp is None or math.isfinite(element.ulp) else None,
    }
