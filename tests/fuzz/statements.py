"""Random instructions, straight from the instruction table: a new row is fuzzed as soon as it stands there.

:func:`statement` takes a row of :mod:`zluda.ptx.table`, words for its modifiers, and registers of
:data:`POOLS` that suit its operands. What it writes is well defined whatever the registers hold: addresses
lie in memory of the thread's own, masks name the lanes that are there.
"""

from __future__ import annotations

import functools
import random
from dataclasses import dataclass

from zluda.ptx.instructions import Form, OpcodeMismatch, OperandKind, Row, find_opcode, opcode_names, rows
from zluda.ptx.operand_types import Shape
from zluda.ptx.types import BY_SPELLING, ScalarType

T = ScalarType
POOLS: dict[ScalarType, tuple[str, int, int]] = {
    T.PRED: ("p", 5, 1),
    T.B8: ("b", 2, 1),
    T.B16: ("h", 6, 2),
    T.B32: ("r", 8, 4),
    T.F32: ("f", 6, 4),
    T.B64: ("l", 6, 8),
    T.F64: ("d", 4, 8),
    T.B128: ("q", 2, 16),
}
"""Type of a pool's registers → letter, how many, bytes each takes in memory."""
OWN = 64
"""Bytes of memory a thread owns in each state space, aligned to as many."""
MASK = "%MASK"
"""Stands for the register with the lanes that execute; whoever writes the program puts it in."""
UNIFORM, WHOLE, ENTRY = "uniform", "whole", "entry"
"""Where a statement may stand: where the whole block is; where it is, and is of whole warps; in kernels."""

LEFT_OUT = {
    "bra brx call ret exit": "the program's own structure",
    "trap brkpt": "end the launch",
    "alloca stackrestore stacksave cvta mapa getctarank": "give addresses, which differ between devices",
    "createpolicy": "gives a policy, which is opaque",
    "applypriority discard tensormap": "want objects of 128 bytes, or leave them without a value",
    "st.bulk ldu": "want memory that a thread does not own alone",
    "cp mbarrier": "written by hand, as groups that belong together",
    "red.async st.async": "complete on an mbarrier",
    "griddepcontrol setmaxnreg pmevent nanosleep clusterlaunchcontrol": "are about launches, not values",
    "mma wmma wgmma tcgen05 multimem": "whole warps' matrices are held to an H200's tiles",
    "tex tld4 txq suld sust sured suq istypep": "textures have an oracle of their own",
    "barrier.cluster fence": "order memory of blocks",
    "shfl.mode vote.op": "the forms before sm_70, which name no lanes",
}
"""Opcodes (or rows by their first words) that are not drawn, and why."""
_LEFT_OUT = frozenset(word for words in LEFT_OUT for word in words.split())


@functools.cache
def drawn(row: Row) -> bool:
    """Whether statements of this row are drawn."""
    head = row.text.split()[0].replace("{", "").replace("}", "").split(".")
    return not {".".join(head[:n]) for n in (1, 2)} & _LEFT_OUT


@dataclass(frozen=True, slots=True)
class Statement:
    """Text of one or several instructions; ``where`` is ``""``, :data:`UNIFORM` or :data:`WHOLE`."""

    text: str
    where: str = ""


_PLACES = {
    "shfl": WHOLE,
    "activemask": WHOLE,
    "movmatrix": WHOLE,
    "bar": UNIFORM,
    "barrier": UNIFORM,
    "ldmatrix": WHOLE,
    "stmatrix": WHOLE,
}


