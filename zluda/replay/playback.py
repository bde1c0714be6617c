"""The state of a replay under way: the driver, what recorded objects became, and whose context is current."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

from zluda.compiler.services import PRINTING
from zluda.diff.results import Verdict
from zluda.driver import CudaError, Driver
from zluda.errors import Error, HangError, PtxError, UnsupportedError
from zluda.replay.address_plan import PLACED_KINDS, AddressPlan
from zluda.replay.code_addresses import recorded_functions
from zluda.replay.handles import HandleMap, Unavailable, Unplayable
from zluda.replay.memory import MemoryAccess, ReplayMemory
from zluda.replay.names import entry_name
from zluda.replay.redacted import RedactedMemory, is_redacted
from zluda.tracefile import SIGNATURES, Allocation, AllocationKind, Call, LoadedModule, ModuleKind, Trace

_INVALID_CODE = ("CUDA_ERROR_INVALID_PTX", "CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "CUDA_ERROR_INVALID_IMAGE")

_FAT = (ModuleKind.FATBIN, ModuleKind.ELF)
_FREEING = ("cuMemFree", "cuMemUnmap", "cuMemHostUnregister", "cuIpcCloseMemHandle")


class Record:
    """What the player looks up in a trace all the time, indexed by call."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.born: dict[int, list[Allocation]] = defaultdict(list)
        self.died: dict[int, list[Allocation]] = defaultdict(list)
        self.globals_of: dict[int, list[Allocation]] = defaultdict(list)
        for allocation in trace.allocations:
            self.born[allocation.born].append(allocation)
            if allocation.died is not None:
                self.died[allocation.died].append(allocation)
            if allocation.kind is AllocationKind.GLOBAL and allocation.module is not None:
                self.globals_of[allocation.module].append(allocation)
        self.module_loaded_by = {module.load_call: module for module in trace.module_list}
        self.modules = {module.id: module for module in trace.module_list}
        self.functions = {function.id: function for function in trace.functions}
        self.function_name_at = {function.first_call: function.name for function in trace.functions}

    def is_reached(self, allocation: Allocation) -> bool:
        """Whether the record has contents of it: of host memory, whether a launch reached it."""
        return allocation.id in self.trace.allocations_with_pages


