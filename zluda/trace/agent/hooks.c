/* The two functions that Frida calls around every driver entry, and what each special entry adds. */

/* --- before the call --------------------------------------------------------------------------------- */

/* The integer argument word of a slot, as gum_invocation_context_get_nth_argument without its call. */
static u64
argument (GumInvocationContext * context, u32 slot)
{
  GumCpuContext * cpu = context->cpu_context;

  switch (slot)
  {
    case 0: return cpu->rdi;
    case 1: return cpu->rsi;
    case 2: return cpu->rdx;
    case 3: return cpu->rcx;
    case 4: return cpu->r8;
    case 5: return cpu->r9;
    case 0xff: return 0;
    default: return ((u64 *) cpu->rsp)[slot - 5];
  }
}

static u32
inputs_size (const struct call * call)
{
  const struct function * function = call->function;
  u32 index, size = 0;

  for (index = 0; index != function->parameters; index++)
    if (function->parameter[index].rule == RULE_FIXED && function->parameter[index].direction & DIRECTION_IN)
      size += function->parameter[index].size;
  return size;
}

static void
write_enter (struct call * call)
{
  const struct function * function = call->function;
  u32 index, words = 8 * function->parameters;
  u32 inputs = function->variable & HAS_INPUTS ? inputs_size (call) : 0;
  u32 length = words + inputs + call->packed_size;
  u8 * record = reserve (call->thread, length, call->start), * body;

  if (record == NULL)
    return;
  body = copy (record + RECORD_HEADER_BYTES, call->word, words);
  for (index = 0; inputs != 0 && index != function->parameters; index++)
  {
    const struct parameter * parameter = &function->parameter[index];

    if (parameter->rule != RULE_FIXED || !(parameter->direction & DIRECTION_IN))
      continue;
    if (call->word[index] != 0)
      memcpy (body, (void *) call->word[index], parameter->size);
    else
      memset (body, 0, parameter->size);
    body += parameter->size;
  }
  if (call->packed_size != 0)
    memcpy (body, call->packed, call->packed_size);
  commit (call->thread, record, KIND_ENTER, call->sequence, call->start, function->index, length, call->parent);
}

static u64
buffer_size (const struct call * call, const struct parameter * parameter)
{
  return (call->word[parameter->count] & 0xffffffffffffULL) * parameter->size;
}

/* Strings, arrays, host buffers and images of one direction. */
static void
write_variable (struct call * call, u64 time, u32 direction)
{
  const struct function * function = call->function;
  u32 index;

  for (index = 0; index != function->parameters; index++)
  {
    const struct parameter * parameter = &function->parameter[index];
    const u8 * data = (const u8 *) call->word[index];

    if (data == NULL || parameter->direction != direction || parameter->rule < RULE_STRING)
      continue;
    if (parameter->rule == RULE_STRING)
      write_data (call, time, index, direction, 0, data, strlen ((const char *) data));
    else if (parameter->rule == RULE_IMAGE)
      write_image (call, index, data);
    else
      write_data (call, time, index, direction, 0, data, buffer_size (call, parameter));
  }
}

#define CONFIG_ATTRIBUTES 40
#define CONFIG_ATTRIBUTE_COUNT 48
#define CONFIG_STREAM 32
#define ATTRIBUTE_BYTES 72

static void
enter_launch (struct call * call)
{
  const u8 * config;
  u64 * word = call->word;

  switch (call->function->special)
  {
    case SPECIAL_LAUNCH_EX:
      config = (const u8 *) word[0];
      call->layout = layout_of (call, word[1]);
      pack_parameters (call, (void **) word[2], (void **) word[3]);
      call->stream = config != NULL ? *(const u64 *) (config + CONFIG_STREAM) : 0;
      break;
    case SPECIAL_LAUNCH:
      call->layout = layout_of (call, word[0]);
      pack_parameters (call, (void **) word[9], (void **) word[10]);
      call->stream = word[8];
      break;
    default: /* cooperative */
      call->layout = layout_of (call, word[0]);
      pack_parameters (call, (void **) word[9], NULL);
      call->stream = word[8];
  }
}

static void
write_attributes (struct call * call)
{
  const u8 * config = (const u8 *) call->word[0];
  u32 count;

  if (config == NULL || *(const u8 **) (config + CONFIG_ATTRIBUTES) == NULL)
    return;
  count = *(const u32 *) (config + CONFIG_ATTRIBUTE_COUNT);
  write_data (call, call->start, PARAMETER_ATTRIBUTES, DIRECTION_IN, 0,
              *(const u8 **) (config + CONFIG_ATTRIBUTES), (u64) count * ATTRIBUTE_BYTES);
}

