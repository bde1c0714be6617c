"""Random kernels for contraction: products and sums in straight code, under branches and in loops.

``kernel(seed)`` is the same text for a seed for ever: what an H200 computed of it is kept by seed
(``data/h200_random_kernels.json.gz``). So only ``random.Random.random`` is used, whose sequence Python
guarantees. Each thread reads INPUTS words (and walks on from there in some loops) and writes OUTPUTS results.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from typing import TypeVar

import numpy

THREADS, INPUTS, OUTPUTS = 32, 6, 9
ROUNDS = 5
"""What kernels get for a number of rounds that they do not know."""
WALK = 128
"""Words behind the last thread's inputs that loops may walk through."""
HEAD = ".version 8.0\n.target sm_90\n.address_size 64\n"
_CONSTANTS = (3.14159, 2.0, 0.5, -1.0, 0.1, 4.0, 0.25, 1.7)
_Choice = TypeVar("_Choice")


def kernel(seed: int) -> str:
    """PTX of the kernel ``k{seed}(in, out, n, p0 … p5)``, without a module's head."""
    return _Kernel(seed).text()


def element_type(seed: int) -> str:
    """``"f32"``, ``"ftz.f32"`` or ``"f64"``: what the kernel computes with."""
    return ("f32", "f32", "f32", "f32", "f32", "f32", "ftz.f32", "f64")[seed % 8]


def numpy_type(seed: int) -> type[numpy.floating]:
    """The same as numpy's."""
    return numpy.float64 if element_type(seed) == "f64" else numpy.float32


