"""A plausible statement for a dotted opcode: operands of the right classes, types and counts.

``statement("setp.lt.s32")`` is ``setp.lt.s32 %p1, %r1, %r2;``. The registers and variables it uses are
those of :data:`PROLOGUE`. Types follow PTX ISA 9.7, so that ptxas can be the judge.
"""

from __future__ import annotations

from zluda.ptx.instructions import Form, OperandKind, find_opcode
from zluda.ptx.types import BY_SPELLING, ScalarType

PROLOGUE = """
    .reg .pred %p<9>; .reg .b16 %h<9>; .reg .b32 %r<80>; .reg .b64 %l<9>; .reg .b128 %q<9>; .reg .b8 %b<9>;
    .reg .f32 %f<80>; .reg .f64 %d<9>;
    .local .align 16 .b8 place_local[64];
    .shared .align 16 .b8 place_shared[64];
"""

MODULE_PROLOGUE = """.version {version}
.target {target}
.address_size 64
.global .align 16 .b8 place_global[64];
.const .align 16 .b8 place_const[64];
.global .texref place_tex;
.global .surfref place_surf;
.func callee() {{ ret; }}
"""

_COORDINATES = {"1d": 1, "2d": 2, "3d": 4, "a1d": 2, "a2d": 4, "cube": 4, "acube": 4, "2dms": 4, "a2dms": 4}
_PREDICATES = {("selp", 3), ("set", 3), ("setp", 3), ("lop3", 5)}
_COUNTS = {("shl", 2), ("shr", 2), ("bfe", 2), ("bfe", 3), ("bfi", 3), ("bfi", 4), ("shf", 3)}
_B32_RESULTS = {"popc", "clz", "bfind", "match", "movmatrix"}
_PRED_RESULTS = {"setp", "testp", "isspacep", "istypep"}

_FRAGMENTS = {  # registers in a wmma fragment (PTX ISA 9.7.14.3): (fragment, type) by shape
    ("m16n16k16", "a", "f16"): 8,
    ("m16n16k16", "b", "f16"): 8,
    ("m8n32k16", "a", "f16"): 8,
    ("m8n32k16", "b", "f16"): 8,
    ("m16n16k16", "a", "bf16"): 4,
    ("m16n16k16", "b", "bf16"): 4,
    ("m16n16k16", "a", "u8"): 2,
    ("m16n16k16", "b", "u8"): 2,
    ("m16n16k8", "a", "tf32"): 4,
    ("m16n16k8", "b", "tf32"): 4,
    ("m8n8k4", "a", "f64"): 1,
    ("m8n8k4", "b", "f64"): 1,
    ("m8n8k4", "c", "f64"): 2,
}
_MMA_FRAGMENTS = {"f32": (4, 4, 2, 4), "f16": (2, 4, 2, 2)}  # d a b c of m16n8k16


def register(kind: ScalarType, index: int) -> str:
    """A register of :data:`PROLOGUE` that holds a value of this type."""
    if kind is ScalarType.PRED:
        return f"%p{index}"
    if kind is ScalarType.F32 or kind is ScalarType.F64:
        return f"%{'f' if kind is ScalarType.F32 else 'd'}{index}"
    return f"%{ {16: 'h', 32: 'r', 64: 'l', 128: 'q'}[max(16, kind.bits)] }{index}"


def statement(dotted: str) -> str:
    """One instruction of this form, with ``;``."""
    opcode = find_opcode(dotted)
    if opcode.name in _WHOLE:
        return f"{dotted} {_WHOLE[opcode.name]}".strip() + ";"
    form = opcode.forms[0]
    shape = form.row.shapes[1 if dotted.startswith("cp.async.bulk.shared") else 0]
    operands = [_operand(opcode.name, form, kind, i) for i, kind in enumerate(shape)]
    return f"{dotted} {', '.join(operands)}".strip() + ";"


_WHOLE = {"bra": "TARGET", "call": "callee", "exit": "", "trap": "", "ret": ""}


def _operand(name: str, form: Form, kind: OperandKind, position: int) -> str:
    special = _SPECIAL.get((name, position))
    if special is not None:
        return special(form)
    if kind.name.startswith("["):
        return _address(form, kind, position)
    type_ = _type(name, form, kind, position)
    if name == "cvt" and position == 0 and type_.bits == 8 and form.types[1] is ScalarType.BF16:
        return "%b1"  # the one conversion for which ptxas wants a register this narrow
    if kind.name == "d|p" or (kind.name == "d{|p}" and name == "setp"):
        return f"{register(type_, 1)}|%p2"
    if kind.name[0].isupper():
        return _fragment(name, form, kind, type_, position)
    if form.vector > 1 and kind.name[0] in "ds":
        return _vector(type_, form.vector, position * 8)
    return register(type_, position + 1)


def _type(name: str, form: Form, kind: OperandKind, position: int) -> ScalarType:
    types = form.types or (ScalarType.B32,)
    if (name, position) in _PREDICATES or (position == 0 and name in _PRED_RESULTS):
        return ScalarType.PRED
    if (name, position) in _COUNTS or (position == 0 and name in _B32_RESULTS):
        return ScalarType.B32
    if name in ("mul", "mad") and form.slots.get("mode") == "wide" and position in (0, 3):
        return BY_SPELLING[f"{types[0].kind}{2 * types[0].bits}"]
    if name in ("cvt", "slct") or name == "set":
        return types[min(position, 1)] if name != "slct" or position == 3 else types[0]
    if name in ("dp4a", "dp2a") or name.startswith("vabsdiff"):
        return ScalarType.B32
    if name == "rcp" or len(types) == 1:
        return types[0]
    return types[0] if position == 0 else types[-1]


