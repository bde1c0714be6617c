"""A trace in other forms: stripped, as JSON lines, salvaged."""

from __future__ import annotations

import io
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zluda.errors import TraceError
from zluda.tracefile import (
    AllocationKind,
    Direction,
    ModuleKind,
    Parameter,
    Trace,
    TraceWriter,
    Unproved,
    open_trace,
)
from zluda.tracefile.arguments import ArgumentLayout
from zluda.tracefile.jsonl import lines_of as numbered_lines
from zluda.tracefile.jsonl import read_jsonl, write_jsonl
from zluda.tracefile.salvage import check_whole, salvage
from zluda.tracefile.stripping import Part, require, strip

SECRET = b"the user's own numbers, which compress badly: " + bytes(range(256))
PTX = b".version 8.0\n.target sm_90\n.address_size 64\n"
CUBIN = b"\x7fELF machine code" * 64
HOST = "/home/somebody/project/libkernels.so"
ALLOC = [Parameter("dptr", "CUdeviceptr *", Direction.OUT, 8), Parameter("bytesize", "size_t")]
LOAD = [Parameter("module", "CUmodule *", Direction.OUT, 8), Parameter("fname", "char *")]
LAUNCH = [Parameter("f", "CUfunction")]
HEAD = '{"format": "zluda trace", "version": 1}\n'


def write(path: Path, launches: int = 3) -> Path:
    with TraceWriter.create(path, {"command": ["/home/somebody/app"], "host": "box", "gpu": "H200"}) as w:
        alloc, load = w.signature("cuMemAlloc_v2", ALLOC), w.signature("cuModuleLoad", LOAD)
        launch = w.signature("cuLaunchKernel", LAUNCH)
        w.add_calls([(0, 1, None, alloc, 0, 1, 0, ArgumentLayout(ALLOC).encode([8, 64]))])
        w.add_calls([(1, 1, None, load, 2, 3, 0, ArgumentLayout(LOAD).encode([8, 9]))])
        w.add_payload(1, 1, Direction.IN, HOST.encode())
        memory = w.add_allocation(0, 0x7F0000000000, 1 << 20, AllocationKind.DEVICE)
        module = w.add_module(1, ModuleKind.CUBIN, 5, image=CUBIN, origin=HOST)
        w.add_image(module, ModuleKind.PTX, PTX, origin="found in /home/somebody/.triton/cache/KEY")
        only_code = w.add_module(1, ModuleKind.CUBIN, 6, image=CUBIN + b"2", origin=HOST)
        assert only_code != module
        function = w.add_function(1, 77, "k", module=module, layout=[(0, 8)])
        shape = w.shape(function, (1, 1, 1), (32, 1, 1))
        for number in range(2, 2 + launches):
            w.add_calls([(number, 1, None, launch, 4, 5, 0, bytes(8))])
            w.add_launch(number, shape, bytes(8), captured=True)
            w.add_page(number, memory, 0, SECRET + number.to_bytes(4, "little"))
        w.add_gap(2, "sample", "/home/somebody/lib.so: a gap, 1/2 of it", 2)
    return path


def rows(path: Path) -> dict[str, list[tuple[object, ...]]]:
    """Every row of a trace, blobs by their content."""
    with open_trace(path) as trace:
        connection = trace._connection
        found = {
            table: connection.execute(f"SELECT * FROM {table}").fetchall()
            for table in ("meta", "call", "payload", "module", "image", "function", "launch", "page", "gap")
        }
        blobs = connection.execute("SELECT id, key, size FROM blob").fetchall()
        found["blob"] = [(*row, trace._blob(row[0], row[2], 1 << 29)) for row in blobs]
    return found


# --- JSON lines ---------------------------------------------------------------------------------------


def lines_of(path: Path) -> str:
    stream = io.StringIO()
    with open_trace(path) as trace:
        count = write_jsonl(trace, stream)
    assert count == len(stream.getvalue().splitlines())
    return stream.getvalue()


def add_newer(path: Path) -> None:
    """As a later version may: a table that this one does not know."""
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE newer (x)")
        connection.execute("INSERT INTO newer VALUES (?)", (SECRET,))


def test_tables_of_a_later_version_have_no_lines(tmp_path: Path) -> None:
    path = write(tmp_path / "a.bin")
    text = lines_of(path)
    add_newer(path)
    assert lines_of(path) == text


