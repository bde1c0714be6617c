"""The registers of a wave, as the lifter reads and writes them.

The wave function's arguments are ``%S`` (the wave's record, ``state.py``), ``%L`` (LDS), ``%P`` (the wave's
scratch) and ``%B`` (its block). Registers are in memory between basic blocks; ``%S`` is ``noalias``, so
LLVM keeps registers in host registers between basic blocks where it can; within one this module does.
"""

from __future__ import annotations

from zluda.compiler.amd.targets import Target
from zluda.compiler.ir import Builder, Module, Value, constant
from zluda.device.amd.emulator import state
from zluda.device.amd.emulator.instruction import EXEC, SCC, VCC, Operand
from zluda.device.amd.emulator.values import Context, FloatMode
from zluda.errors import UnsupportedError

S, L, P, B = (Value("ptr", 1, name) for name in ("%S", "%L", "%P", "%B"))


class Wave:
    """Emits accesses to one wave's registers. ``lanes`` is the wave size; ``mode`` the MODE now in force."""

    def __init__(
        self, target: Target, lanes: int, module: Module, mode: FloatMode, *, kernel: str = "", entry: int = 0
    ) -> None:
        self.target, self.lanes = target, lanes
        self.kernel, self.entry = kernel, entry
        self.b = Builder(module)
        self.mode = mode
        self.vector = Context(self.b, lanes, mode)
        self.scalar = Context(self.b, 1, mode)
        self.mask_type = f"i{lanes}"
        self.vector_registers = 0
        self.offset = 0  # of the instruction being lifted
        self.check_memory = False  # whether global accesses are tested against live allocations
        self.known: dict[int, int] = {}  # scalar registers whose number is known in this basic block
        self._scalars: dict[int, Value] = {}
        self._vectors: dict[int, Value] = {}
        self._dirty_scalars: set[int] = set()
        self._dirty_vectors: set[int] = set()
        self.vgpr_index: tuple[Value, str] | None = None  # gfx9: s_set_gpr_idx_on's index and modes

    def unsupported(self, what: str) -> UnsupportedError:
        """The error for something this emulator does not execute, at the current instruction."""
        place = f"kernel {self.kernel}, offset {self.offset - self.entry:#x}"
        return UnsupportedError(what, f"{place}, target {self.target.name}")

    # --- the registers' memory -------------------------------------------------------------------------

    def flush(self) -> None:
        """Store every register written since the basic block began: before control leaves it."""
        for index in sorted(self._dirty_scalars):
            self._store_scalar(index)
        for index in sorted(self._dirty_vectors):
            self.b.store(self._vectors[index], self.vgpr_address(index), align=64)
        self._dirty_scalars.clear()
        self._dirty_vectors.clear()

    def forget(self) -> None:
        """Begin a basic block: registers are in memory, nothing is known of them."""
        for cache in (self._scalars, self._vectors, self._dirty_scalars, self._dirty_vectors, self.known):
            cache.clear()

    def _store_scalar(self, index: int) -> None:
        self.b.store(self._scalars[index], self.b.gep(S, 4 * index), align=4)

    def _drop_scalar(self, index: int, *, keep: bool) -> None:
        """Forget a cached register; ``keep`` writes it to memory first if it was changed."""
        if index in self._dirty_scalars:
            if keep:
                self._store_scalar(index)
            self._dirty_scalars.discard(index)
        self._scalars.pop(index, None)

    # --- scalar registers ------------------------------------------------------------------------------

    def sgpr(self, index: int, element: str = "i32") -> Value:
        """A scalar register, or a pair as ``i64``."""
        cached = self._scalars.get(index)
        if cached is not None and cached.type == element:
            return cached
        for overlapping in (index - 1, index, index + 1):
            other = self._scalars.get(overlapping)
            if other is not None and _overlap(overlapping, other.type, index, element):
                self._drop_scalar(overlapping, keep=True)
        value = self.b.load(element, self.b.gep(S, 4 * index), align=4)
        self._scalars[index] = value
        return value

    def set_sgpr(self, index: int, value: Value) -> None:
        """Write a scalar register, or a pair with an ``i64``."""
        for overlapping in (index - 1, index, index + 1):
            other = self._scalars.get(overlapping)
            if other is not None and _overlap(overlapping, other.type, index, value.type):
                self._drop_scalar(overlapping, keep=overlapping < index or other.type == "i64")
        self._scalars[index] = value
        self._dirty_scalars.add(index)
        self.known.pop(index, None)
        if value.type == "i64":
            self.known.pop(index + 1, None)

    def code_address(self, offset: int) -> Value:
        """The address of an offset in the code object, as ``i64``."""
        return self.b.add(self.code_base(), offset)

    def code_base(self) -> Value:
        """Where the code object is loaded."""
        return self.b.load("i64", self.b.gep(B, state.block_field("code")), align=8)

    def scc(self) -> Value:
        """The condition code as ``i1``."""
        return self.b.icmp("ne", self.sgpr(SCC), 0)

    def set_scc(self, condition: Value) -> None:
        self.set_sgpr(SCC, self.b.zext(condition, "i32"))

    # --- lane masks ------------------------------------------------------------------------------------

    def exec_mask(self) -> Value:
        """EXEC as an integer of a bit a lane."""
        return self.sgpr(EXEC, self.mask_type)

    def exec_lanes(self) -> Value:
        """EXEC as ``<lanes x i1>``."""
        return self.to_lanes(self.exec_mask())

    def vcc_lanes(self) -> Value:
        return self.to_lanes(self.sgpr(VCC, self.mask_type))

    def to_lanes(self, mask: Value) -> Value:
        return self.b.reshape(mask, "i1", self.lanes)

    def to_mask(self, lanes: Value) -> Value:
        return self.b.reshape(self.b.splat(lanes, self.lanes), self.mask_type, 1)

    def lane_numbers(self, element: str = "i32") -> Value:
        """0, 1, 2 … in a vector."""
        return self.b.vector(element, range(self.lanes))

    def lane_flags(self, flags: list[bool]) -> Value:
        """A constant ``i1`` a lane."""
        return self.b.vector("i1", [int(f) for f in flags])

    # --- vector registers ------------------------------------------------------------------------------

    def vgpr_address(self, index: int) -> Value:
        self.vector_registers = max(self.vector_registers, index + 1)
        return self.b.gep(S, state.VGPRS + 4 * self.lanes * index)

    def vgpr(self, index: int) -> Value:
        """All lanes of a vector register, as ``i32``."""
        if index not in self._vectors:
            self._vectors[index] = self.b.load("i32", self.vgpr_address(index), self.lanes, align=64)
        return self._vectors[index]

    def vgpr_pair(self, index: int) -> Value:
        """Two registers as ``i64``."""
        low, high = self.b.zext(self.vgpr(index), "i64"), self.b.zext(self.vgpr(index + 1), "i64")
        return self.b.or_(low, self.b.shl(high, 32))

    def set_all_lanes(self, index: int, value: Value) -> None:
        """Write every lane, EXEC or not."""
        self.vector_registers = max(self.vector_registers, index + 1)
        self._vectors[index] = self.b.splat(value, self.lanes)
        self._dirty_vectors.add(index)

    def set_vgpr(self, index: int, value: Value, mask: Value | None = None) -> None:
        """Write the lanes of ``mask`` (EXEC): ``i32``, or ``i64`` into two registers."""
        b = self.b
        chosen = mask if mask is not None else self.exec_lanes()
        if value.type == "i64":
            self.set_vgpr(index, b.trunc(value, "i32"), chosen)
            self.set_vgpr(index + 1, b.trunc(b.lshr(value, 32), "i32"), chosen)
        else:
            self.set_all_lanes(index, b.select(chosen, b.splat(value, self.lanes), self.vgpr(index)))

    # --- operands --------------------------------------------------------------------------------------

    def scalar_operand(self, operand: Operand, element: str = "i32") -> Value:
        """A scalar source as an integer; its modifiers are the caller's."""
        if operand.kind == "s":
            if element == "i64" and operand.count == 1:
                return self.b.zext(self.sgpr(operand.index), "i64")
            value = self.sgpr(operand.index, "i64" if element == "i64" else "i32")
            return self.b.resize(value, element)
        if operand.kind == "null":
            return constant(element, 0)
        if operand.kind == "literal":
            return constant(element, literal_bits(operand.text, element))
        return self._named(operand, element)

    def _named(self, operand: Operand, element: str) -> Value:
        """Values that are read by name (RDNA2 ISA 3.4)."""
        b = self.b
        if operand.text in ("src_shared_base", "shared_base"):
            high = b.lshr(b.cast("ptrtoint", L, "i64"), state.APERTURE_BITS)
        elif operand.text in ("src_private_base", "private_base"):
            high = constant("i64", state.PRIVATE_APERTURE_HIGH)
        elif operand.text in ("src_shared_limit", "src_private_limit"):
            high = constant("i64", 0xFFFFFFFF)
        elif operand.text == "src_vccz":
            return b.zext(b.icmp("eq", self.sgpr(VCC, self.mask_type), 0), element)
        elif operand.text == "src_execz":
            return b.zext(b.icmp("eq", self.exec_mask(), 0), element)
        else:
            raise self.unsupported(f"operand {operand.text}")
        return b.shl(high, state.APERTURE_BITS) if element == "i64" else b.trunc(high, element)


def _overlap(first: int, first_type: str, second: int, second_type: str) -> bool:
    """Whether two accesses to scalar registers share one."""
    return first < second + (2 if second_type == "i64" else 1) and second < first + (
        2 if first_type == "i64" else 1
    )


_INVERSE_TWO_PI = {"i16": 0x3118, "i32": 0x3E22F983, "i64": 0x3FC45F306DC9C882}


def literal_bits(text: str, element: str) -> int:
    """The bits of a literal for an operand of an integer type's width.

    An integer is its own bits; a number with a point is an inline constant of the operand's width
    (RDNA2 ISA 3.4.2). ``0.15915494`` is 1/(2 pi), which no decimal text gives exactly.
    """
    if "x" in text or text.lstrip("-").isdigit():
        return int(text, 0)
    if text.startswith("0.1591"):
        return _INVERSE_TWO_PI[element]
    kind = {"i16": "half", "i32": "float", "i64": "double"}[element]
    bits = constant(kind, float(text)).bits
    assert bits is not None
    return bits
