"""Pages say what is true of the tree: links lead somewhere, commands exist, numbers agree."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy
import pytest

from zluda.cli.main import VERBS
from zluda.diff.results import Verdict

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#:]+)\)", page.read_text())
    missing = [target for target in targets if not (page.parent / target).exists()]
    assert not missing


def test_make_targets_named_exist() -> None:
    known = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for page in PAGES:
        for line in re.findall(r"`make ([a-z -]+)`|^make ([a-z-]+)", page.read_text(), re.MULTILINE):
            assert set((line[0] or line[1]).split()) <= known, (page.name, line)


def test_readme_opens_with_the_two_commands() -> None:
    text = (ROOT / "README.md").read_text()
    assert re.search(r"```\nmake demo .*\nmake test .*\n```", text)
    assert text.index("make demo") < 300


def test_verbs_named_in_the_readme_exist() -> None:
    used = set(re.findall(r"^zluda ([a-z]+)", (ROOT / "README.md").read_text(), re.MULTILINE))
    assert used and used <= set(VERBS)


def test_the_page_of_verdicts_has_every_verdict() -> None:
    text = (ROOT / "docs" / "verdicts.md").read_text()
    for verdict in Verdict:
        assert f"`{verdict.value}`" in text


def test_readme_counts_the_forms_that_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "tests" / "conformance"))
    from isa_forms import all_forms

    assert f"{len(all_forms()):,}" in (ROOT / "README.md").read_text()


def test_readmes_python_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    (tmp_path / "corpus").symlink_to(ROOT / "corpus")
    (tmp_path / "saxpy.ptx").write_text(SAXPY)
    monkeypatch.chdir(tmp_path)
    scope: dict[str, Any] = {}
    exec(code, scope)
    assert scope["result"].verdict.value == "identical"
    numpy.testing.assert_array_equal(scope["y"].numpy(), 3 * numpy.arange(1000, dtype=numpy.float32))


def test_generated_pages_are_up_to_date() -> None:
    command = [sys.executable, str(ROOT / "scripts" / "generate_docs.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_help_lists_every_target() -> None:
    text = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    targets = ["setup", "demo", "test", "test-fast", "lint", "types", "imports", "bench", "docs", "corpus"]
    for target in targets:
        assert f"make {target} " in text


SAXPY = """\
.version 9.0
.target sm_90
.address_size 64
.visible .entry saxpy(.param .u32 n, .param .f32 a, .param .u64 x, .param .u64 y)
{
    .reg .pred %p;
    .reg .b32 %i, %n, %b, %t;
    .reg .f32 %a, %x, %y;
    .reg .b64 %px, %py, %o;
    ld.param.u32 %n, [n];
    ld.param.f32 %a, [a];
    ld.param.u64 %px, [x];
    ld.param.u64 %py, [y];
    mov.u32 %i, %ctaid.x;
    mov.u32 %b, %ntid.x;
    mov.u32 %t, %tid.x;
    mad.lo.s32 %i, %i, %b, %t;
    setp.ge.s32 %p, %i, %n;
    @%p ret;
    mul.wide.s32 %o, %i, 4;
    add.s64 %px, %px, %o;
    add.s64 %py, %py, %o;
    ld.global.f32 %x, [%px];
    ld.global.f32 %y, [%py];
    fma.rn.f32 %y, %a, %x, %y;
    st.global.f32 [%py], %y;
    ret;
}
"""
