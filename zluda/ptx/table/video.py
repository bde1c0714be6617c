"""Scalar and SIMD video instructions (PTX ISA 9.7.18). Operands may carry a selector: ``a.b0``, ``a.h10``."""

_SCALAR = "".join(
    f"{op}.dtype.atype.btype{{.sat}} d, v1, v2          ; dtype = u32 s32 ; atype = u32 s32 ; btype = u32 s32\n"
    f"{op}.dtype.atype.btype{{.sat}}.secop d, v1, v2, b    ; dtype = u32 s32 ; atype = u32 s32 ; btype = u32 s32 ; secop = add min max\n"
    f"{op}.dtype.atype.btype{{.sat}} vd, v1, v2, b      ; dtype = u32 s32 ; atype = u32 s32 ; btype = u32 s32\n"
    for op in ("vadd", "vsub", "vabsdiff", "vmin", "vmax")
)

_SHIFT = "".join(
    f"{op}.dtype.atype.btype{{.sat}}.mode d, v1, v2          ; dtype = u32 s32 ; atype = u32 s32 ; btype = u32 ; mode = clamp wrap\n"
    f"{op}.dtype.atype.btype{{.sat}}.mode.secop d, v1, v2, b    ; dtype = u32 s32 ; atype = u32 s32 ; btype = u32 ; mode = clamp wrap ; secop = add min max\n"
    f"{op}.dtype.atype.btype{{.sat}}.mode vd, v1, v2, b      ; dtype = u32 s32 ; atype = u32 s32 ; btype = u32 ; mode = clamp wrap\n"
    for op in ("vshl", "vshr")
)

_SIMD = "".join(
    f"{op}{width}.dtype.atype.btype{{.sat}} vd, u1, u2, u3 ; dtype = u32 s32 ; atype = u32 s32 ; btype = u32 s32\n"
    f"{op}{width}.dtype.atype.btype.add vd, u1, u2, u3 ; dtype = u32 s32 ; atype = u32 s32 ; btype = u32 s32\n"
    for op in ("vadd", "vsub", "vavrg", "vabsdiff", "vmin", "vmax")
    for width in (2, 4)
)

ROWS = f"""
{_SCALAR}
{_SHIFT}
vmad.dtype.atype.btype{{.sat}}{{.scale}} d, w1, w2, n3         ; dtype = u32 s32 ; atype = u32 s32 ; btype = u32 s32 ; scale = shr7 shr15
vmad.dtype.atype.btype.po{{.sat}}{{.scale}} d, v1, v2, c       ; dtype = u32 s32 ; atype = u32 s32 ; btype = u32 s32 ; scale = shr7 shr15
vset.atype.btype.cmp d, v1, v2                               ; atype = u32 s32 ; btype = u32 s32 ; cmp = eq ne lt le gt ge
vset.atype.btype.cmp.secop d, v1, v2, b                      ; atype = u32 s32 ; btype = u32 s32 ; cmp = eq ne lt le gt ge ; secop = add min max
vset.atype.btype.cmp vd, v1, v2, b                           ; atype = u32 s32 ; btype = u32 s32 ; cmp = eq ne lt le gt ge
{_SIMD}
vset2.atype.btype.cmp{{.add}} vd, u1, u2, u3                   ; atype = u32 s32 ; btype = u32 s32 ; cmp = eq ne lt le gt ge
vset4.atype.btype.cmp{{.add}} vd, u1, u2, u3                   ; atype = u32 s32 ; btype = u32 s32 ; cmp = eq ne lt le gt ge
"""
