"""Files that are no whole trace: each gives one clear TraceError with the file and the place."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import zluda
from zluda.errors import TraceError
from zluda.tracefile import Direction, ModuleKind, Parameter, Trace, TraceWriter, open_trace
from zluda.tracefile.recovery import _is_begun
from zluda.tracefile.schema import APPLICATION_ID, USER_VERSION, check_sqlite


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "trace.bin"
    with TraceWriter.create(path, {"program": ["app"]}) as writer:
        signature = writer.signature("cuMemcpyDtoH_v2", [Parameter("dst", "void *", Direction.OUT)])
        writer.add_calls([(i, 1, None, signature, i, i + 1, 0, bytes(8)) for i in range(500)])
        allocation = writer.add_allocation(0, 4096, 1 << 16)
        module = writer.add_module(0, ModuleKind.PTX, 1, image=b".version 8.0 // text" * 20)
        shape = writer.shape(writer.add_function(0, 2, "k", module=module), (1, 1, 1), (1, 1, 1))
        for i in range(50):
            writer.add_page(i, allocation, 0, bytes([i + 1, i, i]) * 1000)
            writer.add_launch(i, shape, b"params", captured=True)
        writer.add_payload(7, 0, Direction.OUT, b"delivered" * 100)
        writer.add_gap(3, "cuX", "not captured")
    return path


def read_all(path: Path) -> int:
    """Everything that a trace holds, decoded; the number of bytes and rows seen."""
    with open_trace(path) as trace:
        calls, launches = list(trace.iter_calls()), list(trace.iter_launches())
        seen = sum(len(payload.data) for call in calls for payload in trace.payloads(call.sequence))
        seen += sum(len(trace.page_data(page)) for launch in launches for page in trace.pages(launch.call))
        seen += sum(len(trace.image(image)) for module in trace.module_list for image in module.images)
        seen += len(trace.read_memory(499, 4096, 1 << 16)[0])
        trace.counts()
        return seen + len(trace.gaps) + len(trace.functions)


def edit(path: Path, *statements: str) -> None:
    with sqlite3.connect(path) as connection:
        for statement in statements:
            connection.execute(statement)
    connection.close()


def refused(path: Path) -> str:
    with pytest.raises(zluda.TraceError) as caught:
        read_all(path)
    message = str(caught.value)
    assert str(path) in message
    assert "\n" not in message
    return message


def test_missing(tmp_path: Path) -> None:
    assert "No such file" in refused(tmp_path / "nothing.bin")


def test_a_directory(tmp_path: Path) -> None:
    assert "Is a directory" in refused(tmp_path)


def test_empty(tmp_path: Path) -> None:
    (tmp_path / "t.bin").touch()
    assert "at byte 0: an empty file" in refused(tmp_path / "t.bin")


def test_not_sqlite(tmp_path: Path) -> None:
    (tmp_path / "t.bin").write_bytes(b"\x7fELF" + bytes(5000))
    assert "at byte 0: not a trace" in refused(tmp_path / "t.bin")


def test_cut_inside_the_header(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:60])
    assert "at byte 60: truncated inside the header" in refused(path)


def test_another_programs_database(path: Path) -> None:
    edit(path, "PRAGMA application_id = 7")
    assert "at byte 68: a SQLite database of another program" in refused(path)


def test_a_newer_version(path: Path) -> None:
    edit(path, f"PRAGMA user_version = {USER_VERSION + 1}")
    assert f"trace format {USER_VERSION + 1}, newer than this zluda reads" in refused(path)


def test_a_version_that_never_was(path: Path) -> None:
    edit(path, "PRAGMA user_version = 0")
    assert "trace format 0, which there is not" in refused(path)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (
            '["folded pages", "a new kind"]',
            "requires a new kind, folded pages, which this zluda does not know",
        ),
        ('["x"]', "(written by zluda 9.1); update zluda"),
        ("3", "requires in its meta is no list of names"),
        ("[", "its meta cannot be read"),
    ],
)
def test_what_a_trace_requires_and_is_not_known_is_named(path: Path, value: str, message: str) -> None:
    edit(path, f"INSERT INTO meta VALUES ('requires', '{value}'), ('zluda', '\"9.1\"')")
    assert message in refused(path)
    with pytest.raises(TraceError, match=re.escape(message)):
        TraceWriter.reopen(path)


def test_what_was_stripped_is_a_list_of_names(path: Path) -> None:
    edit(path, "INSERT INTO meta VALUES ('stripped', '5')")
    assert "stripped in its meta is no list of names" in refused(path)


def test_a_trace_that_requires_nothing_is_read(path: Path) -> None:
    edit(path, "INSERT INTO meta VALUES ('requires', '[]')")
    assert read_all(path) > 0


@pytest.mark.parametrize("share", [0.2, 0.5, 0.99])
def test_truncated(path: Path, share: float) -> None:
    whole = path.read_bytes()
    kept = int(len(whole) * share)
    path.write_bytes(whole[:kept])
    assert f"at byte {kept}: truncated: {len(whole)} bytes expected" in refused(path)


def test_a_page_of_the_database_overwritten(path: Path) -> None:
    whole = bytearray(path.read_bytes())
    whole[3 * 8192 : 4 * 8192] = b"\xa5" * 8192
    path.write_bytes(whole)
    assert "damaged" in refused(path)


@pytest.mark.parametrize(
    ("statement", "what"),
    [
        ("CREATE VIEW sneaky AS SELECT 1", "view, 'sneaky'"),
        ("CREATE TRIGGER t AFTER INSERT ON gap BEGIN DELETE FROM call; END", "trigger, 't'"),
        ("DROP TABLE launch", "'launch' is missing"),
        ("DROP INDEX page_timeline", "'page_timeline' is missing"),
        ("ALTER TABLE call ADD COLUMN extra INTEGER", "table 'call' is not the format's"),
        ("CREATE INDEX mine ON call(abs(thread))", "index 'mine' is not the format's"),
    ],
)
def test_a_schema_that_is_not_ours(path: Path, statement: str, what: str) -> None:
    edit(path, statement)
    assert what in refused(path)


def test_tables_that_a_later_version_added_are_ignored(path: Path) -> None:
    edit(path, "CREATE TABLE newer (x)", "INSERT INTO newer VALUES (1)")
    assert read_all(path) > 0


@pytest.mark.parametrize(
    ("statement", "what"),
    [
        ("UPDATE blob SET data = zeroblob(length(data))", "damaged: blob"),
        ("UPDATE blob SET size = size + 1", "damaged: blob"),
        ("UPDATE blob SET size = 1 << 40", "claims 1099511627776 bytes"),
        ("DELETE FROM blob", "is missing"),
        ("UPDATE page SET length = 1 << 40", "a length of 1099511627776 bytes"),
        ("UPDATE page SET offset = -5", "damaged: a row that cannot be read"),
        ("UPDATE call SET arguments = x'00'", "damaged: a row that cannot be read"),
        ("UPDATE call SET signature = 99", "damaged: a row that cannot be read"),
        ("UPDATE shape SET fidelity = 'perfect'", "damaged: a row that cannot be read"),
        ("UPDATE function SET layout = '[[1]]'", "damaged: a row that cannot be read"),
        ("UPDATE payload SET direction = 'sideways'", "damaged: a row that cannot be read"),
        ("UPDATE meta SET value = '{'", "damaged: a row that cannot be read"),
        ("UPDATE gap SET text = CAST(x'ff' AS TEXT)", "damaged: Could not decode to UTF-8"),
    ],
)
def test_rows_that_no_writer_writes(path: Path, statement: str, what: str) -> None:
    edit(path, statement)
    assert what in refused(path)


def test_a_decompression_bomb_is_not_inflated(path: Path) -> None:
    import zstandard

    bomb = zstandard.ZstdCompressor().compress(bytes(256 << 20))
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE blob SET data = ?", (bomb,))
    connection.close()
    assert "holds 268435456 bytes" in refused(path)


def test_contents_are_checked_against_their_digest(path: Path) -> None:
    """No flipped bit is taken for what the GPU computed."""
    edit(path, "UPDATE blob SET key = zeroblob(16) WHERE id = 1")
    assert "does not match its digest" in refused(path)


@given(data=st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=150)
def test_flipped_bytes_are_read_right_or_refused(path: Path, data: st.DataObject) -> None:
    """Whatever byte of the file changes: a TraceError, or every row and byte can be read."""
    whole = bytearray(path.read_bytes())
    original = bytes(whole)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(whole) - 1))
        whole[at] ^= data.draw(st.integers(1, 255))
    path.write_bytes(whole)
    try:
        read_all(path)
    except zluda.TraceError as error:
        assert str(path) in str(error)
    finally:
        path.write_bytes(original)


@given(st.binary(max_size=4096))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_random_bytes_behind_a_right_header_are_refused(path: Path, noise: bytes) -> None:
    target = path.with_name("noise.bin")
    target.write_bytes(path.read_bytes()[:100] + noise)
    with pytest.raises(zluda.TraceError):
        read_all(target)


def test_a_trace_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    for target in (tmp_path, tmp_path / "missing" / "t.bin"):
        with pytest.raises(zluda.TraceError, match=str(target)):
            TraceWriter.create(target)


def test_an_sqlite_that_is_too_old_is_named() -> None:
    with pytest.raises(zluda.TraceError, match=r"need SQLite 3\.37 or later; this Python has 3\.34\.1"):
        check_sqlite((3, 34, 1))


def test_application_id_spells_the_name() -> None:
    assert APPLICATION_ID.to_bytes(4, "big") == b"zLUD"


def test_a_killed_writers_commits_are_read(tmp_path: Path) -> None:
    """A writer that never closed leaves a WAL; what it committed is read and folded into the file."""
    source = tmp_path / "live.bin"
    writer = TraceWriter.create(source, {"n": 1})
    signature = writer.signature("f", [])
    writer.add_calls([(0, 1, None, signature, 0, 1, 0, b"")])
    writer.commit()
    writer.add_calls([(1, 1, None, signature, 0, 1, 0, b"")])  # never committed
    copy = tmp_path / "killed.bin"
    for suffix in ("", "-wal"):  # as the file system holds them when the process dies
        copy.with_name(copy.name + suffix).write_bytes(source.with_name(source.name + suffix).read_bytes())
    with open_trace(copy) as trace:
        assert [call.sequence for call in trace.iter_calls()] == [0]
    assert not copy.with_name("killed.bin-wal").exists()
    with open_trace(source) as trace:  # a recorder at work can be looked at
        assert isinstance(trace, Trace)
        assert trace.counts().calls == 1
    writer.close()


def test_what_was_under_way_without_a_wal_is_taken_back(path: Path, tmp_path: Path) -> None:
    """A recorder killed as it makes the file, or closes it, leaves a journal, which readers cannot undo."""
    whole, killed = read_all(path), tmp_path / "killed.bin"
    with sqlite3.connect(path, isolation_level=None) as connection:
        connection.execute("PRAGMA cache_size = 2")  # pages, so that some are in the file before the end
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("DELETE FROM call")
        for suffix in ("", "-journal"):  # as the file system holds them when the process dies
            killed.with_name(killed.name + suffix).write_bytes(Path(f"{path}{suffix}").read_bytes())
        connection.execute("ROLLBACK")
    connection.close()
    reader = sqlite3.connect(f"{killed.as_uri()}?mode=ro", uri=True)
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        reader.execute("SELECT count(*) FROM call").fetchone()
    reader.close()
    assert _is_begun(killed)
    assert read_all(killed) == whole
    assert not killed.with_name("killed.bin-journal").exists()


@pytest.mark.parametrize("reason", ["attempt to write a readonly database", "unable to open database file"])
def test_a_wal_that_cannot_be_folded_says_what_to_do(
    path: Path, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    path.with_name(path.name + "-wal").write_bytes(b"")

    def refuse(connection: sqlite3.Connection) -> None:
        raise sqlite3.OperationalError(reason)

    monkeypatch.setattr("zluda.tracefile.schema.fold", refuse)  # as in a directory that cannot be written
    assert f"cannot be folded in here ({reason}); copy both" in refused(path)


def test_rings_that_cannot_be_merged_say_what_to_do(path: Path) -> None:
    rings = path.with_name(path.name + ".rings")
    rings.mkdir()
    (rings / "control").write_bytes(b"junk")
    message = refused(path)
    assert "control: truncated" in message and "move that directory away to open the rest" in message
    assert (rings / "control").read_bytes() == b"junk"
    rings.rename(path.with_name("away"))
    assert read_all(path)


def test_a_damaged_definition_is_told_in_one_short_line(path: Path) -> None:
    edit(
        path,
        "PRAGMA writable_schema = ON",
        "UPDATE sqlite_schema SET sql = CAST(CAST(sql AS BLOB) || x'ff' AS TEXT)",
    )
    assert len(refused(path).removeprefix(str(path))) < 300


def test_a_reopened_trace_goes_on(path: Path) -> None:
    with TraceWriter.reopen(path) as writer:
        signature = writer.signature("cuLater", [])
        writer.add_calls([(500, 1, None, signature, 0, 1, 0, b"")])
        writer.add_page(500, 1, 8, b"more")
    with open_trace(path) as trace:
        assert trace.call(500).function == "cuLater"
        assert trace.call(499).function == "cuMemcpyDtoH_v2"
        assert trace.memory_at(500).read(4096 + 8, 4) == b"more"
