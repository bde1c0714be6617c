"""One run of ``zluda trace``: start the application, get the agent in, keep a recording for each process,
report.
"""

from __future__ import annotations

import contextlib
import datetime
import mmap
import os
import platform
import secrets
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

from zluda import __version__
from zluda.driver.table import driver_api
from zluda.errors import DeviceError, Error
from zluda.records import dataclass
from zluda.trace import nvtx_stub, presets, spec
from zluda.trace.application import Application
from zluda.trace.assemblers import Assembled, is_assembler, watch
from zluda.trace.choice import Choice, javascript_pattern
from zluda.trace.following import Following, Successor
from zluda.trace.hold import process_state
from zluda.trace.index import write_index
from zluda.trace.programs import loads_libraries
from zluda.trace.provenance import forces_jit
from zluda.trace.recording import Recording
from zluda.trace.still import Stillness, agents_code, prologues, threads_of
from zluda.tracefile.ring import CONTROL_BYTES
from zluda.tracefile.schema import check_replaceable
from zluda.tracefile.stripping import STRIPPED, Part

CAPTURES = ("calls", "outputs", "full")
TIMINGS = ("events", "off")
_TRIES = 5  # to get an agent into a process that does not respond
_TURN_SECONDS = 30.0  # after which a child waits no longer for the one before it
PROGRESS_SECONDS = 10.0
"""How long a stream is waited for after a launch before it is let go, with a gap."""


@dataclass(frozen=True, slots=True)
class Options:
    """What every process of a run is recorded with."""

    capture: str
    ring_bytes: int | None  # None: as ring_bytes_for says
    progress_seconds: float
    follow_children: bool = True
    choice: Choice = Choice()
    timing: str = "events"
    queries: bool = False

    def __post_init__(self) -> None:
        """Raises :class:`zluda.Error` where there is no memory of launches to choose from."""
        if self.capture == "calls" and self.choice.given.keys() - {"budget"}:
            names = ", ".join(sorted(self.choice.given.keys() - {"budget"}))
            raise Error(f"{names}: with --capture calls no launch has its memory on record")
        self.choice.check_names(spec.functions())


@dataclass(slots=True)
class Outcome:
    """How a run ended. ``status`` is the application's own (128 + signal)."""

    status: int
    trace: Path
    calls: int = 0
    launches: int = 0
    seconds: float = 0.0
    stall_seconds: float = 0.0
    recovered: bool = False  # the recorder was killed; the trace was finished from its rings
    open_call: tuple[int, str] | None = None
    problems: list[str] = field(default_factory=list)
    children: list[Path] = field(default_factory=list)
    index: Path | None = None  # of the processes, where there are several


def record(
    command: Sequence[str],
    output: str | Path = "trace.bin",
    *,
    capture: str = "outputs",
    ring_bytes: int | None = None,
    progress_seconds: float = PROGRESS_SECONDS,
    preset: str | None = None,
    ptx_jit: bool = False,
    follow_children: bool = True,
    choice: Choice | None = None,
    timing: str = "events",
    queries: bool = False,
    note: Callable[[str], None] | None = None,
) -> Outcome:
    """Run ``command`` and record its CUDA driver calls in ``output``.

    ``capture`` is ``"calls"`` (no memory but what the host sends), ``"outputs"`` (what launches changed) or
    ``"full"`` (also what they found changed by others). With ``follow_children`` those that use CUDA are
    recorded beside it, with their process id in the name, and ``STEM.index.json`` lists all processes.
    ``timing`` is ``"events"`` (the GPU time of each launch) or ``"off"``; ``queries`` has calls that only ask
    (:data:`spec.QUIET`) on record too.
    ``choice`` says of which launches memory is recorded. ``note`` gets one line for each thing worth telling
    at once. ``preset`` names a framework (:data:`presets.PRESETS`) whose PTX is to be seen; ``ptx_jit`` has
    the driver compile PTX where machine code is beside it. Raises :class:`zluda.Error` where the application
    cannot be started or the agent cannot get in.
    """
    if capture not in CAPTURES:
        raise ValueError(f"capture is {capture!r}, expected one of {', '.join(CAPTURES)}")
    if timing not in TIMINGS:
        raise ValueError(f"timing is {timing!r}, expected one of {', '.join(TIMINGS)}")
    choice = choice or Choice()
    options = Options(capture, ring_bytes, progress_seconds, follow_children, choice, timing, queries)
    frida = import_frida()
    check_place(Path(output))
    note = note or (lambda text: None)
    variables = dict(presets.PTX_JIT) if ptx_jit else {}
    if preset is not None:
        chosen = presets.variables(preset, os.environ, Path(output))
        note(presets.explained(preset, chosen))
        variables |= chosen
    with nvtx_stub.placed(os.environ) as nvtx:
        if nvtx is None and choice.needs_nvtx:
            raise Error(f"NVTX tells another tool ({nvtx_stub.VARIABLE} is set): no marker can be a range")
        listening = {} if nvtx is None else {nvtx_stub.VARIABLE: str(nvtx)}
        process = Application(command, variables | listening)
        session = Session(frida, list(command), Path(output), options, note, variables, nvtx)
        return _run(session, process)


