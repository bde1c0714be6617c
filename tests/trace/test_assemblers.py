"""PTX of machine code that ``ptxas`` made as a child of the program."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from recorded_scenes import StandIn, run_trace

from zluda.trace.assemblers import Assembled, Work, is_assembler, work_of
from zluda.trace.images import image_reader
from zluda.tracefile import Fidelity, open_trace

CUBIN = Path(__file__).parents[1] / "ptx" / "data" / "variables_sm90.cubin"
PTX = b".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry use() { ret; }\n"

# "Assembles" the text to an ELF file of CUDA's machine that holds it.
PTXAS = r"""
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
int main (int count, char ** arguments)
{
  static char text[1 << 16];
  FILE * file = fopen (arguments[1], "r"), * made;
  size_t length = fread (text, 1, sizeof text, file);
  Elf64_Ehdr header = { .e_machine = 190, .e_ehsize = sizeof header, .e_shnum = 1 };
  Elf64_Shdr none = { 0 };
  memcpy (header.e_ident, "\177ELF\2\1\1", 7);
  header.e_shentsize = sizeof none;
  header.e_shoff = sizeof header + length;
  made = fopen (arguments[3], "w");
  fwrite (&header, 1, sizeof header, made);
  fwrite (text, 1, length, made);
  fwrite (&none, 1, sizeof none, made);
  exit (atoi (arguments[4]));  /* which writes the file's buffer */
}
"""
PROGRAM = """
import ctypes, os, subprocess, sys
driver, ptxas = ctypes.CDLL(sys.argv[1]), sys.argv[2]
assert driver.cuInit(0) == 0
os.chdir(sys.argv[3])
def assemble(number, run):
    open("k.ptx", "w").write(sys.argv[4] + f"// {number}\\n")
    assert run([ptxas, "k.ptx", "-o", "k.o", "0"]) == 0
    image = open("k.o", "rb").read()
    os.unlink("k.ptx"), os.unlink("k.o")
    module = ctypes.c_void_p()
    assert driver.cuModuleLoadData(ctypes.byref(module), image) == 0
def fork_and_exec(line):
    child = os.fork()
    if child == 0:
        os.execv(line[0], line)
    return os.waitpid(child, 0)[1]
assemble(1, subprocess.call)
assemble(2, fork_and_exec)
assert subprocess.call([ptxas, "/dev/null", "-o", "k.o", "7"]) == 7
"""


def test_what_a_child_assembled_and_deleted_has_its_ptx(
    standin: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    ptxas = tmp_path / "bin" / "ptxas"
    ptxas.parent.mkdir()
    (tmp_path / "ptxas.c").write_text(PTXAS)
    subprocess.run(["cc", "-w", tmp_path / "ptxas.c", "-o", ptxas], check=True)
    program = [sys.executable, "-c", PROGRAM, standin.driver, str(ptxas), str(tmp_path), PTX.decode()]
    recorded = run_trace(tmp_path / "trace.bin", *program, capture="calls")
    assert recorded.status == 0, recorded.errors
    assert "not recorded" not in recorded.errors
    assert not list(temporary.glob("zluda-*"))
    with open_trace(recorded.trace) as trace:
        texts = [trace.ptx(module) for module in trace.module_list]
        assert texts == [PTX + b"// %d\n" % number for number in (1, 2)]
        assert {module.images[1].origin for module in trace.module_list} == {
            "what ptxas made it of, a child process"
        }


def test_a_text_is_found_by_the_machine_code(tmp_path: Path) -> None:
    assembled = Assembled(tmp_path / "new")
    assert assembled.find(CUBIN.read_bytes()) is None
    assembled.keep(CUBIN.read_bytes(), PTX)
    reader = image_reader({"TRITON_CACHE_DIR": "/none"}, str(assembled.directory))
    contents = reader([CUBIN.read_bytes()], 90)
    assert [image.data for image in contents.found] == [PTX]
    assert contents.fidelity is Fidelity.SAME_PTX
    assert assembled.find(PTX) is None


@pytest.mark.parametrize(
    ("line", "output"),
    [
        ("-arch sm_90 -v k.ptx -o k.cubin", "k.cubin"),
        ("k.ptx --gpu-name=sm_90 --output-file=k.cubin", "k.cubin"),
        ("-arch=sm_90a k.ptx --output-file k.cubin", "k.cubin"),
        ("--opt-level 3 k.ptx", "elf.o"),
        ("-optf options k.ptx", "k v.o"),
        ("--options-file=options -O3 k.ptx -o last.o", "last.o"),
        ("k.o -o k.cubin", None),
        ("k.ptx k.ptx", None),
        ("--version", None),
        ("gone.ptx -o k.cubin", None),
        ("k.ptx -o", ""),
        ("-optf broken k.ptx", "elf.o"),
        ("-optf gone k.ptx", "elf.o"),
    ],
)
def test_what_a_command_line_asks_for(line: str, output: str | None) -> None:
    files = {"k.ptx": PTX, "k.o": b"\x7fELF", "options": b"-v\n-o 'k v.o'\n", "broken": b"-o 'k"}
    assert work_of(line.split(), files.get) == (None if output is None else Work(PTX, output))


def test_a_text_on_the_command_line() -> None:
    assert work_of(["-ias", PTX.decode(), "-o", "k.cubin"], lambda name: None) == Work(PTX, "k.cubin")


@pytest.mark.parametrize(
    ("command", "is_one"),
    [
        (["/usr/local/cuda/bin/ptxas", "k.ptx"], True),
        (["ptxas-blackwell"], True),
        (["/bin/sh", "/usr/bin/ptxas"], False),
        (["/usr/bin/ptxas.d/sh"], False),
        ([], False),
    ],
)
def test_who_is_an_assembler(command: list[str], is_one: bool) -> None:
    assert is_assembler(command) is is_one
