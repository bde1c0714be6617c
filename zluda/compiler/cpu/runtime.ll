; The native runtime: runs a grid's blocks, suspends and resumes the warps of a block, stops a launch.
;
; Context and Job are the records of context.py; a record and field in braces are its byte offset. Every
; worker thread has one Context and one region of stacks, a stack a warp. A kernel without barriers runs its
; warps one after the other on the whole region. One with barriers runs each warp as a fiber: a warp that waits
; at a barrier switches to one that is ready, until all are done.
;
; Blocks of a cluster, and others that may wait for each other, share a thread: each has a Context and stacks of
; its own, and when all its warps wait, or have looked in vain for what they wait for, the next block goes on.

declare i64 @syscall(i64, ...)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare void @llvm.x86.sse2.pause()
declare i32 @llvm.cttz.i32(i32, i1)

; --- stacks ------------------------------------------------------------------------------------------
; System V x86-64: rbx, rbp, r12-r15 survive calls; all vector registers are the caller's to save.

; Save the running stack in *save and continue on another that was saved so.
define void @zluda_switch(ptr %save, ptr %to) naked noinline nounwind {
  call void asm sideeffect "pushq %rbp\0Apushq %rbx\0Apushq %r12\0Apushq %r13\0Apushq %r14\0Apushq %r15\0Amovq %rsp, (%rdi)\0Amovq %rsi, %rsp\0Apopq %r15\0Apopq %r14\0Apopq %r13\0Apopq %r12\0Apopq %rbx\0Apopq %rbp\0Aretq", "~{memory}"()
  unreachable
}

; Call function(context) on another stack; @zluda_escape(*escape) returns from here at once.
define void @zluda_enter(ptr %function, ptr %context, ptr %escape, ptr %stack) naked noinline nounwind {
  call void asm sideeffect "pushq %rbp\0Apushq %rbx\0Apushq %r12\0Apushq %r13\0Apushq %r14\0Apushq %r15\0Amovq %rsp, (%rdx)\0Amovq %rdx, %rbx\0Amovq %rcx, %rsp\0Amovq %rdi, %rax\0Amovq %rsi, %rdi\0Acallq *%rax\0Amovq (%rbx), %rsp\0Apopq %r15\0Apopq %r14\0Apopq %r13\0Apopq %r12\0Apopq %rbx\0Apopq %rbp\0Aretq", "~{memory}"()
  unreachable
}

; Leave whatever runs and return from @zluda_enter.
define void @zluda_escape(ptr %stack) naked noinline nounwind {
  call void asm sideeffect "movq %rdi, %rsp\0Apopq %r15\0Apopq %r14\0Apopq %r13\0Apopq %r12\0Apopq %rbx\0Apopq %rbp\0Aretq", "~{memory}"()
  unreachable
}

; Where a new fiber begins: its first switch popped the context into rbx.
define void @zluda_fiber_start() naked noinline nounwind {
  call void asm sideeffect "movq %rbx, %rdi\0Acallq *%r12", "~{memory}"()
  unreachable
}

; --- warps -------------------------------------------------------------------------------------------
;
; Context.ready has a bit for each warp that can run, the running one included. A warp that waits clears its
; bit and switches to the next one set, straight from stack to stack: as all of them wait at the same place,
; the processor predicts every return. Only when nobody is ready does control go back to @zluda_fibers.

define internal ptr @fiber(ptr %c, i32 %w) alwaysinline {
  %wide = zext i32 %w to i64
  %o = mul i64 %wide, ${sizeof.Fiber}
  %all = getelementptr i8, ptr %c, i64 ${Context.fibers}
  %f = getelementptr i8, ptr %all, i64 %o
  ret ptr %f
}

; The stack to go on with after warp %w, which becomes the current one: the next ready, else the scheduler's.
define internal ptr @next(ptr %c, i32 %w) alwaysinline {
  %pr = getelementptr i8, ptr %c, i64 ${Context.ready}
  %ready = load i32, ptr %pr
  %none = icmp eq i32 %ready, 0
  br i1 %none, label %back, label %choose
back:
  %psched = getelementptr i8, ptr %c, i64 ${Context.scheduler}
  %sched = load ptr, ptr %psched
  ret ptr %sched
choose:
  %upto = shl i32 -2, %w
  %after = and i32 %ready, %upto
  %wrap = icmp eq i32 %after, 0
  %from = select i1 %wrap, i32 %ready, i32 %after
  %n = call i32 @llvm.cttz.i32(i32 %from, i1 true)
  %pw = getelementptr i8, ptr %c, i64 ${Context.current}
  store i32 %n, ptr %pw
  %f = call ptr @fiber(ptr %c, i32 %n)
  %stack = load ptr, ptr %f
  ret ptr %stack
}

; A fiber's life: run the warp, be done, never return.
define internal void @fiber_main(ptr %c) noinline {
  %pf = getelementptr i8, ptr %c, i64 ${Context.warp_function}
  %fn = load ptr, ptr %pf
  %pw = getelementptr i8, ptr %c, i64 ${Context.current}
  %w = load i32, ptr %pw
  call void %fn(ptr %c, i32 %w)
  %bit = shl i32 1, %w
  %others = xor i32 %bit, -1
  %pr = getelementptr i8, ptr %c, i64 ${Context.ready}
  %r = load i32, ptr %pr
  %r1 = and i32 %r, %others
  store i32 %r1, ptr %pr
  %pl = getelementptr i8, ptr %c, i64 ${Context.live}
  %l = load i32, ptr %pl
  %l1 = sub i32 %l, 1
  store i32 %l1, ptr %pl
  %pcl = getelementptr i8, ptr %c, i64 ${Context.cluster}
  %cl = load ptr, ptr %pcl
  %plive = getelementptr i8, ptr %cl, i64 ${Cluster.live}
  %there = load i32, ptr %plive
  %there1 = sub i32 %there, 1
  store i32 %there1, ptr %plive
  call void @cluster_release(ptr %cl)
  %pp = getelementptr i8, ptr %c, i64 ${Context.pending}
  %pending = load i32, ptr %pp
  %nobody = icmp eq i32 %pending, 0
  br i1 %nobody, label %leave, label %each
each:                                             ; barriers that waited for this warp too
  %i = phi i32 [ 0, %0 ], [ %i1, %each ]
  %done = call i1 @release(ptr %c, i32 %i)
  %i1 = add i32 %i, 1
  %more = icmp ult i32 %i1, ${BARRIERS}
  br i1 %more, label %each, label %leave
leave:
  %f = call ptr @fiber(ptr %c, i32 %w)
  %to = call ptr @next(ptr %c, i32 %w)
  call void @zluda_switch(ptr %f, ptr %to)
  unreachable
}