def statement(rng: random.Random, row: Row) -> Statement | None:
    """A statement of a row with random words and operands; None where these words are no form of it."""
    dotted = _dotted(rng, row)
    try:
        forms = find_opcode(dotted).forms
    except OpcodeMismatch:
        return None
    form = next((f for f in forms if f.row is row), None)
    if form is None or not _well_defined(form):
        return None
    operands = _Operands(rng, form).all()
    if operands is None:
        return None
    text = f"{dotted} {', '.join(operands)}".strip() + ";"
    if row.opcode in ("ldmatrix", "stmatrix"):  # lanes give other lanes' rows
        text = f"bar.sync 0; {text} bar.sync 0;"
    if row.opcode in ("addc", "subc", "madc"):
        first = rng.choice(["add.cc.u32", "sub.cc.s32", "mad.lo.cc.u32"])
        others = ", ".join(register(rng, T.B32) for _ in range(3 if first[0] == "m" else 2))
        text = f"{{ .reg .b32 %x; {first} %x, {others}; {text} }}"
    where = ENTRY if "p_bytes" in text else _PLACES.get(row.opcode, "")
    return Statement(text, "" if text.startswith("bar.warp") else where)


def _dotted(rng: random.Random, row: Row) -> str:
    words = [
        rng.choice(sorted(m.words))
        for m in row.modifiers
        if not m.optional or rng.random() < (0.1 if m.name in ("cache_hint", "evict2") else 0.3)
    ]
    return ".".join([row.opcode, *words])


def _well_defined(form: Form) -> bool:
    slots = form.slots
    if form.row.opcode in ("ld", "st") and slots.get("space", "").startswith("param"):
        return form.row.opcode == "ld" and slots["space"] != "param::func"
    if "tensormap" in slots or slots.get("scope") == "cluster" or "cluster" in slots.get("space", ""):
        return False
    if form.row.opcode in ("bar", "barrier") and "arrive" in slots:
        return False  # without somebody who waits, the next wait would be off by it
    return form.row.opcode != "prefetch" or "evict" not in slots.get("level", "")


