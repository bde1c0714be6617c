"""The tables of a store, and their history.

1. The first.

What a cell came to is an *outcome*: it is kept once, and every night that finds it again has a narrow row in
`cell` that points to it. So a year of nights in which little changes is a year of small rows.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)

VERSION = 1

metadata = MetaData()

about = Table(
    "matrix_store",
    metadata,
    Column("version", Integer, nullable=False),  # VERSION of who made it
)

run = Table(
    "run",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("started", String(40), nullable=False),  # ISO 8601, UTC
    Column("finished", String(40)),  # NULL: it is running, or was interrupted
    Column("commit", String(64), nullable=False),  # of zluda's sources; "" where that is not known
    Column("subject", Text, nullable=False),  # the commit's first line
    Column("dirty", Boolean, nullable=False),  # sources differed from the commit
    Column("version", String(40), nullable=False),  # zluda's
    Column("host", String(200), nullable=False),
    Column("corpus", Text, nullable=False),  # the directory
    Column("options", Text, nullable=False),  # JSON: devices, numerics, limits …
)

program = Table(
    "program",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("name", String(200), nullable=False, unique=True),
    Column("about", Text, nullable=False),
    Column("package", String(200), nullable=False),  # "" for a program of the corpus' own
    Column("path", Text, nullable=False),  # of its trace, as the last night had it
)

trace = Table(
    "trace",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("digest", String(32), nullable=False, unique=True),  # BLAKE2b of the file
    Column("bytes", BigInteger, nullable=False),
    Column("tags", Text, nullable=False),  # JSON: ptx, driver, libraries: feature -> launches or calls
)

slot = Table(  # a place in the matrix
    "slot",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("program", ForeignKey("program.id"), nullable=False),
    Column("device", String(40), nullable=False),
    Column("numerics", String(20), nullable=False),
    UniqueConstraint("program", "device", "numerics"),
)

outcome = Table(
    "outcome",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("slot", ForeignKey("slot.id"), nullable=False),
    Column("trace", ForeignKey("trace.id")),  # NULL: there was none to read
    Column("made_in", ForeignKey("run.id"), nullable=False),
    # What decides a verdict (identity.py). code "" where it cannot be told.
    Column("environment", Text, nullable=False),
    Column("compiler", String(100), nullable=False),
    Column("runtime", String(40), nullable=False),
    Column("code", String(40), nullable=False),
    Column("found", String(20), nullable=False),  # a verdict, or not-run, flaky, infrastructure
    Column("verdict", String(20)),  # of the last attempt; NULL where there was no replay
    Column("reason", Text, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("failures", Integer, nullable=False),  # of the attempts
    Column("seconds", Float),  # of the replay
    Column("peak_bytes", BigInteger),  # of all of the cell's processes
    Column("launches", Integer, nullable=False),
    Column("held", Integer, nullable=False),  # launches that were compared and hold
    Column(
        "untold", Integer, nullable=False
    ),  # launches of which nothing can be told: not translated, a gap …
    Column("product", String(200), nullable=False),  # what the device's maker calls it
    Column("emulated", Boolean, nullable=False),
    Column("detail", LargeBinary),  # zlib, JSON: what `zluda replay --json` prints
    Column("page", LargeBinary),  # zlib: the page of `zluda replay --html`
    Index("outcome_of", "slot", "trace"),
)

kernel = Table(
    "kernel",
    metadata,
    Column("outcome", ForeignKey("outcome.id"), primary_key=True),
    Column("name", String(4000), primary_key=True),
    Column("verdict", String(20), nullable=False),  # the worst of its launches
    Column("launches", Integer, nullable=False),
    Column("held", Integer, nullable=False),
    Column("class", String(40), nullable=False),  # "" where there is no PTX
    Column("code", String(40), nullable=False),
)

sample = Table(  # a measured replay: one kernel's launches together
    "sample",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("outcome", ForeignKey("outcome.id"), nullable=False, index=True),
    Column("run", ForeignKey("run.id"), nullable=False),
    Column("kernel", String(4000), nullable=False),
    Column("code", String(40), nullable=False),
    Column("host", String(200), nullable=False),
    Column("seconds", Float),  # NULL on emulated GPUs, whose time means nothing
    Column("instructions", BigInteger),  # of waves, on emulated GPUs: exact
)

cell = Table(
    "cell",
    metadata,
    Column("slot", ForeignKey("slot.id"), primary_key=True),
    Column("run", ForeignKey("run.id"), primary_key=True),
    Column("outcome", ForeignKey("outcome.id"), nullable=False),
    Column("state", String(20), nullable=False),  # found, or expected-fail, unexpected-pass
    Column("expected", Text, nullable=False),  # the expectation's reason, "" without one
    Column("taken_over", Boolean, nullable=False),  # from an earlier night: nothing was run
    Index("cell_of_run", "run"),
    sqlite_with_rowid=False,  # rows of a place lie together, night after night
)
