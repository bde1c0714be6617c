"""Profiles of replays: what is counted and timed, the model, which limit binds, and what is said of it."""

from __future__ import annotations

import dataclasses
import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from kernels import MODULE

import zluda
import zluda.cli.main
from zluda.compiler.amd.report import Report
from zluda.compiler.amd.targets import target_names
from zluda.config import load
from zluda.device.amd import AmdDevice
from zluda.device.amd.emulator.memory import accessed_bytes
from zluda.errors import Error
from zluda.isolate.profile import profile
from zluda.isolate.profile.facts import HOST, MEASURED, MODELLED, Facts
from zluda.isolate.profile.model import Model, model
from zluda.isolate.profile.peaks import LAUNCH_SECONDS, PEAKS, peak_of
from zluda.isolate.profile.rules import RULES, advice, limit_of
from zluda.ptx import parse_module
from zluda.report import profile as shown
from zluda.runner.profiled import KernelTimes, read_profile

SAXPY = Path(__file__).resolve().parents[2] / "corpus" / "saxpy" / "trace.bin"
PEAK = PEAKS["gfx1030"]


def report(*, vgprs: int = 24, waves: int = 16, spills: int = 0) -> Report:
    return Report("k", "gfx1030", 32, vgprs, 16, spills, 0, 0, 0, 8, 256, waves, 16, None, {"vector": 9})


def facts(
    *,
    each: float = 1e-3,
    blocks: int = 10_000,
    threads: int = 256,
    kind: str = MEASURED,
    bytes: int | None = None,
    at_most: bool = False,
    needs: Report | None = None,
    modelled: Model | None = None,
) -> Facts:
    """Of ten launches."""
    times = KernelTimes("k", 10, 10 * each, each, 10 * blocks * threads, 10 * blocks, threads)
    found = Facts(times, kind, 10 * each, peak=PEAK, report=needs or report(), model=modelled)
    found.bytes, found.bytes_at_most = bytes, at_most
    return found


FULL = int(0.8 * PEAK.bandwidth * 10e-3)  # bytes in ten launches of a millisecond