define internal ptr @barrier(ptr %c, i32 %id) alwaysinline {
  %wide = zext i32 %id to i64
  %o = mul i64 %wide, ${sizeof.Barrier}
  %all = getelementptr i8, ptr %c, i64 ${Context.barriers}
  %b = getelementptr i8, ptr %all, i64 %o
  ret ptr %b
}

; Complete a barrier if enough warps have arrived: those who wait are ready and get the votes; begin anew.
define internal i1 @release(ptr %c, i32 %id) {
  %b = call ptr @barrier(ptr %c, i32 %id)
  %arrived = load i32, ptr %b
  %some = icmp ne i32 %arrived, 0
  br i1 %some, label %count, label %no
count:
  %pe = getelementptr i8, ptr %b, i64 ${Barrier.expected}
  %threads = load i32, ptr %pe
  %up = add i32 %threads, 31
  %given = lshr i32 %up, 5
  %everybody = icmp eq i32 %threads, 0
  %pl = getelementptr i8, ptr %c, i64 ${Context.live}
  %live = load i32, ptr %pl
  %expected = select i1 %everybody, i32 %live, i32 %given
  %complete = icmp uge i32 %arrived, %expected
  br i1 %complete, label %free, label %no
free:
  %pq = getelementptr i8, ptr %b, i64 ${Barrier.waiting}
  %waiting = load i32, ptr %pq
  %pr = getelementptr i8, ptr %c, i64 ${Context.ready}
  %r = load i32, ptr %pr
  %r1 = or i32 %r, %waiting
  store i32 %r1, ptr %pr
  %pp = getelementptr i8, ptr %c, i64 ${Context.pending}
  %p = load i32, ptr %pp
  %p1 = sub i32 %p, 1
  store i32 %p1, ptr %pp
  %pv = getelementptr i8, ptr %b, i64 ${Barrier.votes}
  %votes = load i64, ptr %pv, align 4
  call void @llvm.memset.p0.i64(ptr %b, i8 0, i64 ${sizeof.Barrier}, i1 false)
  %plain = icmp eq i64 %votes, 0
  br i1 %plain, label %yes, label %each
each:
  %left = phi i32 [ %waiting, %free ], [ %left1, %give ]
  %over = icmp eq i32 %left, 0
  br i1 %over, label %yes, label %give
give:
  %w = call i32 @llvm.cttz.i32(i32 %left, i1 true)
  %minus = sub i32 %left, 1
  %left1 = and i32 %left, %minus
  %f = call ptr @fiber(ptr %c, i32 %w)
  %pfv = getelementptr i8, ptr %f, i64 ${Fiber.votes}
  store i64 %votes, ptr %pfv, align 4
  br label %each
yes:
  ret i1 true
no:
  ret i1 false
}

; A warp arrives at a barrier: threads (0: all of the block) take part, votes of voters lanes are yes. Returns
; votes and voters (in the upper half) of all warps when %wait, as soon as the barrier is complete.
define i64 @zluda_barrier(ptr %c, i32 %id, i32 %threads, i32 %votes, i32 %voters, i32 %wait) noinline nounwind {
  %slot = and i32 %id, 15
  %b = call ptr @barrier(ptr %c, i32 %slot)
  %a = load i32, ptr %b
  %a1 = add i32 %a, 1
  store i32 %a1, ptr %b
  %begins = icmp eq i32 %a, 0
  %one = zext i1 %begins to i32
  %pp = getelementptr i8, ptr %c, i64 ${Context.pending}
  %p = load i32, ptr %pp
  %p1 = add i32 %p, %one
  store i32 %p1, ptr %pp
  %pe = getelementptr i8, ptr %b, i64 ${Barrier.expected}
  store i32 %threads, ptr %pe
  %pv = getelementptr i8, ptr %b, i64 ${Barrier.votes}
  %v = load i32, ptr %pv
  %v1 = add i32 %v, %votes
  store i32 %v1, ptr %pv
  %po = getelementptr i8, ptr %b, i64 ${Barrier.voters}
  %o = load i32, ptr %po
  %o1 = add i32 %o, %voters
  store i32 %o1, ptr %po
  %pw = getelementptr i8, ptr %c, i64 ${Context.current}
  %w = load i32, ptr %pw
  %bit = shl i32 1, %w
  %f = call ptr @fiber(ptr %c, i32 %w)
  %waits = icmp ne i32 %wait, 0
  %mine = select i1 %waits, i32 %bit, i32 0
  %pq = getelementptr i8, ptr %b, i64 ${Barrier.waiting}
  %q = load i32, ptr %pq
  %q1 = or i32 %q, %mine
  store i32 %q1, ptr %pq
  %done = call i1 @release(ptr %c, i32 %slot)
  %goes = xor i1 %waits, true
  %on = or i1 %done, %goes
  br i1 %on, label %out, label %suspend
suspend:
  %others = xor i32 %bit, -1
  %pr = getelementptr i8, ptr %c, i64 ${Context.ready}
  %r = load i32, ptr %pr
  %r1 = and i32 %r, %others
  store i32 %r1, ptr %pr
  %to = call ptr @next(ptr %c, i32 %w)
  call void @zluda_switch(ptr %f, ptr %to)
  br label %out
out:
  %pfv = getelementptr i8, ptr %f, i64 ${Fiber.votes}
  %result = load i64, ptr %pfv, align 4
  ret i64 %result
}

; --- the cluster's barrier ----------------------------------------------------------------------------

; Begin the next phase if all warps of the cluster have arrived: those who wait are ready.
define internal void @cluster_release(ptr %cl) {
  %pa = getelementptr i8, ptr %cl, i64 ${Cluster.arrived}
  %arrived = load i32, ptr %pa
  %some = icmp ne i32 %arrived, 0
  %pl = getelementptr i8, ptr %cl, i64 ${Cluster.live}
  %live = load i32, ptr %pl
  %enough = icmp uge i32 %arrived, %live
  %complete = and i1 %some, %enough
  br i1 %complete, label %begin, label %out
begin:
  store i32 0, ptr %pa
  %pg = getelementptr i8, ptr %cl, i64 ${Cluster.generation}
  %generation = load i32, ptr %pg
  %generation1 = add i32 %generation, 1
  store i32 %generation1, ptr %pg
  %ps = getelementptr i8, ptr %cl, i64 ${Cluster.size}
  %size = load i32, ptr %ps
  %first = load ptr, ptr %cl
  br label %each
each:
  %i = phi i32 [ 0, %begin ], [ %i1, %each ]
  %i64 = zext i32 %i to i64
  %o = mul i64 %i64, ${sizeof.Context}
  %c = getelementptr i8, ptr %first, i64 %o
  %pw = getelementptr i8, ptr %c, i64 ${Context.cluster_waiting}
  %waiting = load i32, ptr %pw
  store i32 0, ptr %pw
  %pr = getelementptr i8, ptr %c, i64 ${Context.ready}
  %ready = load i32, ptr %pr
  %ready1 = or i32 %ready, %waiting
  store i32 %ready1, ptr %pr
  %i1 = add i32 %i, 1
  %more = icmp ult i32 %i1, %size
  br i1 %more, label %each, label %out
out:
  ret void
}

