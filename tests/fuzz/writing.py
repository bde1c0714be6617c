"""A program as PTX: ``k(in, out, own, sums, uniform, bytes)``, and how those buffers lie.

Every register that a program names has a value before its first statement and is written out after its last.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from programs import Call, If, Loop, Node, Program, Switch
from statements import MASK, OWN, POOLS, Statement

from zluda.ptx.types import ScalarType

T = ScalarType

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

SUM_OPERATIONS = [
    (op, of)
    for of in ("u32", "s32", "u64", "s64")
    for op in ("add", "min", "max")
    if (op, of) not in (("add", "s32"), ("add", "s64"))
] + [(op, of) for of in ("b32", "b64") for op in ("and", "or", "xor")]
SUM_OPERATIONS += [("inc", "u32")]
SUMS = -(-len(SUM_OPERATIONS) // 2) * 16
"""Bytes of the sums, in global memory and in shared memory: one word for each operation."""


def ptx(program: Program) -> str:
    """The module."""
    return _Writer(program).module()


def alone(program: Program) -> str:
    """A module with nothing but the body, for asking whether it is lowered."""
    return _Writer(program).alone()


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
        self.functions: list[str] = []

    def module(self) -> str:
        self.functions = [self.function(n, nodes) for n, nodes in enumerate(self.program.functions)]
        return "\n".join([*_variables(), *self.functions, self.kernel()])

    def alone(self) -> str:
        """The body without the registers' values around it: enough to see whether it is lowered."""
        self.declared = [_DECLARED, _COMMON]
        return "\n".join(
            [
                *_variables(),
                f".visible .entry k({_PARAMETERS}) {{",
                *self.declared,
                *self.nodes(self.program.body, "%m"),
                "ret;\n}",
            ]
        )

    def function(self, number: int, nodes: tuple[Node, ...]) -> str:
        """A function with its own registers, made of what it is given."""
        given = ["own_shared:b32", "m:b32", "tid:b32", "threads:b32", "uniform:b32", "word:b32"]
        given += ["own:b64", "sums:b64", "wide:b64"]
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
                *_mixed(_named([*body, "%r0 %r1 %r2"])),
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
        named = list(_named(body))
        sums = _sums() if any("sums" in line for line in (*body, *self.functions)) else [""] * 2
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
                *_addresses(),
                *_between("global", "%own", "shared", "%own_shared"),
                sums[0],
                "bar.sync 0;",
                *(_read(*item) for item in named),
                *body,
                *(_write(*item) for item in named),
                *_remembered(),
                "bar.sync 0;",
                sums[1],
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
        f".shared .align 16 .b8 shared_sums[{SUMS}];",
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


def _named(lines: Iterable[str]) -> Iterable[tuple[str, ScalarType, int, int]]:
    """The registers of the pools that the text names, with type, bytes and place."""
    words = set(re.findall(r"%[a-z]\d+\b", " ".join(lines)))
    return [(*item, at) for item, at in zip(REGISTERS, OFFSETS, strict=False) if item[0] in words]


def _between(source: str, a: str, target: str, b: str) -> list[str]:
    """Copies what a thread owns from one space to another."""
    return [
        "{ .reg .b64 %x, %y; "
        f"ld.{source}.v2.b64 {{%x, %y}}, [{a}+{i}]; st.{target}.v2.b64 [{b}+{i}], {{%x, %y}}; }}"
        for i in range(0, OWN, 16)
    ]


def _sums() -> tuple[str, str]:
    """Clears the sums in shared memory; the first thread writes them out."""
    words = range(0, SUMS, 16)
    clear = [f"st.shared.v2.b64 [shared_sums+{i}], {{%x, %x}};" for i in words]
    out = [
        f"ld.shared.v2.b64 {{%x, %y}}, [shared_sums+{i}]; st.global.v2.b64 [%sums+{SUMS + i}], {{%x, %y}};"
        for i in words
    ]
    return (
        "{ .reg .b64 %x; mov.b64 %x, 0; " + "\n".join(clear) + " }",
        "\n".join(["{ .reg .b64 %x, %y;", "setp.ne.u32 %first, %tid, 0; @%first bra LAST;", *out, "LAST: }"]),
    )


def _remembered() -> list[str]:
    """What is left in local and shared memory goes out through the thread's own global memory, mixed."""
    lines = ["{ .reg .b64 %x, %y, %z; mov.b64 %z, 0;"]
    for i in range(0, OWN, 8):
        lines += [
            f"ld.local.b64 %x, [own_local+{i}]; ld.shared.b64 %y, [%own_shared+{i}];",
            "mad.lo.u64 %x, %y, 0x9E3779B1, %x; mad.lo.u64 %z, %z, 0x85EBCA77, %x;",
        ]
    return [
        *lines,
        f"ld.global.b64 %x, [%own+{OWN - 8}]; xor.b64 %x, %x, %z; st.global.b64 [%own+{OWN - 8}], %x; }}",
    ]


def _mixed(named: Iterable[tuple[str, ScalarType, int, int]]) -> list[str]:
    """Values for a function's registers, from the two that it is given."""
    lines = []
    for number, (name, of, size, _) in enumerate(named):
        x = f"{2 * number + 1}, {number}"
        match of:
            case T.PRED:
                lines.append(
                    f"{{ .reg .b32 %x; and.b32 %x, %word, {1 << number % 32}; setp.ne.u32 {name}, %x, 0; }}"
                )
            case T.B32 | T.F32:
                lines.append(f"{{ .reg .b32 %x; mad.lo.u32 %x, %word, {x}; mov.b32 {name}, %x; }}")
            case T.B64 | T.F64:
                lines.append(f"{{ .reg .b64 %x; mad.lo.u64 %x, %wide, {x}; mov.b64 {name}, %x; }}")
            case T.B128:
                lines.append(f"mov.b128 {name}, {{%wide, %wide}};")
            case _:
                lines.append(f"cvt.u{8 * size}.u32 {name}, %word;")
    return lines
