"""AMD's own HIP runtime over the stand-in HSA runtime, whose GPU is the emulator.

Needs Debian's ``libamdhip64-5`` (HIP 5.2), ``libhsa-runtime-dev`` (headers), ``libllvm15``, a C compiler and
hip-python; ``scripts/ci_packages.sh`` installs the packages. Where one is missing these tests are skipped.
"""

from __future__ import annotations

import functools
import glob
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zluda.compiler.amd import disassembler

SOURCES = Path(__file__).parent / "standin"
TARGETS = {"gfx1030": "gfx1030", "gfx90a": "gfx90a:sramecc+:xnack-"}
_HIP = "/usr/lib/*/libamdhip64.so.5"
_FLAGS = ("-O1", "-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter", "-shared", "-fPIC")


@functools.cache
def missing() -> str:
    """What these tests need and this machine lacks; empty where nothing does."""
    needs = {
        "libamdhip64-5": bool(glob.glob(_HIP)),
        "libhsa-runtime-dev": os.path.exists("/usr/include/hsa/hsa.h"),
        "libllvm15": any(version == 15 for version, _ in disassembler.candidates()),
        "a C compiler": shutil.which("cc") is not None,
        "hip-python": importlib.util.find_spec("hip") is not None,
    }
    return ", ".join(name for name, there in needs.items() if not there)


@dataclass(frozen=True)
class StandIn:
    """The built stand-in, in a directory that the loader looks into first."""

    directory: Path

    def environment(self, target: str) -> dict[str, str]:
        """What a process needs to find an emulated GPU of this target."""
        return {
            "LD_LIBRARY_PATH": str(self.directory),
            "PYTHONPATH": str(SOURCES),
            "STANDIN_HSA_TARGET": TARGETS.get(target, target),
        }

    def run(
        self, target: str, *command: str | Path, timeout: float = 1200
    ) -> subprocess.CompletedProcess[str]:
        """Run Python with these arguments where there is such a GPU; the time is for a hang alone."""
        environment = {**os.environ, **self.environment(target)}
        return subprocess.run(
            [sys.executable, *map(str, command)],
            capture_output=True,
            text=True,
            timeout=timeout,
            env=environment,
            check=False,
        )

    def script(self, target: str, text: str) -> Any:
        """What a script prints last, as JSON."""
        done = self.run(target, "-c", text)
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout.splitlines()[-1])


def build(directory: Path) -> StandIn:
    """Compile the stand-in into ``directory``."""
    library = directory / "libhsa-runtime64.so.1"
    script = f"-Wl,--version-script={SOURCES / 'exports.map'}"
    link = (f"-Wl,-soname,{library.name}", script, "-lpthread")
    sources = sorted(map(str, SOURCES.glob("*.c")))
    subprocess.run(["cc", *_FLAGS, *sources, "-o", str(library), *link], check=True)
    (directory / "libamdhip64.so").symlink_to(glob.glob(_HIP)[0])  # the name that hip-python looks for
    return StandIn(directory)
