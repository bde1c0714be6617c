"""``mbarrier``: barriers in shared memory that count threads and bytes (PTX ISA 9.7.13.15).

The object's 64 bits are opaque in PTX; here they are, from the lowest: 20 bits of arrivals that the
phase still waits for, 20 bits of arrivals that a phase expects, 22 bits of the transaction count (signed),
and in bit 63 the current phase's parity. A state token is the object as it was before an arrival. Arrivals
and transactions are one read-modify-write, ``mbarrier`` of :mod:`read_modify_write`, whose operand has the
same fields: arrivals, arrivals to be expected less from now on, and what to add to the transaction count.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from zluda.compiler.clusters import CLUSTER
from zluda.compiler.ir import Value
from zluda.compiler.lanes import uniform
from zluda.compiler.lower.cluster import of_block
from zluda.compiler.lower.memory import address_of, map_lanes, space_of
from zluda.compiler.lower.table import lowers, named_space
from zluda.compiler.target import Lanes
from zluda.ptx.module import Instruction, Operand, Sink
from zluda.ptx.types import ScalarType

if TYPE_CHECKING:
    from zluda.compiler.codegen import FunctionCodegen

COUNT_BITS, TX_BITS = 20, 22
EXPECTED_AT, TX_AT = COUNT_BITS, 2 * COUNT_BITS
COUNT_MASK, TX_MASK = (1 << COUNT_BITS) - 1, (1 << TX_BITS) - 1
PHASE = 1 << 63


@lowers("mbarrier")
def mbarrier(f: FunctionCodegen, instruction: Instruction) -> None:
    """All forms, by the word behind the first dot."""
    for word, lowering in _FORMS.items():
        if instruction.has(word):
            lowering(f, instruction)
            return
    raise f.unsupported(instruction)


def _initialize(f: FunctionCodegen, instruction: Instruction) -> None:
    target, count = instruction.operands
    b = f.b
    wide = map_lanes(f, [f.read_bits(count, 32)], lambda v: b.and_(b.zext(v[0], "i64"), COUNT_MASK))
    state = map_lanes(f, [wide], lambda v: b.or_(v[0], b.shl(v[0], EXPECTED_AT)))
    _store(f, instruction, target, state)


def _invalidate(f: FunctionCodegen, instruction: Instruction) -> None:
    _store(f, instruction, instruction.operands[0], uniform(f.b.const("i64", 0)))


def _store(f: FunctionCodegen, instruction: Instruction, target: Operand, state: Lanes) -> None:
    space = space_of(f, instruction, target)
    address, offset = address_of(f, target)
    f.ops.store(f, space, address, offset, ScalarType.B64, [state], volatile=True)


def change(
    f: FunctionCodegen,
    instruction: Instruction,
    target: Operand,
    *,
    arrivals: Lanes | None = None,
    drops: bool = False,
    transactions: Lanes | None = None,
    completes: bool = False,
    wanted: bool = False,
    place: tuple[Lanes, int] | None = None,
    rank: Value | None = None,
) -> Lanes | None:
    """Arrive, and change the transaction count: add ``transactions`` bytes, or take them off (``completes``).

    ``arrivals`` and ``transactions`` are ``i32``. What the lanes wrote before is seen by who waits for the
    phase. Gives the object as it was when ``wanted``. ``place`` is the target's address
    where it was read before, ``rank`` the block of the cluster in which the object is meant.
    """
    b = f.b
    zero = uniform(b.const("i32", 0))

    def pack(values: list[Value]) -> Value:
        count, delta = (b.zext(v, "i64") for v in values)
        count = b.and_(count, COUNT_MASK)
        fields = b.or_(b.shl(count, EXPECTED_AT), count) if drops else count
        delta = b.neg(delta) if completes else delta
        return b.or_(b.shl(b.and_(delta, TX_MASK), TX_AT), fields)

    operand = map_lanes(f, [arrivals or zero, transactions or zero], pack)
    space = (
        space_of(f, instruction, target) if instruction.opcode == "mbarrier" else told_space(f, instruction)
    )
    address, offset = place or address_of(f, target)
    if rank is not None:
        space = CLUSTER
        address = map_lanes(f, [address], lambda v: of_block(f, b.resize(v[0], "i32"), rank))
    f.ops.fence(f, _scope(f))
    return f.ops.atomic(f, space, address, offset, "mbarrier", ScalarType.B64, [operand], wanted=wanted)


def told_space(f: FunctionCodegen, instruction: Instruction) -> str:
    """Where the barrier is that a copy or store tells: in the memory that it writes."""
    return named_space(f, instruction.slots.get("dst", instruction.slots.get("space", "shared")))


def _scope(f: FunctionCodegen) -> str:
    """Who may have written what a barrier's phase is about."""
    return "cluster" if f.unit.clustered else "cta"


def _arrive(f: FunctionCodegen, instruction: Instruction) -> None:
    """``arrive`` and ``arrive_drop``, by one or by a count; ``.expect_tx`` raises the bytes awaited first."""
    destination, target, *rest = instruction.operands
    amount = f.read_bits(rest[0], 32) if rest else uniform(f.b.const("i32", 1))
    expects = instruction.has("expect_tx")
    old = change(
        f,
        instruction,
        target,
        arrivals=uniform(f.b.const("i32", 1)) if expects else amount,
        drops=instruction.has("arrive_drop"),
        transactions=amount if expects else None,
        wanted=not isinstance(destination, Sink),
    )
    if old is not None:
        f.write(destination, old)


def _transaction(f: FunctionCodegen, instruction: Instruction) -> None:
    """``expect_tx`` and ``complete_tx`` by themselves."""
    target, amount = instruction.operands
    completes = instruction.has("complete_tx")
    change(f, instruction, target, transactions=f.read_bits(amount, 32), completes=completes)


def _wait(f: FunctionCodegen, instruction: Instruction) -> None:
    """Whether the phase of a token, or of a parity, is over. ``try_wait`` may say no at any time, so does."""
    destination, target, phase = instruction.operands[:3]
    b = f.b
    parity = instruction.has("parity")
    wanted = f.read_bits(phase, 32 if parity else 64)
    space = space_of(f, instruction, target)
    address, offset = address_of(f, target)
    (state,) = f.ops.load(f, space, address, offset, ScalarType.B64, 1, volatile=True)

    def over(values: list[Value]) -> Value:
        now, then = values
        then = b.shl(b.zext(then, "i64"), 63) if parity else then
        return b.icmp("slt", b.xor(now, then), 0)

    f.write(destination, map_lanes(f, [state, wanted], over))
    f.ops.fence(f, _scope(f))


def _pending(f: FunctionCodegen, instruction: Instruction) -> None:
    destination, token = instruction.operands
    count = map_lanes(f, [f.read_bits(token, 64)], lambda v: f.b.and_(f.b.trunc(v[0], "i32"), COUNT_MASK))
    f.write(destination, count)


_FORMS = {
    "init": _initialize,
    "inval": _invalidate,
    "arrive": _arrive,
    "arrive_drop": _arrive,
    "expect_tx": _transaction,
    "complete_tx": _transaction,
    "test_wait": _wait,
    "try_wait": _wait,
    "pending_count": _pending,
}
