/* Looking at pages on the GPU: look.ptx, loaded into the application's context, runs on this thread's private stream over
 * the pages of all allocations that a launch reaches. It digests each, and where that is another digest than before, or
 * a word of a small allocation may be an address, puts the contents into pinned host memory: nothing else travels.
 *
 * Where that cannot be had (no room, no such code, an allocation that does not begin at a multiple of 16 bytes) pages are
 * read, and digested here.
 */

typedef u64 (* launch_entry) (u64, u64, u64, u64, u64, u64, u64, u64, u64, void **, void **);

/* The kernel in the current context; 0 where it cannot be loaded. */
static u64
look_kernel (void)
{
  u64 context = 0, module = 0, function = 0;
  u32 index;

  if (state.driver.cuCtxGetCurrent ((u64) &context, 0, 0, 0) & 0xffffffff || context == 0)
    return 0;
  lock ();
  if (state.finders_ended != state.contexts_ended)
  {
    state.finders_ended = state.contexts_ended;
    state.finder_count = 0;
  }
  for (index = 0; index != state.finder_count && state.finder_context[index] != context; index++)
    ;
  if (index != state.finder_count)
    function = state.finder_function[index];
  unlock ();
  if (index != state.finder_count || index == MAX_FINDERS)
    return function;
  if ((state.driver.cuModuleLoadData ((u64) &module, (u64) look_ptx, 0, 0) & 0xffffffff) != 0
      || (state.driver.cuModuleGetFunction ((u64) &function, module, (u64) "zluda_look", 0) & 0xffffffff) != 0)
    function = 0;
  lock ();
  if (state.finder_count != MAX_FINDERS)
  {
    state.finder_context[state.finder_count] = context;
    state.finder_function[state.finder_count++] = function;
  }
  unlock ();
  return function;
}

/* Whether memory of the current context's own is reached by kernels there: a pool's may be another device's. */
static int
is_here (struct allocation * allocation)
{
  u32 device = 0, ordinal = ~0U;

  if (allocation->kind == MEMORY_MANAGED)
    return 1;
  if (allocation->kind == MEMORY_VIRTUAL) /* access is granted to devices one by one */
    return state.device_count == 1;
  if (allocation->place == PLACE_UNKNOWN)
  {
    allocation->place = PLACE_ELSEWHERE;
    if (!(state.driver.cuCtxGetDevice ((u64) &device, 0, 0, 0) & 0xffffffff)
        && !(state.driver.cuPointerGetAttribute ((u64) &ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                                 allocation->base, 0) & 0xffffffff)
        && ordinal == device)
      allocation->place = PLACE_HERE;
  }
  return allocation->place == PLACE_HERE;
}

/* Whether the GPU can look at an allocation. A kernel that touches what is not there would end the application's
 * context, where a copy only fails: so it reads nothing but memory of its own context whose end is seen. */
static int
is_found_on_gpu (struct allocation * allocation)
{
  u64 context = 0;

  if (!allocation->own || allocation->base % 16 != 0 || allocation->array != NULL)
    return 0;
  if (state.driver.cuCtxGetCurrent ((u64) &context, 0, 0, 0) & 0xffffffff || context != allocation->owner)
    return 0;
  return is_here (allocation);
}

/* What the host and the kernel tell each other of a page: look.ptx knows the places. */
struct look
{
  u64 address;
  u32 size, wants;                     /* LOOK_ */
  u64 before[2];                       /* the digest that is known */
  u64 digest[2];                       /* from here on the kernel writes */
  u32 named, slot;                     /* a word may be an address; where the contents are, NO_SLOT: nowhere */
  u64 writes;                          /* the host's: it goes to the record */
};

#define LOOK_CHANGED 1                 /* copy it if the digest is another */
#define LOOK_ALWAYS 2
#define LOOK_SCAN 4                    /* look for addresses, and copy it if there may be some */
#define NO_SLOT 0xffffffff
#define MAX_COUNTERS 64                /* pairs in look.ptx */

/* Pages that are to be looked at for a call. */
struct search
{
  struct call * call;
  u64 time;
  u32 phase, count;
  u64 function, stream;                /* 0: the GPU cannot be asked */
};

struct place
{
  struct allocation * allocation;
  u32 page;
};

