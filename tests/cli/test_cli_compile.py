"""`zluda compile`, `precompile` and `cache` as a user sees them."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from kernels import ADD, HEADER, LAYOUT, STORE, parameters
from trace_builder import TraceBuilder

from zluda.compiler.precompile.run import _tasks
from zluda.compiler.precompile.sources import COMPUTE_CAPABILITY, Shape, sources
from zluda.compiler.target import APART, Together
from zluda.device.cpu.attributes import ATTRIBUTES
from zluda.ptx import parse_module

HEAD = ".version 8.0\n.target sm_90\n.address_size 64\n"
UNSUPPORTED = """
.visible .entry counted(.param .u64 p)
{
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [p];
    multimem.st.relaxed.sys.global.u32 [%rd1], 3;
    ret;
}
"""
WRONG = "\n.visible .entry wrong()\n{\n    frobnicate.u32 %r1;\n}\n"
MIXED = HEAD + STORE.format(name="one", value=1) + UNSUPPORTED + WRONG + STORE.format(name="two", value=2)


class Machine:
    """A user with a cache of their own."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.environment = {
            **os.environ,
            "ZLUDA_CACHE_DIR": str(place / "cache"),
            "ZLUDA_CACHE_POLICY": "normal",
        }

    def __call__(self, *words: object, status: int = 0) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "zluda", *map(str, words)]
        result = subprocess.run(
            command, capture_output=True, text=True, env=self.environment, cwd=self.place, check=False
        )
        assert result.returncode == status, result.stdout + result.stderr
        return result

    def write(self, name: str, text: str = MIXED) -> Path:
        path = self.place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path


@pytest.fixture
def zluda(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


# --- compile -------------------------------------------------------------------------------------------


def test_a_report_goes_on_after_a_kernel_that_is_not_supported(zluda: Machine) -> None:
    result = zluda("compile", zluda.write("a.ptx"), "--target", "gfx1030", "--json", status=1)
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert [line["kernel"] for line in lines] == ["one", "counted", "wrong", "two"]
    assert lines[1]["error"] == "unsupported"
    assert "multimem.st.relaxed.sys.global.u32 (kernel counted, " in lines[1]["reason"]
    assert lines[2]["error"] == "ptx" and "a.ptx:" in lines[2]["reason"]
    assert lines[0]["vgprs"] > 0 and lines[3]["vgprs"] > 0
    text = zluda("compile", "a.ptx", "--target", "gfx1030", "--report", status=1).stdout
    assert "unsupported" in text and text.index("one on gfx1030") < text.index("two on gfx1030")


def test_none_compiled_is_another_status(zluda: Machine) -> None:
    path = zluda.write("a.ptx", HEAD + UNSUPPORTED)
    result = zluda("compile", path, "--target", "gfx1030", "--emit", "asm", status=2)
    assert result.stderr.count("\n") == 1 and "kernel counted" in result.stderr
    assert result.stdout == ""


def test_assembly_of_what_can_be_compiled_is_in_the_module_s_order(zluda: Machine) -> None:
    result = zluda("compile", zluda.write("a.ptx"), "--target", "cpu", "--emit", "llvm", status=1)
    assert result.stdout.count("define void @kernel") == 2
    assert result.stderr.count("\n") == 2
    result = zluda("compile", "a.ptx", "--target", "gfx1100", "--emit", "asm", status=1)
    assert result.stdout.index("one:") < result.stdout.index("two:")


def test_settings_of_devices_hold_for_what_is_compiled_alone(zluda: Machine) -> None:
    path = zluda.write("module.ptx", HEAD + STORE.format(name="one", value=1))
    words = ["compile", path, "--target", "gfx1100"]
    plain = zluda(*words, "--emit", "asm").stdout
    zluda.environment["ZLUDA_WAVE64_MODE"] = "1"
    assert json.loads(zluda(*words, "--json").stdout)["wave_size"] == 64
    assert ".amdhsa_wavefront_size32 0" in zluda(*words, "--emit", "asm").stdout
    assert json.loads(zluda(*words, "--wave", "32", "--json").stdout)["wave_size"] == 32
    zluda.environment |= {"ZLUDA_WAVE64_MODE": "0", "ZLUDA_OPTIMIZATION_LEVEL": "0"}
    assert zluda(*words, "--emit", "asm").stdout != plain


def test_several_code_objects_go_into_a_directory(zluda: Machine) -> None:
    path = zluda.write("a.ptx")
    result = zluda("compile", path, "--target", "gfx1030", "--emit", "hsaco", status=2)
    assert "give a directory with -o" in result.stderr
    zluda("compile", path, "--target", "gfx1030", "--emit", "hsaco", "-o", "out", status=1)
    files = {f.name: f.read_bytes() for f in (zluda.place / "out").iterdir()}
    assert sorted(files) == ["one.hsaco", "two.hsaco"]
    assert all(data[:4] == b"\x7fELF" for data in files.values())
    zluda("compile", path, "--target", "gfx1030", "--emit", "hsaco", "--kernel", "two", "-o", "two.hsaco")
    assert (zluda.place / "two.hsaco").read_bytes() == files["two.hsaco"]


def test_kernels_whose_names_are_longer_than_file_names(zluda: Machine) -> None:
    names = ["_Z" + "a" * 300 + end for end in "xy"]
    path = zluda.write("a.ptx", HEAD + "".join(STORE.format(name=name, value=1) for name in names))
    zluda("compile", path, "--target", "gfx1030", "--emit", "obj", "-o", "out")
    files = [f.name for f in (zluda.place / "out").iterdir()]
    assert len(files) == 2 and all(f.startswith("_Zaaa") and f.endswith(".o") for f in files)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--target", "gfx9999"], "gfx9999: no such AMD target"),
        (["--target", "cpu", "--emit", "hsaco", "-o", "x"], "--emit hsaco"),
        (["--target", "cpu", "--report"], "--report"),
        (["--target", "gfx90a", "--wave", "32"], "--wave 32 (target gfx90a; expected 64)"),
        (["--target", "gfx1030", "--kernel", "three"], "has no kernel three; it has one, counted"),
        (["--target", "cpu", "--block", "0"], "--block 0: expected X"),
        (["--target", "cpu", "--block", "32,32,2"], "--block 32,32,2: a block has at most 1024 threads"),
    ],
)
def test_what_cannot_be_asked_is_said_in_a_line(zluda: Machine, words: list[str], message: str) -> None:
    result = zluda("compile", zluda.write("a.ptx"), *words, status=2)
    assert message in result.stderr and result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "odd:0:0: neither PTX text"),
        (b"\x89\xff" * 9, "odd:0:0: neither PTX text"),
        (b"SQLite format 3\0", "odd is a trace, no PTX; zluda precompile"),
    ],
)
def test_a_file_without_ptx_is_named(zluda: Machine, data: bytes, message: str) -> None:
    (zluda.place / "odd").write_bytes(data)
    assert message in zluda("compile", "odd", "--target", "cpu", status=2).stderr


