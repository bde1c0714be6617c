"""The envelope of a launch (D7): what else its kernel may compute, found on the CPU.

Only asked for a launch of ``native`` numerics whose bits differ from the record, and whose kernel contains
approximate instructions. A second runner, started then and kept, follows the replay: it makes the objects
that the calls before the launch made, sets what the launch reaches to the *record's* memory before it, and
runs the launch seventeen times (:mod:`zluda.compiler.cpu.envelope`): with approximate results exact, and
moved to the ends of their bounds, in eight runs by their place in the code and in eight at random.

The eight patterns are Walsh functions: of any two places each is moved up and down with the other up and
down, so errors that cancel when both are moved alike are seen too. What depends on many results, as a loop's
sum does, is seen at random. Seeds are fixed: the same trace has the same envelope.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from zluda.device.names import ENVELOPE
from zluda.diff.envelope import Envelope, Placed, numbers_of, same_nan, same_number
from zluda.diff.grid import Grid, grids
from zluda.diff.kinds import ElementType, element_type
from zluda.diff.results import BufferComparison
from zluda.diff.types.layout import BYTES, UNKNOWN, Layout
from zluda.errors import Error
from zluda.records import dataclass
from zluda.replay.address_plan import plan_addresses
from zluda.replay.differing import Explained, differing
from zluda.replay.handlers import launches
from zluda.replay.kernel_facts import KernelFacts
from zluda.replay.memory import LiveAllocation, ReplayMemory
from zluda.replay.playback import Record
from zluda.replay.recovery import Recovery
from zluda.replay.session import Session
from zluda.runner import RunnerDied
from zluda.tracefile import Call, Launch

if TYPE_CHECKING:
    import numpy.typing

    Array = numpy.typing.NDArray[Any]

EXACT = (0.0, 0, 0)
MOVED = (*((1.0, pattern, 0) for pattern in range(8)), *((1.0, 0, seed) for seed in range(1, 9)))
"""(share, pattern, seed) of each run: see :class:`zluda.compiler.cpu.context.Perturbation`."""


@dataclass(slots=True)
class _Piece:
    """Differing elements of one range: numbers of them in it, and their bits on both sides."""

    one: LiveAllocation
    buffer: BufferComparison
    grid: Grid
    start: int
    stop: int
    where: Array
    replayed: Array
    envelope: Envelope
    whole: Array  # whether the record knows all of an element's bytes

    @property
    def kind(self) -> ElementType:
        return self.grid.kind

    def place(self, i: int) -> str:
        """An element's number in its allocation; of a word, where the allocation's elements are bytes; of a
        structure, with the field.
        """
        noun = f"{8 * self.kind.size}-bit word" if self.envelope.mixed else "element"
        number, _ = self.grid.locate(self.start, int(self.where[i]))
        field = f" ({self.kind.name} @{self.grid.offset})" if self.grid.period != self.kind.size else ""
        return f"{noun} {number}{field} of {self.buffer.label}"

    def take(self, data: bytes) -> Array:
        """These elements of the range's contents."""
        return self.grid.take(data, self.start)[self.where]


class Envelopes:
    """Draws envelopes for the launches of one replay, whose ``contract`` it must share; close it."""

    def __init__(
        self, record: Record, facts: KernelFacts, *, contract: str, time_limit: float | None
    ) -> None:
        self._record, self._facts = record, facts
        self._contract, self._time_limit = contract, time_limit
        self._session: Session | None = None
        self._shadow: Recovery | None = None
        self._followed = 0  # calls that the shadow has followed

    def explain(
        self, call: Call, launch: Launch, buffers: Iterable[BufferComparison], memory: ReplayMemory
    ) -> Explained:
        """Whether what differs after the launch is inside its envelope.

        ``memory`` is the replay's, after the launch; ``buffers`` are the comparisons of what it changed.
        """
        parted = [b for b in buffers if b.differing]
        mixed = any(b.layout == UNKNOWN for b in parted)
        records = self._facts.records(launch, memory) if mixed else {}
        pieces = [p for b in parted for p in _pieces(memory, b, launch.call, records)]
        if all(_same_nan(p).all() for p in pieces):
            return Explained(True, "differs only in NaN payloads")
        names = self._facts.approximations(launch)
        if not names:
            return Explained(False, "")
        left = [p for p in pieces if not _same(p).all()]
        if not left:
            return Explained(True, "differs only in NaN payloads and signs of zero")
        try:
            self._run(call, launch, left, memory)
        except Error as error:
            if isinstance(error, RunnerDied):
                self.close()
            return Explained(False, f"no envelope could be drawn: {error}")
        return _verdict(left, ", ".join(names))

    def approximates(self, launch: Launch) -> bool:
        """Whether a launch's kernel, or what it calls, has approximate instructions."""
        return bool(self._facts.approximations(launch))

    def close(self) -> None:
        """End the second runner."""
        if self._session is not None:
            self._session.close()
        self._session = self._shadow = None
        self._followed = 0

    # --- the second runner --------------------------------------------------------------------------------

    def _follow(self, upto: int) -> Recovery:
        """The shadow, with the objects that exist before call ``upto``."""
        if self._shadow is None:
            plan = plan_addresses(self._record.trace.allocations, place_globals=True)
            self._session = Session(
                "cpu", plan, numerics=ENVELOPE, contract=self._contract, time_limit=self._time_limit
            )
            self._shadow = Recovery(self._record, self._session, plan)
        self._shadow.follow(self._followed, upto)
        self._followed = upto
        return self._shadow

    def _run(self, call: Call, launch: Launch, pieces: list[_Piece], memory: ReplayMemory) -> None:
        """Launch with each perturbation; add what comes out to the pieces' envelopes."""
        shadow = self._follow(call.sequence)
        assert self._session is not None
        state = shadow.state
        reach = state.memory.reach(launch.parameters, launch.module)
        for one in reach:
            known = memory.live.get(one.id)
            one.known = one.known if known is None else known.known
        for perturbation in (EXACT, *MOVED):
            state.memory.restore(launch.call - 1, reach)
            self._session.runner.perturb(*perturbation)
            state.make_current(call.thread)
            launches.issue(state, call, launch)
            for piece in pieces:
                twin = state.memory.live[piece.one.id]
                contents = state.memory.read(twin, piece.start, piece.stop - piece.start)
                piece.envelope.add(piece.take(bytes(contents)))


