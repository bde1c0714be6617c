"""PTX that writes down what the threads of one warp compute, or who writes a range of memory.

The instrumented text takes what to look at from a variable, so that one compilation serves every block, warp
and window. Guards, branches and barriers stay as they are: what is added are guarded moves, loads and stores
of the thread's own. A thread's *events* are numbered in the order in which it meets them, which both devices
share whatever order they run threads in; of each thread the log has the events of a window, their number in
all, and a digest of those up to the window's end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from zluda.isolate.alone import Part
from zluda.isolate.values.sites import Look, Site, Store
from zluda.ptx.module import Function, Immediate, Instruction, Operand, Register, Symbol
from zluda.ptx.printer import print_operand, print_statement
from zluda.ptx.types import ScalarType
from zluda.records import dataclass

ASK = "__zluda_values_ask"
LANES = 32
WINDOW = 4096
"""Events of a thread that one run logs."""
EVENT_BYTES, HEAD_BYTES = 16, 16
HEADS_BYTES = LANES * HEAD_BYTES
LOG_BYTES = HEADS_BYTES + LANES * WINDOW * EVENT_BYTES

WRITES = 1 << 14
"""Writes to the watched range that one run logs."""
WRITE_BYTES, WRITES_HEAD_BYTES = 32, 16
WRITES_BYTES = WRITES_HEAD_BYTES + WRITES * WRITE_BYTES

_FACTOR = 0x9E3779B97F4A7C15  # odd; 2^64 over the golden ratio


@dataclass(frozen=True, slots=True)
class Ask:
    """What to log: ``log`` is the address of the log. Blocks and threads by their linear numbers."""

    log: int
    block: int
    thread: int
    first: int = 0

    def to_bytes(self) -> bytes:
        words = (self.log, self.first, self.block, self.thread)
        return b"".join(word.to_bytes(8, "little") for word in words)


@dataclass(frozen=True, slots=True)
class Watch:
    """A range of memory: global addresses, or offsets in the shared memory of one block (else of none)."""

    log: int
    start: int
    stop: int
    shared: bool = False
    block: int = 0

    def to_bytes(self) -> bytes:
        span = (self.start, self.stop)
        words = (self.log, *((0, 0, *span) if self.shared else (*span, 0, 0)), self.block)
        return b"".join(word.to_bytes(8, "little") for word in words)


_DECLARED = f".visible .global .align 8 .b8 {ASK}[64];\n"

_REGISTERS = (
    ".reg .pred %zlp, %zlq, %zlr, %zls;",
    ".reg .b16 %zlw16;",
    ".reg .b32 %zlw32, %zlt, %zlb, %zla, %zld;",
    ".reg .b64 %zlv, %zlv2, %zln, %zlh, %zli, %zlx, %zlhead, %zlslot, %zlfrom, %zlto, %zllog, %zlask, %zlc;",
)

_LINEAR = (
    "mov.u32 %zla, %tid.z;",
    "mov.u32 %zld, %ntid.y;",
    "mov.u32 %zlt, %tid.y;",
    "mad.lo.u32 %zlt, %zla, %zld, %zlt;",
    "mov.u32 %zld, %ntid.x;",
    "mov.u32 %zla, %tid.x;",
    "mad.lo.u32 %zlt, %zlt, %zld, %zla;",
    "mov.u32 %zla, %ctaid.z;",
    "mov.u32 %zld, %nctaid.y;",
    "mov.u32 %zlb, %ctaid.y;",
    "mad.lo.u32 %zlb, %zla, %zld, %zlb;",
    "mov.u32 %zld, %nctaid.x;",
    "mov.u32 %zla, %ctaid.x;",
    "mad.lo.u32 %zlb, %zlb, %zld, %zla;",
)
"""%zlt and %zlb: the linear numbers of the thread in its block and of the block."""

_VALUES_PROLOGUE = (
    *_REGISTERS,
    *_LINEAR,
    f"mov.u64 %zlask, {ASK};",
    "ld.global.u64 %zllog, [%zlask];",
    "ld.global.u64 %zlfrom, [%zlask+8];",
    "ld.global.u32 %zla, [%zlask+16];",
    "ld.global.u32 %zld, [%zlask+24];",
    f"add.u64 %zlto, %zlfrom, {WINDOW};",
    "sub.u32 %zlt, %zlt, %zld;",
    f"setp.lt.u32 %zlp, %zlt, {LANES};",
    "setp.eq.and.u32 %zlp, %zla, %zlb, %zlp;",
    f"mul.wide.u32 %zlhead, %zlt, {HEAD_BYTES};",
    "add.u64 %zlhead, %zlhead, %zllog;",
    f"mul.wide.u32 %zlslot, %zlt, {WINDOW * EVENT_BYTES};",
    "add.u64 %zlslot, %zlslot, %zllog;",
    f"add.u64 %zlslot, %zlslot, {HEADS_BYTES};",
    "mov.u64 %zln, 0;",
    "mov.u64 %zlh, 0;",
)

_WATCH_PROLOGUE = (
    *_REGISTERS,
    *_LINEAR,
    f"mov.u64 %zlask, {ASK};",
    "ld.global.u64 %zllog, [%zlask];",
    "ld.global.u64 %zlfrom, [%zlask+8];",
    "ld.global.u64 %zlto, [%zlask+16];",
    "ld.global.u64 %zlhead, [%zlask+24];",
    "ld.global.u64 %zlslot, [%zlask+32];",
    "ld.global.u32 %zld, [%zlask+40];",
    "setp.eq.u32 %zlp, %zld, %zlb;",
    "mov.u64 %zln, 0;",
)


def log_values(part: Part, sites: Iterable[Site]) -> str:
    """The part with every site logged."""
    after: dict[tuple[str, int], list[Site]] = {}
    for site in sites:
        after.setdefault((site.function, site.instruction.ordinal), []).append(site)

    def around(function: Function, one: Instruction) -> tuple[list[str], list[str]]:
        here = after.get((function.name, one.ordinal), [])
        if not here:
            return [], []
        events = [line for site in here for line in _event(site)]
        if here[0].look is Look.GUARD:  # whatever the guard says
            return ["mov.pred %zlq, %zlp;", *events], []
        if here[0].look is Look.STORE:
            return [*_guard(one), *events], []
        return _guard(one), events

    return _instrumented(part, _VALUES_PROLOGUE, around)


def log_writes(part: Part, stores: Iterable[Store]) -> str:
    """The part with every write to the watched range logged, with who made it, in the order made."""
    at: dict[tuple[str, int], list[Store]] = {}
    for store in stores:
        at.setdefault((store.function, store.instruction.ordinal), []).append(store)

    def around(function: Function, one: Instruction) -> tuple[list[str], list[str]]:
        here = at.get((function.name, one.ordinal), [])
        lines = [line for store in here for line in _write(store)]
        return ([*_guard(one, "mov.pred %zlq, 1;"), *lines] if lines else []), []

    return _instrumented(part, _WATCH_PROLOGUE, around)


Around = Callable[[Function, Instruction], tuple[list[str], list[str]]]
"""What to put before and after an instruction."""


def _instrumented(part: Part, prologue: Iterable[str], around: Around) -> str:
    bodies = {
        function.name: "\n".join(_body(function, prologue, around))
        for function in part.functions
        if function.body is not None
    }
    return part.text(bodies, _DECLARED)


def _body(function: Function, prologue: Iterable[str], around: Around) -> Iterator[str]:
    yield from prologue
    for statement in function.body or ():
        if not isinstance(statement, Instruction):
            yield print_statement(statement)
            continue
        before, after = around(function, statement)
        yield from before
        yield print_statement(statement)
        yield from after


def _guard(instruction: Instruction, always: str = "mov.pred %zlq, %zlp;") -> list[str]:
    """%zlq: whether the instruction is executed here, and is to be looked at."""
    guard = instruction.guard
    if guard is None:
        return [always]
    name = guard.register.name
    decided = f"not.pred %zlq, {name};" if guard.negated else f"mov.pred %zlq, {name};"
    return [decided] if always.endswith("1;") else [decided, "and.pred %zlq, %zlq, %zlp;"]


def _event(site: Site) -> list[str]:
    digest = [
        f"@%zlr xor.b64 %zlx, %zlv, {site.number * _FACTOR % (1 << 63)};",
        "@%zlr add.u64 %zlh, %zlh, %zlx;",
        f"@%zlr mul.lo.u64 %zlh, %zlh, {_FACTOR:#x};",
    ]
    return [
        *bits_of(site.operand, site.part),
        "@%zlq ld.global.v2.u64 {%zln, %zlh}, [%zlhead];",
        "setp.lt.and.u64 %zlr, %zln, %zlto, %zlq;",
        *(digest if site.hashed else ()),
        "setp.ge.and.u64 %zlr, %zln, %zlfrom, %zlr;",
        "sub.u64 %zli, %zln, %zlfrom;",
        f"mad.lo.u64 %zli, %zli, {EVENT_BYTES}, %zlslot;",
        f"mov.u64 %zlc, {site.number};",
        "@%zlr st.global.v2.u64 [%zli], {%zlc, %zlv};",
        "add.u64 %zln, %zln, 1;",
        "@%zlq st.global.v2.u64 [%zlhead], {%zln, %zlh};",
    ]


def bits_of(register: Operand, part: int = 0) -> list[str]:
    """%zlv: a register's bits, zero-extended, of 128 bits the half ``part``; a constant; a variable's
    address.
    """
    if isinstance(register, Symbol):
        return [f"mov.u64 %zlv, {print_operand(register)};"]
    if isinstance(register, Immediate):
        return [f"mov.u64 %zlv, {register.value % (1 << 64):#x};"]
    assert isinstance(register, Register)
    name, type = register.name, register.type
    if type is ScalarType.PRED:
        return [f"selp.u64 %zlv, 1, 0, {name};"]
    return [line.format(name) for line in _BITS[type.bits, part]]


_BITS = {
    (8, 0): ("cvt.u64.u8 %zlv, {};",),
    (16, 0): ("mov.b16 %zlw16, {};", "cvt.u64.u16 %zlv, %zlw16;"),
    (32, 0): ("mov.b32 %zlw32, {};", "cvt.u64.u32 %zlv, %zlw32;"),
    (64, 0): ("mov.b64 %zlv, {};",),
    (128, 0): ("mov.b128 {{%zlv, %zlv2}}, {};",),
    (128, 1): ("mov.b128 {{%zlv2, %zlv}}, {};",),
}


def _write(store: Store) -> list[str]:
    """Log one element's write; %zlq says whether it is made."""
    low, high = ("%zlhead", "%zlslot") if store.space == "shared" else ("%zlfrom", "%zlto")
    lines = [*_address(store), *_overlap(store, "%zli", low, high)]
    if store.space == "shared":
        lines.append("and.pred %zlr, %zlr, %zlp;")
    if not store.space:
        # A generic address may be one of shared memory (PTX ISA 5.1.7): its offset there is looked at too.
        lines += [
            "isspacep.shared %zls, %zli;",
            "and.pred %zls, %zls, %zlp;",
            "and.pred %zls, %zls, %zlq;",
            "@%zls cvta.to.shared.u64 %zln, %zli;",
            f"add.u64 %zlx, %zln, {store.size};",
            "setp.lt.and.u64 %zls, %zln, %zlslot, %zls;",
            "setp.gt.and.u64 %zls, %zlx, %zlhead, %zls;",
            "or.pred %zlr, %zlr, %zls;",
        ]
    return [*lines, *(_value(store)), *_logged(store.number)]