/* CU_MEMORYTYPE of a pointer; plain host memory is unknown to the driver. */
static u32
memory_type (u64 pointer)
{
  u32 type = 0;

  if (state.driver.cuPointerGetAttribute == NULL
      || state.driver.cuPointerGetAttribute ((u64) &type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, pointer, 0) & 0xffffffff)
    return CU_MEMORYTYPE_HOST;
  return type == CU_MEMORYTYPE_HOST ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
}

/* cuMemcpy: what it is depends on the pointers; parameters are destination, source, size. */
static void
enter_unified_copy (struct call * call)
{
  call->to_host = memory_type (call->word[0]) == CU_MEMORYTYPE_HOST;
  call->from_host = memory_type (call->word[1]) == CU_MEMORYTYPE_HOST;
  if (call->from_host && !call->to_host)
    write_data (call, call->start, 1, DIRECTION_IN, 0, (void *) call->word[1], call->word[2]);
}

/* After ENTER is on record, before the real call. */
static void
enter_special (struct call * call)
{
  switch (call->function->special)
  {
    case SPECIAL_LAUNCH_EX:
      write_attributes (call);
      /* fall through */
    case SPECIAL_LAUNCH:
    case SPECIAL_LAUNCH_COOPERATIVE:
      if (state.outputs && !(call->flags & LEAVE_DEFERRED))
        capture_before_launch (call);
      break;
    case SPECIAL_COPY_UNIFIED:
    case SPECIAL_COPY_UNIFIED_ASYNC:
      enter_unified_copy (call);
      break;
    case SPECIAL_FREE:
      /* Taken out before: once it is free another thread may get the address. */
      call->freed = take_allocation (call->word[0]);
      break;
    default:
      break;
  }
}

void
enter (GumInvocationContext * context)
{
  const struct function * function = GUM_IC_GET_FUNC_DATA (context, const struct function *);
  struct call * call = GUM_IC_GET_INVOCATION_DATA (context, struct call);
  struct thread * self;
  u32 index;

  call->function = NULL;
  if (!*state.alive)
    return;
  if (CONTROL (FLAGS) & FLAG_STOPPED)
  {
    atomic_add (&CONTROL (LOST_CALLS), 1);
    return;
  }
  self = current_thread ();
  if (self == NULL || self->busy)
    return;
  self->busy = 1;
  call->function = function;
  call->thread = self;
  call->packed = NULL;
  call->packed_size = call->flags = 0;
  call->layout = NULL;
  call->freed = NULL;
  for (index = 0; index != function->parameters; index++)
  {
    const struct parameter * parameter = &function->parameter[index];

    call->word[index] = argument (context, parameter->slot);
    if (parameter->rule == RULE_NONE && parameter->size < 8) /* the rest of the register is anything */
      call->word[index] &= (1ULL << 8 * parameter->size) - 1;
  }
  call->stream = function->stream != 0xff ? call->word[function->stream] : 0;

  call->parent = self->current;
  call->start = call->end = now ();
  call->sequence = atomic_add (&CONTROL (SEQUENCE), 1);
  self->current = call->sequence + 1;

  if (function->special >= SPECIAL_LAUNCH && function->special <= SPECIAL_LAUNCH_COOPERATIVE)
  {
    if (state.pending != NULL)
      resolve_pending (call);
    enter_launch (call);
  }
  if (function->per_thread && call->stream == 0)
    call->stream = CU_STREAM_PER_THREAD;
  if (state.captures != 0 && function->special != 0 && function->special <= SPECIAL_OPAQUE_WRITE
      && (function->stream != 0xff || function->special == SPECIAL_LAUNCH_EX) && is_capturing (call->stream))
    call->flags |= LEAVE_DEFERRED;
  write_enter (call);
  if (function->variable & HAS_VARIABLE)
    write_variable (call, call->start, DIRECTION_IN);
  if (function->special)
    enter_special (call);
  self->busy = 0;
}

/* --- after the call ---------------------------------------------------------------------------------- */

static void
leave_allocation (struct call * call)
{
  u64 base, size, context = 0;
  u32 kind = MEMORY_DEVICE, special = call->function->special;

  if (call->word[0] == 0)
    return;
  base = call->function->parameter[0].size == 4 ? *(u32 *) call->word[0] : *(u64 *) call->word[0];
  size = call->word[1];
  if (special == SPECIAL_ALLOCATE_PITCH)
    size = *(u64 *) call->word[1] * call->word[3];
  else if (special == SPECIAL_ALLOCATE_MANAGED)
    kind = MEMORY_MANAGED;
  else if (special == SPECIAL_ALLOCATE_HOST)
    kind = MEMORY_HOST;
  state.driver.cuCtxGetCurrent ((u64) &context, 0, 0, 0);
  add_allocation (base, size, kind, context);
}

