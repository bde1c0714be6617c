/* Capture that nobody waits for: launches one after the other on one stream, none of which can reach anything but large
 * allocations of the GPU's own whose contents are on record.
 *
 * Looking at memory after a launch and waiting for that costs more than most kernels take. Here flow.ptx is put on the
 * program's own stream behind the launch (and, with `--capture full`, before it) and does all there is to do when the
 * stream gets there: compares digests, which lie where both the GPU and the host reach them, and writes pages that
 * changed into records of a ring of their own. The ring's file is mapped and pinned, so a page goes from the GPU to
 * where the recorder finds it. The host hears of it by a mark, at the next call that it makes, and publishes the records;
 * then a CAPTURED record says that the launch was looked at.
 *
 * Only one thread on one stream is at it. Whoever else looks at memory (a call other than a launch that means something to
 * the record, a launch that does not fit the above, another thread's) counts itself in `lookers` and waits until nothing
 * is under way; while there are such, launches are captured as capture.c does. So what is known of pages is the host's
 * or the stream's, never both's.
 *
 * The GPU takes records without asking: as many as a launch can reach pages are promised to it beforehand.
 */

#define FLOW_LOOKS 64                /* under way at most */
#define FLOW_LAUNCHES 8              /* that would have done, before the ring is made */
#define FLOW_RECORD_SLOTS 513        /* a record's header, the offset, a page */
#define FLOW_RECORD_BYTES (FLOW_RECORD_SLOTS * SLOT_BYTES)
#define FLOW_RING_BYTES (256ULL << 20)
#define FLOW_MARK_BYTES 4096
#define FLOW_DIGEST_BYTES (4ULL << 20) /* of 16 GiB */
#define FLOW_SPARES 64
#define MAP_SHARED_ANONYMOUS 0x21

/* A look that is under way. */
struct glance
{
  u64 number, sequence;
  u32 phase, pages;
};

struct flow
{
  struct thread ring;                /* of pages; it is no thread's */
  u64 records;                       /* it has room for */
  u64 context, generation;           /* `contexts_ended` */
  u64 function;
  u8 * shared;                       /* with the GPU: FLOW_LOOKS marks (taken, number), then digests */
  u64 digest_bytes;                  /* given out */
  u64 * spare[FLOW_SPARES];          /* digests of allocations that have ended */
  u32 spare_pages[FLOW_SPARES], spares;
  struct thread * owner;
  u64 stream;
  u64 promised;                      /* records */
  u64 numbers, first, next;          /* looks: begun; the oldest and the one after the latest that are under way */
  struct glance glance[FLOW_LOOKS];
  volatile u32 lock;
};

static void
lock_flow (struct flow * flow)
{
  u32 spins = 0;

  while (atomic_exchange (&flow->lock, 1))
    if (++spins > 100)
      sleep_ns (5000);
}

static void
unlock_flow (struct flow * flow)
{
  atomic_exchange (&flow->lock, 0);
}

/* --- what the GPU has done ------------------------------------------------------------------------------- */

static u64
records_published (const struct flow * flow)
{
  return flow->ring.head / FLOW_RECORD_SLOTS;
}

static void
write_captured (struct call * call, u64 sequence)
{
  u64 time = now (); /* after the pages were published, so that it is never in the trace without them */
  u8 * record = reserve (call->thread, 0, time);

  if (record != NULL)
    commit (call->thread, record, KIND_CAPTURED, sequence, time, 0, 0, 0);
}

static int
is_done (const struct flow * flow, const struct glance * glance)
{
  return ((volatile u64 *) flow->shared)[2 * (glance->number % FLOW_LOOKS) + 1] == glance->number;
}

