"""What the agent's C code needs to know: functions packed into structures, and constants as ``#define``
lines.

A function's index is its place in the list that :func:`functions` returns; the same list, as JSON, stands in
the rings' directory for whoever drains them. Exports that no header declares are given at run time: hooked by
name, their first six argument words recorded, counted as a gap.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from importlib import resources
from typing import Any

from zluda.driver.table import driver_api
from zluda.library.table import library_api, library_functions
from zluda.trace.choice import MARKER_NAME_BYTES, MAX_RANGES, Choice
from zluda.tracefile import ring
from zluda.tracefile.graphs import CONDITIONAL, CONDITIONAL_BODY, CONDITIONAL_END

MAX_PARAMETERS = 36
MAX_REACHED = 512
MAX_KERNEL_PARAMETERS = 512
LAYOUT_PLACES = 1 << 16
STATE_BYTES = 4096
MAX_CLOCKS = 16
"""Contexts whose launches are timed."""
MAX_FINDERS = 16
"""Contexts in which the GPU digests pages; in further ones pages are read."""
MAX_SPARES = 64
MAX_CLOSING = 16
CAPTURE_FULL = 2
FLOW_SEGMENTS = 8
"""Allocations that one launch may reach for its memory to be captured without waiting."""
CALL_BYTES = 1024
"""What Frida keeps with a call (GUM_MAX_LISTENER_DATA)."""
VECTOR_SLOT = 0x80
_VECTOR_REGISTERS, _INTEGER_REGISTERS = 8, 6

# Numbers of the special cases in the agent. Up to `opaque_write`: work that a stream carries out.
SPECIALS = [
    "none",
    "launch",
    "launch_ex",
    "launch_cooperative",
    "copy_h2d",
    "copy_h2d_async",
    "copy_d2h",
    "copy_d2h_async",
    "copy_d2d",
    "copy_d2d_async",
    "copy_unified",
    "copy_unified_async",
    "copy_peer",
    "copy_peer_async",
    "set_1",
    "set_1_async",
    "set_2",
    "set_2_async",
    "set_4",
    "set_4_async",
    "copy_box",
    "copy_h2a",
    "copy_d2a",
    "copy_a2a",
    "copy_a2d",
    "copy_a2h",
    "set_flat_1",
    "set_flat_2",
    "set_flat_4",
    "graph_launch",
    "host_function",
    "opaque_write",
    "allocate",
    "allocate_pitch",
    "allocate_managed",
    "allocate_host",
    "free",
    "initialize",
    "module_load",
    "library_load",
    "module_unload",
    "library_unload",
    "get_function",
    "get_kernel",
    "context_destroy",
    "begin_capture",
    "end_capture",
    "graph_instantiate",
    "graph_destroy",
    "graph_update",
    "graph_set_node",
    "graph_set_enabled",
    "graph_add_node",
    "proc_address",
    "create_array",
    "create_array_3d",
    "create_mipmapped",
    "get_level",
    "free_array",
    "create_texture",
    "free_texture",
    "create_surface",
    "free_surface",
    "bind_array",
    "bind_address",
    "bind_flat",
    "register_host",
    "open_memory",
    "create_physical",
    "import_physical",
    "export_physical",
    "map",
    "unmap",
    "set_access",
    "host_pointer",
]

C_FILES = (
    *(
        "state",
        "ring",
        "launch",
        "choice",
        "digest",
        "allocations",
        "arrays",
        "sharing",
        "reading",
        "targets",
        "finding",
        "timing",
    ),
    *(
        "capture",
        "flow",
        "copies",
        "modules",
        "graph_nodes",
        "graphs",
        "earlier",
        "special",
        "hooks",
        "ranges",
    ),
)
"""The agent's C code, each file after those it uses."""

