"""What decides a verdict: that the digests see what they must, and nothing that means nothing."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import zluda
from zluda.compiler import cache
from zluda.compiler.cache.store import Store
from zluda.matrix.identity import MAKES_CODE, code_of, environment, runtime_modules

ROOT = Path(zluda.__file__).parent
CORPUS = ROOT.parent / "corpus"


def test_the_compilers_modules_that_devices_run_count_and_those_that_make_code_do_not() -> None:
    found = set(runtime_modules())
    assert {"zluda.compiler.cpu.runtime", "zluda.compiler.tensor_map", "zluda.compiler.amd.linker"} <= found
    assert not found & MAKES_CODE and "zluda.compiler.amd.compile" not in found
    for name in MAKES_CODE:  # none of them is misspelt
        assert importlib.util.find_spec(name) is not None, name


def test_the_emitted_code_is_the_same_each_time_and_another_for_another_device(tmp_path: Path) -> None:
    trace = CORPUS / "saxpy" / "trace.bin"
    with cache.using(Store(tmp_path, 64 << 20)):
        first = code_of(trace, "gfx1030", "native")
        assert set(first.kernels) == {"_Z5saxpyifPKfPf", "_Z5scaleifPf"} and all(first.kernels.values())
        assert code_of(trace, "gfx1030", "native") == first
        others = [code_of(trace, "gfx1100", "native"), code_of(trace, "cpu", "nvidia")]
    assert len({code.digest for code in (first, *others)}) == 3


def test_the_emitted_code_does_not_depend_on_the_process(tmp_path: Path) -> None:
    trace = CORPUS / "saxpy" / "trace.bin"
    found = []
    for place in ("one", "two"):  # with nothing in the cache
        with cache.using(Store(tmp_path / place, 64 << 20)):
            found.append([code_of(trace, device, "native").digest for device in ("cpu", "gfx1030")])
    assert found[0] == found[1]


def test_an_emulated_device_names_its_disassembler() -> None:
    assert "disassembler" in environment("gfx1030") and "disassembler" not in environment("cpu")
