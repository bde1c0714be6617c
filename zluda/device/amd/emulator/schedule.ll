; Takes blocks of a launch, runs their waves in turn until all have ended.
;
; Job, Worker and Block are the records of state.py; a record and a field in braces are its byte offset. A
; worker begins with one resident block. A round runs every ready wave of every resident block once: until it
; ends, reaches a barrier or has used up its budget of backward branches. A round in which waves did nothing
; but use up budgets looks like waiting for somebody else, so one more block becomes resident, as many as the
; worker has slots. So waves that wait for others of their block, or for another block, see them run.
;
; A round without progress that leaves all registers as an earlier one did, with no other block to begin,
; will come again and again unless another worker changes memory: the worker is stuck. amd_run returns now and
; then, so that its caller can see to that and to the time; called again it goes on.
;
; With a seed, waves of a block begin at a random one and go up or down, budgets are random and small, blocks
; come in another order, and several are resident from the start. The same seed gives the same order.

declare i32 @llvm.cttz.i32(i32, i1)
declare i64 @llvm.readcyclecounter()

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
  %pix = getelementptr i8, ptr %j, i64 ${Job.id_x_sgpr}
  %ix = load i32, ptr %pix
  %piy = getelementptr i8, ptr %j, i64 ${Job.id_y_sgpr}
  %iy = load i32, ptr %piy
  %piz = getelementptr i8, ptr %j, i64 ${Job.id_z_sgpr}
  %iz = load i32, ptr %piz
  %pio = getelementptr i8, ptr %j, i64 ${Job.wave_offset_sgpr}
  %io = load i32, ptr %pio
  %pir = getelementptr i8, ptr %j, i64 ${Job.resource_sgpr}
  %ir = load i32, ptr %pir
  %pif = getelementptr i8, ptr %j, i64 ${Job.flat_scratch_sgpr}
  %if = load i32, ptr %pif
  %pready = getelementptr i8, ptr %k, i64 ${Block.ready}
  %spare = sub i32 32, %waves
  %all = lshr i32 -1, %spare
  store i32 %all, ptr %pready
  %pwaiting = getelementptr i8, ptr %k, i64 ${Block.waiting}
  store i32 0, ptr %pwaiting
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
  %pcount2 = getelementptr i8, ptr %s, i64 ${VECTOR}
  %done2 = load i64, ptr %pcount2
  %pcount3 = getelementptr i8, ptr %s, i64 ${BYTES}
  %done3 = load i64, ptr %pcount3
  br label %line
line:                                             ; templates are whole cache lines
  %c = phi i64 [ 0, %wave ], [ %c1, %line ]
  %pline = getelementptr i8, ptr %from, i64 %c
  %bytes = load <16 x i32>, ptr %pline, align 64
  %pto = getelementptr i8, ptr %s, i64 %c
  store <16 x i32> %bytes, ptr %pto, align 64
  %c1 = add i64 %c, 64
  %lines = icmp ult i64 %c1, %tbytes
  br i1 %lines, label %line, label %registers
registers:
  store i64 %done, ptr %pcount
  store i64 %done2, ptr %pcount2
  store i64 %done3, ptr %pcount3
  %px = getelementptr i32, ptr %s, i32 %ix
  store i32 %x32, ptr %px
  %py = getelementptr i32, ptr %s, i32 %iy
  store i32 %y32, ptr %py
  %pz = getelementptr i32, ptr %s, i32 %iz
  store i32 %z32, ptr %pz
  %po = mul i64 %i64, %wprivate
  %po32 = trunc i64 %po to i32
  %poff = getelementptr i32, ptr %s, i32 %io
  store i32 %po32, ptr %poff
  %pres = getelementptr i32, ptr %s, i32 %ir
  store i64 %memory, ptr %pres, align 4
  %pflat = getelementptr i32, ptr %s, i32 %if
  store i64 %memory, ptr %pflat, align 4
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

