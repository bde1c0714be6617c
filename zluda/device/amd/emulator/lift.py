"""A whole kernel as one host function over a wave.

``i32 @wave(S, L, P, B)`` runs a wave from where its record says until it ends, reaches a barrier or has
branched backwards often enough that others should run; it returns which (``state.py``). All registers are in
the record whenever it returns, so any wave can go on at any of the graph's resumable addresses.
"""

from __future__ import annotations

from collections.abc import Callable

from zluda.compiler.amd.code_object import CodeObject, KernelEntry
from zluda.compiler.amd.disassembler import Disassembler
from zluda.compiler.amd.report import unit_of
from zluda.compiler.amd.targets import Target
from zluda.compiler.ir import Builder, Module, Value, constant
from zluda.device.amd.emulator import access, lds, memory, scalar, state, vector
from zluda.device.amd.emulator.decode import Graph, branch_target, decode
from zluda.device.amd.emulator.instruction import VCC, Instruction
from zluda.device.amd.emulator.liveness import Segment, drop_dead_stores
from zluda.device.amd.emulator.values import FloatMode
from zluda.device.amd.emulator.wave import B, S, Wave
from zluda.records import dataclass

_SPAN = 512  # instructions over which registers are kept out of memory; beyond, code generation only slows
_SHORT = 128  # instructions of a kernel in which long functions are written out where they are used
_MEMORY = ("global_", "flat_", "scratch_", "buffer_")


@dataclass(frozen=True, slots=True)
class Lifted:
    """A kernel's IR. ``vector_registers`` is how many a wave's record must hold."""

    text: str
    vector_registers: int
    instructions: int


def lift(
    code: CodeObject,
    kernel: KernelEntry,
    target: Target,
    wave_size: int,
    *,
    check_memory: bool = False,
    check_alignment: bool = False,
    count: bool = False,
    waits: bool = False,
) -> Lifted:
    """Lift a kernel. Raises UnsupportedError naming an instruction that is not known, and its place.

    ``check_memory`` tests global accesses against live allocations, ``check_alignment`` that accesses lie at
    multiples of their size (of a word, for more than one); ``count`` counts executed instructions; with
    ``waits`` a wave's budget is used up by waiting for memory, too, so that others come in between.
    """
    graph = decode(code, kernel, Disassembler(target, wave_size), waits=waits)
    lifter = _Lifter(graph, kernel, target, wave_size, count=count)
    lifter.wave.check_memory = check_memory
    lifter.wave.check_alignment = check_alignment
    text = lifter.emit()
    declared = (kernel.descriptor.rsrc1 & 63) * 8 + 8  # registers reached by index are within the allocation
    registers = max(lifter.wave.vector_registers, 3, min(declared, 512) if lifter.indexed else 0)
    return Lifted(text, registers, len(graph.instructions))