def _address(form: Form, kind: OperandKind, position: int) -> str:
    if "," in kind.name:
        count = _COORDINATES[form.slots["geom"]]
        array = form.slots["geom"].startswith("a")
        float_coordinates = form.row.opcode == "tex" and form.types[-1] is ScalarType.F32
        values = [
            f"%{'f' if float_coordinates and not (array and i == 0) else 'r'}{40 + i}" for i in range(count)
        ]
        place = "place_tex" if form.row.opcode == "tex" else "place_surf"
        return f"[{place}, {{{', '.join(values)}}}]"
    space = form.slots.get("dst" if kind.name == "[d]" else "src" if "src" in form.slots else "space", "")
    if space.startswith("param"):
        return "[parameter]" if form.row.opcode == "ld" else "[argument]"
    space = space.partition("::")[0]
    return f"[place_{space}]" if space else "[%l8]"


def _fragment(name: str, form: Form, kind: OperandKind, type_: ScalarType, position: int) -> str:
    if name in ("tex", "suld", "sust"):
        return _vector(ScalarType.B32 if type_.bits > 16 and name != "tex" else form.types[0], form.vector, 8)
    if name in ("ldmatrix", "stmatrix"):
        return _vector(ScalarType.B32, int(form.slots["num"][1:]), 8)
    fragment = form.slots.get("fragment") or kind.name.lower()
    types = form.types
    if name == "mma":
        letter = "dabc".index(fragment)
        count = _MMA_FRAGMENTS[types[0].spelling][letter]
        return _vector(
            types[letter] if types[letter] is ScalarType.F32 else ScalarType.B32, count, position * 8
        )
    if len(types) == 2:  # wmma.mma on f16: d and c are named
        of = {"d": types[0], "c": types[1]}.get(fragment, ScalarType.F16)
    else:
        of = types["dabc".index(fragment)] if len(types) == 4 else types[0]
    shape = form.slots["shape"]
    count = _FRAGMENTS.get((shape, "c" if fragment == "d" else fragment, of.spelling), 8)
    held = of if of in (ScalarType.F32, ScalarType.F64) else ScalarType.B32
    return _vector(
        held,
        count,
        0 if held is ScalarType.F64 and count == 1 else position * (2 if held is ScalarType.F64 else 8),
    )


def _vector(kind: ScalarType, count: int, first: int) -> str:
    first = first if kind.bits == 32 else first % 7
    return f"{{{', '.join(register(kind, first + i) for i in range(count))}}}"


_SPECIAL = {
    ("cp", 0): lambda f: "1" if "wait_group" in f.slots else "[place_shared]",
    ("cp", 2): lambda f: "16" if "cop" in f.slots else "%r2",
    ("cp", 3): lambda f: "[place_shared]",
    ("movmatrix", 1): lambda f: "%r2",
    ("shfl", 0): lambda f: "%r1|%p2",
    ("bar", 0): lambda f: _barrier_first(f),
    ("bar", 1): lambda f: "1" if "red" in f.slots else "32",
    ("bar", 2): lambda f: "!%p2",
    ("barrier", 0): lambda f: "1",
    ("lop3", 4): lambda f: "0x1A",
    ("vote", 0): lambda f: register(f.types[0], 1),
    ("vote", 1): lambda f: "!%p2",
    ("vote", 2): lambda f: "%r3",
    ("match", 2): lambda f: "%r3",
    ("cvta", 1): lambda f: "%l2",
    ("griddepcontrol", 0): lambda f: "",
    ("mbarrier", 0): lambda f: _mbarrier_first(f),
    ("mbarrier", 1): lambda f: (
        "[place_shared]" if "init" not in f.slots and "expect_tx" not in f.slots else "%r2"
    ),
    ("mbarrier", 2): lambda f: "%r3" if "parity" in f.slots else "%l3",
    ("isspacep", 1): lambda f: "%l2",
    ("prmt", 3): lambda f: "0x3210",
    ("wmma", 2): lambda f: "%r79" if "load" in f.slots or "store" in f.slots else _wmma_b(f),
}


def _wmma_b(form: Form) -> str:
    kind = OperandKind("B", frozenset(), frozenset(), False)
    return _fragment("wmma", form, kind, form.types[0], 2)


def _barrier_first(form: Form) -> str:
    if "red" not in form.slots:
        return "%r1" if "warp" in form.slots else "1"
    return register(form.types[0], 1)


def _mbarrier_first(form: Form) -> str:
    if "arrive" in form.slots:
        return "%l1"
    if "try_wait" in form.slots or "test_wait" in form.slots:
        return "%p1"
    return "[place_shared]"


def module(statements: list[str], *, version: str = "8.7", target: str = "sm_90") -> str:
    """A module with one kernel that holds the statements, one a line."""
    head = MODULE_PROLOGUE.format(version=version, target=target)
    body = "\n".join(in_call_block(s) for s in statements)
    entry = ".visible .entry kernel(.param .align 16 .b8 parameter[64])"
    return f"{head}{entry}\n{{{PROLOGUE}{body}\nTARGET:\n    ret;\n}}\n"


def in_call_block(text: str) -> str:
    if "[argument]" not in text:
        return text
    return f"{{ .param .align 16 .b8 argument[16]; {text} }}"
