"""Tags of a trace, made from the trace itself: what of PTX its kernels use, which parts of the driver and
which libraries the program calls.

The count of a PTX feature is of launches whose kernel, or a function that it calls, has such an instruction;
of a driver feature or a library, of calls.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING

from zluda.records import dataclass

if TYPE_CHECKING:
    from zluda.ptx import Module
    from zluda.tracefile import Trace

# Feature → what a dotted opcode (`mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32`) has, by PTX ISA 9.0,
# chapter 9.7. An instruction may be of several.
_PTX = {
    "f64 arithmetic": r"(add|sub|mul|fma|mad|div|sqrt|rcp|rsqrt|min|max)\..*\bf64",
    "f16": r"[a-z].*\.f16(x2)?\b",
    "bf16": r"[a-z].*\.bf16(x2)?\b",
    "fp8, fp6, fp4": r"[a-z].*\.(e4m3|e5m2|e2m3|e3m2|e2m1|ue8m0)",
    "approximate functions": r"(sin|cos|ex2|lg2|rcp|rsqrt|sqrt|div|tanh)\..*(approx|full)",
    "integer division": r"(div|rem)\.[us]",
    "extended precision": r"(addc|subc|madc|add\.cc|sub\.cc|mad\..*\.cc)\b",
    "bit operations": r"(lop3|shf|prmt|bfe|bfi|brev|clz|popc|fns|bfind|szext|bmsk)\b",
    "dot products of bytes": r"dp[24]a\b",
    "video": r"v(add|sub|absdiff|min|max|shl|shr|mad|set)[24]?\.",
    "shuffle": r"shfl\b",
    "vote, match, redux": r"(vote|match|redux|activemask|elect)\b",
    "barrier": r"(bar|barrier\.cta|barrier\.sync|barrier\.arrive|barrier\.red)\b",
    "warp barrier": r"bar\.warp\b",
    "cluster": r"(barrier\.cluster|mapa|getctarank)|.*::cluster",
    "mbarrier": r"mbarrier\.",
    "fence": r"(fence|membar)\b",
    "atomics": r"(atom|red)\.(?!async)",
    "floating-point atomics": r"(atom|red)\..*\.b?f(16|32|64)",
    "async copies": r"cp\.async\.(ca|cg|commit|wait|mbarrier)",
    "bulk copies": r"cp\.(reduce\.)?async\.bulk",
    "tensor copies": r"cp\.(reduce\.)?async\.bulk\.tensor",
    "matrix fragments": r"(ld|st|mov)matrix\b",
    "tensor cores: mma": r"mma\.sync",
    "tensor cores: wmma": r"wmma\.",
    "tensor cores: sparse": r"(mma|wgmma)\.\S*sp\b",
    "tensor cores: wgmma": r"wgmma\.",
    "textures": r"(tex|tld4|txq)\b",
    "surfaces": r"(suld|sust|sured|suq)\b",
    "vectors": r"(ld|st)\..*\.v[248]\b",
    "volatile, relaxed, acquire": r"(ld|st)\.(volatile|relaxed|acquire|release|mmio)",
    "calls": r"call\b",
    "indirect branches": r"brx\b",
    "stack": r"(alloca|stacksave|stackrestore)\b",
    "dependent launches": r"griddepcontrol\b",
    "trap": r"(trap|brkpt)\b",
}
_SPACES = {"shared memory": "shared", "constant memory": "const", "local memory": "local"}
_SERVICES = {"printf": "vprintf", "device malloc": "malloc", "assert": "__assertfail"}

# Feature → driver functions, and what of them begins so.
_DRIVER = {
    "graphs": r"cuGraph(Launch|Instantiate)",
    "stream capture": r"cuStreamBeginCapture",
    "streams": r"cuStreamCreate",
    "events": r"cuEventRecord",
    "host functions": r"cu(LaunchHostFunc|StreamAddCallback)",
    "cooperative launches": r"cuLaunchCooperativeKernel",
    "extended launches": r"cuLaunchKernelEx",
    "memory pools": r"cu(MemAllocAsync|MemAllocFromPoolAsync|MemPoolCreate)",
    "virtual memory": r"cuMemMap\b|cuMemCreate",
    "managed memory": r"cuMemAllocManaged",
    "pinned memory": r"cu(MemHostAlloc|MemAllocHost|MemHostRegister)",
    "arrays": r"cu(Array|Array3D|MipmappedArray)Create",
    "texture objects": r"cuTexObjectCreate",
    "surface objects": r"cuSurfObjectCreate",
    "linking": r"cuLinkCreate",
    "modules by libraries": r"cuLibraryLoad",
    "peer access": r"cu(CtxEnablePeerAccess|MemcpyPeer)",
    "occupancy": r"cuOccupancy",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tags:
    """Feature → how many: of launches (``ptx``), of calls (``driver``, ``libraries``)."""

    ptx: Mapping[str, int]
    driver: Mapping[str, int]
    libraries: Mapping[str, int]
    launches: int
    launches_without_ptx: int

    def as_dict(self) -> dict[str, object]:
        """For JSON."""
        return {
            "ptx": dict(self.ptx),
            "driver": dict(self.driver),
            "libraries": dict(self.libraries),
            "launches": self.launches,
            "launches_without_ptx": self.launches_without_ptx,
        }

    def names(self) -> list[str]:
        """All of them, those of PTX first."""
        return [*self.ptx, *self.driver, *self.libraries]


def tags_of(trace: Trace) -> Tags:
    """The tags of an open trace. Kernels are parsed, not compiled."""
    from zluda.errors import PtxError
    from zluda.ptx import parse_module
    from zluda.tracefile.libraries import library_of

    modules: dict[int, Module | None] = {}
    for module in trace.module_list:
        text = trace.ptx(module)
        try:
            modules[module.id] = None if text is None else parse_module(text)
        except PtxError:
            modules[module.id] = None  # it cannot be translated either: `zluda check` says where and why
    found: Counter[str] = Counter()
    without = total = 0
    for kernel, module_id, launches, _ in trace.kernels():
        total += launches
        parsed = modules.get(module_id) if module_id is not None else None
        if parsed is None or kernel not in parsed.kernel_names:
            without += launches
            continue
        found.update({feature: launches for feature in features(parsed, kernel)})
    made = {
        trace.signatures[number].function: count
        for number, count in trace.calls_made().items()
        if number in trace.signatures
    }
    driver: Counter[str] = Counter()
    libraries: Counter[str] = Counter()
    for function, count in made.items():
        if (library := library_of(function)) is not None:
            libraries[library] += count
        driver.update({name: count for name, pattern in _DRIVER.items() if re.match(pattern, function)})
    return Tags(
        ptx=_ordered(found, [*_PTX, *_SPACES, *_SERVICES]),
        driver=_ordered(driver, _DRIVER),
        libraries=dict(sorted(libraries.items())),
        launches=total,
        launches_without_ptx=without,
    )


def features(module: Module, kernel: str) -> set[str]:
    """What of PTX a kernel uses, with the functions that it calls by name."""
    from zluda.ptx.instructions import spell

    found: set[str] = set()
    waiting, seen = [kernel], {kernel}
    while waiting:
        function = module.function(waiting.pop())
        found.update(name for name, service in _SERVICES.items() if service in function.callees)
        for instruction in function.instructions:
            found.update(_features_of(spell(instruction)))
        for callee in function.callees:
            if callee not in seen and callee in module.function_names:
                seen.add(callee)
                waiting.append(callee)
    return found


@cache
def _features_of(opcode: str) -> frozenset[str]:
    found = {name for name, pattern in _PTX.items() if re.match(pattern, opcode)}
    words = opcode.replace("::", ".").split(".")
    found.update(name for name, space in _SPACES.items() if space in words[1:])
    return frozenset(found)


def _ordered(counts: Mapping[str, int], order: Mapping[str, object] | list[str]) -> dict[str, int]:
    return {name: counts[name] for name in order if counts.get(name)}