def inputs(seed: int) -> numpy.ndarray:
    """What the threads of a kernel read: THREADS × INPUTS values and WALK more, 2^-10 to 1.25 in size."""
    pick = random.Random(~seed)
    values = []
    for i in range(THREADS * INPUTS + WALK):
        scale = (1.25, 1.0, 0.75, 0.5, 0.25, 0.06, 0.01, 0.004)[i // INPUTS % 8]
        values.append((0.4 + 0.6 * pick.random()) * scale * (-1.0 if pick.random() < 0.5 else 1.0))
    return numpy.array(values, dtype=numpy_type(seed))


def parameters(seed: int) -> list[numpy.floating]:
    """The kernel's floating parameters."""
    pick = random.Random(seed + 0.5)
    return [numpy_type(seed)(1.6 * pick.random() - 0.8) for _ in range(INPUTS)]


class _Kernel:
    def __init__(self, seed: int) -> None:
        self.seed, self.source = seed, random.Random(seed)
        self.ftz = ".ftz" if element_type(seed) == "ftz.f32" else ""
        self.type = "f64" if element_type(seed) == "f64" else "f32"
        self.size = 8 if self.type == "f64" else 4
        self.lines: list[str] = []
        self.labels = self.temporaries = self.level = 0
        self.variables = [f"%v{i}" for i in range(INPUTS)]
        self.branching = self.pick((0.0, 0.15, 0.3, 0.45))
        self.looping = self.pick((0.0, 0.15, 0.3, 0.45))
        self.values = list(self.variables)
        self.products: list[str] = []
        """What sums shall read: products of the same block."""

    # --- choices ---------------------------------------------------------------------------------------

    def chance(self, probability: float) -> bool:
        return self.source.random() < probability

    def pick(self, choices: Sequence[_Choice]) -> _Choice:
        return choices[int(self.source.random() * len(choices))]

    def between(self, low: int, high: int) -> int:
        return low + int(self.source.random() * (high - low + 1))

    # --- the body --------------------------------------------------------------------------------------

    def text(self) -> str:
        from_parameters = self.pick((0.0, 0.0, 0.0, 0.5, 1.0))
        for i, variable in enumerate(self.variables):
            if self.chance(from_parameters):
                self.put(f"ld.param.{self.type} {variable}, [p{i}]")
            else:
                self.put(f"ld.global.{self.type} {variable}, [%in+{self.size * i}]")
        self.block(self.between(1, 4), 0)
        for i, value in enumerate((*self.variables, *(self.pick(self.values) for _ in range(3)))):
            self.put(f"st.global.{self.type} [%out+{self.size * i}], {value}")
        names = ", ".join(f".param .{self.type} p{i}" for i in range(INPUTS))
        body = "\n".join(self.lines)
        return (
            f".visible .entry k{self.seed}(.param .u64 a, .param .u64 b, .param .u32 c, {names})\n{{\n"
            f".reg .{self.type} %v<{INPUTS}>, %t<{self.temporaries + 1}>;\n.reg .u32 %n, %i<3>, %x;\n"
            f".reg .u64 %in, %out, %w<3>, %y;\n.reg .pred %p, %q;\n"
            "ld.param.u64 %in, [a];\nld.param.u64 %out, [b];\nld.param.u32 %n, [c];\nmov.u32 %x, %tid.x;\n"
            f"mul.wide.u32 %y, %x, {self.size * INPUTS};\nadd.u64 %in, %in, %y;\n"
            f"mul.wide.u32 %y, %x, {self.size * OUTPUTS};\nadd.u64 %out, %out, %y;\n{body}\nret;\n}}\n"
        )

    def put(self, line: str) -> None:
        self.lines.append(line + ";")

    def block(self, statements: int, depth: int) -> None:
        for _ in range(statements):
            kind = self.source.random()
            if depth < 2 and kind < self.branching:
                self.branch(depth)
            elif self.level < 2 and depth < 3 and kind < self.branching + self.looping:
                self.loop(depth)
            else:
                self.arithmetic(depth)

    def arithmetic(self, depth: int) -> None:
        if self.chance(0.5):
            self.products = []
        for _ in range(self.between(2, 7)):
            assigns = self.chance(0.55 if self.level else 0.45)
            target = self.pick(self.variables) if assigns else self.temporary()
            self.operation(target)
            if not assigns and (depth == 0 or self.chance(0.5)):
                self.values.append(target)

    def temporary(self) -> str:
        self.temporaries += 1
        return f"%t{self.temporaries}"

    def value(self) -> str:
        recent = self.values[-4:]
        return self.pick(recent) if self.chance(0.4) else self.pick(self.values)

    def constant(self) -> str:
        value = self.pick(_CONSTANTS)
        code, digits, prefix = (">d", 16, "0d") if self.type == "f64" else (">f", 8, "0f")
        return f"{prefix}{struct.pack(code, value).hex().upper():0>{digits}}"

    def operation(self, target: str) -> None:
        kind, x, y, z = self.source.random(), self.value(), self.value(), self.value()
        if self.chance(0.12):
            y = self.constant()
        form = f"{self.ftz}.{self.type}"
        if 0.42 <= kind < 0.78 and self.products and self.chance(0.6):
            x = self.products.pop()
            x, y = (x, y) if self.chance(0.5) else (z, x)
        if kind < 0.42:
            self.put(f"mul{form} {target}, {x}, {y}")
            self.products = [p for p in self.products[-2:] if p != target] + [target]
        elif kind < 0.66:
            self.put(f"add{form} {target}, {x}, {y}")
        elif kind < 0.78:
            self.put(f"sub{form} {target}, {x}, {y}")
        elif kind < 0.83:
            self.put(f"fma.rn{form} {target}, {x}, {y}, {z}")
        elif kind < 0.87:
            self.put(f"neg{form} {target}, {x}")
        elif kind < 0.91:
            self.put(f"{self.pick(('mul.rn', 'add.rn'))}{form} {target}, {x}, {y}")
        elif kind < 0.94:
            opcode = self.pick(("min", "max", "abs"))
            self.put(f"{opcode}{form} {target}, {x}" + (f", {z}" if opcode != "abs" else ""))
        elif kind < 0.97:
            self.put(f"setp.lt{form} %p, {x}, {z}")
            self.put(f"selp.{self.type} {target}, {x}, {y}, %p")
        elif self.type == "f32":
            self.put(f"div.{self.pick(('approx', 'full'))}{form} {target}, {x}, {y}")
        else:
            self.put(f"mul{form} {target}, {x}, {x}")

    # --- control flow -----------------------------------------------------------------------------------

    def branch(self, depth: int) -> None:
        self.labels += 1
        label, kept = self.labels, list(self.values)
        self.products = []
        x, y = self.pick(self.variables), self.pick(self.variables)
        otherwise = self.chance(0.6)
        self.put(f"setp.lt{self.ftz}.{self.type} %p, {x}, {y}")
        self.put(f"@%p bra ELSE{label}")
        self.block(self.between(1, 2), depth + 1)
        if otherwise:
            self.put(f"bra END{label}")
        self.lines.append(f"ELSE{label}:")
        if otherwise:
            self.values, self.products = list(kept), []
            self.block(self.between(1, 2), depth + 1)
            self.lines.append(f"END{label}:")
        self.values, self.products = kept, []

    def loop(self, depth: int) -> None:
        """Up, down, or tested at the top; of known and unknown rounds."""
        self.labels += 1
        label, kept, counter, walker = self.labels, list(self.values), f"%i{depth}", f"%w{depth}"
        form = self.pick(("up", "up", "down", "top"))
        self.products = []
        known = (2, 3, 4, 5, 6) if self.level else (2, 3, 4, 5, 7, 8, 9, 16, 24, 33, 64)
        rounds = "%n" if self.chance(0.5) else str(self.pick(known))
        walks = not self.level and self.chance(0.4)
        if walks:
            self.put(f"mov.u64 {walker}, %in")
        self.put(f"mov.u32 {counter}, {rounds if form == 'down' else '0'}")
        if self.chance(0.1):
            self.put('.pragma "nounroll"')
        self.lines.append(f"LOOP{label}:")
        if form == "top":
            self.put(f"setp.ge.u32 %q, {counter}, {rounds}")
            self.put(f"@%q bra DONE{label}")
        self.level += 1
        if walks:
            loaded = self.temporary()
            self.put(f"ld.global.{self.type} {loaded}, [{walker}]")
            self.put(f"add.u64 {walker}, {walker}, {self.size}")
            self.values.append(loaded)
        self.block(self.between(1, 2), depth + 1)
        self.level -= 1
        step, test = ("-1", "ne.u32 %q, {}, 0") if form == "down" else ("1", "lt.u32 %q, {}, " + rounds)
        self.put(f"add.s32 {counter}, {counter}, {step}")
        if form == "top":
            self.put(f"bra LOOP{label}")
            self.lines.append(f"DONE{label}:")
        else:
            self.put(f"setp.{test.format(counter)}")
            self.put(f"@%q bra LOOP{label}")
        self.values, self.products = kept, []
