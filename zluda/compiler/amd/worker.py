"""LLVM in a process of its own: a fatal error of its back end ends that process, not this one.

``python -m zluda.compiler.amd.worker`` reads a line of JSON (the options) and IR text, and writes the result.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys

from zluda.compiler.amd.llvm import Options, emit
from zluda.errors import Error


def emit_apart(text: str, options: Options) -> bytes:
    """:func:`~zluda.compiler.amd.llvm.emit` in a fresh process. Raises Error, also where LLVM aborts."""
    request = json.dumps(dataclasses.asdict(options)) + "\n" + text
    command = [sys.executable, "-P", "-m", "zluda.compiler.amd.worker"]
    done = subprocess.run(command, input=request.encode(), capture_output=True, check=False)
    if done.returncode:
        lines = done.stderr.decode(errors="replace").strip().splitlines() or ["no message"]
        reason = next(
            (line for line in lines if line.startswith("LLVM ERROR") or "Assertion" in line), lines[-1]
        )
        raise Error(f"LLVM failed for {options.target} (status {done.returncode}): {reason}")
    return done.stdout


def main() -> None:
    """Serve one request."""
    header, _, text = sys.stdin.buffer.read().decode().partition("\n")
    sys.stdout.buffer.write(emit(text, Options(**json.loads(header))))


if __name__ == "__main__":
    main()
