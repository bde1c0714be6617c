"""What AMD's HIP runtime finds on this machine, asked in a process of its own.

The runtime starts threads and maps gigabytes, and a broken installation may end the process: neither belongs
in the process that only wants to know. ``python -m zluda.device.amd.hip.probe`` prints the answer.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from dataclasses import field
from importlib import metadata
from pathlib import Path
from typing import Any

from zluda.errors import Error
from zluda.records import dataclass

# What a GPU's kernel driver shows itself by: amdkfd, and dxgkrnl on WSL.
KERNEL_INTERFACES = ("/dev/kfd", "/dev/dxg")
_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Gpu:
    """``product`` is AMD's name, ``target`` the target id that code is built for."""

    name: str
    product: str
    target: str


@dataclass(frozen=True, slots=True)
class Found:
    """What answers. ``version`` is the HIP runtime's, ``binding`` hip-python's; empty where there is none.

    ``error`` says why no GPU answers, ``errors`` why a device cannot be used.
    """

    version: str = ""
    binding: str = ""
    gpus: tuple[Gpu, ...] = ()
    error: str = ""
    errors: dict[str, str] = field(default_factory=dict)


def binding_version() -> str:
    """hip-python's version, "" where it is not installed."""
    try:
        return metadata.version("hip-python")
    except metadata.PackageNotFoundError:
        return ""


def gpu_answers() -> bool:
    """Whether ``hip:0`` can be used. Costs nothing where no kernel driver or no hip-python is there."""
    if not any(os.path.exists(path) for path in KERNEL_INTERFACES):
        return False
    return importlib.util.find_spec("hip") is not None and bool(probe().gpus)


def probe() -> Found:
    """Ask the runtime, in a process of its own."""
    root = str(Path(__file__).resolve().parents[4])
    paths = [root, os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in paths if p)}
    command = [sys.executable, "-P", "-m", "zluda.device.amd.hip.probe"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, env=environment)
    except subprocess.TimeoutExpired:
        return Found(binding=binding_version(), error=f"HIP did not answer in {_SECONDS:g} s")
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        last = (done.stderr.strip() or f"ended with status {done.returncode}").splitlines()[-1]
        return Found(binding=binding_version(), error=f"HIP ended the process that asked it: {last}")
    answer = json.loads(lines[-1])
    return Found(**{**answer, "gpus": tuple(Gpu(**gpu) for gpu in answer["gpus"])})


def answer() -> dict[str, Any]:
    """:class:`Found` as a JSON object, asked in this process."""
    from zluda.device.amd.hip.runtime import load

    found: dict[str, Any] = {
        "version": "",
        "binding": binding_version(),
        "gpus": [],
        "error": "",
        "errors": {},
    }
    try:
        runtime = load()
        found["version"] = runtime.version_text
        error, count = runtime.result("hipGetDeviceCount")
        if error:
            found["error"] = runtime.describe(error)
        for ordinal in range(0 if error else int(count)):
            name = f"hip:{ordinal}"
            try:
                target = runtime.architecture(ordinal)
                found["gpus"].append({"name": name, "product": runtime.product(ordinal), "target": target})
            except Error as failure:
                found["errors"][name] = str(failure)
    except Error as failure:
        found["error"] = str(failure)
    return found


if __name__ == "__main__":
    print(json.dumps(answer()), flush=True)
    os._exit(0)  # the runtime's threads are not waited for