# --- precompile ----------------------------------------------------------------------------------------


def test_precompile_tells_of_each_module_and_goes_on(zluda: Machine) -> None:
    zluda.write("tree/a.ptx")
    zluda.write("tree/deep/b.ptx", "// a comment first\n" + HEAD + STORE.format(name="three", value=3))
    zluda.write("tree/notes.txt", "the .version directive")
    zluda.write("tree/source.cu", '// .version 8.0\nint x; asm(".version");')
    (zluda.place / "tree/binary").write_bytes(b"\x7fELF" + bytes(60))
    result = zluda("precompile", "tree", "--target", "gfx1030", "--target", "cpu", "--json", status=1)
    found = {line["module"]: line for line in map(json.loads, result.stdout.splitlines())}
    assert sorted(found) == ["tree/a.ptx", "tree/binary", "tree/deep/b.ptx"]
    assert found["tree/binary"]["problem"]
    kernels = [(k["kernel"], k["target"], k["status"]) for k in found["tree/a.ptx"]["kernels"]]
    assert kernels == [
        ("counted", "cpu", "unsupported"),
        ("counted", "gfx1030", "unsupported"),
        ("one", "cpu", "compiled"),
        ("one", "gfx1030", "compiled"),
        ("two", "cpu", "compiled"),
        ("two", "gfx1030", "compiled"),
        ("wrong", "cpu", "ptx"),
        ("wrong", "gfx1030", "ptx"),
    ]
    again = zluda("precompile", "tree/deep", "--target", "gfx1030")
    assert "1 of 1 kernels are there" in again.stdout
    table = zluda("precompile", "tree", status=1).stdout
    assert "multimem.st" in table and "tree/deep/b.ptx" in table


