; The emulator's scheduler: takes blocks of a launch, runs their waves in turn until all have ended.
;
; Job, Worker and Block are the records of state.py; a record and a field in braces are its byte offset. A
; worker begins with one resident block. A round runs every wave of every resident block once: until it ends,
; reaches a barrier or has used up its budget of backward branches. A round in which waves did nothing but
; use up budgets looks like waiting for somebody else, so one more block becomes resident, as many as the
; worker has slots. So waves that wait for others of their block, or for another block, see them run.
;
; With a seed, waves of a block begin at a random one and go up or down, budgets are random and small, blocks
; come in another order, and several are resident from the start. The same seed gives the same order.

declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

define internal i64 @random(ptr %w) {                       ; xorshift64*
  %p = getelementptr i8, ptr %w, i64 ${Worker.random}
  %a = load i64, ptr %p
  %a1 = lshr i64 %a, 12
  %b = xor i64 %a, %a1
  %b1 = shl i64 %b, 25
  %c = xor i64 %b, %b1
  %c1 = lshr i64 %c, 27
  %d = xor i64 %c, %c1
  store i64 %d, ptr %p
  %r = mul i64 %d, 2685821657736338717
  %h = lshr i64 %r, 16
  ret i64 %h
}

define internal void @set_sgpr(ptr %s, ptr %j, i64 %field, i32 %value) {
  %pi = getelementptr i8, ptr %j, i64 %field
  %i = load i32, ptr %pi
  %p = getelementptr i32, ptr %s, i32 %i
  store i32 %value, ptr %p
  ret void
}

define internal void @set_pair(ptr %s, ptr %j, i64 %field, i64 %value) {
  %pi = getelementptr i8, ptr %j, i64 %field
  %i = load i32, ptr %pi
  %p = getelementptr i32, ptr %s, i32 %i
  store i64 %value, ptr %p, align 4
  ret void
}

