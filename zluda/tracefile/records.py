"""What a trace holds, as Python values: one named tuple a table, since they are made by the million.

Numbers of calls are 0-based sequence numbers in the order in which the calls were entered, over all threads.
Addresses, sizes and handles are plain unsigned integers; times are nanoseconds of the recording host's
monotonic clock.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum
from typing import NamedTuple

Dim3 = tuple[int, int, int]

PAGE_BYTES = 64 * 1024
"""The longest piece of memory one `page` row holds; pieces never straddle a multiple of it in their
allocation.
"""

PAYLOAD_BYTES = 1 << 20
"""The longest piece of a payload one row holds."""

META_KEYS = {
    "command": "the recorded program and its arguments, a list of text",
    "working_directory": "where it was started",
    "capture": "calls, outputs or full",
    "gpu": "the GPU's name",
    "compute_capability": "of that GPU: [major, minor]",
    "driver_version": "what cuDriverGetVersion said: 13000 is CUDA 13.0",
    "libcuda": "the library that was hooked",
    "libraries": "those above the driver: name, path, and how many of their functions were hooked",
    "host": "the recording machine's name",
    "system": "its operating system",
    "start": "when recording began, ISO 8601 in UTC",
    "start_ns": "the same on the clock of the calls",
    "stall_ns": "how long the program waited for the recorder, over all threads",
    "ptx_jit": "true where the driver was made to compile PTX although machine code was beside it",
    "attached": "true where the program was running before it was recorded",
    "left_out": "functions that only ask, calls of which were not recorded: those of this driver's",
    "timing": "events or off: whether launches were timed on the GPU",
    "launches_not_timed": "launches for which there was no event",
    "launches_not_waited_for": "launches after which memory was captured when their stream got there",
    "bytes_looked_at": "of device memory, to find what changed",
    "bytes_moved": "of those, copied from the GPU",
    "wait_ns": "how long the program waited for its own streams, so that memory could be looked at",
    "look_ns": "how long it took then to find what launches changed, and to take that",
    "write_ns": "of that, to hand pages over to the recorder",
    "proof": "whether the recording GPU, running it again, came to the same: see docs/trace-format.md",
    "recovered": "true where the recorder was killed and its rings were merged later",
    "zluda": "the recorder's version",
    "requires": "additions that a reader must know, or else misread the trace: a list of names",
    "cut_from": "of a part: the trace it was cut from, and the calls that it holds",
    "stripped": "what was taken out before sharing: machine-code, contents, names",
    "imported_from": "the kernel archive that the trace was made of",
    "replay_of": "the trace that a replay was made from",
    "device": "the device of a replay",
    "emulated": "whether that device is emulated",
    "numerics": "nvidia or native: how a replay computed approximate instructions",
}
"""What `meta` may hold; a reader shows other keys too, under their own names."""


class Direction(StrEnum):
    """Which way a parameter's data flows; ``VALUE`` is a parameter that points to nothing the API reads or
    writes.
    """

    VALUE = "value"
    IN = "in"
    OUT = "out"
    INOUT = "inout"


class Fidelity(StrEnum):
    """What the recorded GPU ran, seen from the PTX that a replay translates."""

    SAME_PTX = "same-ptx"  # this very PTX was compiled, by the driver or by ptxas
    SIBLING = "sibling"  # machine code that was built from the same source
    UNKNOWN = "unknown"


class AllocationKind(StrEnum):
    DEVICE = "device"
    MANAGED = "managed"
    HOST = "host"
    GLOBAL = "global"  # a .global or .const variable of a module
    POOL = "pool"  # stream-ordered
    VIRTUAL = "virtual"  # cuMemMap
    ARRAY = "array"  # a CUDA array, linearised (tracefile/arrays.py); its base is a number of the recorder's


class ModuleKind(StrEnum):
    """What the application handed to the driver."""

    PTX = "ptx"
    FATBIN = "fatbin"
    CUBIN = "cubin"
    ELF = "elf"  # a host executable or library with device code in it
    OTHER = "other"


class Parameter(NamedTuple):
    """One parameter of a driver function. ``pointee_size``: bytes of the fixed-size thing it points to, 0
    if none.
    """

    name: str
    type: str
    direction: Direction = Direction.VALUE
    pointee_size: int = 0


class Signature(NamedTuple):
    """A driver function as it was recorded, interned: ``id`` is what a `call` row refers to."""

    id: int
    function: str
    parameters: tuple[Parameter, ...]


class Call(NamedTuple):
    """One driver call, decoded.

    ``arguments`` maps every parameter to its raw 64-bit word. ``pointees`` maps a parameter that points to
    a thing of fixed size to that thing (before the call for ``in``, after it for ``out`` and ``inout``): an
    int up to 8 bytes, else bytes; absent where the pointer was NULL or the call failed or never returned.
    ``pointees_before`` holds what an ``inout`` parameter pointed to before the call. ``end_ns`` and
    ``result`` are None for a call that never returned.
    """

    sequence: int
    thread: int
    parent: int | None
    function: str
    arguments: dict[str, int]
    pointees: dict[str, int | bytes]
    start_ns: int
    end_ns: int | None
    result: int | None
    pointees_before: dict[str, int | bytes]


class Payload(NamedTuple):
    """Data of variable size that a call's parameter pointed to: a string, an array, a host buffer, a struct.

    ``offset`` is 0 unless the start of the data was not captured; pieces that adjoin are joined on reading.
    """

    call: int
    parameter: int  # index in the signature
    direction: Direction  # IN: before the call, OUT: after it
    offset: int
    data: bytes


class Image(NamedTuple):
    """One image of a module. ``origin`` says where it came from: ``as loaded``, ``fatbin entry 2 (zstd)``,
    a file.
    """

    kind: ModuleKind
    architecture: str
    origin: str
    size: int
    blob: int


SIGNATURES = "signatures"
"""What an image of kind OTHER has as its architecture that holds kernels' parameters, as a framework names
them: JSON, kernel → types in order (``*f32``: a pointer to f32).
"""


class LoadedModule(NamedTuple):
    """A module or library from its load to its unload; ``images[0]`` is what the application handed over."""

    id: int
    kind: ModuleKind
    origin: str
    handle: int
    load_call: int
    unload_call: int | None
    images: tuple[Image, ...]

    @property
    def ptx_image(self) -> Image | None:
        return next((image for image in self.images if image.kind is ModuleKind.PTX), None)


class Function(NamedTuple):
    """A kernel handle from the call that first gave it. ``layout``: (offset, size) of each parameter, if
    known.
    """

    id: int
    handle: int
    first_call: int
    module: int | None
    name: str
    layout: tuple[tuple[int, int], ...] | None


class Shape(NamedTuple):
    """What launches have in common: the kernel, its configuration and attributes as recorded, and what the
    GPU ran.
    """

    function: int  # id
    grid: Dim3
    block: Dim3
    cluster: Dim3
    shared_bytes: int
    attributes: bytes
    fidelity: Fidelity


class LeftOut(IntEnum):
    """Why a launch was recorded without the memory that it changed; the number is `captured` of its row."""

    UNSELECTED = 2
    OVER_BUDGET = 3

    @property
    def reason(self) -> str:
        """For a person."""
        return _LEFT_OUT[self]


_LEFT_OUT = {
    LeftOut.UNSELECTED: "not selected when it was recorded",
    LeftOut.OVER_BUDGET: "budget: the trace had its size when it was recorded",
}


class Launch(NamedTuple):
    """One kernel launch. ``parameters`` is the packed parameter buffer, ``attributes`` the launch
    attributes as recorded. ``captured``: the memory that the launch can reach was looked at after it, so
    that `pages` of this call are all that it changed there. ``left_out``: why that was not to be done.
    """

    call: int
    function: int  # id
    kernel: str
    handle: int
    module: int | None
    grid: Dim3
    block: Dim3
    cluster: Dim3
    shared_bytes: int
    stream: int
    attributes: bytes
    parameters: bytes
    layout: tuple[tuple[int, int], ...] | None
    gpu_time_ns: int | None
    fidelity: Fidelity
    captured: bool
    left_out: LeftOut | None = None


class Allocation(NamedTuple):
    """A range of device memory from ``born`` (the call that made it, or a later one that freed the memory for
    it) to ``died`` (the call that freed it).
    """

    id: int
    base: int
    size: int
    kind: AllocationKind
    name: str  # of a module's variable; of an array, its shape
    module: int | None
    born: int
    died: int | None

    @property
    def end(self) -> int:
        return self.base + self.size

    def alive_after(self, call: int) -> bool:
        return self.born <= call and (self.died is None or self.died > call)


class Page(NamedTuple):
    """The contents of ``[offset, offset + length)`` of an allocation after ``call``, where the call changed
    them.
    """

    call: int
    allocation: int
    offset: int
    length: int
    blob: int


NOT_REPLAYED = "not replayed"
"""The kind of a gap at a launch that the replay, kept as a trace, has no result of."""


class Gap(NamedTuple):
    """Something that was not captured: ``kind`` is its class (one word or a function's name), ``text`` says
    why.
    """

    call: int | None
    kind: str
    text: str
    times: int


class Unproved(NamedTuple):
    """A launch or copy that did not come out as recorded each time when the recording GPU ran it again.

    ``verdict`` is the worst that it had (a name of ``diff.results.Verdict``).
    """

    call: int
    verdict: str
    reason: str


class NoiseKind(StrEnum):
    """In which way NVIDIA's own results vary."""

    ELEMENTS = "elements"  # some elements have other values
    SET = "set"  # the same rows stand in another order


class Noise(NamedTuple):
    """What NVIDIA varied of one allocation when it ran a launch again.

    ``origin`` is where the first element of the mask lies, and a row of a set begins, in bytes from the
    allocation's start. ``mask`` is the blob of a bit an element, the lowest of a byte first; ``elements`` are
    as many as it speaks of. ``row_bytes`` is of a set. ``max_ulp`` and ``max_absolute`` are the largest
    distances from the record, None where none was seen that has a meaning; ``unbounded`` where one was seen
    that has none (a NaN or an infinity on one side). ``runs``: how often the launch was run and held against
    the record.
    """

    call: int
    allocation: int
    kind: NoiseKind
    element_type: str
    origin: int
    elements: int
    mask: int
    row_bytes: int
    max_ulp: float | None
    max_absolute: float | None
    unbounded: bool
    runs: int


class Counts(NamedTuple):
    """Rows a trace holds; ``page_bytes`` are bytes of memory before compression."""

    calls: int
    open_calls: int
    threads: int
    launches: int
    kernels: int
    modules: int
    modules_with_ptx: int
    allocations: int
    pages: int
    page_bytes: int
    payloads: int
    blobs: int
    gaps: int