NODE_ENTRIES = [
    *("cuLaunchKernelEx", "cuMemcpy3DAsync_v2", "cuLaunchHostFunc", "cuEventRecord", "cuStreamWaitEvent"),
    *(f"cuMemsetD{flat}{bits}Async" for flat in ("", "2D") for bits in (8, 16, 32)),
    *("cuMemAllocAsync", "cuMemFreeAsync", "cuStreamQuery", "cuMemAlloc_v2"),
    *("nvtxMark", "nvtxRangePush", "nvtxRangePop", "nvtxRangeStart", "nvtxRangeEnd"),
    *(CONDITIONAL, CONDITIONAL_BODY, CONDITIONAL_END),
]
"""The functions as which is put on record what is no call of the driver."""

HAS_INPUTS, HAS_OUTPUTS, HAS_VARIABLE, WAITS, SHORT = 1, 2, 4, 8, 16

_WAITING = frozenset(
    {
        *("cuCtxSynchronize", "cuStreamSynchronize", "cuEventSynchronize", "cuStreamQuery", "cuEventQuery"),
        *("cuMemcpyDtoH", "cuMemcpy", "cuMemFree", "cuEventDestroy"),
    }
)
"""Base names of the entries after which the GPU has come to an end of something."""

# Values of the driver API that the agent uses (cuda.h).
CUDA_VALUES = {
    "CUDA_ERROR_INVALID_VALUE": 1,
    "CUDA_ERROR_INVALID_CONTEXT": 201,
    "CUDA_ERROR_NOT_FOUND": 500,
    "CUDA_ERROR_NOT_READY": 600,
    "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED": 901,
    "CUDA_ERROR_STREAM_CAPTURE_UNJOINED": 904,
    "CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH": 4,
    "CU_STREAM_CAPTURE_MODE_RELAXED": 2,
    "CU_STREAM_NON_BLOCKING": 1,
    "CU_EVENT_DISABLE_TIMING": 2,
    "CU_STREAM_PER_THREAD": 2,
    "CU_MEMORYTYPE_HOST": 1,
    "CU_MEMORYTYPE_DEVICE": 2,
    "CU_POINTER_ATTRIBUTE_MEMORY_TYPE": 2,
    "CU_POINTER_ATTRIBUTE_IS_MANAGED": 8,
    "CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL": 9,
    "CU_MEM_ACCESS_READ": 1,
    "CU_MEMHOSTREGISTER_IOMEMORY": 4,
    "CU_COMPUTE_CAPABILITY_MAJOR": 75,
    "CU_COMPUTE_CAPABILITY_MINOR": 76,
}

QUIET = frozenset(
    {
        *("cuCtxGetCurrent", "cuCtxGetDevice", "cuCtxGetFlags", "cuCtxGetApiVersion", "cuCtxGetId"),
        *("cuCtxGetStreamPriorityRange", "cuDeviceGetAttribute", "cuDevicePrimaryCtxGetState"),
        *("cuPointerGetAttribute", "cuPointerGetAttributes", "cuMemGetInfo"),
        *("cuStreamIsCapturing", "cuStreamGetCaptureInfo", "cuStreamGetCtx", "cuStreamGetDevice"),
        *("cuStreamGetFlags", "cuStreamGetGreenCtx", "cuStreamGetId", "cuStreamGetPriority"),
        *("cuThreadExchangeStreamCaptureMode", "cuEventQuery", "cuStreamQuery", "cuEventElapsedTime"),
        *("cuFuncGetAttribute", "cuFuncGetModule", "cuFuncIsLoaded", "cuKernelGetAttribute"),
        *("cuOccupancyMaxActiveBlocksPerMultiprocessor", "cuOccupancyAvailableDynamicSMemPerBlock"),
        *("cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags", "cuOccupancyMaxActiveClusters"),
        *("cuGetErrorName", "cuGetErrorString", "cuDriverGetVersion", "cuCtxGetLimit"),
        *("cublasGetMathMode", "cublasGetStream_v2", "cublasGetPointerMode_v2", "cublasGetAtomicsMode"),
        *("cublasGetVersion_v2", "cublasGetProperty", "cublasGetSmCountTarget", "cublasSetWorkspace_v2"),
        *("cublasLtMatmulPreferenceCreate", "cublasLtMatmulPreferenceDestroy"),
        *("cublasLtMatmulPreferenceSetAttribute", "cublasLtMatmulPreferenceGetAttribute"),
        *("cublasLtMatmulPreferenceInit_internal", "cublasLtMatmulAlgoGetHeuristic"),
        *("cublasLtMatmulDescGetAttribute", "cublasLtMatrixLayoutGetAttribute", "cublasLtGetProperty"),
        *("cudnnGetStream", "cudnnGetProperty", "cusparseGetStream", "cusparseGetPointerMode"),
        *("cusparseGetVersion", "cusolverDnGetStream", "cusolverGetVersion", "ncclGetVersion"),
        *("ncclCommGetAsyncError", "ncclCommCount", "ncclCommUserRank"),
    }
)
"""Base names of functions by which programs, and the runtime for them, only ask: some twenty calls a launch
of PyTorch's; and those by which libraries choose how they do what is asked. Nothing on record depends on the
answers. They are not hooked, unless ``--queries`` is given.
"""

