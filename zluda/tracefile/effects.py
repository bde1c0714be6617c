"""What a completed call means for the tables of a trace: modules, kernels, launches, memory, gaps.

The drain hands over each call when its LEAVE has been read, with the data it carried, in causal order; this
class keeps the handles and allocations that are alive and writes the rows that follow from the call.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable
from dataclasses import field

from zluda.records import dataclass
from zluda.tracefile import ring
from zluda.tracefile.blobs import MAX_BLOB_BYTES
from zluda.tracefile.completed_call import Completed
from zluda.tracefile.jit_libraries import JitLibraries
from zluda.tracefile.links import Links
from zluda.tracefile.recorded_memory import ENDS, RecordedMemory
from zluda.tracefile.records import AllocationKind, Direction, Fidelity, ModuleKind
from zluda.tracefile.writer import LaunchRow, TraceWriter


@dataclass(slots=True)
class FoundImage:
    """An image found inside a module, to be stored beside it."""

    kind: ModuleKind
    data: bytes
    architecture: str
    origin: str


@dataclass(slots=True)
class ModuleContents:
    """What the recorder made of a module's image; ``globals`` names the variables whose addresses are
    wanted.
    """

    kind: ModuleKind
    found: list[FoundImage]
    globals: list[str]
    fidelity: Fidelity
    problem: str = ""


ImageReader = Callable[[list[bytes], int], ModuleContents]
"""(the pieces of one load, compute capability) → what is in them"""


@dataclass(slots=True)
class _Function:
    id: int
    name: str
    module: int | None
    layout: tuple[tuple[int, int], ...] | None = None


@dataclass(slots=True)
class Live:
    """Handles alive at this point of the recording."""

    modules: dict[int, int] = field(default_factory=dict)  # CUmodule or CUlibrary → module id
    functions: dict[int, _Function] = field(default_factory=dict)  # CUfunction or CUkernel
    fidelity: dict[int, Fidelity] = field(default_factory=dict)  # module id →
    loads: dict[int, int] = field(default_factory=dict)  # module id → the call that loaded it


# CUlaunchConfig: grid, block, shared bytes, padding, stream, attributes, their count
_CONFIG = struct.Struct("<8IQQI4x")
_ATTRIBUTE_BYTES = 72
_CLUSTER_DIMENSION = 4  # CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
_MASK32 = 0xFFFFFFFF


class Effects:
    """Writes what follows from completed calls."""

    def __init__(
        self, writer: TraceWriter, read_module: ImageReader | None, answer: Callable[[int, str], None]
    ) -> None:
        self._writer, self._read_module, self._answer = writer, read_module, answer
        self.live = Live()
        self.memory = RecordedMemory(writer)
        self.launches: list[LaunchRow] = []
        self.compute_capability = 0
        self.hooked: frozenset[int] = frozenset()
        self.shapes: dict[bytes, int] = {}
        """Arguments that name a kernel, a shape and attributes → their id; empty again when a handle
        changes.
        """
        self._counted: Counter[str] = Counter()  # calls that cannot be replayed, by their function
        self._further: dict[str, int] = {}  # the gap that counts those after the first
        self._uncounted: set[str] = set()  # for which it does not say how many there are by now
        self._links = Links(self._ptx_in)
        self._jit = JitLibraries(self._ptx_in)
        self._handlers = {
            "launch": self._launch,
            "launch_ex": self._launch_ex,
            "launch_cooperative": self._launch,
            **self.memory.handlers,
            "module_load": self._load,
            "library_load": self._load,
            "module_unload": self._unload,
            "library_unload": self._unload,
            "get_function": self._get_function,
            "get_kernel": self._get_function,
            "proc_address": self._proc_address,
        }

        self._by_base = {
            "cuLibraryGetModule": self._alias_module,
            "cuLinkAddData": self._links.added_data,
            "cuLinkAddFile": self._links.added_file,
            "cuLinkComplete": self._links.completed,
            **self._jit.handlers,
        }

    # --- entry points -------------------------------------------------------------------------------

    def completed(self, call: Completed) -> None:
        """A call returned. Everything that it carried has been read."""
        row = call.row
        special = row.get("special", "")
        handler = self._handlers.get(special)
        deferred = bool(call.flags & ring.LEAVE_DEFERRED)
        if call.result == 0:
            if handler is not None and not deferred:
                handler(call)
            elif (by_name := self._by_base.get(row["base"])) is not None:
                by_name(call)
            if row["effect"] == "effect" and not row["replay"]:
                self._count_gap(call)
        if special in ENDS:
            self.memory.left(call, deferred=deferred)
        self._payloads(call)

    def launch_left_open(self, call: Completed) -> None:
        """A call never returned: if it is a launch, it is on record as one."""
        if str(call.row.get("special", "")).startswith("launch"):
            self._handlers[call.row["special"]](call)

    def function_described(self, sequence: int, handle: int, body: bytes) -> None:
        """A FUNCTION record: the layout of a kernel's parameters, and its name."""
        _, count, owner = struct.unpack_from("<IIQ", body)
        values = struct.unpack_from(f"<{2 * count}I", body, 16)
        layout = tuple(zip(values[::2], values[1::2], strict=True))
        name = body[16 + 8 * count :].decode("utf-8", "replace")
        function = self.live.functions.get(handle)
        if function is None:
            self._add_function(sequence, handle, name, self.live.modules.get(owner))
            function = self.live.functions[handle]
        function.layout = layout
        self._writer.set_layout(function.id, layout)

    def global_placed(self, address: int, body: bytes) -> None:
        """A GLOBAL record: where a module's variable lies."""
        size, handle = struct.unpack_from("<QQ", body)
        module = self.live.modules.get(handle)
        born = self.live.loads.get(module, 0) if module is not None else 0
        name = body[16:].decode("utf-8", "replace")
        self.memory.add(born, address, size, AllocationKind.GLOBAL, name=name, module=module)

    def write_counts(self) -> None:
        """Have gaps say how many calls they stand for."""
        for name in sorted(self._uncounted):
            count = self._counted[name] - 1
            if name in self._further:
                self._writer.count_gap(self._further[name], count)
            else:
                text = "further calls that cannot be replayed"
                self._further[name] = self._writer.add_gap(None, name, text, count)
        self._uncounted.clear()

    # --- what an earlier drain left (recovery) --------------------------------------------------------

    def restore_module(self, module: int, handle: int, load_call: int, fidelity: Fidelity) -> None:
        self.live.modules[handle] = module
        self.live.loads[module] = load_call
        self.live.fidelity[module] = fidelity

    def restore_alias(self, handle: int, library: int) -> None:
        """``cuLibraryGetModule`` gave out a handle of a library, which may be unloaded by now."""
        if library in self.live.modules:
            self.live.modules[handle] = self.live.modules[library]

    def restore_function(self, function: int, handle: int, name: str, module: int | None) -> None:
        self.live.functions[handle] = _Function(function, name, module)

    # --- launches -----------------------------------------------------------------------------------

    def _launch(self, call: Completed) -> None:
        words = call.words
        key = struct.pack("<8Q", *words[:8])
        shape = self.shapes.get(key)
        if shape is None:
            w = [word & _MASK32 for word in words[1:8]]
            shape = self._shape(call, words[0], (w[0], w[1], w[2]), (w[3], w[4], w[5]), w[6], b"")
            self.shapes[key] = shape
        self._add_launch(call, shape, words[8])

    def _launch_ex(self, call: Completed) -> None:
        config = call.pointees[0] or bytes(_CONFIG.size)
        gx, gy, gz, bx, by, bz, shared, _, stream, _, _ = _CONFIG.unpack_from(config)
        attributes = call.content(ring.PARAMETER_ATTRIBUTES)
        key = struct.pack("<8Q", call.words[1], gx, gy, gz, bx, by, bz, shared) + attributes
        shape = self.shapes.get(key)
        if shape is None:
            shape = self._shape(call, call.words[1], (gx, gy, gz), (bx, by, bz), shared, attributes)
            self.shapes[key] = shape
        self._add_launch(call, shape, stream)

    def _shape(
        self,
        call: Completed,
        handle: int,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        shared_bytes: int,
        attributes: bytes,
    ) -> int:
        if handle not in self.live.functions:
            self._add_function(call.sequence, handle, "", None)
        function = self.live.functions[handle]
        fidelity = self.live.fidelity.get(function.module or 0, Fidelity.UNKNOWN)
        return self._writer.shape(
            function.id,
            grid,
            block,
            cluster=_cluster(attributes),
            shared_bytes=shared_bytes,
            attributes=attributes,
            fidelity=fidelity,
        )

    def _add_launch(self, call: Completed, shape: int, stream: int) -> None:
        stream -= (stream >> 63) << 64
        captured = ring.CAPTURED_OF_FLAGS[call.flags & 0xFF]
        self.launches.append((call.sequence, shape, stream, call.packed, None, captured))

    # --- code ---------------------------------------------------------------------------------------

    def _load(self, call: Completed) -> None:
        pieces, origin = self._images(call)
        read = self._read_module
        contents = read(pieces, self.compute_capability) if read else None
        kind = contents.kind if contents else ModuleKind.OTHER
        handle = call.output(0)
        pieces = [self._storable(call, piece) for piece in pieces]
        module = self._writer.add_module(
            call.sequence, kind, handle, origin=origin, image=pieces[0] if pieces else b""
        )
        for ordinal, piece in enumerate(pieces[1:], 1):
            if piece:
                self._writer.add_image(module, kind, piece, origin=f"fat binary {ordinal} as loaded")
        self.live.modules[handle] = module
        self.live.loads[module] = call.sequence
        if contents:
            self._note_contents(call, module, contents)
        if contents and contents.kind in (ModuleKind.CUBIN, ModuleKind.ELF) and pieces:
            self._note_link(call, module, pieces[0])
        self._answer(call.sequence, "".join(f"{name}\n" for name in contents.globals) if contents else "")

    def _storable(self, call: Completed, piece: bytes) -> bytes:
        """The image; nothing, and a gap, where it is too large for one blob, as big libraries are."""
        if len(piece) <= MAX_BLOB_BYTES:
            return piece
        self._writer.add_gap(call.sequence, "module", f"an image of {len(piece)} bytes is not stored")
        return b""

    def _note_contents(self, call: Completed, module: int, contents: ModuleContents) -> None:
        self.live.fidelity[module] = contents.fidelity
        for image in contents.found:
            self._writer.add_image(
                module, image.kind, image.data, architecture=image.architecture, origin=image.origin
            )
        if contents.problem:
            self._writer.add_gap(call.sequence, "module", contents.problem)

    def _note_link(self, call: Completed, module: int, image: bytes) -> None:
        """The PTX of machine code that the driver's linker, NVRTC or nvJitLink made."""
        linked, origin = self._links.find(call.words[1], image), "what cuLinkAddData was given"
        if linked is None and (made := self._jit.find(image)) is not None:
            linked, origin = made
        if linked is None:
            return
        if linked.problem:
            self._writer.add_gap(call.sequence, "module", linked.problem)
            return
        self.live.fidelity[module] = Fidelity.SAME_PTX
        self._writer.add_image(
            module,
            ModuleKind.PTX,
            linked.ptx,
            architecture=linked.architecture,
            origin=origin,
        )

    def _ptx_in(self, image: bytes) -> bytes | None:
        contents = self._read_module([image], self.compute_capability) if self._read_module else None
        found = contents.found if contents else []
        return next((one.data for one in found if one.kind is ModuleKind.PTX), None)

    def _images(self, call: Completed) -> tuple[list[bytes], str]:
        """The pieces of what was loaded, and where they came from."""
        image = next((i for i, p in enumerate(call.row["parameters"]) if p.get("rule") == "image"), None)
        if image is None:  # from a file: cuModuleLoad, cuLibraryLoadFromFile
            path = call.content(1).decode("utf-8", "surrogateescape")
            try:
                with open(path, "rb") as file:
                    return [file.read()], path
            except OSError as error:
                self._writer.add_gap(call.sequence, "module", f"{path}: {error.strerror}")
                return [], path
        parts = sorted({d.part for d in call.data if d.parameter == image})
        pieces = [call.content(image, part) for part in parts]
        call.data = [d for d in call.data if d.parameter != image]
        return pieces, call.row["name"]

    def _unload(self, call: Completed) -> None:
        module = self.live.modules.pop(call.words[0], None)
        if module is None:
            return
        self._writer.unload_module(module, call.sequence)
        self.shapes.clear()
        for handle in [h for h, f in self.live.functions.items() if f.module == module]:
            del self.live.functions[handle]
        self.memory.module_unloaded(module, call.sequence)

    def _alias_module(self, call: Completed) -> None:
        """``cuLibraryGetModule``: the module's handle stands for the library."""
        module = self.live.modules.get(call.words[1])
        if module is not None:
            self.live.modules[call.output(0)] = module

    def _get_function(self, call: Completed) -> None:
        handle, source = call.output(0), call.words[1]
        kernel = self.live.functions.get(source) if call.row["base"] == "cuKernelGetFunction" else None
        if kernel is not None:
            name, module = kernel.name, kernel.module
        else:
            name, module = call.content(2).decode("utf-8", "replace"), self.live.modules.get(source)
        known = self.live.functions.get(handle)
        if known is None or (known.name, known.module) != (name, module):
            self._add_function(call.sequence, handle, name, module)

    def _add_function(self, call: int, handle: int, name: str, module: int | None) -> None:
        self.shapes.clear()
        key = self._writer.add_function(call, handle, name, module=module)
        self.live.functions[handle] = _Function(key, name, module)

    def _proc_address(self, call: Completed) -> None:
        address = call.output(1)
        if address and self.hooked and address not in self.hooked:
            name = call.content(0).decode("utf-8", "replace")
            self._writer.add_gap(call.sequence, name, "reached at an address that is no export; not recorded")

    # --- the rest -----------------------------------------------------------------------------------

    def _payloads(self, call: Completed) -> None:
        for data in call.data:
            if data.parameter >= len(call.row["parameters"]):
                continue
            text = call.row["parameters"][data.parameter].get("rule") == "string"
            direction = Direction.OUT if data.direction == ring.DIRECTIONS["out"] else Direction.IN
            self._writer.add_payload(
                call.sequence, data.parameter, direction, data.content, offset=data.offset, text=text
            )

    def _count_gap(self, call: Completed) -> None:
        name = call.row["base"]
        if not self._counted[name]:
            unknown = call.row.get("unknown")
            text = "no header declares it; recorded by name" if unknown else "recorded, cannot be replayed"
            self._writer.add_gap(call.sequence, name, text)
        else:
            self._uncounted.add(name)
        self._counted[name] += 1


def _cluster(attributes: bytes) -> tuple[int, int, int]:
    for start in range(0, len(attributes) - _ATTRIBUTE_BYTES + 1, _ATTRIBUTE_BYTES):
        kind, x, y, z = struct.unpack_from("<I4x3I", attributes, start)
        if kind == _CLUSTER_DIMENSION:
            return x, y, z
    return 1, 1, 1
