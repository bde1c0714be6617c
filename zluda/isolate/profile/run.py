"""A profile of a replay that was timed: kernels by their time, each with its limit and one sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from zluda.device import names
from zluda.diff.results import ReplayResult
from zluda.isolate.profile.facts import (
    HOST,
    MEASURED,
    MODELLED,
    Facts,
    given_bytes,
    recorded_times,
    to_json,
)
from zluda.isolate.profile.model import BOUNDS, model
from zluda.isolate.profile.peaks import peak_of
from zluda.isolate.profile.rules import advice, limit_of
from zluda.runner.profiled import KernelTimes
from zluda.tracefile import Trace, open_trace

if TYPE_CHECKING:
    from zluda.compiler.amd.report import Report

TOP = 10
"""Kernels that are looked at closely: those that take the most time."""


def profile(result: ReplayResult) -> dict[str, Any]:
    """What a replay with ``profile=True`` took, kernel by kernel; as JSON.

    ``time`` says what the times are: ``measured`` on a GPU, ``modelled`` of one that was emulated, ``host``.
    Raises TraceError where the trace is not there any more.
    """
    times: list[KernelTimes] = list(result.meta.get("launch_times", ()))
    kind = _kind_of(result)
    with open_trace(result.trace) as trace:
        found = _facts(result, trace, [one for one in times if one.launches], kind)
    found.sort(key=lambda facts: -facts.seconds)
    whole = sum(facts.seconds for facts in found)
    kernels = []
    for facts in found:
        limit = limit_of(facts)
        kernels.append(to_json(facts, limit, advice(facts, limit)))
    return {
        "time": kind,
        "device": result.device,
        "product": _product(result, found),
        "seconds": whole,
        "recorded_seconds": sum(facts.recorded or 0.0 for facts in found) or None,
        "top": min(TOP, len(kernels)),
        "kernels": kernels,
    }


def _kind_of(result: ReplayResult) -> str:
    if result.emulated:
        return MODELLED
    return HOST if names.kind(result.device) == "cpu" else MEASURED


def _product(result: ReplayResult, found: list[Facts]) -> str:
    """Whose peaks the figures are held against."""
    return next((facts.peak.product for facts in found if facts.peak is not None), result.product)


def _facts(result: ReplayResult, trace: Trace, times: list[KernelTimes], kind: str) -> list[Facts]:
    target = _target(result)
    peak = peak_of(target) if target else None
    recorded = recorded_times(result)
    replayed = {one.call for one in result.results if one.kind == "launch" and one.seconds is not None}
    given = given_bytes(trace, replayed) if kind == MEASURED else {}
    found = []
    longest = sorted(times, key=lambda one: -(one.instructions if kind == MODELLED else one.seconds))
    for place, one in enumerate(longest):
        near = place < 2 * TOP  # what a model says may change the order
        report = _report(trace, one.kernel, target, result) if target and near else None
        facts = Facts(one, kind, one.seconds, peak=peak, report=report)
        facts.recorded, facts.recorded_launches = recorded.get(one.kernel, (None, 0))
        if result.emulated:
            facts.bytes = one.bytes
        elif one.kernel in given:
            facts.bytes, facts.bytes_at_most = given[one.kernel], True
        if kind == MODELLED and peak is not None and target:
            wave = report.wave_size if report else 32
            room = report.waves_per_simd if report else 8
            facts.model = model(one, peak, target, wave_size=wave, waves_per_simd=room)
            facts.seconds = facts.model.seconds
            facts.bound = {name: float(getattr(facts.model, name)) for name in BOUNDS}
        found.append(facts)
    return found


def _target(result: ReplayResult) -> str:
    """The AMD target of a replay, by its device's name or the end of the product's; nothing for others."""
    if names.kind(result.device) == "gfx":
        return result.device
    if names.kind(result.device) == "hip":
        last = result.product.rpartition(", ")[2] or result.product.rpartition(" ")[2]
        return last if last.startswith("gfx") else ""
    return ""


def _report(trace: Trace, kernel: str, target: str, result: ReplayResult) -> Report | None:
    """What the kernel needs of the GPU; None where it has no PTX in the trace, or none that compiles."""
    from zluda.compiler import compile_kernel
    from zluda.compiler.amd.linker import link
    from zluda.compiler.amd.report import report
    from zluda.errors import Error
    from zluda.ptx import parse_module

    for module in trace.module_list:
        text = trace.ptx(module)
        if text is None or kernel.encode() not in text:
            continue
        parsed = parse_module(text)
        if kernel not in parsed.kernel_names:
            continue
        try:
            compiled = compile_kernel(
                parsed, kernel, target, numerics=result.numerics, contract=result.contract
            )
        except Error:
            return None  # the launches of it say why
        return report(link(compiled.code), kernel)
    return None
