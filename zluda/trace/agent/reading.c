/* Reading memory of the device, by a private stream, and putting pages of it on record. */

#define LOOK_PAGES 4096              /* at a time: 256 KiB are told of them, of 256 MiB */
#define LOOK_BYTES 64
#define CU_MEMHOSTALLOC_PORTABLE_DEVICEMAP 3

/* This thread's private stream in the current context; 0 where there is none. */
static u64
private_stream (struct thread * self)
{
  u64 context = 0, index, stream = 0;

  if (state.driver.cuCtxGetCurrent ((u64) &context, 0, 0, 0) & 0xffffffff || context == 0)
    return 0;
  if (self->stream_generation != state.contexts_ended) /* a context's handle may come again, its streams do not */
  {
    self->stream_generation = state.contexts_ended;
    memset (self->stream_context, 0, sizeof (self->stream_context));
    self->staging = NULL; /* pinned memory goes with its context */
    self->looks = NULL;
    self->gave_up = 0;
  }
  for (index = 0; index != 4; index++)
    if (self->stream_context[index] == context)
      return self->stream_handle[index];
  if (state.driver.cuStreamCreate ((u64) &stream, CU_STREAM_NON_BLOCKING, 0, 0) & 0xffffffff)
    return 0;
  for (index = 3; index != 0; index--)
  {
    self->stream_context[index] = self->stream_context[index - 1];
    self->stream_handle[index] = self->stream_handle[index - 1];
  }
  self->stream_context[0] = context;
  self->stream_handle[0] = stream;
  return stream;
}

/* Memory that the GPU writes at full speed, in any context; NULL where there is none. */
static u8 *
pinned (u64 size)
{
  u64 memory = 0;

  lock ();
  if (state.spare_count != 0 && state.spares_ended == state.contexts_ended)
    memory = (u64) state.spare[--state.spare_count];
  unlock ();
  if (memory != 0)
    return (u8 *) memory;
  if (state.driver.cuMemHostAlloc ((u64) &memory, size, CU_MEMHOSTALLOC_PORTABLE_DEVICEMAP, 0) & 0xffffffff)
    return NULL;
  return (u8 *) memory;
}

static void
need_staging (struct thread * self)
{
  if (self->staging != NULL)
    return;
  self->staging = pinned (STAGING_PAGES * PAGE_BYTES + (u64) LOOK_BYTES * LOOK_PAGES);
  if (self->staging != NULL)
    self->looks = (struct look *) (self->staging + STAGING_PAGES * PAGE_BYTES);
  else
    self->staging = g_malloc (STAGING_PAGES * PAGE_BYTES);
}

/* Copy bytes of an allocation into this thread's staging buffer; 0 on success, else the driver's error. */
static u32
read_pages (struct thread * self, struct allocation * allocation, u64 offset, u64 size)
{
  u64 stream = private_stream (self), result;

  need_staging (self);
  if (allocation->kind == MEMORY_HOST)
    return read_host (allocation->base + offset, size, self->staging);
  if (stream == 0)
    return CUDA_ERROR_INVALID_CONTEXT;
  if (allocation->array != NULL)
    result = read_array (allocation, offset, size, self->staging, stream);
  else
    result = state.driver.cuMemcpyDtoHAsync_v2 ((u64) self->staging, allocation->base + offset, size, stream)
        & 0xffffffff;
  if (result == 0)
    result = state.driver.cuStreamSynchronize (stream, 0, 0, 0) & 0xffffffff;
  atomic_add (&CONTROL (LOOKED_BYTES), size);
  atomic_add (&CONTROL (MOVED_BYTES), size);
  return (u32) result;
}

static void
write_page (struct call * call, u64 time, struct allocation * allocation, u64 offset, const u8 * data,
            u64 size, u32 phase)
{
  u32 length = (u32) (8 + size);
  u64 start = now ();
  u8 * record = reserve (call->thread, length, time);

  if (record == NULL)
    return;
  copy (copy (record + RECORD_HEADER_BYTES, &offset, 8), data, size);
  atomic_add (&CONTROL (WRITE_NS), now () - start);
  commit (call->thread, record, KIND_PAGE, call->sequence, time, phase, length, allocation->base);
}
