"""Why a launch does not end, from where a wave of it was found."""

from __future__ import annotations

from zluda.compiler.amd.code_object import CodeObject, KernelEntry
from zluda.compiler.amd.disassembler import Disassembler
from zluda.device.amd.emulator.decode import Graph, branch_target, decode
from zluda.device.amd.emulator.schedule import Outcome

_READS = ("_load", "_atomic", "ds_read", "s_memtime", "_rtn")
_ENDS = ("s_endpgm", "s_endpgm_saved", "s_trap", "s_setpc_b64", "s_swappc_b64")


def explain(code: CodeObject, kernel: KernelEntry, disassembler: Disassembler, outcome: Outcome) -> str:
    """What a wave at ``outcome.offset`` waits for, in words."""
    if not outcome.full_mask:
        return "waves wait at a barrier that others never reach"
    loop = _loop(decode(code, kernel, disassembler), outcome.offset)
    place = f"at offset {outcome.offset - kernel.address:#x}"
    if not loop:
        return f"still running {place}"
    if not any(read in name for name in loop for read in _READS):
        return f"an endless loop {place} that reads no memory"
    if outcome.exec_mask != outcome.full_mask:
        lanes = f"{outcome.exec_mask.bit_count()} of {outcome.full_mask.bit_count()} lanes of a wave"
        return f"needs independent thread scheduling: {lanes} wait {place} for memory that others would write"
    return f"waves wait {place} for memory that no running wave writes"


def _successors(graph: Graph, offset: int) -> list[int]:
    instruction = graph.instructions[offset]
    name = instruction.mnemonic
    if name in _ENDS:
        return []
    if name == "s_branch":
        return [branch_target(instruction)]
    if name.startswith("s_cbranch_"):
        return [branch_target(instruction), instruction.next]
    return [instruction.next]


def _loop(graph: Graph, start: int) -> set[str]:
    """The mnemonics of instructions on a way from ``start`` back to it."""
    before: dict[int, list[int]] = {}
    seen, work = {start}, [start]
    while work:
        offset = work.pop()
        for after in _successors(graph, offset):
            before.setdefault(after, []).append(offset)
            if after not in seen and after in graph.instructions:
                seen.add(after)
                work.append(after)
    loop: set[int] = set()
    work = [start]
    while work:
        for offset in before.get(work.pop(), ()):
            if offset not in loop:
                loop.add(offset)
                work.append(offset)
    return {graph.instructions[offset].mnemonic for offset in loop}