/* Device memory at [address, address + size) was written by a call whose data the record has. */
static void
leave_write (struct call * call, u64 address, u64 size, const u8 * host)
{
  if (size == 0 || !state.outputs)
    return;
  note_written (address, size, host);
  wait_for_stream (call, call->end, call->stream);
}

/* Device memory was copied to the host: the bytes delivered, once they are. */
static void
leave_delivery (struct call * call, u32 parameter, u64 size)
{
  if (state.outputs && size != 0 && wait_for_stream (call, call->end, call->stream))
    write_data (call, call->end, parameter, DIRECTION_OUT, 0, (void *) call->word[parameter], size);
}

static void
leave_device_copy (struct call * call, u64 to, u64 size)
{
  if (size == 0 || !state.outputs)
    return;
  if (wait_for_stream (call, call->end, call->stream))
    capture_range (call, call->end, to, size);
}

static void
leave_unified_copy (struct call * call)
{
  u64 size = call->word[2];

  if (call->to_host && !call->from_host)
    leave_delivery (call, 0, size);
  else if (call->from_host && !call->to_host)
    leave_write (call, call->word[0], size, (const u8 *) call->word[1]);
  else if (!call->to_host)
    leave_device_copy (call, call->word[0], size);
}

static void
leave_launch (struct call * call)
{
  if (!state.outputs)
    return;
  if (capture_after_launch (call, call->end))
    call->flags |= LEAVE_CAPTURED;
}

/* After the real call succeeded. */
static void
leave_special (struct call * call)
{
  u64 * word = call->word, handle;
  u32 special = call->function->special;

  if (call->flags & LEAVE_DEFERRED)
  {
    write_gap (call, call->end, "graph", "the stream is being captured, the work is not carried out here");
    return;
  }
  switch (special)
  {
    case SPECIAL_LAUNCH:
    case SPECIAL_LAUNCH_EX:
    case SPECIAL_LAUNCH_COOPERATIVE:
      leave_launch (call);
      break;
    case SPECIAL_ALLOCATE:
    case SPECIAL_ALLOCATE_PITCH:
    case SPECIAL_ALLOCATE_MANAGED:
    case SPECIAL_ALLOCATE_HOST:
      leave_allocation (call);
      break;
    case SPECIAL_COPY_H2D:
    case SPECIAL_COPY_H2D_ASYNC:
      leave_write (call, word[0], word[2], (const u8 *) word[1]);
      break;
    case SPECIAL_COPY_D2H:
    case SPECIAL_COPY_D2H_ASYNC:
      leave_delivery (call, 0, word[2]);
      break;
    case SPECIAL_COPY_D2D:
    case SPECIAL_COPY_D2D_ASYNC:
      leave_device_copy (call, word[0], word[2]);
      break;
    case SPECIAL_COPY_PEER:
    case SPECIAL_COPY_PEER_ASYNC:
      leave_device_copy (call, word[0], word[4]);
      break;
    case SPECIAL_COPY_UNIFIED:
    case SPECIAL_COPY_UNIFIED_ASYNC:
      leave_unified_copy (call);
      break;
    case SPECIAL_SET_1:
    case SPECIAL_SET_1_ASYNC:
      leave_write (call, word[0], word[2], NULL);
      break;
    case SPECIAL_SET_2:
    case SPECIAL_SET_2_ASYNC:
      leave_write (call, word[0], 2 * word[2], NULL);
      break;
    case SPECIAL_SET_4:
    case SPECIAL_SET_4_ASYNC:
      leave_write (call, word[0], 4 * word[2], NULL);
      break;
    case SPECIAL_OPAQUE_WRITE:
      if (state.outputs)
      {
        wait_for_stream (call, call->end, call->stream);
        distrust_all ();
      }
      break;
    case SPECIAL_INITIALIZE:
      describe_devices (call);
      break;
    case SPECIAL_MODULE_UNLOAD:
    case SPECIAL_LIBRARY_UNLOAD:
      forget_handles_of (word[0]);
      forget_pending (word[0]);
      remove_allocations_of (word[0]);
      break;
    case SPECIAL_GET_FUNCTION:
    case SPECIAL_GET_KERNEL:
      handle = word[0] != 0 ? *(u64 *) word[0] : 0;
      note_handle (handle, special == SPECIAL_GET_KERNEL ? HANDLE_KERNEL : HANDLE_FUNCTION, word[1], word[1]);
      break;
    case SPECIAL_CONTEXT_DESTROY:
      remove_allocations_of (word[0]);
      break;
    case SPECIAL_BEGIN_CAPTURE:
      atomic_add (&state.captures, 1);
      break;
    case SPECIAL_END_CAPTURE:
      atomic_add (&state.captures, (u64) -1);
      break;
    default:
      break;
  }
}

