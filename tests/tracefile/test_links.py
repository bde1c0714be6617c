"""Modules of the driver's linker: the PTX that went in is on record with what came out."""

from __future__ import annotations

from pathlib import Path

import pytest

from zluda.tracefile.completed_call import Completed, Data
from zluda.tracefile.links import Links

PTX = b".version 8.0\n.target sm_90\n.visible .entry k() { ret; }\n"
STATE, CUBIN = 0x10, 0x7000


def done(words: list[int], outputs: list[bytes | None] = [], content: bytes = b"") -> Completed:  # noqa: B006
    data = [Data(2, 1, 0, 0, content)] if content else []
    return Completed(0, {}, tuple(words), b"", list(outputs), b"", 0, 0, data)


@pytest.fixture
def links() -> Links:
    return Links(lambda fat_binary: PTX if b"with" in fat_binary else None)


def complete(links: Links, address: int = CUBIN, size: int = 500, state: int = STATE) -> None:
    links.completed(done([state, 1, 2], [None, address.to_bytes(8, "little"), size.to_bytes(8, "little")]))


def test_one_text_is_what_the_module_was_compiled_from(links: Links) -> None:
    links.added_data(done([STATE, 1], content=PTX + b"\0"))
    links.added_data(done([STATE, 4], content=b"!<arch>"))  # a library: cudadevrt
    complete(links)
    found = links.find(CUBIN, bytes(500))
    assert found is not None and (found.ptx, found.architecture, found.problem) == (PTX, "sm_90", "")


def test_a_copy_is_told_by_its_size_where_that_is_one_links(links: Links) -> None:
    links.added_data(done([STATE, 1], content=PTX))
    complete(links)
    assert links.find(0x9000, bytes(500)) is not None
    assert links.find(0x9000, bytes(501)) is None
    links.added_data(done([STATE, 1], content=PTX + b"// another"))
    complete(links, address=0x8000)
    assert links.find(0x9000, bytes(500)) is None
    found = links.find(0x8000, bytes(500))
    assert found is not None and found.ptx.endswith(b"another")


def test_several_texts_are_a_problem_that_is_named(links: Links) -> None:
    for _ in range(2):
        links.added_data(done([STATE, 1], content=PTX))
    links.added_data(done([STATE, 2], content=b"fat binary with ptx"))
    links.added_data(done([STATE, 2], content=b"another"))
    complete(links)
    found = links.find(CUBIN, bytes(500))
    assert found is not None and not found.ptx and "3 PTX texts" in found.problem


def test_files_and_machine_code(links: Links, tmp_path: Path) -> None:
    (tmp_path / "k.ptx").write_bytes(PTX)
    links.added_file(done([STATE, 1], content=str(tmp_path / "k.ptx").encode()))
    complete(links)
    found = links.find(CUBIN, bytes(500))
    assert found is not None and found.ptx == PTX
    links.added_file(done([0x20, 1], content=str(tmp_path / "gone.ptx").encode()))
    complete(links, 0x8000, 600, state=0x20)
    found = links.find(0x8000, bytes(600))
    assert found is not None and "could not be read" in found.problem
    links.added_data(done([0x30, 0], content=b"\x7fELF"))
    complete(links, 0xA000, 700, state=0x30)
    assert links.find(0xA000, bytes(700)) is None