; A warp arrives at its cluster's barrier, and notes in which phase.
define void @zluda_cluster_arrive(ptr %c) noinline nounwind {
  %pcl = getelementptr i8, ptr %c, i64 ${Context.cluster}
  %cl = load ptr, ptr %pcl
  %pg = getelementptr i8, ptr %cl, i64 ${Cluster.generation}
  %generation = load i32, ptr %pg
  %pw = getelementptr i8, ptr %c, i64 ${Context.current}
  %w = load i32, ptr %pw
  %f = call ptr @fiber(ptr %c, i32 %w)
  %pp = getelementptr i8, ptr %f, i64 ${Fiber.phase}
  store i32 %generation, ptr %pp
  %pa = getelementptr i8, ptr %cl, i64 ${Cluster.arrived}
  %arrived = load i32, ptr %pa
  %arrived1 = add i32 %arrived, 1
  store i32 %arrived1, ptr %pa
  call void @cluster_release(ptr %cl)
  ret void
}

; A warp waits until the phase in which it arrived is over.
define void @zluda_cluster_wait(ptr %c) noinline nounwind {
  %pcl = getelementptr i8, ptr %c, i64 ${Context.cluster}
  %cl = load ptr, ptr %pcl
  %pg = getelementptr i8, ptr %cl, i64 ${Cluster.generation}
  %generation = load i32, ptr %pg
  %pw = getelementptr i8, ptr %c, i64 ${Context.current}
  %w = load i32, ptr %pw
  %f = call ptr @fiber(ptr %c, i32 %w)
  %pp = getelementptr i8, ptr %f, i64 ${Fiber.phase}
  %phase = load i32, ptr %pp
  %over = icmp ne i32 %generation, %phase
  br i1 %over, label %out, label %suspend
suspend:
  %bit = shl i32 1, %w
  %others = xor i32 %bit, -1
  %pq = getelementptr i8, ptr %c, i64 ${Context.cluster_waiting}
  %q = load i32, ptr %pq
  %q1 = or i32 %q, %bit
  store i32 %q1, ptr %pq
  %pr = getelementptr i8, ptr %c, i64 ${Context.ready}
  %r = load i32, ptr %pr
  %r1 = and i32 %r, %others
  store i32 %r1, ptr %pr
  %to = call ptr @next(ptr %c, i32 %w)
  call void @zluda_switch(ptr %f, ptr %to)
  br label %out
out:
  ret void
}

; --- turns -------------------------------------------------------------------------------------------

; Let others run: called in loops that wait for memory to change. First the block's own warps; when the last of
; them has looked, the thread's other blocks.
define void @zluda_yield(ptr %c) noinline nounwind {
  %pw = getelementptr i8, ptr %c, i64 ${Context.current}
  %w = load i32, ptr %pw
  %f = call ptr @fiber(ptr %c, i32 %w)
  %pg = getelementptr i8, ptr %c, i64 ${Context.gang}
  %gang = load i32, ptr %pg
  %shared = icmp ne i32 %gang, 0
  %pr = getelementptr i8, ptr %c, i64 ${Context.ready}
  %ready = load i32, ptr %pr
  %upto = shl i32 -2, %w
  %after = and i32 %ready, %upto
  %last = icmp eq i32 %after, 0
  %leave = and i1 %shared, %last
  br i1 %leave, label %block, label %warp
block:
  %psched = getelementptr i8, ptr %c, i64 ${Context.scheduler}
  %sched = load ptr, ptr %psched
  call void @zluda_switch(ptr %f, ptr %sched)
  br label %out
warp:
  %to = call ptr @next(ptr %c, i32 %w)
  %n = load i32, ptr %pw
  %alone = icmp eq i32 %n, %w
  br i1 %alone, label %out, label %switch
switch:
  call void @zluda_switch(ptr %f, ptr %to)
  br label %out
out:
  ret void
}

; The next number that a seeded schedule draws (xorshift64*).
define internal i64 @draw(ptr %c) {
  %p = getelementptr i8, ptr %c, i64 ${Context.random}
  %x = load i64, ptr %p
  %a = lshr i64 %x, 12
  %x1 = xor i64 %x, %a
  %b = shl i64 %x1, 25
  %x2 = xor i64 %x1, %b
  %d = lshr i64 %x2, 27
  %x3 = xor i64 %x2, %d
  store i64 %x3, ptr %p
  %r = mul i64 %x3, 2685821657736338717
  %high = lshr i64 %r, 32
  ret i64 %high
}

; In a seeded schedule, before an access to memory that others share: now and then another warp of the block goes on,
; drawn from those that can, or another block.
define void @zluda_turn(ptr %c) noinline nounwind {
  %drawn = call i64 @draw(ptr %c)
  %r = trunc i64 %drawn to i32
  %some = and i32 %r, 3
  %stay = icmp ne i32 %some, 0
  br i1 %stay, label %out, label %go
go:
  %pw = getelementptr i8, ptr %c, i64 ${Context.current}
  %w = load i32, ptr %pw
  %f = call ptr @fiber(ptr %c, i32 %w)
  %pg = getelementptr i8, ptr %c, i64 ${Context.gang}
  %gang = load i32, ptr %pg
  %shared = icmp ne i32 %gang, 0
  %rare = and i32 %r, 12
  %chosen = icmp eq i32 %rare, 0
  %leave = and i1 %shared, %chosen
  br i1 %leave, label %block, label %warp
block:
  %psched = getelementptr i8, ptr %c, i64 ${Context.scheduler}
  %sched = load ptr, ptr %psched
  call void @zluda_switch(ptr %f, ptr %sched)
  br label %out
warp:
  %up = lshr i32 %r, 4
  %pn = getelementptr i8, ptr %c, i64 ${Context.warps}
  %warps = load i32, ptr %pn
  %from = urem i32 %up, %warps
  %to = call ptr @next(ptr %c, i32 %from)
  %n = load i32, ptr %pw
  %same = icmp eq i32 %n, %w
  br i1 %same, label %out, label %switch
switch:
  call void @zluda_switch(ptr %f, ptr %to)
  br label %out
out:
  ret void
}

