"""A copy of zluda with a fault in it, for tests of what finds faults."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import zluda

_SOURCE = Path(zluda.__file__).parent


class Faulty:
    """The package at ``root``, by links to this one, but for the files that :meth:`patch` changes."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir(parents=True)
        (root / "zluda").symlink_to(_SOURCE)
        self._own(root / "zluda" / "runner" / "spawn.py")  # starts runners from where it lies

    def patch(self, file: str, changes: Mapping[str, str]) -> Faulty:
        """Exchange texts of a file of the package, each of which must be there once."""
        path = self.root / "zluda" / file
        self._own(path)
        text = path.read_text()
        for old, new in changes.items():
            assert text.count(old) == 1, f"{file}: {text.count(old)} times {old!r}"
            text = text.replace(old, new)
        path.write_text(text)
        return self

    def _own(self, path: Path) -> None:
        """Have a file of its own in place of a link, or of one to a directory above it."""
        for one in reversed((path, *path.parents)):
            if one.is_relative_to(self.root) and one.is_symlink():
                target = one.resolve()
                one.unlink()
                if target.is_dir():
                    one.mkdir()
                    for inside in target.iterdir():
                        if inside.name != "__pycache__":
                            (one / inside.name).symlink_to(inside)
                else:
                    one.write_bytes(target.read_bytes())

    def run(self, script: str, *arguments: str, timeout: float = 300) -> object:
        """What a script that imports this copy prints, as JSON: its last line."""
        environment = {**os.environ, "PYTHONPATH": str(self.root), "ZLUDA_CACHE_POLICY": "off"}
        environment.pop("PYTHONPYCACHEPREFIX", None)  # bytecode of what is linked to is beside it
        done = subprocess.run(
            [sys.executable, "-P", "-c", script, *arguments],
            capture_output=True,
            text=True,
            env=environment,
            timeout=timeout,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])
