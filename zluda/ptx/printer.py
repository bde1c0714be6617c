"""The typed form back to PTX text. Parsing what is printed gives the same typed form, but for locations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from zluda.ptx.instructions import spell
from zluda.ptx.module import (
    Address,
    BranchTargets,
    CallPrototype,
    DebugLine,
    Element,
    Function,
    Immediate,
    Indexed,
    Instruction,
    Label,
    LabelStatement,
    Minus,
    Negated,
    Operand,
    Pair,
    Register,
    Selected,
    Sink,
    Statement,
    Symbol,
    Variable,
    Vector,
)
from zluda.ptx.parse import Module
from zluda.ptx.types import ScalarType

INDENT = "    "


def print_module(module: Module) -> str:
    """A whole module; raises :class:`zluda.errors.PtxError` if one of its functions does not parse."""
    functions = [module.function(name) for name in module.function_names]
    return print_parts(module, functions, module.variables.values())


def print_parts(
    module: Module,
    functions: Sequence[Function],
    variables: Iterable[Variable],
    bodies: Mapping[str, str] | None = None,
) -> str:
    """A module of these functions and variables, in other things like ``module``.

    ``bodies`` are statements, as text, that stand in place of a function's own.
    """
    given = bodies or {}
    kept = {f.name for f in functions}
    parts = [
        f".version {module.version[0]}.{module.version[1]}",
        f".target {', '.join(module.target)}",
        f".address_size {module.address_size}",
        *(f'.file {index} "{name}"' for index, name in module.files.items()),
        *(f".pragma {_quoted(text)};" for text in module.pragmas),
    ]
    parts += (f"{_signature(f)};" for f in functions if not f.is_entry)
    parts += (print_variable(variable) + ";" for variable in variables)
    parts += (print_function(f, given.get(f.name)) for f in functions if f.body is not None)
    parts += (
        f".alias {alias}, {function};" for alias, function in module.aliases.items() if function in kept
    )
    parts += (f".section {s.name}\n{{\n{s.text}\n}}" for s in module.sections)
    return "\n".join(parts) + "\n"


def print_function(function: Function, body: str | None = None) -> str:
    """One function with its body, or ``body`` in place of its statements; a declaration ends with ``;``."""
    if function.body is None:
        return _signature(function) + ";"
    lines = [_signature(function), *_directives(function), "{"]
    lines += (INDENT + line for line in _declarations(function))
    own = body.splitlines() if body is not None else _body(function, function.body)
    lines += (INDENT + line if line[-1] != ":" else line for line in own)
    return "\n".join([*lines, "}"])


def _signature(function: Function) -> str:
    words = [f".{function.linkage}"] if function.linkage else []
    words.append(".entry" if function.is_entry else ".func")
    if function.attributes:
        words.append(f".attribute({', '.join('.' + a for a in function.attributes)})")
    if function.returns:
        words.append(_parameters(function.returns))
    words += [function.name, _parameters(function.parameters)]
    if "noreturn" in function.directives:
        words.append(".noreturn")
    return " ".join(words)


def _directives(function: Function) -> Iterator[str]:
    for name, values in function.directives.items():
        if name != "noreturn":
            yield f".{name} {', '.join(map(str, values))}".rstrip()


def _parameters(parameters: Iterable[Variable]) -> str:
    return f"({', '.join(map(print_variable, parameters))})"


def _declarations(function: Function) -> Iterator[str]:
    own = {v.name for v in (*function.returns, *function.parameters) if v.space == "reg"}
    by_type: dict[ScalarType, list[str]] = {}
    vectors: dict[tuple[str, ScalarType], int] = {}
    for name, kind in function.registers.items():
        base, dot, _ = name.partition(".")
        if dot:
            vectors[base, kind] = vectors.get((base, kind), 0) + 1
        elif name not in own:
            by_type.setdefault(kind, []).append(name)
    for kind, names in by_type.items():
        for i in range(0, len(names), 8):
            yield f".reg .{kind} {', '.join(names[i : i + 8])};"
    for (base, kind), count in vectors.items():
        if base not in own:
            yield f".reg .v{count} .{kind} {base};"
    for variable in function.variables.values():
        yield print_variable(variable) + ";"


def _body(function: Function, body: Iterable[Statement]) -> Iterator[str]:
    """Statements, with the pragmas and ``.loc`` lines before the instruction they belong to."""
    notes: dict[int, list[str]] = {}
    early: dict[int, list[str]] = {}
    for pragma in function.pragmas:
        where = early if pragma.before_label else notes
        where.setdefault(pragma.ordinal, []).append(f".pragma {_quoted(pragma.text)};")
    for line in function.debug_lines:
        notes.setdefault(line.ordinal, []).append(_debug_line(line))
    following = 0
    for statement in body:
        yield from early.pop(following, ())
        if isinstance(statement, Instruction):
            yield from notes.pop(statement.ordinal, ())
            following = statement.ordinal + 1
        yield print_statement(statement)
    for left in (*early.values(), *notes.values()):
        yield from left


def _debug_line(line: DebugLine) -> str:
    text = f".loc {line.file} {line.line} {line.column}"
    if line.inlined_at:
        text += f", function_name {line.function}, inlined_at {' '.join(map(str, line.inlined_at))}"
    return text


def print_statement(statement: Statement) -> str:
    """One statement on one line."""
    if isinstance(statement, Instruction):
        return print_instruction(statement)
    if isinstance(statement, LabelStatement):
        return f"{statement.name}:"
    if isinstance(statement, BranchTargets):
        kind = "calltargets" if statement.calls else "branchtargets"
        return f"{statement.name}: .{kind} {', '.join(statement.targets)};"
    return _prototype(statement)


def _prototype(statement: CallPrototype) -> str:
    returns = _parameters(statement.returns) + " " if statement.returns else ""
    noreturn = " .noreturn" if statement.noreturn else ""
    return f"{statement.name}: .callprototype {returns}_ {_parameters(statement.parameters)}{noreturn};"


def print_instruction(instruction: Instruction) -> str:
    """One instruction, with its guard and ``;``."""
    guard = ""
    if instruction.guard:
        guard = f"@{'!' if instruction.guard.negated else ''}{instruction.guard.register.name} "
    operands = _call_operands(instruction) if instruction.opcode == "call" else instruction.operands
    text = ", ".join(operand if isinstance(operand, str) else print_operand(operand) for operand in operands)
    return f"{guard}{spell(instruction)} {text}".rstrip() + ";"


def _call_operands(instruction: Instruction) -> Iterator[Operand | str]:
    returns, callee, arguments, *prototype = instruction.operands
    if isinstance(returns, Vector) and returns.elements:
        yield f"({', '.join(map(print_operand, returns.elements))})"
    yield callee
    if isinstance(arguments, Vector) and (arguments.elements or prototype):
        yield f"({', '.join(map(print_operand, arguments.elements))})"
    yield from prototype


def print_operand(operand: Operand) -> str:
    """One operand as PTX writes it."""
    return _OPERANDS[type(operand)](operand)


def _list(operands: Iterable[Operand]) -> str:
    return ", ".join(map(print_operand, operands))


def _offset(name: str, offset: int) -> str:
    return f"{name}+{offset}" if offset else name


def _immediate(operand: Immediate) -> str:
    if operand.float_bits is None:
        return str(operand.value) if operand.value < 1 << 63 else f"{operand.value:#x}"
    return f"0f{operand.value:08X}" if operand.float_bits == 32 else f"0d{operand.value:016X}"


def _element(operand: Element) -> str:
    return f"{operand.array.name}[{_offset(operand.index.name, operand.first)}]"


def _address(operand: Address) -> str:
    if isinstance(operand.base, Element):
        return _element(operand.base)
    return f"[{_offset(print_operand(operand.base), operand.offset)}]"


def _register(operand: Register) -> str:
    return operand.name


def _symbol(operand: Symbol) -> str:
    return _offset(operand.name, operand.offset)


def _vector(operand: Vector) -> str:
    return f"{{{_list(operand.elements)}}}"


def _indexed(operand: Indexed) -> str:
    return f"[{_list((*operand.objects, operand.coordinates))}]"


def _pair(operand: Pair) -> str:
    return f"{print_operand(operand.first)}|{print_operand(operand.second)}"


def _negated(operand: Negated) -> str:
    return f"!{operand.operand.name}"


def _label(operand: Label) -> str:
    return operand.name


def _sink(_: Sink) -> str:
    return "_"


def _selected(operand: Selected) -> str:
    sign = "-" if operand.selector.startswith("-") else ""
    return ".".join(filter(None, (sign + operand.operand.name, operand.selector.lstrip("-"))))


_OPERANDS: dict[type, Callable[..., str]] = {
    Register: _register,
    Immediate: _immediate,
    Symbol: _symbol,
    Element: _element,
    Address: _address,
    Vector: _vector,
    Indexed: _indexed,
    Pair: _pair,
    Negated: _negated,
    Label: _label,
    Sink: _sink,
    Selected: _selected,
    Minus: _selected,
}


# --- variables -------------------------------------------------------------------------------------


def print_variable(variable: Variable) -> str:
    """A variable or parameter, with its initialiser, without ``;``."""
    words = [f".{variable.linkage}"] if variable.linkage else []
    words.append(f".{variable.space}")
    plain = [a for a in variable.attributes if not a.startswith(("ptr", "bank(", "init("))]
    words[-1] += "".join(f"[{a[5:-1]}]" for a in variable.attributes if a.startswith("bank("))
    if plain:
        words.append(f".attribute({', '.join('.' + a for a in plain)})")
    words.append(f".align {variable.align}")
    if variable.vector > 1:
        words.append(f".v{variable.vector}")
    words.append(f".{variable.type}")
    words += filter(None, (_pointer_word(a) for a in variable.attributes))
    words.append(variable.name + "".join(f"[{n or ''}]" for n in variable.shape))
    return " ".join(words) + _initializer(variable)


def _pointer_word(attribute: str) -> str:
    if attribute.startswith("ptr.align("):
        return f".align {attribute[10:-1]}"
    return f".{attribute.removeprefix('ptr.')}" if attribute.startswith("ptr") else ""


def _initializer(variable: Variable) -> str:
    for attribute in variable.attributes:
        if attribute.startswith("init("):
            return f" = {attribute[5:-1]}"
    if variable.initializer is None:
        return ""
    size = max(variable.type.bits // 8, 1)
    data = variable.initializer
    cells = [_cell(data[i : i + size], variable.type) for i in range(0, len(data), size)]
    for offset, symbol in variable.relocations:
        _relocate(cells, offset, size, _offset(f"generic({symbol.name})", symbol.offset))
    if not variable.shape and variable.vector == 1:
        return f" = {cells[0]}"
    inner = [*variable.shape[1:], *([variable.vector] if variable.vector > 1 and variable.shape else [])]
    for length in reversed(inner):
        cells = [f"{{{', '.join(cells[i : i + length])}}}" for i in range(0, len(cells), max(length, 1))]
    return f" = {{{', '.join(cells)}}}"


def _cell(data: bytes, kind: ScalarType) -> str:
    value = int.from_bytes(data, "little")
    if kind is ScalarType.F32:
        return f"0f{value:08X}"
    if kind is ScalarType.F64:
        return f"0d{value:016X}"
    return str(value) if value < 1 << 63 else f"{value:#x}"


def _relocate(cells: list[str], offset: int, size: int, text: str) -> None:
    if size > 1:
        cells[offset // size] = text
    else:
        cells[offset : offset + 8] = [f"mask({0xFF << 8 * i:#x})({text})" for i in range(8)]


def _quoted(text: str) -> str:
    return f'"{text}"'
