"""Calls of libraries above the driver: on record with what they were given, the driver's calls inside
them.
"""

from __future__ import annotations

import json
import struct
import sys
from io import StringIO
from pathlib import Path

import pytest
from recorded_scenes import Recorded, StandIn, run_trace

from zluda.diff.results import Verdict
from zluda.library.table import library_api, library_functions
from zluda.replay import api
from zluda.report import listing
from zluda.report.overview import print_overview
from zluda.report.timeline import write_timeline
from zluda.trace import spec
from zluda.tracefile import Call, Fidelity, ModuleKind, Selection, Trace, open_trace
from zluda.tracefile.libraries import library_of
from zluda.tracefile.overview import overview


@pytest.fixture(scope="module")
def blas(standin: StandIn, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    directory = tmp_path_factory.mktemp("blas")
    libraries = [str(standin.directory / f"lib{name}.so.13") for name in ("cublas", "curand")]
    return run_trace(directory / "trace.bin", standin.libraries, "blas", *libraries)


@pytest.fixture(scope="module")
def jit(standin: StandIn, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    return run_trace(tmp_path_factory.mktemp("jit") / "trace.bin", standin.libraries, "jit")


def named(trace: Trace, function: str) -> list[Call]:
    return [call for call in trace.iter_calls() if call.function == function]


FORKS = """
import ctypes, os, sys
driver = ctypes.CDLL(sys.argv[1], ctypes.RTLD_GLOBAL)
blas = ctypes.CDLL(sys.argv[2])
assert driver.cuInit(0) == 0
handle = ctypes.c_void_p()
assert blas.cublasCreate_v2(ctypes.byref(handle)) == 0
if (child := os.fork()) == 0:
    assert driver.cuInit(0) == 0
    os._exit(blas.cublasCreate_v2(ctypes.byref(handle)))
assert os.waitpid(child, 0)[1] == 0
assert blas.cublasCreate_v2(ctypes.byref(handle)) == 0
"""


def test_a_forked_childs_library_calls_are_recorded(standin: StandIn, tmp_path: Path) -> None:
    libraries = (standin.driver, str(standin.directory / "libcublas.so.13"))
    recorded = run_trace(tmp_path / "trace.bin", sys.executable, "-c", FORKS, *libraries)
    assert recorded.status == 0, recorded.errors
    assert "could not be hooked" not in recorded.errors
    (child,) = tmp_path.glob("trace.*.bin")
    for path, times in ((recorded.trace, 2), (child, 1)):
        with open_trace(path) as trace:
            assert len(named(trace, "cublasCreate_v2")) == times
            assert named(trace, "cuModuleLoadData")[0].parent == named(trace, "cublasCreate_v2")[0].sequence


# --- the table --------------------------------------------------------------------------------------------


def test_every_library_has_its_functions_in_the_table() -> None:
    rows = {row["name"]: row for row in library_functions()}
    for name in ("cublasSgemm_v2", "cublasLtMatmul", "cufftExecC2C", "curandGenerateUniform", "cusparseSpMV"):
        assert library_of(name) == rows[name]["library"]
    for name in (
        "cusolverDnXgesvd",
        "cudnnBackendExecute",
        "ncclAllReduce",
        "nvrtcCompileProgram",
        "nvJitLinkComplete",
    ):
        assert library_of(name) == rows[name]["library"]
    assert {row["library"] for row in rows.values()} == set(library_api()["libraries"])
    assert all(library_of(row["name"]) == row["library"] for row in rows.values())
    assert max(len(row["parameters"]) for row in rows.values()) <= spec.MAX_PARAMETERS


def test_arguments_lie_where_the_abi_puts_them() -> None:
    rows = {row["name"]: row["parameters"] for row in library_functions()}
    # a structure of 128 bytes lies on the stack, floats in vector registers
    assert [p["slot"] for p in rows["ncclCommInitRank"]] == [0, 1, 6, 2]
    assert [p["slot"] for p in rows["curandGenerateNormal"]] == [0, 1, 2, -1, -1]
    scalars = {p["name"]: p["unit"] for p in rows["cublasZgemm_v2"] if p.get("rule") == "guarded"}
    assert scalars == {"alpha": 16, "beta": 16}


def test_no_driver_function_is_taken_for_a_librarys() -> None:
    assert not any(library_of(row["name"]) for row in spec.functions() if "library" not in row)


# --- calls ------------------------------------------------------------------------------------------------


def test_a_library_loaded_late_is_recorded_with_the_drivers_calls_inside(blas: Recorded) -> None:
    assert blas.status == 0, blas.errors
    with open_trace(blas.trace) as trace:
        (create,) = named(trace, "cublasCreate_v2")
        (load,) = named(trace, "cuModuleLoadData")
        assert load.parent == create.sequence
        first, failed, _ = named(trace, "cublasSaxpy_v2")
        (launch,) = named(trace, "cuLaunchKernel")
        inner = trace.call(launch.parent or 0)
        assert inner.function == "cublasSaxpy_v2_64"
        assert inner.parent == first.sequence
        assert (first.result, failed.result) == (0, 7)
        assert first.arguments["n"] == 4
        assert first.arguments["handle"] == create.pointees["handle"]
        (library,) = [one for one in trace.meta["libraries"] if one["name"] == "cuBLAS"]
        assert library["hooks"] == 4


def test_scalars_are_kept_where_the_host_can_read_them(blas: Recorded) -> None:
    with open_trace(blas.trace) as trace:
        first, _, unreadable = named(trace, "cublasSaxpy_v2")
        assert trace.payload(first.sequence, "alpha") == struct.pack("<f", 2)
        assert trace.payloads(unreadable.sequence) == []


def test_floats_passed_by_value_are_on_record(blas: Recorded) -> None:
    with open_trace(blas.trace) as trace:
        (single,) = named(trace, "curandGenerateNormal")
        (double,) = named(trace, "curandGenerateNormalDouble")
        bits = [single.arguments[name].to_bytes(4, "little") for name in ("mean", "stddev")]
        assert struct.unpack("<2f", b"".join(bits)) == (0.25, 3.0)
        bits = [double.arguments[name].to_bytes(8, "little") for name in ("mean", "stddev")]
        assert struct.unpack("<2d", b"".join(bits)) == (-0.1, 1e300)
        lines = [text for text, _ in listing.LISTS["calls"](trace, Selection.parse(()))]
    assert any("n=10, mean=0.25, stddev=3)" in line for line in lines)


def test_a_launch_without_ptx_names_the_library_call_around_it(blas: Recorded) -> None:
    result = api.replay(blas.trace, device="cpu")
    (launch,) = [one for one in result.results if one.kernel == "saxpy"]
    assert launch.verdict is Verdict.NO_PTX
    assert launch.reason is not None and "machine code only, inside cublasSaxpy_v2;" in launch.reason


def test_info_dump_and_timeline_show_the_level_above(blas: Recorded) -> None:
    with open_trace(blas.trace) as trace:
        found = overview(trace)
        lines = [text for text, _ in listing.LISTS["calls"](trace, Selection.parse(()))]
        timeline = StringIO()
        write_timeline(trace, timeline)
    (row,) = found["libraries"]
    assert (row["library"], row["functions"], row["launches"]) == ("cuBLAS", {"cublasSaxpy_v2": 1}, 1)
    printed = StringIO()
    print_overview(found, printed)
    assert "cuBLAS  1 launch (100%)" in printed.getvalue()
    launch = next(line for line in lines if "cuLaunchKernel" in line)
    assert "     cuLaunchKernel(" in launch  # two levels in
    assert any("alpha=0x" in line and "→ 2, x=" in line for line in lines)
    assert any("= 7 <" in line for line in lines)  # cuBLAS's number, which is no CUresult
    events = {event["name"]: event.get("cat") for event in json.loads(timeline.getvalue())}
    assert (events["cublasSaxpy_v2"], events["cuLaunchKernel"]) == ("cuBLAS", "driver")


# --- machine code that libraries made
# ------------------------------------------------------------------------


def test_machine_code_of_nvrtc_has_its_ptx(jit: Recorded) -> None:
    assert jit.status == 0, jit.errors
    with open_trace(jit.trace) as trace:
        module = trace.module_list[0]
        assert module.kind is ModuleKind.CUBIN
        assert module.ptx_image is not None
        assert module.ptx_image.origin == "what NVRTC compiled empty.cu to"
        assert b".entry empty()" in (trace.ptx(module) or b"")
        launches = list(trace.iter_launches())
        assert launches[0].fidelity is Fidelity.SAME_PTX


def test_what_nvrtc_was_given_is_on_record(jit: Recorded) -> None:
    with open_trace(jit.trace) as trace:
        create, _ = named(trace, "nvrtcCreateProgram")
        compiled, failed = named(trace, "nvrtcCompileProgram")
        assert trace.payload(create.sequence, "src") == b"__global__ void empty () { }"
        assert trace.payload(create.sequence, "headers") == b"#define Y 1\n\0"
        assert trace.payload(create.sequence, "includeNames") == b"y.h\0"
        assert trace.payload(compiled.sequence, "options") == b'-arch=sm_90\0-DX="a b"\0'
        assert failed.result == 6
        lines = [
            text for text, _ in listing.LISTS["calls"](trace, Selection.parse((str(compiled.sequence),)))
        ]
    assert '["-arch=sm_90", "-DX=\\"a b\\""]' in lines[0]


def test_machine_code_of_nvjitlink_has_the_ptx_that_went_in(jit: Recorded) -> None:
    with open_trace(jit.trace) as trace:
        _, one, two = trace.module_list
        assert one.ptx_image is not None and one.ptx_image.origin == "what nvJitLink was given"
        assert two.ptx_image is None
        gaps = [gap.text for gap in trace.gaps if gap.call == two.load_call]
        assert any("nvJitLink made it from 2 PTX texts" in text for text in gaps)
