"""The site: files that other programs read, pages whose links lead somewhere, names that are anybody's."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as xml
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import jsonschema
import pandas
import pytest
from matrix_nights import stored_night

from zluda.errors import Error
from zluda.matrix.site import write_site
from zluda.matrix.site.as_json import schema
from zluda.matrix.site.gather import Column
from zluda.matrix.store import CellResult, KernelRow, Outcome, Store

HOSTILE = "a/../<script>alert(1)</script> \"&'|\x01 é"
DEVICES = ("cpu", "gfx1030", "cuda:0")
GOOD = {(name, device): "identical" for name in ("right", "wrong", HOSTILE) for device in DEVICES}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(str(tmp_path / "nights.db"), create=True) as made:
        stored_night(made, GOOD, started="2026-11-29T03:00:00+00:00", instructions=[1000])
        bad = GOOD | {("wrong", "gfx1030"): "differs", (HOSTILE, "cuda:0"): "unsupported"}
        bad |= {("new", "cpu"): "not-run"}
        reason = f"#17 {HOSTILE}: differs | here"
        stored_night(
            made, bad, started="2026-11-30T03:00:00+00:00", instructions=[1200], code="c1", reason=reason
        )
        yield made


class _Links(HTMLParser):
    """What a page links to, and the names that can be linked to in it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.names: list[str] = []
        self.tags: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        found = dict(attributes)
        self.tags.append(tag)
        self.links += [value for name in ("href", "src") if (value := found.get(name))]
        self.names += [value for value in (found.get("id"),) if value]


def test_every_link_leads_somewhere_and_nothing_is_fetched(store: Store, tmp_path: Path) -> None:
    site = tmp_path / "site"
    write_site(store, site, 2)
    pages = {file: _Links(file.read_text("utf-8")) for file in site.rglob("*.html")}
    assert len(pages) == 3 + 4  # one a program
    checked = 0
    for file, page in pages.items():
        assert len(set(page.names)) == len(page.names), file
        for link in page.links:
            parts = urlsplit(link)
            assert not parts.scheme and not parts.netloc, link
            target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
            assert target.is_file() and target.is_relative_to(site.resolve()), link
            if parts.fragment and not parts.fragment.startswith("?"):
                assert unquote(parts.fragment) in pages[target].names, link
            checked += 1
    assert checked > 100


def test_names_are_never_markup(store: Store, tmp_path: Path) -> None:
    site = tmp_path / "site"
    write_site(store, site, 2)
    for file in site.rglob("*.html"):
        assert "<script>alert" not in file.read_text("utf-8")
        assert _Links(file.read_text("utf-8")).tags.count("script") == (file.name == "index.html")
    for name in ("junit.xml", "feed.xml"):
        xml.parse(site / name)
    summary = (site / "summary.md").read_text("utf-8")
    (line,) = [line for line in summary.splitlines() if line.startswith("| regressed | wrong")]
    assert "\\<script\\>" in line and len(re.findall(r"(?<!\\)\|", line)) == 7