def _run(session: Session, process: Application) -> Outcome:
    """Record a program that is held at its first instruction, to its end."""
    started = time.monotonic()
    with _forwarded_signals(process.pid):
        try:
            session.attach(process.pid)
        except BaseException:
            process.kill()
            session.finish()
            raise
        process.release()
        status = process.wait()
    outcome = session.finish()
    outcome.status, outcome.seconds = status, time.monotonic() - started
    return outcome


def import_frida() -> Any:
    """The module; DeviceError with its remedy where it is not installed."""
    try:
        import frida
    except ImportError:
        raise DeviceError("trace", "frida is not installed", remedy="pip install 'zluda[trace]'") from None
    return frida


def check_place(output: Path) -> None:
    """Raises Error where no trace can be written there."""
    directory = output.absolute().parent
    if not directory.is_dir():
        raise Error(f"{directory}: no such directory")
    check_replaceable(output)
    if not os.access(directory, os.W_OK):
        raise Error(f"{directory}: not writable")
    try:
        _try_place(Path(f"{output}.tried"))
    except OSError as error:
        raise Error(f"{directory}: no trace can be written there: {error.strerror}") from None


def _try_place(directory: Path) -> None:
    """What a recording needs there, before the program is started: a directory beside the trace (its name is
    as long as that of the rings) with files that are mapped.
    """
    with contextlib.suppress(FileExistsError):  # another recorder tries at this moment, or was killed then
        directory.mkdir()
    try:
        file = directory / "control"
        file.write_bytes(bytes(CONTROL_BYTES))
        with open(file, "r+b") as stream:
            mmap.mmap(stream.fileno(), CONTROL_BYTES).close()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _errors_of(frida: Any) -> tuple[type[Exception], ...]:
    """Frida's exceptions, which have no class in common."""
    return tuple(one for one in vars(frida).values() if isinstance(one, type) and issubclass(one, Exception))


class _forwarded_signals:
    """While the application runs: SIGTERM and SIGHUP to us go to it, SIGINT it gets from the terminal."""

    def __init__(self, pid: int) -> None:
        self._pid = pid

    def __enter__(self) -> None:
        self._old = {}
        if threading.current_thread() is not threading.main_thread():
            return
        self._old[signal.SIGINT] = signal.signal(signal.SIGINT, signal.SIG_IGN)
        for number in (signal.SIGTERM, signal.SIGHUP):
            self._old[number] = signal.signal(number, lambda n, _: os.kill(self._pid, n))

    def __exit__(self, *_: object) -> None:
        for number, handler in self._old.items():
            signal.signal(number, handler)


