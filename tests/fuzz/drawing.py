"""Draws random programs: statements from the table, a few written by hand, and structures around them."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from programs import Call, If, Loop, Node, Program, Switch
from statements import ENTRY, OWN, UNIFORM, WHOLE, Statement, register, statement
from writing import MOST_THREADS, SUM_OPERATIONS

from zluda.ptx.instructions import Row
from zluda.ptx.types import ScalarType

T = ScalarType


def sum_statement(rng: random.Random) -> Statement:
    """An atomic whose order does not matter: each operation has a word of its own."""
    n = rng.randrange(len(SUM_OPERATIONS))
    op, of = SUM_OPERATIONS[n]
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
    largest: int = 120

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
