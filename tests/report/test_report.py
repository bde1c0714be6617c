"""Results in words, on a terminal and as a page."""

from __future__ import annotations

import io
import math
import re
import struct
from html.parser import HTMLParser
from pathlib import Path

import pytest

import zluda
from zluda.diff import BufferComparison, Element, LaunchResult, ReplayResult, Verdict
from zluda.diff.proof import Proof
from zluda.diff.values import compare
from zluda.report import words
from zluda.report.html import render, write_page
from zluda.report.side_by_side import Grid, Unread
from zluda.report.terminal import print_grid, print_result
from zluda.tracefile import Fidelity

SAME = compare(bytes(64), bytes(64), "f32", base=0x1000)


def launch(
    call: int, verdict: Verdict = Verdict.IDENTICAL, reason: str = "", **values: object
) -> LaunchResult:
    values = {"grid": (4, 2, 1), "block": (256, 1, 1), "buffers": (SAME,)} | values
    return LaunchResult(call, "launch", "scale", verdict, reason, **values)  # type: ignore[arg-type]


def copy(call: int, verdict: Verdict = Verdict.IDENTICAL) -> LaunchResult:
    return LaunchResult(call, "copy", "cuMemcpyDtoH_v2", verdict, buffers=(SAME,))


def replay(*results: LaunchResult, **values: object) -> ReplayResult:
    settings = {"trace": "corpus/scale/trace.bin", "device": "cpu", "emulated": False, "numerics": "nvidia"}
    return ReplayResult(**(settings | {"results": list(results), "seconds": 0.25} | values))  # type: ignore[arg-type]


def differing(recorded: float, replayed: float, name: str = "out") -> BufferComparison:
    sides = (bytes(68) + struct.pack("<f", value) + bytes(8) for value in (recorded, replayed))
    return compare(*sides, "f32", base=0x1000, name=name)


def differs(call: int, recorded: float = 1, replayed: float = 2) -> LaunchResult:
    return launch(call, Verdict.DIFFERS, buffers=(differing(recorded, replayed),))


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def printed(result: ReplayResult, stream: io.StringIO) -> str:
    print_result(result, stream)
    return stream.getvalue()


@pytest.mark.parametrize(
    ("results", "sentence"),
    [
        ([launch(1), launch(2), copy(3)], "all 2 launches and 1 copy identical on cpu"),
        ([launch(1)], "1 launch identical on cpu"),
        ([launch(1), launch(2, Verdict.WITHIN)], "all 2 launches hold (1 identical, 1 within) on cpu"),
        ([], "nothing was compared on cpu"),
        ([launch(1, Verdict.NOT_COMPARED)], "nothing was compared on cpu; 1 not-compared"),
        (
            [launch(1), launch(2, Verdict.NOT_REPLAYED), launch(3)],
            "all 2 launches identical on cpu; 1 not-replayed",
        ),
        (
            [launch(1), launch(2, Verdict.UNSUPPORTED), launch(3, Verdict.NO_PTX)],
            "1 launch identical on cpu; 2 launches could not be judged: 1 unsupported, 1 no-ptx",
        ),
        ([launch(1, Verdict.GAP)], "1 launch could not be judged on cpu: 1 gap"),
        (
            [
                launch(1),
                differs(312, 1.5, 1.25),
                copy(313, Verdict.INHERITED),
            ],
            "2 of 3 launches and copies differ on cpu; the first is #312 scale,"
            " element 17 of out: recorded 1.5, replayed 1.25 (2.097e+06 ULP)",
        ),
        (
            [launch(4, Verdict.CRASH, "signal 11"), launch(5, Verdict.HANG)],
            "1 of 2 launches crashes and 1 hangs on cpu; the first is #4 scale: signal 11",
        ),
    ],
)
def test_the_verdict_in_words(results: list[LaunchResult], sentence: str) -> None:
    assert words.headline(replay(*results)) == sentence


def test_emulated_is_said_everywhere() -> None:
    result = replay(launch(1, seconds=0.5), device="gfx1100", emulated=True)
    assert words.headline(result) == "1 launch identical on gfx1100 (emulated)"
    for text in (printed(result, io.StringIO()), printed(result, _Terminal()), render([result])):
        assert "gfx1100 (emulated)" in text
        assert "500 ms" not in text  # an emulator's time is nobody's GPU time