class Session:
    """The agent's other end: one Frida session and at most one recording for each process."""

    def __init__(
        self,
        frida: Any,
        command: list[str],
        output: Path,
        options: Options,
        note: Callable[[str], None],
        variables: dict[str, str],
        nvtx: Path | None = None,
    ) -> None:
        self._nvtx = nvtx  # the library that NVTX loads in the program
        self._variables = variables
        self._frida, self._command, self._output = frida, command, output
        self._options, self._note = options, note
        self._main = 0
        self._recordings: dict[int, Recording] = {}
        self._scripts: list[Any] = []
        self._keep: list[Any] = []  # Frida's objects live as long as they are referred to
        self._problems: list[str] = []
        self._device = frida.get_local_device()
        self._following = Following(self)
        # What children that are assemblers made is of use to every recording, and nothing to keep.
        self._assembled = Assembled(Path(tempfile.gettempdir(), f"zluda-ptxas-{secrets.token_hex(8)}"))
        self._getting_in = threading.Lock()
        self._left_out: set[tuple[str, str]] = set()
        # why a child may not be recorded
        self._refusals: tuple[type[Exception], ...] = (Error, OSError, *_errors_of(frida))
        self._finished: list[tuple[Recording, dict[str, Any]]] = []
        self._names: set[Path] = set()
        self._late: set[int] = set()
        self._processes: dict[int, dict[str, Any]] = {}  # what is known of children
        self._sources = spec.sources()
        self._stillness: dict[int, Stillness] = {}
        self._earlier: dict[int, set[str]] = {}  # agents of former recordings of a process

    def attach(self, pid: int, *, late: bool = False) -> None:
        """Get the agent into the process; returns when the driver, if it is there already, is hooked.

        ``late``: it is not held, and may have used the driver before.
        """
        self._main = self._main or pid
        if late:
            self._late.add(pid)
            self._earlier[pid] = set(agents_code(pid))
        try:
            session = self._get_in(pid)
            self._keep.append(self._staying(session))
            script = session.create_script(spec.javascript_source("agent"), name="zluda")
        except self._frida.PermissionDeniedError as error:
            raise Error(f"Frida may not attach to processes here: {error}") from None
        except self._frida.NotSupportedError as error:
            raise Error(f"Frida cannot attach: {error}") from None
        except self._frida.ProcessNotFoundError:
            raise Error("the application ended before it could be recorded") from None
        except self._frida.ProcessNotRespondingError as error:
            raise Error(f"process {pid} does not let Frida's agent in: {error}") from None
        script.on("message", lambda message, data: self._message(pid, script, message))
        self._keep.append(session)
        self._scripts.append(script)
        script.load()
        options = {
            "late": late,
            "outlives": not late and pid == self._main,
            "nvtx": None if self._nvtx is None else self._nvtx.name,
        }
        if script.exports_sync.begin(self._sources, options):
            self._stay(pid, script)

    def _get_in(self, pid: int) -> Any:
        """Frida waits five seconds for its agent, which is not long on a busy machine."""
        for _ in range(_TRIES - 1):
            with contextlib.suppress(self._frida.ProcessNotRespondingError):
                return self._device.attach(pid)
        return self._device.attach(pid)

    def _staying(self, session: Any) -> Any:
        """Put what stays in the process there. Frida stays with it when its session ends: a thread that ends
        the program while Frida goes waits for it for ever, or crashes.
        """
        script = session.create_script(spec.javascript_source("staying"), name="staying")
        script.on("message", lambda message, data: self._message(0, script, message))
        script.load()
        script.exports_sync.begin(self._sources, self._following.name)
        script.eternalize()
        return script

    def _stay(self, pid: int, script: Any) -> None:
        """The driver is hooked: from now on the agent outlives us, for however we end, its threads may be
        anywhere in the agent's code. What it has to tell goes through the ring.
        """
        self._scripts.remove(script)
        with contextlib.suppress(self._frida.InvalidOperationError):  # its process has ended
            script.eternalize()
        self._let_go(pid)
        recording = self._recordings.get(pid)
        if recording is not None:
            recording.send(stays=True)

    # --- messages -------------------------------------------------------------------------------------

    def _message(self, pid: int, script: Any, message: dict[str, Any]) -> None:
        """What the agent says. Runs in Frida's thread."""
        if message["type"] != "send":
            self._problem(f"the agent failed: {message.get('description', message)}")
            return
        payload = message["payload"]
        handlers = {
            "exports": self._exports,
            "hooked": self._hooked,
            "failed": self._failed,
            "limit": self._limit,
            "hold": self._hold,
            "threads": self._hold_threads,
        }
        handlers[payload["type"]](pid, script, payload)

    def _exports(self, pid: int, script: Any, payload: dict[str, Any]) -> None:
        """The driver is there: start the recording, then tell the agent what to hook."""
        try:
            recording = Recording(
                self._path_for(pid),
                pid,
                payload["names"],
                ring_bytes=self._options.ring_bytes,
                timing=self._options.timing,
                meta=self._meta(pid, payload),
                choice=self._options.choice,
                assembled=self._assembled.directory,
            )
        except Error as error:
            self._problem(str(error))
            script.post({"type": "table", "error": str(error)})
            return
        self._recordings[pid] = recording
        choice = self._options.choice
        left_out = spec.left_out(recording.rows, choice)
        left_out += [row["name"] for row in recording.rows if choice.skips(row)]
        left_out = [] if self._options.queries else left_out
        directory = recording.directory.absolute()
        script.post(
            {
                "type": "table",
                "control": str(directory / "control"),
                "directory": str(directory),
                "outputs": CAPTURES.index(self._options.capture),
                "progressNs": int(self._options.progress_seconds * 1e9),
                "names": [row["name"] for row in recording.rows if "library" not in row],
                "thin": spec.thin_of_driver(recording.rows),
                "libraries": spec.libraries(recording.rows, left_out),
                "leftOut": left_out,
                "nodes": spec.NODE_ENTRIES,
                "choice": list(choice.pack()),
                "kernels": javascript_pattern(choice.kernel) if choice.kernel else None,
                "stateBytes": spec.STATE_BYTES,
                "functionBytes": spec.FUNCTION_BYTES,
            },
            spec.pack(recording.rows, choice),
        )

    def _hold(self, pid: int, script: Any, payload: dict[str, Any]) -> None:
        """Before functions of a running process are hooked: its threads are to be held. Which ones, the agent
        tells us.
        """
        code = agents_code(pid)
        agents = [span for agent in set(code) - self._earlier[pid] for span in code[agent]]
        unsafe = agents + prologues(int(address, 16) for address in payload["addresses"])
        self._stillness[pid] = Stillness(unsafe)
        script.post({"type": "threads", "threads": threads_of(pid), "held": False})

    def _hold_threads(self, pid: int, script: Any, payload: dict[str, Any]) -> None:
        """The agent says which threads are the program's; those that they started meanwhile come next."""
        stillness, held = self._stillness[pid], True
        try:
            held = not stillness.hold(payload["threads"])
        except Error as error:
            self._problem(str(error))
        script.post({"type": "threads", "threads": threads_of(pid), "held": held})

    def _hooked(self, pid: int, script: Any, payload: dict[str, Any]) -> None:
        recording = self._recordings[pid]
        recording.send(hooked=[int(address, 16) for address in payload["addresses"]])
        recording.send(meta={"hooks": payload["count"], "left_out": payload["leftOut"]})
        for name, reason in payload["failed"]:
            recording.send(gap=[name, f"could not be hooked: {reason}", 1])
        if payload["alone"]:  # :meth:`attach` does not wait for it. Not in Frida's thread
            threading.Thread(target=self._stay, args=(pid, script), daemon=True).start()

    def _let_go(self, pid: int) -> None:
        stillness = self._stillness.pop(pid, None)
        if stillness is not None:
            stillness.release()

    def _failed(self, pid: int, script: Any, payload: dict[str, Any]) -> None:
        self._let_go(pid)
        self._problem(f"could not be hooked: {payload['message']}")

    def _limit(self, pid: int, script: Any, payload: dict[str, Any]) -> None:
        self._problem(payload["message"])

    def _problem(self, text: str) -> None:
        if text not in self._problems:
            self._problems.append(text)

    # --- children -------------------------------------------------------------------------------------

    def is_followed(self, pid: int) -> bool:
        """The program itself is, whatever it becomes: what a launcher script ends with, say."""
        return self._options.follow_children or pid == self._main

    def take_forked(self, pid: int, parent: int) -> None:
        """A forked child waits for an agent, before its fork returns."""
        self._processes.setdefault(pid, {"parent": parent, "command": None})
        self._get_into(pid)

    def take_successor(self, successor: Successor) -> None:
        """A process has become another program, and is stopped."""
        pid, command = successor.pid, successor.command
        parent = None if pid == self._main else successor.parent
        self._processes.setdefault(pid, {"parent": parent})["command"] = command
        replaced = self._recordings.pop(pid, None)
        try:
            if replaced is not None:  # the program that was recorded is gone
                self._close(replaced)
            if is_assembler(command):
                watch(successor.process, command, self._assembled, self._following.is_closing)
            else:
                self._get_into(pid, successor.hold)
        finally:
            with contextlib.suppress(OSError):  # it was killed
                successor.release()

    def _get_into(self, pid: int, hold: Callable[[], None] = lambda: None) -> None:
        """Record a child, which ``hold`` keeps where an agent can get in; it goes on whatever comes of it.

        One after the other, for on a busy machine Frida's five seconds for an agent are not long.
        """
        alone = self._getting_in.acquire(timeout=_TURN_SECONDS)
        try:
            self._close_ended()
            # A static program never loads the driver, and Frida's loader crashes in one.
            if not loads_libraries(f"/proc/{pid}/exe"):
                raise Error("a static or 32-bit program; nor is what it starts")
            hold()
            self.attach(pid)
        except self._refusals as error:
            self.unrecorded(pid, str(error))
        finally:
            if alone:
                self._getting_in.release()

    def unrecorded(self, pid: int, reason: str) -> None:
        """A child that lives is not recorded: told at once, and on record with its parent's calls."""
        if process_state(pid) in "ZX":
            return
        about = self._processes.get(pid, {})
        name = Path((about.get("command") or [f"process {pid}"])[0]).name
        if (name, reason) not in self._left_out:  # once of a program
            self._left_out.add((name, reason))
            self._note(f"child {pid} ({name}) is not recorded: {reason}")
        recording = self._recordings.get(about.get("parent") or self._main) or self._recordings.get(
            self._main
        )
        if recording is not None:
            recording.send(gap=["child", f"{name}, a child process, is not recorded: {reason}", 1])

    def _path_for(self, pid: int) -> Path:
        """The trace of a process: the one asked for, or with the process id in its name."""
        path, number = self._output, 1
        if pid != self._main:
            path = self._output.with_name(f"{self._output.stem}.{pid}{self._output.suffix}")
        first = path
        while path in self._names:
            number += 1
            path = first.with_name(f"{first.stem}.{number}{first.suffix}")
        self._names.add(path)
        return path

    def _meta(self, pid: int, payload: dict[str, Any]) -> dict[str, Any]:
        return {
            "command": self._command,
            "working_directory": os.getcwd(),
            "capture": self._options.capture,
            "timing": self._options.timing,
            "environment": self._variables,
            **({"ptx_jit": True} if forces_jit({**os.environ, **self._variables}) else {}),
            "host": platform.node(),
            "system": platform.platform(),
            "zluda": __version__,
            "cuda_headers": driver_api()["cuda_version"],
            "libcuda": payload["path"],
            "start_time": time.time(),
            "start": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "start_ns": time.monotonic_ns(),
            **({"attached": True} if pid in self._late else {}),
            **({STRIPPED: [Part.CONTENTS], "redacted": True} if self._options.choice.redact else {}),
            **({"selection": self._options.choice.given} if self._options.choice.given else {}),
        }

    def _close(self, recording: Recording) -> None:
        """The recorded program has ended. A trace without calls (a child that never used CUDA) is taken
        away.
        """
        summary = recording.finish()
        for text in summary.get("problems", ()):
            self._problem(text)
        if summary.get("over_budget"):
            self._problem(f"{recording.trace}: reached its budget; the memory of later calls is not recorded")
        if self._options.follow_children and (lost := summary.get("childrens_calls")):
            self._problem(
                f"{recording.trace}: {lost} calls of children forked by a bare clone are not recorded"
            )
        if "error" in summary:
            self._problem(f"recording stopped: {summary['error']}")
        if summary.get("calls") or summary.get("recovered") or "error" in summary:
            self._finished.append((recording, summary))
        else:
            if summary.get("lost_threads"):
                place = recording.trace.absolute().parent
                self._problem(f"nothing was recorded: no room in {place} for the file that calls go through")
            recording.trace.unlink(missing_ok=True)
            self._names.discard(recording.trace)

    def _close_ended(self) -> None:
        """Children that have ended give back their rings, each half a gigabyte, before another comes."""
        for pid in list(self._recordings):
            if pid != self._main and process_state(pid) in "ZX":
                recording = self._recordings.pop(pid, None)
                if recording is not None:
                    self._close(recording)

    def leave(self) -> None:
        """Before :meth:`finish`, where processes go on: agents that have hooked nothing stay, too."""
        for script in self._scripts:
            with contextlib.suppress(self._frida.InvalidOperationError):  # its process has ended
                script.eternalize()

    # --- the end ----------------------------------------------------------------------------------------

    def finish(self) -> Outcome:
        """Close every recording; the outcome is the main process's."""
        self._following.close()
        outcome = Outcome(status=0, trace=self._output, problems=self._problems)
        recordings, self._recordings = self._recordings, {}
        for recording in recordings.values():
            self._close(recording)
        outcome.index = write_index(self._output, self._main, self._command, self._finished, self._processes)
        for recording, summary in self._finished:
            if recording.trace != self._output:
                outcome.children.append(recording.trace)
            else:
                outcome.calls, outcome.launches = summary.get("calls", 0), summary.get("launches", 0)
                outcome.recovered = bool(summary.get("recovered")) or "error" in summary
                outcome.stall_seconds = summary.get("stall_ns", 0) / 1e9
                last = summary.get("open_call")
                outcome.open_call = (last[0], last[1]) if last else None
        shutil.rmtree(self._assembled.directory, ignore_errors=True)
        return outcome