; Make block %n of the launch resident in slot %k.
define internal void @begin(ptr %j, ptr %k, i64 %n) {
entry:
  %pgx = getelementptr i8, ptr %j, i64 ${Job.grid_x}
  %gx32 = load i32, ptr %pgx
  %gx = zext i32 %gx32 to i64
  %pgy = getelementptr i8, ptr %j, i64 ${Job.grid_y}
  %gy32 = load i32, ptr %pgy
  %gy = zext i32 %gy32 to i64
  %x = urem i64 %n, %gx
  %row = udiv i64 %n, %gx
  %y = urem i64 %row, %gy
  %z = udiv i64 %row, %gy
  %x32 = trunc i64 %x to i32
  %y32 = trunc i64 %y to i32
  %z32 = trunc i64 %z to i32
  %pwaves = getelementptr i8, ptr %j, i64 ${Job.waves}
  %waves = load i32, ptr %pwaves
  %pg = getelementptr i8, ptr %k, i64 ${Block.generation}
  store i32 0, ptr %pg
  %pa = getelementptr i8, ptr %k, i64 ${Block.arrived}
  store i32 0, ptr %pa
  %plive = getelementptr i8, ptr %k, i64 ${Block.live}
  store i32 %waves, ptr %plive
  %pf = getelementptr i8, ptr %k, i64 ${Block.fault}
  store i32 0, ptr %pf
  %pn = getelementptr i8, ptr %k, i64 ${Block.index}
  store i64 %n, ptr %pn
  %pb = getelementptr i8, ptr %k, i64 ${Block.busy}
  store i32 1, ptr %pb
  %pjl = getelementptr i8, ptr %j, i64 ${Job.lds_bytes}
  %lds = load i32, ptr %pjl
  %pkl = getelementptr i8, ptr %k, i64 ${Block.lds_bytes}
  store i32 %lds, ptr %pkl
  %pjp = getelementptr i8, ptr %j, i64 ${Job.private_bytes}
  %private = load i32, ptr %pjp
  %pkp = getelementptr i8, ptr %k, i64 ${Block.private_bytes}
  store i32 %private, ptr %pkp
  %pjr = getelementptr i8, ptr %j, i64 ${Job.ranges}
  %ranges = load i64, ptr %pjr
  %pkr = getelementptr i8, ptr %k, i64 ${Block.ranges}
  store i64 %ranges, ptr %pkr
  %pjrc = getelementptr i8, ptr %j, i64 ${Job.range_count}
  %count = load i32, ptr %pjrc
  %pkrc = getelementptr i8, ptr %k, i64 ${Block.range_count}
  store i32 %count, ptr %pkrc
  %pjc = getelementptr i8, ptr %j, i64 ${Job.code}
  %code = load i64, ptr %pjc
  %pkc = getelementptr i8, ptr %k, i64 ${Block.code}
  store i64 %code, ptr %pkc
  %pt = getelementptr i8, ptr %j, i64 ${Job.template}
  %template = load ptr, ptr %pt
  %ptb = getelementptr i8, ptr %j, i64 ${Job.template_bytes}
  %tbytes = load i64, ptr %ptb
  %pwb = getelementptr i8, ptr %j, i64 ${Job.wave_bytes}
  %wbytes = load i64, ptr %pwb
  %pw = getelementptr i8, ptr %k, i64 ${Block.waves}
  %records = load ptr, ptr %pw
  %ppm = getelementptr i8, ptr %k, i64 ${Block.private_memory}
  %memory = load i64, ptr %ppm
  %pwp = getelementptr i8, ptr %j, i64 ${Job.wave_private_bytes}
  %wprivate = load i64, ptr %pwp
  %pttmp = getelementptr i8, ptr %j, i64 ${Job.ids_in_ttmps}
  %ttmps = load i32, ptr %pttmp
  %in_ttmps = icmp ne i32 %ttmps, 0
  br label %wave
wave:
  %i = phi i32 [ 0, %entry ], [ %i1, %next ]
  %i64 = zext i32 %i to i64
  %to = mul i64 %i64, %tbytes
  %from = getelementptr i8, ptr %template, i64 %to
  %so = mul i64 %i64, %wbytes
  %s = getelementptr i8, ptr %records, i64 %so
  %pcount = getelementptr i8, ptr %s, i64 ${COUNT}
  %done = load i64, ptr %pcount
  call void @llvm.memcpy.p0.p0.i64(ptr %s, ptr %from, i64 %tbytes, i1 false)
  store i64 %done, ptr %pcount
  call void @set_sgpr(ptr %s, ptr %j, i64 ${Job.id_x_sgpr}, i32 %x32)
  call void @set_sgpr(ptr %s, ptr %j, i64 ${Job.id_y_sgpr}, i32 %y32)
  call void @set_sgpr(ptr %s, ptr %j, i64 ${Job.id_z_sgpr}, i32 %z32)
  %po = mul i64 %i64, %wprivate
  %po32 = trunc i64 %po to i32
  call void @set_sgpr(ptr %s, ptr %j, i64 ${Job.wave_offset_sgpr}, i32 %po32)
  call void @set_pair(ptr %s, ptr %j, i64 ${Job.resource_sgpr}, i64 %memory)
  call void @set_pair(ptr %s, ptr %j, i64 ${Job.flat_scratch_sgpr}, i64 %memory)
  %mine = add i64 %memory, %po
  %pmine = getelementptr i8, ptr %s, i64 ${PRIVATE}
  store i64 %mine, ptr %pmine
  br i1 %in_ttmps, label %ttmp, label %next
ttmp:                                             ; gfx12: ttmp9 is x, ttmp7 y and z (16 bits each)
  %p9 = getelementptr i32, ptr %s, i32 117
  store i32 %x32, ptr %p9
  %zs = shl i32 %z32, 16
  %yl = and i32 %y32, 65535
  %yz = or i32 %zs, %yl
  %p7 = getelementptr i32, ptr %s, i32 115
  store i32 %yz, ptr %p7
  br label %next
next:
  %i1 = add i32 %i, 1
  %more = icmp ult i32 %i1, %waves
  br i1 %more, label %wave, label %out
out:
  ret void
}

