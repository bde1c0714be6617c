"""Marks of tests that need a tool which not every machine has: one reason each, so that it reads the same
everywhere.
"""

from __future__ import annotations

import shutil

import pytest

ptxas = pytest.mark.skipif(
    shutil.which("ptxas") is None,
    reason="ptxas is not on PATH (CUDA toolkit): only its recorded verdicts are held against, not itself",
)
