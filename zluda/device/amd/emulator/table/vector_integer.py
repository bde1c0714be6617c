"""Vector instructions on integers and bits, comparisons among them."""


def _comparisons() -> str:
    lines = []
    for t in ("i16", "u16", "i32", "u32", "i64", "u64"):
        for op in ("lt", "eq", "le", "gt", "ne", "ge"):
            lines.append(f"v_cmp_{op}_{t} | CARRY = S0.{t}.compare('{op}', S1.{t})")
        lines.append(f"v_cmp_f_{t} | CARRY = S0.{t} != S0.{t}")
        lines.append(f"v_cmp_t_{t} | CARRY = S0.{t} == S0.{t}")
    return "\n".join(lines)


TABLE = f"""
# RDNA2 ISA 12.8 VOP1, moves and bits
v_mov_b32/v_accvgpr_read_b32/v_accvgpr_write_b32/v_accvgpr_mov_b32 | D.u32 = S0.u32
v_mov_b64                               | D.u64 = S0.u64
v_mov_b16                               | D.u16 = S0.u16
v_swap_b32                              | D.u32 = S0.u32 ; S0.u32 = D.u32
v_swap_b16                              | D.u16 = S0.u16 ; S0.u16 = D.u16
v_not_b32                               | D.u32 = ~S0.u32
v_not_b16                               | D.u16 = ~S0.u16
v_bfrev_b32                             | D.u32 = reverse(S0.u32)
v_ffbh_u32/v_clz_i32_u32                | D.i32 = leading_zeros(S0.u32)
v_ffbl_b32/v_ctz_i32_b32                | D.i32 = find_first(S0.u32)
v_ffbh_i32/v_cls_i32                    | D.i32 = sign_run(S0.i32)
v_sat_pk_u8_i16                         | D.u16 = u16(saturate_int(S0.i16, 'u8')) | u16(saturate_int((S0.i32 >> 16).convert('i16'), 'u8')) << 8
v_cvt_i32_i16                           | D.i32 = i32(S0.i16)
v_cvt_u32_u16                           | D.u32 = u32(S0.u16)

# RDNA2 ISA 12.7 VOP2, 32-bit
v_add_nc_u32/v_add_u32                  | D.u32 = S0.u32 + S1.u32
v_sub_nc_u32/v_sub_u32                  | D.u32 = S0.u32 - S1.u32
v_subrev_nc_u32/v_subrev_u32            | D.u32 = S1.u32 - S0.u32
v_add_nc_i32/v_add_i32                  | D.i32 = S0.i32 + S1.i32
v_sub_nc_i32/v_sub_i32                  | D.i32 = S0.i32 - S1.i32
v_add_co_u32                            | D.u32 = S0.u32 + S1.u32 ; CARRY = S0.u32 + S1.u32 < S0.u32
v_sub_co_u32                            | D.u32 = S0.u32 - S1.u32 ; CARRY = S0.u32 < S1.u32
v_subrev_co_u32                         | D.u32 = S1.u32 - S0.u32 ; CARRY = S1.u32 < S0.u32
v_add_co_ci_u32/v_addc_co_u32           | D.u32 = S0.u32 + S1.u32 + u32(CIN) ; CARRY = u64(S0.u32) + u64(S1.u32) + u64(CIN) >= 1 << 32
v_sub_co_ci_u32/v_subb_co_u32           | D.u32 = S0.u32 - S1.u32 - u32(CIN) ; CARRY = u64(S0.u32) < u64(S1.u32) + u64(CIN)
v_subrev_co_ci_u32/v_subbrev_co_u32     | D.u32 = S1.u32 - S0.u32 - u32(CIN) ; CARRY = u64(S1.u32) < u64(S0.u32) + u64(CIN)
v_mul_i32_i24                           | D.i32 = S0.i24 * S1.i24
v_mul_hi_i32_i24                        | D.i32 = i32(i64(S0.i24) * i64(S1.i24) >> 32)
v_mul_u32_u24                           | D.u32 = S0.u24 * S1.u24
v_mul_hi_u32_u24                        | D.u32 = u32(u64(S0.u24) * u64(S1.u24) >> 32)
v_min_i32                               | D.i32 = smaller(S0.i32, S1.i32)
v_max_i32                               | D.i32 = larger(S0.i32, S1.i32)
v_min_u32                               | D.u32 = smaller(S0.u32, S1.u32)
v_max_u32                               | D.u32 = larger(S0.u32, S1.u32)
v_lshrrev_b32                           | D.u32 = S1.u32 >> S0.u32
v_ashrrev_i32                           | D.i32 = S1.i32 >> S0.u32
v_lshlrev_b32                           | D.u32 = S1.u32 << S0.u32
v_and_b32                               | D.u32 = S0.u32 & S1.u32
v_or_b32                                | D.u32 = S0.u32 | S1.u32
v_xor_b32                               | D.u32 = S0.u32 ^ S1.u32
v_xnor_b32                              | D.u32 = ~(S0.u32 ^ S1.u32)
v_cndmask_b32                           | D.b32 = select(CIN, S1.b32, S0.b32)
v_cndmask_b16                           | D.b16 = select(CIN, S1.b16, S0.b16)

# RDNA2 ISA 12.9 VOP3, 32-bit
v_mad_i32_i24                           | D.i32 = S0.i24 * S1.i24 + S2.i32
v_mad_u32_u24                           | D.u32 = S0.u24 * S1.u24 + S2.u32
v_mad_u32_u16                           | D.u32 = u32(S0.u16) * u32(S1.u16) + S2.u32
v_mad_i32_i16                           | D.i32 = i32(S0.i16) * i32(S1.i16) + S2.i32
v_mad_u64_u32/v_mad_co_u64_u32          | D.u64 = u64(S0.u32) * u64(S1.u32) + S2.u64 ; CARRY = u64(S0.u32) * u64(S1.u32) + S2.u64 < S2.u64
v_mad_i64_i32/v_mad_co_i64_i32          | D.i64 = i64(S0.i32) * i64(S1.i32) + S2.i64 ; CARRY = (i64(S0.i32) * i64(S1.i32) + S2.i64 < S2.i64) ^ (i64(S0.i32) * i64(S1.i32) < 0) ^ (i64(S0.i32) * i64(S1.i32) + S2.i64 < 0)
v_mul_lo_u32/v_mul_lo_i32               | D.u32 = S0.u32 * S1.u32
v_mul_hi_u32                            | D.u32 = mul_hi(S0.u32, S1.u32)
v_mul_hi_i32                            | D.i32 = mul_hi(S0.i32, S1.i32)
v_bfe_u32                               | D.u32 = bit_field(S0.u32, S1.u32, S2.u32)
v_bfe_i32                               | D.i32 = bit_field(S0.i32, S1.i32, S2.i32)
v_bfi_b32                               | D.u32 = S0.u32 & S1.u32 | ~S0.u32 & S2.u32
v_bfm_b32                               | D.u32 = mask_of(S0.u32, S1.u32)
v_alignbit_b32                          | D.u32 = u32(concat(S0.u32, S1.u32) >> u64(S2.u32 & 31))
v_alignbyte_b32                         | D.u32 = u32(concat(S0.u32, S1.u32) >> u64(S2.u32 & 3) * 8)
v_perm_b32                              | D.u32 = perm(S0.u32, S1.u32, S2.u32)
v_min3_i32                              | D.i32 = smaller(smaller(S0.i32, S1.i32), S2.i32)
v_max3_i32                              | D.i32 = larger(larger(S0.i32, S1.i32), S2.i32)
v_med3_i32                              | D.i32 = med3(S0.i32, S1.i32, S2.i32)
v_min3_u32                              | D.u32 = smaller(smaller(S0.u32, S1.u32), S2.u32)
v_max3_u32                              | D.u32 = larger(larger(S0.u32, S1.u32), S2.u32)
v_med3_u32                              | D.u32 = med3(S0.u32, S1.u32, S2.u32)
v_minmax_i32                            | D.i32 = larger(smaller(S0.i32, S1.i32), S2.i32)
v_maxmin_i32                            | D.i32 = smaller(larger(S0.i32, S1.i32), S2.i32)
v_minmax_u32                            | D.u32 = larger(smaller(S0.u32, S1.u32), S2.u32)
v_maxmin_u32                            | D.u32 = smaller(larger(S0.u32, S1.u32), S2.u32)
v_add3_u32                              | D.u32 = S0.u32 + S1.u32 + S2.u32
v_xad_u32                               | D.u32 = (S0.u32 ^ S1.u32) + S2.u32
v_lshl_add_u32                          | D.u32 = (S0.u32 << S1.u32) + S2.u32
v_add_lshl_u32                          | D.u32 = S0.u32 + S1.u32 << S2.u32
v_lshl_or_b32                           | D.u32 = S0.u32 << S1.u32 | S2.u32
v_and_or_b32                            | D.u32 = S0.u32 & S1.u32 | S2.u32
v_or3_b32                               | D.u32 = S0.u32 | S1.u32 | S2.u32
v_xor3_b32                              | D.u32 = S0.u32 ^ S1.u32 ^ S2.u32
v_bitop3_b32                            | D.u32 = bit_op3(S0.u32, S1.u32, S2.u32, BITOP3)
v_bitop3_b16                            | D.u16 = bit_op3(S0.u16, S1.u16, S2.u16, BITOP3)
v_sad_u8                                | D.u32 = sad_u8(S0.u32, S1.u32, S2.u32)
v_msad_u8                               | D.u32 = sad_u8(S0.u32, S1.u32, S2.u32, masked=True)
v_sad_hi_u8                             | D.u32 = (sad_u8(S0.u32, S1.u32, same(S2.u32, 0)) << 16) + S2.u32
v_sad_u16                               | D.u32 = u32(larger(S0.u16, S1.u16) - smaller(S0.u16, S1.u16)) + (larger(S0.u32 >> 16, S1.u32 >> 16) - smaller(S0.u32 >> 16, S1.u32 >> 16)) + S2.u32
v_sad_u32                               | D.u32 = larger(S0.u32, S1.u32) - smaller(S0.u32, S1.u32) + S2.u32
v_qsad_pk_u16_u8                        | D.u64 = quad_sad_u16(S0.u64, S1.u32, S2.u64, masked=False)
v_mqsad_pk_u16_u8                       | D.u64 = quad_sad_u16(S0.u64, S1.u32, S2.u64, masked=True)
v_lerp_u8                               | D.u32 = lerp_u8(S0.u32, S1.u32, S2.u32)
v_bcnt_u32_b32                          | D.u32 = popcount(S0.u32) + S1.u32
v_mbcnt_lo_u32_b32                      | D.u32 = popcount(S0.u32 & LANES_BELOW_LO) + S1.u32
v_mbcnt_hi_u32_b32                      | D.u32 = popcount(S0.u32 & LANES_BELOW_HI) + S1.u32
v_cvt_pk_u16_u32                        | D.u32 = pack(saturate_int(S0.u32, 'u16'), saturate_int(S1.u32, 'u16'))
v_cvt_pk_i16_i32                        | D.u32 = pack(saturate_int(S0.i32, 'i16'), saturate_int(S1.i32, 'i16'))

# RDNA2 ISA 12.9 VOP3, 64-bit
v_lshlrev_b64                           | D.u64 = S1.u64 << S0.u32
v_lshrrev_b64                           | D.u64 = S1.u64 >> S0.u32
v_ashrrev_i64                           | D.i64 = S1.i64 >> S0.u32
v_lshl_add_u64                          | D.u64 = (S0.u64 << (S1.u32 & 7)) + S2.u64
v_add_nc_u64/v_add_u64                  | D.u64 = S0.u64 + S1.u64
v_sub_nc_u64/v_sub_u64                  | D.u64 = S0.u64 - S1.u64
v_mul_u64                               | D.u64 = S0.u64 * S1.u64

# RDNA2 ISA 12.9 VOP3, 16-bit
v_add_nc_u16/v_add_u16                  | D.u16 = S0.u16 + S1.u16
v_sub_nc_u16/v_sub_u16                  | D.u16 = S0.u16 - S1.u16
v_subrev_u16                            | D.u16 = S1.u16 - S0.u16
v_add_nc_i16/v_add_i16                  | D.i16 = S0.i16 + S1.i16
v_sub_nc_i16/v_sub_i16                  | D.i16 = S0.i16 - S1.i16
v_mul_lo_u16                            | D.u16 = S0.u16 * S1.u16
v_mad_u16/v_mad_legacy_u16              | D.u16 = S0.u16 * S1.u16 + S2.u16
v_mad_i16/v_mad_legacy_i16              | D.i16 = S0.i16 * S1.i16 + S2.i16
v_lshlrev_b16                           | D.u16 = S1.u16 << S0.u16
v_lshrrev_b16                           | D.u16 = S1.u16 >> S0.u16
v_ashrrev_i16                           | D.i16 = S1.i16 >> S0.u16
v_and_b16                               | D.u16 = S0.u16 & S1.u16
v_or_b16                                | D.u16 = S0.u16 | S1.u16
v_xor_b16                               | D.u16 = S0.u16 ^ S1.u16
v_min_u16                               | D.u16 = smaller(S0.u16, S1.u16)
v_max_u16                               | D.u16 = larger(S0.u16, S1.u16)
v_min_i16                               | D.i16 = smaller(S0.i16, S1.i16)
v_max_i16                               | D.i16 = larger(S0.i16, S1.i16)
v_min3_u16                              | D.u16 = smaller(smaller(S0.u16, S1.u16), S2.u16)
v_max3_u16                              | D.u16 = larger(larger(S0.u16, S1.u16), S2.u16)
v_med3_u16                              | D.u16 = med3(S0.u16, S1.u16, S2.u16)
v_min3_i16                              | D.i16 = smaller(smaller(S0.i16, S1.i16), S2.i16)
v_max3_i16                              | D.i16 = larger(larger(S0.i16, S1.i16), S2.i16)
v_med3_i16                              | D.i16 = med3(S0.i16, S1.i16, S2.i16)

# RDNA2 ISA 12.10 VOPC, integers
{_comparisons()}
"""
