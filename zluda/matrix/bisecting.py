"""Which commit changed what a trace replays as: ``git bisect`` over worktrees, a replay at each step.

A trace holds all that a replay needs, so a commit is asked by nothing but its own sources and the trace.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from zluda.errors import Error
from zluda.matrix.states import quality
from zluda.records import dataclass

_CULPRIT = re.compile(r"^([0-9a-f]{40,64}) is the first", re.MULTILINE)
_CANNOT_TELL = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A replay to be made at each commit: the options of ``zluda replay``. ``select`` narrows it."""

    trace: Path
    device: str
    numerics: str | None = None
    select: str = ""
    seconds: float = 600

    @property
    def arguments(self) -> list[str]:
        """Of ``zluda``."""
        found = ["replay", str(self.trace.resolve()), "--device", self.device]
        found += ["--numerics", self.numerics] if self.numerics else []
        return found + (["--select", self.select] if self.select else [])


@dataclass(frozen=True, slots=True)
class Answer:
    """What a commit's replay came to: a verdict, or ``unknown`` with why."""

    commit: str
    verdict: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Culprit:
    """The first commit that is bad, and all that was asked on the way."""

    commit: str
    subject: str
    author: str
    date: str
    asked: tuple[Answer, ...]

    def to_json(self) -> dict[str, object]:
        """For ``--json``."""
        asked = [{"commit": one.commit, "verdict": one.verdict, "reason": one.reason} for one in self.asked]
        return {
            "commit": self.commit,
            "subject": self.subject,
            "author": self.author,
            "date": self.date,
            "asked": asked,
        }


def bisect(
    question: Question,
    repository: Path,
    good: str,
    bad: str = "HEAD",
    *,
    told: Callable[[Answer], None] = lambda answer: None,
) -> Culprit:
    """The first commit after ``good`` up to ``bad`` whose replay is worse than that of ``good``.

    The working tree is left alone. A commit that does not run at all is skipped. Raises :class:`Error` where
    ``bad`` is not worse than ``good``, where one of them does not run, or where what was skipped hides it.
    """
    first, last = (_git(repository, "rev-parse", "--verify", f"{name}^{{commit}}") for name in (good, bad))
    asked: list[Answer] = []

    def ask(tree: Path) -> Answer:
        answer = replayed(question, tree)
        asked.append(answer)
        told(answer)
        return answer

    with _worktree(repository, first) as tree:
        was = ask(tree)
        _git(tree, "checkout", "--quiet", "--detach", last)
        now = ask(tree)
        for answer, name in ((was, good), (now, bad)):
            if answer.verdict == _CANNOT_TELL:
                raise Error(
                    f"{name} ({answer.commit[:10]}) does not replay {question.trace}: {answer.reason}"
                )
        if not _worse(now, was):
            raise Error(f"{bad} is not worse than {good}: {was.verdict} before, {now.verdict} now")
        said = _git(tree, "bisect", "start", last, first)
        while (found := _CULPRIT.search(said)) is None:
            answer = ask(tree)
            word = "skip" if answer.verdict == _CANNOT_TELL else "bad" if _worse(answer, was) else "good"
            said = _git(tree, "bisect", word, may_fail=word == "skip")
            if "cannot bisect more" in said or "only 'skip'ped" in said:
                raise Error(f"cannot tell, since commits do not run: {' '.join(said.split())}")
        commit = found[1]
    subject, author, date = _git(repository, "show", "-s", "--format=%s%n%an%n%as", commit).splitlines()
    return Culprit(commit, subject, author, date, tuple(asked))


def replayed(question: Question, tree: Path) -> Answer:
    """What the sources in ``tree`` make of the question, in a process of this Python."""
    commit = _git(tree, "rev-parse", "HEAD")
    command = [sys.executable, "-m", "zluda", *question.arguments, "--json"]
    paths = os.pathsep.join(filter(None, [str(tree), os.environ.get("PYTHONPATH", "")]))
    try:
        done = subprocess.run(
            command,
            cwd=tree,
            env={**os.environ, "PYTHONPATH": paths},
            capture_output=True,
            text=True,
            errors="replace",
            timeout=question.seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Answer(commit, "hang", f"no end after {question.seconds:g} s")
    try:
        told = json.loads(done.stdout)
        first = told["first_divergence"] or {}
        where = f"#{first['call']} {first['kernel']}" if first else ""
        return Answer(commit, str(told["verdict"]), where)
    except (ValueError, KeyError):
        lines = done.stderr.strip().splitlines() or [f"ended with status {done.returncode}"]
        return Answer(commit, _CANNOT_TELL, lines[-1])


def _worse(answer: Answer, than: Answer) -> bool:
    return quality(answer.verdict) < quality(than.verdict)


@contextmanager
def _worktree(repository: Path, commit: str) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="zluda-bisect-") as scratch:
        tree = Path(scratch) / "tree"
        _git(repository, "worktree", "add", "--quiet", "--detach", str(tree), commit)
        try:
            yield tree
        finally:
            _git(repository, "worktree", "remove", "--force", str(tree))


def _git(place: Path, *arguments: str, may_fail: bool = False) -> str:
    try:
        done = subprocess.run(
            ["git", "-C", str(place), *arguments], capture_output=True, text=True, check=False
        )
    except OSError as error:
        raise Error(f"git: {error.strerror or error}") from None
    said = f"{done.stdout}\n{done.stderr}".strip() if arguments[0] == "bisect" else done.stdout.strip()
    if done.returncode != 0 and not may_fail:
        raise Error(f"git {' '.join(arguments)}: {(done.stderr or said).strip().splitlines()[-1]}")
    return said
