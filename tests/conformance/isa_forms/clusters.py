"""Clusters of four blocks: registers, shared memory of other blocks, what is sent there.

Each form has a kernel of its own. What blocks do to each other's memory gives the same in any order.
"""

from __future__ import annotations

from isa_forms.form import Form, expand

FAMILY = "clusters"
_DIRECTIVE = ".reqnctapercluster 4, 1, 1"
_ROOM = ".shared .align 128 .b8 room[1024]; .shared .align 128 .b8 sent[1024]; .shared .align 8 .b64 told;"
_MEET = "barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;\n"
# %s, %t: eight bytes of the thread in `room` and `sent`; %n: the next block's rank; %ns, %nb: %s and the
# barrier there
_PLACE = """\
.reg .b32 %s, %t, %n, %x, %y, %ns, %nb, %bar;
.reg .b64 %w, %z;
.reg .b16 %m;
.reg .pred %p, %q;
mov.u32 %s, room;
mov.u32 %t, sent;
mov.u32 %bar, told;
shl.b32 %x, %thread, 3;
add.u32 %s, %s, %x;
add.u32 %t, %t, %x;
mov.u32 %n, %cluster_ctarank;
add.u32 %n, %n, 1;
and.b32 %n, %n, 3;
setp.eq.u32 %p, %thread, 0;
mov.u64 %w, 0x1122334455667788;
st.shared.b64 [%s], %w;
@%p mbarrier.init.shared.b64 [%bar], COUNT;
fence.mbarrier_init.release.cluster;
mapa.shared::cluster.u32 %ns, %s, %n;
mapa.shared::cluster.u32 %nb, %bar, %n;
"""
_WAIT = "WAIT:\nmbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %q, [%bar], 0;\n@!%q bra WAIT;\n"


def _form(name: str, result: str, sources: str, text: str, *, count: int = 1) -> Form:
    body = _PLACE.replace("COUNT", str(count)) + _MEET + text + _MEET
    return Form(name, FAMILY, result, tuple(sources.split()), body, _ROOM, alone=True, directive=_DIRECTIVE)


def _registers() -> list[Form]:
    names = [
        f"{r}.{a}" for r in ("clusterid", "nclusterid", "cluster_ctaid", "cluster_nctaid") for a in "xyz"
    ]
    names += ["cluster_ctarank", "cluster_nctarank"]
    text = "mov.u32 {d}, 0;\n"
    for name in names:
        text += f"mov.u32 %x, %{name};\nmad.lo.u32 {{d}}, {{d}}, 31, %x;\n"
    text += "mov.pred %q, %is_explicit_cluster;\nselp.u32 %x, 1, 0, %q;\nmad.lo.u32 {d}, {d}, 31, %x;\n"
    return [_form("registers of a cluster", "u32", "b32", text)]


def _memory() -> list[Form]:
    chosen = "st.shared.b32 [%s], {a};\n" + _MEET + "and.b32 %y, {a}, 3;\n"
    direct = chosen + "mapa.shared::cluster.u32 %x, %s, %y;\nld.shared::cluster.b32 {d}, [%x];\n"
    generic = "cvt.u64.u32 %w, %s;\ncvta.shared.u64 %w, %w;\nmapa.u64 %z, %w, %y;\n"
    spaces = "".join(
        f"isspacep.{space} %q, %z;\nselp.u32 %x, {1 << n}, 0, %q;\nor.b32 {{d}}, {{d}}, %x;\n"
        for n, space in enumerate(("shared::cluster", "shared::cta", "global", "local"))
    )
    rank = "mapa.shared::cluster.u32 %x, %s, %y;\ngetctarank.shared::cluster.u32 {d}, %x;\n"
    written = "st.shared::cluster.b32 [%ns], {a};\n" + _MEET + "ld.shared.b32 {d}, [%s];\n"
    return [
        _form("ld.shared::cluster of a block by rank", "b32", "b32", direct),
        _form("ld of mapa.u64", "b32", "b32", chosen + generic + "ld.b32 {d}, [%z];\n"),
        _form(
            "isspacep of mapa.u64", "u32", "b32", "and.b32 %y, {a}, 3;\nmov.u32 {d}, 0;\n" + generic + spaces
        ),
        _form("getctarank of mapa", "u32", "b32", "and.b32 %y, {a}, 3;\n" + rank),
        _form("st.shared::cluster to the next block", "b32", "b32", written),
    ]


_OPERATIONS = ("(add|min|max).u32", "(add|min|max).s32", "(and|or|xor).b32", "(inc|dec).u32")


def _atomics() -> list[Form]:
    forms = []
    for pattern in _OPERATIONS:
        for op in expand(pattern):
            seed = "st.shared.b32 [%s], {a};\nst.shared.b32 [%t], {b};\n" + _MEET
            by_red = f"red.relaxed.cluster.shared::cluster.{op} [%ns], {{b}};\n"
            forms.append(
                _form(
                    f"red.shared::cluster.{op}",
                    "b32",
                    "b32 b32",
                    seed + by_red + _MEET + "ld.shared.b32 {d}, [%s];\n",
                )
            )
            sent = "@%p mbarrier.arrive.expect_tx.shared.b64 _, [%bar], 512;\n"
            form = f"red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.{op}"
            sent += f"{form} [%ns], {{b}}, [%nb];\n"
            forms.append(
                _form(f"red.async.{op}", "b32", "b32 b32", seed + sent + _WAIT + "ld.shared.b32 {d}, [%s];\n")
            )
    return forms


def _sent() -> list[Form]:
    expect = "@%p mbarrier.arrive.expect_tx.shared.b64 _, [%bar], BYTES;\n"
    read = _WAIT + "ld.shared.b64 {d}, [%s];\n"
    store = "st.async.shared::cluster.mbarrier::complete_tx::bytes.b64 [%ns], {a}, [%nb];\n"
    arrive = (
        "st.shared::cluster.b64 [%ns], {a};\nmbarrier.arrive.release.cluster.shared::cluster.b64 _, [%nb];\n"
    )
    fill = "st.shared.b64 [%t], {a};\nfence.proxy.async.shared::cta;\nbar.sync 0;\n"
    start = "mov.u32 %x, room;\nmapa.shared::cluster.u32 %x, %x, %n;\nmov.u32 %y, sent;\n"
    bulk = "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%x], [%y], 1024, [%nb];\n"
    many = "mov.u32 %x, room;\n"
    cast = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"
    first = "mov.u32 %y, %cluster_ctarank;\nsetp.eq.and.u32 %q, %y, 2, %p;\nmov.u16 %m, 15;\n"
    return [
        _form("st.async", "b64", "b64", expect.replace("BYTES", "1024") + store + read),
        _form("mbarrier.arrive.shared::cluster", "b64", "b64", arrive + read, count=128),
        _form(
            "cp.async.bulk to the next block",
            "b64",
            "b64",
            expect.replace("BYTES", "1024") + fill + start + "@%p " + bulk + read,
        ),
        _form(
            "cp.async.bulk multicast",
            "b64",
            "b64",
            expect.replace("BYTES", "1024")
            + many
            + first
            + f"@%q {cast} [%x], [%pa], 1024, [%bar], %m;\n"
            + read,
        ),
    ]


def forms() -> list[Form]:
    """Every form of the family."""
    return [*_registers(), *_memory(), *_atomics(), *_sent()]
