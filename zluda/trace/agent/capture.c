/* Capture: the memory that launches and copies on the device change.
 *
 * It is behind `capture_before_launch`, `capture_after_launch` and `capture_range`. What they need of a page is its
 * 128-bit digest: of memory that the GPU can look at it tells it (finding.c), other memory is read.
 */

/* Nobody is to touch these any more: a call is about to free them. Who is at it ends first. */
static void
bury (struct allocation * freed)
{
  for (; freed != NULL; freed = freed->next)
  {
    begin_looking (freed);
    freed->dead = 1;
    end_looking (freed);
  }
}

/* Of bytes from `address` on, those that lie in the allocation there. */
static u64
bytes_inside (const struct allocation * allocation, u64 address, u64 size)
{
  u64 rest = allocation->size - (address - allocation->base);

  return size < rest ? size : rest;
}

static void
note_written_in (struct allocation * allocation, u64 address, u64 size, const u8 * host)
{
  u64 start = address - allocation->base, end = start + size, skip;
  u32 page;

  for (page = (u32) (start / PAGE_BYTES); (u64) page * PAGE_BYTES < end; page++)
  {
    u64 first = (u64) page * PAGE_BYTES, bytes = page_size (allocation, page);
    int whole = start <= first && first + bytes <= end;

    if (whole && host != NULL)
      digest (host + (first - start), bytes, allocation->digest + 2 * page);
    if (whole)
      allocation->known[page] = host != NULL ? PAGE_KNOWN : PAGE_STALE;
    else if (allocation->known[page] == PAGE_KNOWN)
      allocation->known[page] = PAGE_STALE;
  }
  if (host != NULL && allocation->size < NESTED_LIMIT)
  {
    skip = (8 - start % 8) % 8; /* pointers lie at aligned places of the allocation */
    begin_looking (allocation);
    if (end - start > skip)
      scan_for_targets (allocation, host + skip, end - start - skip);
    end_looking (allocation);
  }
}

/* A recorded call wrote [address, address + size), which may lie in several pieces of mapped memory. `host`: the
 * bytes, where they are at hand. */
static void
note_written (u64 address, u64 size, const u8 * host)
{
  struct allocation * allocation;
  u64 piece;

  while (size != 0 && (allocation = find_allocation (address)) != NULL)
  {
    piece = bytes_inside (allocation, address, size);
    note_written_in (allocation, address, piece, host);
    release (allocation);
    address += piece;
    size -= piece;
    host = host != NULL ? host + piece : NULL;
  }
}

/* Digest one page that has been read, and put it on record if it changed or was never there. */
static void
look_at_page (struct call * call, u64 time, struct allocation * allocation, u32 page, const u8 * data,
              u32 phase)
{
  u64 size = page_size (allocation, page), new_digest[2], * old = allocation->digest + 2 * page;
  int same, write;

  digest (data, size, new_digest);
  same = old[0] == new_digest[0] && old[1] == new_digest[1];
  if (allocation->known[page] == PAGE_STALE)
    write = phase == PHASE_AFTER;
  else
    write = allocation->known[page] == PAGE_UNKNOWN || !same;
  if (write)
    write_page (call, time, allocation, (u64) page * PAGE_BYTES, data, size, phase);
  old[0] = new_digest[0];
  old[1] = new_digest[1];
  allocation->known[page] = PAGE_KNOWN;
  if (allocation->size < NESTED_LIMIT && allocation->array == NULL)
    scan_for_targets (allocation, data, size);
}

/* How many pages from `page` to `last` on this phase wants, at most `limit`. */
static u32
wanted_run (struct allocation * allocation, u32 page, u32 last, u32 phase, u32 limit)
{
  u32 run;

  for (run = 0; run != limit && page + run <= last && wants_page (allocation, page + run, phase); run++)
    ;
  return run;
}

/* Look at the pages [first, last] of an allocation that this phase wants, by reading them. 0, or the driver's error. */
static u32
read_and_look (struct call * call, u64 time, struct allocation * allocation, u32 first, u32 last, u32 phase)
{
  u32 page = first, run, i, error;

  while (page <= last)
  {
    u64 bytes;

    run = wanted_run (allocation, page, last, phase, STAGING_PAGES);
    if (run == 0)
    {
      page++;
      continue;
    }
    bytes = (u64) (run - 1) * PAGE_BYTES + page_size (allocation, page + run - 1);
    error = read_pages (call->thread, allocation, (u64) page * PAGE_BYTES, bytes);
    if (error != 0)
      return error;
    for (i = 0; i != run; i++)
      look_at_page (call, time, allocation, page + i, call->thread->staging + (u64) i * PAGE_BYTES, phase);
    page += run;
  }
  return 0;
}

