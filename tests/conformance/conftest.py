"""``--forms REGEX`` narrows the conformance tests to some forms."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--forms", default="", metavar="REGEX", help="only instruction forms whose name matches")
