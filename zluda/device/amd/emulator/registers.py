"""A wave's registers: in its record (``state.py``) between segments, SSA values within one.

A vector instruction changes active lanes only. Its result is kept apart from the register's other lanes until
somebody needs all of them: an instruction under the same EXEC reads it as it is, and lanes that nobody reads
are never merged. What a segment changed is stored at its end; ``liveness.py`` drops what is dead by then.
"""

from __future__ import annotations

from collections.abc import Callable

from zluda.compiler.ir import Builder, Module, Value
from zluda.device.amd.emulator import state
from zluda.device.amd.emulator.instruction import EXEC
from zluda.device.amd.emulator.liveness import Segment, scalar_bits, vector_bit

S = Value("ptr", 1, "%S")


class Registers:
    """Emits accesses to the registers of a wave of ``lanes`` lanes. Bits: ``i32`` or, in pairs, ``i64``."""

    def __init__(self, module: Module, lanes: int) -> None:
        self.b = Builder(module)
        self.lanes = lanes
        self.mask_type = f"i{lanes}"
        self.vector_registers = 0  # how many the kernel uses
        self.known: dict[int, int] = {}  # scalar registers whose number is known in this basic block
        self.segments: list[Segment] = []
        self.segment = Segment()
        self._open = False
        self._scalars: dict[int, Value] = {}  # by first register; entries do not overlap
        self._dirty_scalars: set[int] = set()
        self._lane_flags: dict[str, Value] = {}  # masks as ``<lanes x i1>``
        self._whole: dict[int, Value] = {}  # vector registers in all lanes
        self._active: dict[int, tuple[Value, str]] = {}  # in the lanes of an EXEC value
        self._active_pairs: dict[int, tuple[Value, str]] = {}
        self._unmerged: dict[int, tuple[Value, Value]] = {}  # result and lanes, newer than ``_whole``
        self._dirty_vectors: set[int] = set()

    # --- segments --------------------------------------------------------------------------------------

    def enter(self) -> Segment:
        """Begin a segment: registers are in memory, nothing is known of them."""
        self.segment = Segment()
        self.segments.append(self.segment)
        self._open = True
        for numbered in (
            self._scalars,
            self._whole,
            self._active,
            self._active_pairs,
            self._unmerged,
            self.known,
        ):
            numbered.clear()
        self._lane_flags.clear()
        self._dirty_scalars.clear()
        self._dirty_vectors.clear()
        return self.segment

    def cut(self, *, indexed: bool = False) -> None:
        """End the segment and begin the next right behind; ``indexed``: it reads registers by index."""
        self.flush()
        before, known = self.segment, dict(self.known)
        before.follower = self.enter()
        self.known |= known
        self.segment.reads = -1 if indexed else 0

    def flush(self) -> None:
        """Store the registers that the segment changed: it ends here."""
        if self._open:
            for index in sorted(self._dirty_scalars):
                value = self._scalars[index]
                self._stored(scalar_bits(index, value.width // 32), lambda i=index: self._store_scalar(i))  # type: ignore[misc]
            for index in sorted(self._dirty_vectors):
                self._stored(vector_bit(index), lambda i=index: self._store_vector(i))  # type: ignore[misc]
            self._open = False

    def _stored(self, registers: int, store: Callable[[], None]) -> None:
        store()
        self.segment.stores.append((len(self.b.lines) - 1, registers))

    def _store_scalar(self, index: int) -> None:
        self.b.store(self._scalars[index], self.b.gep(S, 4 * index), align=4)

    def _store_vector(self, index: int) -> None:
        self.b.store(self._merged(index), self.vgpr_address(index), align=64)

    # --- scalar registers ------------------------------------------------------------------------------

    def sgpr(self, index: int, element: str = "i32") -> Value:
        """A scalar register, or a pair as ``i64``."""
        if element == "i64":
            return self._scalar_pair(index)
        value = self._scalars.get(index)
        if value is not None:
            return self.b.trunc(value, "i32")
        pair = self._scalars.get(index - 1)
        if pair is not None and pair.type == "i64":
            return self.b.trunc(self.b.lshr(pair, 32), "i32")
        return self._load_scalar(index, "i32")

    def _scalar_pair(self, index: int) -> Value:
        value = self._scalars.get(index)
        if value is not None and value.type == "i64":
            return value
        before = self._scalars.get(index - 1)
        overlapping = before is not None and before.type == "i64"
        if value is None and not overlapping and index + 1 not in self._scalars:
            return self._load_scalar(index, "i64")
        low, high = (self.b.zext(self.sgpr(i), "i64") for i in (index, index + 1))
        return self.b.or_(self.b.shl(high, 32), low)

    def _load_scalar(self, index: int, element: str) -> Value:
        assert self._open
        value = self.b.load(element, self.b.gep(S, 4 * index), align=4)
        self.segment.read(scalar_bits(index, value.width // 32))
        self._scalars[index] = value
        return value

    def set_sgpr(self, index: int, value: Value) -> None:
        """Write a scalar register, or a pair with an ``i64``."""
        assert self._open
        words = value.width // 32
        for start in (index - 1, index, index + 1):
            if start in self._scalars:
                self._give_up(start, range(index, index + words))
        self._scalars[index] = value
        self._dirty_scalars.add(index)
        self.segment.writes |= scalar_bits(index, words)
        for word in range(index, index + words):
            self.known.pop(word, None)

    def _give_up(self, start: int, written: range) -> None:
        """Keep of the value at ``start`` only the half that is not written."""
        value = self._scalars[start]
        words = range(start, start + value.width // 32)
        if not set(words) & set(written):
            return
        del self._scalars[start]
        dirty = start in self._dirty_scalars
        self._dirty_scalars.discard(start)
        for word in set(words) - set(written):
            half = self.b.lshr(value, 32) if word > start else value
            self._scalars[word] = self.b.trunc(half, "i32")
            if dirty:
                self._dirty_scalars.add(word)

    # --- lane masks ------------------------------------------------------------------------------------

    def exec_mask(self) -> Value:
        """EXEC as an integer of a bit a lane."""
        return self.sgpr(EXEC, self.mask_type)

    def exec_lanes(self) -> Value:
        """EXEC as ``<lanes x i1>``."""
        return self.to_lanes(self.exec_mask())

    def to_lanes(self, mask: Value) -> Value:
        """An integer of a bit a lane as ``<lanes x i1>``."""
        if mask.ref not in self._lane_flags:
            self._lane_flags[mask.ref] = self.b.reshape(mask, "i1", self.lanes)
        return self._lane_flags[mask.ref]

    # --- vector registers ------------------------------------------------------------------------------

    def vgpr_address(self, index: int) -> Value:
        self.vector_registers = max(self.vector_registers, index + 1)
        return self.b.gep(S, state.VGPRS + 4 * self.lanes * index)

    def vgpr(self, index: int) -> Value:
        """A vector register as ``i32``, right in the lanes of EXEC only."""
        value, key = self._active.get(index, (None, ""))
        return value if value is not None and key == self.exec_mask().ref else self.whole_vgpr(index)

    def vgpr_pair(self, index: int) -> Value:
        """Two registers as ``i64``, right in the lanes of EXEC only."""
        value, key = self._active_pairs.get(index, (None, ""))
        if value is not None and key == self.exec_mask().ref:
            return value
        low, high = (self.b.zext(self.vgpr(i), "i64") for i in (index, index + 1))
        return self.b.or_(low, self.b.shl(high, 32))

    def whole_vgpr(self, index: int) -> Value:
        """All lanes of a vector register, as ``i32``."""
        assert self._open
        self.segment.read(vector_bit(index))
        return self._merged(index)

    def _merged(self, index: int) -> Value:
        """All lanes, whether or not anybody reads them."""
        if index not in self._whole:
            self._whole[index] = self.b.load("i32", self.vgpr_address(index), self.lanes, align=64)
        result, chosen = self._unmerged.pop(index, (None, None))
        if result is not None and chosen is not None:
            self._whole[index] = self.b.select(chosen, result, self._whole[index])
        return self._whole[index]

    def set_all_lanes(self, index: int, value: Value) -> None:
        """Write every lane, EXEC or not."""
        self._changed(index)
        self._unmerged.pop(index, None)
        self._whole[index] = self.b.splat(value, self.lanes)
        self.segment.writes |= vector_bit(index)

    def set_vgpr(self, index: int, value: Value, mask: Value | None = None) -> None:
        """Write the lanes of ``mask`` (EXEC): ``i32``, or ``i64`` into two registers."""
        b = self.b
        value = b.splat(value, self.lanes)
        if value.type == "i64":
            self.set_vgpr(index, b.trunc(value, "i32"), mask)
            self.set_vgpr(index + 1, b.trunc(b.lshr(value, 32), "i32"), mask)
            if mask is None:
                self._active_pairs[index] = (value, self.exec_mask().ref)
            return
        chosen = mask if mask is not None else self.exec_lanes()
        if index in self._unmerged and self._unmerged[index][1] is not chosen:
            self._merged(index)
        self._changed(index)
        self._unmerged[index] = (value, chosen)
        if mask is None:
            self._active[index] = (value, self.exec_mask().ref)

    def _changed(self, index: int) -> None:
        assert self._open
        self.vector_registers = max(self.vector_registers, index + 1)
        self._dirty_vectors.add(index)
        self._active.pop(index, None)
        for pair in (index - 1, index):
            self._active_pairs.pop(pair, None)
