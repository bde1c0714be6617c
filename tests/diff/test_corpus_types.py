"""What the corpus's kernels' buffers hold, by instructions and names, against what their sources say."""

from __future__ import annotations

from pathlib import Path

import pytest

from zluda.diff.types.launches import KernelTypes, TraceModules
from zluda.diff.types.layout import Confidence
from zluda.diff.types.signature import demangled
from zluda.tracefile import open_trace

ROOT = Path(__file__).parents[2]

# Kernel → its pointers' elements in order of the parameters (then the module's variables by name), from the
# sources. ``mma_sync`` and ``wgmma_f16`` take bytes that only their tensor-core instructions give a type.
SOURCES = {
    "corpus/async_copy": {
        "pipeline": "u32 u32",
        "bulk": "u32 u32 u32",
        "tile": "f32",
        "multicast": "u32 u32",
    },
    "corpus/black_scholes": {
        "price_options": "f32 f32",
        "price_options_double": "f32 f64",
        "sensitivities": "f32 f32 f32",
    },
    "corpus/cooperative": {
        "meeting_grid": "u32 u32",
        "last_block_sums": "u32 u32 u32 u32",
        "locked_count": "u32 u32",
        "cluster_histogram": "u32 u32",
        "cluster_exchange": "u32",
        "tiles": "u32 u32",
        "coalesced": "u32 u32 u32",
    },
    "corpus/half_precision": {
        "axpy_half2": "f16 f16 f16 f16",
        "axpy_bfloat16": "bf16 bf16 bf16",
        "elementary": "f16 f16 bf16",
        "conversions": "f32 f16 bf16 s32",
        "round_trips": "f32 {e4m3, e5m2} f16 f16",
        "count": "f32 f16 bf16",
        "dot": "f16 f16 f16 u32",
    },
    "corpus/histogram": {
        "count": "u8 u32",
        "extremes": "u8 s32 u32",
        "equalisation": "u32 u8",
        "apply": "u8 u8",
    },
    "corpus/matmul": {"multiply<16>": "f32 f32 f32", "multiply<8>": "f32 f32 f32", "update": "f64 f64 f64"},
    "corpus/nbody": {"step": "f32 f32 f32", "energy": "f32 f32 f64"},
    "corpus/reduction": {
        "reduce<Sum, float>": "f32 f32",
        "reduce<Maximum, float>": "f32 f32",
        "reduce<Sum, int>": "s32 s32",
        "warp_scan": "s32 s32 u32",
    },
    "corpus/saxpy": {"saxpy": "f32 f32", "scale": "f32 u32 f32"},
    "corpus/tensor_cores": {
        "wmma_f16": "f16 f16 f32",
        "mma_sync<Bf16>": "bf16 bf16 f32",
        "mma_sync<Tf32>": "f32 f32 f32",
        "mma_sync<Fp8>": "e4m3 e5m2 f32",
        "mma_sync<S8>": "s8 u8 s32",
        "mma_sparse": "f16 f16 u32 f32",
        "wgmma_f16": "f16 f16 f32",
        "turn": "u16 u16",
    },
    "corpus/textures": {
        "turn": "f32",
        "colours": "f32",
        "stack": "s32 f32",
        "halve": "",
        "between_levels": "f32",
        "look_up": "u64 s32 f32",
    },
    "tests/replay/data/triton_add": {"add": "f32 f32 f32"},
    "tests/replay/data/triton_dot": {"mm": "f16 f16 f32"},
}


def found(trace_of: str) -> dict[str, list[tuple[str, Confidence]]]:
    """Kernel → (layout, how sure) of each of its pointers and variables."""
    path = ROOT / trace_of
    with open_trace(path / "trace.bin" if path.is_dir() else path.with_suffix(".bin")) as trace:
        modules = TraceModules(trace)
        kernels = {}
        for number, name in dict.fromkeys((one.module, one.kernel) for one in trace.iter_launches()):
            module = None if number is None else modules.get(number)
            if module is None:
                continue
            types = KernelTypes.of(module.function(name), module)
            places = [types.starts.get(one.name, 1 << 16) for one in types.origins]
            ordered = sorted(zip(places, types.origins, strict=True), key=lambda one: (one[0], one[1]))
            layouts = [types.layout(origin) for _, origin in ordered]
            short = demangled(name).partition("(")[0].removeprefix("void ")
            kernels[short] = [(str(one), one.confidence) for one in layouts if one is not None]
    return kernels


@pytest.mark.parametrize("trace", SOURCES)
def test_buffers_hold_what_the_sources_say(trace: str) -> None:
    kernels = found(trace)
    assert {name: " ".join(types) for name, types in _names(kernels).items()} == SOURCES[trace]
    assert all(
        sure is not Confidence.GUESS
        for name, pairs in kernels.items()
        if name != "look_up"
        for _, sure in pairs
    )


def _names(kernels: dict[str, list[tuple[str, Confidence]]]) -> dict[str, list[str]]:
    return {name: [layout for layout, _ in pairs] for name, pairs in kernels.items()}