; Run all warps of a block as fibers.
define void @zluda_fibers(ptr %c, ptr %warp) noinline nounwind {
  %pf = getelementptr i8, ptr %c, i64 ${Context.warp_function}
  store ptr %warp, ptr %pf
  %pn = getelementptr i8, ptr %c, i64 ${Context.warps}
  %warps = load i32, ptr %pn
  %pl = getelementptr i8, ptr %c, i64 ${Context.live}
  store i32 %warps, ptr %pl
  %missing = sub i32 32, %warps
  %all = lshr i32 -1, %missing
  %pr = getelementptr i8, ptr %c, i64 ${Context.ready}
  store i32 %all, ptr %pr
  %pw = getelementptr i8, ptr %c, i64 ${Context.current}
  store i32 0, ptr %pw
  %pp = getelementptr i8, ptr %c, i64 ${Context.pending}
  store i32 0, ptr %pp
  %bars = getelementptr i8, ptr %c, i64 ${Context.barriers}
  call void @llvm.memset.p0.i64(ptr %bars, i8 0, i64 ${sizeof.barriers}, i1 false)
  %pwait = getelementptr i8, ptr %c, i64 ${Context.cluster_waiting}
  store i32 0, ptr %pwait
  %pgang = getelementptr i8, ptr %c, i64 ${Context.gang}
  %gang = load i32, ptr %pgang
  %shared = icmp ne i32 %gang, 0
  br i1 %shared, label %stacks, label %solo
solo:                                             ; a cluster of one block
  %solo.cluster = getelementptr i8, ptr %c, i64 ${Context.solo}
  call void @llvm.memset.p0.i64(ptr %solo.cluster, i8 0, i64 ${sizeof.Cluster}, i1 false)
  store ptr %c, ptr %solo.cluster
  %pcs = getelementptr i8, ptr %solo.cluster, i64 ${Cluster.size}
  store i32 1, ptr %pcs
  %pcl = getelementptr i8, ptr %solo.cluster, i64 ${Cluster.live}
  store i32 %warps, ptr %pcl
  %pcc = getelementptr i8, ptr %c, i64 ${Context.cluster}
  store ptr %solo.cluster, ptr %pcc
  br label %stacks
stacks:
  %plow = getelementptr i8, ptr %c, i64 ${Context.stack_low}
  %low = load i64, ptr %plow
  br label %prepare
prepare:
  %i = phi i32 [ 0, %stacks ], [ %i1, %prepare ]
  %i1 = add i32 %i, 1
  %n = zext i32 %i1 to i64
  %o = mul i64 %n, ${STACK_BYTES}
  %top0 = add i64 %low, %o
  ; the scheduler itself runs at the region's end, and equal stack depths must not share cache sets
  %color = mul i64 %n, 2112
  %below = add i64 %color, 65536
  %top1 = sub i64 %top0, %below
  %top = and i64 %top1, -64
  %sp = sub i64 %top, 56
  %frame = inttoptr i64 %sp to ptr
  ; popped in turn: r15 r14 r13 r12 rbx rbp, then the return address
  %p12 = getelementptr i64, ptr %frame, i64 3
  store ptr @fiber_main, ptr %p12
  %pbx = getelementptr i64, ptr %frame, i64 4
  store ptr %c, ptr %pbx
  %pra = getelementptr i64, ptr %frame, i64 6
  store ptr @zluda_fiber_start, ptr %pra
  %f = call ptr @fiber(ptr %c, i32 %i)
  store i64 %sp, ptr %f
  %more = icmp ult i32 %i1, %warps
  br i1 %more, label %prepare, label %go
go:
  %psched = getelementptr i8, ptr %c, i64 ${Context.scheduler}
  br label %run
run:
  %next = phi i32 [ 0, %go ], [ %lowest, %again ]
  store i32 %next, ptr %pw
  %chosen = call ptr @fiber(ptr %c, i32 %next)
  %to = load ptr, ptr %chosen
  call void @zluda_switch(ptr %psched, ptr %to)
  %live = load i32, ptr %pl
  %finished = icmp eq i32 %live, 0
  br i1 %finished, label %out, label %stopped
stopped:
  br i1 %shared, label %suspend, label %deadlock
suspend:                                          ; other blocks of this thread run
  %presume = getelementptr i8, ptr %c, i64 ${Context.resume}
  %pescape = getelementptr i8, ptr %c, i64 ${Context.escape}
  %thread = load ptr, ptr %pescape
  call void @zluda_switch(ptr %presume, ptr %thread)
  %ready = load i32, ptr %pr
  %nobody = icmp eq i32 %ready, 0
  br i1 %nobody, label %suspend, label %again
again:
  %lowest = call i32 @llvm.cttz.i32(i32 %ready, i1 true)
  br label %run
deadlock:                                         ; nobody is ready, and not all are done
  call void @zluda_fault(ptr %c, i32 ${FAULT.deadlock}, i32 0, i64 0)
  unreachable
out:
  ret void
}

; --- faults ------------------------------------------------------------------------------------------

; Record the launch's first fault.
define internal void @record(ptr %c, i32 %code, i32 %thread, i64 %address) noinline cold nounwind {
  %pj = getelementptr i8, ptr %c, i64 ${Context.job}
  %j = load ptr, ptr %pj
  %pf = getelementptr i8, ptr %j, i64 ${Job.fault}
  %x = cmpxchg ptr %pf, i32 0, i32 %code seq_cst seq_cst
  %first = extractvalue { i32, i1 } %x, 1
  br i1 %first, label %write, label %out
write:
  %pc = getelementptr i8, ptr %c, i64 ${Context.ctaid}
  %at = load [3 x i32], ptr %pc, align 4
  %pfc = getelementptr i8, ptr %j, i64 ${Job.fault_ctaid}
  store [3 x i32] %at, ptr %pfc, align 4
  %pt = getelementptr i8, ptr %j, i64 ${Job.fault_thread}
  store i32 %thread, ptr %pt
  %pa = getelementptr i8, ptr %j, i64 ${Job.fault_address}
  store i64 %address, ptr %pa
  br label %out
out:
  ret void
}