class Playback:
    """One run of a driver through a trace. A driver that died is replaced by a new playback."""

    def __init__(self, record: Record, driver: Driver, access: MemoryAccess, plan: AddressPlan) -> None:
        self.record, self.driver, self.plan = record, driver, plan
        self.handles = HandleMap()
        self.memory = (RedactedMemory if is_redacted(record.trace) else ReplayMemory)(record.trace, access)
        self.modules: dict[int, tuple[str, int] | Unavailable] = {}  # id → (kind of handle, live handle)
        self.mapped: dict[int, int] = {}  # allocation → recorded handle of the physical memory (cuMemMap)
        self.prints = False  # whether a module was loaded that can print
        self.unplayed: Counter[str] = Counter()  # driver function → calls that had an effect and no handler
        self.conditions: dict[int, int | None] = {}  # of graphs, by handle: the value at a graph's launch
        self.exchanged: dict[int, int] = {}  # recorded texture and surface handles → the replay's, where used
        self._stacks: dict[int, list[int]] = defaultdict(list)  # thread → recorded contexts, current last
        self._current = 0  # live
        driver.cuInit(0)
        self._fallback = 0
        self.retain_primary()

    @property
    def native(self) -> bool:
        """Whether NVIDIA's driver runs the recorded code itself."""
        return self.driver.name.startswith("cuda")

    @property
    def relocates(self) -> bool:
        """Whether memory may be elsewhere than in the record: on a GPU whose runtime cannot place it."""
        return self.driver.name.startswith("hip")

    # --- contexts -----------------------------------------------------------------------------------

    @property
    def context(self) -> int:
        """The live context that is current."""
        return self._current

    @property
    def primary(self) -> int:
        """The live primary context."""
        return self._fallback

    def make_current(self, thread: int) -> None:
        """Issue the next call as the recorded thread would.

        A thread whose context is not on record has the primary one. So has a thread that made a handle
        current which no call gave out: the CUDA runtime learns the primary context's handle from a private
        table and makes it current before it retains it.
        """
        stack = self._stacks[thread]
        if stack and not self.handles.known("context", stack[-1]):
            self.handles.bind("context", stack[-1], self._fallback)
        live = self.handles.live("context", stack[-1]) if stack else self._fallback
        if live != self._current:
            self.driver.cuCtxSetCurrent(live)
            self._current = live

    def push_context(self, thread: int, context: int, live: int | None = None) -> None:
        """The thread's current context; ``live`` if the driver has made it current by itself."""
        self._stacks[thread].append(context)
        if live is not None:
            self._current = live

    def pop_context(self, thread: int) -> None:
        if self._stacks[thread]:
            self._stacks[thread].pop()

    def retain_primary(self) -> None:
        """Have a primary context, and make it current; also after a reset destroyed the one there was."""
        self._fallback = self._current = self.driver.cuDevicePrimaryCtxRetain(0)
        self.driver.cuCtxSetCurrent(self._fallback)

    def drop_context(self, context: int) -> None:
        """A destroyed context is current nowhere."""
        for thread, stack in self._stacks.items():
            self._stacks[thread] = [one for one in stack if one != context]
        self._current = self._fallback
        self.driver.cuCtxSetCurrent(self._fallback)

    def drop_freed(self, context: int) -> None:
        """Forget the allocations that went with a (live) context; the record need not say so."""
        for one in list(self.memory.live.values()):
            if one.array is not None:
                if one.array.context == context:
                    self.memory.remove(one.id)
                continue
            try:
                self.driver.cuMemGetAddressRange(one.base)
            except CudaError:
                self.memory.remove(one.id)

    # --- handles ------------------------------------------------------------------------------------

    def stream(self, call: Call, name: str = "hStream") -> int:
        """The live stream of a call; 0 in a per-thread form is the per-thread default stream."""
        recorded = call.arguments[name]
        if recorded == 0 and entry_name(call.function).per_thread:
            return 2
        return self.known_stream(recorded)

    def known_stream(self, recorded: int) -> int:
        """The live stream of a recorded one; where recording began later than the stream, the default one."""
        if self.record.trace.meta.get("attached") and not self.handles.known("stream", recorded):
            self.handles.bind("stream", recorded, 0)
        return self.handles.live("stream", recorded)

    def string(self, call: Call, name: str) -> str:
        """A string argument; raises Unplayable where it was not captured."""
        data = self.record.trace.payload(call.sequence, name)
        if data is None:
            raise Unplayable(Unavailable(Verdict.GAP, f"{call.function}: its {name} was not captured"))
        return data.split(b"\0", 1)[0].decode("utf-8", "replace")

    def function_name(self, call: Call) -> str:
        """The name a handle was asked for by."""
        data = self.record.trace.payload(call.sequence, "name")
        if data is None and call.sequence in self.record.function_name_at:
            return self.record.function_name_at[call.sequence]
        return self.string(call, "name")

    # --- modules ------------------------------------------------------------------------------------

    def load_module(self, call: Call, kind: str) -> int:
        """Load what ``call`` loaded, its globals at their recorded addresses where the driver can."""
        module = self.record.module_loaded_by.get(call.sequence)
        if module is None:
            raise Unplayable(Unavailable(Verdict.GAP, f"{call.function}: its image was not captured"))
        load = self.driver.cuLibraryLoadData if kind == "library" else self.driver.cuModuleLoadData
        globals_at = {one.name: one.base for one in self.record.globals_of[module.id]}
        try:
            live = load(self._image(module), globals_at=globals_at if self.driver.places_globals else None)
        except Error as error:
            self.modules[module.id] = why(error)
            raise
        self.modules[module.id] = (kind, live)
        return live

    def _image(self, module: LoadedModule) -> bytes:
        """The recorded code for NVIDIA's driver, the PTX in it for any other.

        NVIDIA's driver gets the PTX too where it was made to compile that although machine code was beside
        it: the runner does not have the variable that told it to.
        """
        trace = self.record.trace
        ptx = trace.ptx(module)
        if ptx is not None and self.native and trace.meta.get("ptx_jit") and module.kind in _FAT:
            return ptx
        if ptx is not None and not self.native:
            self.prints |= any(name.encode() in ptx for name in PRINTING)
            return ptx
        # Of a link of several fatbins the first holds the device-link step, which is empty without -rdc.
        code = (image for image in module.images if image.architecture != SIGNATURES and image.size)
        loaded = [image for image in code if image.kind is not ModuleKind.PTX]
        image = trace.image(max(loaded, key=lambda image: image.size)) if loaded else ptx
        if image is None:
            raise Unplayable(Unavailable(Verdict.GAP, f"the image of module {module.id} was not captured"))
        return image

    def unload_module(self, call: Call) -> None:
        for module in self.record.modules.values():
            if module.unload_call == call.sequence:
                self.modules.pop(module.id, None)

    def function(self, recorded: int, function_id: int) -> int:
        """The live function of a launch: by its handle, else by its module and name."""
        found = self.handles.get("function", recorded)
        if found is None:
            found = self._function_by_name(function_id)
            self.handles.bind("function", recorded, found)
        if isinstance(found, Unavailable):
            raise Unplayable(found)
        return found

    def _function_by_name(self, function_id: int) -> int | Unavailable:
        function = self.record.functions[function_id]
        module = self.modules.get(function.module) if function.module is not None else None
        if module is None:
            return Unavailable(Verdict.GAP, f"the module of kernel {function.name} is not on record")
        if isinstance(module, Unavailable):
            return module
        kind, live = module
        if kind == "library":
            return self.driver.cuLibraryGetKernel(live, function.name)
        return self.driver.cuModuleGetFunction(live, function.name)

    # --- allocations --------------------------------------------------------------------------------

    def allocate(self, call: Call) -> None:
        """Make the memory that ``call`` made, at the same addresses where they can be had."""
        placed = [one for one in self.record.born[call.sequence] if one.kind in PLACED_KINDS]
        if not placed and not self._made_later(call):
            raise Unplayable(Unavailable(Verdict.GAP, f"{call.function}: its allocation is not on record"))
        for allocation in placed:
            self._place(allocation)

    def allocate_host(self, call: Call) -> None:
        """Memory, anywhere, for host memory that a launch on record reached: its contents are on record.

        Recorded host addresses may be this process's own; words that point there are exchanged.
        """
        for allocation in self.record.born[call.sequence]:
            if allocation.kind is AllocationKind.HOST and self.record.is_reached(allocation):
                for stale in self.memory.overlapping(allocation):
                    self.free(stale.record)
                self.memory.add(allocation, self.driver.cuMemAlloc(allocation.size))

    def _made_later(self, call: Call) -> bool:
        """Whether what ``call`` made lives from a later call on: the one that freed the memory before."""
        made = call.pointees.get(next(iter(call.arguments), ""))
        later = (one for one in self.record.trace.allocations if one.base == made)
        return any(one.kind in PLACED_KINDS and one.born > call.sequence for one in later)

    def _place(self, allocation: Allocation) -> None:
        if allocation.id in self.plan.unplaceable and not self.relocates:
            raise Unplayable(Unavailable(Verdict.GAP, self.plan.unplaceable[allocation.id]))
        for stale in self.memory.overlapping(allocation):
            self.free(stale.record)
        self.memory.add(allocation, self._make(allocation))

    def _make(self, allocation: Allocation) -> int:
        try:
            return self.driver.cuMemAlloc(allocation.size, address=allocation.base)
        except CudaError as error:
            if not self.relocates or error.name != "CUDA_ERROR_OUT_OF_MEMORY":
                raise
        return self.driver.cuMemAlloc(allocation.size)

    def free(self, allocation: Allocation) -> None:
        gone = self.memory.remove(allocation.id)
        if gone is not None and allocation.kind not in (AllocationKind.GLOBAL, AllocationKind.ARRAY):
            self.driver.cuMemFree(gone.base)

    def settle_allocations(self, call: Call, failure: Unavailable | None) -> None:
        """After ``call``: find the globals it made known, and make the memory that it made room for; what was
        not made here is absent.
        """
        for allocation in self.record.born.get(call.sequence, ()):
            if allocation.id in self.memory.live:
                continue
            absent = failure
            if allocation.kind in PLACED_KINDS and entry_name(call.function).base.startswith(_FREEING):
                absent = self._place_late(allocation)
            elif absent is None and allocation.kind is AllocationKind.GLOBAL:
                absent = self._find_global(allocation)
            elif absent is None:
                absent = _not_made(allocation, call)
            if absent is not None:
                self.memory.add_absent(allocation, absent)

    def _place_late(self, allocation: Allocation) -> Unavailable | None:
        """Memory whose making was entered before the free, another thread's, of what lay there."""
        try:
            self._place(allocation)
        except CudaError as error:
            return why(error)
        except Unplayable as error:
            return error.why
        return None

    def bury_allocations(self, call: Call) -> None:
        """After ``call``: what the record says is gone is gone."""
        for allocation in self.record.died.get(call.sequence, ()):
            self.free(allocation)

    def _find_global(self, allocation: Allocation) -> Unavailable | None:
        module = self.modules.get(allocation.module) if allocation.module is not None else None
        if module is None:
            return Unavailable(Verdict.GAP, f"the module of variable {allocation.name} was not loaded")
        if isinstance(module, Unavailable):
            return module
        kind, live = module
        ask = self.driver.cuLibraryGetGlobal if kind == "library" else self.driver.cuModuleGetGlobal
        try:
            base, size = ask(live, allocation.name)
        except CudaError as error:
            return why(error)
        if size != allocation.size:
            reason = f"variable {allocation.name} has {size} bytes, the record {allocation.size}"
            return Unavailable(Verdict.GAP, reason)
        self.memory.add(allocation, base)
        for offset, recorded in recorded_functions(self.record.trace, allocation).items():
            self.memory.learn_code(self.memory.live[allocation.id], offset, recorded)
        return None

    def taint(self, keys: Iterable[int], reason: Unavailable) -> None:
        """The contents of these allocations cannot be trusted until the record restores them."""
        for key in keys:
            self.memory.live[key].taint = reason


def why(error: Error) -> Unavailable:
    """The verdict on what depends on a call that failed here and did not fail on NVIDIA."""
    if isinstance(error, Unplayable):
        return error.why
    if isinstance(error, UnsupportedError | PtxError):
        return Unavailable(Verdict.UNSUPPORTED, str(error))
    if isinstance(error, CudaError):
        if error.reason == "no-ptx":
            return Unavailable(Verdict.NO_PTX, "its module holds machine code only")
        if error.launch is not None:
            hangs = isinstance(error.launch, HangError)
            return Unavailable(Verdict.HANG if hangs else Verdict.CRASH, str(error.launch))
        if error.name in _INVALID_CODE:
            return Unavailable(Verdict.UNSUPPORTED, str(error))
    return Unavailable(Verdict.GAP, str(error))


def _not_made(allocation: Allocation, call: Call) -> Unavailable:
    if allocation.kind is AllocationKind.HOST:
        reason = f"what host memory at {allocation.base:#x} held is not on record"
        return Unavailable(Verdict.GAP, reason)
    return Unavailable(Verdict.GAP, f"memory made by {call.function} is not part of a replay")
