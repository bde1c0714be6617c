"""A recorded launch on one device, run as often as is wanted from the memory that the record has before it.

Objects (contexts, allocations, textures) are made by the record's calls, as a replay makes them; the launch's
own module is then unloaded, since each run brings the text to run. Translated code runs in a runner, so a
candidate that crashes or hangs costs one answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import field

from zluda.device import names
from zluda.diff.results import Verdict
from zluda.driver import CudaError
from zluda.errors import Error, TraceError
from zluda.records import dataclass
from zluda.replay.address_plan import plan_addresses
from zluda.replay.handlers import launches
from zluda.replay.handles import Unavailable
from zluda.replay.playback import Record, why
from zluda.replay.recovery import Recovery, death
from zluda.replay.redacted import is_redacted
from zluda.replay.session import Session
from zluda.runner import RunnerDied
from zluda.tracefile import AllocationKind, Dim3, Trace
from zluda.tracefile.memory import known_runs

TIME_LIMIT = 60.0
"""Seconds that one run may take on a device."""


@dataclass(frozen=True, slots=True)
class Setting:
    """How a run differs from the record: where empty or None, it does not.

    ``memory`` is the contents of allocations before the launch, by id. ``asks`` are written into variables of
    the text before it, ``answers`` are variables that are read after it, with their sizes in bytes.
    """

    grid: Dim3 | None = None
    block: Dim3 | None = None
    memory: Mapping[int, bytes] = field(default_factory=dict)
    asks: Mapping[str, bytes] = field(default_factory=dict)
    answers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run left: memory by allocation, the variables asked for; or the ``failure`` it ended in."""

    memory: Mapping[int, bytes] = field(default_factory=dict)
    answers: Mapping[str, bytes] = field(default_factory=dict)
    failure: Unavailable | None = None


