-- The trace file, version 1. Frozen: what is here does not change (docs/trace-format.md, "The promise").
--
-- History
--   1  first version
--
-- Calls are numbered from 0 in the order in which they were entered. INTEGER columns that hold addresses, handles
-- or other 64-bit words are two's complement: mask with 2^64 - 1. Times are nanoseconds of the monotonic clock.

-- What was recorded, where and by what. Values are JSON.
CREATE TABLE meta (
    key   TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- A driver function as this recording knew it, so that an older reader can print a newer trace.
CREATE TABLE signature (
    id         INTEGER PRIMARY KEY,
    function   TEXT NOT NULL,      -- the entry's full name, with its version suffix
    parameters TEXT NOT NULL       -- JSON: [[name, C type, direction, bytes pointed to], …]
) STRICT;

-- A call is entered before it is made and closed after, so a call that crashed is on record, open.
CREATE TABLE call (
    sequence  INTEGER PRIMARY KEY,
    thread    INTEGER NOT NULL,    -- the operating system's thread id
    parent    INTEGER,             -- the call inside which this one was made
    signature INTEGER NOT NULL REFERENCES signature(id),
    start_ns  INTEGER NOT NULL,
    end_ns    INTEGER,             -- NULL: never returned
    result    INTEGER,             -- CUresult
    arguments BLOB NOT NULL        -- 8 bytes a parameter, then the fixed-size things they point to, in order
) STRICT;

-- Bytes, stored once. Blob 0 is not in the table: it stands for zeros, of whatever length is asked for.
CREATE TABLE blob (
    id   INTEGER PRIMARY KEY,
    key  BLOB NOT NULL UNIQUE,     -- BLAKE2b of the content, 16 bytes
    size INTEGER NOT NULL,         -- of the content
    data BLOB NOT NULL             -- one zstd frame, or the content itself where that is not longer
) STRICT;

-- Variable-size data that a parameter pointed to, in pieces of at most 1 MiB.
CREATE TABLE payload (
    id        INTEGER PRIMARY KEY,
    call      INTEGER NOT NULL REFERENCES call(sequence),
    parameter INTEGER NOT NULL,    -- index in the signature
    direction TEXT NOT NULL,       -- in: before the call; out: after it
    offset    INTEGER NOT NULL,
    length    INTEGER NOT NULL,
    blob      INTEGER NOT NULL
) STRICT;
CREATE INDEX payload_of_call ON payload(call);

CREATE TABLE module (
    id          INTEGER PRIMARY KEY,
    kind        TEXT NOT NULL,     -- ptx, fatbin, cubin, elf, other: what the application handed over
    origin      TEXT NOT NULL,     -- a file's name, or the driver function that took it from memory
    handle      INTEGER NOT NULL,  -- CUmodule or CUlibrary
    load_call   INTEGER NOT NULL,
    unload_call INTEGER
) STRICT;

-- Image 0 of a module is what the application handed over; the others were found inside it.
CREATE TABLE image (
    module       INTEGER NOT NULL REFERENCES module(id),
    ordinal      INTEGER NOT NULL,
    kind         TEXT NOT NULL,
    architecture TEXT NOT NULL,    -- sm_90, compute_90, or empty where unknown
    origin       TEXT NOT NULL,    -- where in the module it was found
    size         INTEGER NOT NULL,
    blob         INTEGER NOT NULL,
    PRIMARY KEY (module, ordinal)
) STRICT, WITHOUT ROWID;

-- A kernel handle. A handle's value can come again after an unload: rows are generations, told apart by first_call.
CREATE TABLE function (
    id         INTEGER PRIMARY KEY,
    handle     INTEGER NOT NULL,   -- CUfunction or CUkernel
    first_call INTEGER NOT NULL,
    module     INTEGER REFERENCES module(id),
    name       TEXT NOT NULL,
    layout     TEXT                -- JSON: [[offset, size], …] of the parameters; NULL where unknown
) STRICT;

-- What launches have in common: one row for each distinct kernel, shape and attributes.
CREATE TABLE shape (
    id           INTEGER PRIMARY KEY,
    function     INTEGER NOT NULL REFERENCES function(id),
    grid_x       INTEGER NOT NULL,
    grid_y       INTEGER NOT NULL,
    grid_z       INTEGER NOT NULL,
    block_x      INTEGER NOT NULL,
    block_y      INTEGER NOT NULL,
    block_z      INTEGER NOT NULL,
    cluster_x    INTEGER NOT NULL,
    cluster_y    INTEGER NOT NULL,
    cluster_z    INTEGER NOT NULL,
    shared_bytes INTEGER NOT NULL, -- dynamic
    attributes   BLOB NOT NULL,    -- CUlaunchAttribute array as passed
    fidelity     TEXT NOT NULL     -- same-ptx, sibling, unknown: what the GPU ran
) STRICT;

CREATE TABLE launch (
    call        INTEGER PRIMARY KEY REFERENCES call(sequence),
    shape       INTEGER NOT NULL REFERENCES shape(id),
    stream      INTEGER NOT NULL,
    parameters  BLOB NOT NULL,     -- the packed parameter buffer
    gpu_time_ns INTEGER,           -- of writers that time launches otherwise than by gpu_time
    captured    INTEGER NOT NULL   -- 1: reachable memory was looked at after the launch; 2: it was not selected; 3: it came
                                   -- after the trace had the size it may have
) STRICT;

-- Memory, by generation: an address alone is never a key.
CREATE TABLE allocation (
    id     INTEGER PRIMARY KEY,
    base   INTEGER NOT NULL,       -- of an array, which has no address: a number that is no address either
    size   INTEGER NOT NULL,
    kind   TEXT NOT NULL,          -- device, managed, host, global, pool, virtual, array
    name   TEXT NOT NULL,          -- of a module's variable; of an array, its shape; else empty
    module INTEGER REFERENCES module(id),
    born   INTEGER NOT NULL,       -- the call that made it, or a later one that freed the memory for it
    died   INTEGER                 -- the call that freed it
) STRICT;

-- Memory after a call, where the call changed it: the contents of [offset, offset + length) of an allocation.
-- A row stays inside one 64 KiB page of its allocation. Where rows of one call overlap, the later row holds.
CREATE TABLE page (
    id         INTEGER PRIMARY KEY,
    call       INTEGER NOT NULL,
    allocation INTEGER NOT NULL REFERENCES allocation(id),
    offset     INTEGER NOT NULL,
    length     INTEGER NOT NULL,
    blob       INTEGER NOT NULL
) STRICT;
CREATE INDEX page_of_call ON page(call);
CREATE INDEX page_timeline ON page(allocation, offset / 65536, call);

-- The rows of `page` that no call on record made: they were found just before the call after theirs. The host had written
-- the memory without a call, or nobody had looked at it before. Recordings of earlier recorders have no such table.
CREATE TABLE found_page (
    page INTEGER PRIMARY KEY REFERENCES page(id)
) STRICT;

-- When the GPU carried out a launch, or the launch of a graph: what two events tell, on its stream before and after it.
-- Recordings of earlier recorders, and those with --timing off, have no rows.
CREATE TABLE gpu_time (
    call        INTEGER PRIMARY KEY REFERENCES call(sequence),
    clock       INTEGER NOT NULL,
    start_ns    INTEGER NOT NULL,  -- of that clock
    duration_ns INTEGER NOT NULL
) STRICT;

-- Moments of a GPU's clock (there is one for each context, beginning near 0) and of the calls', over the run.
CREATE TABLE gpu_clock (
    id       INTEGER PRIMARY KEY,
    clock    INTEGER NOT NULL,
    gpu_ns   INTEGER NOT NULL,
    host_ns  INTEGER NOT NULL,
    error_ns INTEGER NOT NULL      -- host_ns may be this much too small or too large
) STRICT;

-- What was not captured, and why.
CREATE TABLE gap (
    id    INTEGER PRIMARY KEY,
    call  INTEGER,                 -- NULL: of the recording as a whole
    kind  TEXT NOT NULL,
    text  TEXT NOT NULL,
    count INTEGER NOT NULL
) STRICT;
CREATE INDEX gap_of_call ON gap(call);

-- Launches and copies that did not come out as recorded each time the recording GPU ran them again, and why; what `meta`
-- has under "proof" says how often that was. Optional.
CREATE TABLE proof (
    call    INTEGER PRIMARY KEY REFERENCES call(sequence),
    verdict TEXT NOT NULL,
    reason  TEXT NOT NULL
) STRICT;

-- What NVIDIA itself varies: of an allocation that a launch left otherwise than recorded. Optional.
CREATE TABLE noise (
    call         INTEGER NOT NULL,
    allocation   INTEGER NOT NULL REFERENCES allocation(id),
    kind         TEXT NOT NULL,    -- elements: those of the mask vary; set: the same rows came in another order
    element      TEXT NOT NULL,    -- the elements' type: f32, u64, bytes
    origin       INTEGER NOT NULL, -- in bytes: of the mask's first element, which begins a row of a set
    elements     INTEGER NOT NULL, -- in the mask
    mask         INTEGER NOT NULL, -- blob: a bit an element, the lowest of a byte first
    row_bytes    INTEGER NOT NULL, -- of a set; else 0
    max_ulp      REAL,             -- the largest distance from the record that was seen; NULL where it has no meaning
    max_absolute REAL,
    unbounded    INTEGER NOT NULL, -- 1: a NaN or an infinity was seen on one side only
    runs         INTEGER NOT NULL, -- how often the launch was run and held against the record
    PRIMARY KEY (call, allocation)
) STRICT, WITHOUT ROWID;