; Run every ready wave of a resident block once. Returns whether any did more than use up its budget.
define internal i1 @round(ptr %j, ptr %w, ptr %k, i1 %patient) {
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
  %pready = getelementptr i8, ptr %k, i64 ${Block.ready}
  %pwaiting = getelementptr i8, ptr %k, i64 ${Block.waiting}
  %ready0 = load i32, ptr %pready
  %waiting0 = load i32, ptr %pwaiting
  br i1 %seeded, label %shuffle, label %start
shuffle:
  %r = call i64 @random(ptr %w)
  %down = trunc i64 %r to i1
  %step0 = select i1 %down, i32 -1, i32 1
  %r1 = lshr i64 %r, 1
  %r32 = trunc i64 %r1 to i32
  %first0 = urem i32 %r32, %waves
  %spare = sub i32 32, %waves
  %every = lshr i32 -1, %spare
  br label %start
start:
  %step = phi i32 [ 1, %entry ], [ %step0, %shuffle ]
  %first = phi i32 [ 0, %entry ], [ %first0, %shuffle ]
  %todo0 = phi i32 [ %ready0, %entry ], [ %every, %shuffle ]
  br label %each
each:
  %todo = phi i32 [ %todo0, %start ], [ %todo1, %next ]
  %ready = phi i32 [ %ready0, %start ], [ %ready.next, %next ]
  %waiting = phi i32 [ %waiting0, %start ], [ %waiting.next, %next ]
  %moved = phi i1 [ false, %start ], [ %moved1, %next ]
  %none = icmp eq i32 %todo, 0
  br i1 %none, label %out, label %pick
pick:
  %n = call i32 @llvm.cttz.i32(i32 %todo, i1 true)
  %less = sub i32 %todo, 1
  %todo1 = and i32 %todo, %less
  br i1 %seeded, label %turn, label %run
turn:                                             ; the n-th from the first one, up or down, round and round
  %d = mul i32 %n, %step
  %sum = add i32 %first, %d
  %below = icmp slt i32 %sum, 0
  %raised = add i32 %sum, %waves
  %above = icmp sge i32 %sum, %waves
  %lowered = sub i32 %sum, %waves
  %capped = select i1 %above, i32 %lowered, i32 %sum
  %turned = select i1 %below, i32 %raised, i32 %capped
  %shifted = lshr i32 %ready, %turned
  %can = trunc i32 %shifted to i1
  br i1 %can, label %few, label %next
few:
  %q = call i64 @random(ptr %w)
  %q1 = and i64 %q, 15
  %q2 = add i64 %q1, 1
  %q3 = trunc i64 %q2 to i32
  %few.or.many = select i1 %patient, i32 %q3, i32 %budget
  br label %run
run:
  %i = phi i32 [ %n, %pick ], [ %turned, %few ]
  %share = phi i32 [ %budget, %pick ], [ %few.or.many, %few ]
  %i64 = zext i32 %i to i64
  %o = mul i64 %i64, %wbytes
  %s = getelementptr i8, ptr %records, i64 %o
  %pb = getelementptr i8, ptr %s, i64 ${BUDGET}
  store i32 %share, ptr %pb
  %pp = getelementptr i8, ptr %s, i64 ${PRIVATE}
  %private = load ptr, ptr %pp
  %gen0 = load i32, ptr %pgen
  %pcurrent = getelementptr i8, ptr %k, i64 ${Block.wave}
  store i32 %i, ptr %pcurrent
  %rc = call i32 %function(ptr %s, ptr %lds, ptr %private, ptr %k)
  %bit = shl i32 1, %i
  %others = xor i32 %bit, -1
  %gen1 = load i32, ptr %pgen
  switch i32 %rc, label %after [ i32 ${ENDED}, label %ended
                                 i32 ${AT_BARRIER}, label %barrier ]
barrier:                                          ; it waits unless its generation is over
  %pmine = getelementptr i8, ptr %s, i64 ${GENERATION}
  %mine = load i32, ptr %pmine
  %waits = icmp eq i32 %mine, %gen1
  %ready.without = and i32 %ready, %others
  %ready.barrier = select i1 %waits, i32 %ready.without, i32 %ready
  %waiting.with = or i32 %waiting, %bit
  %waiting.barrier = select i1 %waits, i32 %waiting.with, i32 %waiting
  br label %after
ended:                                            ; a barrier does not wait for waves that have ended
  %ready.ended = and i32 %ready, %others
  %live = load i32, ptr %plive
  %live1 = sub i32 %live, 1
  store i32 %live1, ptr %plive
  %arrived = load i32, ptr %parrived
  %some = icmp ne i32 %arrived, 0
  %enough = icmp uge i32 %arrived, %live1
  %release = and i1 %some, %enough
  br i1 %release, label %free, label %after
free:
  store i32 0, ptr %parrived
  %gen2 = add i32 %gen1, 1
  store i32 %gen2, ptr %pgen
  br label %after
after:                                            ; a new generation frees the waves that wait
  %ready.after = phi i32 [ %ready, %run ], [ %ready.barrier, %barrier ], [ %ready.ended, %ended ], [ %ready.ended, %free ]
  %waiting.after = phi i32 [ %waiting, %run ], [ %waiting.barrier, %barrier ], [ %waiting, %ended ], [ %waiting, %free ]
  %gen = phi i32 [ %gen1, %run ], [ %gen1, %barrier ], [ %gen1, %ended ], [ %gen2, %free ]
  %did = phi i1 [ false, %run ], [ true, %barrier ], [ true, %ended ], [ true, %free ]
  %over = icmp ne i32 %gen, %gen0
  %freed = or i32 %ready.after, %waiting.after
  %ready.new = select i1 %over, i32 %freed, i32 %ready.after
  %waiting.new = select i1 %over, i32 0, i32 %waiting.after
  br label %next
next:
  %ready.next = phi i32 [ %ready, %turn ], [ %ready.new, %after ]
  %waiting.next = phi i32 [ %waiting, %turn ], [ %waiting.new, %after ]
  %did.next = phi i1 [ false, %turn ], [ %did, %after ]
  %moved1 = or i1 %moved, %did.next
  br label %each
out:
  store i32 %ready, ptr %pready
  store i32 %waiting, ptr %pwaiting
  ret i1 %moved
}