def test_precompile_of_a_trace_serves_its_replay(zluda: Machine) -> None:
    trace = Path(__file__).parents[2] / "corpus/saxpy/trace.bin"
    done = json.loads(zluda("precompile", trace, "--target", "cpu", "--json").stdout)
    assert len(done["kernels"]) >= 2 and {k["status"] for k in done["kernels"]} == {"compiled"}
    zluda("replay", trace, "--device", "cpu")
    names = [file.suffix for file in (zluda.place / "cache/kernels").iterdir()]
    assert ".code" in names and ".confined" not in names  # the runner had nothing to compile


CLUSTERED = """
.visible .entry {name}(.param .u64 p) .reqntid 64 {directive}
{{
    .reg .b32 %r;
    .reg .b64 %p;
    ld.param.u64 %p, [p];
    mov.u32 %r, %cluster_nctarank;
    st.global.u32 [%p], %r;
    ret;
}}
"""


def test_precompile_serves_launches_in_clusters(zluda: Machine) -> None:
    text = HEAD + CLUSTERED.format(name="pairs", directive=".reqnctapercluster 2, 1, 1")
    path = zluda.write("a.ptx", text + CLUSTERED.format(name="alone", directive=""))
    done = json.loads(zluda("precompile", path, "-t", "cpu", "-t", "gfx1030", "--json").stdout)
    found = [(k["kernel"], k["target"], k["cluster"]) for k in done["kernels"]]
    assert found == [(name, target, shape) for name, shape in (("alone", None), ("pairs", [2, 1, 1]))
                     for target in ("cpu", "gfx1030")]  # fmt: skip
    script = (
        "import numpy, zluda, zluda.compiler\n"
        "zluda.compiler._cpu = zluda.compiler._amd = None  # all is there\n"
        "for name in ('cpu', 'gfx1030'):\n"
        "    with zluda.open_device(name, numerics='nvidia' if name == 'cpu' else 'native') as device:\n"
        "        x = device.array(numpy.zeros(1, numpy.uint32))\n"
        "        module = device.load_module(open('a.ptx').read())\n"
        "        module.kernel('pairs').launch(grid=2, block=64, args=[x])\n"
        "        print(x.numpy()[0])\n"
    )
    command = [sys.executable, "-c", script]
    run = subprocess.run(
        command, capture_output=True, text=True, env=zluda.environment, cwd=zluda.place, check=False
    )
    assert run.stdout.split() == ["2", "2"], run.stderr


def test_a_traces_launches_say_how_their_blocks_run_together(tmp_path: Path) -> None:
    def attribute(number: int, *words: int) -> bytes:
        return struct.pack("<I4x64s", number, struct.pack(f"<{len(words)}I", *words))

    path = tmp_path / "trace.bin"
    with TraceBuilder(path) as record:
        record.start()
        kernel = record.function(record.module(HEADER + ADD), "add", LAYOUT)
        x = record.allocate(64)
        packed = parameters(x, x, 4)
        record.launch(kernel, packed)
        record.launch(
            kernel, packed, grid=(4, 1, 1), entry="cuLaunchKernelEx", attributes=attribute(4, 4, 1, 1)
        )
        record.launch(kernel, packed, entry="cuLaunchKernelEx", attributes=attribute(1, 9) + attribute(2, 1))
        record.launch(kernel, packed, block=(64, 1, 1), entry="cuLaunchCooperativeKernel")
    (source,) = sources(path)
    assert source.launched is not None
    block, together, pairs = (32, 1, 1), Together(None, True), Together((4, 1, 1))
    shapes = (Shape(block), Shape(block, pairs), Shape(block, together), Shape((64, 1, 1), together))
    assert source.launched["add"] == shapes
    module = parse_module(source.text)
    told = [(t.target, t.shape) for t in _tasks(0, module, source, {"cpu": "", "gfx1030": ""}, (), False)]
    assert [shape for target, shape in told if target == "cpu"] == [
        Shape(block),
        shapes[1],
        Shape((64, 1, 1)),
    ]
    assert [shape.together for target, shape in told if target != "cpu"] == [APART, pairs, together]


def test_precompile_without_anything_to_read(zluda: Machine) -> None:
    (zluda.place / "empty").mkdir()
    assert "no PTX" in zluda("precompile", "empty", status=2).stderr
    assert "No such file" in zluda("precompile", "nowhere", status=2).stdout
    zluda.environment["ZLUDA_CACHE_POLICY"] = "off"
    assert "ZLUDA_CACHE_POLICY is off" in zluda("precompile", zluda.write("a.ptx"), status=2).stderr


def test_images_are_chosen_as_the_devices_choose_them() -> None:
    assert 10 * ATTRIBUTES[75] + ATTRIBUTES[76] == COMPUTE_CAPABILITY


