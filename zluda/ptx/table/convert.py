"""``cvt`` (PTX ISA 9.7.9.22) and the address conversions ``cvta``, ``isspacep``, ``mapa``, ``getctarank``."""

ROWS = """
cvt{.sat}.dtype.atype d, a                  ; dtype = <int8> ; atype = <int8> ; as = d:dtype+ a:atype+%
cvt.rnd{.ftz}{.sat}.dtype.atype d, a        ; dtype = f32 ; atype = <int8> ; as = d:dtype+ a:atype+
cvt.rnd{.sat}.dtype.atype d, a              ; dtype = f16 f64 ; atype = <int8> ; as = d:dtype+ a:atype+
cvt.rnd.dtype.atype d, a                    ; dtype = bf16 ; atype = <int>
cvt.rnd{.ftz}{.sat}.dtype.atype d, a        ; rnd = rni rzi rmi rpi ; dtype = <int8> ; atype = f32 ; as = d:dtype+ a:atype+
cvt.rnd{.sat}.dtype.atype d, a              ; rnd = rni rzi rmi rpi ; dtype = <int8> ; atype = f16 f64 ; as = d:dtype+ a:atype+
cvt.rnd.dtype.atype d, a                    ; rnd = rni rzi rmi rpi ; dtype = <int> ; atype = bf16
cvt.rnd.dtype.atype d, a                    ; rnd = rni rzi rmi rpi ; dtype = u8 s8 ; atype = bf16 ; as = d:dtype+
cvt{.rnd}{.ftz}{.sat}.dtype.atype d, a      ; rnd = rni rzi rmi rpi ; dtype = f32 ; atype = f32 ; as = d:dtype+ a:atype+
cvt{.rnd}{.sat}.dtype.atype d, a            ; rnd = rni rzi rmi rpi ; dtype = f16 ; atype = f16 ; as = d:dtype+ a:atype+
cvt{.rnd}{.sat}.dtype.atype d, a            ; rnd = rni rzi rmi rpi ; dtype = f64 ; atype = f64 ; as = d:dtype+ a:atype+
cvt{.rnd}.dtype.atype d, a                  ; rnd = rni rzi rmi rpi ; dtype = bf16 ; atype = bf16 ; as = d:dtype+ a:atype+
cvt.rnd{.ftz}{.sat}.dtype.atype d, a        ; dtype = f32 ; atype = f64 ; as = d:dtype+ a:atype+
cvt{.ftz}{.sat}.dtype.atype d, a            ; dtype = f32 ; atype = f16 ; as = d:dtype+ a:atype+
cvt{.ftz}.dtype.atype d, a                  ; dtype = f32 ; atype = bf16
cvt{.ftz}{.sat}.dtype.atype d, a            ; dtype = f64 ; atype = f32 ; as = d:dtype+ a:atype+
cvt{.sat}.dtype.atype d, a                  ; dtype = f64 ; atype = f16 ; as = d:dtype+ a:atype+
cvt.dtype.atype d, a                        ; dtype = f64 ; atype = bf16
cvt.rnd{.ftz}{.sat}.dtype.atype d, a        ; dtype = f16 ; atype = f32 ; as = d:dtype+ a:atype+
cvt.rnd{.sat}.dtype.atype d, a              ; dtype = f16 ; atype = f64 ; as = d:dtype+ a:atype+
cvt.rnd{.relu}{.satfinite}.dtype.atype d, a ; rnd = rn rz ; dtype = f16 ; atype = f32 ; as = d:dtype+ a:atype+
cvt.rnd{.relu}{.satfinite}.dtype.atype d, a ; rnd = rn rz ; dtype = bf16 ; atype = f32
cvt.rnd{.ftz}.dtype.atype d, a              ; dtype = bf16 ; atype = f32
cvt.rnd.dtype.atype d, a                    ; dtype = bf16 ; atype = f64
cvt{.rnd}.dtype.atype d, a                  ; dtype = bf16 ; atype = f16
cvt{.rnd}.dtype.atype d, a                  ; dtype = f16 ; atype = bf16
cvt.rnd{.relu}{.satfinite}.dtype.atype d, a, b      ; rnd = rn rz ; dtype = f16x2 ; atype = f32 ; as = d:dtype+ a:atype+ b:atype+
cvt.rnd{.relu}{.satfinite}.dtype.atype d, a, b      ; rnd = rn rz ; dtype = bf16x2 ; atype = f32 ; as = b:atype
cvt.rnd{.relu}{.satfinite}.dtype.atype d, a, b, u   ; rnd = rs ; dtype = f16x2 ; atype = f32 ; as = d:dtype+ a:atype+ b:atype+ u:u32
cvt.rnd{.relu}{.satfinite}.dtype.atype d, a, b, u   ; rnd = rs ; dtype = bf16x2 ; atype = f32 ; as = b:atype u:u32
cvt.rnd{.satfinite}.dtype.atype d, a                ; rnd = rna ; dtype = tf32 ; atype = f32
cvt.rnd{.satfinite}{.relu}.dtype.atype d, a         ; rnd = rn rz ; dtype = tf32 ; atype = f32
cvt.rnd.satfinite{.relu}.dtype.atype d, a, b        ; rnd = rn ; dtype = <fp8x2> <fp6x2> e2m1x2 ; atype = f32
cvt.rnd.satfinite{.relu}.dtype.atype d, a           ; rnd = rn ; dtype = <fp8x2> <fp6x2> e2m1x2 ; atype = f16x2
cvt.rnd{.relu}.dtype.atype d, a                     ; rnd = rn ; dtype = f16x2 ; atype = <fp8x2> <fp6x2> e2m1x2
cvt.rnd{.relu}.satfinite.dtype.atype d, A, u        ; rnd = rs ; dtype = <fp8x4> e2m1x4 ; atype = f32 ; as = u:u32
cvt.rnd{.satfinite}.dtype.atype d, a, b             ; rnd = rz rp ; dtype = ue8m0x2 ; atype = f32
cvt.rnd{.satfinite}.dtype.atype d, a                ; rnd = rz rp ; dtype = ue8m0x2 ; atype = bf16x2
cvt.rnd.dtype.atype d, a                            ; rnd = rn ; dtype = bf16x2 ; atype = ue8m0x2
cvt.pack.sat.dtype.atype d, a, b                    ; dtype = u16 s16 ; atype = s32 ; as = d:u32
cvt.pack.sat.dtype.atype.ctype d, a, b, c           ; dtype = u2 s2 u4 s4 u8 s8 ; atype = s32 ; ctype = b32 ; as = d:u32 a:atype+ b:atype+
cvta.space.type d, m                        ; space = const global local shared shared::cta shared::cluster param param::entry ; type = u32 u64
cvta.to.space.type d, m                     ; space = const global local shared shared::cta shared::cluster param param::entry ; type = u32 u64
isspacep.space d, a                         ; space = const global local shared shared::cta shared::cluster param param::entry ; as = d:pred a:pointer
mapa{.space}.type d, m, b                   ; space = shared::cluster ; type = u32 u64 ; as = b:count
getctarank{.space}.type d, m                ; space = shared::cluster ; type = u32 u64 ; as = d:count
"""
