"""Warp- and warpgroup-level matrix instructions (PTX ISA 9.7.14 to 9.7.16)."""

ROWS = """
wmma.load.fragment.sync.aligned.layout.shape{.space}.type D, [a]{, b}    ; fragment = a b c ; shape = m16n16k16 m8n32k16 m32n8k16 m16n16k8 m8n8k4 m8n8k32 m8n8k128 ; space = global shared shared::cta ; type = f16 bf16 f32 f64 tf32 s8 u8 s4 u4 b1 s32 ; as = b:count
wmma.store.fragment.sync.aligned.layout.shape{.space}.type [a], D{, b}   ; fragment = d ; shape = m16n16k16 m8n32k16 m32n8k16 m16n16k8 m8n8k4 m8n8k32 m8n8k128 ; space = global shared shared::cta ; type = f16 f32 f64 s32 ; as = b:count
wmma.mma.sync.aligned.alayout.blayout.shape.dtype.ctype{.satfinite} D, A, B, C ; shape = m16n16k16 m8n32k16 m32n8k16 ; dtype = f16 f32 ; ctype = f16 f32
wmma.mma.sync.aligned.alayout.blayout.shape.dtype.atype.btype.ctype{.satfinite} D, A, B, C ; shape = m16n16k16 m8n32k16 m32n8k16 ; dtype = s32 ; atype = s8 ; btype = s8 ; ctype = s32
wmma.mma.sync.aligned.alayout.blayout.shape.dtype.atype.btype.ctype{.satfinite} D, A, B, C ; shape = m16n16k16 m8n32k16 m32n8k16 ; dtype = s32 ; atype = u8 ; btype = u8 ; ctype = s32
wmma.mma.sync.aligned.alayout.blayout.shape.dtype.atype.btype.ctype{.satfinite} D, A, B, C ; shape = m8n8k32 ; dtype = s32 ; atype = s4 ; btype = s4 ; ctype = s32
wmma.mma.sync.aligned.alayout.blayout.shape.dtype.atype.btype.ctype{.satfinite} D, A, B, C ; shape = m8n8k32 ; dtype = s32 ; atype = u4 ; btype = u4 ; ctype = s32
wmma.mma.sync.aligned.alayout.blayout.shape.dtype.atype.btype.ctype D, A, B, C ; shape = m16n16k16 m8n32k16 m32n8k16 ; dtype = f32 ; atype = bf16 ; btype = bf16 ; ctype = f32
wmma.mma.sync.aligned.alayout.blayout.shape.dtype.atype.btype.ctype D, A, B, C ; shape = m16n16k8 ; dtype = f32 ; atype = tf32 ; btype = tf32 ; ctype = f32
wmma.mma.sync.aligned.alayout.blayout.shape{.rnd}.dtype.atype.btype.ctype D, A, B, C ; shape = m8n8k4 ; dtype = f64 ; atype = f64 ; btype = f64 ; ctype = f64
wmma.mma.op.popc.sync.aligned.alayout.blayout.shape.dtype.atype.btype.ctype D, A, B, C ; op = xor and ; shape = m8n8k128 ; dtype = s32 ; atype = b1 ; btype = b1 ; ctype = s32

mma.sync.aligned.shape.alayout.blayout.dtype.atype.btype.ctype D, A, B, C ; shape = m8n8k4 ; dtype = f16 f32 ; atype = f16 ; btype = f16 ; ctype = f16 ; as = *:any
mma.sync.aligned.shape.alayout.blayout.dtype.atype.btype.ctype D, A, B, C ; shape = m8n8k4 ; dtype = f32 ; atype = f16 ; btype = f16 ; ctype = f32 ; as = *:any
mma.sync.aligned.shape.alayout.blayout.dtype.atype.btype.ctype D, A, B, C ; shape = m16n8k8 m16n8k16 ; dtype = f16 ; atype = f16 ; btype = f16 ; ctype = f16 ; as = *:any
mma.sync.aligned.shape.alayout.blayout.dtype.atype.btype.ctype D, A, B, C ; shape = m16n8k8 m16n8k16 ; dtype = f32 ; atype = f16 ; btype = f16 ; ctype = f32 ; as = *:any
mma.sync.aligned.shape.alayout.blayout.dtype.atype.btype.ctype D, A, B, C ; shape = m16n8k8 m16n8k16 ; dtype = f32 ; atype = bf16 ; btype = bf16 ; ctype = f32 ; as = *:any
mma.sync.aligned.shape.alayout.blayout.dtype.atype.btype.ctype D, A, B, C ; shape = m16n8k4 m16n8k8 ; dtype = f32 ; atype = tf32 ; btype = tf32 ; ctype = f32 ; as = *:any
mma.sync.aligned.shape.alayout.blayout.dtype.atype.btype.ctype D, A, B, C ; shape = m16n8k16 m16n8k32 ; dtype = f16 ; atype = e4m3 e5m2 ; btype = e4m3 e5m2 ; ctype = f16 ; as = *:any
mma.sync.aligned.shape.alayout.blayout.dtype.atype.btype.ctype D, A, B, C ; shape = m16n8k16 m16n8k32 ; dtype = f32 ; atype = e4m3 e5m2 ; btype = e4m3 e5m2 ; ctype = f32 ; as = *:any
mma.sync.aligned.shape.alayout.blayout.kind.dtype.atype.btype.ctype D, A, B, C ; shape = m16n8k32 ; alayout = row ; blayout = col ; kind = kind::f8f6f4 ; dtype = f16 ; atype = e4m3 e5m2 e3m2 e2m3 e2m1 ; btype = e4m3 e5m2 e3m2 e2m3 e2m1 ; ctype = f16 ; as = *:any
mma.sync.aligned.shape.alayout.blayout.kind.dtype.atype.btype.ctype D, A, B, C ; shape = m16n8k16 ; alayout = row ; blayout = col ; kind = kind::f8f6f4 ; dtype = f16 ; atype = e4m3 e5m2 ; btype = e4m3 e5m2 ; ctype = f16 ; as = *:any
mma.sync.aligned.shape.alayout.blayout.kind.dtype.atype.btype.ctype D, A, B, C ; shape = m16n8k32 ; alayout = row ; blayout = col ; kind = kind::f8f6f4 ; dtype = f32 ; atype = e4m3 e5m2 e3m2 e2m3 e2m1 ; btype = e4m3 e5m2 e3m2 e2m3 e2m1 ; ctype = f32 ; as = *:any
mma.sync.aligned.shape.alayout.blayout.kind.dtype.atype.btype.ctype D, A, B, C ; shape = m16n8k16 ; alayout = row ; blayout = col ; kind = kind::f8f6f4 ; dtype = f32 ; atype = e4m3 e5m2 ; btype = e4m3 e5m2 ; ctype = f32 ; as = *:any
mma.sync.aligned.shape.alayout.blayout.kind.block_scale{.scale_vec}.dtype.atype.btype.ctype.stype D, A, B, C, a, A1, b, B1 ; shape = m16n8k32 ; alayout = row ; blayout = col ; kind = kind::mxf8f6f4 ; scale_vec = scale_vec::1X ; dtype = f32 ; atype = e4m3 e5m2 e3m2 e2m3 e2m1 ; btype = e4m3 e5m2 e3m2 e2m3 e2m1 ; ctype = f32 ; stype = ue8m0 ; as = *:any
mma.sync.aligned.shape.alayout.blayout.kind.block_scale{.scale_vec}.dtype.atype.btype.ctype.stype D, A, B, C, a, A1, b, B1 ; shape = m16n8k64 ; alayout = row ; blayout = col ; kind = kind::mxf4 ; scale_vec = scale_vec::2X ; dtype = f32 ; atype = e2m1 ; btype = e2m1 ; ctype = f32 ; stype = ue8m0 ; as = *:any
mma.sync.aligned.shape.alayout.blayout.kind.block_scale.scale_vec.dtype.atype.btype.ctype.stype D, A, B, C, a, A1, b, B1 ; shape = m16n8k64 ; alayout = row ; blayout = col ; kind = kind::mxf4nvf4 ; scale_vec = scale_vec::2X scale_vec::4X ; dtype = f32 ; atype = e2m1 ; btype = e2m1 ; ctype = f32 ; stype = ue8m0 ; as = *:any
mma.sync.aligned.shape.alayout.blayout.kind.block_scale.scale_vec.dtype.atype.btype.ctype.stype D, A, B, C, a, A1, b, B1 ; shape = m16n8k64 ; alayout = row ; blayout = col ; kind = kind::mxf4nvf4 ; scale_vec = scale_vec::4X ; dtype = f32 ; atype = e2m1 ; btype = e2m1 ; ctype = f32 ; stype = ue4m3 ; as = *:any
mma.sync.aligned.shape.alayout.blayout{.satfinite}.dtype.atype.btype.ctype D, A, B, C ; shape = m8n8k16 m16n8k16 m16n8k32 ; dtype = s32 ; atype = u8 s8 ; btype = u8 s8 ; ctype = s32 ; as = *:any
mma.sync.aligned.shape.alayout.blayout{.satfinite}.dtype.atype.btype.ctype D, A, B, C ; shape = m8n8k32 m16n8k32 m16n8k64 ; dtype = s32 ; atype = u4 s4 ; btype = u4 s4 ; ctype = s32 ; as = *:any
mma.sync.aligned.shape.alayout.blayout.dtype.atype.btype.ctype.op.popc D, A, B, C ; shape = m8n8k128 m16n8k128 m16n8k256 ; dtype = s32 ; atype = b1 ; btype = b1 ; ctype = s32 ; op = xor and ; as = *:any
mma.sync.aligned.shape.alayout.blayout{.rnd}.dtype.atype.btype.ctype D, A, B, C ; shape = m8n8k4 m16n8k4 m16n8k8 m16n8k16 ; dtype = f64 ; atype = f64 ; btype = f64 ; ctype = f64 ; as = *:any
mma.sp.sync.aligned.shape.alayout.blayout.dtype.atype.btype.ctype D, A, B, C, e, f ; sp = sp sp::ordered_metadata ; shape = m16n8k16 m16n8k32 ; dtype = f16 ; atype = f16 ; btype = f16 ; ctype = f16 ; as = *:any
mma.sp.sync.aligned.shape.alayout.blayout.dtype.atype.btype.ctype D, A, B, C, e, f ; sp = sp sp::ordered_metadata ; shape = m16n8k16 m16n8k32 ; dtype = f32 ; atype = f16 ; btype = f16 ; ctype = f32 ; as = *:any
mma.sp.sync.aligned.shape.alayout.blayout.dtype.atype.btype.ctype D, A, B, C, e, f ; sp = sp sp::ordered_metadata ; shape = m16n8k16 m16n8k32 ; dtype = f32 ; atype = bf16 ; btype = bf16 ; ctype = f32 ; as = *:any
mma.sp.sync.aligned.shape.alayout.blayout.dtype.atype.btype.ctype D, A, B, C, e, f ; sp = sp sp::ordered_metadata ; shape = m16n8k8 m16n8k16 ; dtype = f32 ; atype = tf32 ; btype = tf32 ; ctype = f32 ; as = *:any
mma.sp.sync.aligned.shape.alayout.blayout.dtype.atype.btype.ctype D, A, B, C, e, f ; sp = sp sp::ordered_metadata ; shape = m16n8k64 ; dtype = f16 ; atype = e4m3 e5m2 ; btype = e4m3 e5m2 ; ctype = f16 ; as = *:any
mma.sp.sync.aligned.shape.alayout.blayout.dtype.atype.btype.ctype D, A, B, C, e, f ; sp = sp sp::ordered_metadata ; shape = m16n8k64 ; dtype = f32 ; atype = e4m3 e5m2 ; btype = e4m3 e5m2 ; ctype = f32 ; as = *:any
mma.sp.sync.aligned.shape.alayout.blayout.kind.dtype.atype.btype.ctype D, A, B, C, e, f ; sp = sp::ordered_metadata ; shape = m16n8k64 ; alayout = row ; blayout = col ; kind = kind::f8f6f4 ; dtype = f16 ; atype = e4m3 e5m2 e3m2 e2m3 e2m1 ; btype = e4m3 e5m2 e3m2 e2m3 e2m1 ; ctype = f16 ; as = *:any
mma.sp.sync.aligned.shape.alayout.blayout.kind.dtype.atype.btype.ctype D, A, B, C, e, f ; sp = sp::ordered_metadata ; shape = m16n8k64 ; alayout = row ; blayout = col ; kind = kind::f8f6f4 ; dtype = f32 ; atype = e4m3 e5m2 e3m2 e2m3 e2m1 ; btype = e4m3 e5m2 e3m2 e2m3 e2m1 ; ctype = f32 ; as = *:any
mma.sp.sync.aligned.shape.alayout.blayout.kind.block_scale{.scale_vec}.dtype.atype.btype.ctype.stype D, A, B, C, e, f, a, A1, b, B1 ; sp = sp::ordered_metadata ; shape = m16n8k64 ; alayout = row ; blayout = col ; kind = kind::mxf8f6f4 ; scale_vec = scale_vec::1X ; dtype = f32 ; atype = e4m3 e5m2 e3m2 e2m3 e2m1 ; btype = e4m3 e5m2 e3m2 e2m3 e2m1 ; ctype = f32 ; stype = ue8m0 ; as = *:any
mma.sp.sync.aligned.shape.alayout.blayout.kind.block_scale{.scale_vec}.dtype.atype.btype.ctype.stype D, A, B, C, e, f, a, A1, b, B1 ; sp = sp::ordered_metadata ; shape = m16n8k128 ; alayout = row ; blayout = col ; kind = kind::mxf4 ; scale_vec = scale_vec::2X ; dtype = f32 ; atype = e2m1 ; btype = e2m1 ; ctype = f32 ; stype = ue8m0 ; as = *:any
mma.sp.sync.aligned.shape.alayout.blayout.kind.block_scale.scale_vec.dtype.atype.btype.ctype.stype D, A, B, C, e, f, a, A1, b, B1 ; sp = sp::ordered_metadata ; shape = m16n8k128 ; alayout = row ; blayout = col ; kind = kind::mxf4nvf4 ; scale_vec = scale_vec::2X scale_vec::4X ; dtype = f32 ; atype = e2m1 ; btype = e2m1 ; ctype = f32 ; stype = ue8m0 ; as = *:any
mma.sp.sync.aligned.shape.alayout.blayout.kind.block_scale.scale_vec.dtype.atype.btype.ctype.stype D, A, B, C, e, f, a, A1, b, B1 ; sp = sp::ordered_metadata ; shape = m16n8k128 ; alayout = row ; blayout = col ; kind = kind::mxf4nvf4 ; scale_vec = scale_vec::4X ; dtype = f32 ; atype = e2m1 ; btype = e2m1 ; ctype = f32 ; stype = ue4m3 ; as = *:any
mma.sp.sync.aligned.shape.alayout.blayout{.satfinite}.dtype.atype.btype.ctype D, A, B, C, e, f ; sp = sp sp::ordered_metadata ; shape = m16n8k32 m16n8k64 ; dtype = s32 ; atype = u8 s8 ; btype = u8 s8 ; ctype = s32 ; as = *:any
mma.sp.sync.aligned.shape.alayout.blayout{.satfinite}.dtype.atype.btype.ctype D, A, B, C, e, f ; sp = sp sp::ordered_metadata ; shape = m16n8k64 m16n8k128 ; dtype = s32 ; atype = u4 s4 ; btype = u4 s4 ; ctype = s32 ; as = *:any
ldmatrix.sync.aligned.shape.num{.trans}{.space}.type D, [a]                      ; shape = m8n8 ; num = x1 x2 x4 ; space = shared shared::cta ; type = b16
ldmatrix.sync.aligned.shape.num{.space}.dtype.stype D, [a]                       ; shape = m8n16 ; num = x1 x2 x4 ; space = shared shared::cta ; dtype = b8x16 ; stype = b6x16_p32 b4x16_p64
ldmatrix.sync.aligned.shape.num.trans{.space}.dtype.stype D, [a]                 ; shape = m16n16 ; num = x1 x2 ; space = shared shared::cta ; dtype = b8x16 ; stype = b6x16_p32 b4x16_p64
ldmatrix.sync.aligned.shape.num.trans{.space}.type D, [a]                        ; shape = m16n16 ; num = x1 x2 ; space = shared shared::cta ; type = b8
stmatrix.sync.aligned.shape.num{.trans}{.space}.type [a], D                      ; shape = m8n8 ; num = x1 x2 x4 ; space = shared shared::cta ; type = b16
stmatrix.sync.aligned.shape.num.trans{.space}.type [a], D                        ; shape = m16n8 ; num = x1 x2 x4 ; space = shared shared::cta ; type = b8
movmatrix.sync.aligned.shape.trans.type d, a                                     ; shape = m8n8 ; type = b16 ; as = d:b32 a:b32

wgmma.fence.sync.aligned
wgmma.commit_group.sync.aligned
wgmma.wait_group.sync.aligned a ; as = *:any
wgmma.mma_async.sync.aligned.shape.dtype.atype.btype D, x, b, p, c, e, f{, g} ; shape = <wgmma16> ; dtype = f16 f32 ; atype = f16 ; btype = f16 ; as = *:any
wgmma.mma_async.sync.aligned.shape.dtype.atype.btype D, x, b, p, c, e, f{, g} ; shape = <wgmma16> ; dtype = f32 ; atype = bf16 ; btype = bf16 ; as = *:any
wgmma.mma_async.sync.aligned.shape.dtype.atype.btype D, x, b, p, c, e ; shape = <wgmma8> ; dtype = f32 ; atype = tf32 ; btype = tf32 ; as = *:any
wgmma.mma_async.sync.aligned.shape.dtype.atype.btype D, x, b, p, c, e ; shape = <wgmma32> ; dtype = f16 f32 ; atype = e4m3 e5m2 ; btype = e4m3 e5m2 ; as = *:any
wgmma.mma_async.sync.aligned.shape{.satfinite}.dtype.atype.btype D, x, b, p           ; shape = <wgmma32> ; dtype = s32 ; atype = s8 u8 ; btype = s8 u8 ; as = *:any
wgmma.mma_async.sync.aligned.shape.dtype.atype.btype.op.popc D, x, b, p               ; shape = <wgmma256> ; dtype = s32 ; atype = b1 ; btype = b1 ; op = and ; as = *:any
wgmma.mma_async.sp.sync.aligned.shape{.satfinite}.dtype.atype.btype D, x, b, e, f, p{, c}{, g}{, h}{, i} ; shape = <wgmma16> <wgmma32> <wgmma64> ; dtype = f16 f32 s32 ; atype = f16 bf16 tf32 e4m3 e5m2 s8 u8 ; btype = f16 bf16 tf32 e4m3 e5m2 s8 u8 ; as = *:any

tcgen05.alloc.cta_group.sync.aligned{.space}.type [a], b         ; cta_group = cta_group::1 cta_group::2 ; space = shared::cta ; type = b32 ; as = *:any
tcgen05.dealloc.cta_group.sync.aligned.type a, b                 ; cta_group = cta_group::1 cta_group::2 ; type = b32 ; as = *:any
tcgen05.relinquish_alloc_permit.cta_group.sync.aligned           ; cta_group = cta_group::1 cta_group::2
tcgen05.ld.sync.aligned.shape.num{.pack}.type xd, [a]{, b}       ; shape = 16x64b 16x128b 16x256b 32x32b 16x32bx2 ; num = x1 x2 x4 x8 x16 x32 x64 x128 ; pack = pack::16b ; type = b32 ; as = *:any
tcgen05.st.sync.aligned.shape.num{.unpack}.type [a]{, b}, x      ; shape = 16x64b 16x128b 16x256b 32x32b 16x32bx2 ; num = x1 x2 x4 x8 x16 x32 x64 x128 ; unpack = unpack::16b ; type = b32 ; as = *:any
tcgen05.wait.sync.aligned                                        ; wait = wait::ld wait::st
tcgen05.cp.cta_group.shape{.multicast}{.dst_fmt}{.src_fmt} [a], b ; cta_group = cta_group::1 cta_group::2 ; shape = 128x256b 4x256b 128x128b 64x128b 32x128b ; multicast = warpx2::02_13 warpx2::01_23 warpx4 ; dst_fmt = b8x16 ; src_fmt = b4x16_p64 b6x16_p32 ; as = *:any
tcgen05.shift.cta_group.down [a]                                 ; cta_group = cta_group::1 cta_group::2 ; as = *:any
tcgen05.mma.cta_group.kind{.collector} [a], x, b, c{, xe}, p{, xf}    ; cta_group = cta_group::1 cta_group::2 ; kind = kind::f16 kind::tf32 kind::f8f6f4 kind::i8 ; collector = collector::a::fill collector::a::use collector::a::lastuse collector::a::discard ; as = *:any
tcgen05.mma.cta_group.kind.block_scale{.scale_vec}{.collector} [a], x, b, c, [e], [f], p    ; cta_group = cta_group::1 cta_group::2 ; kind = kind::mxf8f6f4 kind::mxf4 kind::mxf4nvf4 ; scale_vec = scale_vec::1X scale_vec::2X scale_vec::4X block16 block32 ; collector = collector::a::fill collector::a::use collector::a::lastuse collector::a::discard ; as = *:any
tcgen05.mma.sp.cta_group.kind{.collector} [a], x, b, [e], c{, xe}, p{, xf}    ; cta_group = cta_group::1 cta_group::2 ; kind = kind::f16 kind::tf32 kind::f8f6f4 kind::i8 ; collector = collector::a::fill collector::a::use collector::a::lastuse collector::a::discard ; as = *:any
tcgen05.mma.sp.cta_group.kind.block_scale{.scale_vec}{.collector} [a], x, b, [e], c, [f], [g], p    ; cta_group = cta_group::1 cta_group::2 ; kind = kind::mxf8f6f4 kind::mxf4 kind::mxf4nvf4 ; scale_vec = scale_vec::1X scale_vec::2X scale_vec::4X block16 block32 ; collector = collector::a::fill collector::a::use collector::a::lastuse collector::a::discard ; as = *:any
tcgen05.mma.ws{.sp}.cta_group.kind{.collector} [a], x, b{, xg}, c, p{, xe}   ; cta_group = cta_group::1 ; kind = kind::f16 kind::tf32 kind::f8f6f4 kind::i8 ; collector = <ws_collector> ; as = *:any
tcgen05.commit.cta_group{.completion}{.space}{.multicast}.type [a]{, b}  ; cta_group = cta_group::1 cta_group::2 ; completion = mbarrier::arrive::one ; space = shared::cluster ; multicast = multicast::cluster ; type = b64 ; as = *:any
tcgen05.fence                                                    ; fence = fence::before_thread_sync fence::after_thread_sync
"""