_FUNCTION = struct.Struct("<HBBBBBBQQ")
_PARAMETER = struct.Struct("<BBBBI")
FUNCTION_BYTES = _FUNCTION.size + MAX_PARAMETERS * _PARAMETER.size
"""Size of the agent's ``struct function``."""


def unknown_function(name: str) -> dict[str, Any]:
    """A row for an export without a prototype: six words as they were passed."""
    parameters = [
        {"name": f"argument{i}", "type": "?", "direction": "value", "pointee": 0, "slot": i} for i in range(6)
    ]
    return {"base": name, "effect": "effect", "replay": False, "unknown": True, "parameters": parameters}


def nvtx_functions() -> list[dict[str, Any]]:
    """Rows for what a program tells by NVTX, whichever form of the function it called."""
    text = {"type": "const char *", "direction": "in", "pointee": 0, "slot": -1, "rule": "string"}
    message, domain = {"name": "message", **text}, {"name": "domain", **text}
    number = {"name": "id", "type": "nvtxRangeId_t", "direction": "value", "pointee": 0, "slot": -1}
    parameters: dict[str, list[dict[str, Any]]] = {
        "nvtxMark": [message, domain],
        "nvtxRangePush": [message, domain],
        "nvtxRangePop": [],
        "nvtxRangeStart": [message, domain, number],
        "nvtxRangeEnd": [number],
    }
    return [
        {"name": name, "base": name, "effect": "hint", "replay": False, "parameters": given}
        for name, given in parameters.items()
    ]


def graph_functions() -> list[dict[str, Any]]:
    """Rows for what stands around a conditional node's graphs (:mod:`zluda.tracefile.graphs`)."""
    parameters = {
        CONDITIONAL: {"handle": "CUgraphConditionalHandle", "type": "unsigned int", "size": "unsigned int"},
        CONDITIONAL_BODY: {"index": "unsigned int"},
        CONDITIONAL_END: {},
    }
    given = {"direction": "value", "pointee": 0, "slot": -1}
    return [
        {
            "name": name,
            "base": name,
            "effect": "hint",
            "replay": False,
            "parameters": [{"name": one, "type": kind, **given} for one, kind in kinds.items()],
        }
        for name, kinds in parameters.items()
    ]


def functions(exports: list[str] | None = None) -> list[dict[str, Any]]:
    """Rows of the driver's table with their ``name``, then those of the libraries, in order of index;
    ``exports`` adds names that the driver's does not know.
    """
    table = driver_api()["functions"]
    rows = [{"name": name, **row} for name, row in table.items()]
    rows += nvtx_functions() + graph_functions()
    rows += [{"name": name, **unknown_function(name)} for name in exports or [] if name not in table]
    return rows + library_functions()


