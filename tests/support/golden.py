"""Golden traces: what each holds, as a version's readers must find it for ever; and how one of them was made.

    python tests/support/golden.py describe FILE   what is put beside a golden trace, as JSON
    python tests/support/golden.py write FILE      a trace with a row of every kind, by the writer at hand

A description names fields one by one, so that fields which later versions add change nothing.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from zluda.tracefile import (
    AllocationKind,
    Direction,
    Fidelity,
    LeftOut,
    ModuleKind,
    Noise,
    NoiseKind,
    Parameter,
    Trace,
    TraceWriter,
    Unproved,
    open_trace,
)
from zluda.tracefile.arguments import ArgumentLayout
from zluda.tracefile.gpu_times import Moment

ALLOC = [Parameter("dptr", "CUdeviceptr *", Direction.OUT, 8), Parameter("bytesize", "size_t")]
COPY = [
    Parameter("dstDevice", "CUdeviceptr"),
    Parameter("srcHost", "const void *", Direction.IN),
    Parameter("ByteCount", "size_t"),
]
LAUNCH = [Parameter("f", "CUfunction"), Parameter("kernelParams", "void **", Direction.INOUT, 8)]
PTX = b".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 p) { ret; }\n"


def describe(trace: Trace) -> dict[str, Any]:
    """What a reader of any version finds in a trace of this one."""
    return {
        "meta": trace.meta,
        "calls": _listed(_calls(trace)),
        "payloads": _listed(
            [c.sequence, p.parameter, p.direction.value, p.offset, p.data.hex()]
            for c in trace.iter_calls()
            for p in trace.payloads(c.sequence)
        ),
        "modules": _listed(
            [m.id, m.kind.value, m.origin, m.handle, m.load_call, m.unload_call]
            + [[i.kind.value, i.architecture, i.origin, i.size, _digest(trace.image(i))] for i in m.images]
            for m in trace.module_list
        ),
        "functions": _listed(
            [f.id, f.handle, f.first_call, f.module, f.name, f.layout] for f in trace.functions
        ),
        "launches": _listed(_launches(trace)),
        "allocations": _listed(
            [a.id, a.base, a.size, a.kind.value, a.name, a.module, a.born, a.died] for a in trace.allocations
        ),
        "pages": _listed(
            [page.call, page.allocation, page.offset, found, _digest(trace.page_data(page))]
            for call in sorted(trace.calls_with_pages)
            for found, pages in ((0, trace.pages(call)), (1, trace.found_pages(call)))
            for page in pages
        ),
        "memory": _listed(
            [a.id, *(_digest(part or b"") for part in trace.read_allocation(a.id, 1 << 40, 0, a.size))]
            for a in trace.allocations
        ),
        "gpu_times": _listed([t.call, t.clock, t.gpu_start_ns, t.duration_ns] for t in trace.gpu_times()),
        "gaps": _listed([g.call, g.kind, g.text, g.times] for g in trace.gaps),
        "unproved": _listed([u.call, u.verdict, u.reason] for u in trace.unproved),
        "noise": _listed(
            [
                n.call,
                n.allocation,
                n.kind.value,
                n.element_type,
                n.origin,
                n.elements,
                n.row_bytes,
                n.max_ulp,
                n.max_absolute,
                n.unbounded,
                n.runs,
                trace.noise_mask(n).hex(),
            ]
            for n in trace.noise
        ),
    }


def _calls(trace: Trace) -> Iterable[list[Any]]:
    for c in trace.iter_calls():
        pointees = [sorted((k, _plain(v)) for k, v in d.items()) for d in (c.pointees, c.pointees_before)]
        yield [
            c.sequence,
            c.thread,
            c.parent,
            c.function,
            sorted(c.arguments.items()),
            pointees,
            c.start_ns,
            c.end_ns,
            c.result,
        ]


def _launches(trace: Trace) -> Iterable[list[Any]]:
    for one in trace.iter_launches():
        left_out = None if one.left_out is None else one.left_out.name
        yield [
            one.call,
            one.kernel,
            one.module,
            one.grid,
            one.block,
            one.cluster,
            one.shared_bytes,
            one.stream,
            one.attributes.hex(),
            one.parameters.hex(),
            one.layout,
            one.gpu_time_ns,
            one.fidelity.value,
            one.captured,
            left_out,
        ]


def _listed(found: Iterable[Any]) -> dict[str, Any]:
    """How many, the first, and a digest of all."""
    rows = json.loads(json.dumps(list(found)))
    text = json.dumps(rows, separators=(",", ":"))
    return {"count": len(rows), "first": rows[0] if rows else None, "digest": _digest(text.encode())}


def _plain(value: int | bytes) -> int | str:
    return value if isinstance(value, int) else value.hex()


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def write(path: Path) -> None:
    """A row of every table, and every word that a column may hold."""
    meta = {"command": ["./app", "7"], "gpu": "NVIDIA H200", "capture": "outputs", "start_ns": 5}
    with TraceWriter.create(path, meta) as w:
        signatures = [w.signature("cuMemAlloc_v2", ALLOC), w.signature("cuMemcpyHtoD_v2", COPY)]
        launch = w.signature("cuLaunchKernel", LAUNCH)
        address = (0x7F0000000000).to_bytes(8, "little")
        made = ArgumentLayout(ALLOC).encode([16, 65536], after={"dptr": address})
        w.add_calls([(0, 41, None, signatures[0], 10, 20, 0, made)])
        w.add_calls([(1, 41, 0, signatures[1], 21, 30, 700, ArgumentLayout(COPY).encode([1, 2, 3]))])
        for direction in (Direction.IN, Direction.OUT):
            w.add_payload(1, 1, direction, b"payload " + direction.value.encode(), offset=8)
        modules = [
            w.add_module(0, kind, 100 + n, image=b"image", origin="o") for n, kind in enumerate(ModuleKind)
        ]
        w.add_image(modules[1], ModuleKind.PTX, PTX, architecture="compute_90", origin="fat binary 0")
        w.unload_module(modules[0], 1)
        function = w.add_function(0, 1 << 63, "k", module=modules[1], layout=[(0, 8)])
        other = w.add_function(1, 9, "unknown", module=None)
        _write_launches(w, launch, function, other)
        memory = [
            w.add_allocation(0, (n + 1) << 32, 70000, kind, name="n", module=modules[0] if n == 3 else None)
            for n, kind in enumerate(AllocationKind)
        ]
        w.close_allocation(memory[1], 1)
        w.add_page(0, memory[0], 65530, b"across a page")
        w.add_page(1, memory[0], 0, bytes(64), found=True)
        w.add_gap(None, "recovery", "of the whole", 2)
        w.add_gap(3, "stream", "of a launch")
        noise = [
            Noise(2, memory[0], NoiseKind.ELEMENTS, "f32", 8, 9, 0, 0, 2.5, 1e-7, True, 2),
            Noise(2, memory[1], NoiseKind.SET, "u32", 0, 8, 0, 8, None, 3.0, False, 2),
        ]
        masks = [b"\x05\x01", b"\x0c"]
        w.set_proof([Unproved(2, "noise", "atom.add.f32")], list(zip(noise, masks, strict=True)))


def _write_launches(w: TraceWriter, signature: int, function: int, other: int) -> None:
    """A launch of every fidelity, timed and not, captured and left out."""
    captured = [0, 1, *(int(one) for one in LeftOut)]
    for n, fidelity in enumerate([*Fidelity, Fidelity.UNKNOWN]):
        number = 2 + n
        ended = (None, None) if n == 3 else (50 + n, 0)  # the last never returned
        before, after = {"kernelParams": b"before  "}, {"kernelParams": b"after   "}
        words = ArgumentLayout(LAUNCH).encode([9, 8], before, after)
        w.add_calls([(number, 42, None, signature, 40 + n, *ended, words)])
        shape = w.shape(
            function if n else other,
            (4, 2, 1),
            (32, 1, 1),
            cluster=(2, 1, 1),
            shared_bytes=n,
            attributes=b"a" * 72,
            fidelity=fidelity,
        )
        w.add_launches([(number, shape, 7, b"parameter"[:8], 123 if n == 0 else None, captured[n])])
    w.add_gpu_times([(3, 0, 1000, 250)])
    w.add_moment(Moment(0, 900, 35, 4))
    w.add_moment(Moment(0, 2900, 2035, 4))


if __name__ == "__main__":
    file = Path(sys.argv[2])
    if sys.argv[1] == "write":
        write(file)
    else:
        with open_trace(file) as trace:
            print(json.dumps(describe(trace), indent=1, sort_keys=True))
