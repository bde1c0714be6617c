/* Memory that is not the one context's alone: pages of the host, memory of other processes and interfaces, and physical
 * memory that is mapped at addresses of the application's choice (cuMemMap).
 */

extern int getpid (void);
extern i64 process_vm_readv (int pid, const u64 * local, u64 locals, const u64 * remote, u64 remotes, u64 flags);

static void
write_range (struct call * call, u64 base, u64 size)
{
  u8 * record = reserve (call->thread, 8, call->end);

  if (record == NULL)
    return;
  copy (record + RECORD_HEADER_BYTES, &size, 8);
  commit (call->thread, record, KIND_RANGE, call->sequence, call->end, 0, 8, base);
}

static int
is_managed (u64 address)
{
  u32 managed = 0;

  if (state.driver.cuPointerGetAttribute ((u64) &managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, address, 0) & 0xffffffff)
    return 0;
  return managed != 0;
}

/* cuMemHostRegister: pointer, bytes, flags. */
static void
leave_register_host (struct call * call)
{
  u64 context = 0;

  if (call->word[2] & CU_MEMHOSTREGISTER_IOMEMORY)
  {
    write_gap (call, call->end, "memory", "memory of an input/output device is not looked at");
    return;
  }
  state.driver.cuCtxGetCurrent ((u64) &context, 0, 0, 0);
  add_allocation (call->word[0], call->word[1], MEMORY_HOST, context);
}

static const char found_later[] = "made elsewhere: what others write there shows when a launch can read it";

/* Memory that another process or interface made; where its address is put is the first parameter. */
static void
leave_open_memory (struct call * call)
{
  u64 address, base = 0, size = 0, context = 0;

  if (call->word[0] == 0)
    return;
  address = *(u64 *) call->word[0];
  if (state.driver.cuMemGetAddressRange_v2 ((u64) &base, (u64) &size, address, 0) & 0xffffffff || base == 0
      || address - base >= size)
  {
    write_gap (call, call->end, "memory", "the size of the memory that was opened is not known; it is not looked at");
    return;
  }
  size -= address - base;
  state.driver.cuCtxGetCurrent ((u64) &context, 0, 0, 0);
  add_allocation (address, size, MEMORY_DEVICE | MEMORY_SHARED, context);
  write_range (call, address, size);
  write_gap (call, call->end, "memory", found_later);
}

/* The place of a handle among those that other processes have too, foreign_count where it is not; locked. */
static u32
foreign_place (u64 handle)
{
  u32 index;

  for (index = 0; index != state.foreign_count && state.foreign[index] != handle; index++)
    ;
  return index;
}

/* Another process has this physical memory, too: it writes it without a call. */
static void
note_foreign (u64 handle)
{
  u32 index;

  lock ();
  if (foreign_place (handle) == state.foreign_count)
  {
    if (state.foreign_count == state.foreign_room)
    {
      state.foreign_room = state.foreign_room * 2 + 16;
      state.foreign = g_realloc (state.foreign, 8ULL * state.foreign_room);
    }
    state.foreign[state.foreign_count++] = handle;
  }
  for (index = 0; index != state.allocation_count; index++)
    if (state.allocations[index]->kind == MEMORY_VIRTUAL && state.allocations[index]->physical == handle)
      state.allocations[index]->shared = 1;
  unlock ();
}

/* A handle of physical memory was given out: what is mapped under the same, which was released, is another's. */
static void
leave_create_physical (struct call * call)
{
  u64 handle = call->word[0] != 0 ? *(u64 *) call->word[0] : 0;
  u32 index;

  lock ();
  index = foreign_place (handle);
  if (index != state.foreign_count)
    state.foreign[index] = state.foreign[--state.foreign_count];
  for (index = 0; index != state.allocation_count; index++)
    if (state.allocations[index]->physical == handle)
      state.allocations[index]->physical = 0;
  unlock ();
}

/* cuMemMap: address, bytes, offset, handle. It can be read when access has been granted. */
static void
leave_map (struct call * call)
{
  u64 context = 0;
  u32 foreign;

  state.driver.cuCtxGetCurrent ((u64) &context, 0, 0, 0);
  lock ();
  foreign = foreign_place (call->word[3]) != state.foreign_count;
  unlock ();
  add_allocation (call->word[0], call->word[1],
                  MEMORY_VIRTUAL | MEMORY_CLOSED | MEMORY_OWN | (foreign ? MEMORY_SHARED : 0), context);
  lock ();
  alias_at (call->word[0], call->word[3]);
  unlock ();
  if (foreign)
    write_gap (call, call->end, "memory", found_later);
}

/* cuMemSetAccess: address, bytes, descriptors (CUmemAccessDesc), their number. */
static void
leave_set_access (struct call * call)
{
  u64 end = call->word[0] + call->word[1];
  const u32 * descriptor = (const u32 *) call->word[2];
  u32 index, granted = 0;

  for (index = 0; index != (u32) call->word[3]; index++)
    granted |= descriptor[3 * index + 2] & CU_MEM_ACCESS_READ;
  lock ();
  for (index = 0; index != state.allocation_count; index++)
  {
    struct allocation * one = state.allocations[index];

    if (one->kind == MEMORY_VIRTUAL && one->base >= call->word[0] && one->base + one->size <= end)
      one->closed = !granted;
  }
  unlock ();
}

/* The bytes of host memory; 0, or CUDA_ERROR_INVALID_VALUE where the application has taken it away meanwhile. */
static u32
read_host (u64 address, u64 size, u8 * to)
{
  u64 local[2], remote[2];

  local[0] = (u64) to;
  remote[0] = address;
  local[1] = remote[1] = size;
  return process_vm_readv (getpid (), local, 1, remote, 1, 0) == (i64) size ? 0 : CUDA_ERROR_INVALID_VALUE;
}
