"""Random kernels as trees, so that one can be cut down: any part left out, it is still a kernel.

Every register has a value before the first statement and is written out after the last. Statements keep to
memory of the thread's own; what threads tell each other goes between barriers, through warps' instructions
under a mask of the lanes that are there, or into sums whose order does not matter.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from statements import ENTRY, MASK, OWN, POOLS, UNIFORM, WHOLE, Statement, register, statement
from zluda.ptx.instructions import Row
from zluda.ptx.types import ScalarType

T = ScalarType


@dataclass(frozen=True)
class If:
    """``then`` for the threads whose predicate holds, ``otherwise`` for the others; ``guard`` is the text of
    a ``setp`` into ``%c``. ``uniform``: the whole block goes one way."""

    guard: str
    then: tuple[Node, ...]
    otherwise: tuple[Node, ...] = ()
    uniform: bool = False


@dataclass(frozen=True)
class Loop:
    """The body at most ``rounds`` times; with ``until``, a thread leaves when that holds (``%c``)."""

    rounds: int
    body: tuple[Node, ...]
    until: str = ""


@dataclass(frozen=True)
class Switch:
    """``brx.idx`` on two bits of a register."""

    index: str
    cases: tuple[tuple[Node, ...], ...]


@dataclass(frozen=True)
class Call:
    """A function of a value and a word, and where its result goes."""

    function: int
    word: str
    wide: str
    result: str


Node = Statement | If | Loop | Switch | Call


@dataclass(frozen=True)
class Program:
    """A kernel with functions, and how it is launched."""

    body: tuple[Node, ...]
    functions: tuple[tuple[Node, ...], ...] = ()
    threads: int = 64
    blocks: int = 1
    seed: int = 0

    def ptx(self) -> str:
        """The module: kernel ``k(in, out, own, sums, uniform, bytes)``."""
        return _Writer(self).module()

    def alone(self) -> str:
        """A module with nothing but the body, for asking whether it is lowered."""
        return _Writer(self).alone()

    def size(self) -> int:
        """Statements and structures."""
        return sum(1 for _ in walk(self.body)) + sum(1 for f in self.functions for _ in walk(f))


def walk(nodes: tuple[Node, ...]) -> Iterator[Node]:
    """All nodes, parents first."""
    for node in nodes:
        yield node
        for part in children(node):
            yield from walk(part)


def children(node: Node) -> tuple[tuple[Node, ...], ...]:
    """The node's bodies."""
    match node:
        case If():
            return (node.then, node.otherwise)
        case Loop():
            return (node.body,)
        case Switch():
            return node.cases
    return ()


def with_children(node: Node, parts: tuple[tuple[Node, ...], ...]) -> Node:
    """The node with other bodies."""
    match node:
        case If():
            return replace(node, then=parts[0], otherwise=parts[1])
        case Loop():
            return replace(node, body=parts[0])
        case Switch():
            return replace(node, cases=parts)
    return node


# --- how memory lies -------------------------------------------------------------------------------------