/* Look at the pages [first, last] of an allocation that this phase wants. 0, or the driver's error. */
static u32
look_at_pages (struct call * call, u64 time, struct allocation * allocation, u32 first, u32 last, u32 phase)
{
  struct search search;
  u32 error;

  if (allocation->dead)
    return 0;
  begin_search (&search, call, time, phase);
  if (!is_searched (&search, allocation))
    error = read_and_look (call, time, allocation, first, last, phase);
  else if ((error = search_pages (&search, allocation, first, last)) == 0)
    error = run_search (&search);
  return error;
}

static void
write_error_gap (struct call * call, u64 time, const char * text, u32 error)
{
  char message[160];

  strcpy (message, text);
  append_number (message + strlen (message), error);
  write_gap (call, time, "memory", message);
}

/* --- waiting ------------------------------------------------------------------------------------------ */

static int
is_capturing (u64 stream)
{
  u32 status = 0;

  if (state.captures == 0)
    return 0;
  /* An error means the legacy stream while another stream captures: it must not be touched either. */
  if (state.driver.cuStreamIsCapturing (stream, (u64) &status, 0, 0) & 0xffffffff)
    return 1;
  return status != 0;
}

#define SPIN_NS 200000

/* Wait until `stream` has done all its work. 1 when it has; a gap says why not. */
static int
wait_for_stream (struct call * call, u64 time, u64 stream)
{
  u64 start = now (), passed, result;

  for (;;)
  {
    result = state.driver.cuStreamQuery (stream, 0, 0, 0) & 0xffffffff;
    passed = now () - start;
    if (result == 0)
    {
      atomic_add (&CONTROL (WAIT_NS), passed);
      return 1;
    }
    if (result != CUDA_ERROR_NOT_READY)
    {
      write_error_gap (call, time, "the stream failed, its memory was not looked at: CUresult ", (u32) result);
      return 0;
    }
    if (passed < SPIN_NS) /* a sleep takes 50 µs more than it is asked for */
      continue;
    sleep_ns (passed > 1000 * SPIN_NS ? 500000 : 5000);
    if (passed > state.progress_limit)
    {
      write_gap (call, time, "memory", "no progress for some seconds, the stream was not waited for");
      distrust_all ();
      return 0;
    }
  }
}

/* Wait for what a launch on the call's stream would wait for: on the legacy stream, other streams' work too, which an
 * event tells and a query does not. */
static void
wait_for_work (struct call * call)
{
  struct thread * self = call->thread;
  u64 context = 0, start = now (), queries = 0, result;

  if (self->order_generation != state.contexts_ended)
    self->order_context = 0;
  state.driver.cuCtxGetCurrent ((u64) &context, 0, 0, 0);
  if (self->order_context != context)
  {
    self->order_context = 0;
    if ((state.driver.cuEventCreate ((u64) &self->order_event, CU_EVENT_DISABLE_TIMING, 0, 0) & 0xffffffff) == 0)
      self->order_context = context;
    self->order_generation = state.contexts_ended;
  }
  if (self->order_context == 0
      || state.driver.cuEventRecord (self->order_event, call->stream, 0, 0) & 0xffffffff)
  {
    wait_for_stream (call, call->start, call->stream);
    return;
  }
  while ((result = state.driver.cuEventQuery (self->order_event, 0, 0, 0) & 0xffffffff) == CUDA_ERROR_NOT_READY)
  {
    if (++queries > 64)
      sleep_ns (queries > 4096 ? 500000 : 5000);
    if (now () - start > state.progress_limit)
    {
      write_gap (call, call->start, "memory", "no progress for some seconds, the stream was not waited for");
      return;
    }
  }
  if (result != 0)
    write_error_gap (call, call->start, "the stream failed, its memory was not looked at: CUresult ", (u32) result);
}

/* --- capture around a launch --------------------------------------------------------------------------- */

static void
reach (struct thread * self, struct allocation * allocation)
{
  u32 index;

  for (index = 0; index != self->reached_count; index++)
    if (self->reached[index] == allocation)
      break;
  if (index != self->reached_count || index == MAX_REACHED)
    release (allocation);
  else
    self->reached[self->reached_count++] = allocation;
}

/* Memory that is mapped beside what is reached, without a gap, belongs to it; so does what is the same physical memory
 * at other addresses. */
