"""What of the instruction table runs on which device, found by lowering a statement of every form.

:func:`forms` walks the rows of :mod:`zluda.ptx.table`: combinations of types and of the words a row needs,
and each word once. :func:`statement` writes a statement of a form; :func:`refused` lowers
statements for a device and says which are refused. Tensor-core instructions are looked up in
:mod:`zluda.numerics.tensor_cores.operations`, which is what their lowering does.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from zluda.compiler.refusals import refusals
from zluda.compiler.textures.expand import expand_textures
from zluda.errors import PtxError, UnsupportedError
from zluda.numerics.tensor_cores import operations
from zluda.ptx import parse_module
from zluda.ptx.instructions import Form, OpcodeMismatch, OperandKind, Row, find_opcode, rows
from zluda.ptx.module import Register
from zluda.ptx.types import BY_SPELLING, ScalarType

T = ScalarType
DEVICES = ("cpu", "gfx1030", "gfx1100", "gfx90a")
CONTROL = frozenset(("bra", "brx", "ret", "exit", "call"))
"""Edges of the control-flow graph, and calls: they have an operand grammar of their own."""
TENSOR = frozenset(("mma", "wmma", "wgmma"))
MOST = 40
"""How many combinations of a row's needed words are tried."""

_REGISTERS = {T.PRED: "p", T.F32: "f", T.F64: "d", T.B128: "q", T.B8: "b"}
_BY_BITS = {8: "b", 16: "h", 32: "r", 64: "l", 128: "q"}
_COORDINATES = {"1d": 1, "2d": 2, "3d": 4, "a1d": 2, "a2d": 4, "cube": 4, "acube": 4, "2dms": 4, "a2dms": 4}

HEAD = """.version 9.0
.target sm_100a
.address_size 64
.global .align 16 .b8 place_global[4096];
.const .align 16 .b8 place_const[4096];
.global .texref place_texref; .global .samplerref place_samplerref; .global .surfref place_surfref;
.visible .entry k(.param .align 16 .b8 place_param[256]) {
.reg .pred %p<99>; .reg .b8 %b<99>; .reg .b16 %h<99>; .reg .b32 %r<99>; .reg .b64 %l<99>; .reg .b128 %q<99>;
.reg .f32 %f<99>; .reg .f64 %d<99>; .reg .f16x2 %x<9>;
.local .align 16 .b8 place_local[256];
.shared .align 128 .b8 place_shared[4096];
.param .align 16 .b8 argument[256];
"""


@dataclass(frozen=True, slots=True)
class Case:
    """A dotted opcode, the row it was made from, and its words."""

    row: Row
    dotted: str
    words: tuple[str, ...]


def forms(opcode: str) -> Iterator[Case]:
    """The forms of an opcode that are tried, row by row: some combinations, and each word once."""
    for row in rows(opcode):
        needed = [m for m in row.modifiers if not m.optional]
        choices = [sorted(m.words, key=_plain) for m in needed]
        names = [m.name for m in needed]
        base = dict(zip(names, (c[0] for c in choices), strict=True))
        tried = [dict(zip(names, words, strict=True)) for words in _some(choices)]
        tried += [base | {m.name: word} for m in row.modifiers for word in sorted(m.words)]
        yield from dict.fromkeys(_case(row, chosen) for chosen in tried)


def _plain(word: str) -> tuple[bool, str]:
    """Orders words so that the one a combination starts with is an everyday one."""
    return word not in ("b32", "u32", "f32", "global", "add"), word


