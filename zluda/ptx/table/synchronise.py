"""Barriers, fences, atomics, votes and other warp-wide instructions (PTX ISA 9.7.13)."""

ROWS = """
bar{.cta}.sync a{, b} ; as = a:count b:count
bar{.cta}.arrive a, b ; as = a:count b:count
bar{.cta}.red.op.type d, a{, b}, !c                         ; op = popc ; type = u32 ; as = a:count b:count
bar{.cta}.red.op.type d, a{, b}, !c                         ; op = and or ; type = pred ; as = a:count b:count
bar.warp.sync a ; as = a:count
barrier{.cta}.sync{.aligned} a{, b} ; as = a:count b:count
barrier{.cta}.arrive{.aligned} a, b ; as = a:count b:count
barrier{.cta}.red.op{.aligned}.type d, a{, b}, !c           ; op = popc ; type = u32 ; as = a:count b:count
barrier{.cta}.red.op{.aligned}.type d, a{, b}, !c           ; op = and or ; type = pred ; as = a:count b:count
barrier.cluster.arrive{.sem}{.aligned}                      ; sem = release relaxed
barrier.cluster.wait{.sem}{.aligned}                        ; sem = acquire ; as = a:count
membar.scope                                                ; scope = cta gl sys
membar.proxy.kind                                           ; kind = alias
fence{.sem}.scope                                           ; sem = sc acq_rel acquire release
fence.sem.restrict.scope                                    ; sem = acquire release ; restrict = sync_restrict::shared::cta sync_restrict::shared::cluster ; scope = cluster
fence.mbarrier_init.sem.scope                               ; sem = release ; scope = cluster
fence.proxy.kind                                            ; kind = alias async async.global
fence.proxy.kind.space                                      ; kind = async ; space = global shared::cta shared::cluster
fence.proxy.kind.sem.scope                                  ; kind = tensormap::generic ; sem = release
fence.proxy.kind.sem.scope [a], b                           ; kind = tensormap::generic ; sem = acquire
fence.proxy.kind.sem.restrict.scope                         ; kind = async::generic ; sem = acquire release ; restrict = sync_restrict::shared::cta sync_restrict::shared::cluster ; scope = cluster

atom{.sem}{.scope}{.space}.op{.cache_hint}.type d, [a], b{, e}      ; sem = relaxed acquire release acq_rel ; space = global shared shared::cta shared::cluster ; op = and or xor ; type = b32 b64 ; as = e:u64
atom{.sem}{.scope}{.space}.op{.cache_hint}.type d, [a], b{, e}      ; sem = relaxed acquire release acq_rel ; space = global shared shared::cta shared::cluster ; op = exch ; type = b32 b64 b128 ; as = e:u64
atom{.sem}{.scope}{.space}.op.type d, [a], b, c          ; sem = relaxed acquire release acq_rel ; space = global shared shared::cta shared::cluster ; op = cas ; type = b16 b32 b64 b128
atom{.sem}{.scope}{.space}.op{.cache_hint}.type d, [a], b{, e}      ; sem = relaxed acquire release acq_rel ; space = global shared shared::cta shared::cluster ; op = add ; type = u32 s32 u64 f32 f64 ; as = e:u64
atom{.sem}{.scope}{.space}.op{.cache_hint}.type d, [a], b{, e}      ; sem = relaxed acquire release acq_rel ; space = global shared shared::cta shared::cluster ; op = inc dec ; type = u32 ; as = e:u64
atom{.sem}{.scope}{.space}.op{.cache_hint}.type d, [a], b{, e}      ; sem = relaxed acquire release acq_rel ; space = global shared shared::cta shared::cluster ; op = min max ; type = u32 s32 u64 s64 ; as = e:u64
atom{.sem}{.scope}{.space}.op.noftz{.cache_hint}.type d, [a], b{, e}  ; sem = relaxed acquire release acq_rel ; space = global shared shared::cta shared::cluster ; op = add ; type = <half> ; as = e:u64
atom{.sem}{.scope}{.space}.op{.cache_hint}.vec.type d, [a], s{, e}  ; sem = relaxed acquire release acq_rel ; space = global ; op = add ; vec = v2 v4 ; type = f32 ; as = e:u64 s:type
atom{.sem}{.scope}{.space}.op.noftz{.cache_hint}.vec.type d, [a], s{, e}  ; sem = relaxed acquire release acq_rel ; space = global ; op = add min max ; type = f16 bf16 ; as = e:u64 s:type
atom{.sem}{.scope}{.space}.op.noftz{.cache_hint}.vec.type d, [a], s{, e}  ; sem = relaxed acquire release acq_rel ; space = global ; op = add min max ; vec = v2 v4 ; type = f16x2 bf16x2 ; as = e:u64 s:type
red{.sem}{.scope}{.space}.op{.cache_hint}.type [a], b{, e}          ; sem = relaxed release ; space = global shared shared::cta shared::cluster ; op = and or xor ; type = b32 b64 ; as = e:u64
red{.sem}{.scope}{.space}.op{.cache_hint}.type [a], b{, e}          ; sem = relaxed release ; space = global shared shared::cta shared::cluster ; op = add ; type = u32 s32 u64 f32 f64 ; as = e:u64
red{.sem}{.scope}{.space}.op{.cache_hint}.type [a], b{, e}          ; sem = relaxed release ; space = global shared shared::cta shared::cluster ; op = inc dec ; type = u32 ; as = e:u64
red{.sem}{.scope}{.space}.op{.cache_hint}.type [a], b{, e}          ; sem = relaxed release ; space = global shared shared::cta shared::cluster ; op = min max ; type = u32 s32 u64 s64 ; as = e:u64
red{.sem}{.scope}{.space}.op.noftz{.cache_hint}.type [a], b{, e}    ; sem = relaxed release ; space = global shared shared::cta shared::cluster ; op = add ; type = <half> ; as = e:u64
red{.sem}{.scope}{.space}.op{.cache_hint}.vec.type [a], s{, e}      ; sem = relaxed release ; space = global ; op = add ; vec = v2 v4 ; type = f32 ; as = e:u64 s:type
red{.sem}{.scope}{.space}.op.noftz{.cache_hint}.vec.type [a], s{, e}  ; sem = relaxed release ; space = global ; op = add min max ; type = f16 bf16 ; as = e:u64 s:type
red{.sem}{.scope}{.space}.op.noftz{.cache_hint}.vec.type [a], s{, e}  ; sem = relaxed release ; space = global ; op = add min max ; vec = v2 v4 ; type = f16x2 bf16x2 ; as = e:u64 s:type
red.async{.sem}{.scope}{.space}.completion.op.type [a], b, [c]      ; sem = relaxed ; space = shared::cluster ; completion = mbarrier::complete_tx::bytes ; op = inc dec ; type = u32
red.async{.sem}{.scope}{.space}.completion.op.type [a], b, [c]      ; sem = relaxed ; space = shared::cluster ; completion = mbarrier::complete_tx::bytes ; op = min max ; type = u32 s32
red.async{.sem}{.scope}{.space}.completion.op.type [a], b, [c]      ; sem = relaxed ; space = shared::cluster ; completion = mbarrier::complete_tx::bytes ; op = add ; type = u32 s32 u64
red.async{.sem}{.scope}{.space}.completion.op.type [a], b, [c]      ; sem = relaxed ; space = shared::cluster ; completion = mbarrier::complete_tx::bytes ; op = and or xor ; type = b32
red.async{.mmio}.sem.scope{.space}.op.type [a], b                   ; sem = release ; space = global ; op = add ; type = u32 s32 u64

vote.op.type d, !a                                          ; op = all any uni ; type = pred
vote.op.type d, !a                                          ; op = ballot ; type = b32
vote.sync.op.type d, !a, b                                  ; op = all any uni ; type = pred ; as = b:count
vote.sync.op.type d, !a, b                                  ; op = ballot ; type = b32 ; as = b:count
match.op.sync.type d, a, b                                  ; op = any ; type = b32 b64 ; as = d:count b:count
match.op.sync.type d{|p}, a, b                              ; op = all ; type = b32 b64 ; as = d{|p}:count b:count
activemask.type d                                           ; type = b32
redux.sync.op.type d, a, b                                  ; op = add min max ; type = u32 s32 ; as = d:count a:count b:count
redux.sync.op.type d, a, b                                  ; op = and or xor ; type = b32 ; as = d:count a:count b:count
redux.sync.op{.abs}{.NaN}.type d, a, b                      ; op = min max ; type = f32 ; as = b:count
elect.sync d|p, a ; as = d|p:count a:count
"""
