"""The control-flow graph of a kernel: which instructions it can reach, where basic blocks begin.

Functions are called through registers. Their addresses come from ``s_getpc`` plus constants, which are
followed here, from relocated words of the code object, or else from its symbols.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field

from zluda.compiler.amd.code_object import STT_FUNC, CodeObject, KernelEntry
from zluda.compiler.amd.disassembler import Disassembler
from zluda.device.amd.emulator.instruction import Instruction, parse
from zluda.records import dataclass

_ENDS = ("s_trap", "s_endpgm", "s_endpgm_saved", "s_setpc_b64", "s_branch")
_RESUMED_AFTER = (  # and begin a basic block
    "s_barrier",
    "s_barrier_wait",
    "s_barrier_signal",
    "s_sleep",
    "s_sleep_var",
    "s_swappc_b64",
    "s_call_b64",
)
_WAITS = (
    "s_waitcnt",
    "s_wait_loadcnt",
    "s_wait_storecnt",
    "s_wait_samplecnt",
    "s_wait_kmcnt",
    "s_wait_dscnt",
)
_MASK64 = (1 << 64) - 1


def branch_target(instruction: Instruction) -> int:
    """Where a relative branch goes: a signed count of words from the next instruction."""
    words = instruction.operands[-1].number & 0xFFFF
    return instruction.next + 4 * (words - (words >> 15 << 16))


@dataclass(slots=True)
class Graph:
    """``leaders`` begin basic blocks; at ``resumable`` ones, ``functions`` among them, a wave goes on.

    ``waits`` are instructions that wait for memory, where other waves may run first.
    """

    entry: int
    instructions: dict[int, Instruction] = field(default_factory=dict)
    leaders: set[int] = field(default_factory=set)
    resumable: set[int] = field(default_factory=set)
    functions: set[int] = field(default_factory=set)
    waits: set[int] = field(default_factory=set)


class _Addresses:
    """Constant addresses that ``s_getpc`` and one addition leave in pairs of scalar registers.

    LLVM emits the two as one; what is added later steps through data that the address was of.
    """

    def __init__(self) -> None:
        self._pairs: dict[int, int] = {}
        self._low: dict[int, int] = {}
        self.found: set[int] = set()

    def follow(self, instruction: Instruction) -> None:
        name, operands = instruction.mnemonic, instruction.operands
        if name == "s_getpc_b64":
            self._pairs[operands[0].index] = instruction.next
        elif name in ("s_add_u32", "s_add_co_u32") and operands[2].kind == "literal":
            if operands[0].index in self._pairs:
                self._low[operands[0].index] = operands[2].number & 0xFFFFFFFF
        elif name in ("s_addc_u32", "s_add_co_ci_u32") and operands[0].index - 1 in self._low:
            pair = operands[0].index - 1
            low, high = self._low.pop(pair), operands[2]
            if high.kind == "literal":
                distance = low | (high.number & 0xFFFFFFFF) << 32
                self.found.add(self._pairs.pop(pair) + distance & _MASK64)
        elif name in ("s_add_nc_u64", "s_add_u64") and operands[2].kind == "literal":
            number = operands[2].number & _MASK64
            signed = number - (1 << 32) if 1 << 31 <= number < 1 << 32 else number
            self.found.add(self._pairs.get(operands[0].index, 0) + signed & _MASK64)
        else:
            self._forget(instruction)

    def _forget(self, instruction: Instruction) -> None:
        """A pair that is written otherwise, such as by a load from the address, holds no address."""
        written = instruction.operands[0] if instruction.operands else None
        if written is not None and written.kind == "s":
            for register in range(written.index - 1, written.index + written.count):
                self._pairs.pop(register, None)
                self._low.pop(register, None)


def decode(
    code: CodeObject, kernel: KernelEntry, disassembler: Disassembler, *, waits: bool = False
) -> Graph:
    """Everything reachable from a kernel's entry. Raises UnsupportedError for bytes that are no code.

    With ``waits``, instructions that wait for memory end their basic blocks.
    """
    graph = Graph(kernel.address, leaders={kernel.address}, resumable={kernel.address})
    addresses = _Addresses()
    calls = False
    work = [kernel.address]
    while work:
        calls |= _walk(code.image, graph, disassembler, addresses, work, waits)
        if not work and calls:
            for function in _functions(code, kernel, addresses.found):
                if function not in graph.leaders:
                    graph.leaders.add(function)
                    graph.resumable.add(function)
                    graph.functions.add(function)
                    work.append(function)
    return graph


def _walk(
    image: bytes,
    graph: Graph,
    disassembler: Disassembler,
    addresses: _Addresses,
    work: list[int],
    waits: bool,
) -> bool:
    """Decode from one address of ``work`` to the end of straight-line code; whether it calls by register."""
    offset, calls = work.pop(), False
    while offset not in graph.instructions:
        instruction = parse(disassembler.at(image, offset))
        graph.instructions[offset] = instruction
        addresses.follow(instruction)
        name = instruction.mnemonic
        calls |= name == "s_swappc_b64"
        if name.startswith("s_cbranch_") or name in ("s_branch", "s_call_b64"):
            target = branch_target(instruction)
            graph.leaders.add(target)
            work.append(target)
            if target <= offset or name == "s_call_b64":
                graph.resumable.add(target)
        if waits and name.startswith(_WAITS):
            graph.waits.add(offset)
        resumed = name in _RESUMED_AFTER or offset in graph.waits
        if resumed:
            graph.resumable.add(instruction.next)
        if resumed or name.startswith("s_cbranch_"):
            graph.leaders.add(instruction.next)
        if name in _ENDS:
            break
        offset = instruction.next
    return calls


def _functions(code: CodeObject, kernel: KernelEntry, found: Iterable[int]) -> set[int]:
    """The functions that a kernel with calls through registers may reach."""
    ranges = list(code.code_ranges())

    def executable(address: int) -> bool:
        return any(start <= address < end for start, end in ranges)

    functions = {a for a in found if executable(a)} | {a for a in code.relocated_addresses() if executable(a)}
    if not functions:
        entries = {k.address for k in code.kernels.values()}
        functions = {s.address for s in code.symbols.values() if s.type == STT_FUNC} - entries
    return functions - {kernel.address}