static void
leave_failed (struct call * call)
{
  struct allocation * freed = call->freed;

  if (freed != NULL) /* it was not freed after all; what is known of it is asked for anew */
    add_allocation (freed->base, freed->size, freed->kind, freed->owner);
}

static int
is_delivery (const struct function * function)
{
  return function->special == SPECIAL_COPY_D2H || function->special == SPECIAL_COPY_D2H_ASYNC;
}

static int
is_load (const struct function * function)
{
  return function->special == SPECIAL_MODULE_LOAD || function->special == SPECIAL_LIBRARY_LOAD;
}

static void
write_leave (struct call * call, u64 result)
{
  const struct function * function = call->function;
  u32 index, length = 8;
  u8 * record, * body;

  if (result == 0 && function->variable & HAS_OUTPUTS)
    for (index = 0; index != function->parameters; index++)
      if (function->parameter[index].rule == RULE_FIXED && function->parameter[index].direction & DIRECTION_OUT)
        length += function->parameter[index].size;
  record = reserve (call->thread, length, call->end);
  if (record == NULL)
    return;
  body = copy (record + RECORD_HEADER_BYTES, &result, 8);
  for (index = 0; length != 8 && index != function->parameters; index++)
  {
    const struct parameter * parameter = &function->parameter[index];

    if (parameter->rule != RULE_FIXED || !(parameter->direction & DIRECTION_OUT))
      continue;
    if (call->word[index] != 0)
      memcpy (body, (void *) call->word[index], parameter->size);
    else
      memset (body, 0, parameter->size);
    body += parameter->size;
  }
  commit (call->thread, record, KIND_LEAVE, call->sequence, call->end, call->flags & 0xff, length, 0);
}

void
leave (GumInvocationContext * context)
{
  struct call * call = GUM_IC_GET_INVOCATION_DATA (context, struct call);
  struct thread * self;
  u64 result;

  if (call->function == NULL)
    return;
  self = call->thread;
  self->busy = 1;
  result = context->cpu_context->rax & 0xffffffff;
  call->end = now ();
  if (result == 0)
  {
    if (call->function->variable & HAS_VARIABLE && !is_delivery (call->function))
      write_variable (call, call->end, DIRECTION_OUT);
    if (call->function->special)
      leave_special (call);
  }
  else
    leave_failed (call);
  write_leave (call, result);
  if (call->flags & CALL_OWNS_PACKED)
    g_free ((void *) call->packed);
  if (call->freed != NULL)
    release (call->freed);
  if (result == 0 && is_load (call->function) && call->word[0] != 0)
    learn_globals (call, *(u64 *) call->word[0], call->function->special == SPECIAL_LIBRARY_LOAD);
  self->current = call->parent;
  self->busy = 0;
}

/* --- setting up ----------------------------------------------------------------------------------------- */

static int
same (const char * a, const char * b)
{
  return strcmp (a, b) == 0;
}

/* Called once; `control` is the mapped page. Returns 0, or what failed. */
int
start (void * control, const char * directory, int outputs, u64 progress_limit)
{
  u32 key = 0;

  state.control = control;
  strcpy (state.directory, directory);
  state.outputs = (u32) outputs;
  state.progress_limit = progress_limit;
  state.layouts = g_malloc0 (8ULL * LAYOUT_PLACES);
  state.alive = mmap (NULL, 4096, PROT_READ_WRITE, MAP_PRIVATE_ANONYMOUS, -1, 0);
  if ((void *) state.alive == MAP_FAILED_ADDRESS)
    return 1;
  madvise ((void *) state.alive, 4096, MADV_WIPEONFORK);
  if (pthread_key_create (&key, close_thread) != 0)
    return 2;
  state.thread_key = key;
  *state.alive = 1;
  return 0;
}

/* An entry that the agent itself calls. */
void
set_entry (const char * name, void * address)
{
#define X(entry_name) \
  if (same (name, #entry_name)) \
    state.driver.entry_name = (entry) address;
  DRIVER_ENTRIES (X)
#undef X
}

/* Nothing is recorded from now on. */
void
stop (void)
{
  *state.alive = 0;
  CONTROL (AGENT_GONE) = 1;
}

void * open_control (const char * path)
{
  int fd = open (path, 2 | 02000000, 0);
  void * map;

  if (fd < 0)
    return NULL;
  map = mmap (NULL, CONTROL_BYTES, PROT_READ_WRITE, MAP_SHARED_FILE, fd, 0);
  close (fd);
  return map == MAP_FAILED_ADDRESS ? NULL : map;
}