class _Lifter:
    def __init__(
        self, graph: Graph, kernel: KernelEntry, target: Target, wave_size: int, *, count: bool
    ) -> None:
        self.graph, self.count = graph, count
        called = "noinline" if len(graph.instructions) > _SHORT else "alwaysinline"
        self.module = Module(helpers=f"{called} nounwind #0")
        self.wave = Wave(
            target, wave_size, self.module, FloatMode(), kernel=kernel.name, entry=kernel.address
        )
        self.b: Builder = self.wave.b
        self.modes = {kernel.address: kernel.descriptor.float_mode}
        self.work = [kernel.address]
        self.at: dict[int, Segment] = {}
        self.indexed = any(
            i.mnemonic.startswith(("v_movrel", "s_set_gpr_idx")) for i in graph.instructions.values()
        )

    # --- the function ----------------------------------------------------------------------------------

    def emit(self) -> str:
        b = self.b
        b.branch("dispatch")
        b.label("dispatch")
        pc = b.load("i64", b.gep(S, state.PC), align=8)
        switch = len(b.lines)
        b.emit("")  # filled in below, when it is known what was reached
        b.label("bad")
        place = b.add(pc, self.wave.code_base())
        access.record_fault(b, state.BAD_JUMP, constant("i32", 0), place, pc)
        b.ret(constant("i32", state.ENDED))
        done: set[int] = set()
        while self.work:
            leader = self.work.pop()
            if leader not in done:
                done.add(leader)
                self._block(leader)
        drop_dead_stores(b.lines, self.wave.segments, self.at, self.graph.resumable)
        targets = sorted(self.graph.resumable & done)
        arms = " ".join(f"i64 {t}, label %{_label(t)}" for t in targets)
        b.lines[switch] = f"switch {pc.typed}, label %bad [ {arms} ]"
        header = (
            "i32 @wave(ptr noalias nonnull %S, ptr nonnull %L, ptr nonnull %P, ptr nonnull %B) nounwind #0"
        )
        self.module.define("wave", header, b)
        return self.module.text()

    def _block(self, leader: int) -> None:
        wave, b = self.wave, self.b
        b.label(_label(leader))
        wave.mode.bits = self.modes[leader]
        self.at[leader] = wave.enter()
        wave.vgpr_index = None
        body = self._instructions(leader)
        if self.count:
            self._count(state.COUNT, constant("i64", len(body)))
            vector = sum(unit_of(i.mnemonic) == "vector" for i in body)
            if vector:
                self._count(state.VECTOR, constant("i64", vector))
        for number, instruction in enumerate(body, 1):
            wave.offset = instruction.offset
            if self._control(instruction):
                return
            self._straight(instruction)
            if number % _SPAN == 0:
                wave.cut()
        self._goto(body[-1].next, body[-1].offset)

    def _instructions(self, leader: int) -> list[Instruction]:
        """A basic block's instructions."""
        body, offset = [], leader
        while offset in self.graph.instructions and (offset == leader or offset not in self.graph.leaders):
            body.append(self.graph.instructions[offset])
            offset = body[-1].next
        return body

    def _straight(self, instruction: Instruction) -> None:
        name, wave = instruction.mnemonic, self.wave
        if name.startswith("v_"):
            vector.lift(wave, instruction)
        elif name.startswith("s_"):
            scalar.lift(wave, instruction)
        elif name.startswith("ds_"):
            lds.lift(wave, instruction)
        elif name.startswith(_MEMORY):
            if self.count and not name.startswith("scratch_"):
                self._count_bytes(instruction)
            memory.lift(wave, instruction)
        else:
            raise wave.unsupported(f"instruction {name}")

    def _count(self, field: int, more: Value) -> None:
        b = self.b
        place = b.gep(S, field)
        b.store(b.add(b.load("i64", place, align=8), more), place, align=8)

    def _count_bytes(self, instruction: Instruction) -> None:
        """What the lanes that execute ask of memory."""
        size = memory.accessed_bytes(instruction.mnemonic)
        lanes = self.b.intrinsic("ctpop", self.wave.exec_mask())
        self._count(state.BYTES, self.b.mul(self.b.resize(lanes, "i64"), size))

    # --- control flow ----------------------------------------------------------------------------------

    def _control(self, instruction: Instruction) -> bool:
        """Emit an instruction that ends its basic block; False for any other."""
        name = instruction.mnemonic
        if instruction.offset in self.graph.waits:
            self._or_yield(instruction.next)
            return True
        handler = _CONTROL.get(name)
        if handler is not None:
            handler(self, instruction)
            return True
        if name.startswith("s_cbranch_"):
            self._conditional(instruction)
            return True
        return False

    def _reach(self, target: int) -> str:
        """The label of a block that control passes to; all ways there must agree on MODE."""
        known = self.modes.setdefault(target, self.wave.mode.bits)
        if known != self.wave.mode.bits:
            raise self.wave.unsupported(f"MODE {known:#x} or {self.wave.mode.bits:#x}, depending on the way")
        self.work.append(target)
        self.wave.segment.targets.add(target)
        return _label(target)

    def _goto(self, target: int, source: int) -> None:
        """Pass control on. A backward branch uses up budget, and yields when there is none left."""
        if target > source:
            self.wave.flush()
            self.b.branch(self._reach(target))
        else:
            self._or_yield(target)

    def _or_yield(self, target: int) -> None:
        """Pass control on, or to the scheduler when no budget is left."""
        self.wave.flush()
        label = self._reach(target)
        stop = self.b.fresh("yield")
        self.b.cond_branch(self._spent(), stop, label)
        self.b.label(stop)
        self._leave(target, state.YIELDED)

    def _spent(self) -> Value:
        """Use up a piece of the budget; whether nothing is left of it."""
        b = self.b
        place = b.gep(S, state.BUDGET)
        left = b.sub(b.load("i32", place, align=4), 1)
        b.store(left, place, align=4)
        return b.icmp("eq", left, 0)

    def _leave(self, target: int, reason: int) -> None:
        """Return to the scheduler, to go on at ``target``."""
        self.wave.flush()
        b = self.b
        b.store(constant("i64", target), b.gep(S, state.PC), align=8)
        b.ret(constant("i32", reason))

    def _conditional(self, instruction: Instruction) -> None:
        condition = _CONDITIONS.get(instruction.mnemonic.removeprefix("s_cbranch_"))
        if condition is None:
            raise self.wave.unsupported(f"instruction {instruction.mnemonic}")
        b = self.b
        taken, other = b.fresh("taken"), b.fresh("other")
        chosen = condition(self.wave)
        self.wave.flush()
        b.cond_branch(chosen, taken, other)
        b.label(taken)
        self._goto(branch_target(instruction), instruction.offset)
        b.label(other)
        self._goto(instruction.next, instruction.offset)

    def _branch(self, instruction: Instruction) -> None:
        self._goto(branch_target(instruction), instruction.offset)

    def _end(self, instruction: Instruction) -> None:
        self.b.ret(constant("i32", state.ENDED))

    def _trap(self, instruction: Instruction) -> None:
        """The first of the lanes that execute is the one to name, if any does."""
        place = constant("i64", instruction.offset)
        lane = self.b.resize(self.b.intrinsic("cttz", self.wave.exec_mask(), False), "i32")
        lane = self.b.and_(lane, self.wave.lanes - 1)
        address = self.wave.code_address(instruction.offset)
        access.record_fault(self.b, state.TRAP, lane, address, place)
        self._end(instruction)

    def _sleep(self, instruction: Instruction) -> None:
        self._reach(instruction.next)
        self._leave(instruction.next, state.YIELDED)

    def _barrier(self, instruction: Instruction) -> None:
        self._signal()
        self._wait(instruction)

    def _wait(self, instruction: Instruction) -> None:
        """The scheduler runs the wave again when the barrier's generation has moved on."""
        self._reach(instruction.next)
        self._leave(instruction.next, state.AT_BARRIER)

    def _signal(self) -> None:
        b = self.b
        name = self.module.function(
            "amd.barrier.signal", [("ptr", 1)], _emit_signal, attributes="alwaysinline nounwind"
        )
        b.store(b.call(name, [B], "i32"), b.gep(S, state.GENERATION), align=4)

    def _signal_only(self, instruction: Instruction) -> None:
        """gfx12's split barrier: -1 is the workgroup's (RDNA4 ISA 5.6)."""
        if instruction.operands[0].text != "-1":
            raise self.wave.unsupported(f"{instruction.mnemonic} {instruction.operands[0].text}")
        self._signal()
        self._goto(instruction.next, instruction.offset)

    def _jump(self, instruction: Instruction) -> None:
        """s_setpc, s_swappc: through a register pair, to any resumable address.

        A call uses up budget as a backward branch does: recursion is a loop too.
        """
        wave, b = self.wave, self.b
        calls = instruction.mnemonic == "s_swappc_b64"
        target = wave.sgpr(instruction.operands[-1].index, "i64")
        if calls:
            wave.set_sgpr(instruction.operands[0].index, wave.code_address(instruction.next))
            self._reach(instruction.next)
        for function in self.graph.functions:
            self._reach(function)
        wave.flush()
        wave.segment.anywhere = True
        b.store(b.sub(target, wave.code_base()), b.gep(S, state.PC), align=8)
        if calls:
            stop, on = b.fresh("yield"), b.fresh("on")
            b.cond_branch(self._spent(), stop, on)
            b.label(stop)
            b.ret(constant("i32", state.YIELDED))
            b.label(on)
        b.branch("dispatch")

    def _call(self, instruction: Instruction) -> None:
        self.wave.set_sgpr(instruction.operands[0].index, self.wave.code_address(instruction.next))
        self._reach(instruction.next)
        self._goto(branch_target(instruction), instruction.offset)