; Run every wave of a resident block once. Returns whether any did more than use up its budget.
define internal i1 @round(ptr %j, ptr %w, ptr %k) {
entry:
  %pwaves = getelementptr i8, ptr %j, i64 ${Job.waves}
  %waves = load i32, ptr %pwaves
  %pseed = getelementptr i8, ptr %j, i64 ${Job.seed}
  %seed = load i64, ptr %pseed
  %seeded = icmp ne i64 %seed, 0
  %pbudget = getelementptr i8, ptr %j, i64 ${Job.budget}
  %budget = load i32, ptr %pbudget
  %pwf = getelementptr i8, ptr %j, i64 ${Job.wave_function}
  %function = load ptr, ptr %pwf
  %pwb = getelementptr i8, ptr %j, i64 ${Job.wave_bytes}
  %wbytes = load i64, ptr %pwb
  %precords = getelementptr i8, ptr %k, i64 ${Block.waves}
  %records = load ptr, ptr %precords
  %plds = getelementptr i8, ptr %k, i64 ${Block.lds}
  %lds = load ptr, ptr %plds
  %pgen = getelementptr i8, ptr %k, i64 ${Block.generation}
  %plive = getelementptr i8, ptr %k, i64 ${Block.live}
  %parrived = getelementptr i8, ptr %k, i64 ${Block.arrived}
  br i1 %seeded, label %shuffle, label %start
shuffle:
  %r = call i64 @random(ptr %w)
  %down = trunc i64 %r to i1
  %step0 = select i1 %down, i32 -1, i32 1
  %r1 = lshr i64 %r, 1
  %r32 = trunc i64 %r1 to i32
  %first0 = urem i32 %r32, %waves
  br label %start
start:
  %step = phi i32 [ 1, %entry ], [ %step0, %shuffle ]
  %first = phi i32 [ 0, %entry ], [ %first0, %shuffle ]
  br label %each
each:
  %n = phi i32 [ 0, %start ], [ %n1, %next ]
  %moved = phi i1 [ false, %start ], [ %moved1, %next ]
  %d = mul i32 %n, %step
  %sum = add i32 %first, %d
  %below = icmp slt i32 %sum, 0
  %raised = add i32 %sum, %waves
  %above = icmp sge i32 %sum, %waves
  %lowered = sub i32 %sum, %waves
  %capped = select i1 %above, i32 %lowered, i32 %sum
  %i = select i1 %below, i32 %raised, i32 %capped
  %i64 = zext i32 %i to i64
  %o = mul i64 %i64, %wbytes
  %s = getelementptr i8, ptr %records, i64 %o
  %pst = getelementptr i8, ptr %s, i64 ${STATUS}
  %status = load i32, ptr %pst
  switch i32 %status, label %run [ i32 ${DONE}, label %skip
                                   i32 ${WAITING}, label %waits ]
waits:
  %pmine = getelementptr i8, ptr %s, i64 ${GENERATION}
  %mine = load i32, ptr %pmine
  %gen = load i32, ptr %pgen
  %same = icmp eq i32 %mine, %gen
  br i1 %same, label %skip, label %run
skip:
  br label %next
run:
  br i1 %seeded, label %few, label %go
few:
  %q = call i64 @random(ptr %w)
  %q1 = and i64 %q, 15
  %q2 = add i64 %q1, 1
  %q3 = trunc i64 %q2 to i32
  br label %go
go:
  %share = phi i32 [ %budget, %run ], [ %q3, %few ]
  %pb = getelementptr i8, ptr %s, i64 ${BUDGET}
  store i32 %share, ptr %pb
  %pp = getelementptr i8, ptr %s, i64 ${PRIVATE}
  %private = load ptr, ptr %pp
  %rc = call i32 %function(ptr %s, ptr %lds, ptr %private, ptr %k)
  switch i32 %rc, label %yielded [ i32 ${ENDED}, label %ended
                                   i32 ${AT_BARRIER}, label %barrier ]
yielded:
  store i32 ${READY}, ptr %pst
  br label %next
barrier:
  store i32 ${WAITING}, ptr %pst
  br label %next
ended:                                            ; a barrier does not wait for waves that have ended
  store i32 ${DONE}, ptr %pst
  %live = load i32, ptr %plive
  %live1 = sub i32 %live, 1
  store i32 %live1, ptr %plive
  %arrived = load i32, ptr %parrived
  %some = icmp ne i32 %arrived, 0
  %enough = icmp uge i32 %arrived, %live1
  %release = and i1 %some, %enough
  br i1 %release, label %free, label %next
free:
  store i32 0, ptr %parrived
  %g = load i32, ptr %pgen
  %g1 = add i32 %g, 1
  store i32 %g1, ptr %pgen
  br label %next
next:
  %did = phi i1 [ false, %skip ], [ false, %yielded ], [ true, %barrier ], [ true, %ended ], [ true, %free ]
  %moved1 = or i1 %moved, %did
  %n1 = add i32 %n, 1
  %more = icmp ult i32 %n1, %waves
  br i1 %more, label %each, label %out
out:
  ret i1 %moved1
}

