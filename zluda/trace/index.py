"""The index of a run that recorded several processes: which trace is whose."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zluda.trace.recording import Recording


def index_path(output: Path) -> Path:
    """Where the index of a run stands whose own trace is ``output``."""
    return output.with_name(f"{output.stem}.index.json")


def write_index(
    output: Path,
    main: int,
    command: Sequence[str],
    finished: Sequence[tuple[Recording, Mapping[str, Any]]],
    processes: Mapping[int, Mapping[str, Any]],
) -> Path | None:
    """Write it where more than the program itself (process ``main``) was recorded; an older one goes.

    ``finished`` are the recordings with what they counted, ``processes`` what is known of children. One
    object: ``command``, and ``processes``, each with ``pid``, ``parent``, ``command`` (null: the parent's),
    ``trace`` (beside the index), ``calls``, ``launches`` (null where the recorder was killed).
    """
    path = index_path(output)
    path.unlink(missing_ok=True)
    if all(recording.pid == main for recording, _ in finished):
        return None
    rows = [
        {
            "pid": recording.pid,
            "parent": processes.get(recording.pid, {}).get("parent"),
            "command": list(command)
            if recording.pid == main
            else processes.get(recording.pid, {}).get("command"),
            "trace": recording.trace.name,
            "calls": summary.get("calls"),
            "launches": summary.get("launches"),
        }
        for recording, summary in finished
    ]
    rows.sort(key=lambda row: (row["pid"] != main, str(row["trace"])))
    path.write_text(json.dumps({"command": list(command), "processes": rows}, indent=1) + "\n")
    return path