def _label(offset: int) -> str:
    return f"at.{offset:x}"


def _emit_signal(b: Builder, arguments: list[Value]) -> Value:
    """A wave arrives at its block's barrier; the last one starts the next generation. Returns the old one."""
    block = arguments[0]
    places = [b.gep(block, state.block_field(n)) for n in ("generation", "arrived", "live")]
    generation, arrived, live = (b.load("i32", p, align=4) for p in places)
    here = b.add(arrived, 1)
    complete = b.icmp("uge", here, live)
    b.store(b.select(complete, constant("i32", 0), here), places[1], align=4)
    b.store(b.add(generation, b.zext(complete, "i32")), places[0], align=4)
    return generation


_CONDITIONS: dict[str, Callable[[Wave], Value]] = {
    "scc0": lambda w: w.b.not_(w.scc()),
    "scc1": lambda w: w.scc(),
    "execz": lambda w: w.b.icmp("eq", w.exec_mask(), 0),
    "execnz": lambda w: w.b.icmp("ne", w.exec_mask(), 0),
    "vccz": lambda w: w.b.icmp("eq", w.sgpr(VCC, w.mask_type), 0),
    "vccnz": lambda w: w.b.icmp("ne", w.sgpr(VCC, w.mask_type), 0),
}

_CONTROL: dict[str, Callable[[_Lifter, Instruction], None]] = {
    "s_branch": _Lifter._branch,
    "s_endpgm": _Lifter._end,
    "s_endpgm_saved": _Lifter._end,
    "s_trap": _Lifter._trap,
    "s_sleep": _Lifter._sleep,
    "s_sleep_var": _Lifter._sleep,
    "s_barrier": _Lifter._barrier,
    "s_barrier_wait": _Lifter._wait,
    "s_barrier_signal": _Lifter._signal_only,
    "s_setpc_b64": _Lifter._jump,
    "s_swappc_b64": _Lifter._jump,
    "s_call_b64": _Lifter._call,
}
