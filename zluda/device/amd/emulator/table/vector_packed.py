"""Packed instructions that are no pair of halves: dot products, mixed precision.

``v_pk_NAME`` on two halves needs no row: it is ``v_NAME`` of the other tables on each (``vector.py``).
"""

TABLE = """
# RDNA2 ISA 12.6 VOP3P, dot products
v_dot2_f32_f16                          | D.f32 = fma(f32(S0.hi.f16), f32(S1.hi.f16), fma(f32(S0.lo.f16), f32(S1.lo.f16), S2.f32))
v_dot2c_f32_f16/v_dot2acc_f32_f16       | D.f32 = fma(f32(S0.hi.f16), f32(S1.hi.f16), fma(f32(S0.lo.f16), f32(S1.lo.f16), D.f32))
v_dot2_f16_f16                          | D.f16 = fma(S0.hi.f16, S1.hi.f16, fma(S0.lo.f16, S1.lo.f16, S2.f16))
v_dot2_i32_i16                          | D.i32 = i32(S0.lo.i16) * i32(S1.lo.i16) + i32(S0.hi.i16) * i32(S1.hi.i16) + S2.i32
v_dot2_u32_u16                          | D.u32 = u32(S0.lo.u16) * u32(S1.lo.u16) + u32(S0.hi.u16) * u32(S1.hi.u16) + S2.u32
v_dot4_i32_i8                           | D.i32 = S0.dot(S1, 8, True, True) + S2.i32
v_dot4c_i32_i8                          | D.i32 = S0.dot(S1, 8, True, True) + D.i32
v_dot4_u32_u8                           | D.u32 = S0.dot(S1, 8, False, False, 'u32') + S2.u32
v_dot4_i32_iu8                          | D.i32 = S0.dot(S1, 8, NEG_LO[0], NEG_LO[1]) + S2.i32
v_dot8_i32_i4                           | D.i32 = S0.dot(S1, 4, True, True) + S2.i32
v_dot8c_i32_i4                          | D.i32 = S0.dot(S1, 4, True, True) + D.i32
v_dot8_u32_u4                           | D.u32 = S0.dot(S1, 4, False, False, 'u32') + S2.u32
v_dot8_i32_iu4                          | D.i32 = S0.dot(S1, 4, NEG_LO[0], NEG_LO[1]) + S2.i32

# RDNA2 ISA 12.6 VOP3P, mixed precision
v_fma_mix_f32                           | D.f32 = fma(S0.mix, S1.mix, S2.mix)
v_mad_mix_f32                           | D.f32 = S0.mix * S1.mix + S2.mix
v_fma_mixlo_f16                         | D.f16 = f16(fma(S0.mix, S1.mix, S2.mix))
v_mad_mixlo_f16                         | D.f16 = f16(S0.mix * S1.mix + S2.mix)
v_fma_mixhi_f16                         | D.f16 = f16(fma(S0.mix, S1.mix, S2.mix))
v_mad_mixhi_f16                         | D.f16 = f16(S0.mix * S1.mix + S2.mix)

# CDNA2 ISA 12.8 VOP3P, two f32
v_pk_mov_b32                            | D.u64 = concat(S1.word(OP_SEL[1]), S0.word(OP_SEL[0]))
"""