; Copy a block's fault to the job, if it is the launch's first.
define internal void @report(ptr %j, ptr %k, i32 %code) {
  %pf = getelementptr i8, ptr %j, i64 ${Job.fault}
  %x = cmpxchg ptr %pf, i32 0, i32 %code seq_cst seq_cst
  %first = extractvalue { i32, i1 } %x, 1
  br i1 %first, label %copy, label %out
copy:
  %pkl = getelementptr i8, ptr %k, i64 ${Block.fault_lane}
  %lane = load i32, ptr %pkl
  %pjl = getelementptr i8, ptr %j, i64 ${Job.fault_lane}
  store i32 %lane, ptr %pjl
  %pka = getelementptr i8, ptr %k, i64 ${Block.fault_address}
  %address = load i64, ptr %pka
  %pja = getelementptr i8, ptr %j, i64 ${Job.fault_address}
  store i64 %address, ptr %pja
  %pko = getelementptr i8, ptr %k, i64 ${Block.fault_offset}
  %offset = load i64, ptr %pko
  %pjo = getelementptr i8, ptr %j, i64 ${Job.fault_offset}
  store i64 %offset, ptr %pjo
  %pkn = getelementptr i8, ptr %k, i64 ${Block.index}
  %n = load i64, ptr %pkn
  %pjn = getelementptr i8, ptr %j, i64 ${Job.fault_block}
  store i64 %n, ptr %pjn
  br label %out
out:
  ret void
}