static void
reach_mapped (struct thread * self)
{
  struct allocation * found[MAX_REACHED], ** all;
  u32 from, index, first, last, count;

  for (from = 0; from != self->reached_count; from++)
  {
    struct allocation * one = self->reached[from];

    if (one->kind != MEMORY_VIRTUAL)
      continue;
    lock ();
    count = 0;
    all = state.allocations;
    first = allocations_above (one->base - 1);
    last = first + 1;
    if (first != state.allocation_count && all[first] == one)
    {
      while (first != 0 && all[first - 1]->kind == MEMORY_VIRTUAL
             && all[first - 1]->base + all[first - 1]->size == all[first]->base)
        first--;
      while (last != state.allocation_count && all[last]->kind == MEMORY_VIRTUAL
             && all[last - 1]->base + all[last - 1]->size == all[last]->base)
        last++;
    }
    for (index = 0; index != state.allocation_count && count != MAX_REACHED; index++)
      if (index >= first && index < last
          || (one->physical != 0 && all[index]->kind == MEMORY_VIRTUAL && all[index]->physical == one->physical))
      {
        found[count] = all[index];
        found[count++]->references++;
      }
    unlock ();
    for (index = 0; index != count; index++)
      reach (self, found[index]);
  }
}

/* What the objects of a handle reach, or (handle 0) all references. */
static void
reach_objects (struct thread * self, u64 handle)
{
  u64 target[MAX_REFERENCES];
  u32 count = targets_of (handle, target, handle != 0 ? MAX_NAMED : MAX_REFERENCES);

  while (count != 0)
  {
    struct allocation * found = find_target (target[--count]);

    if (found != NULL)
      reach (self, found);
  }
}

/* What a launch reaches of itself: what aligned words of its parameters name, and its module's globals. */
static void
reach_directly (struct call * call, const u8 * packed, u32 packed_size, const struct layout * layout)
{
  struct thread * self = call->thread;
  u32 index;

  for (index = 0; index + 8 <= packed_size; index += 8)
  {
    u64 word = *(const u64 *) (packed + index);
    struct allocation * found = find_allocation (word);

    if (found != NULL)
      reach (self, found);
    else if (word != 0)
      reach_objects (self, word);
  }
  if (layout != NULL && layout->owner != 0)
  {
    struct allocation * found[MAX_REACHED];
    u32 count = 0;

    lock ();
    for (index = 0; index != state.allocation_count && count != MAX_REACHED; index++)
      if (state.allocations[index]->kind == MEMORY_GLOBAL
          && state.allocations[index]->owner == layout->owner)
      {
        found[count] = state.allocations[index];
        found[count++]->references++;
      }
    unlock ();
    for (index = 0; index != count; index++)
      reach (self, found[index]);
  }
}

static void reach_nodes (struct call * call);
static int flow_before_launch (struct call * call);
static void begin_looks (struct call * call);

/* The rule of zluda/tracefile/reachability.py: what is reached directly, and, one level deep, by aligned words of
 * small allocations. Fills `reached`, with a reference each. */
static void
find_reached (struct call * call)
{
  struct thread * self = call->thread;
  u32 index, direct, target;

  if (call->graph != NULL)
    reach_nodes (call);
  else
    reach_directly (call, call->packed, call->packed_size, call->layout);
  reach_objects (self, 0);
  direct = self->reached_count;
  for (index = 0; index != direct; index++)
  {
    struct allocation * from = self->reached[index];

    begin_looking (from);
    for (target = 0; target != from->targets; target++)
    {
      struct allocation * found = find_target (from->target[target]);

      if (found != NULL)
        reach (self, found);
    }
    end_looking (from);
  }
  reach_mapped (self);
}

static void
release_reached (struct thread * self)
{
  while (self->reached_count != 0)
    release (self->reached[--self->reached_count]);
}

/* In one order, so that threads which reach the same allocations do not wait for each other in a ring. */
static void
sort_reached (struct thread * self)
{
  u32 index, at;

  for (index = 1; index < self->reached_count; index++)
  {
    struct allocation * one = self->reached[index];

    for (at = index; at != 0 && self->reached[at - 1] > one; at--)
      self->reached[at] = self->reached[at - 1];
    self->reached[at] = one;
  }
}

