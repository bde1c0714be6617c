"""Control flow and miscellaneous instructions (PTX ISA 9.7.12, 9.7.19). ``call`` has an operand grammar of its own."""

ROWS = """
bra{.uni} label
brx.idx{.uni} a, label
call{.uni} (r), f, (a), label
ret{.uni}
exit
trap
brkpt
pmevent a
pmevent.mask a
nanosleep.type a                        ; type = u32 ; as = a:count
griddepcontrol.launch_dependents
griddepcontrol.wait
setmaxnreg.op.sync.aligned.type a       ; op = inc dec ; type = u32 ; as = a:constant
clusterlaunchcontrol.try_cancel.async{.space}.completion{.multicast}.type [a], [b]    ; space = shared::cta ; completion = mbarrier::complete_tx::bytes ; multicast = multicast::cluster::all ; type = b128
clusterlaunchcontrol.query_cancel.is_canceled.dtype.type d, a           ; dtype = pred ; type = b128
clusterlaunchcontrol.query_cancel.component.type xd, a                   ; component = get_first_ctaid ; type = b128
clusterlaunchcontrol.query_cancel.component.vec.dtype.type D, a          ; component = get_first_ctaid ; vec = v4 ; dtype = b32 ; type = b128
clusterlaunchcontrol.query_cancel.component.dtype.type d, a             ; component = get_first_ctaid::x get_first_ctaid::y get_first_ctaid::z ; dtype = b32 ; type = b128
"""
