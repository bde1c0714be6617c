"""What the checks look at: files, environment, user, installed packages, the HIP runtime."""

from __future__ import annotations

import grp
import os
import pwd
import shutil
from collections.abc import Callable, Mapping
from dataclasses import field
from importlib import metadata
from pathlib import Path

from zluda.device.amd.hip.probe import Found, probe
from zluda.records import dataclass


def _package_version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def _group_names() -> frozenset[str]:
    names = set()
    for number in {os.getgid(), *os.getgroups()}:
        try:
            names.add(grp.getgrgid(number).gr_name)
        except KeyError:  # a number without a name
            continue
    return frozenset(names)


def _user_name() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


@dataclass(frozen=True, slots=True)
class Machine:
    """This machine; a test gives another. ``root`` is where ``/dev``, ``/sys`` and ``/proc`` are."""

    root: Path = Path("/")
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)
    groups: frozenset[str] = field(default_factory=_group_names)
    user: str = field(default_factory=_user_name)
    version_of: Callable[[str], str] = _package_version  # of a Python package; "" where it is not installed
    which: Callable[[str], str | None] = shutil.which
    hip: Callable[[], Found] = probe
    accessible: Callable[[Path, int], bool] = os.access

    def path(self, name: str) -> Path:
        """A file of this machine: ``path("dev/kfd")``."""
        return self.root / name

    def text(self, path: Path) -> str:
        """A file's contents without the white space around; empty where it cannot be read."""
        try:
            return path.read_text(errors="replace").strip()
        except OSError:
            return ""

    def usable(self, path: Path) -> bool:
        """Whether this user may read and write it."""
        return self.accessible(path, os.R_OK | os.W_OK)

    def group_of(self, path: Path) -> str:
        """The name of the group that owns a file; empty where it has none."""
        try:
            return path.group()
        except (OSError, KeyError):
            return ""
