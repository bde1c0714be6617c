"""The worked example of CONTRIBUTING.md works as it is written."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import zluda
from zluda.compiler.lower.families import LANEWISE

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text()


def _block(language: str, word: str) -> str:
    found = [code for code in re.findall(rf"```{language}\n(.*?)```", TEXT, re.DOTALL) if word in code]
    assert len(found) == 1, word
    return found[0]


@pytest.fixture
def launch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run step 2's program; the value it prints."""
    (tmp_path / "sad.ptx").write_text(_block("ptx", "vabsdiff4"))
    monkeypatch.chdir(tmp_path)

    def run() -> int:
        scope: dict[str, Any] = {}
        exec(_block("python", "open_device"), scope)
        value = int(scope["x"].numpy()[0])
        scope["device"].close()
        return value

    return run


@pytest.fixture(autouse=True)
def refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The instruction is not there yet."""
    monkeypatch.delitem(LANEWISE, "vabsdiff4")


@pytest.fixture
def lowered(refused: None) -> None:
    """The lowering of step 4, registered for one test."""
    exec(_block("python", '@lanewise("vabsdiff4")'), {})


def test_the_instruction_is_refused_by_name_before(launch: Any) -> None:
    with pytest.raises(zluda.UnsupportedError, match="vabsdiff4"):
        launch()


def test_the_program_runs_with_the_lowering(launch: Any, lowered: None) -> None:
    assert launch() == 8


def test_the_examples_own_test_passes(lowered: None) -> None:
    scope: dict[str, Any] = {}
    exec(_block("python", "lane_harness"), scope)
    scope["test_vabsdiff4_sums_byte_differences"]()


def test_the_conformance_row_is_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "tests" / "conformance"))
    from isa_forms.form import rows

    scope: dict[str, Any] = {"forms": [], "rows": rows, "FAMILY": "integer"}
    exec(_block("python", "forms +="), scope)
    assert [form.name for form in scope["forms"]] == ["vabsdiff4.u32.u32.u32.add"]


def test_paths_named_exist() -> None:
    paths = set(re.findall(r"`((?:zluda|tests|scripts|corpus|docs)/[\w./]+)`", TEXT))
    created_by_the_reader = {"tests/compiler/lower/test_video.py"}
    missing = sorted(p for p in paths - created_by_the_reader if not (ROOT / p).exists())
    assert not missing
