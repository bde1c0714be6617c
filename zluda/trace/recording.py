"""The recording of one process: its trace, its rings, its recorder process. The session owns one for each
process.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from zluda.errors import Error
from zluda.trace import spec
from zluda.trace.choice import Choice
from zluda.trace.own_process import command_line
from zluda.tracefile.drain import FUNCTIONS_FILE, META_FILE, OPTIONS_FILE
from zluda.tracefile.ring import Control, remove_rings, ring_bytes_for, rings_directory
from zluda.tracefile.schema import check_replaceable


class Recording:
    """Starts when the process is found to have a CUDA driver; ends when the process does."""

    def __init__(
        self,
        trace: Path,
        pid: int,
        exports: list[str],
        *,
        ring_bytes: int | None,
        timing: str,
        meta: Mapping[str, Any],
        choice: Choice,
        assembled: Path | None,
    ) -> None:
        """Raises :class:`zluda.Error` where the trace cannot be written."""
        self.trace, self.pid = trace, pid
        self._variables = meta.get("environment", {})
        self.rows = spec.functions(exports)
        self.directory = rings_directory(trace)
        self._options: dict[str, Any] = {"budget": choice.budget, "redact": choice.redact}
        if assembled is not None:
            self._options["assembled"] = str(assembled)
        meta = {**meta, "pid": pid}
        self._prepare(meta, ring_bytes, choice, timed=timing == "events")
        self.send(meta=meta)

    def _prepare(
        self, meta: Mapping[str, Any], ring_bytes: int | None, choice: Choice, *, timed: bool
    ) -> None:
        try:
            self._clear()
            self.directory.mkdir()
            (self.directory / FUNCTIONS_FILE).write_text(json.dumps(self.rows))
            (self.directory / META_FILE).write_text(json.dumps(meta))
            (self.directory / OPTIONS_FILE).write_text(json.dumps(self._options))
            size = ring_bytes or ring_bytes_for(self.directory, chooses=choice.selective)
            self._control = Control.create(self.directory, size)
        except OSError as error:
            raise Error(f"{self.trace}: cannot be written: {error.strerror}") from None
        self._control["APP_PID"] = self.pid
        self._control["TIMING"] = int(timed)
        self._control["HEARTBEAT_NS"] = time.monotonic_ns()
        descriptor = self._control.fileno()
        self._drain = subprocess.Popen(
            command_line("zluda.trace.drain_process", str(self.trace), str(descriptor)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **self._variables},  # as the application: where it finds PTX, the drain does
            pass_fds=(descriptor,),
            start_new_session=True,  # the terminal's interrupt is for the application
        )
        self._control["RECORDER_PID"] = self._drain.pid
        # The lock is the recorder process's now: it must end with that process.
        self._control.close()

    def _clear(self) -> None:
        """An older trace of this name gives way; another file, and rings of a recorder that is still at
        work, do not.
        """
        check_replaceable(self.trace)
        if self.directory.exists():
            try:
                control = Control(self.directory)
            except (FileNotFoundError, Error):
                pass  # never became a recording
            else:
                busy = not control.lock()
                control.close()
                if busy:
                    raise Error(f"{self.trace}: another recorder is writing it")
            remove_rings(self.directory)
        for suffix in ("", "-wal", "-shm", "-journal"):
            Path(f"{self.trace}{suffix}").unlink(missing_ok=True)

    def send(self, **command: Any) -> None:
        """A command to the recorder process; one that has died is noticed in :meth:`finish`."""
        assert self._drain.stdin is not None
        try:
            self._drain.stdin.write(json.dumps(command).encode() + b"\n")
            self._drain.stdin.flush()
        except BrokenPipeError:
            return

    def finish(self) -> dict[str, Any]:
        """After the process has ended: wait for the rest to be written. What was recorded; ``recovered``
        where the recorder was killed, ``error`` where it could not go on.
        """
        self.send(finish=True)
        output, _ = self._drain.communicate()
        lines = output.decode().splitlines()
        if not lines:
            # Killed: what it committed, and what the rings hold, is all there.
            from zluda.tracefile.recovery import merge_rings

            merge_rings(self.trace)
            return {"recovered": True}
        summary: dict[str, Any] = json.loads(lines[-1])
        return summary
