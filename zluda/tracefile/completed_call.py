"""A call that has been read back from a ring, with everything that it carried."""

from __future__ import annotations

from typing import IO, Any

from zluda.records import dataclass


@dataclass(slots=True)
class Data:
    """One DATA record: a piece at ``offset`` of what a parameter points to."""

    parameter: int
    direction: int
    part: int
    offset: int
    held: bytes | tuple[IO[bytes], int, int]  # itself, or where it waits: file, place, size

    @property
    def content(self) -> bytes:
        if isinstance(self.held, bytes):
            return self.held
        file, place, size = self.held
        file.seek(place)
        return file.read(size)


@dataclass(slots=True)
class Completed:
    """A call that returned, with the data it carried."""

    sequence: int
    row: dict[str, Any]
    words: tuple[int, ...]
    arguments: bytes  # as the `call` row holds them
    pointees: list[bytes | None]  # what each parameter points to: after the call where the call writes it
    packed: bytes
    result: int
    flags: int
    data: list[Data]

    def output(self, parameter: int) -> int:
        """The integer that an output parameter points to; 0 where it was NULL."""
        piece = self.pointees[parameter]
        return int.from_bytes(piece[:8], "little") if piece else 0

    def content(self, parameter: int, part: int = 0) -> bytes:
        """The joined data of a parameter."""
        return b"".join(d.content for d in self.data if d.parameter == parameter and d.part == part)