@dataclass
class _Operands:
    """Operands for one form."""

    rng: random.Random
    form: Form

    def all(self) -> list[str] | None:
        hint = "cache_hint" in self.form.slots
        shapes = self.form.row.shapes
        if any(m.name == "cache_hint" for m in self.form.row.modifiers):
            shapes = (max(shapes, key=len) if hint else min(shapes, key=len),)
        shape = self.rng.choice(shapes)
        special = _SPECIAL.get(self.form.row.opcode)
        if special is not None:
            found = special(self, shape)
            if found is not None:
                return found
        operands = [self.operand(kind) for kind in shape]
        return None if None in operands else [o for o in operands if o is not None]

    @property
    def simd(self) -> bool:
        """Whether it is a SIMD video instruction: ptxas takes registers alone there."""
        return self.form.row.opcode[0] == "v" and self.form.row.opcode[-1] in "24"

    def operand(self, kind: OperandKind) -> str | None:
        name = kind.name
        if name.startswith("["):
            return self.address() if "," not in name else None
        if "|" in name:
            return self.pair(kind)
        if name.startswith("!"):
            return self.rng.choice(["", "!"]) + register(self.rng, T.PRED)
        if kind.rule == "constant":
            return str(self.rng.randrange(256))
        if self.form.vector > 1 and name[0] in "ds":
            elements = [self.value(kind) for _ in range(self.form.vector)]
            if kind.destination and len(set(elements)) < len(elements):
                elements = self.distinct(kind)
            return None if None in elements else "{" + ", ".join(e or "" for e in elements) + "}"
        if name[0].isupper():
            return self.fragment(kind)
        value = self.value(kind)
        if value is not None and name[0] in "vw" and "scale" not in self.form.slots:
            value = self.selected(value, name)
        return value

    def pair(self, kind: OperandKind) -> str | None:
        """``d|p``; the second differs from the first, which may be a predicate too."""
        if self.form.row.opcode in ("match", "elect", "shfl"):
            first: str | None = register(self.rng, T.B32)
        else:
            first = self.value(kind)
        if first is None or ("{" in kind.name and self.rng.random() < 0.5):
            return first
        others = [f"%p{i}" for i in range(POOLS[T.PRED][1]) if f"%p{i}" != first]
        return f"{first}|{self.rng.choice(others)}"

    def value(self, kind: OperandKind) -> str | None:
        """A register of a type that suits, or sometimes a constant."""
        takes = self.form.takes(kind)
        if takes is None:
            of = BY_SPELLING.get(kind.rule.rstrip("+%"))
            of = of or (self.form.types[0 if kind.destination else -1] if self.form.types else None)
            of = next((t for t in POOLS if of is not None and t.bits == of.bits), T.B32)
            return register(self.rng, of)
        if not kind.destination and self.rng.random() < 0.15 and not self.simd:
            constant = self.constant(takes)
            if constant is not None:
                return constant
        own = sorted((t for t in takes if isinstance(t, ScalarType) and t in POOLS), key=str)
        return register(self.rng, self.rng.choice(own)) if own else None

    def constant(self, takes: frozenset[Shape]) -> str | None:
        if "int" in takes:
            return str(self.rng.choice([0, 1, 2, 7, 31, 32, 255, self.rng.randrange(1 << 15)]))
        if "f32" in takes and T.F32 in takes:
            return f"0f{self.rng.choice(F32):08X}"
        if "f64" in takes and T.F64 in takes:
            return f"0d{self.rng.choice(F64):016X}"
        return None

    def distinct(self, kind: OperandKind) -> list[str | None]:
        """Registers of a loaded vector, each another."""
        takes = self.form.takes(kind) or frozenset()
        pools = [t for t in takes if isinstance(t, ScalarType) and t in POOLS]
        pools = sorted((t for t in pools if POOLS[t][1] >= self.form.vector), key=str)
        if not pools:
            return [None]
        letter, count, _ = POOLS[self.rng.choice(pools)]
        return [f"%{letter}{i}" for i in self.rng.sample(range(count), self.form.vector)]

    def fragment(self, kind: OperandKind) -> str | None:
        """The registers of ``ldmatrix``, ``stmatrix``, and of ``cvt`` to four small floats."""
        opcode = self.form.row.opcode
        if opcode in ("ldmatrix", "stmatrix"):
            count = int(self.form.slots["num"][1:]) * (2 if self.form.slots["shape"] == "m16n16" else 1)
            return "{" + ", ".join(f"%r{i}" for i in self.rng.sample(range(8), count)) + "}"
        if opcode == "cvt":
            return "{" + ", ".join(register(self.rng, T.F32) for _ in range(4)) + "}"
        return None

    def selected(self, value: str, name: str) -> str:
        """A video operand, perhaps with a selector of a byte or half-word."""
        if not value.startswith("%r") or self.rng.random() < 0.5 or self.form.row.opcode[-1] in "24":
            return value
        return value + self.rng.choice([".b0", ".b1", ".b2", ".b3", ".h0", ".h1"])

    def address(self) -> str:
        """Memory of the thread's own, in the instruction's space, aligned to the access."""
        types = [t.bits // 8 for t in self.form.types] or [8]
        size = max(types[-1], 1) * self.form.vector
        if self.form.row.opcode in ("ldmatrix", "stmatrix"):
            base = "%own_shared" if "space" in self.form.slots else "%generic_shared"
            return f"[{base}+{self.rng.randrange(OWN // 16) * 16}]"
        place = self.rng.randrange(OWN // size) * size if size <= OWN else 0
        bases = _BASES[self.form.slots.get("space", "generic").split("::")[0]]
        return f"[{self.rng.choice(bases)}+{place}]"


_BASES = {
    "global": ["%own"],
    "shared": ["%own_shared"],
    "local": ["%own_local", "own_local"],
    "const": ["own_const", "%some_const"],
    "param": ["p_bytes"],
    "generic": ["%own", "%generic_shared", "%generic_local"],
}


def register(rng: random.Random, of: ScalarType) -> str:
    """A register of a pool."""
    letter, count, _ = POOLS[of]
    return f"%{letter}{rng.randrange(count)}"


F32 = (0x3F800000, 0x80000000, 0x00000001, 0x7F800000, 0x40490FDB, 0x33D6BF95, 0x7F7FFFFF, 0xC2C80000)
F64 = (0x3FF0000000000000, 0x8000000000000000, 1, 0x7FF0000000000000, 0x400921FB54442D18, 0x7FEFFFFFFFFFFFFF)


# --- operands that the table leaves open -------------------------------------------------------------


def _shuffle(o: _Operands, shape: tuple[OperandKind, ...]) -> list[str] | None:
    first = register(o.rng, T.B32)
    if o.rng.random() < 0.6:
        first += "|" + register(o.rng, T.PRED)
    lane = o.rng.choice([register(o.rng, T.B32), str(o.rng.randrange(32))])
    width = o.rng.choice([32, 32, 16, 8, 4, 2])
    control = ((32 - width) << 8) | (0 if o.form.slots["mode"] == "up" else 31)
    return [first, register(o.rng, T.B32), lane, str(control), "0xffffffff"]


def _in_mask(o: _Operands, shape: tuple[OperandKind, ...]) -> list[str] | None:
    """The last operand is the mask."""
    operands = [o.operand(kind) for kind in shape[:-1]]
    return None if None in operands else [*(x for x in operands if x is not None), MASK]


def _barrier(o: _Operands, shape: tuple[OperandKind, ...]) -> list[str] | None:
    if "warp" in o.form.slots:
        return [MASK]
    name = str(o.rng.randrange(16))
    if "red" not in o.form.slots:
        return [name]
    predicate = o.rng.choice(["", "!"]) + register(o.rng, T.PRED)
    return [register(o.rng, T.PRED if o.form.types[0] is T.PRED else T.B32), name, predicate]


def _moved(o: _Operands, shape: tuple[OperandKind, ...]) -> list[str] | None:
    """``mov`` between a register and the vector of its parts, and of special registers."""
    of = o.form.types[0]
    if o.form.vector > 1 or (of is T.PRED):
        return None if o.form.vector == 1 else _vector_move(o)
    parts = {16: [T.B8], 32: [T.B16], 64: [T.B32, T.B16], 128: [T.B64, T.B32]}.get(of.bits, [])
    if of.kind == "b" and parts and o.rng.random() < 0.6:
        part = o.rng.choice(parts)
        letter, count, _ = POOLS[part]
        n = of.bits // part.bits
        if n <= count:
            whole = register(o.rng, next(t for t in POOLS if t.bits == of.bits))
            if o.rng.random() < 0.5:
                names = [f"%{letter}{i}" for i in o.rng.sample(range(count), n)]
                return ["{" + ", ".join(names) + "}", whole]
            return [whole, "{" + ", ".join(register(o.rng, part) for _ in range(n)) + "}"]
    if of is T.U32 and o.rng.random() < 0.5:
        return [register(o.rng, T.B32), "%" + o.rng.choice(SPECIAL)]
    return None


def _vector_move(o: _Operands) -> list[str] | None:
    of = o.form.types[0]
    pool = of if of in POOLS else next(t for t in POOLS if t.bits == of.bits)
    letter, count, _ = POOLS[pool]
    n = o.form.vector
    if n > count:
        return None
    names = [f"%{letter}{i}" for i in o.rng.sample(range(count), n)]
    return ["{" + ", ".join(names) + "}", "{" + ", ".join(register(o.rng, pool) for _ in range(n)) + "}"]


SPECIAL = ("tid.x", "ntid.x", "ctaid.x", "nctaid.x", "laneid", "lanemask_lt", "lanemask_ge", "lanemask_eq")


def _atomic(o: _Operands, shape: tuple[OperandKind, ...]) -> list[str] | None:
    """As the table has it, on the thread's own memory: whatever the operation, one order only."""
    return None if o.form.types[0].bits // 8 * o.form.vector <= OWN else []


_SPECIAL = {
    "shfl": _shuffle,
    "vote": _in_mask,
    "match": _in_mask,
    "redux": _in_mask,
    "elect": _in_mask,
    "bar": _barrier,
    "barrier": _barrier,
    "mov": _moved,
    "atom": _atomic,
    "red": _atomic,
}


# --- what is lowered --------------------------------------------------------------------------------


def all_rows() -> list[Row]:
    """The rows that are drawn from, in the table's order."""
    return [row for name in opcode_names() for row in rows(name) if drawn(row)]