def test_stripping_takes_out_what_nobody_here_knows(tmp_path: Path) -> None:
    path = write(tmp_path / "a.bin")
    add_newer(path)
    with open_trace(path) as trace:
        strip(trace, tmp_path / "b.bin", [Part.CONTENTS])
    assert SECRET not in (tmp_path / "b.bin").read_bytes()
    with sqlite3.connect(tmp_path / "b.bin") as connection:
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema")}
    assert "newer" not in tables


def test_lines_become_the_same_trace(tmp_path: Path) -> None:
    text = lines_of(write(tmp_path / "a.bin"))
    read_jsonl(text.splitlines(), tmp_path / "b.bin")
    assert rows(tmp_path / "a.bin") == rows(tmp_path / "b.bin")
    assert lines_of(tmp_path / "b.bin") == text


def test_a_line_is_a_row_that_a_person_can_read(tmp_path: Path) -> None:
    first, *others = map(json.loads, lines_of(write(tmp_path / "a.bin")).splitlines())
    assert first == {"format": "zluda trace", "version": 1, "end": True}
    assert others[-1] == {"table": "end", "lines": len(others) + 1}
    assert {"table": "meta", "key": "gpu", "value": '"H200"'} in others
    blobs = [one for one in others if one["table"] == "blob"]
    assert all(one["size"] and "data:base64" in one for one in blobs)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 3"),
        ("[]", "line 3"),
        ('{"table": 7, "sql": "x"}', "line 3.*names a table"),
        ('{"table": "meta", "key": "a", "value": "1", "more": 2}', "line 3.*no column more"),
        ('{"table": "gap", "id": "x", "kind": "k", "text": "t", "count": 1}', "line 3"),
        ('{"table": "blob", "id": 9, "key:base64": "AAAA", "size": 3, "data:base64": "AAAA"}', "digest"),
        ('{"table": "blob", "id": 9, "key:base64": "!", "size": 1, "data": null}', "line 3"),
    ],
)
def test_a_line_that_is_no_row_is_named(tmp_path: Path, line: str, message: str) -> None:
    head = ['{"format": "zluda trace", "version": 1}', '{"table": "meta", "key": "k", "value": "1"}']
    with pytest.raises(TraceError, match=message):
        read_jsonl([*head, line], tmp_path / "b.bin", name="lines.jsonl")
    assert not list(tmp_path.iterdir())  # half a trace is none


def test_lines_that_were_cut_off_are_noticed(tmp_path: Path) -> None:
    whole = lines_of(write(tmp_path / "a.bin")).splitlines()
    for kept in (whole[:-1], whole[:1], [*whole[:5], *whole[6:]]):
        with pytest.raises(TraceError, match=f"cut off after line {len(kept)}"):
            read_jsonl(kept, tmp_path / "b.bin")
    early = ['{"format": "zluda trace", "version": 1}', *whole[1:-1]]  # lines that say nothing of an end
    read_jsonl(early, tmp_path / "b.bin")
    assert lines_of(tmp_path / "b.bin").splitlines() == whole


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x" * 70_000, "line 1 is longer than any of a trace"),
        ("[" * 20_000, "line 1 does not say"),
        ('{"format": "zluda trace", "version": 1}\n' + "[" * 20_000, "line 2 is no row"),
        (
            HEAD + '{"table": "gap", "id": 1, "call": [1], "kind": "", "text": "", "count": 1}',
            "line 2 is no row",
        ),
        (HEAD + '{"table": "gap", "id": 99999999999999999999, "text": ""}', "line 2 is no row"),
    ],
)
def test_hostile_lines_are_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(TraceError, match=message):
        read_jsonl(numbered_lines(io.StringIO(text), "x"), tmp_path / "b.bin")
    assert not list(tmp_path.iterdir())


def test_lines_of_tables_of_a_later_version_are_passed_over(tmp_path: Path) -> None:
    head = ['{"format": "zluda trace", "version": 1}', '{"table": "newer", "x": [1, {"y": 2}]}']
    read_jsonl([*head, '{"table": "meta", "key": "k", "value": "1"}'], tmp_path / "b.bin")
    with open_trace(tmp_path / "b.bin") as trace:
        assert trace.meta == {"k": 1}