static void
begin_search (struct search * search, struct call * call, u64 time, u32 phase)
{
  struct thread * self = call->thread;

  search->call = call;
  search->time = time;
  search->phase = phase;
  search->count = 0;
  search->function = search->stream = 0;
  if (self->gave_up)
    return;
  need_staging (self);
  if (self->looks == NULL)
    return;
  if (self->places == NULL)
    self->places = g_malloc (LOOK_PAGES * sizeof (struct place));
  search->function = look_kernel ();
  search->stream = private_stream (self);
}

static int
is_searched (const struct search * search, struct allocation * allocation)
{
  return search->function != 0 && search->stream != 0 && is_found_on_gpu (allocation);
}

static int
wants_page (struct allocation * allocation, u32 page, u32 phase)
{
  return phase == PHASE_AFTER || allocation->known[page] != PAGE_KNOWN;
}

/* Whether a page whose digest is now known goes to the record. */
static int
is_to_be_written (const struct allocation * allocation, u32 page, const u64 * found, u32 phase)
{
  const u64 * old = allocation->digest + 2 * page;

  if (allocation->known[page] == PAGE_STALE)
    return phase == PHASE_AFTER;
  return allocation->known[page] == PAGE_UNKNOWN || old[0] != found[0] || old[1] != found[1];
}

static void
ask_of_page (struct look * look, struct allocation * allocation, u32 page, u32 phase)
{
  u32 known = allocation->known[page];

  look->address = allocation->base + (u64) page * PAGE_BYTES;
  look->size = (u32) page_size (allocation, page);
  look->wants = allocation->size < NESTED_LIMIT ? LOOK_SCAN : 0;
  if (known == PAGE_UNKNOWN || (known == PAGE_STALE && phase == PHASE_AFTER))
    look->wants |= LOOK_ALWAYS;
  else if (known != PAGE_STALE)
    look->wants |= LOOK_CHANGED;
  memcpy (look->before, allocation->digest + 2 * page, 16);
}

/* Wait for the private stream. Where kernels of the program's hold the whole GPU it may never come: then the stream, and
 * the memory that it still may write, are left to it, and this thread reads pages from now on. */
static u32
wait_for_search (struct search * search)
{
  struct thread * self = search->call->thread;
  u64 start = now (), passed, result;

  while ((result = state.driver.cuStreamQuery (search->stream, 0, 0, 0) & 0xffffffff) == CUDA_ERROR_NOT_READY)
  {
    passed = now () - start;
    if (passed > state.progress_limit)
    {
      self->gave_up = 1;
      self->staging = NULL;
      self->looks = NULL;
      memset (self->stream_context, 0, sizeof (self->stream_context));
      return CUDA_ERROR_NOT_FOUND;
    }
    if (passed > 2000000)
      sleep_ns (50000);
  }
  return (u32) result;
}

static u32
run_kernel (struct search * search)
{
  struct thread * self = search->call->thread;
  u64 pages = (u64) self->looks, slots = (u64) self->staging, low, span, first, handles, result;
  u32 counters = self->number, capacity = counters < MAX_COUNTERS ? STAGING_PAGES : 0;
  void * parameters[8];

  address_range (&low, &span);
  handle_range (&first, &handles);
  span -= low;
  handles = handles >= first ? handles - first + 1 : 0;
  if (capacity == 0)
    counters = 0;
  parameters[0] = &pages;
  parameters[1] = &slots;
  parameters[2] = &counters;
  parameters[3] = &capacity;
  parameters[4] = &low;
  parameters[5] = &span;
  parameters[6] = &first;
  parameters[7] = &handles;
  result = ((launch_entry) state.driver.cuLaunchKernel) (search->function, search->count, 1, 1, DIGEST_LANES, 1, 1, 0,
                                                         search->stream, parameters, NULL) & 0xffffffff;
  return result != 0 ? (u32) result : wait_for_search (search);
}

static void
take_contents (struct search * search, const struct place * place, const u8 * data, int write, int named)
{
  struct allocation * allocation = place->allocation;
  u64 size = page_size (allocation, place->page);

  if (write)
    write_page (search->call, search->time, allocation, (u64) place->page * PAGE_BYTES, data, size, search->phase);
  if (named)
    scan_for_targets (allocation, data, size);
  atomic_add (&CONTROL (MOVED_BYTES), size);
}

/* Copy pages for which there was no slot, those that lie side by side at once, into the staging buffer, and take them. 0,
 * or the driver's error: then they are not known. */
