"""A trace's contents as lines: what ``zluda dump`` prints, each with the same as JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from zluda.errors import Error
from zluda.tracefile import Call, Noise, NoiseKind, Payload, Selection, Trace
from zluda.tracefile.blobs import StrippedError
from zluda.tracefile.libraries import library_of
from zluda.tracefile.text import call_line, launch_line, memory_lines, plain, printable

Line = tuple[str, Any]
"""(text, the same as JSON)"""


def _calls(trace: Trace, selection: Selection) -> Iterator[Line]:
    signatures = {(s.function, *(p.name for p in s.parameters)): s for s in trace.signatures.values()}
    kernels = {launch.call: launch.kernel for launch in trace.iter_launches()} if selection.kernels else {}
    start, stop = selection.bounds
    start_ns: int | None = None
    around: dict[int, list[int]] = {}  # thread → the calls inside which its last one was made, and it
    for call in trace.iter_calls(start, stop):
        start_ns = call.start_ns if start_ns is None else start_ns
        depth = _depth(around.setdefault(call.thread, []), call)
        if selection.contains(call.sequence, kernels.get(call.sequence)):
            line = call_line(
                call,
                signatures[(call.function, *call.arguments)],
                _payloads(trace, call.sequence),
                result_name=str if library_of(call.function) else _result_name,
                start_ns=int(trace.meta.get("start_ns", start_ns)),
                depth=depth,
            )
            yield line, plain(call)


def _payloads(trace: Trace, call: int) -> list[Payload]:
    """What a call carried; nothing where the trace has digests of it only."""
    try:
        return trace.payloads(call)
    except StrippedError:
        return []


def _result_name(code: int) -> str:
    from zluda.driver.errors import RESULT_NAMES

    return RESULT_NAMES.get(code, str(code))


def _depth(around: list[int], call: Call) -> int:
    """How many calls a call stands inside of; ``around`` is brought up to it."""
    while around and around[-1] != call.parent:
        around.pop()
    around.append(call.sequence)
    return len(around) - 1


def _launches(trace: Trace, selection: Selection) -> Iterator[Line]:
    for launch in trace.iter_launches(*selection.bounds):
        if selection.contains(launch.call, launch.kernel):
            yield launch_line(launch), plain(launch)


def _times(trace: Trace, selection: Selection) -> Iterator[Line]:
    """Seconds are those of :func:`_calls`."""
    launches = {launch.call: launch for launch in trace.iter_launches()}
    zero_ns = trace.meta.get("start_ns")
    for time in trace.gpu_times():
        zero_ns = int(time.start_ns or 0) if zero_ns is None else int(zero_ns)
        launch = launches.get(time.call)
        if not selection.contains(time.call, launch.kernel if launch else None):
            continue
        name = launch.kernel if launch else trace.call(time.call).function
        when = "?" if time.start_ns is None else f"{(time.start_ns - zero_ns) / 1e9:.6f}"
        text = f"#{time.call} {when} {name} <{time.duration_ns / 1e3:.1f} µs>"
        yield printable(text), plain({**time._asdict(), "name": name})


def _modules(trace: Trace, selection: Selection) -> Iterator[Line]:
    for module in trace.module_list:
        if selection.contains(module.load_call):
            life = f"#{module.load_call}-" + (
                f"#{module.unload_call}" if module.unload_call is not None else ""
            )
            text = f"module {module.id} {module.kind.value} {life} handle={module.handle:#x} {module.origin}"
            for image in module.images:
                text += f"\n  {image.kind.value} {image.architecture} {image.size} bytes, {image.origin}"
            yield printable(text, keep="\n"), plain(module)


def _allocations(trace: Trace, selection: Selection) -> Iterator[Line]:
    for allocation in trace.allocations:
        if selection.contains(allocation.born):
            life = _life(allocation.born, allocation.died)
            text = f"{allocation.base:#x} {allocation.size} bytes {allocation.kind.value} {life}"
            yield printable(f"{text} {allocation.name}".rstrip()), plain(allocation)


def _gaps(trace: Trace, selection: Selection) -> Iterator[Line]:
    for gap in trace.gaps:
        if not selection or (gap.call is not None and selection.contains(gap.call)):
            place = "" if gap.call is None else f"#{gap.call} "
            yield printable(f"{place}{gap.kind}: {gap.text} ({gap.times})"), plain(gap)


def _proof(trace: Trace, selection: Selection) -> Iterator[Line]:
    """Launches that did not come out as recorded when they were run again, and what varies of each."""
    noise: dict[int, list[Noise]] = {}
    for one in trace.noise:
        noise.setdefault(one.call, []).append(one)
    kernels = {launch.call: launch.kernel for launch in trace.iter_launches()} if selection.kernels else {}
    for row in trace.unproved:
        if selection.contains(row.call, kernels.get(row.call)):
            found = noise.get(row.call, [])
            lines = [f"#{row.call} {row.verdict}: {row.reason}", *(_noise(trace, one) for one in found)]
            yield printable("\n  ".join(lines), keep="\n"), plain({**row._asdict(), "noise": found})


def _noise(trace: Trace, noise: Noise) -> str:
    where = f"allocation {noise.allocation}"
    count = int.from_bytes(trace.noise_mask(noise), "little").bit_count()
    if noise.kind is NoiseKind.SET:
        return f"{where}: rows of {noise.row_bytes} bytes in any order ({count} {noise.element_type} moved)"
    far = "" if noise.max_ulp is None else f", at most {noise.max_ulp:g} ULP"
    far += "" if noise.max_absolute is None else f", at most {noise.max_absolute:g}"
    return f"{where}: {count} {noise.element_type} vary{far}" + (
        ", NaN among them" if noise.unbounded else ""
    )


def _life(first: int, last: int | None) -> str:
    """``#3-#17``: from call 3 to call 17."""
    return f"#{first}-" + ("" if last is None else f"#{last}")


LISTS: dict[str, Callable[[Trace, Selection], Iterator[Line]]] = {
    "calls": _calls,
    "launches": _launches,
    "times": _times,
    "modules": _modules,
    "allocations": _allocations,
    "gaps": _gaps,
    "proof": _proof,
}


def ptx_lines(trace: Trace, wanted: str) -> Iterator[Line]:
    """A module's PTX as it was recorded; of a kernel, the kernel alone as the parser understood it."""
    from zluda.ptx import parse_module, print_function

    modules = {module.id: module for module in trace.module_list}
    numbers = [int(wanted)] if wanted.isdecimal() else [f.module for f in trace.functions if f.name == wanted]
    module = next((modules[number] for number in numbers if number in modules), None)
    if module is None:
        raise Error(f"{trace.path}: no module number and no kernel {wanted!r}; see --modules and --launches")
    ptx = trace.ptx(module)
    if ptx is None:
        raise Error(f"{trace.path}: module {module.id} has no PTX")
    text = ptx.rstrip(b"\0").decode("utf-8", "backslashreplace")
    if not wanted.isdecimal():
        text = print_function(parse_module(text, file=f"module {module.id}").function(wanted))
    yield printable(text.rstrip("\n"), keep="\n\t"), {"module": module.id, "ptx": text}


def memory_dump(trace: Trace, call: int, address: int, size: int) -> Iterator[Line]:
    """Memory after a call as a hex dump. Raises TraceError for a call that is not there."""
    trace.memory_at(call)
    data, known = trace.read_memory(call, address, size)
    value = {
        "call": call,
        "address": address,
        "size": size,
        "data": data.hex(),
        "known": None if known is None else known.hex(),
    }
    yield "\n".join(memory_lines(address, data, known)), value
