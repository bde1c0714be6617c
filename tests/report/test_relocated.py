"""Reports of a replay whose memory was elsewhere than in the record."""

from __future__ import annotations

from pathlib import Path

from zluda.diff.results import LaunchResult, ReplayResult, Verdict
from zluda.report import words
from zluda.report.html import write_page
from zluda.report.terminal import plain_lines


def moved(kind: str, name: str = "") -> dict[str, str | int]:
    return {"kind": kind, "name": name, "size": 4096, "recorded": "0x7f0000000000", "replayed": "0x5500"}


def result(*relocated: dict[str, str | int], product: str = "") -> ReplayResult:
    launches = [LaunchResult(3, "launch", "k", Verdict.IDENTICAL)]
    return ReplayResult(
        "t.bin", "hip:0", False, "native", launches, 0.5, product=product, relocated=list(relocated)
    )


def test_the_product_says_which_gpu_it_was() -> None:
    product = "AMD Radeon RX 6800, gfx1030"
    assert words.where(result(product=product)) == f"hip:0 ({product}, native numerics)"
    assert words.where(result()) == "hip:0 (native numerics)"


def test_a_line_says_how_much_was_relocated() -> None:
    lines = list(plain_lines(result(moved("device"), moved("global", "table"), moved("global", "lut"))))
    assert lines[-1] == "  1 allocation and 2 variables relocated; words that point into them were exchanged"


def test_nothing_is_said_where_all_is_in_its_place() -> None:
    assert not any("relocated" in line for line in plain_lines(result()))


def test_the_page_lists_each(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    write_page([result(moved("device"), moved("global", "table"))], str(page), unread=[])
    text = page.read_text()
    assert text.count("<code>0x7f0000000000</code>") == text.count("<code>0x5500</code>") == 2
    assert '<td data-label="Memory">table</td>' in text


def test_so_does_the_json() -> None:
    found = result(moved("device"), product="emulated gfx1030").to_json()
    assert found["product"] == "emulated gfx1030"
    assert [one["replayed"] for one in found["relocated"]] == ["0x5500"]
