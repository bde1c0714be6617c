"""`zluda isolate` over a fault of each layer, seeded into the processes that run: the answer is right."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from bad_kernels import MULTICAST, Program
from seeding import environment
from seeding.table import FAULTS

from zluda.tracefile import open_trace

HERE = Path(__file__).parent
CORPUS = HERE.parents[1] / "corpus"


def isolate(trace: Path, device: str, fault: str = "", *options: str) -> tuple[int, dict[str, Any]]:
    seeded = environment(FAULTS[fault]) if fault else dict(os.environ)
    command = [sys.executable, "-m", "zluda", "isolate", str(trace), "--device", device, "--json", *options]
    done = subprocess.run(command, capture_output=True, text=True, env=seeded, timeout=300, check=False)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("fault", "layer", "words"),
    [
        ("add_is_sub", "lowering", ""),
        ("amd_shuffle_takes_the_lane_beside", "lowering", "shfl.sync.down.b32"),
        ("v_add_f32_subtracts", "hardware unit", "add.f32"),
        ("optimiser_makes_differences_of_sums", "code generation", "add.f32"),
        ("flipped_bit_in_gfx1030_code", "code generation", "add.f32"),
    ],
)
def test_the_layer_and_the_instruction_are_named(fault: str, layer: str, words: str) -> None:
    status, found = isolate(CORPUS / "reduction" / "trace.bin", "gfx1030", fault)
    assert (status, found["layer"]) == (1, layer), found["reason"]
    assert "reduce" in found["kernel"] and found["verdict"] == "differs"
    if words:
        assert words in found["instruction"]["text"]
        assert found["amd"]["target"] == "gfx1030" and found["amd"]["instructions"]


def damage(trace: Path, kernel: str) -> int:
    """Change a byte of what a kernel's first launch left, as a faulty recorder would; returns its call."""
    with open_trace(trace) as opened:
        call = next(one.call for one in opened.iter_launches() if kernel in one.kernel)
        page = opened.pages(call)[0]
        content = bytearray(opened.page_data(page))
        changed = opened.read_allocation(page.allocation, call - 1, page.offset, page.length)[0]
    at = next(at for at, (old, new) in enumerate(zip(changed, content, strict=True)) if old != new)
    content[at] ^= 0x10
    key = hashlib.blake2b(content, digest_size=16).digest()
    with sqlite3.connect(trace) as file:
        row = file.execute(
            "INSERT INTO blob (key, size, data) VALUES (?, ?, ?)", (key, len(content), bytes(content))
        )
        file.execute(
            "UPDATE page SET blob = ? WHERE call = ? AND allocation = ? AND offset = ?",
            (row.lastrowid, call, page.allocation, page.offset),
        )
    file.close()
    return call


@pytest.mark.nightly
def test_a_fill_that_is_off_is_the_runtime() -> None:
    status, found = isolate(CORPUS / "histogram" / "trace.bin", "cpu", "fills_with_another_value")
    assert (status, found["layer"], found["sure"]) == (1, "runtime", "certain")
    assert "cuMemsetD" in found["reason"] and "count" in found["kernel"]


@pytest.mark.nightly
def test_a_damaged_record_is_the_record(tmp_path: Path, shared_cache: None) -> None:
    """The copy that the program made afterwards delivered other bytes than the trace has now."""
    trace = tmp_path / "trace.bin"
    shutil.copy(CORPUS / "saxpy" / "trace.bin", trace)
    call = damage(trace, "scale")
    status, found = isolate(trace, "cpu")
    assert (status, found["layer"], found["call"]) == (1, "record", call)
    assert "delivered other bytes" in found["reason"]
    assert found["sure"] == "certain"


def test_a_launch_that_is_not_translated_is_of_the_lowering(tmp_path: Path) -> None:
    """Nothing of it was judged, so nothing fails; but it is known what has to be mended."""
    Program(tmp_path / "trace.bin", MULTICAST).run_among_others()
    status, found = isolate(tmp_path / "trace.bin", "cpu")
    assert (status, found["layer"], found["kernel"]) == (1, "lowering", "other")
    assert found["verdict"] == "unsupported" and "multimem.red" in found["reason"]


def test_where_nothing_fails_nothing_is_at_fault(shared_cache: None) -> None:
    status, found = isolate(CORPUS / "saxpy" / "trace.bin", "cpu")
    assert (status, found["layer"]) == (0, "none")