define void @amd_run(ptr %j, ptr %w) {
entry:
  %pslots = getelementptr i8, ptr %w, i64 ${Worker.slots}
  %slots = load ptr, ptr %pslots
  %psc = getelementptr i8, ptr %w, i64 ${Worker.slot_count}
  %slot_count = load i32, ptr %psc
  %pnext = getelementptr i8, ptr %j, i64 ${Job.next}
  %pblocks = getelementptr i8, ptr %j, i64 ${Job.blocks}
  %blocks = load i64, ptr %pblocks
  %pmul = getelementptr i8, ptr %j, i64 ${Job.multiplier}
  %multiplier = load i64, ptr %pmul
  %pres = getelementptr i8, ptr %j, i64 ${Job.resident}
  %initially = load i32, ptr %pres
  %pfault = getelementptr i8, ptr %j, i64 ${Job.fault}
  br label %fill
fill:                                             ; take blocks until %wanted are resident
  %used = phi i32 [ 0, %entry ], [ %used.after, %settle ], [ %used1, %started ]
  %wanted = phi i32 [ %initially, %entry ], [ %wanted.after, %settle ], [ %wanted, %started ]
  %short = icmp ult i32 %used, %wanted
  %room = icmp ult i32 %used, %slot_count
  %take = and i1 %short, %room
  br i1 %take, label %grab, label %rounds
grab:
  %ticket = atomicrmw add ptr %pnext, i64 1 monotonic
  %left = icmp ult i64 %ticket, %blocks
  br i1 %left, label %find, label %rounds
find:
  %f = phi i32 [ 0, %grab ], [ %f1, %find ]
  %f64 = zext i32 %f to i64
  %fo = mul i64 %f64, ${sizeof.Block}
  %slot = getelementptr i8, ptr %slots, i64 %fo
  %pbusy = getelementptr i8, ptr %slot, i64 ${Block.busy}
  %busy = load i32, ptr %pbusy
  %free = icmp eq i32 %busy, 0
  %f1 = add i32 %f, 1
  br i1 %free, label %started, label %find
started:
  %product = mul i64 %ticket, %multiplier
  %number = urem i64 %product, %blocks
  call void @begin(ptr %j, ptr %slot, i64 %number)
  %used1 = add i32 %used, 1
  br label %fill
rounds:
  %none = icmp eq i32 %used, 0
  br i1 %none, label %out, label %each
each:                                             ; one round of every resident block
  %i = phi i32 [ 0, %rounds ], [ %i1, %next ]
  %alive = phi i32 [ %used, %rounds ], [ %alive1, %next ]
  %to.visit = phi i32 [ %used, %rounds ], [ %to.visit1, %next ]
  %moved = phi i1 [ false, %rounds ], [ %moved1, %next ]
  %i64 = zext i32 %i to i64
  %o = mul i64 %i64, ${sizeof.Block}
  %k = getelementptr i8, ptr %slots, i64 %o
  %pb = getelementptr i8, ptr %k, i64 ${Block.busy}
  %b = load i32, ptr %pb
  %idle = icmp eq i32 %b, 0
  br i1 %idle, label %pass, label %run
pass:
  br label %next
run:
  %did = call i1 @round(ptr %j, ptr %w, ptr %k)
  %pkf = getelementptr i8, ptr %k, i64 ${Block.fault}
  %code = load i32, ptr %pkf
  %bad = icmp ne i32 %code, 0
  br i1 %bad, label %fail, label %check
fail:
  call void @report(ptr %j, ptr %k, i32 %code)
  br label %stop
check:
  %elsewhere = load atomic i32, ptr %pfault monotonic, align 4
  %stopped = icmp ne i32 %elsewhere, 0
  br i1 %stopped, label %stop, label %live
live:
  %plive = getelementptr i8, ptr %k, i64 ${Block.live}
  %waves = load i32, ptr %plive
  %over = icmp eq i32 %waves, 0
  br i1 %over, label %finish, label %next
finish:
  store i32 0, ptr %pb
  %fewer = sub i32 %alive, 1
  br label %next
next:
  %alive1 = phi i32 [ %alive, %pass ], [ %alive, %live ], [ %fewer, %finish ]
  %moved.here = phi i1 [ false, %pass ], [ %did, %live ], [ true, %finish ]
  %visited = phi i32 [ 0, %pass ], [ 1, %live ], [ 1, %finish ]
  %moved1 = or i1 %moved, %moved.here
  %to.visit1 = sub i32 %to.visit, %visited
  %i1 = add i32 %i, 1
  %again = icmp ne i32 %to.visit1, 0
  br i1 %again, label %each, label %settle
settle:                                           ; a round without progress: let one more block run
  %used.after = phi i32 [ %alive1, %next ]
  %grown = add i32 %wanted, 1
  %wanted.after = select i1 %moved1, i32 %wanted, i32 %grown
  br label %fill
stop:                                             ; leave no slot busy for the next launch
  br label %clear
clear:
  %c = phi i32 [ 0, %stop ], [ %c1, %clear ]
  %c64 = zext i32 %c to i64
  %co = mul i64 %c64, ${sizeof.Block}
  %ck = getelementptr i8, ptr %slots, i64 %co
  %cb = getelementptr i8, ptr %ck, i64 ${Block.busy}
  store i32 0, ptr %cb
  %c1 = add i32 %c, 1
  %rest = icmp ult i32 %c1, %slot_count
  br i1 %rest, label %clear, label %out
out:
  ret void
}
