"""Asynchronous copies and mbarriers (PTX ISA 9.7.9.25, 9.7.13.15), each thread with objects of its own, and
vector and 128-bit atomics."""

from __future__ import annotations

from isa_forms.form import Form

FAMILY = "asynchronous"
_SLOTS = ".shared .align 128 .b8 room[8192];"
_SCRATCH = ".global .align 128 .b8 far[8388608];"
# %s: 64 bytes of the thread in shared memory; the barrier is in the last eight
_PLACE = """\
.reg .b32 %s, %bar, %x, %y;
.reg .b64 %tok, %w, %z;
.reg .pred %p;
mov.u32 %s, room;
shl.b32 %x, %thread, 6;
add.u32 %s, %s, %x;
add.u32 %bar, %s, 56;
mov.b64 %w, 0x1122334455667788;
st.shared.b64 [%s], %w;
st.shared.b64 [%s+8], %w;
"""
_FAR = """\
.reg .b64 %far, %w, %z;
.reg .b32 %x, %y;
mov.u64 %far, far;
mul.wide.u32 %w, %i, 64;
add.u64 %far, %far, %w;
"""


def _shared(name: str, result: str, sources: str, text: str) -> Form:
    return Form(name, FAMILY, result, tuple(sources.split()), _PLACE + text, _SLOTS)


def _copies() -> list[Form]:
    forms: list[Form] = []
    read_back = "ld.shared.b64 {d}, [%s];"
    for size in (4, 8):
        text = f"cp.async.ca.shared.global [%s], [%pa], {size};\ncp.async.wait_all;\n{read_back}"
        forms.append(_shared(f"cp.async.ca {size}", "b64", "b64", text))
        for read in range(size + 1):
            text = f"cp.async.ca.shared.global [%s], [%pa], {size}, {read};\ncp.async.commit_group;\n"
            text += "cp.async.wait_group 0;\n" + read_back
            forms.append(_shared(f"cp.async.ca {size} of {read}", "b64", "b64", text))
    text = "and.b32 %x, {b}, 15;\nmin.u32 %x, %x, 8;\n"
    text += "cp.async.ca.shared.global [%s], [%pa], 8, %x;\ncp.async.wait_all;\nld.shared.b64 {d}, [%s];"
    forms.append(_shared("cp.async.ca 8 by size", "b64", "b64 b32", text))
    text = "and.b32 %x, {b}, 1;\nsetp.ne.u32 %p, %x, 0;\n"
    text += "cp.async.ca.shared.global [%s], [%pa], 8, %p;\ncp.async.wait_all;\nld.shared.b64 {d}, [%s];"
    forms.append(_shared("cp.async.ca 8 but ignore-src", "b64", "b64 b32", text))
    return forms


_DONE = "mbarrier.test_wait.parity.shared.b64 %p, [%bar], {parity};\nselp.u32 %x, {bit}, 0, %p;\n"


def _asks(parity: int, bit: int) -> str:
    return _DONE.format(parity=parity, bit=bit) + "or.b32 {d}, {d}, %x;\n"