; Record the launch's first fault and stop running the block.
define void @zluda_fault(ptr %c, i32 %code, i32 %thread, i64 %address) noinline cold noreturn nounwind {
  call void @record(ptr %c, i32 %code, i32 %thread, i64 %address)
  %pe = getelementptr i8, ptr %c, i64 ${Context.escape}
  %stack = load ptr, ptr %pe
  call void @zluda_escape(ptr %stack)
  unreachable
}

; Tell a context of the job what is the same for all its blocks.
define internal void @adopt(ptr %j, ptr %c) {
  %pcj = getelementptr i8, ptr %c, i64 ${Context.job}
  store ptr %j, ptr %pcj
  %from = getelementptr i8, ptr %j, i64 ${Job.params}
  %params = load i64, ptr %from
  store i64 %params, ptr %c
  %pjs = getelementptr i8, ptr %j, i64 ${Job.symbols}
  %symbols = load i64, ptr %pjs
  %pcs = getelementptr i8, ptr %c, i64 ${Context.symbols}
  store i64 %symbols, ptr %pcs
  %pjg = getelementptr i8, ptr %j, i64 ${Job.grid_id}
  %grid = load i64, ptr %pjg
  %pcg = getelementptr i8, ptr %c, i64 ${Context.grid_id}
  store i64 %grid, ptr %pcg
  %pjn = getelementptr i8, ptr %j, i64 ${Job.nctaid}
  %dims = load [3 x i32], ptr %pjn, align 4
  %pcn = getelementptr i8, ptr %c, i64 ${Context.nctaid}
  store [3 x i32] %dims, ptr %pcn, align 4
  %pjb = getelementptr i8, ptr %j, i64 ${Job.shared_bytes}
  %bytes = load [3 x i32], ptr %pjb, align 4
  %pcb = getelementptr i8, ptr %c, i64 ${Context.shared_bytes}
  store [3 x i32] %bytes, ptr %pcb, align 4
  %pjw = getelementptr i8, ptr %j, i64 ${Job.warps}
  %warps = load i32, ptr %pjw
  %pcw = getelementptr i8, ptr %c, i64 ${Context.warps}
  store i32 %warps, ptr %pcw
  %pjsd = getelementptr i8, ptr %j, i64 ${Job.seed}
  %seed = load i64, ptr %pjsd
  %pcr = getelementptr i8, ptr %c, i64 ${Context.random}
  store i64 %seed, ptr %pcr
  %pjws = getelementptr i8, ptr %j, i64 ${Job.workspace}
  %workspace = load i64, ptr %pjws
  %pcws = getelementptr i8, ptr %c, i64 ${Context.workspace}
  store i64 %workspace, ptr %pcws
  ret void
}

; --- several blocks a thread ---------------------------------------------------------------------------

; A block's life in a slot: run, be done, go back to the thread.
define internal void @slot_main(ptr %c) noinline {
  %pj = getelementptr i8, ptr %c, i64 ${Context.job}
  %j = load ptr, ptr %pj
  %pk = getelementptr i8, ptr %j, i64 ${Job.kernel}
  %kernel = load ptr, ptr %pk
  call void %kernel(ptr %c)
  %pr = getelementptr i8, ptr %c, i64 ${Context.running}
  store i32 0, ptr %pr
  %pe = getelementptr i8, ptr %c, i64 ${Context.escape}
  %stack = load ptr, ptr %pe
  call void @zluda_escape(ptr %stack)
  unreachable
}

; Where element %n of an array of three stands, by x, y and z fastest first.
define internal [3 x i32] @position(i64 %n, ptr %sizes) {
  %sx32 = load i32, ptr %sizes
  %py = getelementptr i8, ptr %sizes, i64 4
  %sy32 = load i32, ptr %py
  %sx = zext i32 %sx32 to i64
  %sy = zext i32 %sy32 to i64
  %x = urem i64 %n, %sx
  %row = udiv i64 %n, %sx
  %y = urem i64 %row, %sy
  %z = udiv i64 %row, %sy
  %x32 = trunc i64 %x to i32
  %y32 = trunc i64 %y to i32
  %z32 = trunc i64 %z to i32
  %a = insertvalue [3 x i32] poison, i32 %x32, 0
  %b = insertvalue [3 x i32] %a, i32 %y32, 1
  %p = insertvalue [3 x i32] %b, i32 %z32, 2
  ret [3 x i32] %p
}

