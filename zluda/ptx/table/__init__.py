"""The instruction table: one row an instruction form, in the notation of the PTX ISA manual's syntax lines.

A row is ``opcode.modifier{.optional} operands ; name = word word …``. To add an instruction, add a row to
the family's text block and a test that parses it.

*Modifiers.* ``.name`` is a slot when the row (``; name = words``) or :data:`SLOTS` gives words for it, else
a literal word. Braces make it optional. The words of one opcode may be written in any order, as ptxas
accepts them; where two slots share words (``alayout``/``blayout``, ``dtype``/``atype``) order decides.

*Operands.* ``d…`` are destinations, other small letters sources; ``[a]`` is an address, ``[a, C]`` an object
and a place in it (:class:`~zluda.ptx.Indexed`); capitals are ``{…}`` vectors, as are ``d`` and ``s`` when
``.vec`` was written; ``m`` may also be a symbol's address or a vector, ``y`` a register, constant or vector (``yd``), ``x…``
anything (``xd``: any destination); ``v…`` may carry a selector (``u…``: and is a register; ``vd``: a destination that may), ``w…``
a sign too, ``n…`` a sign only; ``d|p`` is a pair, ``d{|p}`` possibly
one, ``!c`` a predicate that
may be negated, ``label`` a branch target. ``{, b}`` is optional.

*Operand types.* An operand follows the type modifier of its letter (``a`` ``atype``), else the first type
(``d``) or the last (the others). ``; as = b:count d:type+`` says otherwise for single operands (``*``: all),
by a rule of :mod:`zluda.ptx.operand_types`.

**What lowering reads** (:class:`zluda.ptx.Instruction`): type words go to ``types`` in the order written,
``.v2`` ``.v4`` ``.v8`` to ``vector``, everything else to ``slots`` under these names. A literal word is its
own slot (``inst.has("ftz")``, ``inst.has("sync")``).

=============  ========================================================================================
slot           words
=============  ========================================================================================
``rnd``        rn rz rm rp rna rs, and rni rzi rmi rpi (cvt to integral)
``mode``       lo hi wide (mul, mad, mul24, mad24) · up down bfly idx (shfl) · clamp wrap (shf, bmsk, szext)
               · f4e b4e rc8 ecl ecr rc16 (prmt; absent: default) · shiftamt is a flag of bfind
``dir``        l r (shf)
``cmp``        eq ne lt le gt ge lo ls hi hs equ neu ltu leu gtu geu num nan
``boolop``     and or xor (set, setp with a third predicate operand)
``test``       finite infinite number notanumber normal subnormal (testp)
``op``         add min max inc dec cas exch and or xor (atom, red, redux) · all any uni ballot (vote)
               · all any (match) · popc and or (bar.red)
``space``      global shared local const param and shared::cta shared::cluster param::entry param::func;
               absent: generic. cvta, isspacep too. Kept verbatim.
``dst`` ``src``  spaces of cp.async and its kind
``cop``        ca cg cs lu cv wb wt
``sem``        weak relaxed acquire release acq_rel sc volatile mmio
``scope``      cta cluster gpu sys (gl for membar.gl)
``evict``      L1::evict_normal … L2::evict_last … (cache eviction priority; ``evict2`` a second one)
``prefetch``   L2::64B L2::128B L2::256B (prefetch size)
``level``      L1 L2 (prefetch), L2::cache_hint is the slot ``cache_hint``
``geom``       1d 2d 3d a1d a2d cube acube 2dms a2dms (tex, suld, sust, tld4)
``clamp``      trap clamp zero (suld, sust, sured)
``shape``      m16n8k16 … (mma, wmma, ldmatrix m8n8, wgmma)
``layout`` ``alayout`` ``blayout``  row col
``num``        x1 x2 x4 (ldmatrix, stmatrix)
``fragment``   a b c d (wmma.load, wmma.store)
``secop``      min max add (video instructions' second operation)
flags          ftz sat approx full relu nan NaN xorsign abs cc nc uni sync aligned to noinc trans warp red
               arrive satfinite … each under its own name
=============  ========================================================================================

Notes. ``cvta.to.global`` has ``to`` and ``space``; ``bar.red.or.pred`` has ``red`` and ``op``;
``bar.sync`` ``barrier.sync`` ``barrier.cta.sync`` have ``sync``; ``bar.warp.sync`` has ``warp`` and ``sync``;
``membar.gl`` has ``scope`` gl; ``fence.sc.cta`` has ``sem`` and ``scope``; ``mul.wide.u16``: ``mode`` wide;
``ld.volatile``: ``sem`` volatile; ``vote.sync.ballot.b32``: ``sync`` and ``op``; ``mov.b64 {a, b}, c``: the
operand is a Vector; ``setp.eq.and.s32 p|q, a, b, !c``: operand 0 a Pair, operand 3 Negated;
``shfl.sync.up.b32 d|p, …``: operand 0 a Pair; carry-in and carry-out of ``add.cc``/``addc``/``madc`` are not operands.
A register declared ``.reg .v4 .f32 v`` is the four registers ``v.x v.y v.z v.w``; ``v`` alone is their Vector.
"""

from __future__ import annotations

from zluda.ptx.table import (
    arithmetic,
    asynchronous,
    compare,
    control,
    convert,
    matrix,
    memory,
    synchronise,
    texture,
    video,
)
from zluda.ptx.table.words import SLOTS, TYPE_GROUPS

FAMILIES: dict[str, str] = {
    "arithmetic": arithmetic.ROWS,
    "compare": compare.ROWS,
    "convert": convert.ROWS,
    "memory": memory.ROWS,
    "asynchronous": asynchronous.ROWS,
    "texture": texture.ROWS,
    "control": control.ROWS,
    "synchronise": synchronise.ROWS,
    "matrix": matrix.ROWS,
    "video": video.ROWS,
}
"""The rows of each family as text; ``#`` starts a comment."""

__all__ = ["FAMILIES", "SLOTS", "TYPE_GROUPS"]
