"""Integer, floating-point, half-precision, logic and shift instructions (PTX ISA 9.7.1 to 9.7.5, 9.7.8)."""

ROWS = """
# 9.7.1 integer arithmetic
add.type d, a, b                            ; type = <int> u16x2 s16x2
add.sat.type d, a, b                        ; type = s32
sub.type d, a, b                            ; type = <int>
sub.sat.type d, a, b                        ; type = s32
mul.mode.type d, a, b                       ; mode = hi lo ; type = <int>
mul.mode.type d, a, b                       ; mode = wide ; type = u16 u32 s16 s32 ; as = d:double
mad.mode.type d, a, b, c                    ; mode = hi lo ; type = <int>
mad.mode.type d, a, b, c                    ; mode = wide ; type = u16 u32 s16 s32 ; as = d:double c:double
mad.mode.sat.type d, a, b, c                ; mode = hi ; type = s32
mul24.mode.type d, a, b                     ; mode = hi lo ; type = u32 s32
mad24.mode.type d, a, b, c                  ; mode = hi lo ; type = u32 s32
mad24.mode.sat.type d, a, b, c              ; mode = hi ; type = s32
sad.type d, a, b, c                         ; type = <int>
div.type d, a, b                            ; type = <int>
rem.type d, a, b                            ; type = <int>
abs.type d, a                               ; type = s16 s32 s64
neg.type d, a                               ; type = s16 s32 s64
min.type d, a, b                            ; type = <int> u16x2 s16x2
min.relu.type d, a, b                       ; type = s16x2 s32
max.type d, a, b                            ; type = <int> u16x2 s16x2
max.relu.type d, a, b                       ; type = s16x2 s32
popc.type d, a                              ; type = b32 b64 ; as = d:count
clz.type d, a                               ; type = b32 b64 ; as = d:count
bfind{.shiftamt}.type d, a                  ; type = u32 u64 s32 s64 ; as = d:count
fns.type d, a, b, c                         ; type = b32
brev.type d, a                              ; type = b32 b64
bfe.type d, a, b, c                         ; type = u32 u64 s32 s64 ; as = b:count c:count
bfi.type d, a, b, c, e                      ; type = b32 b64 ; as = c:count e:count
bmsk.mode.type d, a, b                      ; mode = clamp wrap ; type = b32 ; as = d:count a:count b:count
szext.mode.type d, a, b                     ; mode = clamp wrap ; type = u32 s32 ; as = b:count
dp4a.atype.btype d, a, b, c                 ; atype = u32 s32 ; btype = u32 s32
dp2a.mode.atype.btype d, a, b, c            ; mode = lo hi ; atype = u32 s32 ; btype = u32 s32 ; as = d:count c:count
# 9.7.2 extended precision
add.cc.type d, a, b                         ; type = u32 s32 u64 s64
addc{.cc}.type d, a, b                      ; type = u32 s32 u64 s64
sub.cc.type d, a, b                         ; type = u32 s32 u64 s64
subc{.cc}.type d, a, b                      ; type = u32 s32 u64 s64
mad.mode.cc.type d, a, b, c                 ; mode = hi lo ; type = u32 s32 u64 s64
madc.mode{.cc}.type d, a, b, c              ; mode = hi lo ; type = u32 s32 u64 s64
# 9.7.3 floating point, 9.7.4 half precision, 9.7.5 mixed precision
testp.test.type d, a                        ; test = finite infinite number notanumber normal subnormal ; type = f32 f64 ; as = d:pred
copysign.type d, a, b                       ; type = f32 f64
add{.rnd}{.ftz}{.sat}.type d, a, b          ; type = f32
add{.rnd}.type d, a, b                      ; type = f64
add{.rnd}{.ftz}.type d, a, b                ; type = f32x2
add{.rnd}{.ftz}{.sat}.type d, a, b          ; rnd = rn ; type = f16 f16x2
add{.rnd}.type d, a, b                      ; rnd = rn ; type = bf16 bf16x2
add{.rnd}{.sat}.dtype.atype d, a, c         ; dtype = f32 ; atype = f16 bf16 ; as = c:dtype
sub{.rnd}{.ftz}{.sat}.type d, a, b          ; type = f32
sub{.rnd}.type d, a, b                      ; type = f64
sub{.rnd}{.ftz}.type d, a, b                ; type = f32x2
sub{.rnd}{.ftz}{.sat}.type d, a, b          ; rnd = rn ; type = f16 f16x2
sub{.rnd}.type d, a, b                      ; rnd = rn ; type = bf16 bf16x2
sub{.rnd}{.sat}.dtype.atype d, a, c         ; dtype = f32 ; atype = f16 bf16 ; as = c:dtype
mul{.rnd}{.ftz}{.sat}.type d, a, b          ; type = f32
mul{.rnd}.type d, a, b                      ; type = f64
mul{.rnd}{.ftz}.type d, a, b                ; type = f32x2
mul{.rnd}{.ftz}{.sat}.type d, a, b          ; rnd = rn ; type = f16 f16x2
mul{.rnd}.type d, a, b                      ; rnd = rn ; type = bf16 bf16x2
fma.rnd{.ftz}{.sat}.type d, a, b, c         ; type = f32
fma.rnd.type d, a, b, c                     ; type = f64
fma.rnd{.ftz}.type d, a, b, c               ; type = f32x2
fma.rnd{.ftz}{.sat}.type d, a, b, c         ; rnd = rn ; type = f16 f16x2
fma.rnd{.ftz}.relu.type d, a, b, c          ; rnd = rn ; type = f16 f16x2
fma.rnd{.relu}.type d, a, b, c              ; rnd = rn ; type = bf16 bf16x2
fma.rnd.oob{.relu}.type d, a, b, c          ; rnd = rn ; type = <half>
fma.rnd{.sat}.dtype.atype d, a, b, c        ; dtype = f32 ; atype = f16 bf16 ; as = c:dtype
mad.rnd{.ftz}{.sat}.type d, a, b, c         ; type = f32
mad.rnd.type d, a, b, c                     ; type = f64
div.approx{.ftz}.type d, a, b               ; type = f32
div.full{.ftz}.type d, a, b                 ; type = f32
div.rnd{.ftz}.type d, a, b                  ; type = f32
div.rnd.type d, a, b                        ; type = f64
abs{.ftz}.type d, a                         ; type = f32 f16 f16x2
abs.type d, a                               ; type = f64 bf16 bf16x2
neg{.ftz}.type d, a                         ; type = f32 f16 f16x2
neg.type d, a                               ; type = f64 bf16 bf16x2
min{.ftz}{.NaN}.type d, a, b                    ; type = f32 f16 f16x2
min{.ftz}{.NaN}.xorsign.abs.type d, a, b        ; type = f32 f16 f16x2
min{.ftz}{.NaN}{.abs}.type d, a, b, c           ; type = f32
min.type d, a, b                                ; type = f64
min{.NaN}.type d, a, b                          ; type = bf16 bf16x2
min{.NaN}.xorsign.abs.type d, a, b              ; type = bf16 bf16x2
max{.ftz}{.NaN}.type d, a, b                    ; type = f32 f16 f16x2
max{.ftz}{.NaN}.xorsign.abs.type d, a, b        ; type = f32 f16 f16x2
max{.ftz}{.NaN}{.abs}.type d, a, b, c           ; type = f32
max.type d, a, b                                ; type = f64
max{.NaN}.type d, a, b                          ; type = bf16 bf16x2
max{.NaN}.xorsign.abs.type d, a, b              ; type = bf16 bf16x2
rcp.approx{.ftz}.type d, a                  ; type = f32
rcp.approx.ftz.type d, a                    ; type = f64
rcp.rnd{.ftz}.type d, a                     ; type = f32
rcp.rnd.type d, a                           ; type = f64
sqrt.approx{.ftz}.type d, a                 ; type = f32
sqrt.rnd{.ftz}.type d, a                    ; type = f32
sqrt.rnd.type d, a                          ; type = f64
rsqrt.approx{.ftz}.type d, a                ; type = f32 f64
sin.approx{.ftz}.type d, a                  ; type = f32
cos.approx{.ftz}.type d, a                  ; type = f32
lg2.approx{.ftz}.type d, a                  ; type = f32
ex2.approx{.ftz}.type d, a                  ; type = f32
ex2.approx.type d, a                        ; type = f16 f16x2
ex2.approx.ftz.type d, a                    ; type = bf16 bf16x2
tanh.approx.type d, a                       ; type = f32 <half>
# 9.7.8 logic and shift
and.type d, !a, !b                          ; type = pred
and.type d, a, b                            ; type = <bits>
or.type d, !a, !b                           ; type = pred
or.type d, a, b                             ; type = <bits>
xor.type d, !a, !b                          ; type = pred
xor.type d, a, b                            ; type = <bits>
not.type d, !a                              ; type = pred
not.type d, a                               ; type = <bits>
cnot.type d, a                              ; type = <bits>
lop3.type d, a, b, c, e                     ; type = b32 ; as = e:constant
lop3.boolop.type d|p, a, b, c, e, !q        ; boolop = and or ; type = b32 ; as = e:constant
shf.dir.mode.type d, a, b, c                ; dir = l r ; mode = clamp wrap ; type = b32 ; as = c:count
shl.type d, a, b                            ; type = <bits> ; as = b:count
shr.type d, a, b                            ; type = <bits> <int> ; as = b:count
prmt.type{.mode} d, a, b, c                 ; type = b32 ; mode = f4e b4e rc8 ecl ecr rc16
"""