def libraries(rows: list[dict[str, Any]], left_out: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Of each library, for the agent: ``name``, ``file`` (how the names of its files begin), ``functions``
    (name → index in ``rows``), ``made`` (function → pairs of names, see ``library_api_tables.py``), and
    ``thin`` (:func:`thin_words`). Those of ``left_out`` are not hooked.
    """
    table = library_api()
    found = {
        name: {"name": name, "file": file, "functions": {}, "made": {}, "thin": {}}
        for name, file in table["libraries"].items()
    }
    for index, row in enumerate(rows):
        if "library" in row and row["name"] not in left_out:
            library = found[row["library"]]
            library["functions"][row["name"]] = index
            if (words := thin_words(row)) is not None:
                library["thin"][row["name"]] = words
            if row["name"] in table["made"]:
                library["made"][row["name"]] = table["made"][row["name"]]
    return list(found.values())


def thin_words(row: dict[str, Any]) -> int | None:
    """How many words of a function's arguments lie on the stack, where all arguments are words: then the
    agent need not have Frida's hook around it. None of others (floats, structures by value), and of functions
    that no header declares.
    """
    slots = [parameter["slot"] for parameter in row["parameters"]]
    thin = slots == list(range(len(slots))) and not row.get("unknown")
    return max(len(slots) - _INTEGER_REGISTERS, 0) if thin else None


def thin_of_driver(rows: list[dict[str, Any]]) -> dict[str, int]:
    """:func:`thin_words` of each of the driver's functions that has them."""
    found = {row["name"]: thin_words(row) for row in rows if "library" not in row}
    return {name: words for name, words in found.items() if words is not None}


def left_out(rows: list[dict[str, Any]], choice: Choice) -> list[str]:
    """Names of the functions that are not hooked where queries are not asked for: none that is a marker."""
    return [row["name"] for row in rows if row.get("base") in QUIET and not choice.marks(row)]


def pack(rows: list[dict[str, Any]], choice: Choice | None = None) -> bytes:
    """All functions as the agent's ``struct function``, one after the other."""
    choice = choice or Choice()
    return b"".join(_pack_function(index, row, choice.marks(row)) for index, row in enumerate(rows))


def _pack_function(index: int, row: dict[str, Any], marks: int) -> bytes:
    slots = _slots(row["parameters"])
    parameters = [_pack_parameter(p, slot) for p, slot in zip(row["parameters"], slots, strict=True)]
    streams = [i for i, p in enumerate(row["parameters"]) if p["type"] == "CUstream"]
    fixed = [p for p in row["parameters"] if p["pointee"]]
    variable = any(p.get("rule") for p in row["parameters"]) * HAS_VARIABLE
    variable |= any(p["direction"] in ("in", "inout") for p in fixed) * HAS_INPUTS
    variable |= any(p["direction"] in ("out", "inout") for p in fixed) * HAS_OUTPUTS
    variable |= (row["base"] in _WAITING) * WAITS
    long = marks or row.get("special") or row.get("made") or variable & (HAS_INPUTS | WAITS)
    variable |= (not long) * SHORT
    head = _FUNCTION.pack(
        index,
        len(parameters),
        SPECIALS.index(row.get("special", "none")),
        streams[-1] if streams else 0xFF,
        row["name"].endswith(("_ptsz", "_ptds")),
        variable,
        marks,
        "library" in row,
        0,
    )
    return head + b"".join(parameters).ljust(MAX_PARAMETERS * _PARAMETER.size, b"\0")


def _slots(parameters: list[dict[str, Any]]) -> list[int]:
    """Where the agent finds each: an integer argument word, or a vector register (System V ABI 3.2.3)."""
    slots, vectors = [], 0
    for parameter in parameters:
        if parameter["slot"] >= 0:
            slots.append(parameter["slot"])
            continue
        slots.append(VECTOR_SLOT + vectors if vectors < _VECTOR_REGISTERS else 0xFF)
        vectors += 2 if parameter["type"] == "cuDoubleComplex" else 1
    return slots


def _pack_parameter(parameter: dict[str, Any], slot: int) -> bytes:
    direction = ring.DIRECTIONS[parameter["direction"]]
    if rule := parameter.get("rule"):
        size = parameter.get("unit", 0)
        return _PARAMETER.pack(slot, direction, ring.RULES[rule], parameter.get("count", 0), size)
    if parameter["pointee"]:
        return _PARAMETER.pack(slot, direction, ring.RULES["fixed"], 0, parameter["pointee"])
    return _PARAMETER.pack(slot, direction, ring.RULES["none"], 0, parameter.get("bytes", 8))


def c_source() -> str:
    """The agent's C code, whole: constants first, then its files in order."""
    constants = {
        "MAX_PARAMETERS": MAX_PARAMETERS,
        "MAX_REACHED": MAX_REACHED,
        "MAX_KERNEL_PARAMETERS": MAX_KERNEL_PARAMETERS,
        "LAYOUT_PLACES": LAYOUT_PLACES,
        "STATE_BYTES": STATE_BYTES,
        "MAX_CLOCKS": MAX_CLOCKS,
        "MAX_FINDERS": MAX_FINDERS,
        "MAX_SPARES": MAX_SPARES,
        "CAPTURE_FULL": CAPTURE_FULL,
        "FLOW_SEGMENTS": FLOW_SEGMENTS,
        "CALL_BYTES": CALL_BYTES,
        "VECTOR_SLOT": VECTOR_SLOT,
        "MAX_RANGES": MAX_RANGES,
        "MAX_CLOSING": MAX_CLOSING,
        "MARKER_NAME": MARKER_NAME_BYTES,
        "HAS_INPUTS": HAS_INPUTS,
        "HAS_OUTPUTS": HAS_OUTPUTS,
        "HAS_VARIABLE": HAS_VARIABLE,
        "WAITS": WAITS,
        "SHORT": SHORT,
        **CUDA_VALUES,
        **{f"SPECIAL_{name.upper()}": number for number, name in enumerate(SPECIALS)},
    }
    defines = "".join(f"#define {name} {value}\n" for name, value in constants.items())
    files = resources.files("zluda.trace.agent")
    parts = (files.joinpath(f"{name}.c").read_text("utf-8") for name in C_FILES)
    shared = f"#define SHARED_RING {json.dumps(ring.SHARED_RING)}\n"
    kernels = "".join(_text_constant(f"{name}_ptx", kernel_ptx(name)) for name in ("look", "flow"))
    return ring.c_defines() + defines + shared + kernels + "".join(parts)


def kernel_ptx(name: str) -> str:
    """A kernel of the recorder's own: ``look``, that looks at pages, or ``flow``, that records them."""
    return resources.files("zluda.trace.agent").joinpath(f"{name}.ptx").read_text("utf-8")


def _text_constant(name: str, text: str) -> str:
    lines = "\n".join(json.dumps(line + "\n") for line in text.splitlines())
    return f"static const char {name}[] =\n{lines};\n"


def sources() -> dict[str, str]:
    """What the agent's JavaScript compiles: its C code (``agent``) and, each a module of its own, what keeps
    Frida's file descriptors open, what has forked children followed, what has processes followed into
    other programs, what keeps the main thread until the others have ended, what stands for NVTX's functions,
    and the hooks that stay in the process.
    """
    files = resources.files("zluda.trace.agent")
    alone = ("descriptors", "forks", "execs", "exits", "nvtx", "resident")
    return {"agent": c_source(), **{name: files.joinpath(f"{name}.c").read_text("utf-8") for name in alone}}


def javascript_source(script: str) -> str:
    """The agent's JavaScript: ``agent``, or ``staying``, which comes before it and stays in the process."""
    files = resources.files("zluda.trace.agent")
    return "".join(files.joinpath(f"{name}.js").read_text("utf-8") for name in ("shared", script))