static u32
take_rest (struct search * search, const u32 * rest, u32 count)
{
  struct thread * self = search->call->thread;
  u32 index, run, result = 0;

  for (index = 0; index != count && result == 0; index += run)
  {
    const struct place * place = &self->places[rest[index]];
    u64 bytes = page_size (place->allocation, place->page);

    for (run = 1; index + run != count && rest[index + run] == rest[index] + run
                  && place[run].allocation == place->allocation && place[run].page == place->page + run; run++)
      bytes += page_size (place->allocation, place->page + run);
    result = (u32) state.driver.cuMemcpyDtoHAsync_v2 ((u64) self->staging + (u64) index * PAGE_BYTES,
                                                      place->allocation->base + (u64) place->page * PAGE_BYTES, bytes,
                                                      search->stream);
  }
  if (result == 0 && count != 0)
    result = (u32) state.driver.cuStreamSynchronize (search->stream, 0, 0, 0);
  for (index = 0; index != count; index++)
  {
    const struct place * place = &self->places[rest[index]];
    const struct look * look = &self->looks[rest[index]];

    if (result == 0)
      take_contents (search, place, self->staging + (u64) index * PAGE_BYTES, look->writes & 1, look->named);
    else
      place->allocation->known[place->page] = PAGE_UNKNOWN;
  }
  return result;
}

static u32 read_and_look (struct call * call, u64 time, struct allocation * allocation, u32 first, u32 last, u32 phase);

/* The GPU did not look: read the pages. */
static u32
read_instead (struct search * search)
{
  struct place * places = search->call->thread->places;
  u32 index, run, error = 0;

  for (index = 0; index < search->count && error == 0; index += run)
  {
    for (run = 1; index + run != search->count && places[index + run].allocation == places[index].allocation; run++)
      ;
    error = read_and_look (search->call, search->time, places[index].allocation, places[index].page,
                           places[index + run - 1].page, search->phase);
  }
  return error;
}

/* Look at the pages that are asked for: what changed goes to the record. 0, or the driver's error. */
static u32
run_search (struct search * search)
{
  struct thread * self = search->call->thread;
  u32 rest[STAGING_PAGES], index, waiting = 0, result, error = 0;
  u64 looked = 0;

  if (search->count == 0)
    return 0;
  result = run_kernel (search);
  if (result != 0)
  {
    if (result == CUDA_ERROR_NOT_FOUND)
    {
      search->function = 0;
      result = read_instead (search);
    }
    search->count = 0;
    return result;
  }
  for (index = 0; index != search->count; index++) /* first those whose contents lie in the slots */
  {
    struct look * look = &self->looks[index];
    const struct place * place = &self->places[index];
    int write = is_to_be_written (place->allocation, place->page, look->digest, search->phase);

    looked += look->size;
    memcpy (place->allocation->digest + 2 * place->page, look->digest, 16);
    place->allocation->known[place->page] = PAGE_KNOWN;
    look->writes = (u64) write;
    if (look->slot != NO_SLOT)
      take_contents (search, place, self->staging + (u64) look->slot * PAGE_BYTES, write, look->named);
  }
  for (index = 0; index != search->count; index++)
  {
    const struct look * look = &self->looks[index];

    if (look->slot == NO_SLOT && (look->writes || look->named))
      rest[waiting++] = index;
    if (waiting == STAGING_PAGES || (index + 1 == search->count && waiting != 0))
    {
      result = take_rest (search, rest, waiting);
      error = error != 0 ? error : result;
      waiting = 0;
    }
  }
  atomic_add (&CONTROL (LOOKED_BYTES), looked);
  search->count = 0;
  return error;
}

/* Ask for the pages [first, last] of an allocation, as far as this phase wants them. 0, or the driver's error. */
static u32
search_pages (struct search * search, struct allocation * allocation, u32 first, u32 last)
{
  struct thread * self = search->call->thread;
  u32 page, error = 0;

  for (page = first; page <= last && error == 0; page++)
  {
    if (!wants_page (allocation, page, search->phase))
      continue;
    ask_of_page (&self->looks[search->count], allocation, page, search->phase);
    self->places[search->count].allocation = allocation;
    self->places[search->count++].page = page;
    if (search->count == LOOK_PAGES)
      error = run_search (search);
  }
  return error;
}
