"""PTX of modules that were handed over as machine code, and what presets set."""

from __future__ import annotations

import getpass
import json
import os
from pathlib import Path

import pytest
from container_writer import Entry, fatbin

from zluda.trace import presets
from zluda.trace.images import read_module
from zluda.trace.provenance import PtxSources
from zluda.trace.triton import signatures
from zluda.tracefile import SIGNATURES, Fidelity, ModuleKind

CUBIN = (Path(__file__).parents[1] / "ptx" / "data" / "variables_sm90.cubin").read_bytes()
PTX = b".version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry use() { ret; }\n"


def triton(tmp_path: Path, cubin: bytes = CUBIN, text: bytes | None = PTX) -> dict[str, str]:
    directory = tmp_path / "cache" / "ABCDEF"
    directory.mkdir(parents=True)
    (directory / "k.cubin").write_bytes(cubin)
    if text is not None:
        (directory / "k.ptx").write_bytes(text)
    return {"TRITON_CACHE_DIR": str(tmp_path / "cache"), "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "none")}


def test_the_ptx_beside_the_same_machine_code_is_what_ran(tmp_path: Path) -> None:
    contents = read_module([CUBIN], 90, PtxSources(triton(tmp_path)))
    (image,) = contents.found
    assert (image.kind, image.data, image.architecture) == (ModuleKind.PTX, PTX, "compute_90a")
    assert "ABCDEF" in image.origin
    assert contents.fidelity is Fidelity.SAME_PTX
    assert "counter" in contents.globals  # of the machine code: that is what has addresses


def test_inductors_cache_is_where_temporary_files_are(tmp_path: Path) -> None:
    cache = triton(tmp_path)["TRITON_CACHE_DIR"]
    Path(cache).rename(tmp_path / f"torchinductor_{getpass.getuser()}")
    sources = PtxSources({"TMPDIR": str(tmp_path), "HOME": str(tmp_path / "none")})
    assert read_module([CUBIN], 90, sources).fidelity is Fidelity.SAME_PTX


@pytest.mark.parametrize("text", [None, PTX])
def test_other_machine_code_of_the_same_length_is_not_it(tmp_path: Path, text: bytes | None) -> None:
    sources = PtxSources(triton(tmp_path, CUBIN[:-1] + b"?", text))
    assert read_module([CUBIN], 90, sources).found == []


def test_a_cache_that_kept_no_ptx_gives_none(tmp_path: Path) -> None:
    contents = read_module([CUBIN], 90, PtxSources(triton(tmp_path, text=None)))
    assert (contents.found, contents.fidelity) == ([], Fidelity.UNKNOWN)


def test_what_was_compiled_since_is_found(tmp_path: Path) -> None:
    sources = PtxSources({"TRITON_CACHE_DIR": str(tmp_path / "cache"), "TORCHINDUCTOR_CACHE_DIR": "/none"})
    assert sources.find(CUBIN) is None
    triton(tmp_path)
    found = sources.find(CUBIN)
    assert found is not None and found.text == PTX


@pytest.mark.parametrize(("forced", "fidelity"), [("1", Fidelity.SAME_PTX), ("0", Fidelity.SIBLING)])
def test_a_forced_compilation_makes_the_ptx_what_ran(forced: str, fidelity: Fidelity) -> None:
    data = fatbin(Entry(CUBIN, 90, kind=2), Entry(PTX.replace(b"sm_90a", b"sm_90"), 90, kind=1))
    sources = PtxSources({**presets.PTX_JIT, next(iter(presets.PTX_JIT)): forced})
    assert read_module([data], 90, sources).fidelity is fidelity


def dump(tmp_path: Path, *texts: bytes) -> PtxSources:
    for number, text in enumerate(texts):
        (tmp_path / f"module_{number}.ptx").write_bytes(text)
    return PtxSources({"XLA_FLAGS": f"--xla_a=1 --xla_dump_to={tmp_path} --xla_b", "HOME": str(tmp_path)})


def test_the_only_text_with_its_kernels_is_a_sibling(tmp_path: Path) -> None:
    name = kernel_name()
    text = PTX.replace(b"use", name)
    found = dump(tmp_path, text, PTX.replace(b"use", b"another")).find(CUBIN)
    assert found is not None
    assert (found.text, found.fidelity) == (text, Fidelity.SIBLING)


def test_of_two_texts_with_its_kernels_none_is_taken(tmp_path: Path) -> None:
    text = PTX.replace(b"use", kernel_name())
    assert dump(tmp_path, text, text + b"// another program").find(CUBIN) is None


def kernel_name() -> bytes:
    from zluda.ptx import elf

    (name,) = [s.name for s in elf.sections(CUBIN) if s.name.startswith(".text.")]
    return name.removeprefix(".text.").encode()


def test_presets_never_change_what_the_user_set(tmp_path: Path) -> None:
    trace = tmp_path / "t.bin"
    assert presets.variables("cupy", {}, trace) == {"CUPY_COMPILE_WITH_PTX": "1"}
    assert presets.variables("cupy", {"CUPY_COMPILE_WITH_PTX": "0"}, trace) == {}
    flags = presets.variables("jax", {"XLA_FLAGS": "--xla_a=1"}, trace)["XLA_FLAGS"]
    assert flags == f"--xla_a=1 --xla_dump_to={trace}.xla"
    own = {"XLA_FLAGS": "--xla_dump_to=/x", "XLA_PYTHON_CLIENT_PREALLOCATE": "true"}
    assert presets.variables("jax", own, trace) == {}


@pytest.mark.parametrize("preset", presets.PRESETS)
def test_a_preset_says_in_a_line_what_it_set(preset: str, tmp_path: Path) -> None:
    line = presets.explained(preset, presets.variables(preset, {}, tmp_path / "t.bin"))
    assert "\n" not in line and preset in line
    assert ("=" in line) or "sets nothing: " in line


def test_the_program_and_its_recorder_get_what_a_preset_sets(tmp_path: Path) -> None:
    """A stand-in for the program: what the recording passes on."""
    from zluda.trace.application import Application

    said = tmp_path / "said"
    application = Application(
        ["/bin/sh", "-c", f'printf %s "$ZLUDA_TEST_PRESET" > {said}'], {"ZLUDA_TEST_PRESET": "on"}
    )
    application.release()
    assert application.wait() == 0
    assert said.read_text() == "on"
    assert "ZLUDA_TEST_PRESET" not in os.environ


TTIR = """#loc = loc("/home/ada/add.py":5:0)
module {
  tt.func public @add(%x: !tt.ptr<f32> {tt.divisibility = 16 : i32} loc("x"("/home/ada/add.py":5:0)),
      %arg1: !tt.ptr<bf16, 1> loc(#loc), %n: i32 {tt.divisibility = 16 : i32} loc(#loc)) attributes {} {
    tt.return
  }
  tt.func private @other(%a: !tt.ptr<f16>) { tt.return }
}
"""


def test_tritons_own_form_names_the_parameters_types(tmp_path: Path) -> None:
    environment = triton(tmp_path)
    (tmp_path / "cache" / "ABCDEF" / "k.ttir").write_text(TTIR)
    _, told = read_module([CUBIN], 90, PtxSources(environment)).found
    assert (told.kind, told.architecture) == (ModuleKind.OTHER, SIGNATURES)
    assert json.loads(told.data) == {"add": ["*f32", "*bf16", "i32"]}  # and no path of whose it is


@pytest.mark.parametrize("text", ["", "nothing", "tt.func public @k(", 'tt.func public @k("'])
def test_texts_that_are_not_tritons_tell_nothing_wrong(text: str) -> None:
    assert all(not types for types in signatures(text).values())
