"""Asynchronous copies, tensor maps and mbarriers (PTX ISA 9.7.9.25 to .27, 9.7.13.15)."""

ROWS = """
cp.async.cop.dst.src{.cache_hint}{.prefetch} [d], [a], b{, c}{, e}      ; cop = ca cg ; dst = shared shared::cta ; src = global ; as = b:constant e:u64
cp.async.commit_group
cp.async.wait_group a                                                    ; as = a:constant
cp.async.wait_all
cp.async.mbarrier.arrive{.noinc}{.space}.type [a]                       ; space = shared shared::cta ; type = b64

cp.async.bulk.dst.src{.completion}{.cta_group}{.multicast}{.cache_hint}{.ignore_oob} [d], [a], b{, xc}{, xe}{, xf}{, xg}{, xh} ; dst = shared::cluster shared::cta global ; src = global shared::cta ; completion = mbarrier::complete_tx::bytes bulk_group ; cta_group = cta_group::1 cta_group::2 ; multicast = multicast::cluster ; ignore_oob = ignore_oob cp_mask
cp.reduce.async.bulk.dst.src.completion{.cache_hint}.op.type [d], [a], b{, xe} ; dst = global ; src = shared::cta ; completion = bulk_group ; op = add ; type = u32 s32 u64 f32 f64 ; as = b:count
cp.reduce.async.bulk.dst.src.completion{.cache_hint}.op.noftz.type [d], [a], b{, xe} ; dst = global ; src = shared::cta ; completion = bulk_group ; op = add ; type = f16 bf16 ; as = b:count
cp.reduce.async.bulk.dst.src.completion{.cache_hint}.op.type [d], [a], b{, xe} ; dst = global ; src = shared::cta ; completion = bulk_group ; op = min max ; type = u32 s32 u64 s64 f16 bf16 ; as = b:count
cp.reduce.async.bulk.dst.src.completion{.cache_hint}.op.type [d], [a], b{, xe} ; dst = global ; src = shared::cta ; completion = bulk_group ; op = inc dec ; type = u32 ; as = b:count
cp.reduce.async.bulk.dst.src.completion{.cache_hint}.op.type [d], [a], b{, xe} ; dst = global ; src = shared::cta ; completion = bulk_group ; op = and or xor ; type = b32 b64 ; as = b:count
cp.reduce.async.bulk.dst.src.completion{.cache_hint}.op.type [d], [a], b, [c]{, xe} ; dst = shared::cluster ; src = shared::cta ; completion = mbarrier::complete_tx::bytes ; op = add ; type = u32 s32 u64 ; as = b:count
cp.reduce.async.bulk.dst.src.completion{.cache_hint}.op.type [d], [a], b, [c]{, xe} ; dst = shared::cluster ; src = shared::cta ; completion = mbarrier::complete_tx::bytes ; op = min max ; type = u32 s32 ; as = b:count
cp.reduce.async.bulk.dst.src.completion{.cache_hint}.op.type [d], [a], b, [c]{, xe} ; dst = shared::cluster ; src = shared::cta ; completion = mbarrier::complete_tx::bytes ; op = inc dec ; type = u32 ; as = b:count
cp.reduce.async.bulk.dst.src.completion{.cache_hint}.op.type [d], [a], b, [c]{, xe} ; dst = shared::cluster ; src = shared::cta ; completion = mbarrier::complete_tx::bytes ; op = and or xor ; type = b32 ; as = b:count
cp.async.bulk.action.level.src{.cache_hint} [a], b{, c}               ; action = prefetch ; level = L2 ; src = global
cp.async.bulk.tensor.dim.dst.src{.load_mode}{.completion}{.multicast}{.cta_group}{.cache_hint} [d], [a, C], [b]{, xc}{, xe}{, xf}{, xg}  ; dim = 1d 2d 3d 4d 5d ; dst = shared::cluster shared::cta ; src = global ; load_mode = tile tile::gather4 im2col im2col::w im2col::w::128 im2col_no_offs ; completion = mbarrier::complete_tx::bytes ; multicast = multicast::cluster ; cta_group = cta_group::1 cta_group::2
cp.async.bulk.tensor.dim.dst.src{.load_mode}.completion{.cache_hint} [d, C], [a]{, e}       ; dim = 1d 2d 3d 4d 5d ; dst = global ; src = shared::cta ; load_mode = tile tile::scatter4 im2col_no_offs ; completion = bulk_group
cp.reduce.async.bulk.tensor.dim.dst.src.op{.load_mode}.completion{.cache_hint} [d, C], [a]{, e} ; dim = 1d 2d 3d 4d 5d ; dst = global ; src = shared::cta ; op = add min max inc dec and or xor ; load_mode = tile im2col_no_offs ; completion = bulk_group
cp.async.bulk.action.tensor.dim.level.src{.load_mode}{.cache_hint} [a, C]{, xb}{, xc}      ; action = prefetch ; dim = 1d 2d 3d 4d 5d ; level = L2 ; src = global ; load_mode = tile tile::gather4 im2col im2col::w im2col::w::128 im2col_no_offs
cp.async.bulk.commit_group
cp.async.bulk.wait_group{.read} a

tensormap.replace.tile.field{.space}.dtype.type [a]{, b}, c             ; field = global_address rank box_dim global_dim global_stride element_stride elemtype interleave_layout swizzle_mode swizzle_atomicity fill_mode ; space = global shared::cta ; dtype = b1024 ; type = b32 b64 ; as = b:any
tensormap.cp_fenceproxy.dst.src.proxy.sem.scope.sync.aligned [d], [a], b    ; dst = global ; src = shared::cta ; proxy = tensormap::generic ; sem = release ; as = b:any

mbarrier.init{.space}.type [a], b                           ; space = shared shared::cta ; type = b64 ; as = b:count
mbarrier.inval{.space}.type [a]                             ; space = shared shared::cta ; type = b64
mbarrier.expect_tx{.sem}{.scope}{.space}.type [a], b        ; sem = relaxed ; space = shared shared::cta shared::cluster ; type = b64 ; as = b:count
mbarrier.complete_tx{.sem}{.scope}{.space}.type [a], b      ; sem = relaxed ; space = shared shared::cta shared::cluster ; type = b64 ; as = b:count
mbarrier.arrive{.sem}{.scope}{.space}.type d, [a]{, b}                  ; sem = release relaxed ; space = shared shared::cta ; type = b64 ; as = b:count
mbarrier.arrive{.sem}{.scope}.space.type d, [a]{, b}                    ; sem = release relaxed ; space = shared::cluster ; type = b64 ; as = b:count
mbarrier.arrive.expect_tx{.sem}{.scope}{.space}.type d, [a], b          ; sem = release relaxed ; space = shared shared::cta shared::cluster ; type = b64 ; as = b:count
mbarrier.arrive.noComplete{.sem}{.scope}{.space}.type d, [a], b         ; sem = release ; space = shared shared::cta ; type = b64 ; as = b:count
mbarrier.arrive_drop{.sem}{.scope}{.space}.type d, [a]{, b}             ; sem = release relaxed ; space = shared shared::cta shared::cluster ; type = b64 ; as = b:count
mbarrier.arrive_drop.expect_tx{.sem}{.scope}{.space}.type d, [a], b     ; sem = release relaxed ; space = shared shared::cta shared::cluster ; type = b64 ; as = b:count
mbarrier.arrive_drop.noComplete{.sem}{.scope}{.space}.type d, [a], b    ; sem = release ; space = shared shared::cta ; type = b64 ; as = b:count
mbarrier.test_wait{.sem}{.scope}{.space}.type d, [a], b                 ; sem = acquire relaxed ; space = shared shared::cta ; type = b64 ; as = d:pred
mbarrier.test_wait.parity{.sem}{.scope}{.space}.type d, [a], b          ; sem = acquire relaxed ; space = shared shared::cta ; type = b64 ; as = d:pred b:count
mbarrier.try_wait{.sem}{.scope}{.space}.type d, [a], b{, c}             ; sem = acquire relaxed ; space = shared shared::cta ; type = b64 ; as = d:pred c:count
mbarrier.try_wait.parity{.sem}{.scope}{.space}.type d, [a], b{, c}      ; sem = acquire relaxed ; space = shared shared::cta ; type = b64 ; as = d:pred b:count c:count
mbarrier.pending_count.type d, a                            ; type = b64 ; as = d:count
"""
