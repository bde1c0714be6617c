"""Which commit broke a lowering: found by replaying a trace at commits of a repository."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import zluda
from zluda.errors import Error
from zluda.matrix.bisecting import Answer, Question, bisect

ROOT = Path(zluda.__file__).parents[1]
TRACE = ROOT / "corpus" / "saxpy" / "trace.bin"
LOWERING = Path("zluda/compiler/lower/floating.py")
RIGHT = 'return b.binary(f"f{op}", xs[0], xs[1])'
WRONG = 'return b.binary({"mul": "fadd"}.get(op, f"f{op}"), xs[0], xs[1])'


def _git(repository: Path, *arguments: str) -> str:
    identity = {
        f"GIT_{who}_{what}": "someone" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
    }
    done = subprocess.run(
        ["git", "-C", str(repository), *arguments],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, **identity},
    )
    return done.stdout.strip()


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """zluda's sources in six commits: the third breaks a lowering, the fourth does not start."""
    place = tmp_path_factory.mktemp("repository")
    shutil.copytree(ROOT / "zluda", place / "zluda", ignore=shutil.ignore_patterns("__pycache__"))
    _git(place, "init", "-q")
    lowering, start = place / LOWERING, place / "zluda" / "errors.py"
    assert lowering.read_text().count(RIGHT) == 1
    changes = [
        ("Begin", lambda: None),
        ("Change nothing", lambda: (place / "notes").write_text("1")),
        ("Multiply by adding", lambda: lowering.write_text(lowering.read_text().replace(RIGHT, WRONG))),
        ("Do not start", lambda: start.write_text(start.read_text() + "\nraise RuntimeError('no')\n")),
        ("Start again", lambda: start.write_text((ROOT / "zluda" / "errors.py").read_text())),
        ("Note more", lambda: (place / "notes").write_text("2")),
    ]
    commits = []
    for subject, change in changes:
        change()
        _git(place, "add", "-A")
        _git(place, "commit", "-q", "--allow-empty", "-m", subject)
        commits.append(_git(place, "rev-parse", "HEAD"))
    return place, commits


@pytest.mark.slow
@pytest.mark.usefixtures("shared_cache")
def test_names_the_commit_that_broke_a_lowering(repository: tuple[Path, list[str]]) -> None:
    place, commits = repository
    told: list[Answer] = []
    found = bisect(Question(trace=TRACE, device="cpu"), place, commits[0], told=told.append)
    assert (found.commit, found.subject, found.author) == (commits[2], "Multiply by adding", "someone")
    verdicts = {answer.commit: answer.verdict for answer in told}
    assert verdicts[commits[0]] == "identical" and verdicts[commits[-1]] == "differs"
    assert (
        _git(place, "status", "--porcelain") == "" and len(_git(place, "worktree", "list").splitlines()) == 1
    )


@pytest.mark.usefixtures("shared_cache")
def test_refuses_a_question_without_an_answer(repository: tuple[Path, list[str]]) -> None:
    place, commits = repository
    question = Question(trace=TRACE, device="cpu")
    with pytest.raises(Error, match=r"is not worse than .*: identical before, identical now"):
        bisect(question, place, commits[0], commits[1])
    with pytest.raises(Error, match=r"does not replay .*RuntimeError: no"):
        bisect(question, place, commits[0], commits[3])
    with pytest.raises(Error, match="git rev-parse"):
        bisect(question, place, "nosuch")


@pytest.mark.slow
@pytest.mark.usefixtures("shared_cache")
def test_a_night_with_a_broken_lowering_runs_what_it_touches_and_turns_that_red(
    repository: tuple[Path, list[str]], tmp_path: Path
) -> None:
    place, commits = repository
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    for name in ("saxpy", "reduction"):
        (corpus / f"{name}.bin").symlink_to(ROOT / "corpus" / name / "trace.bin")
    options = [
        "--corpus",
        str(corpus),
        "--store",
        str(tmp_path / "nights.db"),
        "--device",
        "cpu",
        "--samples",
        "0",
    ]

    def matrix(tree: Path, *arguments: str) -> str:
        command = [sys.executable, "-m", "zluda", "matrix", *arguments]
        return subprocess.run(
            command, cwd=tree, capture_output=True, text=True, timeout=200, check=False
        ).stdout

    for number, commit in enumerate((commits[1], commits[2]), 1):
        tree = tmp_path / f"tree-{number}"
        _git(place, "worktree", "add", "-q", "--detach", str(tree), commit)
        said = matrix(tree, "run", *options)
        _git(place, "worktree", "remove", "--force", str(tree))
    assert (
        "✗ saxpy on cpu, nvidia: differs" in said
        and "reduction on cpu, nvidia: identical (taken over)" in said
    )
    compared = json.loads(matrix(ROOT, "compare", "last-1", "--json", *options[2:4]))
    assert [(cell["change"], cell["program"], cell["code_changed"]) for cell in compared["cells"]] == [
        ("regressed", "saxpy", True)
    ]
