"""The table of driver functions, and its packed form for the agent."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from zluda.driver.table import driver_api
from zluda.replay.names import entry_name
from zluda.trace import spec
from zluda.tracefile import ring

CUDA = Path("/usr/local/cuda")
ROOT = Path(__file__).parents[2]


def row(name: str) -> dict[str, object]:
    found: dict[str, object] = driver_api()["functions"][name]
    return found


def test_every_form_of_an_entry_has_its_base() -> None:
    for name in ("cuMemcpyHtoDAsync_v2_ptsz", "cuMemcpyHtoDAsync_v2", "cuMemcpyHtoDAsync"):
        assert row(name)["base"] == "cuMemcpyHtoDAsync"
        assert row(name)["special"] == "copy_h2d_async"


def test_forms_with_the_threads_own_default_stream_mean_what_the_plain_forms_mean() -> None:
    functions = driver_api()["functions"]
    bases = {name: entry_name(name).base for name in functions}
    assert {name: found["base"] for name, found in functions.items()} == bases
    for name, found in functions.items():
        plain = functions.get(re.sub(r"_pt(sz|ds)$", "", name), found)
        assert _meaning(found) == _meaning(plain), name


def _meaning(function: dict[str, Any]) -> list[object]:
    """All but the parameters' names, which differ here and there in CUDA's headers."""
    parameters = [{k: v for k, v in p.items() if k != "name"} for p in function["parameters"]]
    return [function["effect"], function["replay"], function.get("special"), parameters]


@pytest.mark.parametrize(
    ("name", "effect", "replay"),
    [
        ("cuLaunchKernel", "effect", True),
        ("cuMemAlloc_v2", "effect", True),
        ("cuGraphLaunch", "effect", True),
        ("cuDeviceGetAttribute", "query", False),
        ("cuModuleGetFunction", "effect", True),
        ("cuMemAdvise", "hint", False),
        ("cuGetExportTable", "effect", False),
    ],
)
def test_what_a_call_means(name: str, effect: str, replay: bool) -> None:
    assert (row(name)["effect"], row(name)["replay"]) == (effect, replay)


def test_arguments_after_a_structure_passed_by_value() -> None:
    # System V ABI: the 64-byte handle lies on the stack, the flags in the second register
    parameters = row("cuIpcOpenMemHandle_v2")["parameters"]
    assert [p["slot"] for p in parameters] == [0, 6, 1]  # type: ignore[attr-defined]


def test_packed_functions_fit_the_agents_structures() -> None:
    rows = spec.functions(["cuLaunchKernel", "cuNobodyDeclaresThis"])
    unknown = [row for row in rows if "library" not in row][-1]
    assert unknown["name"] == "cuNobodyDeclaresThis" and unknown["unknown"]
    assert len(spec.pack(rows)) == len(rows) * spec.FUNCTION_BYTES
    assert max(len(row["parameters"]) for row in rows) <= spec.MAX_PARAMETERS


def test_every_special_case_is_known_to_the_agent() -> None:
    used = {row["special"] for row in spec.functions() if "special" in row}
    assert used == set(spec.SPECIALS) - {"none"}
    source = spec.c_source()
    for name in used - {"proc_address"}:  # which is the drain's alone
        assert f"SPECIAL_{name.upper()}" in source


def test_the_layout_is_given_to_the_agent_as_it_is_here() -> None:
    source = ring.c_defines()
    assert f"#define SLOT_BYTES {ring.SLOT_BYTES}ULL\n" in source
    assert f"#define RING_HEAD {ring.RING['HEAD']}ULL\n" in source
    names = [line.split()[1] for line in source.splitlines()]
    assert len(names) == len(set(names))


@pytest.mark.skipif(
    not (CUDA / "include" / "cuda.h").exists() or shutil.which("gcc") is None,
    reason=f"needs gcc and CUDA's headers in {CUDA / 'include'}: the table is not held against them",
)
def test_the_table_is_what_the_generator_makes_of_the_headers(tmp_path: Path) -> None:
    output = tmp_path / "driver_api.json"
    script = ROOT / "scripts" / "generate_driver_api.py"
    subprocess.run([sys.executable, str(script), "--output", str(output)], check=True, capture_output=True)
    import json

    made = json.loads(output.read_text())
    if made["cuda_version"] != driver_api()["cuda_version"]:
        pytest.skip(
            f"the table is of CUDA {driver_api()['cuda_version']}, the headers here of"
            f" {made['cuda_version']}: scripts/generate_driver_api.py makes theirs"
        )
    assert made == driver_api()


def test_functions_of_words_alone_are_called_without_fridas_hook() -> None:
    rows = {one["name"]: one for one in spec.functions(["cuNotDeclared"])}
    words = spec.thin_of_driver(list(rows.values()))
    assert words["cuCtxSynchronize"] == words["cuMemAlloc_v2"] == 0
    assert words["cuLaunchKernel"] == 5  # of eleven parameters
    for name in ("cuParamSetf", "cuIpcOpenMemHandle_v2", "cuNotDeclared", "cublasCreate_v2"):
        assert name not in words  # a float, a structure by value, unknown, not the driver's
    cublas = next(one for one in spec.libraries(list(rows.values())) if one["name"] == "cuBLAS")
    assert cublas["thin"]["cublasGemmEx"] == 13