/* Publish what looks that are done have found. Holding the flow's lock. */
static void
drain_flow (struct flow * flow, struct call * call)
{
  while (flow->first != flow->next)
  {
    struct glance * glance = &flow->glance[flow->first % FLOW_LOOKS];
    u64 end, time = now (), at;

    if (!is_done (flow, glance))
      break;
    end = ((volatile u64 *) flow->shared)[2 * (glance->number % FLOW_LOOKS)];
    while ((at = records_published (flow)) != end)
    {
      u8 * record = flow->ring.slots + at % flow->records * FLOW_RECORD_BYTES;
      u32 length = *(volatile u32 *) (record + 28);

      publish (&flow->ring, record, KIND_LATE_PAGE, FLOW_RECORD_SLOTS, glance->sequence, time, glance->phase, length,
               *(volatile u64 *) (record + 32));
      atomic_add (&CONTROL (MOVED_BYTES), length - 8);
    }
    flow->promised -= glance->pages;
    if (glance->phase == PHASE_AFTER)
    {
      write_captured (call, glance->sequence);
      atomic_add (&CONTROL (FLOWED), 1);
    }
    flow->first++;
  }
}

/* What is under way may never come: nothing of it is waited for, and what the GPU still writes harms nobody. */
static void
abandon_flow (struct flow * flow, struct call * call, const char * text, u32 error)
{
  u64 sequence = call->sequence;
  u32 index;

  lock ();
  for (index = 0; index != state.allocation_count; index++)
  {
    struct allocation * allocation = state.allocations[index];

    if (!allocation->flows)
      continue;
    allocation->flows = 0;
    allocation->digest = g_malloc0 (16ULL * allocation->pages);
    memset (allocation->known, PAGE_UNKNOWN, allocation->pages);
  }
  unlock ();
  state.flow_ended = 1;
  for (; flow->first != flow->next; flow->first++)
    if (flow->glance[flow->first % FLOW_LOOKS].phase == PHASE_AFTER)
    {
      call->sequence = flow->glance[flow->first % FLOW_LOOKS].sequence;
      if (error != 0)
        write_error_gap (call, now (), text, error);
      else
        write_gap (call, now (), "memory", text);
    }
  call->sequence = sequence;
}

/* Wait for the oldest look. 0 where it was abandoned. */
static int
await_look (struct flow * flow, struct call * call)
{
  const struct glance * glance = &flow->glance[flow->first % FLOW_LOOKS];
  u64 start = now (), passed, stream, polls = 0;
  u32 result;

  while (!is_done (flow, glance))
  {
    if (++polls % 512 != 0)
      continue;
    passed = now () - start;
    stream = private_stream (call->thread);
    result = stream != 0 ? (u32) state.driver.cuStreamQuery (stream, 0, 0, 0) : 0;
    if (result != 0 && result != CUDA_ERROR_NOT_READY)
    {
      abandon_flow (flow, call, "the stream failed, its memory was not looked at: CUresult ", result);
      return 0;
    }
    if (passed > state.progress_limit)
    {
      abandon_flow (flow, call, "no progress for some seconds, the stream was not waited for", 0);
      return 0;
    }
    if (passed > SPIN_NS)
      sleep_ns (passed > 1000 * SPIN_NS ? 500000 : 5000);
  }
  atomic_add (&CONTROL (WAIT_NS), now () - start);
  return 1;
}

/* Wait until nothing is under way. Holding the flow's lock. */
static void
settle_flow (struct flow * flow, struct call * call)
{
  drain_flow (flow, call);
  while (flow->first != flow->next && await_look (flow, call))
    drain_flow (flow, call);
}

/* A call comes: publish what is done. */
static void
poll_flow (struct call * call)
{
  struct flow * flow = state.flow;

  if (flow == NULL || flow->first == flow->next || atomic_exchange (&flow->lock, 1))
    return;
  drain_flow (flow, call);
  unlock_flow (flow);
}

/* The call looks at memory, or changes what is known of it: until it returns nothing is to be under way. */
static void
begin_looks (struct call * call)
{
  struct flow * flow;

  if (call->looks)
    return;
  call->looks = 1;
  atomic_add (&state.lookers, 1);
  if ((flow = state.flow) == NULL)
    return;
  lock_flow (flow);
  settle_flow (flow, call);
  unlock_flow (flow);
  call->start = call->end = now (); /* of records that come after those that were written here */
}