REGISTERS = [
    (f"%{letter}{i}", of, size)
    for of, (letter, count, size) in sorted(POOLS.items(), key=lambda item: -item[1][2])
    for i in range(count)
]
"""Name, type and bytes of each register that is read in and written out."""
OFFSETS = [sum(size for *_, size in REGISTERS[:i]) for i in range(len(REGISTERS) + 1)]
STRIDE = -(-OFFSETS[-1] // 16) * 16
"""Bytes of a thread's registers in ``in`` and ``out``."""
MOST_THREADS = 96

_SUMS = [
    (op, of)
    for of in ("u32", "s32", "u64", "s64")
    for op in ("add", "min", "max")
    if (op, of) not in (("add", "s32"), ("add", "s64"))
] + [(op, of) for of in ("b32", "b64") for op in ("and", "or", "xor")]
_SUMS += [("inc", "u32")]
SUMS = 8 * len(_SUMS)
"""Bytes of the sums, in global memory and in shared memory: one word for each operation."""


def sum_statement(rng: random.Random) -> Statement:
    """An atomic whose order does not matter: each operation has a word of its own."""
    n = rng.randrange(len(_SUMS))
    op, of = _SUMS[n]
    wide = of.endswith("64")
    value = "1000" if op == "inc" else register(rng, T.B64 if wide else T.B32)
    base, space = rng.choice([("%sums", ".global"), ("shared_sums", ".shared"), ("%sums", "")])
    opcode, sink = rng.choice([("red", ""), ("atom", "_, ")])
    return Statement(f"{opcode}{space}.{op}.{of} {sink}[{base}+{8 * n}], {value};")


def _st(rng: random.Random) -> Statement:
    """What another thread of the block left in its memory, between two barriers."""
    space, base = rng.choice([("shared", "%x32"), ("global", "%x64")])
    of, pool = rng.choice([("b32", T.B32), ("u8", T.B16), ("s16", T.B32), ("b64", T.B64), ("f32", T.F32)])
    size = 1 if of == "u8" else 2 if of == "s16" else 4 if of in ("b32", "f32") else 8
    place = rng.randrange(OWN // size) * size
    lines = [f"mad.lo.u32 %x, %tid, {rng.randint(1, 9)}, {rng.randrange(64)};", "rem.u32 %x, %x, %threads;"]
    if space == "shared":
        lines += [f"mov.u32 %x32, shared; mad.lo.u32 %x32, %x, {OWN}, %x32;"]
    else:
        lines += [
            f"sub.u32 %x, %x, %tid; mul.wide.s32 %x64, %x, {OWN}; add.s64 %x64, %own, %x64;",
        ]
    load = f"ld.{space}.{of} {register(rng, pool)}, [{base}+{place}];"
    text = " ".join(["{ .reg .b32 %x, %x32; .reg .b64 %x64;", "bar.sync 0;", *lines, load, "bar.sync 0; }"])
    return Statement(text, UNIFORM)


def _copy(rng: random.Random) -> Statement:
    """``cp.async`` and its completion."""
    size = rng.choice([4, 8, 16])
    to, source = (rng.randrange(OWN // size) * size for _ in range(2))
    cop = "cg" if size == 16 and rng.random() < 0.5 else "ca"
    short = f", {rng.randrange(size + 1)}" if rng.random() < 0.3 else ""
    wait = rng.choice(["cp.async.wait_all;", "cp.async.commit_group; cp.async.wait_group 0;"])
    return Statement(
        f"cp.async.{cop}.shared.global [%own_shared+{to}], [%own+{source}], {size}{short}; {wait}"
    )


def _carries(rng: random.Random) -> Statement:
    """Sums and differences of several words."""
    op, of, pool = rng.choice([("add", "u32", T.B32), ("sub", "u32", T.B32), ("add", "u64", T.B64)])

    def step(name: str) -> str:
        return f"{name}.{of} {register(rng, pool)}, {register(rng, pool)}, {register(rng, pool)};"

    return Statement(
        " ".join([step(f"{op}.cc"), *(step(f"{op}c.cc") for _ in range(rng.randint(0, 3))), step(f"{op}c")])
    )


def _indexed(rng: random.Random) -> Statement:
    """A load or store at a place that the thread's values pick, in local, constant or parameter memory."""
    space, base = rng.choice([("local", "%own_local"), ("const", "%some_const"), ("global", "%own")])
    of, pool, size = rng.choice([("b32", T.B32, 4), ("u8", T.B16, 1), ("f64", T.F64, 8), ("b64", T.B64, 8)])
    lines = f"and.b32 %x, {register(rng, T.B32)}, {OWN // size - 1};"
    lines += f"mul.wide.u32 %x64, %x, {size}; add.s64 %x64, {base}, %x64;"
    value = register(rng, pool)
    if space == "const" or rng.random() < 0.5:
        access = f"ld.{space}.{of} {value}, [%x64];"
    else:
        access = f"st.{space}.{of} [%x64], {value};"
    return Statement(f"{{ .reg .b32 %x; .reg .b64 %x64; {lines} {access} }}")


# --- drawing ---------------------------------------------------------------------------------------------


@dataclass
class Drawer:
    """Draws programs from rows; ``accepts`` says of a statement whether it may be used."""

    rows: list[Row]
    accepts: Callable[[Statement], bool] = lambda statement: True
    largest: int = 40

    def program(self, seed: int) -> Program:
        """The program of a seed."""
        rng = random.Random(seed)
        self.by_opcode: dict[str, list[Row]] = {}
        for row in self.rows:
            self.by_opcode.setdefault(row.opcode, []).append(row)
        threads = rng.choice([32, 64, 64, 50, MOST_THREADS])
        self.left = rng.randint(8, self.largest)
        where = {ENTRY, UNIFORM} | ({WHOLE} if threads % 32 == 0 else set())
        functions = tuple(self.nodes(rng, set(), 2, 0) for _ in range(rng.choice([0, 0, 1, 2])))
        self.functions = len(functions)
        body: tuple[Node, ...] = ()
        while self.left > 0:
            body += self.nodes(rng, where, 0, len(functions))
        return Program(body, functions, threads, rng.choice([1, 1, 2]), seed)

    def nodes(self, rng: random.Random, where: set[str], depth: int, functions: int) -> tuple[Node, ...]:
        count = rng.randint(1, 6 - depth)
        self.left -= count
        return tuple(self.node(rng, where, depth, functions) for _ in range(count))

    def node(self, rng: random.Random, where: set[str], depth: int, functions: int) -> Node:
        form = rng.random()
        if depth < 3 and form < 0.18:
            return self.structure(rng, where, depth, functions)
        if functions and form < 0.22:
            return Call(rng.randrange(functions), *(register(rng, of) for of in (T.B32, T.B64, T.B32)))
        if form < 0.34:
            made = rng.choice(_HAND)(rng)
            return made if not made.where or made.where in where else sum_statement(rng)
        return self.drawn(rng, where)

    def drawn(self, rng: random.Random, where: set[str]) -> Statement:
        """A statement of a random row that is accepted here. Opcodes are equally likely, then their rows."""
        while True:
            row = rng.choice(self.by_opcode[rng.choice(list(self.by_opcode))])
            made = statement(rng, row)
            if made is not None and (not made.where or made.where in where) and self.accepts(made):
                return made

    def structure(self, rng: random.Random, where: set[str], depth: int, functions: int) -> Node:
        kind = rng.random()
        if kind < 0.2 and UNIFORM in where:
            guard = f"setp.{rng.choice(['lt', 'ge', 'eq'])}.u32 %c, %uniform, {rng.randrange(8)};"
            return If(guard, self.nodes(rng, where, depth + 1, functions), uniform=True)
        if kind < 0.35:
            whole = rng.random() < 0.5
            inner = where if whole else where & {ENTRY}
            until = "" if whole else self.condition(rng)
            return Loop(rng.randint(1, 4), self.nodes(rng, inner, depth + 1, functions), until)
        if kind < 0.45:
            cases = tuple(self.nodes(rng, where & {ENTRY}, depth + 2, functions) for _ in range(4))
            return Switch(register(rng, T.B32), cases)
        then = self.nodes(rng, where & {ENTRY}, depth + 1, functions)
        otherwise = self.nodes(rng, where & {ENTRY}, depth + 1, functions) if rng.random() < 0.5 else ()
        return If(self.condition(rng), then, otherwise)

    def condition(self, rng: random.Random) -> str:
        op = rng.choice(["lt", "ge", "eq", "ne"])
        return rng.choice(
            [
                f"setp.{op}.u32 %c, %tid, {rng.randrange(64)};",
                f"setp.{op}.s32 %c, {register(rng, T.B32)}, {register(rng, T.B32)};",
                f"setp.{op}.f32 %c, {register(rng, T.F32)}, {register(rng, T.F32)};",
                f"mov.pred %c, {register(rng, T.PRED)};",
            ]
        )


_HAND: list[Callable[[random.Random], Statement]] = [
    sum_statement,
    sum_statement,
    _st,
    _copy,
    _carries,
    _indexed,
]


# --- writing ---------------------------------------------------------------------------------------------

_DECLARED = " ".join(f".reg .{of.spelling} %{letter}<{count}>;" for of, (letter, count, _) in POOLS.items())
_COMMON = (
    ".reg .b64 %own, %sums, %generic_shared, %generic_local, %own_local, %some_const;"
    " .reg .b32 %own_shared, %uniform, %threads, %tid, %m; .reg .pred %c;"
    f" .local .align 64 .b8 own_local[{OWN}];"
)
_PARAMETERS = (
    f".param .u64 p_in, .param .u64 p_out, .param .u64 p_own, .param .u64 p_sums, .param .u32 p_uniform, "
    f".param .align 64 .b8 p_bytes[{OWN}]"
)


class _Writer:
    def __init__(self, program: Program) -> None:
        self.program, self.fresh = program, 0
        self.declared: list[str] = []

    def module(self) -> str:
        functions = [self.function(n, nodes) for n, nodes in enumerate(self.program.functions)]
        return "\n".join([*_variables(), *functions, self.kernel()])

    def alone(self) -> str:
        """The body without the registers' values around it: enough to see whether it is lowered."""
        self.declared = [_DECLARED, _COMMON]
        return "\n".join(
            [*_variables(), f".visible .entry k({_PARAMETERS}) {{", _DECLARED, _COMMON]
            + self.nodes(self.program.body, "%m")
            + ["ret; }"]
        )

    def function(self, number: int, nodes: tuple[Node, ...]) -> str:
        """A function with its own registers, made of what it is given."""
        given = (
            "own_shared:b32 m:b32 tid:b32 threads:b32 uniform:b32 word:b32 own:b64 sums:b64 wide:b64".split()
        )
        names = [item.split(":") for item in given]
        parameters = ", ".join(f".param .{of} g{number}_{name}" for name, of in names)
        self.declared = [_DECLARED, _COMMON, ".reg .b32 %word; .reg .b64 %wide;"]
        body = self.nodes(nodes, "%m")
        return "\n".join(
            [
                f".func (.param .b32 back{number}) f{number} ({parameters}) {{",
                *self.declared,
                *(f"ld.param.{of} %{name}, [g{number}_{name}];" for name, of in names),
                *_addresses(),
                *_mixed(),
                *body,
                "xor.b32 %r0, %r0, %r1; xor.b32 %r0, %r0, %r2;",
                f"st.param.b32 [back{number}], %r0; ret; }}",
            ]
        )

    def kernel(self) -> str:
        self.declared = [
            _DECLARED,
            _COMMON,
            ".reg .b64 %in, %out; .reg .b32 %i, %block; .reg .b16 %w; .reg .pred %first;",
        ]
        body = self.nodes(self.program.body, "%m")
        zeros = [f"st.shared.b64 [shared_sums+{i}], 0;" for i in range(0, SUMS, 8)]
        sums = [
            f"ld.shared.b64 %l0, [shared_sums+{i}]; @%first st.global.b64 [%sums+{SUMS + i}], %l0;"
            for i in range(0, SUMS, 8)
        ]
        return "\n".join(
            [
                f".visible .entry k({_PARAMETERS}) {{",
                *self.declared,
                "ld.param.u64 %in, [p_in]; ld.param.u64 %out, [p_out]; ld.param.u64 %own, [p_own];",
                "ld.param.u64 %sums, [p_sums]; ld.param.u32 %uniform, [p_uniform];",
                "mov.u32 %tid, %tid.x; mov.u32 %threads, %ntid.x; mov.u32 %block, %ctaid.x;",
                "mad.lo.u32 %i, %block, %threads, %tid;",
                f"mad.wide.u32 %in, %i, {STRIDE}, %in; mad.wide.u32 %out, %i, {STRIDE}, %out;",
                f"mad.wide.u32 %own, %i, {OWN}, %own; mad.wide.u32 %sums, %block, {2 * SUMS}, %sums;",
                f"mov.u32 %own_shared, shared; mad.lo.u32 %own_shared, %tid, {OWN}, %own_shared;",
                "and.b32 %m, %tid, -32; sub.u32 %m, %threads, %m; bmsk.clamp.b32 %m, 0, %m;",
                "setp.eq.u32 %first, %tid, 0;",
                *_addresses(),
                *(
                    f"ld.global.b64 %l0, [%own+{i}]; st.shared.b64 [%own_shared+{i}], %l0;"
                    for i in range(0, OWN, 8)
                ),
                *zeros,
                "bar.sync 0;",
                *(_read(*item, at) for item, at in zip(REGISTERS, OFFSETS, strict=False)),
                *body,
                *(_write(*item, at) for item, at in zip(REGISTERS, OFFSETS, strict=False)),
                *_remembered(),
                "bar.sync 0;",
                *sums,
                "ret; }",
            ]
        )

    def nodes(self, nodes: tuple[Node, ...], mask: str) -> list[str]:
        return [line for node in nodes for line in self.node(node, mask)]

    def node(self, node: Node, mask: str) -> list[str]:
        match node:
            case Statement():
                return [node.text.replace(MASK, mask)]
            case If():
                return self.branch(node, mask)
            case Loop():
                return self.loop(node, mask)
            case Switch():
                return self.switch(node, mask)
            case Call():
                return self.call(node, mask)

    def name(self) -> int:
        self.fresh += 1
        return self.fresh

    def branch(self, node: If, mask: str) -> list[str]:
        n = self.name()
        if node.uniform:
            return [node.guard, f"@!%c bra.uni E{n};", *self.nodes(node.then, mask), f"E{n}:"]
        self.declared.append(f".reg .b32 %m{n}, %n{n};")
        return [
            node.guard,
            f"vote.sync.ballot.b32 %m{n}, %c, {mask}; xor.b32 %n{n}, %m{n}, {mask};",
            f"@!%c bra N{n};",
            *self.nodes(node.then, f"%m{n}"),
            f"bra E{n};",
            f"N{n}:",
            *self.nodes(node.otherwise, f"%n{n}"),
            f"E{n}:",
        ]

    def loop(self, node: Loop, mask: str) -> list[str]:
        n = self.name()
        self.declared.append(f".reg .b32 %m{n}, %n{n}; .reg .pred %c{n};")
        inner = f"%m{n}" if node.until else mask
        leave = [node.until, f"mov.pred %c{n}, %c;"] if node.until else [f"setp.ne.u32 %c{n}, %n{n}, %n{n};"]
        again = [f"setp.lt.u32 %c, %n{n}, {node.rounds}; not.pred %c{n}, %c{n}; and.pred %c{n}, %c{n}, %c;"]
        if node.until:
            again.append(f"vote.sync.ballot.b32 %m{n}, %c{n}, %m{n};")
        return [
            f"mov.b32 %n{n}, 0; mov.b32 %m{n}, {mask};",
            f"L{n}:",
            *self.nodes(node.body, inner),
            f"add.u32 %n{n}, %n{n}, 1;",
            *leave,
            *again,
            f"@%c{n} bra L{n};",
        ]

    def switch(self, node: Switch, mask: str) -> list[str]:
        n = self.name()
        names = [f"S{n}_{i}" for i in range(len(node.cases))]
        self.declared.append(f".reg .b32 %i{n}, " + ", ".join(f"%m{n}_{i}" for i in range(len(names))) + ";")
        self.declared.append(f"T{n}: .branchtargets {', '.join(names)};")
        lines = [f"and.b32 %i{n}, {node.index}, {len(names) - 1};"]
        for i in range(len(names)):
            lines.append(f"setp.eq.u32 %c, %i{n}, {i}; vote.sync.ballot.b32 %m{n}_{i}, %c, {mask};")
        lines.append(f"brx.idx %i{n}, T{n};")
        for i, (name, case) in enumerate(zip(names, node.cases, strict=True)):
            lines += [f"{name}:", *self.nodes(case, f"%m{n}_{i}"), f"bra E{n};"]
        return [*lines, f"E{n}:"]

    def call(self, node: Call, mask: str) -> list[str]:
        values = ["%own_shared", mask, "%tid", "%threads", "%uniform", node.word, "%own", "%sums", node.wide]
        types = ["b32"] * 6 + ["b64"] * 3
        lines = ["{", *(f".param .{of} a{i};" for i, of in enumerate(types)), ".param .b32 r;"]
        lines += [f"st.param.{of} [a{i}], {v};" for i, (of, v) in enumerate(zip(types, values, strict=True))]
        arguments = ", ".join(f"a{i}" for i in range(len(types)))
        return [
            *lines,
            f"call (r), f{node.function}, ({arguments});",
            f"ld.param.b32 {node.result}, [r];",
            "}",
        ]


def _variables() -> list[str]:
    constant = ", ".join(str(i * 37 & 255) for i in range(OWN))
    return [
        ".version 9.0\n.target sm_100a\n.address_size 64",
        f".const .align 64 .b8 own_const[{OWN}] = {{{constant}}};",
        f".shared .align 64 .b8 shared[{OWN * MOST_THREADS}];",
        f".shared .align 8 .b8 shared_sums[{SUMS}];",
    ]


def _addresses() -> list[str]:
    """Addresses in other forms, and local memory that holds something."""
    return [
        "mov.u64 %own_local, own_local; mov.u64 %some_const, own_const;",
        "cvta.local.u64 %generic_local, %own_local;",
        "cvt.u64.u32 %generic_shared, %own_shared; cvta.shared.u64 %generic_shared, %generic_shared;",
        *(f"st.local.b64 [own_local+{i}], {(i + 1) * 0x0123456789}; " for i in range(0, OWN, 8)),
    ]


def _read(name: str, of: ScalarType, size: int, at: int) -> str:
    if of is T.PRED:
        return f"ld.global.u8 %w, [%in+{at}]; and.b16 %w, %w, 1; setp.ne.u16 {name}, %w, 0;"
    return f"ld.global.b{8 * size} {name}, [%in+{at}];"


def _write(name: str, of: ScalarType, size: int, at: int) -> str:
    if of is T.PRED:
        return f"selp.u16 %w, 1, 0, {name}; st.global.u8 [%out+{at}], %w;"
    return f"st.global.b{8 * size} [%out+{at}], {name};"


def _remembered() -> list[str]:
    """What is left in local and shared memory goes out through the thread's own global memory, mixed."""
    lines = []
    for i in range(0, OWN, 8):
        lines += [
            f"ld.local.b64 %l0, [own_local+{i}]; ld.shared.b64 %l1, [%own_shared+{i}];",
            f"ld.global.b64 %l2, [%own+{i}]; mul.lo.u64 %l1, %l1, 0x9E3779B1; add.u64 %l0, %l0, %l1;",
            f"mul.lo.u64 %l0, %l0, 0x85EBCA77; add.u64 %l0, %l0, %l2; st.global.b64 [%own+{i}], %l0;",
        ]
    return lines


def _mixed() -> list[str]:
    """Values for a function's registers, from the two that it is given."""
    lines = []
    for number, (name, of, size) in enumerate(REGISTERS):
        match of:
            case T.PRED:
                lines.append(
                    f"{{ .reg .b32 %x; and.b32 %x, %word, {1 << number % 32}; setp.ne.u32 {name}, %x, 0; }}"
                )
            case T.B32 | T.F32:
                lines.append(
                    f"{{ .reg .b32 %x; mad.lo.u32 %x, %word, {2 * number + 1}, {number}; mov.b32 {name}, %x; }}"
                )
            case T.B64 | T.F64:
                lines.append(
                    f"{{ .reg .b64 %x; mad.lo.u64 %x, %wide, {2 * number + 1}, {number}; mov.b64 {name}, %x; }}"
                )
            case T.B128:
                lines.append(f"mov.b128 {name}, {{%wide, %wide}};")
            case _:
                lines.append(f"cvt.u{8 * size}.u32 {name}, %word;")
    return lines