/* Whether pages of an allocation are looked at in this phase; what is known of it is made ready for that. */
static int
prepare_look (struct allocation * allocation, u32 phase, u64 unseen)
{
  if (allocation->closed || allocation->dead)
    return 0;
  if (phase == PHASE_BEFORE)
  {
    if (allocation->shared || state.full || allocation->seen != unseen)
      distrust (allocation); /* others write it without a call, or may */
    allocation->seen = unseen;
    return 1;
  }
  if (allocation->array != NULL && !(allocation->array->flags & ARRAY_SURFACE))
    return 0; /* no kernel can write it */
  allocation->targets = 0;
  return 1;
}

/* Look at everything that is reached: all that the GPU can look at in one go. */
static u32
look_at_reached (struct call * call, u64 time, u32 phase)
{
  struct thread * self = call->thread;
  struct search search;
  u64 unseen = state.unseen, start = now ();
  u32 index, error = 0;

  sort_reached (self);
  for (index = 0; index != self->reached_count; index++)
    begin_looking (self->reached[index]);
  begin_search (&search, call, time, phase);
  for (index = 0; index != self->reached_count && error == 0; index++)
  {
    struct allocation * allocation = self->reached[index];

    if (!prepare_look (allocation, phase, unseen))
      continue;
    if (is_searched (&search, allocation))
      error = search_pages (&search, allocation, 0, allocation->pages - 1);
    else
      error = read_and_look (call, time, allocation, 0, allocation->pages - 1, phase);
  }
  if (error == 0)
    error = run_search (&search);
  for (index = 0; index != self->reached_count; index++)
    end_looking (self->reached[index]);
  atomic_add (&CONTROL (LOOK_NS), now () - start);
  if (error != 0)
    write_error_gap (call, time, "memory that the launch reaches could not be read: CUresult ", error);
  return error;
}

/* Put on record what the launch can read and the record does not have yet. */
static void
capture_before_launch (struct call * call)
{
  u32 direct;

  if (is_choosing ()) /* nothing was waited for since the last one that was chosen */
    wait_for_work (call);
  find_reached (call);
  if (flow_before_launch (call))
    return;
  begin_looks (call);
  direct = call->thread->reached_count;
  if (look_at_reached (call, call->start, PHASE_BEFORE) == 0)
  {
    /* Contents read just now may have named allocations that were not known to be reached. */
    release_reached (call->thread);
    find_reached (call);
    if (call->thread->reached_count > direct)
      look_at_reached (call, call->start, PHASE_BEFORE);
  }
  release_reached (call->thread);
}

/* Put on record what the launch changed. 1 when everything it reaches was looked at. */
static int
capture_after_launch (struct call * call, u64 time)
{
  int whole;

  if (!wait_for_stream (call, time, call->stream))
    return 0;
  find_reached (call);
  whole = call->thread->reached_count != MAX_REACHED;
  if (!whole)
    write_gap (call, time, "memory", "the launch reaches more allocations than are looked at");
  whole = look_at_reached (call, time, PHASE_AFTER) == 0 && whole;
  release_reached (call->thread);
  return whole;
}

/* Put on record what bytes [start, start + size) of an allocation hold after a call that wrote them. */
static void
look_at_span (struct call * call, u64 time, struct allocation * allocation, u64 start, u64 size)
{
  u32 error;

  if (size > allocation->size - start)
    size = allocation->size - start;
  begin_looking (allocation);
  error = look_at_pages (call, time, allocation, (u32) (start / PAGE_BYTES),
                         (u32) ((start + size - 1) / PAGE_BYTES), PHASE_AFTER);
  end_looking (allocation);
  if (error != 0)
    write_error_gap (call, time, "the copy's destination could not be read: CUresult ", error);
}

/* The same of a copy of rows: all of its pages go to the record, changed or not, as it is the only one to tell what
 * the rows held. */
static void
capture_span (struct call * call, u64 time, struct allocation * allocation, u64 start, u64 size)
{
  u64 page;

  if (start >= allocation->size)
    return;
  for (page = start / PAGE_BYTES; page < allocation->pages && page * PAGE_BYTES < start + size; page++)
    if (allocation->known[page] != PAGE_UNKNOWN)
      allocation->known[page] = PAGE_STALE;
  look_at_span (call, time, allocation, start, size);
}

/* Put on record what a copy on the device wrote at [address, address + size). */
static void
capture_range (struct call * call, u64 time, u64 address, u64 size)
{
  struct allocation * allocation;
  u64 piece;

  while (size != 0 && (allocation = find_allocation (address)) != NULL)
  {
    piece = bytes_inside (allocation, address, size);
    look_at_span (call, time, allocation, address - allocation->base, piece);
    release (allocation);
    address += piece;
    size -= piece;
  }
}