; Make cluster %unit of the grid resident in the slots from number %slot on, %first being the first's context.
define internal void @begin(ptr %j, ptr %cl, ptr %first, i64 %slot, i64 %stacks, i64 %unit) {
entry:
  %grid = alloca [3 x i32]
  %psize = getelementptr i8, ptr %j, i64 ${Job.cluster_size}
  %size = load i32, ptr %psize
  %pwarps = getelementptr i8, ptr %j, i64 ${Job.warps}
  %warps = load i32, ptr %pwarps
  %all = mul i32 %size, %warps
  call void @llvm.memset.p0.i64(ptr %cl, i8 0, i64 ${sizeof.Cluster}, i1 false)
  store ptr %first, ptr %cl
  %pcs = getelementptr i8, ptr %cl, i64 ${Cluster.size}
  store i32 %size, ptr %pcs
  %pcf = getelementptr i8, ptr %cl, i64 ${Cluster.left}
  store i32 %size, ptr %pcf
  %pca = getelementptr i8, ptr %cl, i64 ${Cluster.live}
  store i32 %all, ptr %pca
  %pn = getelementptr i8, ptr %j, i64 ${Job.nctaid}
  %pk = getelementptr i8, ptr %j, i64 ${Job.cluster}
  br label %axis
axis:
  %a = phi i64 [ 0, %entry ], [ %a1, %axis ]
  %pna = getelementptr i32, ptr %pn, i64 %a
  %na = load i32, ptr %pna
  %pka = getelementptr i32, ptr %pk, i64 %a
  %ka = load i32, ptr %pka
  %ga = udiv i32 %na, %ka
  %pga = getelementptr i32, ptr %grid, i64 %a
  store i32 %ga, ptr %pga
  %a1 = add i64 %a, 1
  %axes = icmp ult i64 %a1, 3
  br i1 %axes, label %axis, label %blocks
blocks:
  %counts = load [3 x i32], ptr %grid, align 4
  %id = call [3 x i32] @position(i64 %unit, ptr %grid)
  %pfs = getelementptr i8, ptr %first, i64 ${Context.own_shared}
  %shared = load i64, ptr %pfs
  %stack.bytes = mul i32 %warps, ${STACK_BYTES}
  %stack.step = zext i32 %stack.bytes to i64
  br label %block
block:
  %r = phi i32 [ 0, %blocks ], [ %r1, %block ]
  %r64 = zext i32 %r to i64
  %o = mul i64 %r64, ${sizeof.Context}
  %c = getelementptr i8, ptr %first, i64 %o
  call void @adopt(ptr %j, ptr %c)
  %prandom = getelementptr i8, ptr %c, i64 ${Context.random}
  %random = load i64, ptr %prandom
  %unit.block = add i64 %slot, %r64
  %unit.mixed = mul i64 %unit.block, -7046029254386353131
  %random.own = xor i64 %random, %unit.mixed
  %random.some = or i64 %random.own, 1
  store i64 %random.some, ptr %prandom
  %pcl = getelementptr i8, ptr %c, i64 ${Context.cluster}
  store ptr %cl, ptr %pcl
  %pshared = getelementptr i8, ptr %c, i64 ${Context.shared}
  store i64 %shared, ptr %pshared
  %pcount = getelementptr i8, ptr %c, i64 ${Context.nclusterid}
  store [3 x i32] %counts, ptr %pcount, align 4
  %pid = getelementptr i8, ptr %c, i64 ${Context.clusterid}
  store [3 x i32] %id, ptr %pid, align 4
  %in = call [3 x i32] @position(i64 %r64, ptr %pk)
  %pin = getelementptr i8, ptr %c, i64 ${Context.cluster_ctaid}
  store [3 x i32] %in, ptr %pin, align 4
  %pcta = getelementptr i8, ptr %c, i64 ${Context.ctaid}
  %k = load <3 x i32>, ptr %pk, align 4
  %idv = load <3 x i32>, ptr %pid, align 4
  %inv = load <3 x i32>, ptr %pin, align 4
  %corner = mul <3 x i32> %idv, %k
  %cta = add <3 x i32> %corner, %inv
  store <3 x i32> %cta, ptr %pcta, align 4
  %prank = getelementptr i8, ptr %c, i64 ${Context.cluster_rank}
  store i32 %r, ptr %prank
  %prun = getelementptr i8, ptr %c, i64 ${Context.running}
  store i32 1, ptr %prun
  %pready = getelementptr i8, ptr %c, i64 ${Context.ready}
  store i32 1, ptr %pready
  %n = add i64 %slot, %r64
  %before = mul i64 %n, %stack.step
  %low = add i64 %stacks, %before
  %plow = getelementptr i8, ptr %c, i64 ${Context.stack_low}
  store i64 %low, ptr %plow
  %high = add i64 %low, %stack.step
  %phigh = getelementptr i8, ptr %c, i64 ${Context.stack_high}
  store i64 %high, ptr %phigh
  %sp = sub i64 %high, 120                        ; as in @zluda_fibers, below a line of its own
  %frame = inttoptr i64 %sp to ptr
  %p12 = getelementptr i64, ptr %frame, i64 3
  store ptr @slot_main, ptr %p12
  %pbx = getelementptr i64, ptr %frame, i64 4
  store ptr %c, ptr %pbx
  %pra = getelementptr i64, ptr %frame, i64 6
  store ptr @zluda_fiber_start, ptr %pra
  %presume = getelementptr i8, ptr %c, i64 ${Context.resume}
  store i64 %sp, ptr %presume
  %r1 = add i32 %r, 1
  %more = icmp ult i32 %r1, %size
  br i1 %more, label %block, label %out
out:
  ret void
}

; Run every block of a cluster that can run until it waits or is done. Returns 0 if one has failed, 1 if the
; cluster is not done, 2 if it is.
define internal i32 @round(ptr %j, ptr %cl) {
entry:
  %psize = getelementptr i8, ptr %cl, i64 ${Cluster.size}
  %size = load i32, ptr %psize
  %first = load ptr, ptr %cl
  %pleft = getelementptr i8, ptr %cl, i64 ${Cluster.left}
  %pfault = getelementptr i8, ptr %j, i64 ${Job.fault}
  br label %each
each:
  %r = phi i32 [ 0, %entry ], [ %r1, %next ]
  %ran = phi i1 [ false, %entry ], [ %ran1, %next ]
  %r64 = zext i32 %r to i64
  %o = mul i64 %r64, ${sizeof.Context}
  %c = getelementptr i8, ptr %first, i64 %o
  %prun = getelementptr i8, ptr %c, i64 ${Context.running}
  %running = load i32, ptr %prun
  %pready = getelementptr i8, ptr %c, i64 ${Context.ready}
  %ready = load i32, ptr %pready
  %is = icmp ne i32 %running, 0
  %can = icmp ne i32 %ready, 0
  %go = and i1 %is, %can
  br i1 %go, label %run, label %next
run:
  %pescape = getelementptr i8, ptr %c, i64 ${Context.escape}
  %presume = getelementptr i8, ptr %c, i64 ${Context.resume}
  %to = load ptr, ptr %presume
  call void @zluda_switch(ptr %pescape, ptr %to)
  %failed = load atomic i32, ptr %pfault monotonic, align 4
  %bad = icmp ne i32 %failed, 0
  br i1 %bad, label %stop, label %fine
fine:
  %still = load i32, ptr %prun
  %left = load i32, ptr %pleft
  %ended = sub i32 1, %still
  %left1 = sub i32 %left, %ended
  store i32 %left1, ptr %pleft
  br label %next
next:
  %ran1 = phi i1 [ %ran, %each ], [ true, %fine ]
  %r1 = add i32 %r, 1
  %more = icmp ult i32 %r1, %size
  br i1 %more, label %each, label %count
count:
  %remain = load i32, ptr %pleft
  %done = icmp eq i32 %remain, 0
  br i1 %done, label %over, label %waits
waits:                                            ; nobody outside the cluster could wake its warps
  br i1 %ran1, label %on, label %find
find:
  %s = phi i32 [ 0, %waits ], [ %s1, %find ]
  %s64 = zext i32 %s to i64
  %so = mul i64 %s64, ${sizeof.Context}
  %sc = getelementptr i8, ptr %first, i64 %so
  %psrun = getelementptr i8, ptr %sc, i64 ${Context.running}
  %sruns = load i32, ptr %psrun
  %s1 = add i32 %s, 1
  %found = icmp ne i32 %sruns, 0
  br i1 %found, label %deadlock, label %find
deadlock:
  call void @record(ptr %sc, i32 ${FAULT.deadlock}, i32 0, i64 0)
  br label %stop
stop:
  ret i32 0
on:
  ret i32 1
over:
  ret i32 2
}

