"""Random kernels over a thread's own memory: local arrays, structures by value, functions that change them.

A program is a list of steps over four 64-bit registers and an array of bytes. :meth:`Program.ptx` writes it;
:meth:`Program.expected` executes it in plain Python, a thread at a time, on a ``bytearray``.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

REGISTERS = 4
LOCAL = 96
"""Bytes of a thread's array."""
STRUCTURE = 40
"""Bytes of the structure that the kernel is given by value."""
OUTPUT = LOCAL + 8 * REGISTERS
"""Bytes a thread writes: its array, then its registers."""
FULL = (1 << 64) - 1


@dataclass
class Move:
    """A load or store of ``count`` elements; the place is fixed, or one that the thread's number picks."""

    loads: bool
    width: int
    count: int
    registers: list[int]
    signed: bool
    generic: bool
    fixed: int
    factor: int  # 0: the place is fixed

    def place(self, thread: int, size: int) -> int:
        step = self.width * self.count
        if not self.factor:
            return self.fixed // step * step
        return (thread * self.factor + self.fixed) % (size // step) * step


@dataclass
class Mix:
    """``registers[to] = registers[x] * factor + registers[y] + thread``."""

    to: int
    x: int
    y: int
    factor: int


@dataclass
class Read:
    """A load from the kernel's structure."""

    move: Move


@dataclass
class Call:
    """``size`` bytes from ``at`` go into a function by value, and what it returns comes back."""

    function: int
    at: int
    size: int
    register: int


@dataclass
class Choice:
    """For the threads that have a bit set."""

    bit: int
    steps: list[Step]


Step = Move | Mix | Read | Call | Choice


@dataclass
class Program:
    """The kernel's steps, and functions: (size of the structure, steps)."""

    steps: list[Step] = field(default_factory=list)
    functions: list[tuple[int, list[Step]]] = field(default_factory=list)

    # --- meaning ---------------------------------------------------------------------------------------

    def expected(self, thread: int, structure: bytes) -> bytes:
        memory, registers = bytearray(LOCAL), [thread + i for i in range(REGISTERS)]
        self._run(self.steps, thread, memory, registers, structure)
        return bytes(memory) + b"".join(r.to_bytes(8, "little") for r in registers)

    def _run(self, steps: list[Step], thread: int, memory: bytearray, r: list[int], structure: bytes) -> None:
        for step in steps:
            match step:
                case Mix(to, x, y, factor):
                    r[to] = (r[x] * factor + r[y] + thread) & FULL
                case Move():
                    self._move(step, thread, memory, r)
                case Read(move):
                    self._move(move, thread, bytearray(structure), r)
                case Choice(bit, inner):
                    if thread >> bit & 1:
                        self._run(inner, thread, memory, r, structure)
                case Call(function, at, size, register):
                    copy, own = bytearray(memory[at : at + size]), [r[register]] * REGISTERS
                    self._run(self.functions[function][1], thread, copy, own, b"")
                    memory[at : at + size] = copy

    def _move(self, move: Move, thread: int, memory: bytearray, r: list[int]) -> None:
        at = move.place(thread, len(memory))
        for register in move.registers:
            piece = slice(at, at + move.width)
            if move.loads:
                r[register] = int.from_bytes(memory[piece], "little", signed=move.signed) & FULL
            else:
                memory[piece] = (r[register] & ((1 << 8 * move.width) - 1)).to_bytes(move.width, "little")
            at += move.width

    # --- text ------------------------------------------------------------------------------------------

    def ptx(self) -> str:
        """The kernel ``k(structure, out)``."""
        writer = _Writer(self)
        functions = [writer.function(i, size, steps) for i, (size, steps) in enumerate(self.functions)]
        body = list(writer.steps(self.steps, "depot", LOCAL))
        copies = [
            f"ld.local.b64 %rd1, [depot+{i}]; st.global.b64 [%out+{i}], %rd1;" for i in range(0, LOCAL, 8)
        ]
        copies += [f"st.global.b64 [%out+{LOCAL + 8 * i}], %v{i};" for i in range(REGISTERS)]
        zero = [f"st.local.b64 [depot+{i}], 0;" for i in range(0, LOCAL, 8)]
        return "\n".join(
            [
                ".version 8.0\n.target sm_90\n.address_size 64",
                *functions,
                f".visible .entry k(.param .align 8 .b8 k_s[{STRUCTURE}], .param .u64 k_out) {{",
                f".local .align 8 .b8 depot[{LOCAL}];",
                _DECLARATIONS,
                ".reg .b64 %out; mov.u32 %tid, %tid.x; cvt.u64.u32 %thread, %tid;",
                f"ld.param.u64 %out, [k_out]; mad.lo.u64 %out, %thread, {OUTPUT}, %out;",
                *(f"add.u64 %v{i}, %thread, {i};" for i in range(REGISTERS)),
                "mov.u64 %base, depot; cvta.local.u64 %generic, %base;",
                *zero,
                *body,
                *copies,
                "ret; }",
            ]
        )


_DECLARATIONS = (
    f".reg .b64 %v<{REGISTERS}>, %rd<9>, %base, %generic, %thread; .reg .b32 %tid, %r<9>; .reg .pred %p;"
)


class _Writer:
    def __init__(self, program: Program) -> None:
        self.program, self.labels = program, 0

    def function(self, number: int, size: int, steps: list[Step]) -> str:
        words = range(0, size, 8)
        return "\n".join(
            [
                f".func (.param .align 8 .b8 back[{size}]) f{number}",
                f"(.param .align 8 .b8 s[{size}], .param .b64 n) {{",
                _DECLARATIONS,
                "mov.u32 %tid, %tid.x; cvt.u64.u32 %thread, %tid;",
                *(f"ld.param.b64 %v{i}, [n];" for i in range(REGISTERS)),
                "mov.b64 %base, s; cvta.local.u64 %generic, %base;",
                *self.steps(steps, "s", size),
                *(f"ld.param.b64 %rd1, [s+{i}]; st.param.b64 [back+{i}], %rd1;" for i in words),
                "ret; }",
            ]
        )

    def steps(self, steps: list[Step], name: str, size: int) -> Iterator[str]:
        for step in steps:
            match step:
                case Mix(to, x, y, factor):
                    yield f"mad.lo.u64 %v{to}, %v{x}, {factor}, %v{y}; add.u64 %v{to}, %v{to}, %thread;"
                case Move():
                    space = "" if step.generic else ".local"
                    yield from self.move(step, space, "%generic" if step.generic else "%base", size)
                case Read(move):
                    yield "mov.b64 %rd8, k_s;"
                    yield from self.move(move, ".param", "%rd8", STRUCTURE)
                case Choice(bit, inner):
                    self.labels += 1
                    label = f"past_{self.labels}"
                    yield f"and.b32 %r8, %tid, {1 << bit}; setp.eq.u32 %p, %r8, 0;\n@%p bra {label};"
                    yield from self.steps(inner, name, size)
                    yield f"{label}:"
                case Call():
                    yield from self.call(step)

    def move(self, move: Move, space: str, base: str, size: int) -> Iterator[str]:
        step = move.width * move.count
        if move.factor:
            yield f"mad.lo.u32 %r1, %tid, {move.factor}, {move.fixed}; rem.u32 %r1, %r1, {size // step};"
            yield f"mul.wide.u32 %rd2, %r1, {step}; add.u64 %rd3, {base}, %rd2;"
            address = "[%rd3]"
        else:
            address = f"[{base}+{move.fixed // step * step}]"
        vector = f".v{move.count}" if move.count > 1 else ""
        names = ", ".join(f"%v{r}" for r in move.registers)
        values = f"{{{names}}}" if move.count > 1 else names
        kind = f"{'s' if move.signed and move.loads else 'u'}{8 * move.width}"
        if move.loads:
            yield f"ld{space}{vector}.{kind} {values}, {address};"
        else:
            yield f"st{space}{vector}.{kind} {address}, {values};"

    def call(self, call: Call) -> Iterator[str]:
        words = range(0, call.size, 8)
        yield f"{{ .param .align 8 .b8 a[{call.size}]; .param .b64 n; .param .align 8 .b8 b[{call.size}];"
        for i in words:
            yield f"ld.local.b64 %rd1, [depot+{call.at + i}]; st.param.b64 [a+{i}], %rd1;"
        yield f"st.param.b64 [n], %v{call.register}; call (b), f{call.function}, (a, n);"
        for i in words:
            yield f"ld.param.b64 %rd1, [b+{i}]; st.local.b64 [depot+{call.at + i}], %rd1;"
        yield "}"


def random_program(seed: int) -> Program:
    """A program of some twenty steps."""
    rng = random.Random(seed)
    program = Program()
    for _ in range(rng.randint(0, 2)):
        program.functions.append(
            (8 * rng.randint(1, 5), [_step(rng, None, 1) for _ in range(rng.randint(2, 6))])
        )
    program.steps = [_step(rng, program, 0) for _ in range(rng.randint(6, 20))]
    return program


def _step(rng: random.Random, program: Program | None, depth: int) -> Step:
    kinds = ["move"] * 6 + ["mix"] * 3 + ["choice"] * (depth < 2)
    if program is not None:
        kinds += ["read"] * 2 + ["call"] * (2 * bool(program.functions))
    match rng.choice(kinds):
        case "mix":
            to, x, y = (rng.randrange(REGISTERS) for _ in range(3))
            return Mix(to, x, y, rng.randint(1, 1 << 40))
        case "choice":
            return Choice(
                rng.randint(0, 5), [_step(rng, program, depth + 1) for _ in range(rng.randint(1, 4))]
            )
        case "read":
            return Read(_move(rng, STRUCTURE, loads=True))
        case "call":
            assert program is not None
            function = rng.randrange(len(program.functions))
            size = program.functions[function][0]
            return Call(function, 8 * rng.randint(0, (LOCAL - size) // 8), size, rng.randrange(REGISTERS))
    return _move(rng, LOCAL if program is not None else 8, loads=rng.random() < 0.4)


def _move(rng: random.Random, size: int, *, loads: bool) -> Move:
    width = rng.choice([1, 1, 2, 2, 4, 8])
    count = rng.choice([n for n in (1, 1, 2, 4) if n * width <= 8])
    return Move(
        loads=loads,
        width=width,
        count=count,
        registers=rng.sample(range(REGISTERS), count),
        signed=rng.random() < 0.5,
        generic=rng.random() < 0.4,
        fixed=rng.randrange(size // (width * count)) * width * count,
        factor=rng.choice([0, 0, rng.randint(1, 7)]),
    )