def test_numbers_have_as_many_digits_as_tell_them_apart() -> None:
    one, next_one = struct.unpack("<2f", struct.pack("<2I", 0x3DCCCCCD, 0x3DCCCCCE))
    found = differing(one, next_one)
    text = words.difference(found, found.first[0])
    assert text == "element 17 of out: recorded 0.100000001, replayed 0.100000009 (1 ULP)"


def test_values_that_print_alike_show_their_bits() -> None:
    zero = differing(0.0, -0.0)
    assert "recorded 0, replayed -0" in words.difference(zero, zero.first[0])
    payload = Element(0, 0x1000, math.nan, math.nan, 0x7FC00000, 0x7FFFFFFF, None)
    text = words.difference(zero, payload)
    assert "recorded nan (0x7fc00000), replayed nan (0x7fffffff)" in text
    assert "ULP" not in text


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, ""), (1.5, "1.5 s"), (0.0123456, "12.3 ms"), (4.1e-6, "4.1 µs"), (2e-9, "2 ns"), (0.0, "0 ns")],
)
def test_durations(value: float | None, text: str) -> None:
    assert words.seconds(value) == text


def test_sizes() -> None:
    assert [words.size(n) for n in (0, 1023, 1024, 1536, 5 << 20, 3 << 40)] == [
        *("0 bytes", "1023 bytes", "1 KiB", "1.5 KiB", "5 MiB", "3 TiB")
    ]


def test_a_pipe_gets_plain_lines() -> None:
    result = replay(
        launch(1),
        differs(2),
        launch(3, Verdict.GAP, "graph launch"),
    )
    text = printed(result, io.StringIO())
    assert text.splitlines() == [
        "✗ corpus/scale/trace.bin: 1 of 3 launches differs on cpu; the first is #2 scale,"
        " element 17 of out: recorded 1, replayed 2 (8.389e+06 ULP)",
        "  #2 scale: differs, element 17 of out: recorded 1, replayed 2 (8.389e+06 ULP)",
        "  1 time: graph launch",
    ]


def test_a_terminal_gets_tables() -> None:
    text = printed(replay(launch(1), differs(2)), _Terminal())
    assert "\x1b[" in text
    for word in ("kernel", "verdict", "recorded", "#2", "differs"):
        assert word in text


def test_names_cannot_steer_the_terminal() -> None:
    hostile = LaunchResult(1, "launch", "k\x1b[2Jk[red]", Verdict.CRASH, "why\x1b]0;x\x07")
    for stream in (io.StringIO(), _Terminal()):
        text = printed(replay(hostile), stream)
        assert "\x1b[2J" not in text
        assert "\x1b]" not in text


class _Page(HTMLParser):
    """Collects what a page refers to, and checks that its elements nest."""

    VOID = ("meta", "br", "link", "img", "input", "hr")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.targets: list[str] = []
        self.ids: list[str] = []
        self.words: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in self.VOID:
            self.open.append(tag)
        for name, value in attrs:
            if name in ("href", "src"):
                self.targets.append(value or "")
            if name == "id":
                self.ids.append(value or "")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("style", "script"):
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def page(*results: ReplayResult) -> _Page:
    found = _Page()
    found.feed(render(results))
    found.close()
    assert not found.open
    return found


def test_the_page_needs_nothing_else() -> None:
    found = page(replay(launch(1), copy(2)), replay(launch(1), trace="other.bin"))
    assert found.tags.count("script") == 1
    assert "<script>" in render([replay(launch(1))])  # its text, not its address
    assert "link" not in found.tags
    assert all(target.startswith("#") for target in found.targets)
    assert {target[1:] for target in found.targets} <= set(found.ids)
    assert len(set(found.ids)) == len(found.ids)
    assert "url(" not in render([replay()])
    assert "@import" not in render([replay()])


