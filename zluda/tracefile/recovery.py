"""Finishing a trace whose recorder was killed: what the rings still hold is merged into it."""

from __future__ import annotations

import importlib
import json
import sqlite3
import time
from contextlib import closing
from pathlib import Path

from zluda.errors import TraceError
from zluda.tracefile.agent_counts import note_counts
from zluda.tracefile.drain import META_FILE, TAILS_KEY, Drain, read_options
from zluda.tracefile.effects import Effects, ImageReader
from zluda.tracefile.reader import Trace
from zluda.tracefile.records import AllocationKind, Fidelity
from zluda.tracefile.ring import (
    FAILURE,
    FLAG_FAILED,
    FLAG_LEFT,
    Control,
    give_rings_back,
    remove_rings,
    rings_directory,
)
from zluda.tracefile.schema import sqlite_errors
from zluda.tracefile.writer import TraceWriter

_DYING_SECONDS = 10.0


def merge_rings(path: Path) -> bool:
    """Merge the rings that stand beside ``path`` into it, and take them away.

    False where there is nothing to do: no rings, or a recorder that still works on them. Raises TraceError
    where the trace or a ring is damaged; the rings then stay.
    """
    directory = rings_directory(path)
    try:
        control = Control(directory)
    except FileNotFoundError:
        return False
    try:
        if not _take_over(control):
            return False
        failed = bool(control["FLAGS"] & FLAG_FAILED)
        control["FLAGS"] |= FLAG_LEFT  # an application that still runs is no longer recorded
        _merge(path, directory, control, _ending(directory, failed=failed))
        give_rings_back(directory)
        remove_rings(directory)
        return True
    finally:
        control.close()


def _take_over(control: Control) -> bool:
    """Become the recorder's heir; false where it is at work. One that was killed holds the lock until the
    last of its threads has ended, which takes a while with large rings mapped.
    """
    end = time.monotonic() + _DYING_SECONDS
    while not control.lock():
        if _at_work(control["RECORDER_PID"]) or time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def _at_work(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def _ending(directory: Path, *, failed: bool) -> str:
    """What became of the recorder, in words."""
    if not failed:
        return "the recorder was killed"
    try:
        return f"the recorder could not go on: {(directory / FAILURE).read_text()}"
    except FileNotFoundError:
        return "the recorder could not go on"


def _merge(path: Path, directory: Path, control: Control, ending: str) -> None:
    if not _is_begun(path):
        _begin(path, directory)
    with Trace(path) as trace:
        read_module = _image_reader(
            trace.meta.get("environment", {}), read_options(directory).get("assembled")
        )
        noted = trace.meta.get(TAILS_KEY, {})
        tails = {str(name): (int(kept), int(read)) for name, (kept, read) in noted.items()}
        restored = _Restored(trace)
    with TraceWriter.reopen(path) as writer:
        drain = Drain(directory, writer, read_module=read_module, tails=tails)
        try:
            restored.into(drain)
            drain.finish()
            writer.add_gap(None, "recorder", f"{ending}; what came after is not on record")
            note_counts(control, writer)
            writer.set_meta({"recovered": True, TAILS_KEY: {}})
        finally:
            drain.close()


def _image_reader(variables: dict[str, str], assembled: str | None) -> ImageReader:
    """What the recorder reads modules with. By its name: recording is above this package, which finishes what
    was begun there.
    """
    reader: ImageReader = importlib.import_module("zluda.trace.images").image_reader(variables, assembled)
    return reader


def _is_begun(path: Path) -> bool:
    """Whether the recorder lived long enough to make the trace's tables."""
    if not path.exists():
        return False
    # For writing: what was under way when the recorder was killed is taken back by whoever opens the file.
    with (
        sqlite_errors(path),
        closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True)) as file,
    ):
        return bool(file.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0])


def _begin(path: Path, directory: Path) -> None:
    """All that was recorded is in the rings; without the file that begins with, it is somebody else's trace
    that is missing.
    """
    meta = directory / META_FILE
    if not meta.exists():
        raise TraceError("there are rings but no trace", file=str(path))
    TraceWriter.create(path, json.loads(meta.read_text())).close()


class _Restored:
    """Handles, memory and open calls as the trace has them."""

    def __init__(self, trace: Trace) -> None:
        self._modules = [m for m in trace.module_list if m.unload_call is None]
        self._functions = trace.functions
        self._allocations = [a for a in trace.allocations if a.died is None]
        self._arrays = {
            a.id: trace.call(a.born).pointees.get("pHandle", 0)
            for a in self._allocations
            if a.kind is AllocationKind.ARRAY
        }
        self._open = trace.open_calls()
        self._fidelities = trace.fidelities_of_modules()
        self._aliases = [
            (int(call.pointees["pMod"]), call.arguments["library"])
            for call in trace.iter_calls_of("cuLibraryGetModule")
            if call.result == 0 and "pMod" in call.pointees
        ]
        self._capability = trace.meta.get("compute_capability", [0, 0])
        self._devices = trace.meta.get("devices", [])
        self._libraries = trace.meta.get("libraries", [])

    def into(self, drain: Drain) -> None:
        effects: Effects = drain.effects
        for module in self._modules:
            fidelity = self._fidelities.get(module.id, Fidelity.UNKNOWN)
            effects.restore_module(module.id, module.handle, module.load_call, fidelity)
        for handle, library in self._aliases:
            effects.restore_alias(handle, library)
        for function in self._functions:
            effects.restore_function(function.id, function.handle, function.name, function.module)
        for allocation in self._allocations:
            place = (allocation.base, allocation.size, allocation.born, allocation.module)
            effects.memory.restore(allocation.id, *place, array=int(self._arrays.get(allocation.id, 0)))
        effects.compute_capability = 10 * self._capability[0] + self._capability[1]
        drain.devices = list(self._devices)
        drain.libraries = list(self._libraries)
        drain.take_over(self._open)
