"""Scalar arithmetic: SOP1, SOP2, SOPC, SOPK. ``S0`` of a SOPK instruction is its immediate."""


def _logic() -> str:
    """AND, OR and their like in both widths, and their forms that save EXEC."""
    operations = {
        "and": "{0} & {1}",
        "or": "{0} | {1}",
        "xor": "{0} ^ {1}",
        "andn2/and_not1": "{0} & ~{1}",
        "orn2/or_not1": "{0} | ~{1}",
        "nand": "~({0} & {1})",
        "nor": "~({0} | {1})",
        "xnor": "~({0} ^ {1})",
    }
    only_saving = {"andn1/and_not0": "~{0} & {1}", "orn1/or_not0": "~{0} | {1}"}
    lines = []
    for width in (32, 64):
        t, e = f"u{width}", f"EXECUTE.u{width}"
        for names, text in operations.items():
            body = text.format(f"S0.{t}", f"S1.{t}")
            names = "/".join(f"s_{n}_b{width}" for n in names.split("/"))
            lines.append(f"{names} | D.{t} = {body} ; SCC = ({body}) != 0")
        for names, text in (operations | only_saving).items():
            body = text.format(f"S0.{t}", e)
            saving = "/".join(f"s_{n}_saveexec_b{width}" for n in names.split("/"))
            lines.append(f"{saving} | D.{t} = {e} ; EXEC.{t} = {body} ; SCC = ({body}) != 0")
        for names in ("andn1/and_not0", "andn2/and_not1"):
            body = (operations | only_saving)[names].format(f"S0.{t}", e)
            writing = "/".join(f"s_{n}_wrexec_b{width}" for n in names.split("/"))
            lines.append(f"{writing} | EXEC.{t} = {body} ; D.{t} = {body} ; SCC = ({body}) != 0")
    return "\n".join(lines)


def _comparisons() -> str:
    lines = []
    for t in ("i32", "u32", "u64"):
        for names, op in {"eq": "eq", "lg": "ne", "gt": "gt", "ge": "ge", "lt": "lt", "le": "le"}.items():
            if t != "u64" or names in ("eq", "lg"):
                lines.append(f"s_cmp_{names}_{t} | SCC = S0.{t}.compare('{op}', S1.{t})")
            if t != "u64":
                immediate = "i16x" if t == "i32" else "u32"
                lines.append(f"s_cmpk_{names}_{t} | SCC = S0.{t}.compare('{op}', S1.{immediate})")
    for t in ("f16", "f32"):
        for names, op in (
            ("lt", "olt"),
            ("eq", "oeq"),
            ("le", "ole"),
            ("gt", "ogt"),
            ("lg", "one"),
            ("ge", "oge"),
            ("o", "ord"),
            ("u", "uno"),
            ("nge", "ult"),
            ("nlg", "ueq"),
            ("ngt", "ule"),
            ("nle", "ugt"),
            ("neq", "une"),
            ("nlt", "uge"),
        ):
            lines.append(f"s_cmp_{names}_{t} | SCC = S0.{t}.compare('{op}', S1.{t})")
    return "\n".join(lines)


def _float(t: str) -> str:
    """gfx11.5 and gfx12: scalar floating point (RDNA4 ISA 16.2)."""
    return f"""
s_add_{t} | D.{t} = S0.{t} + S1.{t}
s_sub_{t} | D.{t} = S0.{t} - S1.{t}
s_mul_{t} | D.{t} = S0.{t} * S1.{t}
s_min_{t}/s_min_num_{t} | D.{t} = smaller(S0.{t}, S1.{t})
s_max_{t}/s_max_num_{t} | D.{t} = larger(S0.{t}, S1.{t})
s_minimum_{t} | D.{t} = minimum(S0.{t}, S1.{t})
s_maximum_{t} | D.{t} = maximum(S0.{t}, S1.{t})
s_fmac_{t} | D.{t} = fma(S0.{t}, S1.{t}, D.{t})
s_ceil_{t} | D.{t} = ceil(S0.{t})
s_floor_{t} | D.{t} = floor(S0.{t})
s_trunc_{t} | D.{t} = trunc(S0.{t})
s_rndne_{t} | D.{t} = rndne(S0.{t})"""


