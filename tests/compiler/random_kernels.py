"""Random kernels: any control-flow graph at all, over a few integer registers that mix at every step.

Loops end because every block costs fuel. Branches go anywhere, into loops too, so that many graphs are
irreducible. Every register has a value before the first block. Some kernels read memory as if they waited for
each other, which makes lanes run apart; some call a function, from which some lanes never return.
"""

from __future__ import annotations

import random

REGISTERS = 5
WORDS = REGISTERS + 1  # a thread's output: its registers, and one word that blocks store to


def random_kernel(seed: int) -> str:
    """PTX of a kernel ``k(out, uniform)``; thread t owns WORDS words at ``out``."""
    return _Writer(random.Random(seed)).kernel()


MIX = """.func (.reg .b32 %result) mix (.reg .b32 %a, .reg .b32 %b)
{
.reg .pred %p, %q; .reg .b32 %n;
and.b32 %n, %a, 3;
setp.lt.u32 %p, %a, %b;
@%p bra LESS;
AGAIN:
mad.lo.u32 %b, %b, 5, %n;
setp.eq.u32 %q, %n, 0;
@!%q sub.u32 %n, %n, 1;
@!%q bra AGAIN;
LESS:
LEAVE
sub.u32 %result, %b, %a;
ret;
}"""


class _Writer:
    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.blocks = rng.randint(3, 9)
        self.lines: list[str] = []
        self.tables: list[str] = []
        self.polls = rng.random() < 0.3
        self.calls = rng.random() < 0.3
        leave = "setp.eq.u32 %q, %n, 2; @%q exit;" if rng.random() < 0.5 else ""
        self.function = MIX.replace("LEAVE", leave) if self.calls else ""

    def kernel(self) -> str:
        body = [line for n in range(self.blocks) for line in self.block(n)]
        stores = [f"st.global.u32 [%rd3+{4 * i}], %r{i};" for i in range(REGISTERS)]
        return "\n".join(
            [
                ".version 8.0\n.target sm_90\n.address_size 64",
                self.function,
                ".visible .entry k(.param .u64 k_out, .param .u32 k_uniform) {",
                ".reg .b32 %r<12>; .reg .b64 %rd<5>; .reg .pred %p<8>;",
                *self.tables,
                "ld.param.u64 %rd1, [k_out]; ld.param.u32 %r8, [k_uniform];",
                "mov.u32 %r9, %tid.x; mov.u32 %r6, %laneid;",
                f"mul.wide.u32 %rd2, %r9, {4 * WORDS}; add.s64 %rd3, %rd1, %rd2;",
                f"mov.u32 %r10, {self.rng.randint(5, 40)};",  # fuel
                "mov.u32 %r0, %r9; mov.u32 %r1, %r8; mad.lo.u32 %r2, %r9, 2654435761, 12345;",
                f"mov.u32 %r3, {self.rng.randint(0, 9)}; mov.u32 %r4, 0;",
                "setp.lt.u32 %p0, %r9, 9; setp.lt.u32 %p1, %r8, 9; setp.eq.u32 %p2, %r6, %r6;",
                *body,
                "DONE:",
                *stores,
                "ret;",
                "}",
            ]
        )

    def block(self, n: int) -> list[str]:
        r = self.rng
        lines = [f"B{n}:", "sub.u32 %r10, %r10, 1;", "setp.eq.u32 %p7, %r10, 0;", "@%p7 bra DONE;"]
        lines += [self.computation() for _ in range(r.randint(0, 4))]
        return lines + self.ending(n)

    def computation(self) -> str:
        r = self.rng
        d, a, b = (r.randrange(REGISTERS) for _ in range(3))
        second = r.choice([f"%r{b}", str(r.randint(-5, 40)), "%r8", "%r9"])
        operation = r.choice(["add.u32", "sub.u32", "mul.lo.u32", "xor.b32", "and.b32"])
        plain = f"{operation} %r{d}, %r{a}, {second};"
        forms = [
            plain,
            plain,
            f"mov.u32 %r{d}, {second};",
            f"shr.u32 %r{d}, %r{a}, {r.randint(0, 8)};",
            f"shl.b32 %r{d}, %r{a}, {r.randint(0, 4)};",
            f"mad.lo.u32 %r{d}, %r{a}, {r.randint(0, 9)}, {second};",
            self.compare(r.randrange(3)) + f" selp.b32 %r{d}, %r{a}, {second}, %p{r.randrange(3)};",
            self.compare(3) + f" @{r.choice(['', '!'])}%p3 " + plain,
            self.compare(3) + f" @{r.choice(['', '!'])}%p3 st.global.u32 [%rd3+{4 * REGISTERS}], %r{a};",
        ]
        if self.polls:
            forms += [f"ld.volatile.global.u32 %r{d}, [%rd3+{4 * REGISTERS}];"] * 2
        if self.calls:
            forms += [f"call (%r{d}), mix, (%r{a}, %r{b});"] * 2
            forms += [self.compare(3) + f" @%p3 call (%r{d}), mix, (%r{a}, %r9);"]
        return r.choice(forms)

    def compare(self, predicate: int) -> str:
        r = self.rng
        left = r.choice(["%r8", "%r9", "%r6", *(f"%r{i}" for i in range(REGISTERS))])
        type = r.choice(["u32", "s32"])
        return f"setp.{r.choice(['lt', 'ge', 'eq', 'ne'])}.{type} %p{predicate}, {left}, {r.randint(0, 40)};"

    def ending(self, n: int) -> list[str]:
        r = self.rng

        def target() -> str:
            return f"B{r.randrange(self.blocks)}"

        form = r.randrange(7)
        if form == 0:
            return [f"bra {target()};"]
        if form == 1:
            self.tables.append(f"T{n}: .branchtargets {', '.join(target() for _ in range(4))};")
            return [f"and.b32 %r7, %r{r.randrange(REGISTERS)}, 3;", f"brx.idx %r7, T{n};"]
        if form == 2 and r.random() < 0.5:
            return [self.compare(4), f"@%p4 {r.choice(['ret', 'exit'])};"]
        return [self.compare(5), f"@{r.choice(['', '!'])}%p5 bra {target()};"]
