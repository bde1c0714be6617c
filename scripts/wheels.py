"""Wheels of public packages, fetched by pip and unpacked without being installed."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from collections.abc import Iterable, Iterator
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
WHEELS = ROOT / "build" / "wheels"


def fetch(requirement: str, folder: Path = WHEELS, *, python: str = "") -> Path:
    """The wheel of ``requirement`` (``name==version``) in ``folder``; downloaded where it is not there.

    ``python`` (``3.13``) asks for another interpreter's wheel. Raises CalledProcessError as pip fails.
    """
    name = requirement.split("==")[0].replace("-", "_").lower()
    version = requirement.partition("==")[2]
    found = sorted(p for p in folder.glob("*.whl") if p.name.lower().startswith(f"{name}-{version}"))
    if not found:
        folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:"]
        if python:
            command += ["--python-version", python]
        subprocess.run([*command, "-d", str(folder), requirement], check=True)
        found = sorted(p for p in folder.glob("*.whl") if p.name.lower().startswith(f"{name}-{version}"))
    return found[-1]


def members(wheel: Path, patterns: Iterable[str]) -> Iterator[tuple[str, bytes]]:
    """(path in the wheel, contents) of the files that one of the patterns fits."""
    wanted = tuple(patterns)
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if any(fnmatch(name, pattern) for pattern in wanted):
                yield name, archive.read(name)