def test_precompile_does_not_call_compiled_what_is_not_kept(zluda: Machine) -> None:
    path = zluda.write("a.ptx", HEAD + STORE.format(name="one", value=1))
    zluda("precompile", path)
    for entry in (zluda.place / "cache/kernels").glob("*.code"):
        entry.unlink()
        entry.mkdir()  # so that nothing can be written there
    done = json.loads(zluda("precompile", path, "--json", status=1).stdout)
    assert [k["status"] for k in done["kernels"]] == ["error"]
    assert "cannot keep cpu one: Is a directory" in done["kernels"][0]["reason"]


# --- cache ---------------------------------------------------------------------------------------------


def test_the_cache_moves_to_another_machine(zluda: Machine, tmp_path: Path) -> None:
    zluda("precompile", zluda.write("a.ptx", HEAD + STORE.format(name="one", value=1)), "-t", "gfx1030")
    info = json.loads(zluda("cache", "info", "--json").stdout)
    assert info["targets"] == {"gfx1030": 1} and info["entries"] == 1 and info["damaged"] == 0
    assert f"{zluda.place}/cache/kernels" in zluda("cache", "info").stdout
    assert "1 entries" in zluda("cache", "export", "kernels.tar").stdout
    other = Machine(tmp_path / "other")
    other.place.mkdir()
    assert "1 entries, 1 of them new" in other("cache", "import", zluda.place / "kernels.tar").stdout
    assert "0 of them new" in other("cache", "import", zluda.place / "kernels.tar").stdout
    found = json.loads(other("precompile", zluda.place / "a.ptx", "-t", "gfx1030", "--json").stdout)
    assert [k["status"] for k in found["kernels"]] == ["cached"]
    assert "removed 1 entries" in other("cache", "clear").stdout
    assert json.loads(other("cache", "info", "--json").stdout)["entries"] == 0


@pytest.mark.parametrize("at", [600, -1100, None])
def test_a_damaged_export_is_refused_whole(zluda: Machine, at: int | None) -> None:
    zluda("precompile", zluda.write("a.ptx", HEAD + STORE.format(name="one", value=1)), "-t", "gfx1030")
    zluda("cache", "export", "kernels.tar")
    data = bytearray((zluda.place / "kernels.tar").read_bytes())
    if at is None:
        data = data[:700]
    else:
        size = len(data.rstrip(b"\0"))
        data[at if at > 0 else size - 1] ^= 1
    (zluda.place / "kernels.tar").write_bytes(data)
    zluda("cache", "clear")
    assert "kernels.tar: " in zluda("cache", "import", "kernels.tar", status=2).stderr
    assert json.loads(zluda("cache", "info", "--json").stdout)["entries"] == 0
    assert "not an exported kernel cache" in zluda("cache", "import", "a.ptx", status=2).stderr


def test_a_cache_that_others_can_write_to_is_refused_by_every_verb(zluda: Machine) -> None:
    place = zluda.place / "cache/kernels"
    place.mkdir(parents=True)
    place.chmod(0o777)
    path = zluda.write("a.ptx", HEAD + STORE.format(name="one", value=1))
    for words in (
        ["cache", "info"],
        ["precompile", path],
        ["compile", path, "--target", "gfx1030", "--json"],
    ):
        assert "others can write to it" in (r := zluda(*words, status=2)).stderr + r.stdout


def test_precompile_names_what_it_cannot_read(zluda: Machine) -> None:
    """A bad file by its path, device code without PTX in a directory, and a device that is no target."""
    tree = zluda.place / "unread"
    tree.mkdir()
    (tree / "bad.ptx").write_text(".version 8.0\n.nonsense\n")
    (tree / "code.cubin").write_bytes(b"\x7fELF\x02\x01\x01" + bytes(11) + b"\xbe\x00" + bytes(100))
    (tree / "notes.txt").write_text("nothing of ours")
    done = zluda("precompile", "unread", "--json", status=2)
    problems = {one["module"]: one["problem"] for one in map(json.loads, done.stdout.splitlines())}
    assert set(problems) == {"unread/bad.ptx", "unread/code.cubin"}
    assert problems["unread/bad.ptx"].startswith("unread/bad.ptx:2:1: ")
    assert problems["unread/code.cubin"] == "machine code only: there is no PTX"
    for target in ("hip:0", "nonsense"):
        refused = zluda("precompile", "unread", "-t", target, status=2)
        assert f"--target {target}: kernels are compiled for cpu or an AMD target" in refused.stderr
