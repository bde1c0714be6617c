"""From which call to which an allocation lives, where calls of several threads are under way at once.

Calls are numbered as they are entered. An allocation that takes long may be entered before the call, another
thread's, that frees the very memory which it gets; by their numbers the two would live at one place together,
and what was done with the first until it was freed would seem done with the second. So a life begins with the
call that made the memory *or*, if that is later, with the one that freed it. And what a free means is settled
when it is entered: when it returns, the address may be another's already.
"""

from __future__ import annotations

from collections.abc import Callable

from zluda.records import dataclass
from zluda.tracefile.reachability import LiveSpans


@dataclass(frozen=True, slots=True)
class Life:
    """An allocation that is alive; ``module`` owns it if it is a variable."""

    id: int
    base: int
    size: int
    born: int
    module: int | None


class Lifetimes:
    """The allocations alive at this point of a recording."""

    def __init__(self, close: Callable[[int, int], None]) -> None:
        """``close(allocation, call)`` is told of each end."""
        self._close = close
        self.spans = LiveSpans()
        self._at: dict[int, Life] = {}  # by base address
        self._of: dict[int, Life] = {}  # by id
        self._allocating: set[int] = set()  # calls under way
        self._freeing: dict[int, list[Life]] = {}  # calls under way → what they free
        self._ended: dict[tuple[int, int], int] = {}  # (base, end) → call: last freed while `_allocating`

    def at(self, base: int) -> int | None:
        """The allocation that begins at ``base``."""
        life = self._at.get(base)
        return None if life is None else life.id

    def variables(self, module: int) -> list[int]:
        """The live variables of a module."""
        return [life.id for life in self._of.values() if life.module == module]

    def allocation_entered(self, call: int) -> None:
        self._allocating.add(call)

    def free_entered(self, call: int, base: int) -> None:
        life = self._at.get(base)
        if life is not None and life.born < call:
            self._freeing[call] = [life]

    def unmap_entered(self, call: int, base: int, size: int) -> None:
        """All memory that is mapped in a range."""
        lives = [self._of[key] for key in self.spans.overlapping(base, size)]
        self._freeing[call] = [life for life in lives if life.born < call]

    def left(self, call: int, *, succeeded: bool) -> None:
        """A call that allocates or frees returned; what it allocated has begun."""
        for freed in self._freeing.pop(call, ()):
            if succeeded:
                self.end(freed.id, call)
        self._allocating.discard(call)
        if not self._allocating:
            self._ended.clear()

    def birth(self, base: int, size: int, call: int) -> int:
        """The call after which memory lives that ``call`` made; what still lay there has ended by then."""
        for key in self.spans.overlapping(base, size):
            life = self._of[key]
            freed_by = [free for free, lives in self._freeing.items() if any(one is life for one in lives)]
            # Without a free: gone with its context, or by a call that is not understood.
            end = max(life.born, *(freed_by or [call]))
            self.end(key, end)
            call = max(call, end)
        ends = (died for (start, end), died in self._ended.items() if start < base + size and base < end)
        return max(call, max(ends, default=call))

    def begin(self, life: Life) -> None:
        self.spans.add(life.id, life.base, life.size)
        self._at[life.base] = self._of[life.id] = life

    def end(self, key: int, call: int) -> None:
        """``call`` ended an allocation; one that has ended stays as it is."""
        life = self._of.pop(key, None)
        if life is None:
            return
        self.spans.remove(key)
        if self._at.get(life.base) is life:
            del self._at[life.base]
        if self._allocating:
            span = (life.base, life.base + life.size)
            self._ended[span] = max(call, self._ended.get(span, 0))
        self._close(key, call)