@pytest.mark.parametrize("version", [0, 2, "1", None])
def test_lines_of_another_version_are_refused(tmp_path: Path, version: object) -> None:
    first = json.dumps({"format": "zluda trace", "version": version})
    with pytest.raises(TraceError, match="lines of trace format"):
        read_jsonl([first], tmp_path / "b.bin")


def test_other_lines_are_refused(tmp_path: Path) -> None:
    for first in ("", "nothing", '{"format": "other"}'):
        with pytest.raises(TraceError, match="line 1"):
            read_jsonl([first], tmp_path / "b.bin")
    with pytest.raises(TraceError, match="format 99"):
        read_jsonl(['{"format": "zluda trace", "version": 99}'], tmp_path / "b.bin")


# --- stripped -----------------------------------------------------------------------------------------


def stripped(tmp_path: Path, *parts: Part) -> Path:
    source, target = write(tmp_path / "a.bin"), tmp_path / "b.bin"
    with open_trace(source) as trace:
        strip(trace, target, parts)
    return target


def test_machine_code_goes_where_there_is_ptx(tmp_path: Path) -> None:
    path = stripped(tmp_path, Part.MACHINE_CODE)
    with open_trace(path) as trace:
        first, second = trace.module_list
        assert [image.kind for image in first.images] == [ModuleKind.PTX]
        assert trace.ptx(first) == PTX
        assert [trace.image(image) for image in second.images] == [CUBIN + b"2"]  # there is nothing else
        check_whole(trace)
        require(trace, Part.CONTENTS, "replayed")


def test_machine_code_stays_where_the_ptx_is_for_newer_gpus(tmp_path: Path) -> None:
    write(tmp_path / "a.bin")
    with closing(sqlite3.connect(tmp_path / "a.bin")) as connection, connection:
        connection.execute("INSERT INTO meta VALUES ('compute_capability', '[9, 0]')")
        connection.execute("UPDATE image SET architecture = 'compute_120' WHERE kind = 'ptx'")
    with open_trace(tmp_path / "a.bin") as trace:
        strip(trace, tmp_path / "b.bin", [Part.MACHINE_CODE])
    with open_trace(tmp_path / "b.bin") as trace:
        assert [image.kind for image in trace.module_list[0].images] == [ModuleKind.CUBIN, ModuleKind.PTX]


def test_compacting_changes_the_size_alone(tmp_path: Path) -> None:
    path = stripped(tmp_path)
    assert path.stat().st_size < (tmp_path / "a.bin").stat().st_size / 2
    assert rows(path) == rows(tmp_path / "a.bin")


def test_modules_go_of_which_no_launch_was_chosen(tmp_path: Path) -> None:
    path = stripped(tmp_path, Part.UNUSED)
    with open_trace(path) as trace:
        used, unused = trace.module_list
        assert used.images and not unused.images
        assert trace.meta["stripped"] == ["unused"]
        check_whole(trace)
    with closing(sqlite3.connect(tmp_path / "a.bin")) as connection, connection:
        connection.execute("UPDATE launch SET captured = 2")
    with open_trace(tmp_path / "a.bin") as trace:
        strip(trace, tmp_path / "c.bin", [Part.UNUSED])
    with open_trace(tmp_path / "c.bin") as trace:
        assert not any(module.images for module in trace.module_list)


def test_contents_leave_the_file(tmp_path: Path) -> None:
    """Not only the rows: nothing of them stays in unused parts of the file."""
    path = stripped(tmp_path, Part.CONTENTS)
    assert SECRET[:40] in (tmp_path / "a.bin").read_bytes()
    assert SECRET[:40] not in path.read_bytes()
    with open_trace(path) as trace:
        check_whole(trace)
        assert len(trace.pages(2)) == 1
        with pytest.raises(TraceError, match=r"stripped.*only their digest"):
            trace.page_data(trace.pages(2)[0])
        with pytest.raises(TraceError, match="stripped of contents, and cannot be replayed"):
            require(trace, Part.CONTENTS, "replayed")
        assert trace.ptx(trace.module_list[0]) == PTX
    copy = tmp_path / "c.bin"
    read_jsonl(lines_of(path).splitlines(), copy)
    assert lines_of(copy) == lines_of(path)