def _some(choices: Sequence[Sequence[str]]) -> Iterator[tuple[str, ...]]:
    """Combinations, evenly spread over all there are."""
    total = math.prod(map(len, choices))
    for number in range(0, total, -(-total // MOST) | 1):
        words = []
        left = number
        for words_of_slot in choices:
            left, index = divmod(left, len(words_of_slot))
            words.append(words_of_slot[index])
        yield tuple(words)


def _case(row: Row, chosen: dict[str, str]) -> Case:
    """A form; a tensor copy has as many dimensions as its mode is for."""
    mode = chosen.get("load_mode", "")
    if mode.startswith("im2col"):
        chosen = chosen | {"dim": max(chosen["dim"], "3d")}
    elif mode.endswith("4"):
        chosen = chosen | {"dim": "2d"}
    words = tuple(chosen[m.name] for m in row.modifiers if m.name in chosen)
    return Case(row, ".".join([row.opcode, *words]), words)


# --- a statement of a form -----------------------------------------------------------------------------


def statement(case: Case) -> str | None:
    """A statement, or None for a form whose operands another row's words claim."""
    try:
        opcode = find_opcode(case.dotted)
    except OpcodeMismatch:
        return None
    form = next((f for f in opcode.forms if f.row is case.row or f.row.text == case.row.text), None)
    if form is None:
        return None
    whole = _whole(case, form)
    if whole is not None:
        return f"{case.dotted} {whole};"
    operands = [_operand(form, kind, i) for i, kind in enumerate(max(_shapes(case, form), key=len))]
    return f"{case.dotted} {', '.join(operands)}".strip() + ";"


def _shapes(case: Case, form: Form) -> Sequence[tuple[OperandKind, ...]]:
    """Operand lists: the longest has a cache policy, which goes with the word for it only."""
    shapes = form.row.shapes
    if "cache_hint" in form.slots or not any(m.name == "cache_hint" for m in form.row.modifiers):
        return shapes if "cache_hint" in form.slots else shapes[:1] if len(shapes) > 1 else shapes
    return shapes[:1]


def _whole(case: Case, form: Form) -> str | None:
    """Operands of instructions whose table row leaves them open."""
    opcode, slots = case.row.opcode, form.slots
    if opcode == "cp" and "bulk" not in slots:
        return _cp_async(case, form)
    if opcode == "cp" and "action" in slots and "tensor" not in slots:
        return "[place_global], 16" + (", %l3" if "cache_hint" in slots else "")
    if opcode == "cp" and "dst" in slots and "tensor" not in slots:
        places = [f"[place_{slots[s].split('::')[0]}]" for s in ("dst", "src")]
        barrier = ", [place_shared]" if slots.get("completion", "").startswith("mbarrier") else ""
        mask = ", %h4" if "multicast" in slots else ""
        ends = {"cp_mask": ", %h5", "ignore_oob": ", %r5, %r6"}.get(slots.get("ignore_oob", ""), "")
        return ", ".join([*places, "16"]) + barrier + mask + (", %l3" if "cache_hint" in slots else "") + ends
    if opcode == "cp" and "tensor" in slots:
        return _tensor_copy(form)
    if opcode == "tensormap":
        return _tensor_map(form)
    if opcode == "setmaxnreg":
        return "24"
    return None


def _tensor_map(form: Form) -> str:
    """Operands of a change of a tensor map: a constant where the field has no register form."""
    if "cp_fenceproxy" in form.slots:
        return "[place_global], [place_shared], 128"
    field, place = form.slots["field"], form.slots.get("space", "global").split("::")[0]
    ordinal = "1, " if field.endswith(("_dim", "_stride")) else ""
    named = field in ("elemtype", "interleave_layout", "swizzle_mode", "swizzle_atomicity", "fill_mode")
    register = "%l3" if form.types[-1].bits == 64 else "%r3"
    return f"[{'place_shared' if place == 'shared' else 'place_global'}], {ordinal}{1 if named else register}"


def _tensor_copy(form: Form) -> str:
    """Operands of a tensor copy: map and coordinates, the box, and what modifiers ask for."""
    slots = form.slots
    mode, dimensions = slots.get("load_mode", ""), int(slots["dim"][0])
    count = 5 if mode.endswith("4") else dimensions
    tensor = f"[%l90, {{{', '.join(f'%r{40 + i}' for i in range(count))}}}]"
    offsets = {"im2col": dimensions - 2, "im2col::w": 2, "im2col::w::128": 2}.get(mode, 0)
    listed = f", {{{', '.join(f'%h{i}' for i in range(offsets))}}}" if offsets > 0 else ""
    hint = ", %l3" if "cache_hint" in slots else ""
    if "action" in slots:
        return tensor + listed + hint
    if slots["dst"] == "global":
        return f"{tensor}, [place_shared]{hint}"
    mask = ", %h4" if "multicast" in slots else ""
    return f"[place_shared], {tensor}, [place_shared]{listed}{mask}{hint}"


def _cp_async(case: Case, form: Form) -> str | None:
    if "dst" not in form.slots:
        return None
    size = "16" if form.slots.get("cop") == "cg" else "4"
    return f"[place_shared], [place_global], {size}" + (", %l3" if "cache_hint" in form.slots else "")


def _register(of: ScalarType, index: int) -> str:
    return f"%{_REGISTERS.get(of) or _BY_BITS[max(of.bits, 8)]}{index}"


def _type(form: Form, kind: OperandKind) -> ScalarType:
    """A register type that suits an operand: the instruction's own if there are such registers."""
    word = kind.rule.rstrip("+%")
    takes = form.takes(kind)
    own = form.named_types.get(word) or BY_SPELLING.get(word)
    if takes is None:
        return own if own in (T.F32, T.F64, T.PRED) else T.B64 if own and own.bits == 64 else T.B32
    if own in takes:
        return own  # type: ignore[return-value]
    registers = sorted((t for t in takes if isinstance(t, ScalarType)), key=lambda t: (t.bits, t.kind))
    return registers[0]


def _operand(form: Form, kind: OperandKind, position: int) -> str:
    name = kind.name
    if name.startswith("["):
        return _address(form, name)
    if "|" in name:
        first = T.B32 if form.row.opcode in ("match", "elect", "shfl") else _type(form, kind)
        if name[0] == "D":
            return _vector(form, kind, position)
        return f"{_register(first, 1)}|%p2" if "{" not in name else _register(first, 1)
    if name[0].isupper() or (form.vector > 1 and Register not in kind.vector_classes):
        return _vector(form, kind, position)
    if name in ("xe", "xb", "xg"):
        count = _COORDINATES[form.slots["geom"]]
        letter = "r" if name == "xe" else "f"
        return "{" + ", ".join(f"%{letter}{60 + i}" for i in range(count)) + "}"
    if kind.rule.startswith("constant"):
        return "1"
    return _register(_type(form, kind), position + 1)


def _vector(form: Form, kind: OperandKind, position: int) -> str:
    opcode = form.row.opcode
    count = form.vector if form.vector > 1 else 2
    if opcode in ("ldmatrix", "stmatrix"):
        count = int(form.slots["num"][1:])
    of = T.B32 if opcode in ("ldmatrix", "stmatrix") else _type(form, kind)
    return "{" + ", ".join(_register(of, 1 + position * 8 + i) for i in range(count)) + "}"


def _address(form: Form, name: str) -> str:
    slots = form.slots
    if "," in name:
        count = _COORDINATES.get(slots.get("geom", slots.get("dim", "1d")), 1)
        floats = form.row.opcode in ("tex", "tld4") and form.types[-1] is T.F32
        place = "place_surfref" if form.row.opcode.startswith("su") else "place_texref"
        letter = "f" if floats else "r"
        return f"[{place}, {{{', '.join(f'%{letter}{40 + i}' for i in range(count))}}}]"
    key = "dst" if name == "[d]" else "src" if "src" in slots else "space"
    space = slots.get(key, "").split("::")[0]
    if space == "param":
        return "[place_param]" if form.row.opcode in ("ld", "prefetch") else "[argument]"
    if name in ("[b]", "[c]") and form.row.opcode in ("st", "red"):
        return "[place_shared]"
    if form.row.opcode in ("txq", "suq"):
        return f"[place_{'texref' if form.row.opcode == 'txq' else 'surfref'}]"
    if form.row.opcode == "mbarrier" or (form.row.opcode == "cp" and not space):
        return "[place_shared]"
    return f"[place_{space}]" if space else "[%l90]"


# --- lowering ------------------------------------------------------------------------------------------


def refused(statements: Sequence[str], device: str) -> list[str]:
    """For each statement what its lowering says is not supported; ``""`` where it is lowered."""
    said = _not_expanded(statements)
    lowered = ["" if what else text for text, what in zip(statements, said, strict=True)]
    module = parse_module(HEAD + "\n".join(lowered) + "\nret;\n}\n", file="<forms>")
    first = HEAD.count("\n") + 1
    for instruction, what in refusals(module, "k", device):
        said[instruction.location.line - first] = what
    return said


def _not_expanded(statements: Sequence[str]) -> list[str]:
    """For each texture instruction what is said where it cannot be made a call; ``""`` for all others."""
    function = parse_module(HEAD + "\n".join(statements) + "\nret;\n}\n").function("k")
    said = []
    for instruction in function.instructions[: len(statements)]:
        try:
            expand_textures(replace(function, body=[instruction], debug_lines=(), pragmas=()))
            said.append("")
        except UnsupportedError as error:
            said.append(error.what)
    return said


def is_tensor_form(case: Case) -> bool:
    """Whether a form of ``mma``, ``wmma`` or ``wgmma`` is one that there is, and so is lowered."""
    form = find_opcode(case.dotted).forms[0]
    slots, types, sparse = form.slots, [t.spelling for t in form.types], "sp" in form.slots
    if case.row.opcode == "wgmma":
        if "mma_async" not in slots:
            return True
        return operations.wgmma(slots["shape"], *types[1:], types[0], sparse=sparse) is not None
    if "load" in slots or "store" in slots:
        return True
    layouts = (slots["alayout"], slots["blayout"])
    if "kind" in slots:
        kind, vector = slots["kind"].removeprefix("kind::"), slots.get("scale_vec", "scale_vec::0X")
        scale = types[4] if "block_scale" in slots else ""
        chunks = int(vector[len("scale_vec::") : -1])
        found = operations.mma_of_kind(
            kind, slots["shape"], *types[1:4], scale=scale, chunks=chunks, sparse=sparse
        )
        return found is not None and layouts == ("row", "col")
    d, a, b, c = types if len(types) == 4 else (types[0], "f16", "f16", types[-1])
    popcount = slots.get("op", "") if "popc" in slots else ""
    if case.row.opcode == "wmma":
        return operations.wmma(slots["shape"], a, b, c, d, popcount=popcount) is not None
    mma = operations.mma(slots["shape"], a, b, c, d, layouts=layouts, popcount=popcount, sparse=sparse)
    return mma is not None


# --- the table -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Support:
    """What a row came to: its forms, and on each device those that are refused, by what is said of them."""

    row: Row
    cases: tuple[Case, ...]
    refused: dict[str, dict[Case, str]]

    def cell(self, device: str) -> str:
        """``yes``, ``no``, or which words are not there."""
        missing = self.refused[device]
        if not missing:
            return "yes"
        if len(missing) == len(self.cases):
            return "no"
        held = {word for case in self.cases if case not in missing for word in case.words}
        words = sorted({word for case in missing for word in case.words} - held)
        return "but " + " ".join(f"`.{word}`" for word in words) if words else "partly"


def support(opcodes: Sequence[str]) -> list[Support]:
    """All rows of these opcodes, tried on every device."""
    cases = [case for opcode in opcodes for case in forms(opcode)]
    statements = _sound([case for case in cases if case.row.opcode not in CONTROL | TENSOR])
    found = {
        device: dict(zip(statements, refused(list(statements.values()), device), strict=True))
        for device in DEVICES
    }
    result = []
    for row in dict.fromkeys(case.row for case in cases):
        own = tuple(
            c for c in cases if c.row is row and (c in statements or c.row.opcode in CONTROL | TENSOR)
        )
        if row.opcode in TENSOR and any(map(is_tensor_form, own)):
            own = tuple(filter(is_tensor_form, own))  # of the words' combinations those that there are
        tensor = {c: c.dotted for c in own if c.row.opcode in TENSOR and not is_tensor_form(c)}
        missing = {d: {c: found[d][c] for c in own if found[d].get(c)} | tensor for d in DEVICES}
        result.append(Support(row, own, missing))
    return result


def _sound(cases: Sequence[Case]) -> dict[Case, str]:
    """The statements that parse: not every combination of a row's words is one of PTX."""
    texts = {case: text for case in cases if (text := statement(case)) is not None}
    sound: dict[Case, str] = {}
    by_row: dict[Row, list[Case]] = {}
    for case in texts:
        by_row.setdefault(case.row, []).append(case)
    for own in by_row.values():
        batches = [own] if parses([texts[c] for c in own]) else [[c] for c in own if parses([texts[c]])]
        sound |= {case: texts[case] for batch in batches for case in batch}
    return sound


def parses(statements: Sequence[str]) -> bool:
    """Whether these statements are PTX."""
    try:
        parse_module(HEAD + "\n".join(statements) + "\nret;\n}\n").function("k")
    except PtxError:
        return False
    return True