/* --- setting up ------------------------------------------------------------------------------------------- */

static int
share_with_gpu (u8 * memory, u64 size)
{
  u64 address = 0;

  return (state.driver.cuMemHostRegister_v2 ((u64) memory, size, CU_MEMHOSTALLOC_PORTABLE_DEVICEMAP, 0) & 0xffffffff) == 0
      && (state.driver.cuMemHostGetDevicePointer_v2 ((u64) &address, (u64) memory, 0, 0) & 0xffffffff) == 0
      && address == (u64) memory;
}

static u64
flow_kernel (void)
{
  u64 module = 0, function = 0;

  if ((state.driver.cuModuleLoadData ((u64) &module, (u64) flow_ptx, 0, 0) & 0xffffffff) != 0
      || (state.driver.cuModuleGetFunction ((u64) &function, module, (u64) "zluda_flow", 0) & 0xffffffff) != 0)
    return 0;
  return function;
}

/* The ring, pinned. Pages of a disk's files cannot be; so it is in memory, and what stands beside the trace is its name:
 * zluda/tracefile/ring.py says who takes it away. */
static int
make_flow_ring (struct thread * ring, u64 slots)
{
  char path[1100], name[1100];
  u64 index = atomic_add (&CONTROL (RINGS), 1);

  ring->id = (u32) gettid ();
  strcpy (path, SHARED_RING);
  append_number (path + strlen (path), ring->id);
  strcat (path, "-");
  append_number (path + strlen (path), now ());
  path_of (name, "/ring-", index);
  if (!make_ring (ring, slots, path))
  {
    unlink (path);
    return 0;
  }
  if (ring->capacity == slots && share_with_gpu (ring->header, ring->mapped) && symlink (path, name) == 0)
    return 1;
  unlink (path);
  munmap (ring->header, ring->mapped);
  return 0;
}

/* The ring and the rest. NULL where that cannot be: a file system whose pages cannot be pinned, too little room. */
static struct flow *
make_flow (u64 context)
{
  struct flow * flow = g_malloc0 (sizeof (struct flow));
  u64 bytes = CONTROL (RING_BYTES) < FLOW_RING_BYTES ? CONTROL (RING_BYTES) : FLOW_RING_BYTES;

  flow->records = bytes / FLOW_RECORD_BYTES;
  flow->context = context;
  flow->generation = state.contexts_ended;
  flow->shared = mmap (NULL, FLOW_MARK_BYTES + FLOW_DIGEST_BYTES, PROT_READ_WRITE, MAP_SHARED_ANONYMOUS, -1, 0);
  if (flow->records == 0 || (void *) flow->shared == MAP_FAILED_ADDRESS
      || (flow->function = flow_kernel ()) == 0
      || !share_with_gpu (flow->shared, FLOW_MARK_BYTES + FLOW_DIGEST_BYTES)
      || !make_flow_ring (&flow->ring, flow->records * FLOW_RECORD_SLOTS))
    return NULL;
  open_ring (&flow->ring);
  return flow;
}

/* The flow of the current context; NULL where there is none, or not yet. */
static struct flow *
current_flow (void)
{
  u64 context = 0;
  struct flow * flow = state.flow;

  if (state.flow_ended || state.driver.cuCtxGetCurrent ((u64) &context, 0, 0, 0) & 0xffffffff || context == 0)
    return NULL;
  if (flow == NULL)
  {
    if (atomic_add (&state.flow_launches, 1) != FLOW_LAUNCHES)
      return NULL;
    if ((flow = make_flow (context)) == NULL)
      state.flow_ended = 1;
    state.flow = flow;
  }
  return flow != NULL && flow->context == context && flow->generation == state.contexts_ended ? flow : NULL;
}