def test_names_leave_the_file(tmp_path: Path) -> None:
    path = stripped(tmp_path, Part.NAMES, Part.MACHINE_CODE)
    assert b"somebody" not in path.read_bytes()
    with open_trace(path) as trace:
        assert trace.meta == {"gpu": "H200", "stripped": ["machine-code", "names"]}
        assert [module.origin for module in trace.module_list] == ["libkernels.so"] * 2
        assert trace.module_list[0].images[0].origin == "found in KEY"
        assert trace.gaps[0].text == "lib.so: a gap, 1/2 of it"


GIVEN = {  # function, parameter, type → what it was given, what is left of that
    ("cuModuleLoad", "fname", "const char *"): (b"/home/some body/k.cubin\0", None),
    ("cuLinkAddFile_v2", "path", "const char *"): (b"build/somebody/k.ptx\0", None),
    ("cublasLtLoggerOpenFile", "logFile", "const char *"): (b"~/somebody/log\0", None),
    ("cuLinkAddData_v2", "name", "const char *"): (b"/home/some body/k.ptx\0", b"k.ptx\0"),
    ("nvrtcCreateProgram", "name", "const char *"): (b"somebody/k.cu\0", b"k.cu\0"),
    ("nvrtcCompileProgram", "options", "const char *const *"): (
        b"-I/home/somebody/include\0--include-path=/home/somebody/x\0-O3\0",
        b"include\0--include-path=x\0-O3\0",
    ),
    ("nvrtcCreateProgram", "src", "const char *"): (
        b'#include "/home/somebody/x.h"\nfloat half = a / b; // c/d\0',
        b'#include "x.h"\nfloat half = a / b; d\0',
    ),
    ("cuModuleGetFunction", "name", "const char *"): (b"_Z5scaleifPf\0", b"_Z5scaleifPf\0"),
    ("cuMemcpyHtoD_v2", "srcHost", "const void *"): (b"/bytes/of/memory\0", b"/bytes/of/memory\0"),
}


def test_no_text_that_a_call_was_given_names_a_directory(tmp_path: Path) -> None:
    with TraceWriter.create(
        tmp_path / "a.bin", {"replay_of": "/home/somebody/t.bin", "proof": {"x": ["/a b/c"]}}
    ) as w:
        for number, ((function, name, kind), (data, _)) in enumerate(GIVEN.items()):
            signature = w.signature(function, [Parameter(name, kind, Direction.IN)])
            w.add_calls([(number, 1, None, signature, 0, 1, 0, bytes(8))])
            w.add_payload(number, 0, Direction.IN, data)
        w.add_gap(None, "file", "/home/some body/x y/lib.so: cannot be read (1/2 of it)")
        w.add_module(0, ModuleKind.CUBIN, 5, image=CUBIN, origin="build/somebody/k.cubin")
    with open_trace(tmp_path / "a.bin") as trace:
        strip(trace, tmp_path / "b.bin", [Part.NAMES])
    held = (tmp_path / "b.bin").read_bytes()
    assert b"somebody" not in held and b"some body" not in held
    with open_trace(tmp_path / "b.bin") as trace:
        check_whole(trace)
        left = [trace.payloads(number) for number in range(len(GIVEN))]
        assert [one[0].data if one else None for one in left] == [kept for _, kept in GIVEN.values()]
        assert trace.gaps[0].text == "lib.so: cannot be read (1/2 of it)"
        assert trace.module_list[0].origin == "k.cubin"
        assert trace.meta == {"replay_of": "t.bin", "proof": {"x": ["c"]}, "stripped": ["names"]}


def test_what_a_proof_says_of_values_is_contents(tmp_path: Path) -> None:
    first = {"call": 2, "reason": "element 0 of parameter 0: recorded 4711.5, replayed 4712"}
    path = write(tmp_path / "a.bin")
    with TraceWriter.reopen(path) as writer:
        reason = "atom.add; element 0 of parameter 0: recorded 4711.5, replayed 4712; seen twice"
        writer.set_proof([Unproved(2, "noise", reason)], [])
        writer.set_meta({"proof": {"first": first}})
    with open_trace(path) as trace:
        strip(trace, tmp_path / "b.bin", [Part.CONTENTS])
    assert b"4711.5" not in (tmp_path / "b.bin").read_bytes()
    with open_trace(tmp_path / "b.bin") as trace:
        (kept,) = trace.unproved
        assert kept.reason == (
            "atom.add; element 0 of parameter 0: recorded and replayed values stripped; seen twice"
        )