class TestLimits:
    @pytest.mark.parametrize(
        ("found", "limit"),
        [
            (facts(kind=HOST), "host"),
            (facts(each=4e-6), "launch"),
            (facts(bytes=FULL), "memory"),
            (facts(blocks=20), "latency"),
            (facts(needs=report(waves=4)), "latency"),
            (facts(blocks=20, bytes=FULL, at_most=True), "latency"),
            (facts(bytes=FULL, at_most=True), "memory"),
            (facts(bytes=FULL // 100), "compute"),
            (facts(), "compute"),
            (facts(kind=MODELLED, modelled=Model(4e-3, 2e-3, 1e-3, 5e-5)), "memory"),
            (facts(kind=MODELLED, modelled=Model(1e-3, 2e-3, 1e-3, 5e-5)), "compute"),
        ],
    )
    def test_the_first_that_fits(self, found: Facts, limit: str) -> None:
        assert limit_of(found) == limit


class TestAdvice:
    @pytest.mark.parametrize(
        ("found", "words"),
        [
            (facts(kind=HOST), "this machine's own time"),
            (facts(each=4e-6), r"at 4\.0 µs a launch"),
            (facts(needs=report(spills=7)), "7 registers are spilled"),
            (facts(blocks=20), "20 blocks a launch leave 40 of 60 units idle"),
            (facts(needs=report(vgprs=200, waves=4)), "200 vector registers leave room for 4 of 16 waves"),
            (facts(threads=40), "blocks of 40 threads leave 24 lanes"),
            (facts(bytes=FULL), r"it moves 409\.600 MB a launch, 80 % of the memory's peak"),
            (facts(kind=MODELLED, modelled=Model(0, 0, 1e-3, 5e-5)), "more threads that do less"),
            (facts(), "vector units"),
        ],
    )
    def test_each_rule_says_its_own(self, found: Facts, words: str) -> None:
        assert re.search(words, advice(found, limit_of(found)))

    def test_the_page_has_every_rule(self) -> None:
        page = (SAXPY.parents[2] / "docs" / "profile.md").read_text()
        assert [name for name in (rule.name for rule in RULES) if f"| {name} |" not in page] == []


class TestModel:
    def test_of_a_kernel_that_moves_memory(self) -> None:
        times = KernelTimes("k", 2, 1.0, 0.5, 2 << 20, 8192, 256, 1 << 20, 1 << 19, 1 << 30)
        found = model(times, PEAK, "gfx1030", wave_size=32, waves_per_simd=16)
        assert found.memory == pytest.approx((1 << 30) / 512e9)
        assert found.compute == pytest.approx((1 << 19) / (2 * 60 * 2.105e9))
        assert found.launch == 2 * LAUNCH_SECONDS and found.limit == "memory"
        assert found.seconds == found.launch + found.memory

    def test_few_blocks_use_few_units(self) -> None:
        one = KernelTimes("k", 1, 1.0, 1.0, 256, 1, 256, 8000, 8000, 0)
        many = KernelTimes("k", 1, 1.0, 1.0, 256 * 60, 60, 256, 480_000, 480_000, 0)
        first, second = (
            model(times, PEAK, "gfx1030", wave_size=32, waves_per_simd=16) for times in (one, many)
        )
        assert first.compute == pytest.approx(second.compute)

    def test_every_target_has_peaks(self) -> None:
        assert set(PEAKS) == set(target_names())
        assert peak_of("gfx90a:sramecc+:xnack-") is PEAKS["gfx90a"]


class TestCounting:
    @pytest.mark.parametrize("target", ["gfx1030", "gfx90a"])
    def test_what_waves_ask_of_memory(self, target: str) -> None:
        device = AmdDevice(target, threads=1)
        device.counting = True
        kernel = device.load(parse_module(MODULE)).kernel("add")
        x, y = (device.allocate(4096) for _ in range(2))
        for address in (x, y):
            device.write(address, np.ones(1024, np.float32).tobytes())
        parameters = x.to_bytes(8, "little") + y.to_bytes(8, "little") + (1000).to_bytes(4, "little")
        device.launch(kernel, (4, 1, 1), (256, 1, 1), parameters)
        instructions, vector, memory = device.counted
        device.close()
        assert memory == 1000 * 12
        assert 0 < vector < instructions

    @pytest.mark.parametrize(
        ("mnemonic", "size"),
        [
            ("global_load_dword", 4),
            ("global_store_dwordx4", 16),
            ("flat_load_ubyte", 1),
            ("global_load_short_d16_hi", 2),
            ("buffer_load_b96", 12),
            ("global_load_u16", 2),
            ("global_load_i8", 1),
            ("global_atomic_add", 4),
            ("global_atomic_cmpswap_x2", 8),
            ("global_atomic_add_u64", 8),
            ("global_wb", 0),
        ],
    )
    def test_bytes_of_an_access(self, mnemonic: str, size: int) -> None:
        assert accessed_bytes(mnemonic) == size

    def test_rows_that_are_none(self) -> None:
        with pytest.raises(Error, match="the runner's profile is none"):
            read_profile([["k", 1]])


class TestReplays:
    def test_on_the_cpu(self) -> None:
        found = profile(zluda.replay(SAXPY, device="cpu", profile=True))
        assert found["time"] == "host" and [k["launches"] for k in found["kernels"]] == [3, 1]
        assert all(kernel["limit"] == "host" and kernel["bytes"] is None for kernel in found["kernels"])
        assert found["recorded_seconds"] > 0 and json.dumps(found)

    def test_without_being_asked_nothing_is_timed(self) -> None:
        assert "launch_times" not in zluda.replay(SAXPY, device="cpu").meta

    @pytest.mark.slow
    def test_emulated_times_are_a_models(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        page = tmp_path / "page.html"
        words = ["zluda", "replay", str(SAXPY), "--device", "gfx1030", "--profile", "--html", str(page)]
        with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit):
            patch.setattr(sys, "argv", words)
            zluda.cli.main.main()
        out = capsys.readouterr().out
        assert "Radeon RX 6800" in out and "modelled from counted instructions and bytes, not measured" in out
        assert "limit launch" in out
        assert "Where the time went" in page.read_text() and "not measured" in page.read_text()

    def test_one_replay_is_timed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        words = ["zluda", "replay", str(SAXPY), "--profile", "--mode", "isolated", "--jobs", "2"]
        monkeypatch.setattr(sys, "argv", words)
        with pytest.raises(SystemExit) as exit:
            zluda.cli.main.main()
        assert exit.value.code == 2

    def test_live_profiles_are_of_a_later_version(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("ZLUDA_PROFILE", "1")
        with pytest.raises(Error, match="ZLUDA_PROFILE"):
            load()


class TestShown:
    def test_what_is_not_known_is_left_out(self) -> None:
        kernel = {
            "kernel": "k", "launches": 2, "recorded_seconds": None, "seconds": 1e-3, "ratio": None,
            "bandwidth": None, "occupancy": None, "vgprs": None, "limit": "compute", "advice": "less",
        }  # fmt: skip
        found = {
            "time": "measured", "device": "cuda:0", "product": "", "seconds": 1e-3, "recorded_seconds": None,
            "top": 1, "kernels": [kernel, kernel],
        }  # fmt: skip
        assert list(shown.lines(found)) == [
            "profile on cuda:0: 1 ms measured",
            "  k: launches 2, here 1 ms, limit compute",
            "    less",
            "  … and 1 kernel that took less (--json has all)",
        ]

    def test_bytes_at_most(self) -> None:
        found = dataclasses.replace(facts(bytes=FULL), bytes_at_most=True)
        from zluda.isolate.profile.facts import to_json

        assert "≤ 409.6 GB/s (80 %)" in shown.cells(to_json(found, "memory", ""))
