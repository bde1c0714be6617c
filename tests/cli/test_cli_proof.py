"""What ``zluda info``, ``dump`` and ``replay --learn-noise`` say of a trace that was run again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from zluda.cli.main import command
from zluda.diff.proof import First, Proof
from zluda.errors import TraceError
from zluda.report.proof import sentence
from zluda.tracefile import Noise, NoiseKind, Parameter, TraceWriter, Unproved

COUNTS = {"identical": 412, "noise": 2, "not-compared": 1}
PROOF = Proof(True, "", "NVIDIA H200", 13000, 2, 1.5, COUNTS, {"identical": 3}, ("_Z4histv",))
MASK = bytes([0b1011])
NOISE = Noise(0, 1, NoiseKind.ELEMENTS, "f32", 0, 8, 0, 0, 2.5, 1e-7, True, 2)
SET = NOISE._replace(allocation=2, kind=NoiseKind.SET, element_type="u32", row_bytes=8)


def run(*line: str) -> Result:
    return CliRunner().invoke(command, line)


@pytest.fixture
def path(tmp_path: Path) -> str:
    path = tmp_path / "trace.bin"
    with TraceWriter.create(path, {"proof": PROOF.to_json()}) as writer:
        launch = writer.signature("cuLaunchKernel", [Parameter("f", "CUfunction")])
        writer.add_calls([(n, 1, None, launch, 0, 1, 0, bytes(8)) for n in range(2)])
        shape = writer.shape(writer.add_function(0, 7, "_Z4histv", module=None), (1, 1, 1), (32, 1, 1))
        writer.add_launch(0, shape, b"")
        for base in (4096, 8192):
            writer.add_allocation(0, base, 64)
        writer.set_proof(
            [Unproved(0, "noise", "red.add.f32"), Unproved(1, "gap", "no\x1b image")],
            [(NOISE, MASK), (SET, MASK)],
        )
    return str(path)


@pytest.mark.parametrize(
    ("proof", "words"),
    [
        (PROOF, "proved: 412 of 415 launches identical twice, 2 noise (hist()), 1 not-compared"),
        (Proof(False, "no\x1b GPU"), r"not proved: no\x1b GPU"),
        (
            Proof(True, runs=5, launches={"identical": 1, "differs": 1}, first=First(7, "k", "differs", "x")),
            "not proved: 1 of 2 launches identical 5 times, 1 differs; first #7 k: differs, x",
        ),
        (
            Proof(True, runs=1, launches={"identical": 1}, copies={"inherited": 2}),
            "not proved: 1 of 1 launch identical once, 2 copies inherited",
        ),
        (Proof(True, runs=2, launches={"gap": 1}), "not proved: 0 of 1 launch identical twice, 1 gap"),
        (
            Proof(True, runs=2, launches={"identical": 1, "of later": 1}),
            "proved: 1 of 2 launches identical twice, 1 of later",
        ),
    ],
)
def test_a_proof_in_a_line(proof: Proof, words: str) -> None:
    assert sentence(proof) == words
    assert Proof.of({"proof": proof.to_json()}, "") == proof


@pytest.mark.parametrize("value", [3, [], {"done": True}, {"done": False}, {"done": True, "first": 1}])
def test_a_damaged_proof_is_an_error(value: object) -> None:
    with pytest.raises(TraceError, match=r"a\.bin: damaged: the proof"):
        Proof.of({"proof": value}, "a.bin")


def test_info_shows_it(path: str) -> None:
    text = run("info", path).output
    assert f"  Proof: {sentence(PROOF)}\n" in text
    assert "Not identical when run again:\n  #0  hist()  noise  red.add.f32\n" in text
    found = json.loads(run("info", path, "--json").output)
    assert found["meta"]["proof"]["runs"] == 2
    assert [row["kernel"] for row in found["unproved"]] == ["_Z4histv", "cuLaunchKernel"]


def test_dump_lists_what_varies(path: str) -> None:
    assert run("dump", path, "--proof").output == (
        "#0 noise: red.add.f32\n"
        "  allocation 1: 3 f32 vary, at most 2.5 ULP, at most 1e-07, NaN among them\n"
        "  allocation 2: rows of 8 bytes in any order (3 u32 moved)\n"
        "#1 gap: no\\x1b image\n"
    )
    chosen = run("dump", path, "--proof", "--select", "kernel:hist", "--json").output
    (row,) = map(json.loads, chosen.splitlines())
    assert (row["call"], [one["max_ulp"] for one in row["noise"]]) == (0, [2.5, 2.5])


def test_noise_is_learnt_on_nvidia_only(path: str) -> None:
    result = run("replay", path, "--device", "cpu", "--learn-noise")
    assert result.exit_code != 0
    assert "give --device cuda:N" in str(result.exception)
    result = run("replay", path, "--device", "cuda:0", "--learn-noise", "--repeat", "3")
    assert (result.exit_code, "not proved: device cuda" in result.output) == (2, True)
    result = run("replay", path, "--repeat", "3")
    assert (result.exit_code, "--learn-noise" in result.output) == (2, True)
