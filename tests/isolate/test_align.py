"""Which event is at fault: on logs written by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from kernels import HEADER

from zluda.isolate.values.align import Alignment
from zluda.isolate.values.difference import Kind
from zluda.isolate.values.log import Lane
from zluda.isolate.values.sites import Site, store_sites, value_sites
from zluda.ptx import parse_module

KERNEL = (
    HEADER
    + """
.visible .entry k(.param .u64 k_param_0)
{
    .reg .pred %p<2>;
    .reg .b32 %r<9>;
    .reg .f32 %f<3>;
    .reg .b64 %rd<5>;
    .shared .align 4 .b8 tile[64];
    ld.param.u64 %rd1, [k_param_0];
    mov.u32 %r1, %clock;
    mov.u32 %r2, tile;
    add.u32 %r3, %r2, 4;
    and.b32 %r4, %r1, 3;
    shfl.sync.idx.b32 %r5, %r4, 0, 31, -1;
    ld.shared.u32 %r6, [%r3];
    st.shared.u32 [%r3], %r4;
    ld.shared.u32 %r7, [%r3];
    cvt.rn.f32.u32 %f1, %r6;
    sqrt.approx.f32 %f2, %f1;
    setp.ne.u32 %p1, %r6, 0;
    @%p1 bra END;
    add.u32 %r8, %r6, 1;
END:
    ret;
}
"""
)
MODULE = parse_module(KERNEL)
FUNCTION = MODULE.function("k")
SITES: dict[int, Site] = {site.number: site for site in value_sites([FUNCTION])}
BY_NAME = {site.name: number for number, site in SITES.items() if site.instruction.opcode != "st"}
ORDER = ["%rd1", "%r1", "%r2", "%r3", "%r4", "%r5", "%r6", "st", "%r7", "%f1", "%f2", "%p1", "bra", "%r8"]
GOOD = {
    "%rd1": 0x1000,
    "%r1": 7,
    "%r2": 0,
    "%r3": 4,
    "%r4": 3,
    "%r5": 3,
    "%r6": 0,
    "st": 4,
    "%r7": 3,
    "%f1": 0,
    "%f2": 0x3F800000,
    "%p1": 0,
    "bra": 0,
    "%r8": 1,
}


def number_of(name: str) -> int:
    opcode = {"st": "st", "bra": "bra"}.get(name)
    if opcode is None:
        return next(
            n for n, s in SITES.items() if s.name == name and s.instruction.opcode not in ("st", "bra")
        )
    return next(n for n, s in SITES.items() if s.instruction.opcode == opcode)


def lane(values: dict[str, int], order: list[str] = ORDER) -> Lane:
    events = tuple((number_of(name), values[name]) for name in order)
    return Lane(0, events, len(events), 0)


def aligned(*pairs: tuple[Lane, Lane]) -> Alignment:
    alignment = Alignment(SITES, FUNCTION)
    rest = (lane(GOOD), lane(GOOD))
    both = [*pairs, *[rest] * (32 - len(pairs))]
    alignment.take([a for a, _ in both], [b for _, b in both])
    return alignment


def other(**changes: int) -> dict[str, int]:
    return {**GOOD, **{f"%{name}" if name != "st" else name: value for name, value in changes.items()}}


CASES: dict[str, tuple[dict[str, int], str | None]] = {
    "nothing": ({}, None),
    "the clock may differ, and what comes of it": ({"r1": 9, "r4": 1, "r5": 1, "r7": 1}, None),
    "a result whose inputs agree": ({"r4": 2, "r5": 2, "r7": 2}, "%r4"),
    "a shuffle of what agrees": ({"r5": 2}, "%r5"),
    "places may differ, and addresses by as much": ({"r2": 64, "r3": 68, "st": 68}, None),
    "an address that is off by something else": ({"r2": 64, "r3": 72, "st": 72}, "%r3"),
    "a NaN on one side": ({"f1": 0x7FC00000}, "%f1"),
    "within the bound of an approximate instruction": ({"f2": 0x3F800001}, None),
    "outside of it": ({"f2": 0x3F800009}, "%f2"),
    "a comparison": ({"p1": 1}, "%p1"),
}


@pytest.mark.parametrize("name", CASES)
def test_the_event_at_fault(name: str) -> None:
    changes, expected = CASES[name]
    fault = aligned((lane(GOOD), lane(other(**changes)))).first_fault()
    assert (None if fault is None else fault.site.name) == expected
    assert fault is None or (fault.kind, fault.lane) == (Kind.VALUE, 0)


def test_nan_is_nan() -> None:
    a, b = other(f1=0x7FC00000, f2=0x7FFFFFFF), other(f1=0x7FFFFFFF, f2=0x7FC00000)
    assert aligned((lane(a), lane(b))).first_fault() is None


def test_what_copies_a_nan_s_bits_is_not_at_fault() -> None:
    """Nor is what computes something else of another NaN's bits."""
    a = other(f1=0x7FC00000, f2=0x7FC00000, p1=0)
    b = other(f1=0x7FFFFFFF, f2=0x40000000, p1=0)
    assert aligned((lane(a), lane(b))).first_fault() is None


def test_a_load_of_what_this_warp_did_not_write_is_to_be_followed() -> None:
    findings = aligned((lane(GOOD), lane(other(r6=5, f1=0x40A00000, f2=0x40A00000)))).findings
    (load,) = findings.loads
    assert (load.site.name, load.address, load.a, load.b) == ("%r6", (4, 4), 0, 5)
    assert findings.faults == []


def test_a_load_of_what_this_warp_wrote_otherwise_is_not() -> None:
    findings = aligned((lane(GOOD), lane(other(r4=2, r5=2, r7=2)))).findings
    assert findings.loads == []


def test_another_lane_s_register_explains_a_shuffle() -> None:
    """Lane 1 is at fault; lane 0, which only shuffles, is not."""
    pairs = [(lane(GOOD), lane(other(r5=2))), (lane(GOOD), lane(other(r4=2, r5=2, r7=2)))]
    fault = aligned(*pairs).first_fault()
    assert fault is not None and (fault.lane, fault.site.name) == (1, "%r4")


def branching(taken: bool) -> Callable[[dict[str, int]], Lane]:
    return lambda values: lane(values, ORDER[:-1] if taken else ORDER)


def test_ways_that_part_although_the_guard_agrees() -> None:
    fault = aligned((branching(False)(GOOD), branching(True)(GOOD))).first_fault()
    assert fault is not None and (fault.kind, fault.site.instruction.opcode) == (Kind.CONTROL, "bra")


def test_ways_that_part_by_a_wrong_guard_are_the_guard_s_fault() -> None:
    wrong = {**other(p1=1), "bra": 1}
    fault = aligned((branching(False)(GOOD), branching(True)(wrong))).first_fault()
    assert fault is not None and (fault.kind, fault.site.name) == (Kind.VALUE, "%p1")


def test_every_store_that_others_can_see_is_a_site() -> None:
    (store,) = store_sites([FUNCTION])
    assert (store.space, store.size, store.offset) == ("shared", 4, 0)