def test_the_page_of_one_replay() -> None:
    meta = {"gpu": "NVIDIA H200", "command": ["./scale", "7"], "driver_version": 12090}
    found = page(
        replay(
            launch(1, recorded_seconds=4.1e-6, seconds=0.012),
            differs(2),
            meta=meta,
        )
    )
    for part in (
        "1 of 2 launches differs on cpu",
        "The first is #2 scale, element 17 of out: recorded 1, replayed 2",
        "Recorded on NVIDIA H200",
        "Program ./scale 7",
        "CUDA driver 12.9",
        "1 of 20 elements (f32) differ",
        "17 1 2 8.389e+06 0x1044",
        "4×2 256 ✓ identical",
        "4.1 µs 12 ms",
    ):
        assert part in found.text, part


def test_the_page_of_several_replays() -> None:
    found = page(replay(launch(1)), replay(launch(1), copy(2), trace="corpus/sum/trace.bin"))
    assert "✓ All 2 traces identical" in found.text
    assert "2 launches and 1 copy, 192 bytes compared with what the GPU computed" in found.text
    assert "scale cpu ✓ identical 1 0 64 bytes 250 ms" in found.text
    assert "sum cpu ✓ identical 1 1 128 bytes 250 ms" in found.text


def test_the_page_names_the_trace_that_does_not_hold() -> None:
    other = replay(launch(1, Verdict.UNSUPPORTED, "tex.2d"), trace="corpus/sum/trace.bin")
    found = page(replay(launch(1)), other)
    assert "1 of 2 traces hold; sum: unsupported" in found.text
    assert "tex.2d 1" in found.text
    assert "nothing was replayed" in page().text.lower()


def test_names_from_a_trace_are_escaped() -> None:
    hostile = LaunchResult(1, "launch", "<script>alert(1)</script>", Verdict.CRASH, "<b>why</b>")
    result = replay(hostile, trace='"><img src=x>', meta={"gpu": "<i>GPU</i>"})
    found = page(result)
    assert {"img", "b", "i"}.isdisjoint(found.tags)
    assert found.tags.count("script") == 1  # the page's own
    assert "<script>alert(1)</script>" in found.text


def test_long_replays_are_cut_and_say_so() -> None:
    many = [launch(call) for call in range(5500)]
    many[5400] = differs(5400)
    found = page(replay(*many))
    assert "500 more are left out here" in found.text
    assert "#5400 scale" in found.text  # what fails is never left out first
    assert found.tags.count("tr") < 5100


def test_the_page_is_written_where_asked(tmp_path: Path) -> None:
    write_page([replay(launch(1))], tmp_path / "new" / "index.html")
    assert (tmp_path / "new" / "index.html").read_text("utf-8").startswith("<!doctype html>")
    with pytest.raises(zluda.Error, match="is a directory"):
        write_page([], tmp_path)


@pytest.mark.parametrize("content", [b"SQLite format 3\0 a trace", b"int main() {}", b"\x7fELF"])
def test_a_page_replaces_no_file_but_a_page(tmp_path: Path, content: bytes) -> None:
    place = tmp_path / "precious"
    place.write_bytes(content)
    with pytest.raises(zluda.Error, match="precious: is there and is not an HTML page"):
        write_page([replay(launch(1))], place)
    assert place.read_bytes() == content
    for older in ("", "<!DOCTYPE html>\nold"):
        place.write_text(older)
        write_page([replay(launch(1))], place)
        assert "scale" in place.read_text("utf-8")


def test_a_trace_that_could_not_be_read_is_on_the_page() -> None:
    text = render(
        [replay(launch(1))], unread=[Unread("gone<b>.bin", "cpu", "gone.bin: No such file or directory")]
    )
    assert "1 of 2 traces hold; gone&lt;b&gt;.bin: not replayed" in text
    assert "gone.bin: No such file or directory" in text
    assert '<header class="top unclear">' in text
    assert "Nothing was replayed" in render([], unread=[Unread("gone", "cpu", "No such file or directory")])
    assert '<header class="top holds">' in render([replay(launch(1))])


def test_a_page_can_go_to_a_device() -> None:
    write_page([replay(launch(1))], "/dev/null")
    assert not Path("/dev/null").is_file()


GFX = {"device": "gfx1030", "emulated": True}