; Run clusters of a job by turns. One is resident at first; after a round in which none has ended, twice as many,
; as many as there is room for: blocks that wait for each other all come to run, others one after the other.
define internal void @gang(ptr %j, ptr %c) noinline nounwind {
entry:
  %psize = getelementptr i8, ptr %j, i64 ${Job.cluster_size}
  %size32 = load i32, ptr %psize
  %size = zext i32 %size32 to i64
  %pslots = getelementptr i8, ptr %j, i64 ${Job.slots}
  %slots32 = load i32, ptr %pslots
  %slots = zext i32 %slots32 to i64
  %room = udiv i64 %slots, %size
  %pblocks = getelementptr i8, ptr %j, i64 ${Job.blocks}
  %blocks = load i64, ptr %pblocks
  %units = udiv i64 %blocks, %size
  %pnext = getelementptr i8, ptr %j, i64 ${Job.next}
  %pfault = getelementptr i8, ptr %j, i64 ${Job.fault}
  %pcontexts = getelementptr i8, ptr %c, i64 ${Context.slots}
  %contexts = load ptr, ptr %pcontexts
  %pclusters = getelementptr i8, ptr %c, i64 ${Context.clusters}
  %clusters = load ptr, ptr %pclusters
  %pstacks = getelementptr i8, ptr %c, i64 ${Context.slot_stacks}
  %stacks = load i64, ptr %pstacks
  %pseed = getelementptr i8, ptr %j, i64 ${Job.seed}
  %seed = load i64, ptr %pseed
  %seeded = icmp ne i64 %seed, 0
  %begin.want = select i1 %seeded, i64 %room, i64 1
  %turned = urem i64 %seed, %units
  %backward = and i64 %seed, 65536
  %reversed = icmp ne i64 %backward, 0
  %last.unit = sub i64 %units, 1
  %bytes = mul i64 %room, ${sizeof.Cluster}
  call void @llvm.memset.p0.i64(ptr %clusters, i8 0, i64 %bytes, i1 false)
  br label %fill
fill:                                             ; begin clusters until %want are resident
  %want = phi i64 [ %begin.want, %entry ], [ %want.next, %again ]
  %active = phi i64 [ 0, %entry ], [ %active.round, %again ]
  %used = phi i64 [ 0, %entry ], [ %used.fill, %again ]
  %dry = phi i1 [ false, %entry ], [ %dry.fill, %again ]
  %idle = phi i32 [ 0, %entry ], [ %idle.next, %again ]
  br label %seat
seat:
  %g = phi i64 [ 0, %fill ], [ %g1, %taken ], [ %g1.begun, %begun ]
  %active.now = phi i64 [ %active, %fill ], [ %active.now, %taken ], [ %active.begun, %begun ]
  %used.now = phi i64 [ %used, %fill ], [ %used.now, %taken ], [ %used.begun, %begun ]
  %short = icmp ult i64 %active.now, %want
  %seats = icmp ult i64 %g, %room
  %both = and i1 %short, %seats
  %some = xor i1 %dry, true
  %look = and i1 %both, %some
  br i1 %look, label %free, label %filled
free:
  %go = mul i64 %g, ${sizeof.Cluster}
  %cl = getelementptr i8, ptr %clusters, i64 %go
  %pleft = getelementptr i8, ptr %cl, i64 ${Cluster.left}
  %left = load i32, ptr %pleft
  %empty = icmp eq i32 %left, 0
  br i1 %empty, label %grab, label %taken
taken:
  %g1 = add i64 %g, 1
  br label %seat
grab:
  %place = atomicrmw add ptr %pnext, i64 1 monotonic
  %past = icmp uge i64 %place, %units
  br i1 %past, label %filled, label %start
start:                                            ; in a seeded schedule from another one on, or backwards
  %shifted = add i64 %place, %turned
  %around = urem i64 %shifted, %units
  %mirrored = sub i64 %last.unit, %around
  %other = select i1 %reversed, i64 %mirrored, i64 %around
  %unit = select i1 %seeded, i64 %other, i64 %place
  %slot = mul i64 %g, %size
  %co = mul i64 %slot, ${sizeof.Context}
  %first = getelementptr i8, ptr %contexts, i64 %co
  call void @begin(ptr %j, ptr %cl, ptr %first, i64 %slot, i64 %stacks, i64 %unit)
  br label %begun
begun:
  %g1.begun = add i64 %g, 1
  %active.begun = add i64 %active.now, 1
  %higher = icmp ugt i64 %g1.begun, %used.now
  %used.begun = select i1 %higher, i64 %g1.begun, i64 %used.now
  br label %seat
filled:
  %dry.fill = phi i1 [ %dry, %seat ], [ true, %grab ]
  %active.fill = phi i64 [ %active.now, %seat ], [ %active.now, %grab ]
  %used.fill = phi i64 [ %used.now, %seat ], [ %used.now, %grab ]
  %nobody = icmp eq i64 %active.fill, 0
  br i1 %nobody, label %out, label %turn
turn:
  %t = phi i64 [ 0, %filled ], [ %t1, %skip ]
  %active.turn = phi i64 [ %active.fill, %filled ], [ %active.skip, %skip ]
  %to = mul i64 %t, ${sizeof.Cluster}
  %tcl = getelementptr i8, ptr %clusters, i64 %to
  %ptleft = getelementptr i8, ptr %tcl, i64 ${Cluster.left}
  %tleft = load i32, ptr %ptleft
  %gone = icmp eq i32 %tleft, 0
  br i1 %gone, label %skip, label %play
play:
  %how = call i32 @round(ptr %j, ptr %tcl)
  %done = icmp eq i32 %how, 2
  %ended = zext i1 %done to i64
  %active.play = sub i64 %active.turn, %ended
  %failed = icmp eq i32 %how, 0
  br i1 %failed, label %out, label %skip
skip:
  %active.skip = phi i64 [ %active.turn, %turn ], [ %active.play, %play ]
  %t1 = add i64 %t, 1
  %turns = icmp ult i64 %t1, %used.fill
  br i1 %turns, label %turn, label %round.over
round.over:
  %active.round = phi i64 [ %active.skip, %skip ]
  %fault = load atomic i32, ptr %pfault monotonic, align 4
  %bad = icmp ne i32 %fault, 0
  br i1 %bad, label %out, label %judge
judge:
  %quiet = icmp eq i64 %active.round, %active.fill
  %twice = shl i64 %want, 1
  %fits = icmp ult i64 %twice, %room
  %grown = select i1 %fits, i64 %twice, i64 %room
  %want.next = select i1 %quiet, i64 %grown, i64 %want
  %idle1 = add i32 %idle, 1
  %idle.next = select i1 %quiet, i32 %idle1, i32 0
  %low = and i32 %idle.next, 15
  %tired = icmp eq i32 %low, 15
  br i1 %tired, label %rest, label %again
rest:                                             ; sched_yield: another thread may have to write first
  %s = call i64 (i64, ...) @syscall(i64 24)
  br label %again
again:
  br label %fill
out:
  ret void
}

