"""The instruction at fault by itself: its inputs loaded from memory, its result stored, one thread.

Most faults are in one instruction, whatever is around it; then this is the whole repro. Inputs come from
memory, so that no compiler knows them. Where the fault needs its surroundings, the case does not hold, and
the long way is gone.
"""

from __future__ import annotations

from dataclasses import replace

from zluda.isolate.alone import Part, Stage
from zluda.isolate.reduce.case import Case
from zluda.isolate.reduce.instructions import attempt
from zluda.isolate.values.difference import Difference, Kind
from zluda.isolate.values.sites import Reads, reads
from zluda.ptx.module import Function, Instruction, Register
from zluda.ptx.printer import print_instruction
from zluda.ptx.types import ScalarType

_SLOT = 16
"""Bytes of memory that an input has."""


def by_itself(case: Case, difference: Difference | None, stage: Stage) -> Case | None:
    """The case; None where the instruction reads more than its registers, or no buffer has room for them."""
    if difference is None or difference.kind is not Kind.VALUE:
        return None
    function = next(f for f in case.part.functions if f.name == difference.function)
    one = next(i for i in function.instructions if print_instruction(i) == difference.text)
    place = _buffer(case.part, stage, _SLOT * (len(difference.inputs) + 1))
    if place is None or not _is_plain(function, one, difference):
        return None
    parameter, allocation, offset = place
    lines = _lines(function, one, difference, parameter)
    registers = {name: function.registers[name] for name in _names(difference)}
    text = attempt(lambda: _text(case.part, lines, registers))
    if text is None:
        return None
    data = bytearray(stage.before[allocation])
    for index, given in enumerate(difference.inputs):
        start = offset + index * _SLOT
        data[start : start + 8] = given.bits.to_bytes(8, "little")
    small = replace(case, grid=(1, 1, 1), block=(1, 1, 1)).with_memory(allocation, bytes(data))
    return small.with_text(text)


def _names(difference: Difference) -> list[str]:
    return list(dict.fromkeys([*(one.register for one in difference.inputs), difference.register]))


def _is_plain(function: Function, one: Instruction, difference: Difference) -> bool:
    known = all(function.registers.get(name) is not None for name in _names(difference))
    types = [function.registers[name] for name in _names(difference)] if known else []
    special = any(isinstance(operand, Register) and operand.special for operand in one.operands)
    whole = all(type.bits <= 64 and type.bits != 8 for type in types)
    return known and whole and not special and reads(one) is Reads.NOTHING and one.opcode != "ld"


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


def _lines(function: Function, one: Instruction, difference: Difference, parameter: str) -> list[str]:
    lines = [
        f"ld.param.u64 %red, [{parameter}];",
        "mov.u32 %rei, %tid.x;",
        f"mul.wide.u32 %reo, %rei, {_SLOT};",
        "add.s64 %red, %red, %reo;",
    ]
    for index, given in enumerate(difference.inputs):
        type = function.registers[given.register]
        if type is ScalarType.PRED:
            lines.append(f"ld.global.u32 %rei, [%red+{index * _SLOT}];")
            lines.append(f"setp.ne.u32 {given.register}, %rei, 0;")
        else:
            lines.append(f"ld.global.b{type.bits} {given.register}, [%red+{index * _SLOT}];")
    lines.append(print_instruction(one))
    at, result = len(difference.inputs) * _SLOT, function.registers[difference.register]
    if result is ScalarType.PRED:
        lines += [f"selp.u32 %rei, 1, 0, {difference.register};", f"st.global.u32 [%red+{at}], %rei;"]
    else:
        lines.append(f"st.global.b{result.bits} [%red+{at}], {difference.register};")
    return [*lines, "ret;"]


def _text(part: Part, lines: list[str], registers: dict[str, ScalarType]) -> str:
    kernel = next(f for f in part.functions if f.name == part.kernel)
    declared = [f".reg .{type} {name};" for name, type in registers.items()]
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
    body = [*declared, ".reg .b64 %red, %reo;", ".reg .b32 %rei;", *lines]
    return Part(part.module, part.kernel, (bare,), ()).text({kernel.name: "\n".join(body)})
