"""The progress bar: where somebody can see it."""

from __future__ import annotations

import sys

import pytest

from zluda.cli.progress import progress_bar


@pytest.mark.parametrize(
    ("terminal", "term", "shown"),
    [(True, "xterm-256color", True), (True, "dumb", False), (True, "DUMB", False), (False, "xterm", False)],
)
def test_a_bar_is_drawn_where_lines_can_be_rewritten(
    terminal: bool,
    term: str,
    shown: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("TERM", term)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    with progress_bar("replay", "calls") as progress:
        assert (progress is not None) == shown
        if progress is not None:
            progress(1, 2)
    assert bool(capsys.readouterr().err) == shown