; A number that stands for the registers of a block's ready waves and where they are.
define internal i64 @digest(ptr %j, ptr %k, i64 %seed) {
entry:
  %pwb = getelementptr i8, ptr %j, i64 ${Job.wave_bytes}
  %wbytes = load i64, ptr %pwb
  %precords = getelementptr i8, ptr %k, i64 ${Block.waves}
  %records = load ptr, ptr %precords
  %pready = getelementptr i8, ptr %k, i64 ${Block.ready}
  %ready = load i32, ptr %pready
  br label %each
each:
  %todo = phi i32 [ %ready, %entry ], [ %todo1, %done ]
  %sum = phi i64 [ %seed, %entry ], [ %sum.wave, %done ]
  %none = icmp eq i32 %todo, 0
  br i1 %none, label %out, label %wave
wave:
  %i = call i32 @llvm.cttz.i32(i32 %todo, i1 true)
  %less = sub i32 %todo, 1
  %todo1 = and i32 %todo, %less
  %i64 = zext i32 %i to i64
  %o = mul i64 %i64, %wbytes
  %s = getelementptr i8, ptr %records, i64 %o
  br label %word
word:                                             ; registers, PC, and past the fields that only count
  %at = phi i64 [ 0, %wave ], [ %at2, %word ]
  %h = phi i64 [ %sum, %wave ], [ %h2, %word ]
  %p = getelementptr i8, ptr %s, i64 %at
  %x = load i64, ptr %p
  %h0 = xor i64 %h, %x
  %h1 = mul i64 %h0, -7046029254386353131
  %hs = lshr i64 %h1, 29
  %h2 = xor i64 %h1, %hs
  %at1 = add i64 %at, 8
  %field = icmp eq i64 %at1, ${COUNT}
  %at2 = select i1 %field, i64 ${VGPRS}, i64 %at1
  %more = icmp ult i64 %at2, %wbytes
  br i1 %more, label %word, label %done
done:
  %sum.wave = phi i64 [ %h2, %word ]
  br label %each
out:
  ret i64 %sum
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

; Go on with a launch. Returns 1 if there is more to do, 0 when this worker has done all it can.
define i32 @amd_run(ptr %j, ptr %w) {
entry:
  %began = call i64 @llvm.readcyclecounter()
  %enough = add i64 %began, ${SLICE}
  %pslots = getelementptr i8, ptr %w, i64 ${Worker.slots}
  %slots = load ptr, ptr %pslots
  %psc = getelementptr i8, ptr %w, i64 ${Worker.slot_count}
  %slot_count = load i32, ptr %psc
  %pnext = getelementptr i8, ptr %j, i64 ${Job.next}
  %pblocks = getelementptr i8, ptr %j, i64 ${Job.blocks}
  %blocks = load i64, ptr %pblocks
  %pshare = getelementptr i8, ptr %j, i64 ${Job.share}
  %share = load i64, ptr %pshare
  %pmul = getelementptr i8, ptr %j, i64 ${Job.multiplier}
  %multiplier = load i64, ptr %pmul
  %pfault = getelementptr i8, ptr %j, i64 ${Job.fault}
  %pused = getelementptr i8, ptr %w, i64 ${Worker.used}
  %used0 = load i32, ptr %pused
  %pwanted = getelementptr i8, ptr %w, i64 ${Worker.wanted}
  %wanted0 = load i32, ptr %pwanted
  %pticket = getelementptr i8, ptr %w, i64 ${Worker.ticket}
  %plast = getelementptr i8, ptr %w, i64 ${Worker.last_ticket}
  %pprogress = getelementptr i8, ptr %w, i64 ${Worker.progress}
  %pquiet = getelementptr i8, ptr %w, i64 ${Worker.quiet}
  %pstuck = getelementptr i8, ptr %w, i64 ${Worker.stuck}
  %pkept = getelementptr i8, ptr %w, i64 ${Worker.kept_digest}
  br label %fill
fill:                                             ; take blocks until %wanted are resident
  %used = phi i32 [ %used0, %entry ], [ %used.after, %settled ], [ %used.after, %onward ], [ %used1, %started ]
  %wanted = phi i32 [ %wanted0, %entry ], [ %wanted.after, %settled ], [ %wanted, %onward ], [ %wanted, %started ]
  %short = icmp ult i32 %used, %wanted
  %room = icmp ult i32 %used, %slot_count
  %take = and i1 %short, %room
  br i1 %take, label %grab, label %rounds
grab:                                             ; tickets are drawn several at once
  %mine = load i64, ptr %pticket
  %mine.end = load i64, ptr %plast
  %drawn = icmp ult i64 %mine, %mine.end
  br i1 %drawn, label %use, label %draw
draw:
  %new = atomicrmw add ptr %pnext, i64 %share monotonic
  %new.end = add i64 %new, %share
  store i64 %new.end, ptr %plast
  br label %use
use:
  %ticket = phi i64 [ %mine, %grab ], [ %new, %draw ]
  %ticket1 = add i64 %ticket, 1
  store i64 %ticket1, ptr %pticket
  %left = icmp ult i64 %ticket, %blocks
  br i1 %left, label %find, label %rounds
find:
  %f = phi i32 [ 0, %use ], [ %f1, %find ]
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
  store i64 0, ptr %pquiet
  store i32 0, ptr %pstuck
  br label %fill
rounds:
  %none = icmp eq i32 %used, 0
  br i1 %none, label %finished, label %round
round:
  %quiet = load i64, ptr %pquiet
  %patient = icmp ult i64 %quiet, 64               ; random budgets never repeat a state
  br label %each
each:                                             ; one round of every resident block
  %i = phi i32 [ 0, %round ], [ %i1, %next ]
  %alive = phi i32 [ %used, %round ], [ %alive1, %next ]
  %to.visit = phi i32 [ %used, %round ], [ %to.visit1, %next ]
  %moved = phi i1 [ false, %round ], [ %moved1, %next ]
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
  %did = call i1 @round(ptr %j, ptr %w, ptr %k, i1 %patient)
  %pkf = getelementptr i8, ptr %k, i64 ${Block.fault}
  %code = load i32, ptr %pkf
  %bad = icmp ne i32 %code, 0
  br i1 %bad, label %fail, label %check
fail:
  call void @report(ptr %j, ptr %k, i32 %code)
  br label %finished
check:
  %elsewhere = load atomic i32, ptr %pfault monotonic, align 4
  %stopped = icmp ne i32 %elsewhere, 0
  br i1 %stopped, label %finished, label %live
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
settle:
  %used.after = phi i32 [ %alive1, %next ]
  br i1 %moved1, label %progress, label %none.moved
progress:
  store i64 0, ptr %pquiet
  store i32 0, ptr %pstuck
  %count = load i64, ptr %pprogress
  %count1 = add i64 %count, 1
  store i64 %count1, ptr %pprogress
  %low = and i64 %count1, 63                       ; reading the clock costs as much as a small round
  %seldom = icmp eq i64 %low, 0
  br i1 %seldom, label %settled, label %onward
onward:
  br label %fill
none.moved:                                       ; let one more block run; see whether this was so before
  %grown = add i32 %wanted, 1
  %quiet1 = add i64 %quiet, 1
  store i64 %quiet1, ptr %pquiet
  %soon = icmp ult i64 %quiet1, 64
  br i1 %soon, label %settled, label %compare
compare:
  %c = phi i32 [ 0, %none.moved ], [ %c1, %compared ]
  %sum = phi i64 [ 0, %none.moved ], [ %sum1, %compared ]
  %c64 = zext i32 %c to i64
  %co = mul i64 %c64, ${sizeof.Block}
  %ck = getelementptr i8, ptr %slots, i64 %co
  %pcb = getelementptr i8, ptr %ck, i64 ${Block.busy}
  %cb = load i32, ptr %pcb
  %resident = icmp ne i32 %cb, 0
  br i1 %resident, label %look, label %compared
look:
  %looked = call i64 @digest(ptr %j, ptr %ck, i64 %sum)
  br label %compared
compared:
  %sum1 = phi i64 [ %sum, %compare ], [ %looked, %look ]
  %c1 = add i32 %c, 1
  %rest = icmp ult i32 %c1, %slot_count
  br i1 %rest, label %compare, label %judge
judge:                                            ; kept at powers of two: a cycle of any length is found
  %kept = load i64, ptr %pkept
  %same = icmp eq i64 %kept, %sum1
  %before = load i32, ptr %pstuck
  %same32 = zext i1 %same to i32
  %stuck = or i32 %before, %same32
  store i32 %stuck, ptr %pstuck
  %smaller = sub i64 %quiet1, 1
  %common = and i64 %smaller, %quiet1
  %power = icmp eq i64 %common, 0
  %keep = select i1 %power, i64 %sum1, i64 %kept
  store i64 %keep, ptr %pkept
  br label %settled
settled:
  %wanted.after = phi i32 [ %wanted, %progress ], [ %grown, %none.moved ], [ %grown, %judge ]
  %now = call i64 @llvm.readcyclecounter()
  %late = icmp ugt i64 %now, %enough
  br i1 %late, label %pause, label %fill
pause:
  store i32 %used.after, ptr %pused
  store i32 %wanted.after, ptr %pwanted
  ret i32 1
finished:                                         ; of a launch that failed, slots stay as they are: evidence
  %used.last = phi i32 [ 0, %rounds ], [ %used, %fail ], [ %used, %check ]
  store i32 %used.last, ptr %pused
  ret i32 0
}
