#!/usr/bin/env python3
"""Compile the device services' CUDA sources to the PTX that programs are given (``make services``).

``zluda/compiler/services/*.cu`` → ``*.ptx`` beside them, by nvcc. The sources write ``__zluda_vprintf`` where
PTX says ``vprintf``, since nvcc declares the real names itself; what they include is made of :data:`TABLES`.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

from zluda.numerics.texture.tables import EXP2, LOG2, SRGB, srgb_limits

SERVICES = Path(__file__).resolve().parent.parent / "zluda" / "compiler" / "services"
FLAGS = ("-rdc=true", "-std=c++17", "-arch=compute_75", "-ptx")
TABLES = {
    "log2.inc": LOG2,
    "exp2.inc": EXP2,
    "srgb.inc": SRGB,
    "srgb_limits.inc": srgb_limits(),
}
RENAMED = ("vprintf", "__assertfail", "malloc", "free", "cudaGraphSetConditional")


def build(source: Path) -> str:
    """The PTX of one source: what it defines, without the header of a module of its own."""
    with tempfile.TemporaryDirectory() as directory:
        made = Path(directory) / "made.ptx"
        for name, table in TABLES.items():
            (Path(directory) / name).write_text(", ".join(map(str, table)))
        subprocess.run(["nvcc", *FLAGS, "-I", directory, "-o", str(made), str(source)], check=True)
        text = made.read_text()
    for name in RENAMED:
        text = re.sub(rf"\b__zluda_{name.lstrip('_')}\b", name, text)
    text = re.sub(r"^\s*//.*\n", "", text, flags=re.MULTILINE)
    text = re.sub(r"^\.(version|target|address_size) .*\n", "", text, flags=re.MULTILINE)
    text = re.sub(r"\n{2,}", "\n", text).lstrip()
    return f"// Made of {source.name} by `make services`.\n{text}"


def main() -> int:
    """Build all; with ``--check`` say which are not what their source makes."""
    stale = []
    for source in sorted(SERVICES.glob("*.cu")):
        target, text = source.with_suffix(".ptx"), build(source)
        if "--check" not in sys.argv:
            target.write_text(text)
        elif target.read_text() != text:
            stale.append(target.name)
    if stale:
        print(f"not what their sources make: {', '.join(stale)}; run make services")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
