"""Random control-flow graphs: blocks that branch anywhere, several loops with one head among them,
irreducible ones too.

A program is a list of blocks over four registers; :func:`text` writes it as PTX, :func:`expected` runs it in
plain Python, a thread at a time. What registers hold is mixed into a thread's own random number as it goes,
and not kept for the end: a register that is live behind all loops is held for each lane anyhow.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

REGISTERS = 4
FACTOR, INCREMENT = 1664525, 1013904223
WORD = 0xFFFFFFFF
END = -1

_HEAD = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 numbers, .param .u64 out, .param .u32 rounds)
{
.reg .pred %p;
.reg .b32 %r<4>, %x, %t, %thread, %rounds;
.reg .b64 %in, %out, %offset;
ld.param.u64 %in, [numbers];
ld.param.u64 %out, [out];
ld.param.u32 %rounds, [rounds];
mov.u32 %thread, %tid.x;
mul.wide.u32 %offset, %thread, 4;
add.s64 %in, %in, %offset;
ld.global.u32 %x, [%in];
mov.u32 %r0, %tid.x;
mov.u32 %r1, %tid.x;
mov.u32 %r2, %ntid.x;
mov.u32 %r3, %laneid;
"""
_TAIL = """END:
add.u32 %x, %x, %r3;
mul.wide.u32 %offset, %thread, 8;
add.s64 %out, %out, %offset;
st.global.u32 [%out], %x;
st.global.u32 [%out+4], %rounds;
ret;
}
"""
_STEPS = (
    "add.u32 %r{d}, %r{d}, {c};",
    "add.u32 %r{d}, %r{s}, %thread;",
    "mov.u32 %r{d}, {c};",
    "xor.b32 %r{d}, %r{d}, %r{s};",
    "mad.lo.u32 %r{d}, %r{s}, {c}, %r{d};",
)
_CONDITIONS = {
    "lane": "shr.u32 %t, %x, 29;",
    "rounds": "and.b32 %t, %rounds, 7;",
    "register": "and.b32 %t, %r{mixed}, 7;",
}


@dataclass
class Block:
    """``steps`` are (which of :data:`_STEPS`, destination, source, constant); the register ``mixed`` goes
    into the thread's number. A branch goes to ``taken`` where its condition exceeds ``above``; backwards only
    while the thread has rounds left.
    """

    steps: list[tuple[int, int, int, int]]
    mixed: int
    condition: str  # empty: a jump to `otherwise`
    above: int
    taken: int
    otherwise: int


def program(seed: int) -> list[Block]:
    """A random program; jumps and what is not taken go forward, so that every program ends."""
    chosen = random.Random(seed)
    count = chosen.randint(2, 5)
    heads = [chosen.randrange(2)]  # going back to where others do makes loops with one head
    blocks = []
    for at in range(count):
        steps = [
            (
                chosen.choice((0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4)),
                *(chosen.randrange(4) for _ in "ds"),
                chosen.randint(1, 9),
            )
            for _ in range(chosen.choice((0, 0, 1, 1, 2)))
        ]
        forward = [*range(at + 1, count), END][:2]
        taken = chosen.choice((*range(count), END, heads[-1], heads[-1], heads[-1]))
        condition = chosen.choice(("lane", "lane", "lane", "rounds", "register", ""))
        blocks.append(
            Block(steps, chosen.randrange(4), condition, chosen.randint(0, 7), taken, chosen.choice(forward))
        )
        heads.append(taken if 0 <= taken <= at and chosen.random() < 0.3 else heads[-1])
    return blocks


def text(blocks: Sequence[Block]) -> str:
    """The program as PTX."""
    lines = [_HEAD]
    for at, block in enumerate(blocks):
        lines += [
            f"B{at}:",
            f"xor.b32 %x, %x, %r{block.mixed};",
            f"mad.lo.u32 %x, %x, {FACTOR}, {INCREMENT};",
        ]
        lines += [_STEPS[kind].format(d=d, s=s, c=c) for kind, d, s, c in block.steps]
        if block.condition:
            lines += [
                _CONDITIONS[block.condition].format(mixed=block.mixed),
                f"setp.gt.u32 %p, %t, {block.above};",
            ]
            if 0 <= block.taken <= at:
                lines += ["setp.gt.and.u32 %p, %rounds, 0, %p;", "@%p sub.u32 %rounds, %rounds, 1;"]
            lines.append(f"@%p bra {_label(block.taken)};")
        lines.append(f"bra {_label(block.otherwise)};")
    return "\n".join([*lines, _TAIL])


def expected(blocks: Sequence[Block], number: int, thread: int, threads: int, rounds: int) -> tuple[int, int]:
    """What one thread leaves: its number, and the rounds that it has left."""
    registers, at = [thread, thread, threads, thread % 32], 0
    while at != END:
        block = blocks[at]
        number = ((number ^ registers[block.mixed]) * FACTOR + INCREMENT) & WORD
        for kind, d, s, c in block.steps:
            was, other = registers[d], registers[s]
            registers[d] = (was + c, other + thread, c, was ^ other, other * c + was)[kind] & WORD
        goes = False
        if block.condition:
            of = {"lane": number >> 29, "rounds": rounds & 7, "register": registers[block.mixed] & 7}
            goes = of[block.condition] > block.above
            if 0 <= block.taken <= at:
                goes = goes and rounds > 0
                rounds -= goes
        at = block.taken if goes else block.otherwise
    return (number + registers[3]) & WORD, rounds


def _label(block: int) -> str:
    return "END" if block == END else f"B{block}"