def test_stripping_twice_adds_up_and_never_overwrites_the_source(tmp_path: Path) -> None:
    path = stripped(tmp_path, Part.NAMES)
    with open_trace(path) as trace:
        strip(trace, tmp_path / "c.bin", [Part.CONTENTS])
        with pytest.raises(TraceError, match="choose another name"):
            strip(trace, path, [Part.CONTENTS])
    with open_trace(tmp_path / "c.bin") as trace:
        assert trace.meta["stripped"] == ["contents", "names"]


# --- salvaged -----------------------------------------------------------------------------------------


def reading(path: Path) -> None:
    with open_trace(path) as trace:
        check_whole(trace)
        for launch in trace.iter_launches():
            for page in trace.pages(launch.call):
                trace.page_data(page)


def test_a_cut_off_file_gives_what_it_still_has(tmp_path: Path) -> None:
    source, target = write(tmp_path / "a.bin", launches=400), tmp_path / "b.bin"
    whole = source.read_bytes()
    source.write_bytes(whole[: len(whole) * 7 // 8])
    with pytest.raises(TraceError, match="truncated"):
        open_trace(source)
    assert salvage(source, target)
    reading(target)
    with open_trace(target) as trace:
        assert trace.meta["recovered"] is True
        assert trace.counts().calls > 0
        assert {gap.kind for gap in trace.gaps} >= {"recovery"}
        assert not any(launch.captured for launch in trace.iter_launches())


def test_a_damaged_blob_costs_itself_only(tmp_path: Path) -> None:
    source, target = write(tmp_path / "a.bin"), tmp_path / "b.bin"
    connection = sqlite3.connect(source)
    with connection:
        connection.execute(
            "UPDATE blob SET data = x'00112233' WHERE id = (SELECT blob FROM page WHERE call = 3)"
        )
    connection.close()
    with open_trace(source) as trace, pytest.raises(TraceError, match="damaged"):
        check_whole(trace)
    assert salvage(source, target) == {"blob": 1, "page": 1}
    reading(target)
    with open_trace(target) as trace:
        assert [len(trace.pages(call)) for call in (2, 3, 4)] == [1, 0, 1]


def test_a_whole_trace_is_salvaged_whole(tmp_path: Path) -> None:
    source, target = write(tmp_path / "a.bin"), tmp_path / "b.bin"
    assert salvage(source, target) == {}
    before, after = rows(source), rows(target)
    assert {k: v for k, v in before.items() if k != "meta"} == {k: v for k, v in after.items() if k != "meta"}


def test_what_is_no_trace_is_not_salvaged(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    for data in (b"", b"SQLite format 3\0" + bytes(200), b"PK\x03\x04" * 50):
        path.write_bytes(data)
        with pytest.raises(TraceError):
            salvage(path, tmp_path / "b.bin")
    assert not (tmp_path / "b.bin").exists()


@settings(max_examples=12, deadline=None)
@given(at=st.floats(0.02, 1), damage=st.binary(min_size=1, max_size=600))
def test_any_damage_gives_a_readable_trace_or_an_error(
    tmp_path_factory: pytest.TempPathFactory, at: float, damage: bytes
) -> None:
    directory = tmp_path_factory.mktemp("damage")
    source = write(directory / "a.bin", launches=60)
    data = bytearray(source.read_bytes())
    start = int((len(data) - 1) * at)
    data[start : start + len(damage)] = damage[: len(data) - start]
    source.write_bytes(data)
    try:
        salvage(source, directory / "b.bin")
    except TraceError:
        return
    reading(directory / "b.bin")


def test_checks_find_rows_without_what_they_refer_to(tmp_path: Path) -> None:
    source = write(tmp_path / "a.bin")
    connection = sqlite3.connect(source)
    with connection:
        connection.execute("DELETE FROM shape")
    connection.close()
    with pytest.raises(TraceError, match="damaged"), Trace(source) as trace:
        check_whole(trace)
