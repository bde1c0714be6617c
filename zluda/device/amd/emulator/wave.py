"""A wave as the lifter sees it: registers, lane masks, operands read by name.

The wave function's arguments are ``%S`` (the wave's record, ``state.py``), ``%L`` (LDS), ``%P`` (the wave's
scratch) and ``%B`` (its block).
"""

from __future__ import annotations

from zluda.compiler.amd.targets import Target
from zluda.compiler.ir import Module, Value, constant
from zluda.device.amd.emulator import state
from zluda.device.amd.emulator.instruction import SCC, VCC, Operand
from zluda.device.amd.emulator.registers import Registers, S
from zluda.device.amd.emulator.values import Context, FloatMode
from zluda.errors import UnsupportedError

__all__ = ["B", "L", "P", "S", "Wave", "literal_bits"]

L, P, B = (Value("ptr", 1, name) for name in ("%L", "%P", "%B"))


class Wave(Registers):
    """Emits accesses to one wave. ``lanes`` is the wave size; ``mode`` the MODE now in force."""

    def __init__(
        self, target: Target, lanes: int, module: Module, mode: FloatMode, *, kernel: str = "", entry: int = 0
    ) -> None:
        super().__init__(module, lanes)
        self.target = target
        self.kernel, self.entry = kernel, entry
        self.mode = mode
        self.vector = Context(self.b, lanes, mode)
        self.scalar = Context(self.b, 1, mode)
        self.offset = 0  # of the instruction being lifted
        self.check_memory = False  # whether global accesses are tested against live allocations
        self.check_alignment = False  # whether accesses must lie at multiples of their size
        self.vgpr_index: tuple[Value, str] | None = None  # gfx9: s_set_gpr_idx_on's index and modes

    def unsupported(self, what: str) -> UnsupportedError:
        """The error for something this emulator does not execute, at the current instruction."""
        place = f"kernel {self.kernel}, offset {self.offset - self.entry:#x}"
        return UnsupportedError(what, f"{place}, target {self.target.name}")

    def place(self) -> Value:
        """The offset of the current instruction, as faults carry it."""
        return constant("i64", self.offset)

    def code_address(self, offset: int) -> Value:
        """The address of an offset in the code object, as ``i64``."""
        return self.b.add(self.code_base(), offset)

    def code_base(self) -> Value:
        """Where the code object is loaded."""
        return self.b.load("i64", self.b.gep(B, state.block_field("code")), align=8)

    # --- conditions and masks --------------------------------------------------------------------------

    def scc(self) -> Value:
        """The condition code as ``i1``."""
        return self.b.icmp("ne", self.sgpr(SCC), 0)

    def set_scc(self, condition: Value) -> None:
        self.set_sgpr(SCC, self.b.zext(condition, "i32"))

    def vcc_lanes(self) -> Value:
        return self.to_lanes(self.sgpr(VCC, self.mask_type))

    def to_mask(self, lanes: Value) -> Value:
        return self.b.reshape(self.b.splat(lanes, self.lanes), self.mask_type, 1)

    def lane_numbers(self, element: str = "i32") -> Value:
        """0, 1, 2 … in a vector."""
        return self.b.vector(element, range(self.lanes))

    def lane_flags(self, flags: list[bool]) -> Value:
        """A constant ``i1`` a lane."""
        return self.b.vector("i1", [int(f) for f in flags])

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