# --- elements ----------------------------------------------------------------------------------------


def _pieces(
    memory: ReplayMemory, buffer: BufferComparison, call: int, records: Mapping[int, str]
) -> Iterator[_Piece]:
    """The elements of a buffer that differ, range by range."""
    assert buffer.allocation is not None
    mixed = buffer.allocation in records and buffer.layout == UNKNOWN
    for grid in [Grid.of(element_type(records[buffer.allocation]))] if mixed else _grids(buffer.layout):
        for part in differing(memory, buffer, call, grid):
            envelope = Envelope(grid.kind, part.recorded, mixed)
            place = (part.one, buffer, grid, part.start, part.stop)
            yield _Piece(*place, part.where, part.replayed, envelope, part.whole)


def _grids(layout: Layout) -> Iterator[Grid]:
    """Those of a layout's fields. What is less than a byte, or no number, has no near and far."""
    for grid, _ in grids(layout):
        measured = grid.kind.packed == 1 and grid.kind.numbers
        yield grid if measured else replace(grid, kind=element_type(BYTES), columns=_bytes_of(grid))


def _bytes_of(grid: Grid) -> tuple[int, ...]:
    return tuple(range(grid.offset, grid.offset + grid.kind.size))


def _same_nan(piece: _Piece) -> Array:
    same: Array = same_nan(piece.envelope.recorded, piece.replayed, piece.kind) & piece.whole
    if piece.envelope.mixed:  # a negative integer is any NaN
        same &= same_nan(piece.replayed, piece.replayed, piece.kind)
    return same


def _same(piece: _Piece) -> Array:
    same: Array = same_number(piece.envelope.recorded, piece.replayed, piece.kind) & piece.whole
    return _same_nan(piece) if piece.envelope.mixed else same


def _verdict(pieces: list[_Piece], names: str) -> Explained:
    import numpy as np

    count, farthest = 0, (-1.0, "")
    for piece in pieces:
        placed = piece.envelope.place(piece.replayed)
        inside = (placed.inside & piece.whole) | _same(piece)
        if not inside.all():
            return Explained(False, _outside(piece, placed, int(np.flatnonzero(~inside)[0]), names))
        count += len(inside)
        worst = int(placed.position.argmax())
        position = float(placed.position[worst])
        farthest = max(farthest, (position, piece.place(worst)))
    noun = "element differs" if count == 1 else "elements differ"
    where = f"{farthest[1]} at {farthest[0]:.2f} of the way to its edge"
    return Explained(True, f"inside the envelope of {names}: {count} {noun}, {where}")


def _outside(piece: _Piece, placed: Placed, i: int, names: str) -> str:
    import numpy as np

    if piece.kind.name == BYTES:
        return f"outside the envelope of {names}: {piece.place(i)}, bytes of which no type is known"
    low, high = placed.low[i].item(), placed.high[i].item()
    bits = np.array([piece.envelope.recorded[i], piece.replayed[i]])
    recorded, replayed = (
        f"{number.item():.9g}" if number == number else f"{pattern.item():#x}"
        for number, pattern in zip(numbers_of(bits, piece.kind), bits, strict=True)
    )
    where = f"{piece.place(i)}, recorded {recorded}, replayed {replayed}"
    return f"outside the envelope of {names}: {where}; inside were {low:.9g} to {high:.9g}"