TABLE = f"""
# RDNA2 ISA 12.1 SOP2
s_add_u32/s_add_co_u32           | D.u32 = S0.u32 + S1.u32 ; SCC = S0.u32 + S1.u32 < S0.u32
s_sub_u32/s_sub_co_u32           | D.u32 = S0.u32 - S1.u32 ; SCC = S0.u32 < S1.u32
s_addc_u32/s_add_co_ci_u32       | D.u32 = S0.u32 + S1.u32 + u32(SCC) ; SCC = u64(S0.u32) + u64(S1.u32) + u64(SCC) >= 1 << 32
s_subb_u32/s_sub_co_ci_u32       | D.u32 = S0.u32 - S1.u32 - u32(SCC) ; SCC = u64(S0.u32) < u64(S1.u32) + u64(SCC)
s_add_i32/s_add_co_i32           | D.i32 = S0.i32 + S1.i32 ; SCC = i64(S0.i32) + i64(S1.i32) != i64(S0.i32 + S1.i32)
s_sub_i32/s_sub_co_i32           | D.i32 = S0.i32 - S1.i32 ; SCC = i64(S0.i32) - i64(S1.i32) != i64(S0.i32 - S1.i32)
s_add_nc_u64/s_add_u64           | D.u64 = S0.u64 + S1.u64
s_sub_nc_u64/s_sub_u64           | D.u64 = S0.u64 - S1.u64
s_mul_u64                        | D.u64 = S0.u64 * S1.u64
s_min_i32                        | D.i32 = smaller(S0.i32, S1.i32) ; SCC = S0.i32 < S1.i32
s_max_i32                        | D.i32 = larger(S0.i32, S1.i32) ; SCC = S0.i32 >= S1.i32
s_min_u32                        | D.u32 = smaller(S0.u32, S1.u32) ; SCC = S0.u32 < S1.u32
s_max_u32                        | D.u32 = larger(S0.u32, S1.u32) ; SCC = S0.u32 >= S1.u32
s_cselect_b32                    | D.u32 = select(SCC, S0.u32, S1.u32)
s_cselect_b64                    | D.u64 = select(SCC, S0.u64, S1.u64)
s_lshl_b32                       | D.u32 = S0.u32 << S1.u32 ; SCC = S0.u32 << S1.u32 != 0
s_lshl_b64                       | D.u64 = S0.u64 << S1.u32 ; SCC = S0.u64 << S1.u32 != 0
s_lshr_b32                       | D.u32 = S0.u32 >> S1.u32 ; SCC = S0.u32 >> S1.u32 != 0
s_lshr_b64                       | D.u64 = S0.u64 >> S1.u32 ; SCC = S0.u64 >> S1.u32 != 0
s_ashr_i32                       | D.i32 = S0.i32 >> S1.u32 ; SCC = S0.i32 >> S1.u32 != 0
s_ashr_i64                       | D.i64 = S0.i64 >> S1.u32 ; SCC = S0.i64 >> S1.u32 != 0
s_bfm_b32                        | D.u32 = mask_of(S0.u32, S1.u32)
s_bfm_b64                        | D.u64 = mask_of(u64(S0.u32), S1.u32)
s_mul_i32                        | D.i32 = S0.i32 * S1.i32
s_mul_hi_u32                     | D.u32 = mul_hi(S0.u32, S1.u32)
s_mul_hi_i32                     | D.i32 = mul_hi(S0.i32, S1.i32)
s_bfe_u32                        | D.u32 = wide_bit_field(S0.u32, S1.u32) ; SCC = wide_bit_field(S0.u32, S1.u32) != 0
s_bfe_i32                        | D.i32 = wide_bit_field(S0.i32, S1.u32.bits('i32')) ; SCC = wide_bit_field(S0.i32, S1.i32) != 0
s_bfe_u64                        | D.u64 = wide_bit_field(S0.u64, u64(S1.u32)) ; SCC = wide_bit_field(S0.u64, u64(S1.u32)) != 0
s_bfe_i64                        | D.i64 = wide_bit_field(S0.i64, i64(S1.u32)) ; SCC = wide_bit_field(S0.i64, i64(S1.u32)) != 0
s_absdiff_i32                    | D.i32 = absolute(S0.i32 - S1.i32) ; SCC = S0.i32 != S1.i32
s_lshl1_add_u32                  | D.u32 = (S0.u32 << 1) + S1.u32 ; SCC = (u64(S0.u32) << 1) + u64(S1.u32) >= 1 << 32
s_lshl2_add_u32                  | D.u32 = (S0.u32 << 2) + S1.u32 ; SCC = (u64(S0.u32) << 2) + u64(S1.u32) >= 1 << 32
s_lshl3_add_u32                  | D.u32 = (S0.u32 << 3) + S1.u32 ; SCC = (u64(S0.u32) << 3) + u64(S1.u32) >= 1 << 32
s_lshl4_add_u32                  | D.u32 = (S0.u32 << 4) + S1.u32 ; SCC = (u64(S0.u32) << 4) + u64(S1.u32) >= 1 << 32
s_pack_ll_b32_b16                | D.u32 = S0.u32 & 0xffff | S1.u32 << 16
s_pack_lh_b32_b16                | D.u32 = S0.u32 & 0xffff | S1.u32 & 0xffff0000
s_pack_hh_b32_b16                | D.u32 = S0.u32 >> 16 | S1.u32 & 0xffff0000
s_pack_hl_b32_b16                | D.u32 = S0.u32 >> 16 | S1.u32 << 16
{_logic()}

# RDNA2 ISA 12.3 SOP1
s_mov_b32                        | D.u32 = S0.u32
s_mov_b64                        | D.u64 = S0.u64
s_cmov_b32                       | D.u32 = select(SCC, S0.u32, D.u32)
s_cmov_b64                       | D.u64 = select(SCC, S0.u64, D.u64)
s_not_b32                        | D.u32 = ~S0.u32 ; SCC = ~S0.u32 != 0
s_not_b64                        | D.u64 = ~S0.u64 ; SCC = ~S0.u64 != 0
s_wqm_b32                        | D.u32 = whole_quads(S0.u32) ; SCC = whole_quads(S0.u32) != 0
s_wqm_b64                        | D.u64 = whole_quads(S0.u64) ; SCC = whole_quads(S0.u64) != 0
s_quadmask_b32                   | D.u32 = quad_mask(S0.u32) ; SCC = quad_mask(S0.u32) != 0
s_quadmask_b64                   | D.u64 = quad_mask(S0.u64) ; SCC = quad_mask(S0.u64) != 0
s_brev_b32                       | D.u32 = reverse(S0.u32)
s_brev_b64                       | D.u64 = reverse(S0.u64)
s_bcnt0_i32_b32                  | D.u32 = popcount(~S0.u32) ; SCC = popcount(~S0.u32) != 0
s_bcnt0_i32_b64                  | D.u32 = u32(popcount(~S0.u64)) ; SCC = popcount(~S0.u64) != 0
s_bcnt1_i32_b32                  | D.u32 = popcount(S0.u32) ; SCC = S0.u32 != 0
s_bcnt1_i32_b64                  | D.u32 = u32(popcount(S0.u64)) ; SCC = S0.u64 != 0
s_ff0_i32_b32                    | D.i32 = find_first(~S0.u32)
s_ff0_i32_b64                    | D.i32 = find_first(~S0.u64)
s_ff1_i32_b32/s_ctz_i32_b32      | D.i32 = find_first(S0.u32)
s_ff1_i32_b64/s_ctz_i32_b64      | D.i32 = find_first(S0.u64)
s_flbit_i32_b32/s_clz_i32_u32    | D.i32 = leading_zeros(S0.u32)
s_flbit_i32_b64/s_clz_i32_u64    | D.i32 = leading_zeros(S0.u64)
s_flbit_i32/s_cls_i32            | D.i32 = sign_run(S0.i32)
s_flbit_i32_i64/s_cls_i32_i64    | D.i32 = sign_run(S0.i64)
s_sext_i32_i8                    | D.i32 = S0.i32 << 24 >> 24
s_sext_i32_i16                   | D.i32 = S0.i32 << 16 >> 16
s_bitset0_b32                    | D.u32 = D.u32 & ~(same(S0.u32, 1) << S0.u32)
s_bitset0_b64                    | D.u64 = D.u64 & ~(same(D.u64, 1) << S0.u32)
s_bitset1_b32                    | D.u32 = D.u32 | same(S0.u32, 1) << S0.u32
s_bitset1_b64                    | D.u64 = D.u64 | same(D.u64, 1) << S0.u32
s_bitreplicate_b64_b32           | D.u64 = replicate(S0.u32)
s_abs_i32                        | D.i32 = absolute(S0.i32) ; SCC = S0.i32 != 0
s_cvt_f32_i32                    | D.f32 = f32(S0.i32)
s_cvt_f32_u32                    | D.f32 = f32(S0.u32)
s_cvt_i32_f32                    | D.i32 = to_int(S0.f32, 'i32')
s_cvt_u32_f32                    | D.u32 = to_int(S0.f32, 'u32')
s_cvt_f16_f32                    | D.f16 = f16(S0.f32)
s_cvt_f32_f16                    | D.f32 = f32(S0.f16)
s_cvt_pk_rtz_f16_f32             | D.u32 = pack(truncated_half(S0.f32), truncated_half(S1.f32))
s_fmaak_f32                      | D.f32 = fma(S0.f32, S1.f32, S2.f32)
s_fmamk_f32                      | D.f32 = fma(S0.f32, S1.f32, S2.f32)
{_float("f32")}
{_float("f16")}

# RDNA2 ISA 12.4 SOPC
s_bitcmp0_b32                    | SCC = (S0.u32 >> S1.u32 & 1) == 0
s_bitcmp1_b32                    | SCC = (S0.u32 >> S1.u32 & 1) != 0
s_bitcmp0_b64                    | SCC = (S0.u64 >> S1.u32 & 1) == 0
s_bitcmp1_b64                    | SCC = (S0.u64 >> S1.u32 & 1) != 0
{_comparisons()}

# RDNA2 ISA 12.2 SOPK
s_movk_i32                       | D.i32 = S0.i16x
s_cmovk_i32                      | D.i32 = select(SCC, S0.i16x, D.i32)
s_addk_i32/s_addk_co_i32         | D.i32 = D.i32 + S0.i16x ; SCC = i64(D.i32) + i64(S0.i16x) != i64(D.i32 + S0.i16x)
s_mulk_i32                       | D.i32 = D.i32 * S0.i16x
"""