def test_json_follows_its_schema_and_says_what_happened(store: Store, tmp_path: Path) -> None:
    site = tmp_path / "site"
    write_site(store, site, 2)
    told = json.loads((site / "matrix.json").read_text("utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema())
    jsonschema.validate(told, schema())
    assert json.loads((site / "matrix.schema.json").read_text()) == schema()
    assert told["states"] == {"identical": 7, "differs": 1, "unsupported": 1, "not-run": 1}
    changes = {(one["program"], one["device"]): one["change"] for one in told["changes"]["cells"]}
    assert changes["wrong", "gfx1030"] == "regressed" and changes["new", "cpu"] == "added"
    cells = {
        (program["name"], cell["device"]): cell for program in told["programs"] for cell in program["cells"]
    }
    wrong = cells["wrong", "gfx1030"]
    assert wrong["history"] == [[1, "identical"], [2, "differs"]] and wrong["since"] == 2
    assert cells["right", "cpu"]["since"] == 1 and cells["right", "cpu"]["reproduce"] == ""
    assert told["run"]["last_good"] == 1 and told["speed"][0]["ratio"] == 1.2
    for broken in ({**told, "schema": 2}, {**told, "states": {"fine": 1}}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(broken, schema())


def test_tables_hold_a_row_a_cell(store: Store, tmp_path: Path) -> None:
    site = tmp_path / "site"
    write_site(store, site, 2)
    csv, parquet = pandas.read_csv(site / "cells.csv"), pandas.read_parquet(site / "cells.parquet")
    for frame in (csv, parquet):
        assert len(frame) == 10 and (frame["state"] == "differs").sum() == 1
        (row,) = frame[(frame["program"] == "wrong") & (frame["device"] == "gfx1030")].to_dict("records")
        assert row["since"] == 2 and row["run"] == 2 and row["code"] == "c1"
    assert set(parquet["program"]) == {"right", "wrong", "new", HOSTILE}


def test_junit_counts_what_fails_and_skips_what_cannot_be_told(store: Store, tmp_path: Path) -> None:
    site = tmp_path / "site"
    write_site(store, site, 2)
    suites = {suite.get("name"): suite for suite in xml.parse(site / "junit.xml").getroot()}
    counts = {
        name: [suite.get(key) for key in ("tests", "failures", "errors", "skipped")]
        for name, suite in suites.items()
    }
    assert counts == {
        "cpu nvidia": ["4", "0", "0", "1"],
        "gfx1030 nvidia": ["3", "1", "0", "0"],
        "cuda:0 nvidia": ["3", "0", "0", "1"],
    }
    (failure,) = suites["gfx1030 nvidia"].iter("failure")
    assert (failure.get("type"), failure.get("message", "")[:8]) == ("differs", "differs:")


def test_the_feed_and_the_badge_tell_of_the_night(store: Store, tmp_path: Path) -> None:
    site = tmp_path / "site"
    write_site(store, site, 2)
    atom = "{http://www.w3.org/2005/Atom}"
    entries = xml.parse(site / "feed.xml").getroot().findall(f"{atom}entry")
    assert [entry.findtext(f"{atom}title", "").partition(":")[0] for entry in entries] == ["Run 2", "Run 1"]
    assert "1 regressed" in entries[0].findtext(f"{atom}summary", "") or "2 regressed" in entries[0].findtext(
        f"{atom}summary", ""
    )
    assert json.loads((site / "badge.json").read_text()) == {
        "schemaVersion": 1,
        "label": "matrix",
        "message": "7 of 10 hold",
        "color": "red",
    }


def test_a_feature_is_proven_by_one_program_that_holds_and_suspect_where_none_does(
    store: Store, tmp_path: Path
) -> None:
    digest = "d" * 32
    store.add_trace(digest, 1, {"ptx": {"textures": 4, "shuffle": 2}})
    found = Outcome(
        program="painter",
        device="gfx1030",
        numerics="nvidia",
        trace=digest,
        found="unsupported",
        verdict="unsupported",
        reason="#9 paint: tex.2d",
        kernels=[KernelRow(name="paint", verdict="unsupported", launches=4, held=0)],
    )
    number = stored_night(store, GOOD)
    store.add_program("painter", "paints", "", "my corpus/painter/trace.bin")
    store.add(number, [CellResult(outcome=found, state="unsupported")])
    sheet = write_site(store, tmp_path / "site", number)
    column = Column("gfx1030", "nvidia")
    assert (
        sheet.features["shuffle"][column][:3] == (3, 0, 1) and sheet.features["textures"][column].holds == 0
    )
    (cell,) = [row.cells[column] for row in sheet.rows if row.name == "painter"]
    assert cell.suspects == ["textures"]
    assert cell.reproduce == "zluda replay 'my corpus/painter/trace.bin' --device gfx1030 --numerics nvidia"
    page = (tmp_path / "site" / "programs" / "painter.html").read_text()
    assert 'href="../features.html#textures"' in page and "tex.2d" in page


def test_a_failing_launch_is_reproduced_by_number(store: Store, tmp_path: Path) -> None:
    sheet = write_site(store, tmp_path / "site", 2)
    (cell,) = [
        cell
        for row in sheet.rows
        for cell in row.cells.values()
        if row.name == "wrong" and cell.state == "differs"
    ]
    assert cell.reproduce.endswith("--device gfx1030 --numerics nvidia --explain 17")


def test_the_first_run_has_nothing_before_it(store: Store, tmp_path: Path) -> None:
    sheet = write_site(store, tmp_path / "site", 1)
    assert sheet.changes is None and sheet.last_good is None
    assert "The first run" in (tmp_path / "site" / "index.html").read_text()


def test_replaces_a_site_and_nothing_else(store: Store, tmp_path: Path) -> None:
    site = tmp_path / "site"
    write_site(store, site, 2)
    stale = site / "programs" / "gone.html"
    stale.write_text("of another night")
    write_site(store, site, 1)
    assert not stale.exists() and "run 1" in (site / "index.html").read_text().lower()
    other = tmp_path / "mine"
    other.mkdir()
    (other / "letter.txt").write_text("dear")
    with pytest.raises(Error, match="holds other files"):
        write_site(store, other, 2)
    assert [file.name for file in other.iterdir()] == ["letter.txt"]


def test_a_run_is_told_the_same_twice(store: Store, tmp_path: Path) -> None:
    write_site(store, tmp_path / "a", 2)
    write_site(store, tmp_path / "b", 2)
    names = sorted(
        str(file.relative_to(tmp_path / "a")) for file in (tmp_path / "a").rglob("*") if file.is_file()
    )
    for name in names:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes(), name
