"""The store: what it keeps, in SQLite and in PostgreSQL; what it refuses."""

from __future__ import annotations

import os
import shutil
import socket
import sqlite3
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from matrix_nights import stored_night

from zluda.errors import Error
from zluda.matrix.changes import compare
from zluda.matrix.speed import samples_of
from zluda.matrix.store import CellResult, KernelRow, Outcome, RunFacts, Sample, Store


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The URL of a server of its own, on a socket in a directory of its own."""
    pytest.importorskip("psycopg", reason="needs psycopg")
    found = shutil.which("postgres") or next(
        map(str, sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), reverse=True)), None
    )
    if found is None:
        pytest.skip("needs PostgreSQL's server")
    tools = Path(os.path.realpath(found)).parent
    # Not below pytest's directories: the server must not be root, who alone may look into those.
    place = Path(tempfile.mkdtemp(prefix="zluda-postgres-"))
    data = place / "data"
    as_user: list[str] = []
    if os.geteuid() == 0:  # which the server refuses to run as
        as_user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
        os.chown(place, 65534, 65534)
    environment = {**os.environ, "LC_ALL": "C"}
    made = [*as_user, str(tools / "initdb"), "-D", str(data), "-A", "trust", "-U", "zluda", "--no-sync"]
    made += ["-E", "UTF8"]
    subprocess.run(made, check=True, capture_output=True, env=environment, cwd=place)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [*as_user, str(tools / "postgres"), "-D", str(data), "-k", str(place), "-F"]
    command += ["-c", "listen_addresses=", "-p", str(port)]
    with (place / "log").open("w") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log, env=environment, cwd=place)
    url = f"postgresql+psycopg://zluda@/postgres?host={place}&port={port}"
    try:
        _wait_for(server, url, place / "log")
        yield url
    finally:
        server.terminate()
        server.wait(20)
        shutil.rmtree(place)


def _wait_for(server: subprocess.Popen[bytes], url: str, log: Path) -> None:
    """Until the server takes connections."""
    import psycopg

    for _ in range(600):
        try:
            psycopg.connect(url.replace("+psycopg", "")).close()
            return
        except psycopg.OperationalError:  # it is starting up
            assert server.poll() is None, log.read_text()
            time.sleep(0.1)
    raise AssertionError(log.read_text())


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database in which there is nothing."""
    if request.param == "sqlite":
        return str(tmp_path / "nights.db")
    address: str = request.getfixturevalue("postgres")
    import psycopg

    with psycopg.connect(address.replace("+psycopg", ""), autocommit=True) as connection:
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")
    return address


def test_gives_back_what_it_was_given(url: str) -> None:
    outcome = Outcome(
        program="p",
        device="gfx1030",
        numerics="native",
        trace="0" * 32,
        environment="here",
        compiler="c",
        runtime="r",
        code="d",
        found="differs",
        verdict="differs",
        reason="#3 k: differs ✗",
        attempts=3,
        failures=3,
        seconds=0.25,
        peak_bytes=1 << 40,
        launches=5,
        held=4,
        product="Radeon",
        emulated=True,
        detail={"verdict": "differs", "name": "µ"},
        page="<!doctype html>é",
        kernels=[KernelRow(name="k", verdict="differs", launches=5, held=4, kind="ieee-exact", code="d")],
        samples=[Sample(kernel="k", code="d", seconds=None, instructions=10**12)],
    )
    with Store(url, create=True) as store:
        number = store.begin_run(RunFacts(commit="f" * 40, host="here", options={"devices": ["gfx1030"]}))
        store.add_trace("0" * 32, 1 << 40, {"ptx": {"shuffle": 2}})
        store.add_program("p", "about it", "PyTorch", "p/trace.bin")
        store.add(number, [CellResult(outcome=outcome, state="expected-fail", expected="why")])
        store.finish_run(number)
    with Store(url) as store:
        cells = store.cells(number)
        (row,) = cells.to_dict("records")
        assert {column: row[column] for column in ("program", "package", "device", "state", "expected")} == {
            "program": "p",
            "package": "PyTorch",
            "device": "gfx1030",
            "state": "expected-fail",
            "expected": "why",
        }
        assert (row["reason"], row["peak_bytes"], row["emulated"]) == ("#3 k: differs ✗", 1 << 40, True)
        assert store.detail(row["outcome"]) == outcome.detail and store.page(row["outcome"]) == outcome.page
        assert store.tags("0" * 32) == {"ptx": {"shuffle": 2}}
        assert samples_of(store, number)["instructions"].tolist() == [10**12]
        (known,) = store.known("p", "gfx1030", "native", "0" * 32, "here", "r")
        assert (known["found"], known["compiler"], known["code"]) == ("differs", "c", "d")
        assert store.known("p", "gfx1030", "native", "0" * 32, "elsewhere", "r") == []
        assert store.cells_done(number) == {("p", "gfx1030", "native")}


def test_compares_runs_in_any_database(url: str) -> None:
    with Store(url, create=True) as store:
        a = stored_night(store, {("p", "cpu"): "identical", ("q", "cpu"): "identical"})
        b = stored_night(store, {("p", "cpu"): "crash", ("q", "cpu"): "identical"})
        assert [(cell.program, str(cell.change)) for cell in compare(store, a, b).cells] == [
            ("p", "regressed")
        ]


def test_keeps_all_of_several_cells_or_none(url: str) -> None:
    good = Outcome(program="p", device="cpu", numerics="nvidia", found="not-run")
    bad = Outcome(program="q", device="cpu", numerics="nvidia", found="not-run", id=99999)
    with Store(url, create=True) as store:
        number = store.begin_run(RunFacts())
        with pytest.raises(Exception, match=r"(?i)foreign key"):
            store.add(number, [CellResult(outcome=one, state="not-run") for one in (good, bad)])
        assert len(store.cells(number)) == 0
        store.add(number, [CellResult(outcome=good, state="not-run")])  # its program is made again
        assert len(store.cells(number)) == 1


def test_no_message_holds_a_password() -> None:
    with pytest.raises(Error) as error:
        Store("postgresql+psycopg://someone:secret@127.0.0.1:1/nights")
    assert "someone" in str(error.value) and "secret" not in str(error.value)


def test_refuses_what_is_no_store(tmp_path: Path) -> None:
    with pytest.raises(Error, match="no such file"):
        Store(str(tmp_path / "none.db"))
    other = tmp_path / "other.db"
    with sqlite3.connect(other) as connection:
        connection.execute("CREATE TABLE something (x)")
    for create in (False, True):
        with pytest.raises(Error, match="is no store"):
            Store(str(other), create=create)
    text = tmp_path / "text.db"
    text.write_text("nothing of the kind, and long enough to be looked at" * 10)
    with pytest.raises(Error, match="not a database"):
        Store(str(text))
    with pytest.raises(Error, match="nosuch"):
        Store("nosuch://x")
    with Store(str(tmp_path / "nights.db"), create=True) as store:
        store.connection.exec_driver_sql("UPDATE matrix_store SET version = 99")
        store.connection.commit()
    with pytest.raises(Error, match="is of version 99"):
        Store(str(tmp_path / "nights.db"))