def _barriers() -> list[Form]:
    start = "mov.u32 {d}, 0;\nmbarrier.init.shared.b64 [%bar], COUNT;\n"

    def begin(count: str) -> str:
        return start.replace("COUNT", count)

    pending = "mbarrier.pending_count.b64 %y, %tok;\nshl.b32 {d}, {d}, 4;\nor.b32 {d}, {d}, %y;\n"
    arrive = "mbarrier.arrive.shared.b64 %tok, [%bar];\n"
    return [
        _shared("mbarrier tokens", "u32", "b32", begin("3") + (arrive + pending) * 4),
        _shared(
            "mbarrier counts",
            "u32",
            "b32",
            begin("7")
            + "mbarrier.arrive.shared.b64 %tok, [%bar], 3;\n"
            + pending
            + "mbarrier.arrive_drop.shared.b64 %tok, [%bar], 2;\n"
            + pending
            + "mbarrier.arrive.noComplete.shared.b64 %tok, [%bar], 1;\n"
            + pending
            + arrive
            + pending
            + arrive
            + pending,
        ),
        _shared(
            "mbarrier phases",
            "u32",
            "b32",
            begin("1")
            + _asks(0, 1)
            + _asks(1, 2)
            + arrive
            + _asks(0, 4)
            + _asks(1, 8)
            + arrive
            + _asks(0, 16)
            + _asks(1, 32)
            + "mbarrier.test_wait.shared.b64 %p, [%bar], %tok;\n"
            + "selp.u32 %x, 64, 0, %p;\nor.b32 {d}, {d}, %x;",
        ),
        _shared(
            "mbarrier transactions",
            "u32",
            "b32",
            begin("1")
            + "mbarrier.arrive.expect_tx.shared.b64 %tok, [%bar], 48;\n"
            + _asks(0, 1)
            + "mbarrier.complete_tx.shared.b64 [%bar], 16;\n"
            + _asks(0, 2)
            + "mbarrier.complete_tx.shared.b64 [%bar], 32;\n"
            + _asks(0, 4)
            + "mbarrier.expect_tx.relaxed.cta.shared.b64 [%bar], 8;\n"
            + arrive
            + _asks(1, 8)
            + "mbarrier.complete_tx.shared.b64 [%bar], 8;\n"
            + _asks(1, 16)
            + "mbarrier.inval.shared.b64 [%bar];",
        ),
        _shared(
            "cp.async.mbarrier.arrive",
            "u32",
            "b64",
            begin("2")
            + "cp.async.ca.shared.global [%s], [%pa], 8;\ncp.async.mbarrier.arrive.shared.b64 [%bar];\n"
            + "cp.async.wait_all;\n"
            + _asks(0, 1)
            + "cp.async.mbarrier.arrive.noinc.shared.b64 [%bar];\ncp.async.wait_all;\n"
            + arrive
            + "mbarrier.pending_count.b64 %y, %tok;\nshl.b32 %y, %y, 8;\nor.b32 {d}, {d}, %y;\n"
            + _asks(0, 2),
        ),
    ]


def _bulk() -> list[Form]:
    wait = "W: mbarrier.try_wait.parity.shared.b64 %p, [%bar], 0;\n@!%p bra W;\n"
    ready = "mbarrier.init.shared.b64 [%bar], 1;\nfence.proxy.async;\n"
    fill = _FAR.replace(".reg .b64 %far, %w, %z;", ".reg .b64 %far;").replace(".reg .b32 %x, %y;\n", "")
    fill += "st.global.b64 [%far], {a};\nst.global.b64 [%far+8], {b};\nfence.proxy.async;\n"
    copy = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%s], [%far], 16, [%bar];\n"
    expect = "mbarrier.arrive.expect_tx.shared.b64 %tok, [%bar], 16;\n"
    both = "ld.shared.b64 %w, [%s];\nld.shared.b64 %z, [%s+8];\nxor.b64 {d}, %w, %z;"
    forms = [("cp.async.bulk into shared", ready + fill + expect + copy + wait + both)]
    back = "st.shared.b64 [%s], {a};\nst.shared.b64 [%s+8], {b};\nfence.proxy.async;\n"
    out = "cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;\nfence.proxy.async;\n"
    far = fill.replace("st.global.b64 [%far], {a};", "st.global.b64 [%far], {b};")
    both = "ld.global.b64 %w, [%far];\nld.global.b64 %z, [%far+8];\nshl.b64 %z, %z, 1;\nxor.b64 {d}, %w, %z;"
    text = far + back + "cp.async.bulk.global.shared::cta.bulk_group [%far], [%s], 16;\n" + out + both
    forms.append(("cp.async.bulk into global", text))
    kinds = [
        "add.u32",
        "add.s32",
        "add.u64",
        "min.u32",
        "max.s32",
        "min.s64",
        "max.u64",
        "inc.u32",
        "dec.u32",
    ]
    kinds += ["and.b32", "or.b64", "xor.b32", "add.f32", "add.f64", "add.noftz.f16", "add.noftz.bf16"]
    kinds += ["min.f16", "max.bf16"]
    for op in kinds:
        text = far + back + f"cp.reduce.async.bulk.global.shared::cta.bulk_group.{op} [%far], [%s], 16;\n"
        forms.append((f"cp.reduce.async.bulk {op}", text + out + both))
    declarations = f"{_SLOTS}\n{_SCRATCH}"
    return [Form(n, FAMILY, "b64", ("b64", "b64"), _PLACE + t, declarations, True) for n, t in forms]


