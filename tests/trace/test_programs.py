"""What a program's file says of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from zluda.trace.programs import loads_libraries

# A program without a C library: it ends at once.
START = 'void _start(void) { __asm__ volatile("mov $60, %eax; xor %edi, %edi; syscall"); }\n'


def test_a_static_program_loads_no_libraries(tmp_path: Path) -> None:
    source, program = tmp_path / "a.c", tmp_path / "a"
    source.write_text(START)
    subprocess.run(["cc", "-nostdlib", "-static", source, "-o", program], check=True)
    assert subprocess.run([program], check=False).returncode == 0
    assert not loads_libraries(program)


def test_this_interpreter_does() -> None:
    assert loads_libraries(Path(sys.executable).resolve())


def test_what_cannot_be_told_may_load_libraries(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("#!/bin/sh\n")
    assert loads_libraries(script)
    assert loads_libraries(tmp_path / "none")
    (tmp_path / "cut").write_bytes(b"\x7fELF\x02\x01")
    assert loads_libraries(tmp_path / "cut")