/* Have an allocation's digests where the GPU reaches them. 0 where there is no room. */
static int
share_digests (struct flow * flow, struct allocation * allocation)
{
  u64 bytes = 16ULL * allocation->pages, * digest = NULL, * before = allocation->digest;
  u32 index;

  if (allocation->flows)
    return 1;
  lock ();
  for (index = 0; index != flow->spares && flow->spare_pages[index] != allocation->pages; index++)
    ;
  if (index != flow->spares)
  {
    digest = flow->spare[index];
    flow->spare[index] = flow->spare[--flow->spares];
    flow->spare_pages[index] = flow->spare_pages[flow->spares];
  }
  else if (flow->digest_bytes + bytes <= FLOW_DIGEST_BYTES)
  {
    digest = (u64 *) (flow->shared + FLOW_MARK_BYTES + flow->digest_bytes);
    flow->digest_bytes += bytes;
  }
  if (digest != NULL)
  {
    memcpy (digest, before, bytes);
    allocation->digest = digest;
    allocation->flows = 1;
  }
  unlock ();
  if (digest != NULL)
    g_free (before);
  return digest != NULL;
}

/* An allocation ends. Holding the lock. */
static void
free_digests (struct allocation * allocation)
{
  struct flow * flow = state.flow;

  if (!allocation->flows)
    g_free (allocation->digest);
  else if (flow->spares != FLOW_SPARES)
  {
    flow->spare[flow->spares] = allocation->digest;
    flow->spare_pages[flow->spares++] = allocation->pages;
  }
}

/* --- around a launch --------------------------------------------------------------------------------------- */

/* Whether all that is known of an allocation is known of a launch's inputs, too, without the host's looking. */
static int
may_flow_over (struct allocation * allocation)
{
  u32 page;

  if (allocation->size < NESTED_LIMIT || allocation->shared || allocation->closed || allocation->dead
      || (!state.full && allocation->seen != state.unseen) || !is_found_on_gpu (allocation))
    return 0;
  for (page = 0; page != allocation->pages; page++)
    if (allocation->known[page] != PAGE_KNOWN && !(state.full && allocation->known[page] == PAGE_OPAQUE))
      return 0;
  return 1;
}

static int
may_flow (struct call * call)
{
  struct thread * self = call->thread;
  u32 index;

  if (state.flow_ended || call->graph != NULL || call->looks || is_choosing () || self->reached_count > FLOW_SEGMENTS
      || (call->function->special != SPECIAL_LAUNCH && call->function->special != SPECIAL_LAUNCH_EX
          && call->function->special != SPECIAL_LAUNCH_COOPERATIVE))
    return 0;
  for (index = 0; index != self->reached_count; index++)
    if (!may_flow_over (self->reached[index]))
      return 0;
  return 1;
}

/* Put a look on the stream. 0 where the driver refuses. */
static int
put_look (struct flow * flow, struct call * call, u32 phase)
{
  u64 segment[3 * FLOW_SEGMENTS], slots = (u64) flow->ring.slots, number = flow->numbers + 1, mark, bytes = 0;
  void * parameters[5];
  struct glance * glance = &flow->glance[flow->next % FLOW_LOOKS];
  u32 index;

  memset (segment, 0, sizeof (segment));
  for (index = 0; index != call->flow_count; index++)
  {
    const struct allocation * allocation = call->flow[index];

    segment[3 * index] = allocation->base;
    segment[3 * index + 1] = allocation->size;
    segment[3 * index + 2] = (u64) allocation->digest;
    bytes += allocation->size;
  }
  mark = (u64) (flow->shared + 16 * (number % FLOW_LOOKS));
  parameters[0] = segment;
  parameters[1] = &slots;
  parameters[2] = &flow->records;
  parameters[3] = &mark;
  parameters[4] = &number;
  if (((launch_entry) state.driver.cuLaunchKernel) (flow->function, call->flow_pages, 1, 1, DIGEST_LANES, 1, 1, 0,
                                                    flow->stream, parameters, NULL) & 0xffffffff)
    return 0;
  glance->number = flow->numbers = number;
  glance->sequence = call->sequence;
  glance->phase = phase;
  glance->pages = call->flow_pages;
  flow->next++;
  atomic_add (&CONTROL (LOOKED_BYTES), bytes);
  return 1;
}