; --- grids -------------------------------------------------------------------------------------------

; Take chunks of blocks from a job and run them until none is left or one has failed.
define void @zluda_run(ptr %j, ptr %c) noinline nounwind {
  %pslots = getelementptr i8, ptr %j, i64 ${Job.slots}
  %slots = load i32, ptr %pslots
  %several = icmp ne i32 %slots, 0
  br i1 %several, label %turns, label %one
turns:
  call void @gang(ptr %j, ptr %c)
  ret void
one:
  call void @adopt(ptr %j, ptr %c)
  %pjn = getelementptr i8, ptr %j, i64 ${Job.nctaid}
  %dims = load [3 x i32], ptr %pjn, align 4
  %pk = getelementptr i8, ptr %j, i64 ${Job.kernel}
  %kernel = load ptr, ptr %pk
  %pchunk = getelementptr i8, ptr %j, i64 ${Job.chunk}
  %chunk = load i64, ptr %pchunk
  %pblocks = getelementptr i8, ptr %j, i64 ${Job.blocks}
  %blocks = load i64, ptr %pblocks
  %pnext = getelementptr i8, ptr %j, i64 ${Job.next}
  %pfault = getelementptr i8, ptr %j, i64 ${Job.fault}
  %pescape = getelementptr i8, ptr %c, i64 ${Context.escape}
  %ptop = getelementptr i8, ptr %c, i64 ${Context.stack_high}
  %top = load ptr, ptr %ptop
  %pid = getelementptr i8, ptr %c, i64 ${Context.ctaid}
  %pidy = getelementptr i8, ptr %pid, i64 4
  %pidz = getelementptr i8, ptr %pid, i64 8
  %nx32 = extractvalue [3 x i32] %dims, 0
  %ny32 = extractvalue [3 x i32] %dims, 1
  %nx = zext i32 %nx32 to i64
  %ny = zext i32 %ny32 to i64
  br label %grab
grab:
  %first = atomicrmw add ptr %pnext, i64 %chunk monotonic
  %past = icmp uge i64 %first, %blocks
  br i1 %past, label %out, label %have
have:
  %want = add i64 %first, %chunk
  %over = icmp ugt i64 %want, %blocks
  %last = select i1 %over, i64 %blocks, i64 %want
  br label %block
block:
  %n = phi i64 [ %first, %have ], [ %n1, %ok ]
  %x = urem i64 %n, %nx
  %row = udiv i64 %n, %nx
  %y = urem i64 %row, %ny
  %z = udiv i64 %row, %ny
  %x32 = trunc i64 %x to i32
  %y32 = trunc i64 %y to i32
  %z32 = trunc i64 %z to i32
  store i32 %x32, ptr %pid
  store i32 %y32, ptr %pidy
  store i32 %z32, ptr %pidz
  call void @zluda_enter(ptr %kernel, ptr %c, ptr %pescape, ptr %top)
  %failed = load atomic i32, ptr %pfault monotonic, align 4
  %bad = icmp ne i32 %failed, 0
  br i1 %bad, label %out, label %ok
ok:
  %n1 = add i64 %n, 1
  %more = icmp ult i64 %n1, %last
  br i1 %more, label %block, label %grab
out:
  ret void
}

; A pool thread: wait for the job's sequence to move from %seen, run, say so, wait again; -1 ends it.
; It spins for some microseconds before it sleeps, so that back-to-back launches find it awake.
define void @zluda_worker(ptr %j, ptr %c, i32 %seen) noinline nounwind {
  br label %wait
wait:
  %last = phi i32 [ %seen, %0 ], [ %now, %work ]
  br label %spin
spin:
  %i = phi i32 [ 0, %wait ], [ %i1, %idle ], [ 0, %woken ]
  %now = load atomic i32, ptr %j acquire, align 4
  %moved = icmp ne i32 %now, %last
  br i1 %moved, label %go, label %idle
idle:
  call void @llvm.x86.sse2.pause()
  %i1 = add i32 %i, 1
  %patient = icmp ult i32 %i1, 2000
  br i1 %patient, label %spin, label %sleep
sleep:                                            ; futex(FUTEX_WAIT_PRIVATE)
  %r = call i64 (i64, ...) @syscall(i64 202, ptr %j, i32 128, i32 %last, ptr null, ptr null, i32 0)
  br label %woken
woken:
  br label %spin
go:
  %stop = icmp eq i32 %now, -1
  br i1 %stop, label %out, label %work
work:
  call void @zluda_run(ptr %j, ptr %c)
  %pd = getelementptr i8, ptr %j, i64 ${Job.done}
  %o = atomicrmw add ptr %pd, i32 1 release
  br label %wait
out:
  ret void
}

; Run a job on this thread and on %others waiting workers, which are told %sequence; return when all are done.
define void @zluda_launch(ptr %j, ptr %c, i32 %others, i32 %sequence) noinline nounwind {
  %pd = getelementptr i8, ptr %j, i64 ${Job.done}
  store atomic i32 0, ptr %pd monotonic, align 4
  %alone = icmp eq i32 %others, 0
  br i1 %alone, label %run, label %wake
wake:                                             ; futex(FUTEX_WAKE_PRIVATE)
  store atomic i32 %sequence, ptr %j seq_cst, align 4
  %r = call i64 (i64, ...) @syscall(i64 202, ptr %j, i32 129, i32 2147483647, ptr null, ptr null, i32 0)
  br label %run
run:
  call void @zluda_run(ptr %j, ptr %c)
  br label %join
join:
  %d = load atomic i32, ptr %pd acquire, align 4
  %all = icmp eq i32 %d, %others
  br i1 %all, label %out, label %again
again:
  call void @llvm.x86.sse2.pause()
  br label %join
out:
  ret void
}

; End the workers that wait on a job.
define void @zluda_stop(ptr %j) noinline nounwind {
  store atomic i32 -1, ptr %j seq_cst, align 4
  %r = call i64 (i64, ...) @syscall(i64 202, ptr %j, i32 129, i32 2147483647, ptr null, ptr null, i32 0)
  ret void
}
