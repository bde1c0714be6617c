"""The seeded bugs of ``bench/detect``: each is where its text says, and the score is counted rightly."""

from __future__ import annotations

import importlib.util
import sys
from itertools import islice
from pathlib import Path

import pytest
from seeding import Change
from seeding.table import FAULTS

sys.path.append(str(Path(__file__).resolve().parents[2]))

from bench.detect.__main__ import score, table
from bench.detect.bugs import BUGS, HARDWARE, LOWERING, Bug
from bench.detect.drawing import drawn, machine_rows
from bench.detect.programs import PROGRAMS, computed, inputs_of
from bench.detect.running import Found, look, names


@pytest.mark.parametrize(
    "changes",
    [pytest.param(bug.changes, id=bug.name) for bug in BUGS]
    + [pytest.param(changes, id=name) for name, changes in FAULTS.items()],
)
def test_a_change_is_of_one_place(changes: tuple[Change, ...]) -> None:
    for change in changes:
        spec = importlib.util.find_spec(change.module)
        assert spec is not None and spec.origin is not None
        source = Path(spec.origin).read_text()
        assert source.count(change.old) == 1
        compile(source.replace(change.old, change.new), spec.origin, "exec")


def test_names_of_bugs_and_their_instructions() -> None:
    assert len({bug.name for bug in BUGS}) == len(BUGS) >= 20
    for bug in BUGS:
        program = PROGRAMS.get(bug.program)
        for instruction in bug.instructions:
            assert program is not None and instruction in program.ptx, bug.name


@pytest.mark.parametrize("name", ["barriers", "partners", "images"])
def test_an_emulated_gpu_leaves_what_the_cpu_leaves(name: str) -> None:
    """Whatever order it runs warps in: what is found of a bug is the bug's."""
    program, data = PROGRAMS[name], inputs_of(name)
    assert computed(program, data, "gfx1030") == computed(program, data)


def test_a_program_of_two_images_is_loaded_as_the_newer() -> None:
    from zluda.ptx.containers import best_ptx

    image = PROGRAMS["images"].image
    assert isinstance(image, bytes)
    older, newer = (best_ptx(image, architecture) for architecture in (80, 90))
    assert older is not None and "mov.u32 %r21, 70" in older.text
    assert newer is not None and newer.text == PROGRAMS["images"].ptx


def test_an_instruction_is_named_by_its_beginning() -> None:
    assert names(("clz.b64",), "clz.b64 %r1, %d1;")
    assert names(("shfl",), "@%p1 shfl.sync.down.b32 %r1, %r2, 1, 31, -1;")
    assert not names(("clz.b64",), "clz.b32 %r1, %r2;")
    assert not names(("shf",), "shfl.sync.down.b32 %r1, %r2, 1, 31, -1;")
    assert not names((), "add.u32 %r1, %r2, %r3;")


BUG = Bug("one", "bits", LOWERING, ("clz.b64",), (Change("m", "a", "b"),))


def test_the_score_counts_what_is_right_of_what_is_asked() -> None:
    right = Found(BUG, "differs", LOWERING, "clz.b64 %r1, %d1;", "", 1.0)
    silent = Found(BUG, "", "none", "", "", 1.0)
    runtime = Found(
        Bug("two", "bits", "runtime", (), (Change("m", "a", "b"),)), "differs", HARDWARE, "", "", 1.0
    )
    told = score("all", [right, silent, runtime])
    assert told == "all: flagged 2 of 3 (67 %), layer 1 of 3 (33 %), instruction 1 of 2 (50 %)"
    assert "| two | runtime | yes | **no** | – | hardware unit |" in table([runtime])


def test_drawing_repeats_and_never_draws_twice() -> None:
    bugs = {
        ("lowering", "bits"): [BUG],
        ("emulator", "bits"): [BUG, Bug("two", "bits", HARDWARE, (), (Change("m", "c", "d"),))],
    }
    first, second = (list(islice(drawn(bugs, 7), 2)) for _ in range(2))
    assert first == second and first[0] != first[1]


def test_machine_code_is_attributed_to_opcodes() -> None:
    assert machine_rows(PROGRAMS["bits"].ptx)["v_bfrev_b32"] == {"brev"}


def test_a_program_is_computed_as_its_instructions_say() -> None:
    program, data = PROGRAMS["integers"], inputs_of("integers")
    result = computed(program, data)
    first, quotient = (int.from_bytes(one[:4], "little", signed=True) for one in (data, result))
    assert quotient == int(first / 7)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("v_bfrev_b32 forgets the lowest bit", marks=pytest.mark.nightly),
        pytest.param("a copy to the device stops short", marks=pytest.mark.nightly),
        pytest.param("the oldest image of a fatbin is taken", marks=pytest.mark.nightly),
        pytest.param("f32 subnormals are flushed by the kernel's mode", marks=pytest.mark.nightly),
        pytest.param("a copy on the device stops short", marks=pytest.mark.slow),
        pytest.param("clz of 64 bits counts the low word", marks=pytest.mark.slow),
        pytest.param("every rounding is to nearest", marks=pytest.mark.nightly),
    ],
)
def test_a_seeded_bug_is_found(name: str, tmp_path: Path) -> None:
    bug = next(bug for bug in BUGS if bug.name == name)
    found = look(bug, tmp_path)
    assert found.layer_right, found
    assert found.instruction_right or not bug.instructions