/* See that so many records can be promised, and two looks be under way. */
static int
make_flow_room (struct flow * flow, struct call * call, u64 records)
{
  drain_flow (flow, call);
  while (flow->next - flow->first > FLOW_LOOKS - 2
         || (flow->first != flow->next && flow->promised + records > flow->records))
  {
    if (!await_look (flow, call))
      return 0;
    drain_flow (flow, call);
  }
  for (;;)
  {
    u64 wanted = (flow->promised + records) * FLOW_RECORD_SLOTS;

    if (wanted > flow->ring.capacity)
      return 0;
    if (flow->ring.head + wanted - flow->ring.tail <= flow->ring.capacity)
      return 1;
    if (!wait_for_room (&flow->ring, wanted))
      return 0;
  }
}

/* The launch's turn: whatever is under way is of this thread and stream. */
static int
enter_flow (struct flow * flow, struct call * call)
{
  u64 records = (state.full ? 2ULL : 1ULL) * call->flow_pages;
  u32 index;

  if (state.lookers != 0 || records > flow->records)
    return 0;
  if (flow->owner != call->thread || flow->stream != call->stream)
    settle_flow (flow, call);
  flow->owner = call->thread;
  flow->stream = call->stream;
  for (index = 0; index != call->flow_count; index++)
    if (!share_digests (flow, call->flow[index]))
      return 0;
  if (!make_flow_room (flow, call, records) || state.flow_ended)
    return 0;
  if (state.full && call->flow_pages != 0)
  {
    if (!put_look (flow, call, PHASE_BEFORE))
      return 0;
    flow->promised += call->flow_pages;
    for (index = 0; index != call->flow_count; index++)
      call->flow[index]->seen = state.unseen;
  }
  flow->promised += call->flow_pages; /* what comes after the launch */
  return 1;
}

/* The launch is not looked at, or has been. */
static void
leave_flow (struct call * call)
{
  while (call->flow_count != 0)
    release (call->flow[--call->flow_count]);
  call->flows = 0;
}

/* Before a launch whose reached memory has been found: 1 where it flows, else nothing was done. */
static int
flow_before_launch (struct call * call)
{
  struct thread * self = call->thread;
  struct flow * flow;
  u32 index;

  if (!may_flow (call) || (flow = current_flow ()) == NULL)
    return 0;
  call->flow_pages = 0;
  for (index = 0; index != self->reached_count; index++)
  {
    call->flow[index] = self->reached[index];
    call->flow_pages += self->reached[index]->pages;
  }
  call->flow_count = self->reached_count;
  lock_flow (flow);
  call->flows = (u32) enter_flow (flow, call);
  unlock_flow (flow);
  call->start = now (); /* as above; the call's own begin is on record */
  if (call->flows)
    self->reached_count = 0; /* the references are the call's */
  else
    call->flow_count = 0;
  return (int) call->flows;
}

/* After a launch that flows: 1 where it will be looked at when the stream gets there. */
static int
flow_after_launch (struct call * call)
{
  struct flow * flow = state.flow;
  int done;

  lock_flow (flow);
  done = flow->owner == call->thread && flow->stream == call->stream && state.lookers == 0 && !state.flow_ended
      && flow->generation == state.contexts_ended;
  if (done && call->flow_pages != 0)
    done = put_look (flow, call, PHASE_AFTER);
  else if (done)
    call->flags |= LEAVE_CAPTURED;
  if (!done)
    flow->promised -= call->flow_pages;
  unlock_flow (flow);
  leave_flow (call);
  return done;
}

/* The launch failed. */
static void
forget_flow (struct call * call)
{
  struct flow * flow = state.flow;

  lock_flow (flow);
  flow->promised -= call->flow_pages;
  unlock_flow (flow);
  leave_flow (call);
}
