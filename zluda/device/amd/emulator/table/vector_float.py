"""Vector instructions on floating-point numbers, comparisons among them."""

_FLOAT_COMPARISONS = {
    "f": "false",
    "lt": "olt",
    "eq": "oeq",
    "le": "ole",
    "gt": "ogt",
    "lg": "one",
    "ge": "oge",
    "o": "ord",
    "u": "uno",
    "nge": "ult",
    "nlg": "ueq",
    "ngt": "ule",
    "nle": "ugt",
    "neq": "une",
    "nlt": "uge",
    "tru/t": "true",
}


def _comparisons() -> str:
    lines = []
    for t in ("f16", "f32", "f64"):
        for names, predicate in _FLOAT_COMPARISONS.items():
            names = "/".join(f"v_cmp_{n}_{t}" for n in names.split("/"))
            lines.append(f"{names} | CARRY = S0.{t}.compare('{predicate}', S1.{t})")
        mask = "u16" if t == "f16" else "u32"
        lines.append(f"v_cmp_class_{t} | CARRY = classify(S0.{t}, u32(S1.{mask}))")
    return "\n".join(lines)


TABLE = f"""
# RDNA2 ISA 12.7 VOP2, f32
v_add_f32                               | D.f32 = S0.f32 + S1.f32
v_sub_f32                               | D.f32 = S0.f32 - S1.f32
v_subrev_f32                            | D.f32 = S1.f32 - S0.f32
v_mul_f32                               | D.f32 = S0.f32 * S1.f32
v_mul_legacy_f32/v_mul_dx9_zero_f32     | D.f32 = select((S0.f32 == 0.0) | (S1.f32 == 0.0), zero(S0.f32), S0.f32 * S1.f32)
v_min_f32/v_min_num_f32                 | D.f32 = smaller(S0.f32, S1.f32)
v_max_f32/v_max_num_f32                 | D.f32 = larger(S0.f32, S1.f32)
v_minimum_f32                           | D.f32 = minimum(S0.f32, S1.f32)
v_maximum_f32                           | D.f32 = maximum(S0.f32, S1.f32)
v_fmac_f32                              | D.f32 = fma(S0.f32, S1.f32, D.f32)
v_fmac_legacy_f32/v_fmac_dx9_zero_f32   | D.f32 = select((S0.f32 == 0.0) | (S1.f32 == 0.0), D.f32, fma(S0.f32, S1.f32, D.f32))
v_mac_f32                               | D.f32 = flush(flush(S0.f32) * flush(S1.f32)) + flush(D.f32)
v_fmamk_f32                             | D.f32 = fma(S0.f32, S1.f32, S2.f32)
v_fmaak_f32                             | D.f32 = fma(S0.f32, S1.f32, S2.f32)
v_madmk_f32                             | D.f32 = flush(flush(flush(S0.f32) * flush(S1.f32)) + flush(S2.f32))
v_madak_f32                             | D.f32 = flush(flush(flush(S0.f32) * flush(S1.f32)) + flush(S2.f32))

# RDNA2 ISA 12.9 VOP3, f32
v_fma_f32                               | D.f32 = fma(S0.f32, S1.f32, S2.f32)
v_fma_legacy_f32/v_fma_dx9_zero_f32     | D.f32 = select((S0.f32 == 0.0) | (S1.f32 == 0.0), S2.f32, fma(S0.f32, S1.f32, S2.f32))
v_mad_f32                               | D.f32 = flush(flush(flush(S0.f32) * flush(S1.f32)) + flush(S2.f32))
v_min3_f32/v_min3_num_f32               | D.f32 = smaller(smaller(S0.f32, S1.f32), S2.f32)
v_max3_f32/v_max3_num_f32               | D.f32 = larger(larger(S0.f32, S1.f32), S2.f32)
v_med3_f32/v_med3_num_f32               | D.f32 = med3(S0.f32, S1.f32, S2.f32)
v_minmax_f32/v_minmax_num_f32           | D.f32 = larger(smaller(S0.f32, S1.f32), S2.f32)
v_maxmin_f32/v_maxmin_num_f32           | D.f32 = smaller(larger(S0.f32, S1.f32), S2.f32)
v_minimum3_f32                          | D.f32 = minimum(minimum(S0.f32, S1.f32), S2.f32)
v_maximum3_f32                          | D.f32 = maximum(maximum(S0.f32, S1.f32), S2.f32)
v_ldexp_f32                             | D.f32 = ldexp(S0.f32, S1.i32)
v_div_fixup_f32                         | D.f32 = div_fixup(S0.f32, S1.f32, S2.f32)
v_div_fmas_f32                          | D.f32 = div_fmas(S0.f32, S1.f32, S2.f32, VCC)

# RDNA2 ISA 12.8 VOP1, f32
v_fract_f32                             | D.f32 = fract(S0.f32)
v_trunc_f32                             | D.f32 = trunc(S0.f32)
v_ceil_f32                              | D.f32 = ceil(S0.f32)
v_rndne_f32                             | D.f32 = rndne(S0.f32)
v_floor_f32                             | D.f32 = floor(S0.f32)
v_frexp_mant_f32                        | D.f32 = frexp_mant(S0.f32)
v_frexp_exp_i32_f32                     | D.i32 = frexp_exp(S0.f32)

# RDNA2 ISA 12.8 VOP1, approximate units
v_rcp_f32/v_rcp_iflag_f32               | D.f32 = rcp(S0.f32)
v_rsq_f32                               | D.f32 = rsq(S0.f32)
v_sqrt_f32                              | D.f32 = sqrt(S0.f32)
v_exp_f32                               | D.f32 = exp2(S0.f32)
v_log_f32                               | D.f32 = log2(S0.f32)
v_sin_f32                               | D.f32 = sin(S0.f32)
v_cos_f32                               | D.f32 = cos(S0.f32)
v_rcp_f64                               | D.f64 = rcp(S0.f64)
v_rsq_f64                               | D.f64 = rsq(S0.f64)
v_sqrt_f64                              | D.f64 = sqrt(S0.f64)
v_rcp_f16                               | D.f16 = rcp(S0.f16)
v_rsq_f16                               | D.f16 = rsq(S0.f16)
v_sqrt_f16                              | D.f16 = sqrt(S0.f16)
v_exp_f16                               | D.f16 = exp2(S0.f16)
v_log_f16                               | D.f16 = log2(S0.f16)
v_sin_f16                               | D.f16 = sin(S0.f16)
v_cos_f16                               | D.f16 = cos(S0.f16)
v_s_rcp_f32                             | D.f32 = rcp(S0.f32)
v_s_rsq_f32                             | D.f32 = rsq(S0.f32)
v_s_sqrt_f32                            | D.f32 = sqrt(S0.f32)
v_s_exp_f32                             | D.f32 = exp2(S0.f32)
v_s_log_f32                             | D.f32 = log2(S0.f32)

# RDNA2 ISA 12.8 and 12.9, f64
v_add_f64                               | D.f64 = S0.f64 + S1.f64
v_mul_f64                               | D.f64 = S0.f64 * S1.f64
v_fma_f64                               | D.f64 = fma(S0.f64, S1.f64, S2.f64)
v_fmac_f64                              | D.f64 = fma(S0.f64, S1.f64, D.f64)
v_min_f64/v_min_num_f64                 | D.f64 = smaller(S0.f64, S1.f64)
v_max_f64/v_max_num_f64                 | D.f64 = larger(S0.f64, S1.f64)
v_minimum_f64                           | D.f64 = minimum(S0.f64, S1.f64)
v_maximum_f64                           | D.f64 = maximum(S0.f64, S1.f64)
v_ldexp_f64                             | D.f64 = ldexp(S0.f64, S1.i32)
v_div_fixup_f64                         | D.f64 = div_fixup(S0.f64, S1.f64, S2.f64)
v_div_fmas_f64                          | D.f64 = div_fmas(S0.f64, S1.f64, S2.f64, VCC)
v_trig_preop_f64                        | D.f64 = trig_preop(S0.f64, S1.u32)
v_fract_f64                             | D.f64 = fract(S0.f64)
v_trunc_f64                             | D.f64 = trunc(S0.f64)
v_ceil_f64                              | D.f64 = ceil(S0.f64)
v_rndne_f64                             | D.f64 = rndne(S0.f64)
v_floor_f64                             | D.f64 = floor(S0.f64)
v_frexp_mant_f64                        | D.f64 = frexp_mant(S0.f64)
v_frexp_exp_i32_f64                     | D.i32 = frexp_exp(S0.f64)

# RDNA2 ISA 12.7 to 12.9, f16
v_add_f16                               | D.f16 = S0.f16 + S1.f16
v_sub_f16                               | D.f16 = S0.f16 - S1.f16
v_subrev_f16                            | D.f16 = S1.f16 - S0.f16
v_mul_f16                               | D.f16 = S0.f16 * S1.f16
v_min_f16/v_min_num_f16                 | D.f16 = smaller(S0.f16, S1.f16)
v_max_f16/v_max_num_f16                 | D.f16 = larger(S0.f16, S1.f16)
v_minimum_f16                           | D.f16 = minimum(S0.f16, S1.f16)
v_maximum_f16                           | D.f16 = maximum(S0.f16, S1.f16)
v_fma_f16/v_fma_legacy_f16              | D.f16 = fma(S0.f16, S1.f16, S2.f16)
v_fmac_f16                              | D.f16 = fma(S0.f16, S1.f16, D.f16)
v_fmamk_f16                             | D.f16 = fma(S0.f16, S1.f16, S2.f16)
v_fmaak_f16                             | D.f16 = fma(S0.f16, S1.f16, S2.f16)
v_mad_f16/v_mad_legacy_f16              | D.f16 = S0.f16 * S1.f16 + S2.f16
v_mac_f16                               | D.f16 = S0.f16 * S1.f16 + D.f16
v_min3_f16/v_min3_num_f16               | D.f16 = smaller(smaller(S0.f16, S1.f16), S2.f16)
v_max3_f16/v_max3_num_f16               | D.f16 = larger(larger(S0.f16, S1.f16), S2.f16)
v_med3_f16/v_med3_num_f16               | D.f16 = med3(S0.f16, S1.f16, S2.f16)
v_minmax_f16/v_minmax_num_f16           | D.f16 = larger(smaller(S0.f16, S1.f16), S2.f16)
v_maxmin_f16/v_maxmin_num_f16           | D.f16 = smaller(larger(S0.f16, S1.f16), S2.f16)
v_ldexp_f16                             | D.f16 = ldexp(S0.f16, S1.i16)
v_div_fixup_f16/v_div_fixup_legacy_f16  | D.f16 = div_fixup(S0.f16, S1.f16, S2.f16)
v_fract_f16                             | D.f16 = fract(S0.f16)
v_trunc_f16                             | D.f16 = trunc(S0.f16)
v_ceil_f16                              | D.f16 = ceil(S0.f16)
v_rndne_f16                             | D.f16 = rndne(S0.f16)
v_floor_f16                             | D.f16 = floor(S0.f16)
v_frexp_mant_f16                        | D.f16 = frexp_mant(S0.f16)
v_frexp_exp_i16_f16                     | D.i16 = saturate_int(frexp_exp(S0.f16), 'i16')

# RDNA2 ISA 12.8 VOP1, conversions
v_cvt_f32_i32                           | D.f32 = f32(S0.i32)
v_cvt_f32_u32                           | D.f32 = f32(S0.u32)
v_cvt_i32_f32                           | D.i32 = to_int(S0.f32, 'i32')
v_cvt_u32_f32                           | D.u32 = to_int(S0.f32, 'u32')
v_cvt_rpi_i32_f32/v_cvt_nearest_i32_f32 | D.i32 = to_int(floor(S0.f32 + 0.5), 'i32')
v_cvt_flr_i32_f32/v_cvt_floor_i32_f32   | D.i32 = to_int(floor(S0.f32), 'i32')
v_cvt_f64_i32                           | D.f64 = f64(S0.i32)
v_cvt_f64_u32                           | D.f64 = f64(S0.u32)
v_cvt_i32_f64                           | D.i32 = to_int(S0.f64, 'i32')
v_cvt_u32_f64                           | D.u32 = to_int(S0.f64, 'u32')
v_cvt_f32_f64                           | D.f32 = f32(S0.f64)
v_cvt_f64_f32                           | D.f64 = f64(S0.f32)
v_cvt_f16_f32                           | D.f16 = f16(S0.f32)
v_cvt_f32_f16                           | D.f32 = f32(S0.f16)
v_cvt_f16_u16                           | D.f16 = f16(S0.u16)
v_cvt_f16_i16                           | D.f16 = f16(S0.i16)
v_cvt_u16_f16                           | D.u16 = to_int(S0.f16, 'u16')
v_cvt_i16_f16                           | D.i16 = to_int(S0.f16, 'i16')
v_cvt_f32_ubyte0                        | D.f32 = f32(byte(S0.u32, 0))
v_cvt_f32_ubyte1                        | D.f32 = f32(byte(S0.u32, 1))
v_cvt_f32_ubyte2                        | D.f32 = f32(byte(S0.u32, 2))
v_cvt_f32_ubyte3                        | D.f32 = f32(byte(S0.u32, 3))
v_cvt_off_f32_i4                        | D.f32 = f32(S0.i32 << 28 >> 28) * 0.0625
v_cvt_norm_i16_f16                      | D.u16 = snorm16(f32(S0.f16))
v_cvt_norm_u16_f16                      | D.u16 = unorm16(f32(S0.f16))

# RDNA2 ISA 12.9 VOP3, packing conversions
v_cvt_pkrtz_f16_f32/v_cvt_pk_rtz_f16_f32      | D.u32 = pack(truncated_half(S0.f32), truncated_half(S1.f32))
v_cvt_pknorm_i16_f32/v_cvt_pk_norm_i16_f32    | D.u32 = pack(snorm16(S0.f32), snorm16(S1.f32))
v_cvt_pknorm_u16_f32/v_cvt_pk_norm_u16_f32    | D.u32 = pack(unorm16(S0.f32), unorm16(S1.f32))
v_cvt_pknorm_i16_f16/v_cvt_pk_norm_i16_f16    | D.u32 = pack(snorm16(f32(S0.f16)), snorm16(f32(S1.f16)))
v_cvt_pknorm_u16_f16/v_cvt_pk_norm_u16_f16    | D.u32 = pack(unorm16(f32(S0.f16)), unorm16(f32(S1.f16)))
v_cvt_pk_i16_f32                        | D.u32 = pack(to_int(S0.f32, 'i16'), to_int(S1.f32, 'i16'))
v_cvt_pk_u16_f32                        | D.u32 = pack(to_int(S0.f32, 'u16'), to_int(S1.f32, 'u16'))
v_cvt_pk_u8_f32                         | D.u32 = S2.u32 & ~(same(S1.u32, 255) << (S1.u32 & 3) * 8) | u32(to_int(S0.f32, 'u8')) << (S1.u32 & 3) * 8
v_pack_b32_f16                          | D.u32 = pack(S0.f16, S1.f16)

# RDNA2 ISA 12.10 VOPC, floating point
{_comparisons()}
"""
