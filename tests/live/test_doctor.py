"""``zluda doctor`` on machines made up of files: each fault is named, with its fix."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from zluda import config
from zluda.device.amd.hip.probe import Found, Gpu
from zluda.live.doctor import amd, host, nvidia, report
from zluda.live.doctor.check import Check, State
from zluda.live.doctor.machine import Machine

RADEON = Found("6.4.43484", "6.4.4", (Gpu("hip:0", "AMD Radeon RX 6800", "gfx1030"),))


def put(root: Path, **files: str) -> None:
    """Write files; double underscores in a name are slashes."""
    for name, text in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def card(root: Path, vendor: str = "0x1002", kind: str = "0x030000", address: str = "0000:03:00.0") -> None:
    device = root / "sys/bus/pci/devices" / address
    device.mkdir(parents=True)
    (device / "vendor").write_text(vendor + "\n")
    (device / "class").write_text(kind + "\n")


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A sound machine with one Radeon."""
    card(tmp_path)
    put(tmp_path, sys__module__amdgpu__version="6.8.5\n", dev__kfd="", dev__dri__renderD128="")
    packages = {"hip-python": "6.4.4", "llvmlite": "0.50.0", "frida": "17.1"}
    return Machine(
        root=tmp_path,
        environment={"ZLUDA_CACHE_DIR": str(tmp_path / "cache")},
        groups=frozenset(("video", "render")),
        user="ada",
        version_of=lambda name: packages.get(name, ""),
        which=lambda name: f"/usr/bin/{name}",
        hip=lambda: RADEON,
        accessible=lambda path, mode: True,
    )


def named(checks: Any, name: str) -> Check:
    return next(check for check in checks if check.name == name)


def without_package(machine: Machine, package: str) -> Machine:
    version_of = machine.version_of
    return replace(machine, version_of=lambda name: "" if name == package else version_of(name))


class TestAmd:
    def test_a_sound_machine_has_no_fault(self, machine: Machine) -> None:
        checks = list(amd.checks(machine))
        assert {check.state for check in checks} == {State.OK} and not any(check.fix for check in checks)
        assert named(checks, "hip:0").found == "AMD Radeon RX 6800 (gfx1030)"
        assert named(checks, "amdgpu kernel driver").found == "6.8.5"
        assert named(checks, "device files").found == "/dev/kfd, /dev/dri/renderD128"

    def test_no_gpu_is_no_fault(self, tmp_path: Path, machine: Machine) -> None:
        empty = replace(machine, root=tmp_path / "empty", hip=lambda: Found("6.4.0", "6.4.4", error="none"))
        checks = list(amd.checks(empty))
        assert named(checks, "AMD GPU").state is State.ABSENT
        assert not any(check.state is State.FAULT for check in checks)
        assert "hip" in {use for check in checks if not check.holds for use in check.needed_for}

    def test_other_makers_cards_do_not_count(self, tmp_path: Path, machine: Machine) -> None:
        card(tmp_path / "other", vendor="0x10de")
        card(tmp_path / "other", kind="0x040300", address="0000:03:00.1")  # a Radeon's sound device
        checks = amd.checks(replace(machine, root=tmp_path / "other"))
        assert named(checks, "AMD GPU").state is State.ABSENT

    @pytest.mark.parametrize(
        ("gone", "name", "fix"),
        [
            ("sys/module/amdgpu/version", "amdgpu kernel driver", "modprobe amdgpu"),
            ("dev/kfd", "amdgpu kernel driver", "--device=/dev/kfd"),
            ("dev/dri/renderD128", "device files", "--device=/dev/dri"),
        ],
    )
    def test_what_the_kernel_lacks(self, machine: Machine, gone: str, name: str, fix: str) -> None:
        path = machine.path(gone)
        path.unlink()
        if "module" in gone:
            path.parent.rmdir()
        found = named(amd.checks(machine), name)
        assert found.state is State.FAULT and fix in found.fix and found.needed_for == ("hip",)

    def test_files_that_the_user_may_not_use(self, machine: Machine) -> None:
        shut = replace(
            machine, accessible=lambda path, mode: path.name != "kfd", groups=frozenset(("video",))
        )
        found = named(amd.checks(shut), "device files")
        assert (found.state, found.found) == (State.FAULT, "/dev/kfd: no permission")
        assert found.fix == "sudo usermod -a -G render ada, then log in again"

    def test_nobodys_groups(self, machine: Machine) -> None:
        shut = replace(machine, accessible=lambda path, mode: False, groups=frozenset())
        assert "-G render,video ada" in named(amd.checks(shut), "device files").fix

    def test_groups_that_are_missing_though_the_files_are_open(self, machine: Machine) -> None:
        found = named(amd.checks(replace(machine, groups=frozenset(("render",)))), "groups")
        assert found.state is State.WARNING and "ada is not in video" in found.found

    def test_no_binding(self, machine: Machine) -> None:
        found = named(amd.checks(without_package(machine, "hip-python")), "hip-python")
        assert found.state is State.FAULT and found.fix == "pip install 'zluda[hip]'"

    def test_no_runtime(self, machine: Machine) -> None:
        lost = Found(binding="6.4.4", error="device hip: libamdhip64.so cannot be loaded")
        found = named(amd.checks(replace(machine, hip=lambda: lost)), "HIP runtime")
        assert found.state is State.FAULT and "libamdhip64.so" in found.found and "ROCM_PATH" in found.fix

    @pytest.mark.parametrize(
        ("runtime", "fix"),
        [("7.0.1", "pip install 'hip-python==7.*'"), ("5.2.21153", "install HIP 6 or later")],
    )
    def test_a_binding_of_another_version(self, machine: Machine, runtime: str, fix: str) -> None:
        found = named(
            amd.checks(replace(machine, hip=lambda: replace(RADEON, version=runtime))), "HIP runtime"
        )
        assert found.state is State.WARNING and found.fix == fix

    def test_a_gpu_that_hip_does_not_show(self, machine: Machine) -> None:
        hidden = Found("6.4.0", "6.4.4", error="hipErrorNoDevice (100)")
        found = named(amd.checks(replace(machine, hip=lambda: hidden)), "HIP devices")
        assert found.state is State.FAULT and "HIP_VISIBLE_DEVICES" in found.fix

    def test_a_gpu_that_is_no_target(self, machine: Machine) -> None:
        strange = Found(
            "6.4.0", "6.4.4", errors={"hip:0": "HIP 6.4 calls its GPU 'x', which is no AMD target"}
        )
        assert named(amd.checks(replace(machine, hip=lambda: strange)), "hip:0").state is State.FAULT

    def test_wsl(self, tmp_path: Path, machine: Machine) -> None:
        put(tmp_path / "wsl", dev__dxg="")
        checks = list(amd.checks(replace(machine, root=tmp_path / "wsl")))
        assert named(checks, "AMD GPU").found == "by WSL (/dev/dxg)"
        assert all(check.state is State.OK for check in checks)


