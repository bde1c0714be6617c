/* Finding changed pages on the GPU: digest.ptx, loaded into the application's context, digests whole pages on this
 * thread's private stream and puts the digests into pinned host memory; only pages whose digest is another travel.
 *
 * Where that cannot be had (no room, no such code, an allocation that does not begin at a multiple of 16 bytes) pages are
 * read, and digested here.
 */

#define CAPTURE_MODE_RELAXED 2

typedef u64 (* launch_entry) (u64, u64, u64, u64, u64, u64, u64, u64, u64, void **, void **);

/* The agent's own calls must not break another thread's capture of a graph; returns the mode to go back to. */
static u32
begin_own_calls (void)
{
  u32 mode = CAPTURE_MODE_RELAXED;

  if (state.captures != 0)
    state.driver.cuThreadExchangeStreamCaptureMode ((u64) &mode, 0, 0, 0);
  return mode;
}

static void
end_own_calls (u32 mode)
{
  if (mode != CAPTURE_MODE_RELAXED)
    state.driver.cuThreadExchangeStreamCaptureMode ((u64) &mode, 0, 0, 0);
}

/* The digest kernel in the current context; 0 where it cannot be loaded. */
static u64
digest_kernel (void)
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
  if ((state.driver.cuModuleLoadData ((u64) &module, (u64) digest_ptx, 0, 0) & 0xffffffff) != 0
      || (state.driver.cuModuleGetFunction ((u64) &function, module, (u64) "zluda_digest", 0) & 0xffffffff) != 0)
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

/* Whether digests of an allocation's whole pages can be had from the GPU. Contents that are scanned for addresses have to
 * be read anyway. A kernel that touches what is not there would end the application's context, where a copy only fails:
 * so it reads nothing but memory of its own context whose end is seen. */
static int
is_found_on_gpu (struct allocation * allocation)
{
  u64 context = 0;

  if (allocation->size < NESTED_LIMIT || !allocation->own || allocation->base % 16 != 0)
    return 0;
  if (state.driver.cuCtxGetCurrent ((u64) &context, 0, 0, 0) & 0xffffffff || context != allocation->owner)
    return 0;
  return is_here (allocation);
}

/* Digest `count` whole pages from `page` on into this thread's results. 0, or the driver's error. */
static u32
digest_on_gpu (struct thread * self, struct allocation * allocation, u32 page, u32 count)
{
  u64 function = digest_kernel (), stream = private_stream (self), base, out, result;
  void * parameters[2];

  if (function == 0 || stream == 0)
    return CUDA_ERROR_NOT_FOUND;
  need_staging (self);
  if (self->results == NULL)
    return CUDA_ERROR_NOT_FOUND;
  base = allocation->base + (u64) page * PAGE_BYTES;
  out = (u64) self->results;
  parameters[0] = &base;
  parameters[1] = &out;
  result = ((launch_entry) state.driver.cuLaunchKernel) (function, count, 1, 1, DIGEST_LANES, 1, 1, 0, stream,
                                                         parameters, NULL) & 0xffffffff;
  if (result == 0)
    result = state.driver.cuStreamSynchronize (stream, 0, 0, 0) & 0xffffffff;
  return (u32) result;
}

/* Whether a page with this digest goes to the record in this phase. */
static int
is_to_be_written (const struct allocation * allocation, u32 page, const u64 * found, u32 phase)
{
  const u64 * old = allocation->digest + 2 * page;

  if (allocation->known[page] == PAGE_STALE)
    return phase == PHASE_AFTER;
  return allocation->known[page] == PAGE_UNKNOWN || old[0] != found[0] || old[1] != found[1];
}

/* Copy these pages, those that lie side by side at once, into the staging buffer. 0, or the driver's error. */
static u32
copy_pages (struct thread * self, struct allocation * allocation, const u32 * page, u32 count)
{
  u64 stream = private_stream (self);
  u32 index, run, result;

  for (index = 0; index != count; index += run)
  {
    for (run = 1; index + run != count && page[index + run] == page[index] + run; run++)
      ;
    result = (u32) state.driver.cuMemcpyDtoHAsync_v2 ((u64) self->staging + (u64) index * PAGE_BYTES,
                                                      allocation->base + (u64) page[index] * PAGE_BYTES,
                                                      (u64) run * PAGE_BYTES, stream);
    if (result != 0)
      return result;
  }
  return (u32) state.driver.cuStreamSynchronize (stream, 0, 0, 0);
}

/* Put these pages on record. 0, or the driver's error: then they are not known. */
static u32
move_pages (struct call * call, u64 time, struct allocation * allocation, const u32 * page, u32 count, u32 phase)
{
  u32 index, result = count != 0 ? copy_pages (call->thread, allocation, page, count) : 0;

  if (result != 0)
  {
    for (index = 0; index != count; index++)
      allocation->known[page[index]] = PAGE_UNKNOWN;
    return result;
  }
  for (index = 0; index != count; index++)
    write_page (call, time, allocation, (u64) page[index] * PAGE_BYTES,
                call->thread->staging + (u64) index * PAGE_BYTES,
                PAGE_BYTES, phase);
  atomic_add (&CONTROL (MOVED_BYTES), (u64) count * PAGE_BYTES);
  return 0;
}

/* Look at `count` whole pages that this phase wants: what changed is copied, many pages at a time. 0, or the driver's
 * error; CUDA_ERROR_NOT_FOUND where the GPU cannot tell. */
static u32
find_changed (struct call * call, u64 time, struct allocation * allocation, u32 first, u32 count, u32 phase)
{
  struct thread * self = call->thread;
  u32 changed[STAGING_PAGES], index, waiting = 0, result;

  result = digest_on_gpu (self, allocation, first, count);
  if (result != 0)
    return result;
  atomic_add (&CONTROL (LOOKED_BYTES), (u64) count * PAGE_BYTES);
  for (index = 0; index != count; index++)
  {
    u32 page = first + index;
    const u64 * found = self->results + 2 * index;

    if (is_to_be_written (allocation, page, found, phase))
      changed[waiting++] = page;
    memcpy (allocation->digest + 2 * page, found, 16);
    allocation->known[page] = PAGE_KNOWN;
    if (waiting == STAGING_PAGES)
    {
      if ((result = move_pages (call, time, allocation, changed, waiting, phase)) != 0)
        return result;
      waiting = 0;
    }
  }
  return move_pages (call, time, allocation, changed, waiting, phase);
}
