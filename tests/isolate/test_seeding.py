"""Seeding of faults (``tests/support/seeding``): what it changes, and that the user's kernel cache is not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from seeding import Change, environment, run
from seeding.table import FAULTS

SUMS = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry sums(.param .u64 at)
{
    .reg .f32 %f<4>;
    .reg .b64 %d<2>;
    ld.param.u64 %d1, [at];
    ld.global.f32 %f1, [%d1];
    add.f32 %f2, %f1, 0f40000000;
    st.global.f32 [%d1], %f2;
    ret;
}
"""

SCRIPT = """
import json, sys
import numpy, zluda
device = zluda.open_device("cpu", isolate=len(sys.argv) > 2)
at = device.array(numpy.array([5], numpy.float32))
device.load_module(sys.argv[1]).kernel("sums").launch(grid=(1, 1, 1), block=(1, 1, 1), args=[at])
print(json.dumps(float(at.numpy()[0])))
"""
"""``5 + 2`` by a kernel; in a runner process, where there is another argument."""

ADD_IS_SUB = FAULTS["add_is_sub"]


@pytest.fixture
def users_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory that the environment names, with the right code of the kernel in it."""
    monkeypatch.setenv("ZLUDA_CACHE_DIR", str(tmp_path / "user"))
    monkeypatch.setenv("ZLUDA_CACHE_POLICY", "normal")
    assert unseeded() == 7
    assert contents(tmp_path / "user")
    return tmp_path / "user"


def unseeded() -> float:
    done = subprocess.run([sys.executable, "-c", SCRIPT, SUMS], capture_output=True, text=True, check=True)
    return float(json.loads(done.stdout))


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_hook_alone_changes_nothing() -> None:
    assert run(FAULTS["nothing"], SCRIPT, SUMS) == 7


@pytest.mark.parametrize("where", [(), ("runner",)], ids=["process", "runner"])
def test_a_seeded_process_neither_reads_nor_fills_the_user_s_cache(
    users_cache: Path, where: tuple[str, ...]
) -> None:
    """It has wrong code, so it did not find the right code there; and the next one has right code again."""
    before = contents(users_cache)
    assert run(ADD_IS_SUB, SCRIPT, SUMS, *where) == 3
    assert contents(users_cache) == before
    assert unseeded() == 7


def test_each_fault_has_a_cache_of_its_own(users_cache: Path, tmp_path: Path) -> None:
    before, own = contents(users_cache), tmp_path / "own"
    for _ in range(2):
        assert run(ADD_IS_SUB, SCRIPT, SUMS, cache=own) == 3
        assert run(FAULTS["nothing"], SCRIPT, SUMS, cache=own) == 7
    assert contents(users_cache) == before
    assert len(list(own.iterdir())) == 2 and contents(own)


def test_a_caller_cannot_lead_it_to_another_cache(users_cache: Path) -> None:
    """Neither by variables of the environment that are set after it was made."""
    before = contents(users_cache)
    late: Any = environment(ADD_IS_SUB) | {
        "ZLUDA_CACHE_DIR": str(users_cache),
        "ZLUDA_CACHE_POLICY": "aggressive",
    }
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, SUMS], env=late, capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == 3
    assert contents(users_cache) == before


def test_a_text_that_is_not_there_is_an_error() -> None:
    gone = Change("zluda.compiler.lower.floating", "this is nowhere", "")
    with pytest.raises(AssertionError, match="has 0 times 'this is nowhere', expected once"):
        run((gone,), SCRIPT, SUMS)


def test_several_changes_of_one_module_and_of_others_hold_together() -> None:
    twice = (
        *ADD_IS_SUB,
        Change("zluda.compiler.lower.floating", "_SCALE = 2.0**64", "_SCALE = 2.0**65"),
        Change("zluda.diff.blame", 'ABSENT = "absent"', 'ABSENT = "here"'),
    )
    assert run(twice, ASK) == [2.0**65, "here"]


ASK = """
import json
from zluda.compiler.lower import floating
from zluda.diff import blame
print(json.dumps([floating._SCALE, blame.ABSENT]))
"""
