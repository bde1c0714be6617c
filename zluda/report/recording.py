"""What is worth knowing of a recording, from a trace's `meta`: used by the page and by ``zluda info``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any


def facts(meta: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(name, value) pairs of what the trace says about its recording, in reading order."""
    found = []
    for key, name, text in _FACTS:
        value = meta.get(key)
        if value not in (None, "", []):
            found.append((name, text(value)))
    return found


def _command(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def _capability(value: Any) -> str:
    return ".".join(map(str, value)) if isinstance(value, list) else str(value)


def _cuda_version(value: Any) -> str:
    """13020 is 13.2 (CUDA driver API, cuDriverGetVersion)."""
    return f"{value // 1000}.{value % 1000 // 10}" if isinstance(value, int) else str(value)


def _time(value: Any) -> str:
    return str(value).replace("T", " ").replace("+00:00", " UTC").replace("Z", " UTC")


def _parts(value: Any) -> str:
    return ", ".join(str(part).replace("-", " ") for part in value) if isinstance(value, list) else str(value)


def _left_out(value: Any) -> str:
    return (
        f"{len(value)} functions that only ask (--queries records them)"
        if isinstance(value, list)
        else str(value)
    )


_FACTS: tuple[tuple[str, str, Callable[[Any], str]], ...] = (
    ("command", "Program", _command),
    ("gpu", "Recorded on", str),
    ("compute_capability", "Compute capability", _capability),
    ("driver_version", "CUDA driver", _cuda_version),
    ("start", "Recorded at", _time),
    ("host", "Host", str),
    ("capture", "Captured", str),
    ("left_out", "Left out", _left_out),
    ("stripped", "Stripped of", _parts),
    ("zluda", "Recorder", str),
    ("replay_of", "Replay of", str),
)