def test_devices_side_by_side() -> None:
    found = page(replay(launch(1), copy(2)), replay(launch(1), copy(2), **GFX))
    assert "✓ Scale identical on cpu and gfx1030 (emulated)" in found.text
    assert "Trace cpu gfx1030 (emulated) scale ✓ identical ✓ identical" in found.text
    assert "Kernel Calls cpu gfx1030 (emulated) scale 1 identical identical" in found.text
    assert "cuMemcpyDtoH_v2 1 identical identical" in found.text
    assert "✓ All 1 launch and 1 copy identical on gfx1030 (emulated)" in found.text


def test_side_by_side_names_the_guilty_kernel_and_its_device() -> None:
    results = [replay(launch(1), launch(2)), replay(launch(1), differs(2), **GFX)]
    found = page(*results)
    assert "✗ 1 of 2 replays hold; scale on gfx1030 (emulated): differs" in found.text
    assert "In scale on gfx1030 (emulated) the first is #2 scale, element 17 of out" in found.text
    assert "scale 2 identical 1 differs, 1 identical" in found.text
    printed = _Terminal()
    print_grid(Grid.of(results), printed)
    assert "✓ identical" in printed.getvalue() and "✗ differs" in printed.getvalue()


def test_a_trace_that_one_device_could_not_replay_has_a_cell_that_says_so() -> None:
    unread = [Unread("corpus/scale/trace.bin", "gfx1030", "no disassembler")]
    text = render([replay(launch(1))], unread=unread)
    assert "corpus/scale/trace.bin on gfx1030 was not replayed: no disassembler" in text
    assert "? not replayed" in text


def test_one_device_with_two_numerics_is_two_columns() -> None:
    grid = Grid.of([replay(launch(1)), replay(launch(1, Verdict.WITHIN), numerics="native")])
    assert grid.columns == ("cpu", "cpu (native numerics)")


def test_a_trace_replayed_twice_on_a_device_shows_the_worse() -> None:
    grid = Grid.of([replay(launch(1)), replay(differs(1)), replay(launch(1))])
    cell = grid.cell("corpus/scale/trace.bin", "cpu")
    assert isinstance(cell, zluda.diff.ReplayResult) and cell.verdict is Verdict.DIFFERS


def test_the_page_says_what_the_gpu_ran_and_whether_the_trace_is_proved() -> None:
    proof = Proof(True, "", "NVIDIA H200", 13000, 2, 1.0, {"identical": 2})
    results = [launch(1, fidelity=Fidelity.SAME_PTX), launch(2, fidelity=Fidelity.SIBLING), copy(3)]
    text = render([replay(*results, meta={"proof": proof.to_json()})])
    assert "proved: 2 of 2 launches identical twice" in text
    ran = "the GPU ran what was compiled from it: 1; the GPU ran machine code of the same source: 1"
    assert ran in text
    assert "proved" not in render([replay(launch(1))])


def test_a_difference_from_sibling_code_says_so() -> None:
    sibling = launch(1, Verdict.DIFFERS, buffers=(differing(1, 2),), fidelity=Fidelity.SIBLING)
    said = "the GPU ran machine code of the same source, not this PTX"
    assert said in printed(replay(sibling), io.StringIO())
    assert said not in printed(replay(differs(1)), io.StringIO())


@pytest.mark.parametrize("columns", [80, 100, 120])
def test_words_stay_whole_on_any_terminal(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    long = "_Z6reduceI3SumfEvPKT0_PS1_iS1_"
    wrong = differing(-165.837158, -36.1602783, "parameter 1")
    results = [
        LaunchResult(468, "launch", long, Verdict.DIFFERS, buffers=(wrong,), recorded_seconds=1.23e-6),
        launch(469, recorded_seconds=123e-6, seconds=12.3e-3),
        copy(470),
    ]
    text = re.sub(r"\x1b\[[0-9;]*m", "", printed(replay(*results), _Terminal()))
    assert all(len(line) <= columns for line in text.splitlines())
    words_of_it = set(text.split())
    for word in ("compared", "GPU", "replay", "recorded", "-165.837158", "-36.1602783", "123", "#468"):
        assert {word, f"{word},", f"{word}:"} & words_of_it, word