class Stage:
    """One launch of an open trace on one device; a context manager.

    ``device`` is a name as for ``zluda replay``. Raises TraceError where the launch cannot be run by itself.
    """

    def __init__(
        self,
        trace: Trace,
        call: int,
        device: str,
        *,
        numerics: str | None = None,
        contract: str = "auto",
        schedule: int = 0,
        check: str = "none",
        time_limit: float = TIME_LIMIT,
    ) -> None:
        self.trace, self.launch = trace, trace.launch(call)
        self._check()
        full = names.resolve(device)
        if names.kind(full) == "cuda":  # NVIDIA's own compiler decides
            contract = "auto"
        names.check_options(full, numerics=numerics, check=check, contract=contract, schedule=schedule)
        places = names.kind(full) in ("cpu", "interpreter", "gfx", "hip")
        plan = plan_addresses(trace.allocations, place_globals=places)
        self._session = Session(
            full,
            plan,
            numerics=numerics,
            contract=contract,
            time_limit=time_limit,
            schedule=schedule,
            check=check,
        )
        try:
            self._record, self._plan = Record(trace), plan
            self._recovery = Recovery(self._record, self._session, plan)
            self.name, self.numerics = self._session.driver.name, self._session.driver.numerics
            self._loaded: tuple[str, int] | None = None
            self._scratch: dict[str, tuple[int, int]] = {}
            self._set()
        except BaseException:
            self._session.close()
            raise

    def _check(self) -> None:
        path, call = str(self.trace.path), self.launch.call
        if is_redacted(self.trace):
            raise TraceError("redacted: what the launch read is not on record", file=path, call=call)
        if self.launch.left_out is not None:
            reason = f"its memory is not on record: {self.launch.left_out.reason}"
            raise TraceError(reason, file=path, call=call)
        if self.trace.graphs.is_node(self.trace.call(call)):
            raise TraceError("a node of a graph, before which memory is not on record", file=path, call=call)
        if self.launch.module is None:
            raise TraceError("its module is not on record", file=path, call=call)

    # --- what is there ------------------------------------------------------------------------------

    def _set(self) -> None:
        """Make what the launch needs, but for its module."""
        self._loaded = None
        self._scratch.clear()
        call = self.launch.call
        self._recovery.follow(0, call)
        state = self._recovery.state
        state.make_current(self.trace.call(call).thread)
        absent = state.memory.why_absent(self.launch.parameters)
        if absent is not None:
            raise TraceError(absent.reason, file=str(self.trace.path), call=call)
        self.before: dict[int, bytes] = {}
        self._known: dict[int, list[tuple[int, int]]] = {}
        for _ in range(2):  # what pointers inside memory reach shows once the contents are there
            reach = state.memory.reach(self.launch.parameters, self.launch.module)
            for one in reach:
                if one.id not in self.before:
                    data, mask = self.trace.read_allocation(one.id, call - 1, 0, one.size)
                    self.before[one.id] = data
                    self._known[one.id] = [(0, one.size)] if mask is None else list(known_runs(mask))
                    state.memory.write(one, 0, data)
        self.reached = tuple(one.record for one in reach)
        module = state.modules.get(self.launch.module or 0)
        if isinstance(module, tuple):
            kind, live = module
            (state.driver.cuLibraryUnload if kind == "library" else state.driver.cuModuleUnload)(live)

    @property
    def text(self) -> str:
        """The PTX of the launch's module. Raises TraceError where the record has none."""
        modules = {module.id: module for module in self.trace.module_list}
        data = self.trace.ptx(modules[self.launch.module or 0])
        if data is None:
            raise TraceError(
                f"module {self.launch.module} holds machine code only, no PTX to look into",
                file=str(self.trace.path),
                call=self.launch.call,
            )
        return data.rstrip(b"\0").decode("utf-8", "replace")

    def scratch(self, name: str, size: int) -> int:
        """The address of device memory that belongs to the stage, zero before its first use."""
        found = self._scratch.get(name)
        if found is None or found[1] < size:
            found = self._scratch[name] = (self._session.driver.cuMemAlloc(size), size)
            self._session.write(found[0], bytes(size))
        return found[0]

    def read(self, address: int, size: int) -> bytes:
        """Bytes of device memory."""
        return self._session.read(address, size)

    def write(self, address: int, data: bytes) -> None:
        """Put bytes into device memory."""
        self._session.write(address, data)

    def address(self, allocation: int) -> int:
        """Where an allocation that the launch reaches is on this device."""
        return self._recovery.state.memory.live[allocation].base

    def recorded(self, address: int) -> int:
        """The record's address of a device address, which are others on a device that cannot place memory."""
        for one in self._recovery.state.memory.live.values():
            if one.relocated and one.base <= address < one.base + one.size:
                return address - one.base + one.record.base
        return address

    # --- running ------------------------------------------------------------------------------------

    def run(self, text: str, setting: Setting | None = None) -> Outcome:
        """Launch the kernel of ``text`` on the memory before the launch, and say what came of it."""
        setting = setting or Setting()
        try:
            return self._run(text, setting)
        except RunnerDied as died:
            self._restart()
            return Outcome(failure=death(died))
        except Error as error:
            failure = why(error)
            if failure.verdict in (Verdict.CRASH, Verdict.HANG) or not self._recovers():
                self._restart()
            return Outcome(failure=failure)

    def _run(self, text: str, setting: Setting) -> Outcome:
        state, launch = self._recovery.state, self.launch
        module = self._load(text)
        there = self._fill(module, setting)
        for name, data in setting.asks.items():
            self._session.write(state.driver.cuModuleGetGlobal(module, name)[0], data)
        state.handles.bind("function", launch.handle, state.driver.cuModuleGetFunction(module, launch.kernel))
        shaped = launch._replace(grid=setting.grid or launch.grid, block=setting.block or launch.block)
        launches.issue(state, self.trace.call(launch.call), shaped)
        memory = {
            one.id: bytes(state.memory.read(state.memory.live[one.id], 0, one.size))
            for one in self.reached
            if one.id in there
        }
        answers = {}
        for name in setting.answers:
            base, size = state.driver.cuModuleGetGlobal(module, name)
            answers[name] = self._session.read(base, size)
        return Outcome(memory, answers)

    def _load(self, text: str) -> int:
        """The module's handle; the last one loaded stays."""
        driver = self._recovery.state.driver
        if self._loaded is not None and self._loaded[0] == text:
            return self._loaded[1]
        if self._loaded is not None:
            handle = self._loaded[1]
            self._loaded = None
            driver.cuModuleUnload(handle)
        at = {one.name: one.base for one in self.reached if one.kind is AllocationKind.GLOBAL}
        handle = driver.cuModuleLoadData(
            text.encode(), globals_at=at if driver.places_globals and at else None
        )
        self._loaded = (text, handle)
        return handle

    def _fill(self, module: int, setting: Setting) -> set[int]:
        """Memory as it was before the launch; of variables, those that the text still has. What there is."""
        state = self._recovery.state
        there: set[int] = set()
        for one in self.reached:
            live = state.memory.live.get(one.id)
            if live is None:
                continue
            if one.kind is AllocationKind.GLOBAL:
                with suppress(CudaError):
                    live.base, _ = state.driver.cuModuleGetGlobal(module, one.name)
                    for start, stop in self._known[one.id]:  # the rest is as the text says
                        self._session.write(live.base + start, self._contents(one.id, setting)[start:stop])
                    there.add(one.id)
            else:
                state.memory.write(live, 0, self._contents(one.id, setting))
                there.add(one.id)
        return there

    def _contents(self, allocation: int, setting: Setting) -> bytes:
        return setting.memory.get(allocation, self.before[allocation])

    def _recovers(self) -> bool:
        return self._recovery.state.driver.recover()

    def _restart(self) -> None:
        self._session.restart()
        self._recovery = Recovery(self._record, self._session, self._plan)
        self._set()

    def close(self) -> None:
        """End the runner."""
        self._session.close()

    def __enter__(self) -> Stage:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
