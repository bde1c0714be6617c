"""Texture and surface instructions (PTX ISA 9.7.10 and 9.7.11)."""

ROWS = """
tex.geom.vec.dtype.ctype D{|p}, [a, xc]{, xe}{, xf} ; geom = 1d 2d 3d a1d a2d cube acube ; vec = v4 ; dtype = u32 s32 f32 f16 ; ctype = f32
tex.geom.vec.dtype.ctype D{|p}, [a, xc]{, xe}{, xf} ; geom = 1d 2d 3d a1d a2d cube acube ; vec = v2 ; dtype = f16x2 ; ctype = f32
tex.geom.vec.dtype.ctype D{|p}, [a, xc]{, xe}{, xf} ; geom = 1d 2d 3d a1d a2d 2dms a2dms ; vec = v4 ; dtype = u32 s32 f32 f16 ; ctype = s32
tex.geom.vec.dtype.ctype D{|p}, [a, xc]{, xe}{, xf} ; geom = 1d 2d 3d a1d a2d 2dms a2dms ; vec = v2 ; dtype = f16x2 ; ctype = s32
tex.base.geom.vec.dtype.ctype D{|p}, [a, xc]{, xe}{, xf} ; geom = 1d 2d 3d a1d a2d cube acube ; vec = v4 ; dtype = u32 s32 f32 f16 ; ctype = f32
tex.base.geom.vec.dtype.ctype D{|p}, [a, xc]{, xe}{, xf} ; geom = 1d 2d 3d a1d a2d cube acube ; vec = v2 ; dtype = f16x2 ; ctype = f32
tex.base.geom.vec.dtype.ctype D{|p}, [a, xc]{, xe}{, xf} ; geom = 1d 2d 3d a1d a2d 2dms a2dms ; vec = v4 ; dtype = u32 s32 f32 f16 ; ctype = s32
tex.base.geom.vec.dtype.ctype D{|p}, [a, xc]{, xe}{, xf} ; geom = 1d 2d 3d a1d a2d 2dms a2dms ; vec = v2 ; dtype = f16x2 ; ctype = s32
tex.level.geom.vec.dtype.ctype D{|p}, [a, xc], b{, xe}{, xf} ; geom = 1d 2d 3d a1d a2d cube acube ; vec = v4 ; dtype = u32 s32 f32 f16 ; ctype = f32
tex.level.geom.vec.dtype.ctype D{|p}, [a, xc], b{, xe}{, xf} ; geom = 1d 2d 3d a1d a2d cube acube ; vec = v2 ; dtype = f16x2 ; ctype = f32
tex.level.geom.vec.dtype.ctype D{|p}, [a, xc], b{, xe}{, xf} ; geom = 1d 2d 3d a1d a2d ; vec = v4 ; dtype = u32 s32 f32 f16 ; ctype = s32
tex.level.geom.vec.dtype.ctype D{|p}, [a, xc], b{, xe}{, xf} ; geom = 1d 2d 3d a1d a2d ; vec = v2 ; dtype = f16x2 ; ctype = s32
tex.grad.geom.vec.dtype.ctype D{|p}, [a, xc], xb, xg{, xe}{, xf} ; geom = 1d 2d 3d a1d a2d cube acube ; vec = v4 ; dtype = u32 s32 f32 f16 ; ctype = f32
tex.grad.geom.vec.dtype.ctype D{|p}, [a, xc], xb, xg{, xe}{, xf} ; geom = 1d 2d 3d a1d a2d cube acube ; vec = v2 ; dtype = f16x2 ; ctype = f32
tex.grad.geom.vec.dtype.ctype D{|p}, [a, xc], xb, xg{, xe}{, xf} ; geom = 1d 2d 3d a1d a2d ; vec = v4 ; dtype = u32 s32 f32 f16 ; ctype = s32
tex.grad.geom.vec.dtype.ctype D{|p}, [a, xc], xb, xg{, xe}{, xf} ; geom = 1d 2d 3d a1d a2d ; vec = v2 ; dtype = f16x2 ; ctype = s32
tld4.component.geom.vec.dtype.ctype D{|p}, [a, xc]{, xe}{, xf}  ; component = r g b a ; geom = 2d a2d cube acube ; vec = v4 ; dtype = u32 s32 f32 ; ctype = f32
txq.query.type d, [a]                   ; query = width height depth channel_data_type channel_order normalized_coords array_size num_mipmap_levels num_samples filter_mode addr_mode_0 addr_mode_1 addr_mode_2 force_unnormalized_coords ; type = b32
txq.level.query.type d, [a], b          ; query = width height depth ; type = b32 ; as = b:any
istypep.type d, m                       ; type = texref samplerref surfref ; as = d:pred
suld.b.geom{.cop}.type.clamp yd, [a, xc]            ; geom = 1d 2d 3d a1d a2d ; cop = ca cg cs cv ; type = b8 b16 b32 b64 ; as = yd:type*
suld.b.geom{.cop}.vec.type.clamp D, [a, xc]         ; geom = 1d 2d 3d a1d a2d ; cop = ca cg cs cv ; vec = v2 v4 ; type = b8 b16 b32 b64
sust.b.geom{.cop}.type.clamp [a, xc], y             ; geom = 1d 2d 3d a1d a2d ; cop = wb cg cs wt ; type = b8 b16 b32 b64 ; as = y:type*
sust.b.geom{.cop}.vec.type.clamp [a, xc], A         ; geom = 1d 2d 3d a1d a2d ; cop = wb cg cs wt ; vec = v2 v4 ; type = b8 b16 b32 b64
sust.p.geom{.cop}{.vec}.type.clamp [a, xc], x       ; geom = 1d 2d 3d a1d a2d ; cop = wb cg cs wt ; type = b32 u32 s32 f32
sured.b.op.geom.type.clamp [a, xc], b               ; op = add min max and or ; geom = 1d 2d 3d a1d a2d ; type = u32 u64 s32 s64 b32 b64
sured.p.op.geom.type.clamp [a, xc], b               ; op = add min max and or ; geom = 1d 2d 3d a1d a2d ; type = b32 b64
suq.query.type d, [a]                   ; query = width height depth channel_data_type channel_order array_size memory_layout ; type = b32
"""
