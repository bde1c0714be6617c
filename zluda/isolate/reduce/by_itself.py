"""The instruction at fault by itself: inputs from memory, the result stored, by one thread or one warp.

Most faults are in one instruction, whatever is around it; then this is the whole repro. Inputs come from
memory, at an address that depends on the thread, so that no compiler knows them or takes them for the same
in all lanes (AMD's GPUs have other instructions for those). Where the fault needs its surroundings, the case
does not hold, and the long way is gone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from zluda.compiler.analysis.operands import definitions, uses
from zluda.errors import Error
from zluda.isolate.alone import Part, Stage
from zluda.isolate.reduce.case import Case
from zluda.isolate.reduce.instructions import attempt
from zluda.isolate.values.difference import Difference, Kind
from zluda.isolate.values.instrument import LANES
from zluda.isolate.values.log import Lane, Probe
from zluda.isolate.values.sites import Look, Reads, Site, reads
from zluda.ptx.module import Function, Instruction, Register
from zluda.ptx.printer import print_instruction
from zluda.ptx.types import ScalarType

_SLOT = 8
"""Bytes of memory that an input has."""

Inputs = Mapping[str, int]
"""Registers' bits, by name."""


def by_itself(case: Case, difference: Difference | None, stage: Stage) -> Case | None:
    """The case; None where the instruction reads memory, its inputs are not known, or no buffer has room."""
    if difference is None or difference.kind is not Kind.VALUE:
        return None
    function = next(f for f in case.part.functions if f.name == difference.function)
    one = next(i for i in function.instructions if print_instruction(i) == difference.text)
    lanes = _inputs(case, difference, stage, one)
    names = list(dict.fromkeys(r.name for r in uses(one)))
    if not lanes or not _is_plain(function, one) or any(set(names) - set(lane) for lane in lanes):
        return None
    stride = _SLOT * (len(names) + 1)
    place = _buffer(case.part, stage, stride * len(lanes))
    if place is None:
        return None
    parameter, allocation, offset = place
    lines = _lines(function, one, names, difference.register, parameter)
    text = attempt(lambda: _text(case.part, lines, function, one))
    if text is None:
        return None
    data = bytearray(stage.before[allocation])
    for number, lane in enumerate(lanes):
        for index, name in enumerate(names):
            start = offset + number * stride + index * _SLOT
            data[start : start + _SLOT] = lane[name].to_bytes(_SLOT, "little")
    small = replace(case, grid=(1, 1, 1), block=(len(lanes), 1, 1))
    return small.with_memory(allocation, bytes(data)).with_text(text)


def _inputs(case: Case, difference: Difference, stage: Stage, one: Instruction) -> Sequence[Inputs]:
    """What the registers held: of the one thread, or of all lanes where the instruction reads those."""
    kind = reads(one)
    if kind is Reads.NOTHING:
        return [{given.register: given.bits for given in difference.inputs}]
    if kind is not Reads.LANES:
        return []
    x, y, z = difference.thread
    thread = x + case.block[0] * (y + case.block[1] * z)
    bx, by, bz = difference.block
    block = bx + case.grid[0] * (by + case.grid[1] * bz)
    probe = Probe(stage, case.part, case.setting)
    try:
        lanes, _ = probe.values(block, thread // LANES * LANES)
    except Error:
        return []
    found = [_held(lane, probe.sites, difference) for lane in lanes]
    known = next((one for one in found if one is not None), None)
    # A lane that was not there when it happened is given what another one had.
    return [] if known is None else [known if one is None else one for one in found]


def _held(lane: Lane, sites: Mapping[int, Site], difference: Difference) -> Inputs | None:
    """A lane's registers when it came to the instruction at fault; None where it did not."""
    held: dict[str, int] = {}
    times: Counter[int] = Counter()
    for number, bits in lane.events:
        site = sites[number]
        if site.function != difference.function or site.look is not Look.RESULT:
            continue
        if print_instruction(site.instruction) == difference.text and site.name == difference.register:
            if times[number] == difference.occurrence:
                return held
            times[number] += 1
        held[site.name] = bits
    return None


def _is_plain(function: Function, one: Instruction) -> bool:
    """Whether all its registers are the function's own, of sizes that can be loaded and stored."""
    types = [function.registers.get(r.name) for r in (*uses(one), *definitions(one))]
    special = any(isinstance(operand, Register) and operand.special for operand in one.operands)
    whole = all(type is not None and type.bits <= 64 and type.bits != 8 for type in types)
    return whole and not special and one.opcode != "ld"


def _buffer(part: Part, stage: Stage, size: int) -> tuple[str, int, int] | None:
    """(parameter, allocation, offset in it) of a pointer among the parameters with room behind it."""
    kernel = next(f for f in part.functions if f.name == part.kernel)
    launch = stage.launch
    for parameter, (at, width) in zip(kernel.parameters, launch.layout or (), strict=False):
        address = int.from_bytes(launch.parameters[at : at + 8], "little") if width == 8 else 0
        for one in stage.reached:
            if one.base <= address and address + size <= one.end and address % _SLOT == 0:
                return parameter.name, one.id, address - one.base
    return None


def _lines(
    function: Function, one: Instruction, names: Sequence[str], result: str, parameter: str
) -> list[str]:
    lines = [
        f"ld.param.u64 %red, [{parameter}];",
        "mov.u32 %rei, %tid.x;",
        f"mul.wide.u32 %reo, %rei, {_SLOT * (len(names) + 1)};",
        "add.s64 %red, %red, %reo;",
    ]
    for index, name in enumerate(names):
        type = function.registers[name]
        if type is ScalarType.PRED:
            lines += [f"ld.global.u32 %rei, [%red+{index * _SLOT}];", f"setp.ne.u32 {name}, %rei, 0;"]
        else:
            lines.append(f"ld.global.b{type.bits} {name}, [%red+{index * _SLOT}];")
    lines.append(print_instruction(one))
    at, type = len(names) * _SLOT, function.registers[result]
    if type is ScalarType.PRED:
        lines += [f"selp.u32 %rei, 1, 0, {result};", f"st.global.u32 [%red+{at}], %rei;"]
    else:
        lines.append(f"st.global.b{type.bits} [%red+{at}], {result};")
    return [*lines, "ret;"]


def _text(part: Part, lines: Sequence[str], function: Function, one: Instruction) -> str:
    kernel = next(f for f in part.functions if f.name == part.kernel)
    names = dict.fromkeys(r.name for r in (*uses(one), *definitions(one)))
    bare = Function(
        name=kernel.name,
        is_entry=True,
        linkage=kernel.linkage,
        parameters=kernel.parameters,
        returns=(),
        directives={},
        registers={},
        variables={},
        body=[],
        location=kernel.location,
    )
    declared = [f".reg .{function.registers[name]} {name};" for name in names]
    body = [*declared, ".reg .b64 %red, %reo;", ".reg .b32 %rei;", *lines]
    return Part(part.module, part.kernel, (bare,), ()).text({kernel.name: "\n".join(body)})
