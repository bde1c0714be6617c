"""Data movement through registers and memory (PTX ISA 9.7.9), but for the asynchronous copies."""

ROWS = """
mov.vec.type D, m                           ; vec = v2 v4 ; type = <bits> <int> f32 f64 ; as = m:type%
mov.type d, m                               ; type = pred ; as = m:type%
mov.type xd, m                              ; type = <bits> b128 <int> f32 f64 ; as = m:type% xd:type
shfl.mode.type d{|p}, a, b, c               ; mode = up down bfly idx ; type = b32
shfl.sync.mode.type d{|p}, a, b, c, e       ; mode = up down bfly idx ; type = b32 ; as = e:count

ld{.sem}{.space}{.cop}{.evict}{.evict2}{.cache_hint}{.prefetch}{.vec}.type d, [a]{, e}   ; sem = weak ; space = const global local param param::entry param::func shared shared::cta shared::cluster ; cop = ca cg cs lu cv ; type = <memory> ; as = d:type+ e:u64
ld.sem{.space}{.cache_hint}{.prefetch}{.vec}.type d, [a]{, e}                    ; sem = volatile ; space = global shared shared::cta shared::cluster ; type = <memory> ; as = d:type+ e:u64
ld.sem.scope{.space}{.evict}{.evict2}{.cache_hint}{.prefetch}{.vec}.type d, [a]{, e}      ; sem = relaxed acquire ; space = global shared shared::cta shared::cluster ; type = <memory> ; as = d:type+ e:u64
ld.mmio.sem.scope{.space}.type d, [a]                                            ; sem = relaxed ; scope = sys ; space = global ; type = <memory> ; as = d:type+
ld.space{.cop}.nc{.evict}{.evict2}{.cache_hint}{.prefetch}{.vec}.type d, [a]{, e}       ; space = global ; cop = ca cg cs ; type = <memory> ; as = d:type+ e:u64
ldu{.space}{.vec}.type d, [a]                                                    ; space = global ; type = <memory> ; as = d:type+
st{.sem}{.space}{.cop}{.evict}{.evict2}{.cache_hint}{.vec}.type [a], s{, e}      ; sem = weak ; space = global local param param::func shared shared::cta shared::cluster ; cop = wb cg cs wt ; type = <memory> ; as = s:type+ e:u64
st.sem{.space}{.vec}.type [a], s                                                 ; sem = volatile ; space = global shared shared::cta shared::cluster ; type = <memory> ; as = s:type+
st.sem.scope{.space}{.evict}{.evict2}{.cache_hint}{.vec}.type [a], s{, e}        ; sem = relaxed release ; space = global shared shared::cta shared::cluster ; type = <memory> ; as = s:type+ e:u64
st.mmio.sem.scope{.space}.type [a], s                                            ; sem = relaxed ; scope = sys ; space = global ; type = <memory> ; as = s:type+
st.async{.sem}{.scope}{.space}{.completion}{.vec}.type [a], s, [b]               ; sem = weak ; space = shared::cluster ; completion = mbarrier::complete_tx::bytes ; type = b32 b64 u32 u64 s32 s64 f32 f64 ; as = s:type+
st.async{.mmio}.sem.scope{.space}.type [a], s                                    ; sem = release ; space = global ; type = <memory> ; as = s:type+
st.bulk{.sem}{.space} [a], b, c                                                  ; sem = weak ; space = shared::cta
multimem.ld_reduce{.sem}{.scope}{.space}.op{.acc}{.vec}.type d, [a]              ; sem = weak relaxed acquire ; space = global ; op = min max add and or xor ; acc = acc::f32 acc::f16 ; type = b32 b64 u32 u64 s32 s64 f32 f64 <half> e5m2 e5m2x2 e5m2x4 e4m3 e4m3x2 e4m3x4 ; as = d:type+
multimem.st{.sem}{.scope}{.space}{.vec}.type [a], s                              ; sem = weak relaxed release ; space = global ; type = b32 b64 u32 u64 s32 s64 f32 f64 <half> e5m2 e5m2x2 e5m2x4 e4m3 e4m3x2 e4m3x4 ; as = s:type+
multimem.red{.sem}{.scope}{.space}.op{.vec}.type [a], s                          ; sem = relaxed release ; space = global ; op = min max add and or xor ; type = b32 b64 u32 u64 s32 s64 f32 f64 <half> e5m2 e5m2x2 e5m2x4 e4m3 e4m3x2 e4m3x4 ; as = s:type+

prefetch{.space}.level [a]                  ; space = global local ; level = L1 L2
prefetch{.space}.level [a]                  ; space = global ; level = L2::evict_last L2::evict_normal
prefetch{.space}.tensormap [a]              ; space = const param
prefetchu.level [a]                         ; level = L1
applypriority{.space}.level [a], b          ; space = global ; level = L2::evict_normal
discard{.space}.level [a], b                ; space = global ; level = L2
createpolicy.fractional.evict{.evict2}.type d{, a}              ; evict = L2::evict_last L2::evict_normal L2::evict_first L2::evict_unchanged ; evict2 = L2::evict_first L2::evict_unchanged ; type = b64 ; as = a:f32
createpolicy.range{.space}.evict{.evict2}.type d, [a], b, c     ; space = global ; evict = L2::evict_last L2::evict_normal L2::evict_first L2::evict_unchanged ; evict2 = L2::evict_first L2::evict_unchanged ; type = b64 ; as = b:count c:count
createpolicy.cvt.L2.type d, a               ; type = b64 ; as = a:any

# 9.7.17 stack
stacksave.type d                            ; type = u32 u64
stackrestore.type a                         ; type = u32 u64
alloca.type d, a{, b}                       ; type = u32 u64 ; as = b:any
"""