class TestNvidia:
    VERSION = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05  Tue Sep 23 10:00:00 UTC 2025\n"

    def test_none_is_no_fault(self, machine: Machine) -> None:
        (found,) = nvidia.checks(machine)
        assert found.state is State.ABSENT and set(found.needed_for) == {"cuda", "trace"}

    def test_gpus_are_named(self, machine: Machine) -> None:
        put(machine.root, proc__driver__nvidia__version=self.VERSION, dev__nvidiactl="")
        for address, model in (("0000:01:00.0", "NVIDIA H200"), ("0000:02:00.0", "NVIDIA T4")):
            information = machine.root / "proc/driver/nvidia/gpus" / address / "information"
            information.parent.mkdir(parents=True)
            information.write_text(f"Model: \t\t {model}\nIRQ:   \t\t 5\n")
        checks = list(nvidia.checks(machine))
        assert [check.found for check in checks] == [
            "580.95.05",
            "NVIDIA H200 at 0000:01:00.0",
            "NVIDIA T4 at 0000:02:00.0",
        ]

    def test_a_driver_without_devices(self, machine: Machine) -> None:
        put(machine.root, proc__driver__nvidia__version=self.VERSION)
        faults = [check for check in nvidia.checks(machine) if check.state is State.FAULT]
        assert [check.name for check in faults] == ["NVIDIA device files", "NVIDIA GPU"]
        assert all(check.fix for check in faults)