def _address(store: Store) -> list[str]:
    base = store.address
    if isinstance(base, Register) and base.type.bits == 32:
        return [f"cvt.u64.u32 %zli, {base.name};", f"add.s64 %zli, %zli, {store.offset};"]
    if isinstance(base, Register):
        return [f"mov.b64 %zli, {base.name};", f"add.s64 %zli, %zli, {store.offset};"]
    return [f"mov.u64 %zli, {print_operand(base)};", f"add.s64 %zli, %zli, {store.offset};"]


def _overlap(store: Store, address: str, low: str, high: str) -> list[str]:
    return [
        f"add.u64 %zlx, {address}, {store.size};",
        f"setp.lt.and.u64 %zlr, {address}, {high}, %zlq;",
        f"setp.gt.and.u64 %zlr, %zlx, {low}, %zlr;",
    ]


def _value(store: Store) -> list[str]:
    value = store.value
    if isinstance(value, Register) and value.special:
        return [f"mov.{value.type} %zlw32, {value.name};", "cvt.u64.u32 %zlv, %zlw32;"]
    return bits_of(value) if isinstance(value, Register | Immediate) else ["mov.u64 %zlv, 0;"]


def _logged(number: int) -> list[str]:
    return [
        "@%zlr atom.global.add.u32 %zla, [%zllog], 1;",
        f"setp.lt.and.u32 %zlr, %zla, {WRITES}, %zlr;",
        f"mul.wide.u32 %zln, %zla, {WRITE_BYTES};",
        "add.u64 %zln, %zln, %zllog;",
        "cvt.u64.u32 %zlc, %zlb;",
        f"@%zlr st.global.v2.u64 [%zln+{WRITES_HEAD_BYTES}], {{{number}, %zlc}};",
        "cvt.u64.u32 %zlc, %zlt;",
        f"@%zlr st.global.v2.u64 [%zln+{WRITES_HEAD_BYTES + 16}], {{%zlc, %zlv}};",
    ]