def _atomics() -> list[Form]:
    forms: list[Form] = []
    for vector in (2, 4):
        registers = ", ".join(f"%o{i}" for i in range(vector))
        values = ", ".join(("{a}", "{b}", "{b}", "{a}")[:vector])
        head = _FAR + f".reg .f32 %o<{vector}>;\n"
        head += "".join(f"st.global.f32 [%far+{4 * i}], {{c}};\n" for i in range(vector))
        last = f"[%far+{4 * (vector - 1)}]"
        text = head + f"atom.global.v{vector}.f32.add {{{registers}}}, [%far], {{{values}}};\n"
        name = f"atom.global.v{vector}.f32.add"
        forms.append(
            Form(
                f"{name} after", FAMILY, "f32", ("f32",) * 3, text + f"ld.global.f32 {{d}}, {last};", _SCRATCH
            )
        )
        forms.append(
            Form(
                f"{name} before",
                FAMILY,
                "f32",
                ("f32",) * 3,
                text + f"mov.f32 {{d}}, %o{vector - 1};",
                _SCRATCH,
            )
        )
    for op, kind in (
        *(("add", k) for k in ("f16", "bf16", "f16x2", "bf16x2")),
        *((o, k) for o in ("min", "max") for k in ("f16", "bf16", "f16x2", "bf16x2")),
    ):
        bits = 32 if kind.endswith("x2") else 16
        head = _FAR + f".reg .b{bits} %o<2>;\n"
        head += f"st.global.b{bits} [%far], {{b}};\nst.global.b{bits} [%far+{bits // 8}], {{b}};\n"
        text = head + f"atom.global.v2.{kind}.{op}.noftz {{%o0, %o1}}, [%far], {{{{a}}, {{a}}}};\n"
        text += f"ld.global.b{bits} {{d}}, [%far+{bits // 8}];"
        forms.append(Form(f"atom.global.v2.{kind}.{op}", FAMILY, kind, (kind, kind), text, _SCRATCH))
    head = _FAR + ".reg .b128 %u, %v, %o;\n"
    head += "mov.b128 %u, {{a}, {b}};\nmov.b128 %v, {{b}, {a}};\nst.global.v2.b64 [%far], {{a}, {b}};\n"
    for space in ("global",):
        text = head + f"atom.{space}.exch.b128 %o, [%far], %v;\nmov.b128 {{%w, %z}}, %o;\n"
        text += "ld.global.b64 {d}, [%far];\nxor.b64 {d}, {d}, %z;"
        forms.append(Form(f"atom.{space}.exch.b128", FAMILY, "b64", ("b64", "b64"), text, _SCRATCH))
        text = (
            head + f"atom.{space}.cas.b128 %o, [%far], %u, %v;\natom.{space}.cas.b128 %o, [%far], %u, %u;\n"
        )
        text += "mov.b128 {%w, %z}, %o;\nld.global.b64 {d}, [%far];\nadd.u64 {d}, {d}, %z;"
        forms.append(Form(f"atom.{space}.cas.b128", FAMILY, "b64", ("b64", "b64"), text, _SCRATCH))
    return forms


def forms() -> list[Form]:
    """All rows."""
    return _copies() + _barriers() + _bulk() + _atomics()
