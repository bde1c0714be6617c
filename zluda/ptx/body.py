"""Function bodies: statements to the typed form.

One regular expression finds the statements of a body; an instruction's dotted opcode and each operand's
text are then looked up in dictionaries (:mod:`zluda.ptx.instructions`, :mod:`zluda.ptx.scope`), and only
what was not met before is parsed. That is what makes a megabyte a second possible in Python.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from zluda.errors import PtxError
from zluda.patterns import pattern
from zluda.ptx.calls import CallError, parse_call
from zluda.ptx.declarations import LINKAGES, SPACES, element_bytes, parse_variables
from zluda.ptx.headers import Header, parameter_list, parse_header
from zluda.ptx.instructions import OpcodeMismatch, OperandMismatch, find_opcode
from zluda.ptx.module import (
    Address,
    BranchTargets,
    CallPrototype,
    DebugLine,
    Function,
    Guard,
    Instruction,
    Label,
    LabelStatement,
    Location,
    Operand,
    Pragma,
    Register,
    Statement,
    Symbol,
    Variable,
    Vector,
)
from zluda.ptx.scope import Names, OperandError, Scope, split_operands
from zluda.ptx.shorthands import elements_as_addresses, without_braces
from zluda.ptx.source import Source
from zluda.ptx.tokens import Tokens
from zluda.ptx.types import BY_SPELLING, ScalarType

_STATEMENT = pattern(
    r"""\s*(?:
      (?:@\s*(!?)\s*([A-Za-z_$%][\w$.]*)\s+)?                                    # 1 2 guard
      ([a-z]\w*(?:\s*\.\s*\w+(?:::\w+)*)*) (?![\w.:$%]|\s+:) ([^;]*);             # 3 opcode, 4 operands
    | ([A-Za-z_$%][\w$]*)\s*:(?!:)                                               # 5 label
    | \.loc\s+(\d+)\s+(\d+)\s+(\d+)                                              # 6 7 8 .loc
      (?:\s*,\s*function_name\s+([\w$.]+(?:\s*\+\s*\d+)?)                        # 9
         \s*,\s*inlined_at\s+(\d+)\s+(\d+)\s+(\d+))?                             # 10 11 12
    | \.([a-z]\w*) ((?:[^;"]|"[^"\n]*")*);                                       # 13 directive, 14 rest
    | ([{}])                                                                     # 15
    )""",
    re.VERBOSE,
)
_OPERANDS_AT, _LABEL_AT, _LOC_AT, _INLINED_AT, _DIRECTIVE_AT, _PUNCTUATION_AT = 4, 5, 8, 12, 14, 15
_BRACKETED = pattern(r"[{(]|\[[^\],]*,")
_BRACE_OR_COLON = pattern(r"[{}:]")
_REGISTER = pattern(r"\s*([A-Za-z_$%][\w$]*)\s*(?:<\s*(\d+)\s*>)?\s*")
_REGISTER_PREFIX = pattern(r"\s*(?:\.(v[24])\s*)?\.(\w+)\s+(?:\.(v[24])\s+)?")


class BodyParser:
    """Parses one function; use once. ``module_symbol`` as :class:`~zluda.ptx.scope.Names` takes it.

    ``module_space`` gives the state space of a variable of the module; "" for a function. ``architecture`` is
    the number of the module's target (90 of ``sm_90a``).
    """

    def __init__(
        self,
        source: Source,
        module_symbol: Callable[[str], int | None],
        module_space: Callable[[str], str],
        architecture: int,
    ) -> None:
        self.source, self.module_space = source, module_space
        self.architecture = architecture
        self.names = Names(module_symbol)
        self.scope = Scope(self.names)
        self.body: list[Statement] = []
        self.variables: dict[str, Variable] = {}
        self.ordinal = 0
        self.callees: dict[str, None] = {}
        self.debug_lines: list[DebugLine] = []
        self.pragmas: list[Pragma] = []
        self._line, self._line_start = 1, 0
        self._label: tuple[str, int] | None = None
        self._labels: dict[int, dict[str, None]] = {}

    def parse(self, start: int, body: int | None, end: int) -> Function:
        """The function whose header starts at ``start``; its body lies in [body, end), or there is none."""
        header = parse_header(self.source, start, end if body is None else body - 1)
        self._declare_parameters(header)
        if body is not None:
            self._statements(body, end)
        self.pragmas[:0] = [Pragma(0, text) for text in header.pragmas]
        return Function(
            header.name,
            header.is_entry,
            header.linkage,
            header.parameters,
            header.returns,
            header.directives,
            self.names.registers,
            self.variables,
            None if body is None else self.body,
            self.source.location(self.source.skip_blank(start)),
            tuple(self.callees),
            tuple(self.debug_lines),
            tuple(self.pragmas),
            tuple(header.attributes),
        )

    def _declare_parameters(self, header: Header) -> None:
        for variable in (*header.returns, *header.parameters):
            if variable.name in self.scope.declared:
                raise self._error_at(variable.location, "parameter declared twice", variable.name)
            if variable.space == "reg":
                self.scope.declare_register(variable.name, variable.type, variable.vector)
            else:
                self.scope.declare_symbol(variable.name, variable.space, element_bytes(variable))

    def _error_at(self, place: Location, message: str, text: str, expected: str = "") -> PtxError:
        return PtxError(
            message, file=self.source.file, line=place.line, column=place.column, text=text, expected=expected
        )

    # --- statements

    def _statements(self, start: int, end: int) -> None:
        place = self.source.location(start)
        self._line, self._line_start = place.line, start - place.column + 1
        self._find_labels(start, end)
        self._declare_labels(start)
        position = start
        code = self.source.code
        instruction = self._instruction
        for match in _STATEMENT.finditer(code, start, end):
            if match.start() != position:
                break
            position = match.end()
            if match.lastindex == _OPERANDS_AT:
                instruction(match)
            else:
                self._other(match)
        position = self.source.skip_blank(position)
        if position < end:
            raise self._no_statement(position, end)
        if self._label:
            self._flush_label()
        if self.scope.parent is not None:
            raise self.source.error(end, "block without '}'", expected="'}'")

    def _no_statement(self, position: int, end: int) -> PtxError:
        piece = self.source.code[position:end]
        semicolon = piece.find(";")
        line = piece.split("\n", 1)[0].strip()
        if semicolon < 0:
            return self.source.error(position, "statement without ';'", line, "';' at its end")
        return self.source.error(position, "not a statement", line, "an instruction, a label or a directive")

    def _other(self, match: re.Match[str]) -> None:
        kind = match.lastindex
        if kind == _LABEL_AT:
            self._flush_label()
            self._label = (match.group(5), match.start(5))
        elif kind in (_LOC_AT, _INLINED_AT):
            self._debug_line(match)
        elif kind == _DIRECTIVE_AT:
            self._directive(match)
        elif match.group(_PUNCTUATION_AT) == "{":
            self._flush_label()
            self.scope = Scope(self.names, self.scope)
            self._declare_labels(match.end())
        elif match.group(_PUNCTUATION_AT) == "}":
            self._flush_label()
            if self.scope.parent is None:
                raise self.source.error(match.start(_PUNCTUATION_AT), "'}' without '{'", "}")
            self.scope = self.scope.parent

    def _find_labels(self, start: int, end: int) -> None:
        """Labels of all blocks, by where a block's contents start: branches may come before them."""
        code = self.source.code
        if code.find(":", start, end) < 0:
            return
        blocks = [start]
        for match in _BRACE_OR_COLON.finditer(code, start, end):
            at = match.start()
            if code[at] == "{":
                blocks.append(at + 1)
            elif code[at] == "}":
                blocks.pop()
                if not blocks:
                    return
            elif code[at - 1] != ":" and code[at + 1 : at + 2] != ":":
                self._find_label(at, blocks[-1])

    def _find_label(self, colon: int, block: int) -> None:
        """The name before a colon, if there is one."""
        code, last = self.source.code, colon
        while last > block and code[last - 1].isspace():
            last -= 1
        first = last
        while first > block and (code[first - 1].isalnum() or code[first - 1] in "_$%"):
            first -= 1
        name = code[first:last]
        if not name or name[0].isdecimal():
            return
        names = self._labels.setdefault(block, {})
        if name in names:
            raise self.source.error(first, "label declared twice", name)
        names[name] = None

    def _declare_labels(self, start: int) -> None:
        for name in self._labels.get(start, ()):
            self.scope.declare_label(name)

    def _flush_label(self) -> None:
        if self._label is not None:
            name, offset = self._label
            self._label = None
            self.body.append(LabelStatement(self._label_name(name), self._locate(offset)))
            at = len(self.pragmas)
            while at and self.pragmas[at - 1].ordinal == self.ordinal:
                at -= 1
                self.pragmas[at] = replace(self.pragmas[at], before_label=True)

    def _label_name(self, name: str) -> str:
        found = self.scope.find(name)
        assert isinstance(found, Label), name  # every label of a block is declared when the block opens
        return found.name

    def _locate(self, offset: int) -> Location:
        """Location of an offset; offsets mostly grow, so lines are counted onwards."""
        start = self._line_start
        if offset < start:
            return self.source.location(offset)
        code = self.source.code
        newlines = code.count("\n", start, offset)
        if newlines:
            self._line += newlines
            self._line_start = start = code.rfind("\n", start, offset) + 1
        return Location(self._line, offset - start + 1)

    # --- instructions

    def _instruction(self, match: re.Match[str]) -> None:
        if self._label is not None:
            self._flush_label()
        negation, predicate, dotted, tail = match.group(1, 2, 3, 4)
        location = self._locate(match.start(3))
        try:
            opcode = find_opcode(dotted)
        except OpcodeMismatch as error:
            raise self.source.error(
                match.start(3) + error.offset, error.message, error.text, error.expected
            ) from None
        if opcode.architecture > self.architecture:
            message, expected = "beyond the module's .target", f"sm_{opcode.architecture} or higher"
            raise self.source.error(match.start(3), message, dotted, expected)
        guard = None if predicate is None else self._guard(predicate, negation == "!", match)
        if opcode.name == "call":
            self.body.append(self._call(match, opcode.forms[0].slots, guard, location))
            self.ordinal += 1
            return
        operands = self._operands(tail, match)
        try:
            choice = opcode.choose(operands)
        except OperandMismatch as error:
            operands = elements_as_addresses(opcode.name, operands, split_operands(tail))
            try:
                choice = opcode.choose(operands)
            except OperandMismatch:
                raise self._operand_mismatch(error, tail, match) from None
        form = choice.form
        if form.vector == 1 and "{" in tail:
            operands = without_braces(opcode.name, operands)
        for position, spaces in choice.spaces:
            self._check_space(operands[position], spaces, match)
        self.body.append(
            Instruction(
                opcode.name,
                form.slots,
                form.types,
                operands,
                guard,
                location,
                self.ordinal,
                form.vector,
                choice.destinations,
            )
        )
        self.ordinal += 1

    def _check_space(self, operand: Operand, spaces: frozenset[str], match: re.Match[str]) -> None:
        name = operand.variable if isinstance(operand, Address) else None
        if name is None:
            return
        space = self._space(name)
        if space not in spaces:
            place = match.group(4).find(name.partition("$")[0])
            expected = "a variable in " + " or ".join(f".{s}" for s in sorted(spaces))
            message = f"{name} is in .{space}" if space else f"{name} is not in memory"
            raise self.source.error(match.start(4) + max(place, 0), message, name, expected)

    def _space(self, name: str) -> str:
        return self.names.spaces.get(name) or self.module_space(name)

    def _guard(self, name: str, negated: bool, match: re.Match[str]) -> Guard:
        register = self.scope.cache.get(name)
        if register is None:
            register = self._one_operand(name, match.start(2))
        if not isinstance(register, Register) or register.type is not ScalarType.PRED:
            raise self.source.error(match.start(2), "guard is no predicate", name, "a .pred register")
        return Guard(register, negated)

    def _operands(self, tail: str, match: re.Match[str]) -> tuple[Operand, ...]:
        scope = self.scope
        cache = scope.cache
        try:
            pieces = split_operands(tail) if _BRACKETED.search(tail) else tail.split(",")
            operands: list[Operand] = []
            for piece in pieces:
                operand = cache.get(piece)
                if operand is None:
                    if not operands and len(pieces) == 1 and not piece.strip():
                        return ()
                    operand = scope.operand(piece)
                operands.append(operand)
        except OperandError as error:
            raise self._operand_error(error, match.start(4), match.end(4)) from None
        return tuple(operands)

    def _one_operand(self, text: str, offset: int) -> Operand:
        try:
            return self.scope.operand(text)
        except OperandError as error:
            raise self._operand_error(error, offset, offset + len(text)) from None

    def _operand_error(self, error: OperandError, start: int, end: int) -> PtxError:
        at = self.source.code.find(error.text, start, end) if error.text else end
        line, newline, _ = error.text.partition("\n")
        if newline and at >= 0:
            return self.source.error(at + len(line.rstrip()), "statement without ';'", line, "';' at its end")
        if error.text.isidentifier():
            word = re.compile(rf"(?<![\w$%]){re.escape(error.text)}(?![\w$])").search(
                self.source.code, start, end
            )
            at = word.start() if word else at
        return self.source.error(at if at >= 0 else start, error.message, error.text, error.expected)

    def _operand_mismatch(self, error: OperandMismatch, tail: str, match: re.Match[str]) -> PtxError:
        dotted = match.group(3)
        if error.position is None:
            message = f"wrong number of operands for {dotted}"
            return self.source.error(match.start(3), message, tail.strip(), error.expected)
        offset = match.start(4)
        for piece in split_operands(tail)[: error.position]:
            offset = self.source.code.index(piece, offset) + len(piece)
            offset = self.source.code.index(",", offset) + 1
        text = split_operands(tail)[error.position]
        offset = self.source.skip_blank(offset)
        return self.source.error(offset, f"operand does not suit {dotted}", text, error.expected)

    def _call(
        self, match: re.Match[str], slots: dict[str, str], guard: Guard | None, location: Location
    ) -> Instruction:
        offset = match.start(4)
        try:
            operands = parse_call(match.group(4), offset, self._one_operand)
        except CallError as error:
            raise self.source.error(error.offset, error.message, error.text, error.expected) from None
        except OperandError as error:
            raise self._operand_error(error, offset, match.end(4)) from None
        callee = operands[1]
        if isinstance(callee, Symbol):
            self.callees[callee.name] = None
        if len(operands) == 3 and (not isinstance(callee, Symbol) or self._space(callee.name)):
            raise self.source.error(
                offset, "not a function", match.group(4).strip(), "a function, or a prototype"
            )
        return Instruction("call", slots, (), operands, guard, location, self.ordinal)

    # --- directives

    def _debug_line(self, match: re.Match[str]) -> None:
        file, line, column = (int(match.group(i)) for i in (6, 7, 8))
        inlined = None
        if match.group(9):
            inlined = (int(match.group(10)), int(match.group(11)), int(match.group(12)))
        function = re.sub(r"\s", "", match.group(9) or "")
        self.debug_lines.append(DebugLine(self.ordinal, file, line, column, function, inlined))

    def _directive(self, match: re.Match[str]) -> None:
        word = match.group(13)
        if self._label is not None and word in _LABELLED:
            name, offset = self._label
            self._label = None
            _LABELLED[word](self, self._label_name(name), self._locate(offset), match)
            return
        self._flush_label()
        if word == "reg":
            self._registers(match)
        elif word == "pragma":
            self._pragma(match)
        elif word in SPACES or word in LINKAGES:
            tokens = Tokens(self.source, match.start(13) - 1, match.end(14))
            for variable in parse_variables(tokens):
                self._declare(variable)
            if tokens.token:
                tokens.fail("',' or ';'")
        else:
            raise self.source.error(
                match.start(13) - 1, "unknown directive", "." + word, ".reg, a state space, .pragma or .loc"
            )

    def _declare(self, variable: Variable) -> None:
        unique = self.scope.declare_symbol(variable.name, variable.space, element_bytes(variable))
        self.variables[unique] = variable if unique == variable.name else _renamed(variable, unique)

    def _pragma(self, match: re.Match[str]) -> None:
        for text in match.group(14).split(","):
            quoted = re.fullmatch(r'\s*"([^"]*)"\s*', text)
            if quoted is None:
                raise self.source.error(match.start(14), "not a pragma", text.strip(), 'a string "…"')
            self.pragmas.append(Pragma(self.ordinal, quoted.group(1)))

    def _registers(self, match: re.Match[str]) -> None:
        """``.reg [.v2] .type a, b<4>;``"""
        code, end = self.source.code, match.end(14)
        prefix = _REGISTER_PREFIX.match(code, match.start(14), end)
        kind = BY_SPELLING.get(prefix.group(2)) if prefix else None
        if prefix is None or kind is None:
            text = match.group(14).strip()
            raise self.source.error(match.start(14), "not a register type", text, "a type such as .b32")
        vector = int((prefix.group(1) or prefix.group(3) or "v1")[1:])
        position = prefix.end()
        while True:
            name = _REGISTER.match(code, position, end)
            if name is None or (name.end() < end and code[name.end()] != ","):
                raise self.source.error(
                    position, "not a register name", code[position:end], "name or name<count>"
                )
            self._declare_registers(name, kind, vector)
            if name.end() >= end:
                return
            position = name.end() + 1

    def _declare_registers(self, name: re.Match[str], kind: ScalarType, vector: int) -> None:
        text, count = name.groups()
        if count is not None:
            self.scope.declare_range(text, int(count[:10]), kind, vector)
        elif isinstance(self.scope.declared.get(text), Register | Vector):
            raise self.source.error(name.start(1), "register declared twice", text)
        else:
            self.scope.declare_register(text, kind, vector)

    def _branch_targets(self, name: str, location: Location, match: re.Match[str]) -> None:
        targets = tuple(self._target(piece, match) for piece in match.group(14).split(","))
        self.body.append(BranchTargets(name, targets, location))

    def _target(self, text: str, match: re.Match[str]) -> str:
        target = self._one_operand(text.strip(), match.start(14) + match.group(14).find(text.strip()))
        if not isinstance(target, Label):
            raise self.source.error(match.start(14), "not a label", text.strip(), "labels of this function")
        return target.name

    def _call_targets(self, name: str, location: Location, match: re.Match[str]) -> None:
        """``name: .calltargets f, g;``: the functions an indirect call may reach."""
        targets = tuple(text.strip() for text in match.group(14).split(","))
        for text in targets:
            if not isinstance(self._one_operand(text, match.start(14) + match.group(14).find(text)), Symbol):
                raise self.source.error(match.start(14), "not a function", text, "functions of this module")
            self.callees[text] = None
        self.body.append(BranchTargets(name, targets, location, calls=True))

    def _call_prototype(self, name: str, location: Location, match: re.Match[str]) -> None:
        tokens = Tokens(self.source, match.start(14), match.end(14))
        returns = parameter_list(tokens) if tokens.token == "(" else ()
        tokens.name()
        parameters = parameter_list(tokens) if tokens.token == "(" else ()
        noreturn = tokens.accept(".noreturn")
        while tokens.token in (".abi_preserve", ".abi_preserve_control"):
            tokens.advance()
            tokens.integer()
        if tokens.token:
            tokens.fail("';'")
        self.body.append(CallPrototype(name, returns, parameters, location, noreturn))


_LABELLED: dict[str, Callable[[BodyParser, str, Location, re.Match[str]], None]] = {
    "branchtargets": BodyParser._branch_targets,
    "calltargets": BodyParser._call_targets,
    "callprototype": BodyParser._call_prototype,
}


def _renamed(variable: Variable, name: str) -> Variable:
    return replace(variable, name=name)
