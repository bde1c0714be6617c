"""Whether bytes lie in a live allocation: generated code looks them up in ranges that its device lists."""

from __future__ import annotations

from zluda.compiler.ir import Builder, Value


def in_ranges(b: Builder, ranges: Value, count: Value, address: Value, size: Value) -> Value:
    """Whether ``size`` bytes (``i64``) at an address lie inside one range, as ``i1``.

    ``ranges`` points to ``count`` pairs of start and end, sorted and apart.
    """
    name = b.module.function(
        "zluda.in_ranges", [("ptr", 1), ("i64", 1), ("i64", 1), ("i64", 1)], lambda i, a: _emit(i, *a)
    )
    return b.call(name, [ranges, count, address, size], "i1")


def _emit(b: Builder, ranges: Value, count: Value, address: Value, size: Value) -> Value:
    b.emit("br label %search")
    b.label("search")
    low, high = Value("i64", 1, "%low"), Value("i64", 1, "%high")
    b.emit("%low = phi i64 [ 0, %0 ], [ %low2, %step ]")
    b.emit(f"%high = phi i64 [ {count.ref}, %0 ], [ %high2, %step ]")
    b.cond_branch(b.icmp("ult", low, high), "step", "found")
    b.label("step")
    middle = b.lshr(b.add(low, high), 1)
    start = b.load("i64", b.gep(ranges, b.shl(middle, 4)), align=8)
    above = b.icmp("ule", start, address)
    b.emit(f"%low2 = select i1 {above.ref}, i64 {b.add(middle, 1).ref}, i64 %low")
    b.emit(f"%high2 = select i1 {above.ref}, i64 %high, i64 {middle.ref}")
    b.branch("search")
    b.label("found")
    some = b.icmp("ne", low, 0)
    b.cond_branch(some, "compare", "none")
    b.label("none")
    b.ret(Value("i1", 1, "false"))
    b.label("compare")
    entry = b.gep(ranges, b.shl(b.sub(low, 1), 4))
    end = b.load("i64", b.gep(entry, 8), align=8)
    # how much of the range is behind the address, without a sum that wraps
    behind = b.sub(end, address)
    return b.and_(b.icmp("ult", address, end), b.icmp("uge", behind, size))
