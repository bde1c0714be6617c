"""zluda.patterns: regular expressions that are compiled when they are used."""

from __future__ import annotations

import re
from typing import Any

import pytest

from zluda.patterns import pattern


def test_gives_what_re_gives() -> None:
    words = pattern(r"(\w+) (?P<second>\w+)", re.IGNORECASE)
    found = words.search("a b c")
    assert found is not None and found["second"] == "b"
    assert words.sub("-", "a b c") == "- c"
    assert words.groupindex == {"second": 2} and words.flags & re.IGNORECASE


def test_is_compiled_once_and_when_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []
    real = re.compile

    def counting(text: Any, flags: Any = 0) -> Any:
        compiled.append(text)
        return real(text, flags)

    monkeypatch.setattr(re, "compile", counting)
    digits = pattern(r"\d+")
    assert compiled == []
    assert digits.match("12") and digits.match("x") is None and digits.findall("1 2") == ["1", "2"]
    assert compiled.count(r"\d+") == len(compiled) == 2  # a method each


def test_a_wrong_expression_is_an_error_where_it_is_used() -> None:
    with pytest.raises(re.error):
        pattern("(").match("x")
