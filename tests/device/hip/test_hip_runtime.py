"""HIP's own behaviour behind the device: versions, what it lacks, what it refuses, what it says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hip_standin import StandIn

from zluda.device.amd.hip import errors, probe
from zluda.device.amd.hip.runtime import version_of
from zluda.device.results import RESULT_NAMES, CudaError


def test_versions_are_read_as_hip_writes_them() -> None:
    assert version_of(50_221_153) == (5, 2, 21153)
    assert version_of(60_443_484) == (6, 4, 43484)


class TestErrors:
    @pytest.mark.parametrize(
        ("hip", "cuda"),
        [
            (1, "CUDA_ERROR_INVALID_VALUE"),
            (2, "CUDA_ERROR_OUT_OF_MEMORY"),
            (9, "CUDA_ERROR_INVALID_VALUE"),  # hipErrorInvalidConfiguration
            (98, "CUDA_ERROR_INVALID_HANDLE"),  # hipErrorInvalidDeviceFunction
            (100, "CUDA_ERROR_NO_DEVICE"),
            (303, "CUDA_ERROR_SHARED_OBJECT_INIT_FAILED"),
            (700, "CUDA_ERROR_ILLEGAL_ADDRESS"),
            (719, "CUDA_ERROR_LAUNCH_FAILED"),
            (1052, "CUDA_ERROR_OUT_OF_MEMORY"),  # hipErrorRuntimeMemory
            (1053, "CUDA_ERROR_UNKNOWN"),  # hipErrorRuntimeOther
            (123456, "CUDA_ERROR_UNKNOWN"),
        ],
    )
    def test_each_is_one_of_cudas(self, hip: int, cuda: str) -> None:
        assert CudaError(errors.cuda_result(hip)).name == cuda

    def test_every_error_of_the_binding_has_a_result(self) -> None:
        hip = pytest.importorskip("hip")
        for error in hip.hip.hipError_t:
            assert CudaError(errors.cuda_result(int(error))).name in RESULT_NAMES.values()

    def test_hips_words_are_kept(self, standin: StandIn) -> None:
        found = standin.script("gfx1030", IN_PROCESS + "tell(lambda: hip.memory.allocate(1 << 50))")
        assert found["type"] == "DeviceError"
        assert "hipMalloc: CUDA_ERROR_OUT_OF_MEMORY (2): hipErrorOutOfMemory (2)" in found["text"]


IN_PROCESS = """
import json
from zluda.device.amd.hip import HipDevice
from zluda.errors import Error
hip = HipDevice(0)
def tell(do):
    try:
        value = do()
    except Error as error:
        print(json.dumps({"type": type(error).__name__, "text": str(error)}))
    else:
        print(json.dumps(value))
"""


class TestFive:
    """HIP 5.2, which Debian has."""

    def test_what_it_is(self, standin: StandIn) -> None:
        about = (
            "[hip.runtime.version_text, hip.target_id, hip.product, hip.emulated, hip.code_object_version]"
        )
        found = standin.script("gfx90a", IN_PROCESS + f"tell(lambda: {about})")
        assert found == ["5.2.21153", "gfx90a:sramecc+:xnack-", "emulated gfx90a", True, 4]

    def test_what_it_lacks_needs_six(self, standin: StandIn) -> None:
        call = 'hip.runtime.call("hipLaunchHostFunc", 0, 0, 0)'
        found = standin.script("gfx1030", IN_PROCESS + f"tell(lambda: {call})")
        assert found["type"] == "DeviceError"
        assert "needs HIP 6 or later: hipLaunchHostFunc is not in HIP 5.2.21153" in found["text"]

    def test_it_reserves_no_addresses_and_that_is_the_reason(self, standin: StandIn) -> None:
        script = """
import zluda.device.amd.hip.memory as m
memory = m.HipMemory(hip.runtime, 0, "hip:0", [(0x7f2000000000, 4096)])
tell(lambda: memory.allocate(4096, 0x7f2000000000))
"""
        found = standin.script("gfx1030", IN_PROCESS + script)
        assert "0x7f2000000000+0x200000 cannot be had: HIP 5.2.21153 reserves no addresses" in found["text"]

    @pytest.mark.parametrize("version", [4, 5])
    def test_it_reads_code_objects_of_version_four(self, standin: StandIn, version: int) -> None:
        script = f"""
from zluda.compiler import compile_kernel
from zluda.compiler.amd.linker import link
from zluda.ptx import parse_module
text = ".version 8.0\\n.target sm_80\\n.address_size 64\\n.visible .entry k() {{ ret; }}"
made = compile_kernel(parse_module(text), "k", hip.target_id, code_object_version={version})
tell(lambda: hip.load_code_object(link(made.code), file="k").kernel("k") != 0)
"""
        found = standin.script("gfx1030", IN_PROCESS + script)
        if version == 4:
            assert found is True
        else:
            assert "CUDA_ERROR_SHARED_OBJECT_INIT_FAILED (303)" in found["text"]

    def test_another_gpu_is_refused_by_number(self, standin: StandIn) -> None:
        found = standin.script("gfx1030", IN_PROCESS + "tell(lambda: HipDevice(3))")
        assert found["text"] == "device hip:3: HIP 5.2.21153 finds 1 GPUs; there is hip:0 to hip:0"


class TestProbe:
    def test_it_finds_the_gpu(self, gpu: str) -> None:
        found = probe.probe()
        assert found.gpus == (probe.Gpu("hip:0", "emulated gfx1030", "gfx1030"),)
        assert (found.version, found.error, found.errors) == ("5.2.21153", "", {})
        assert found.binding

    @pytest.mark.parametrize("gpu", ["gfx1100"], indirect=True)
    def test_a_gpu_that_the_runtime_does_not_know_is_told_of(self, gpu: str) -> None:
        """HIP 5.2 knows no gfx1100: it ends the process that has one, or sees none."""
        found = probe.probe()
        assert not found.gpus
        assert "HIP ended the process that asked it" in found.error or "hipErrorNoDevice" in found.error

    def test_a_runtime_that_dies_is_told_of(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sys, "executable", "/bin/false")
        found = probe.probe()
        assert not found.gpus and found.error == "HIP ended the process that asked it: ended with status 1"

    def test_without_a_kernel_driver_nothing_is_asked(
        self, gpu: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setattr(probe, "KERNEL_INTERFACES", (str(tmp_path / "kfd"),))
        monkeypatch.setattr(subprocess, "run", None)
        assert not probe.gpu_answers()

    def test_auto_takes_a_gpu_that_answers(
        self, gpu: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        from zluda.device import resolve

        (tmp_path / "kfd").touch()
        monkeypatch.setattr(probe, "KERNEL_INTERFACES", (str(tmp_path / "kfd"),))
        assert resolve("auto") == "hip:0"
        monkeypatch.delenv("STANDIN_HSA_TARGET")  # the stand-in then has no GPU
        assert resolve("auto") == "cpu"


def test_the_stand_in_has_all_that_hip_imports(standin: StandIn) -> None:
    script = f"""
import ctypes, json, subprocess
def symbols(path, kind):
    found = subprocess.run(["nm", "-D", kind, path], capture_output=True, text=True, check=True).stdout
    return {{line.split()[-1].split("@")[0] for line in found.splitlines() if " hsa_" in line}}
wanted = symbols({str(standin.directory / "libamdhip64.so")!r}, "--undefined-only")
there = symbols({str(standin.directory / "libhsa-runtime64.so.1")!r}, "--defined-only")
print(json.dumps([len(wanted), sorted(wanted - there), sorted(there - wanted)]))
"""
    assert standin.script("gfx1030", script) == [76, [], []]