class TestHost:
    def test_versions_are_told(self, machine: Machine) -> None:
        checks = list(host.checks(machine))
        assert named(checks, "frida").found == "17.1" and named(checks, "C compiler").found == "/usr/bin/cc"
        assert named(checks, "llvmlite").found.startswith("0.50.0 (LLVM ")
        assert named(checks, "kernel cache").found.startswith(f"{machine.root}/cache")

    @pytest.mark.parametrize(
        ("package", "name", "rules_out", "fix"),
        [
            ("llvmlite", "llvmlite", "cpu", "pip install 'llvmlite>=0.50'"),
            ("frida", "frida", "trace", "pip install 'zluda[trace]'"),
        ],
    )
    def test_packages_that_are_missing(
        self, machine: Machine, package: str, name: str, rules_out: str, fix: str
    ) -> None:
        found = named(host.checks(without_package(machine, package)), name)
        assert not found.holds and rules_out in found.needed_for and found.fix == fix

    def test_settings_that_are_wrong(self, machine: Machine) -> None:
        checks = list(host.checks(replace(machine, environment={"ZLUDA_NONSENSE": "1"})))
        found = named(checks, "settings")
        assert found.state is State.FAULT and "ZLUDA_NONSENSE" in found.found and "--env" in found.fix
        assert not any(check.name == "kernel cache" for check in checks)  # where it is cannot be known

    def test_a_cache_that_others_can_write_to(self, machine: Machine) -> None:
        place = machine.root / "cache" / "kernels"
        place.mkdir(parents=True)
        place.chmod(0o777)
        found = named(host.checks(machine), "kernel cache")
        assert found.state is State.FAULT and str(place) in found.found and "ZLUDA_CACHE_DIR" in found.fix

    def test_looking_makes_no_cache(self, machine: Machine) -> None:
        found = named(host.checks(machine), "kernel cache")
        assert (found.state, found.found) == (State.OK, f"{machine.root}/cache/kernels: not made yet")
        assert not (machine.root / "cache").exists()

    def test_a_cache_that_cannot_be_made(self, machine: Machine) -> None:
        (machine.root / "cache").touch()
        found = named(host.checks(machine), "kernel cache")
        assert found.state is State.FAULT and found.found.endswith("cache/kernels cannot be made")

    def test_a_user_without_a_home(self, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("platformdirs.user_cache_path", lambda *_, **__: Path("~/.cache/zluda"))
        found = named(host.checks(replace(machine, environment={})), "kernel cache")
        assert found.state is State.WARNING and "no home directory" in found.found

    @pytest.mark.parametrize(("package", "version"), [("llvmlite", "0.44.0"), ("frida", "16.7.19")])
    def test_packages_that_are_too_old(self, machine: Machine, package: str, version: str) -> None:
        old = replace(machine, version_of=lambda n: version if n == package else machine.version_of(n))
        found = named(host.checks(old), package)
        assert found.state is State.FAULT and "too old" in found.found and "pip install" in found.fix

    def test_a_cache_that_is_off(self, machine: Machine) -> None:
        off = {**machine.environment, "ZLUDA_CACHE_POLICY": "off"}
        assert named(host.checks(replace(machine, environment=off)), "kernel cache").state is State.WARNING

    def test_no_disassembler(self, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
        from zluda.compiler.amd import disassembler
        from zluda.errors import DeviceError

        def none(target: object) -> Any:
            raise DeviceError("gfx1030", "none")

        monkeypatch.setattr(disassembler, "library_for", none)
        found = named(host.checks(machine), "LLVM disassembler")
        assert not found.holds and found.needed_for == ("gfx",) and "zluda[emulator]" in found.fix

    def test_no_compiler(self, machine: Machine) -> None:
        found = named(host.checks(replace(machine, which=lambda name: None)), "C compiler")
        assert found.state is State.ABSENT and not found.needed_for


class TestReport:
    def test_uses_follow_from_the_checks(self, machine: Machine) -> None:
        found = report.examine(machine)
        assert found.fit == {"cpu": True, "gfx": True, "hip": True, "cuda": False, "trace": False}
        assert found.exit_status == 0
        assert "hip: replay on AMD GPUs: yes" in found.lines()

    def test_a_machine_that_cannot_replay(self, machine: Machine) -> None:
        found = report.examine(without_package(machine, "llvmlite"))
        assert found.exit_status == 2 and not found.fit["cpu"]
        assert "cpu: replay on the CPU: no (llvmlite: not installed)" in found.lines()

    def test_every_fault_has_a_fix(self, machine: Machine) -> None:
        bare = replace(
            machine,
            groups=frozenset(),
            accessible=lambda path, mode: False,
            version_of=lambda name: "",
            which=lambda name: None,
        )
        for check in report.examine(bare).checks:
            assert check.fix or check.state is not State.FAULT, check

    def test_as_json(self, machine: Machine) -> None:
        found = json.loads(json.dumps(report.examine(machine).to_json()))
        assert found["fit"]["hip"] is True
        assert {"name", "state", "found", "fix", "needed_for"} == set(found["checks"][0])


def zluda(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "zluda", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        check=False,
    )


class TestCommand:
    def test_this_machine_can_replay(self) -> None:
        done = zluda("doctor", "--json")
        assert done.returncode == 0, done.stdout + done.stderr
        assert json.loads(done.stdout)["fit"]["cpu"] is True

    def test_wrong_settings_are_among_the_faults(self) -> None:
        done = zluda("doctor", ZLUDA_NONSENSE="1")
        assert done.returncode == 2 and "✗ settings: ZLUDA_NONSENSE is set" in done.stdout

    @pytest.mark.parametrize("arguments", [("doctor", "--env"), ("doctor", "--env", "--json")])
    def test_variables(self, arguments: tuple[str, ...]) -> None:
        done = zluda(*arguments, ZLUDA_DEVICE="gfx1030")
        assert done.returncode == 0
        for variable in config.variables({}):
            assert variable.name in done.stdout
        assert "gfx1030" in done.stdout

    def test_variables_have_type_default_and_help(self) -> None:
        found: dict[str, Callable[[], object] | Any] = {v.name: v for v in config.variables({})}
        policy = found["ZLUDA_CACHE_POLICY"]
        assert (policy.type, policy.default, policy.value) == ("off | normal | aggressive", "normal", None)
        assert policy.built and policy.help
        assert not found["ZLUDA_ROOT"].built and "refused" in found["ZLUDA_ROOT"].help
