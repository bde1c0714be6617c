"""`zluda info`, `dump` and `diff` as a user sees them."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from zluda.cli.main import command
from zluda.tracefile import Direction, ModuleKind, Parameter, TraceWriter
from zluda.tracefile.arguments import ArgumentLayout

BASE = 0x7F00_0000_0000
ALLOC = [Parameter("dptr", "CUdeviceptr *", Direction.OUT, 8), Parameter("bytesize", "size_t")]
NAME = [Parameter("name", "char *", Direction.OUT), Parameter("len", "int"), Parameter("dev", "CUdevice")]
COPY = [Parameter("dstHost", "void *", Direction.OUT), Parameter("srcDevice", "CUdeviceptr")]
PTX = b".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry scale(.param .u64 out) { ret; }\n"


def write(path: Path, value: float = 2.0) -> Path:
    meta = {
        "command": ["./scale", "7"],
        "gpu": "NVIDIA H200",
        "driver_version": 13000,
        "compute_capability": [9, 0],
        "start": "2026-05-04T10:00:00+00:00",
    }
    with TraceWriter.create(path, meta) as writer:
        alloc, name = writer.signature("cuMemAlloc_v2", ALLOC), writer.signature("cuDeviceGetName", NAME)
        launch = writer.signature("cuLaunchKernel", [Parameter("f", "CUfunction")])
        copy = writer.signature("cuMemcpyDtoH_v2", COPY)
        made = ArgumentLayout(ALLOC).encode([16, 64], after={"dptr": BASE.to_bytes(8, "little")})
        writer.add_calls(
            [
                (0, 4711, None, alloc, 0, 1200, 0, made),
                (1, 4711, 0, name, 2000, 2500, 0, ArgumentLayout(NAME).encode([16, 20, 2**64 - 1])),
                (2, 4711, None, launch, 3000, 4000, 0, ArgumentLayout([Parameter("f", "")]).encode([77])),
                (3, 4711, None, copy, 5000, 6000, 700, ArgumentLayout(COPY).encode([16, BASE])),
                (4, 4711, None, launch, 7000, None, None, ArgumentLayout([Parameter("f", "")]).encode([77])),
            ]
        )
        writer.add_payload(1, 0, Direction.OUT, b"NVIDIA \x1b[31mH200\0junk")
        buffer = writer.add_allocation(0, BASE, 64)
        module = writer.add_module(0, ModuleKind.FATBIN, 5, origin="cuLibraryLoadData", image=b"fat")
        writer.add_image(module, ModuleKind.PTX, PTX, architecture="compute_90", origin="entry 0")
        function = writer.add_function(1, 77, "scale", module=module, layout=[(0, 8)])
        writer.add_launch(
            2,
            writer.shape(function, (4, 1, 1), (256, 1, 1)),
            struct.pack("<Q", BASE),
            gpu_time_ns=1500,
            captured=True,
        )
        writer.add_page(2, buffer, 0, struct.pack("<2f", 1.0, value))
        writer.add_payload(3, 0, Direction.OUT, struct.pack("<2f", 1.0, value))
        writer.add_gap(4, "cuLaunchKernel", "the application died", 1)
    return path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write(tmp_path / "trace.bin")


def zluda(*arguments: object) -> Result:
    return CliRunner().invoke(command, [str(argument) for argument in arguments])


def lines(*arguments: object) -> list[str]:
    result = zluda(*arguments)
    assert result.exit_code == 0, result.output
    return result.output.splitlines()


def objects(*arguments: object) -> list[dict[str, object]]:
    return [json.loads(line) for line in lines(*arguments, "--json")]


def test_info(path: Path) -> None:
    text = "\n".join(lines("info", path))
    for part in (
        "Program: ./scale 7",
        "Recorded on: NVIDIA H200",
        "CUDA driver: 13.0",
        "Recorded at: 2026-05-04 10:00:00 UTC",
        "Calls: 5 in 1 thread",
        "Launches: 1 of 1 kernel",
        "Translatable: PTX for 1 of 1 launch; what the GPU ran is not known: 1",
        "Modules: 1, 1 with PTX",
        "Allocations: 1, at most 64 bytes at one time",
        "Memory changes: 1, 8 bytes",
        "Never returned: #4 cuLaunchKernel",
        "scale  module 1  1 launch  1.5 µs",
        "module 1  fatbin  cuLibraryLoadData  3 bytes  PTX compute_90",
        "cuLaunchKernel  the application died  1",
    ):
        assert part in text


def test_info_as_json(path: Path) -> None:
    (found,) = objects("info", path)
    assert found["trace"] == str(path)
    assert found["meta"]["gpu"] == "NVIDIA H200"  # type: ignore[index]
    counts = found["counts"]
    assert isinstance(counts, dict)
    assert (counts["calls"], counts["open_calls"], counts["allocated_bytes"]) == (5, 1, 64)
    assert found["kernels"] == [{"kernel": "scale", "module": 1, "launches": 1, "gpu_time_ns": 1500}]
    assert found["open_calls"] == [{"call": 4, "function": "cuLaunchKernel"}]


def test_dump_reads_like_strace(path: Path) -> None:
    assert lines("dump", path) == [
        "#0 [4711] 0.000000 cuMemAlloc_v2(dptr=0x10 → 0x7f0000000000, bytesize=64) = CUDA_SUCCESS <1.2 µs>",
        r'#1 [4711] 0.000002   cuDeviceGetName(name=0x10 → "NVIDIA \u001b[31mH200", len=20, dev=-1) (in #0)'
        " = CUDA_SUCCESS <0.5 µs>",
        "#2 [4711] 0.000003 cuLaunchKernel(f=0x4d) = CUDA_SUCCESS <1.0 µs>",
        "#3 [4711] 0.000005 cuMemcpyDtoH_v2(dstHost=0x10 → 0000803f 00000040 (out, 8 bytes),"
        " srcDevice=0x7f0000000000) = CUDA_ERROR_ILLEGAL_ADDRESS <1.0 µs>",
        "#4 [4711] 0.000007 cuLaunchKernel(f=0x4d) = ? <never returned>",
    ]


def test_dump_never_prints_what_steers_a_terminal(path: Path) -> None:
    assert "\x1b" not in zluda("dump", path).output


def test_dump_selects(path: Path) -> None:
    assert [line[:2] for line in lines("dump", path, "--select", "1-4/2")] == ["#1", "#3"]
    assert [line[:2] for line in lines("dump", path, "--select", "kernel:^sca")] == ["#2"]
    assert [line[:2] for line in lines("dump", path, "--select", "0", "--select", "4")] == ["#0", "#4"]


def test_dump_as_json_lines(path: Path) -> None:
    found = objects("dump", path, "--select", "0")
    assert found == [
        {
            "sequence": 0,
            "thread": 4711,
            "parent": None,
            "function": "cuMemAlloc_v2",
            "arguments": {"dptr": 16, "bytesize": 64},
            "pointees": {"dptr": BASE},
            "start_ns": 0,
            "end_ns": 1200,
            "result": 0,
            "pointees_before": {},
        }
    ]


def test_dump_lists(path: Path) -> None:
    assert lines("dump", path, "--launches") == [
        "#2 scale(0x7f0000000000) grid=4,1,1 block=256,1,1 stream=0x0 <1.5 µs>"
    ]
    assert lines("dump", path, "--modules") == [
        "module 1 fatbin #0- handle=0x5 cuLibraryLoadData",
        "  fatbin  3 bytes, as loaded",
        f"  ptx compute_90 {len(PTX)} bytes, entry 0",
    ]
    assert lines("dump", path, "--allocations") == ["0x7f0000000000 64 bytes device #0-"]
    assert lines("dump", path, "--gaps") == ["#4 cuLaunchKernel: the application died (1)"]
    assert objects("dump", path, "--launches")[0]["parameters"] == BASE.to_bytes(8, "little").hex()


def test_dump_ptx(path: Path) -> None:
    assert lines("dump", path, "--ptx", "1") == PTX.decode().splitlines()
    assert any(".entry scale" in line for line in lines("dump", path, "--ptx", "scale"))


def test_dump_memory(path: Path) -> None:
    assert lines("dump", path, "--memory", f"2:{BASE:#x}:12") == [
        "0x7f0000000000  00 00 80 3f 00 00 00 40 ?? ?? ?? ??              ...?...@...."
    ]
    (found,) = objects("dump", path, "--memory", f"1:{BASE:#x}:2")
    assert (found["data"], found["known"]) == ("0000", "0000")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--memory", "1:2"], "expected CALL:ADDRESS:SIZE"),
        (["--memory", "1:0:0"], "size of 1 to 2^30"),
        (["--ptx", "nothing"], "no module number and no kernel 'nothing'"),
        (["--select", "what"], "selection 'what'"),
    ],
)
def test_dump_says_what_it_expected(path: Path, arguments: list[str], message: str) -> None:
    result = zluda("dump", path, *arguments)
    assert result.exit_code != 0
    assert message in str(result.exception)


def test_dump_prints_one_thing_at_a_time(path: Path) -> None:
    result = zluda("dump", path, "--ptx", "1", "--launches")
    assert result.exit_code == 2
    assert "give one of" in result.output


def test_diff_of_equal_traces(path: Path, tmp_path: Path) -> None:
    result = zluda("diff", path, write(tmp_path / "other.bin"), "--html", tmp_path / "page" / "index.html")
    assert result.exit_code == 0
    assert "✓" in result.output and "1 launch and 1 copy identical" in result.output
    assert "identical" in (tmp_path / "page" / "index.html").read_text("utf-8")


def test_diff_of_traces_that_part(path: Path, tmp_path: Path) -> None:
    other = write(tmp_path / "other.bin", value=3.0)
    result = zluda("diff", path, other)
    assert result.exit_code == 1
    # As bytes, since this PTX loads nothing.
    assert (
        "the first is #2 scale, element 6 of 0x7f0000000000 (bytes): recorded 0, replayed 64" in result.output
    )
    found = zluda("diff", path, other, "--json")
    assert found.exit_code == 1
    assert json.loads(found.output)["first_divergence"]["call"] == 2


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "zluda", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("verb", [["info"], ["dump"], ["diff", "{path}"]])
def test_a_file_that_is_no_trace_gives_one_line_and_status_2(path: Path, verb: list[str]) -> None:
    noise = path.with_name("noise.bin")
    noise.write_bytes(b"not a trace at all" * 100)
    result = run(*(part.format(path=path) for part in verb), noise)
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr == f"zluda: {noise} at byte 0: not a trace (no SQLite header)\n"


def test_info_and_dump_import_neither_numpy_nor_pandas(path: Path) -> None:
    code = (
        "import sys; from click.testing import CliRunner; from zluda.cli.main import command;"
        f"[CliRunner().invoke(command, [verb, {str(path)!r}]) for verb in ('info', 'dump')];"
        "print([name for name in ('numpy', 'pandas', 'rich', 'llvmlite') if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "[]\n"
