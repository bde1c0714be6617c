"""Comparison and selection (PTX ISA 9.7.6 and 9.7.7)."""

ROWS = """
set.cmp{.ftz}.dtype.stype d, a, b               ; dtype = u32 s32 f32 ; stype = <bits> <int> f32 f64
set.cmp.boolop{.ftz}.dtype.stype d, a, b, !c    ; dtype = u32 s32 f32 ; stype = <bits> <int> f32 f64
set.cmp{.ftz}.dtype.stype d, a, b               ; dtype = f16 bf16 ; stype = <bits> <int> f16 bf16 f32 f64
set.cmp.boolop{.ftz}.dtype.stype d, a, b, !c    ; dtype = f16 bf16 ; stype = <bits> <int> f16 bf16 f32 f64
set.cmp{.ftz}.dtype.stype d, a, b               ; dtype = <int> ; stype = f16 bf16
set.cmp.boolop{.ftz}.dtype.stype d, a, b, !c    ; dtype = <int> ; stype = f16 bf16
set.cmp{.ftz}.dtype.stype d, a, b               ; dtype = f16x2 u32 s32 ; stype = f16x2
set.cmp.boolop{.ftz}.dtype.stype d, a, b, !c    ; dtype = f16x2 u32 s32 ; stype = f16x2
set.cmp.dtype.stype d, a, b                     ; dtype = bf16x2 u32 s32 ; stype = bf16x2
set.cmp.boolop.dtype.stype d, a, b, !c          ; dtype = bf16x2 u32 s32 ; stype = bf16x2
setp.cmp.type d{|p}, a, b                       ; type = <bits> <int> f64 ; as = d{|p}:pred
setp.cmp.boolop.type d{|p}, a, b, !c            ; type = <bits> <int> f64 ; as = d{|p}:pred
setp.cmp{.ftz}.type d{|p}, a, b                 ; type = f32 ; as = d{|p}:pred
setp.cmp.boolop{.ftz}.type d{|p}, a, b, !c      ; type = f32 ; as = d{|p}:pred
setp.cmp{.ftz}.type d, a, b                     ; type = f16 bf16 ; as = d:pred
setp.cmp.boolop{.ftz}.type d, a, b, !c          ; type = f16 bf16 ; as = d:pred
setp.cmp{.ftz}.type d|p, a, b                   ; type = f16x2 bf16x2 ; as = d|p:pred
setp.cmp.boolop{.ftz}.type d|p, a, b, !c        ; type = f16x2 bf16x2 ; as = d|p:pred
selp.type d, a, b, !c                           ; type = <bits> <int> f32 f64
slct.dtype.stype d, a, b, c                     ; dtype = <bits> <int> f32 f64 ; stype = s32 ; as = a:dtype b:dtype
slct{.ftz}.dtype.stype d, a, b, c               ; dtype = <bits> <int> f32 f64 ; stype = f32 ; as = a:dtype b:dtype
"""
