/* What is done around every driver entry; resident.c calls it. */

void leave (GumInvocationContext * context);

/* --- before the call --------------------------------------------------------------------------------- */

/* The first eight bytes of vector register `number`. Frida tells the general registers only; around them it saves the
 * others by FXSAVE (Intel SDM 1, 10.5.1), in the 512 bytes below what it tells, aligned to 16. `floats` says that this
 * holds, as is tried when the agent starts; in a child after `fork`, where Frida lets no hook see the trial, the parent's
 * is believed. */
static u64
vector_register (GumInvocationContext * context, u32 number)
{
  const u8 * saved = (const u8 *) (((u64) context->cpu_context & ~15ULL) - 512);

  return *(const u64 *) (saved + 160 + 16 * number);
}

/* Called with 1.5 and -3.25, and hooked by `enter_two_floats`. */
int
two_floats (double a, double b)
{
  return a > b;
}

void
enter_two_floats (GumInvocationContext * context)
{
  const double expected[2] = { 1.5, -3.25 };
  u64 a = vector_register (context, 0), b = vector_register (context, 1);

  state.floats = memcmp (&a, expected, 8) == 0 && memcmp (&b, expected + 1, 8) == 0;
}

int
finds_floats (void)
{
  return (int) state.floats;
}

/* What a call was given. */
struct passed
{
  const u64 * integer;               /* rdi, rsi, rdx, rcx, r8, r9 */
  const u64 * stack;                 /* the return address, and what lies above it; NULL: nothing was passed there */
  GumInvocationContext * context;    /* for the vector registers */
};

static void
take_passed (struct passed * passed, u64 * integer, GumInvocationContext * context)
{
  GumCpuContext * cpu = context->cpu_context;

  integer[0] = cpu->rdi;
  integer[1] = cpu->rsi;
  integer[2] = cpu->rdx;
  integer[3] = cpu->rcx;
  integer[4] = cpu->r8;
  integer[5] = cpu->r9;
  passed->integer = integer;
  passed->stack = (const u64 *) cpu->rsp;
  passed->context = context;
}

/* The argument word of a slot, as gum_invocation_context_get_nth_argument without its call. */
static u64
argument (const struct passed * passed, u32 slot)
{
  if (slot < 6)
    return passed->integer[slot];
  if (slot < VECTOR_SLOT)
    return passed->stack[slot - 5];
  return slot != 0xff && state.floats ? vector_register (passed->context, slot - VECTOR_SLOT) : 0;
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

/* Of a library's functions: what their pointers point to may be memory of the device, or nothing. */

#define MADE_LIMIT (1ULL << 30)
#define GUARDED_BYTES 4096

/* Bytes that the host can read, fewer where its memory ends; returns how many. */
static u64
read_guarded (u64 address, u64 size, u8 * to)
{
  while (size != 0 && read_host (address, size, to) != 0)
    size /= 2;
  return size;
}

static void
write_guarded (struct call * call, u64 time, u32 index, u64 address, u64 size)
{
  u8 room[GUARDED_BYTES];

  if (address >= (u64) room && address < call->thread->stack_end && size <= call->thread->stack_end - address)
    write_data (call, time, index, DIRECTION_IN, 0, (const void *) address, size);
  else if (size <= GUARDED_BYTES)
  {
    if ((size = read_guarded (address, size, room)) != 0)
      write_data (call, time, index, DIRECTION_IN, 0, room, size);
  }
  else if (size <= MADE_LIMIT && read_host (address, 1, room) == 0 && read_host (address + size - 1, 1, room) == 0)
    write_data (call, time, index, DIRECTION_IN, 0, (const void *) address, size); /* an image */
}

/* An array of C strings: all of them, each with its NUL. */
static void
write_strings (struct call * call, u64 time, u32 index, const char * const * strings, u64 count)
{
  u64 size = 0, at = 0, number;
  char * joined;

  for (number = 0; number != count; number++)
    size += strings[number] != NULL ? strlen (strings[number]) + 1 : 1;
  joined = g_malloc (size + 1);
  for (number = 0; number != count; number++)
  {
    const char * text = strings[number] != NULL ? strings[number] : "";

    strcpy (joined + at, text);
    at += strlen (text) + 1;
  }
  if (size != 0)
    write_data (call, time, index, DIRECTION_IN, 0, joined, size);
  g_free (joined);
}

/* What the library made in this call, as it says itself. */
static void
write_made (struct call * call)
{
  const struct made * made = call->function->made;
  u64 number, size;
  u8 * content;

  for (number = 0; number != made->count; number++)
  {
    size = 0;
    if (made->pair[number].size == NULL || made->pair[number].content == NULL)
      continue;
    if (made->pair[number].size (call->word[0], (u64) &size, 0, 0) & 0xffffffff || size == 0 || size > MADE_LIMIT)
      continue;
    content = g_malloc (size);
    if ((made->pair[number].content (call->word[0], (u64) content, 0, 0) & 0xffffffff) == 0)
      write_data (call, call->end, PARAMETER_MADE, DIRECTION_OUT, (u32) number, content, size);
    g_free (content);
  }
}

static u64
buffer_size (const struct call * call, const struct parameter * parameter)
{
  return (call->word[parameter->count] & 0xffffffffffffULL) * parameter->size;
}

static int
is_from_host (const struct function * function)
{
  return function->special == SPECIAL_COPY_H2D || function->special == SPECIAL_COPY_H2D_ASYNC;
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
    if (parameter->rule == RULE_BUFFER && direction == DIRECTION_IN && is_from_host (function) && !takes_contents ())
      continue;
    if (parameter->rule == RULE_STRING)
      write_data (call, time, index, direction, 0, data, strlen ((const char *) data));
    else if (parameter->rule == RULE_IMAGE)
      write_image (call, index, data);
    else if (parameter->rule == RULE_STRINGS)
      write_strings (call, time, index, (const char * const *) data, call->word[parameter->count] & 0xffffffff);
    else if (parameter->rule == RULE_GUARDED)
      write_guarded (call, time, index, (u64) data, parameter->size);
    else if (function->library)
      write_guarded (call, time, index, (u64) data, buffer_size (call, parameter));
    else
      write_data (call, time, index, direction, 0, data, buffer_size (call, parameter));
  }
}

/* While a stream is being captured, driver calls that might get into the capture are refused to all threads or to
 * the capturing one (CUstreamCaptureMode), and spoil it; the agent's own do not get into it, so they are let through.
 * Another thread may begin a capture at any moment. Without times and memory, none of the agent's calls is of that kind
 * unless a stream is being captured. */
static u32
allow_own_calls (void)
{
  u32 mode = CU_STREAM_CAPTURE_MODE_RELAXED;

  if ((state.captures == 0 && !state.timing && !state.outputs)
      || state.driver.cuThreadExchangeStreamCaptureMode ((u64) &mode, 0, 0, 0) & 0xffffffff)
    return CU_STREAM_CAPTURE_MODE_RELAXED;
  return mode;
}

static void
allow_as_before (u32 mode)
{
  if (mode != CU_STREAM_CAPTURE_MODE_RELAXED)
    state.driver.cuThreadExchangeStreamCaptureMode ((u64) &mode, 0, 0, 0);
}

/* Whether a call puts work on its stream, or takes memory in the stream's order. */
static int
goes_to_stream (const struct function * function)
{
  u32 special = function->special;

  if (special == SPECIAL_LAUNCH_EX)
    return 1;
  return function->stream != 0xff && special != 0
      && (special <= SPECIAL_OPAQUE_WRITE || special == SPECIAL_ALLOCATE || special == SPECIAL_FREE);
}

/* A call by a forked child that has no agent: it is brought one now (forks.c), or there is none for it, as for a child of a
 * bare clone, or of a process that is not followed. */
static void
turn_child_away (void)
{
  if (first.waiting)
    first.ask ();
  else if (state.control != NULL && getpid () != (int) CONTROL (APP_PID))
    atomic_add (&CONTROL (CHILDRENS_CALLS), 1);
}

/* Calls that mean nothing to the record but themselves (SHORT), as most of a library's are: the same as below, without
 * what those others need. It matters: a training step makes a thousand. */
static void
enter_short (struct call * call, const struct function * function, const struct passed * passed, struct thread * self)
{
  u32 index, count = function->parameters, length = 8 * count;
  u64 * words;
  u8 * record;

  call->leave = leave;
  call->function = function;
  call->thread = self;
  call->flags = CALL_SHORT;
  if (state.timing && function->stream != 0xff)
    atomic_add (&state.work, 1);
  if (state.flow != NULL)
    poll_flow (call);
  call->outer = self->current;
  call->outer_library = self->in_library;
  call->start = now ();
  call->sequence = atomic_add (&CONTROL (SEQUENCE), 1);
  self->current = call->sequence + 1;
  self->in_library = function->library;
  record = reserve (self, length, call->start);
  words = record != NULL ? (u64 *) (record + RECORD_HEADER_BYTES) : call->word;
  for (index = 0; index != count; index++)
  {
    const struct parameter * parameter = &function->parameter[index];
    u64 word = parameter->slot < 6 ? passed->integer[parameter->slot] : argument (passed, parameter->slot);

    if (parameter->rule == RULE_NONE && parameter->size < 8)
      word &= (1ULL << 8 * parameter->size) - 1;
    words[index] = call->word[index] = word;
  }
  if (record != NULL)
    commit (self, record, KIND_ENTER, call->sequence, call->start, function->index, length, call->outer);
  if (function->variable & HAS_VARIABLE)
    write_variable (call, call->start, DIRECTION_IN);
  self->busy = 0;
}

static void write_leave (struct call * call, u64 result);

static void
leave_short (struct call * call, u64 result)
{
  struct thread * self = call->thread;

  self->busy = 1;
  call->end = now ();
  if (result == 0 && call->function->variable & HAS_VARIABLE)
    write_variable (call, call->end, DIRECTION_OUT);
  write_leave (call, result);
  self->current = call->outer;
  self->in_library = call->outer_library;
  self->busy = 0;
}

static int
is_launch (const struct function * function)
{
  return function->special >= SPECIAL_LAUNCH && function->special <= SPECIAL_LAUNCH_COOPERATIVE;
}

static void
enter_function (struct call * call, const struct function * function, const struct passed * passed)
{
  struct thread * self;
  u32 index, mode;

  if (function == NULL)
    return;
  if (!*state.alive)
  {
    turn_child_away ();
    return;
  }
  if (CONTROL (FLAGS) & (FLAG_STOPPED | FLAG_LEFT))
  {
    turn_away ();
    return;
  }
  self = current_thread ();
  if (self == NULL || self->busy)
    return;
  self->busy = 1;
  if (function->variable & SHORT && !state.late)
  {
    enter_short (call, function, passed, self);
    return;
  }
  if (function->marks)
    call_entered (function);
  call->leave = leave;
  call->function = function;
  call->thread = self;
  call->packed = NULL;
  call->packed_size = call->flags = 0;
  call->layout = NULL;
  call->freed = NULL;
  call->freed_target = 0;
  call->graph = NULL;
  call->timer = NULL;
  call->looks = call->flows = call->flow_count = 0;
  for (index = 0; index != function->parameters; index++)
  {
    const struct parameter * parameter = &function->parameter[index];

    call->word[index] = argument (passed, parameter->slot);
    if (parameter->rule == RULE_NONE && parameter->size < 8) /* the rest of the register is anything */
      call->word[index] &= (1ULL << 8 * parameter->size) - 1;
  }
  call->stream = function->stream != 0xff ? call->word[function->stream] : 0;

  mode = allow_own_calls ();
  if (function->special == SPECIAL_LAUNCH_EX && call->word[0] != 0)
    call->stream = *(const u64 *) (call->word[0] + CONFIG_STREAM);
  if (function->per_thread && call->stream == 0)
    call->stream = CU_STREAM_PER_THREAD;
  if (state.timing && may_work (function))
    call->work = atomic_add (&state.work, 1) + 1;
  call->sequence = 0;
  if (state.outputs && function->special != 0 && !is_launch (function))
    begin_looks (call);
  else
    poll_flow (call);
  call->parent = call->outer = self->current;
  call->outer_library = self->in_library;
  call->start = call->end = now ();
  if (state.captures != 0 && goes_to_stream (function) && is_capturing (call->stream))
  {
    call->flags |= LEAVE_DEFERRED;
    if (call->parent == 0 || self->in_library)
      call->parent = capture_of (call->stream);
  }
  call->sequence = atomic_add (&CONTROL (SEQUENCE), 1 + calls_of_graph (call));
  self->current = call->sequence + 1;
  self->in_library = function->library;

  if (is_launch (function))
  {
    if (state.pending != NULL)
      resolve_pending (call);
    enter_launch (call);
    choose (call);
  }
  else if (function->special == SPECIAL_GRAPH_LAUNCH)
    choose (call);
  if (state.late && !function->library)
    find_earlier_memory (call);
  write_enter (call);
  if (function->variable & HAS_VARIABLE)
    write_variable (call, call->start, DIRECTION_IN);
  if (function->special)
    enter_special (call);
  if (is_timed (call))
    begin_time (call);
  allow_as_before (mode);
  self->busy = 0;
}

void
enter (GumInvocationContext * context)
{
  struct passed passed;
  u64 integer[6];

  take_passed (&passed, integer, context);
  enter_function (GUM_IC_GET_INVOCATION_DATA (context, struct call), state.hooked[GUM_IC_GET_FUNC_DATA (context, u64)],
                  &passed);
}

/* Of a library above the driver, whose hooks are this recording's own. */
void
enter_library (GumInvocationContext * context)
{
  struct passed passed;
  u64 integer[6];

  GUM_IC_GET_INVOCATION_DATA (context, struct call)->leave = NULL;
  take_passed (&passed, integer, context);
  enter_function (GUM_IC_GET_INVOCATION_DATA (context, struct call),
                  GUM_IC_GET_FUNC_DATA (context, const struct function *), &passed);
}

void
leave_library (GumInvocationContext * context)
{
  if (GUM_IC_GET_INVOCATION_DATA (context, struct call)->leave != NULL)
    leave (context);
}

/* --- after the call ---------------------------------------------------------------------------------- */

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
    if (call->word[index] == 0 || (function->library && read_host (call->word[index], parameter->size, body) != 0))
      memset (body, 0, parameter->size);
    else if (!function->library)
      memcpy (body, (void *) call->word[index], parameter->size);
    body += parameter->size;
  }
  commit (call->thread, record, KIND_LEAVE, call->sequence, call->end, call->flags & 0xff, length, 0);
}

static void
forget (struct call * call)
{
  struct allocation * freed;

  if (call->flags & CALL_OWNS_PACKED)
    g_free ((void *) call->packed);
  if (call->flows)
    forget_flow (call);
  if (call->looks)
    atomic_add (&state.lookers, (u64) -1);
  while ((freed = call->freed) != NULL)
  {
    call->freed = freed->next;
    release (freed);
  }
}

static void
leave_function (struct call * call, u64 result)
{
  struct thread * self;
  u32 mode;

  self = call->thread;
  if (call->flags & CALL_SHORT && !(CONTROL (FLAGS) & FLAG_LEFT))
  {
    leave_short (call, result);
    return;
  }
  if (CONTROL (FLAGS) & FLAG_LEFT)
  {
    if (!(call->flags & CALL_SHORT))
      forget (call);
    self->current = call->outer;
    return;
  }
  self->busy = 1;
  if (call->function->variable & WAITS)
    poll_flow (call);
  call->end = now ();
  mode = allow_own_calls ();
  if (call->timer != NULL)
    end_time (call, result);
  if (result == 0)
  {
    if (call->function->variable & HAS_VARIABLE && !is_delivery (call->function))
      write_variable (call, call->end, DIRECTION_OUT);
    if (call->function->special)
      leave_special (call);
    if (call->function->made != NULL)
      write_made (call);
  }
  else
    leave_failed (call, result);
  write_leave (call, result);
  if (call->timer != NULL)
    note_time (call);
  else if (call->function->variable & WAITS)
    read_timers (call);
  forget (call);
  if (result == 0 && is_load (call->function) && call->word[0] != 0)
    learn_globals (call, *(u64 *) call->word[0], call->function->special == SPECIAL_LIBRARY_LOAD);
  if (call->function->marks)
    call_left (call->function);
  allow_as_before (mode);
  self->current = call->outer;
  self->in_library = call->outer_library;
  self->busy = 0;
}

void
leave (GumInvocationContext * context)
{
  leave_function (GUM_IC_GET_INVOCATION_DATA (context, struct call), context->cpu_context->rax & 0xffffffff);
}

/* The same for functions whose arguments are integers and pointers, which are nearly all: called not by Frida, which keeps
 * every register and a stack of its own, but by the code that agent.js writes for each (`thinCode`). The integer registers,
 * and behind them room for a call that is not recorded yet, lie on the thread's stack; `stack` as in `struct passed`. */
void
enter_thin (const u64 * integer, const struct function * function, struct call * call, const u64 * stack)
{
  struct passed passed;

  passed.integer = integer;
  passed.stack = stack;
  enter_function (call, function, &passed);
}

/* A driver entry: by its hook's number. */
void
enter_thin_entry (const u64 * integer, u64 number, struct call * call, const u64 * stack)
{
  enter_thin (integer, state.hooked[number], call, stack);
}

void
leave_thin (u64 result, struct call * call)
{
  if (call->leave == leave) /* not of a recording before this one */
    leave_function (call, result & 0xffffffff);
}

/* --- setting up ----------------------------------------------------------------------------------------- */

static int
same (const char * a, const char * b)
{
  return strcmp (a, b) == 0;
}

/* Stands for an entry that this driver does not have: CUDA_ERROR_NOT_FOUND. */
static u64
missing (u64 a, u64 b, u64 c, u64 d)
{
  return CUDA_ERROR_NOT_FOUND;
}

/* Called once; `control` is the mapped page. Returns 0, or what failed. */
int
start (void * control, const char * directory, const struct choice * choice, int outputs, int late, u64 progress_limit)
{
  u32 key = 0;

#define X(name) state.driver.name = missing;
  DRIVER_ENTRIES (X)
#undef X
  state.control = control;
  state.floats = 1;
  strcpy (state.directory, directory);
  state.choice = choice;
  state.window = choice->open;
  state.outputs = outputs != 0;
  state.full = outputs == CAPTURE_FULL;
  state.late = (u32) late;
  state.captures = late ? UNKNOWN_CAPTURES : 0;
  state.progress_limit = progress_limit;
  state.timing = CONTROL (TIMING) != 0;
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

/* A function of the table as which nodes of graphs are put on record. */
void
set_function (const char * name, const struct function * function)
{
#define X(entry_name) \
  if (same (name, #entry_name)) \
    state.stands_for.entry_name = function;
  NODE_ENTRIES (X)
#undef X
}

/* By the numbers of the hooks: what the table says of their functions. */
void
set_hooked (const struct function ** hooked)
{
  state.hooked = hooked;
}

/* Where the driver's library is; the text stays. */
void
set_driver (const char * path)
{
  state.driver_path = path;
}

/* Nothing is recorded from now on, and this code goes. It does so only where the session ended before it had this code
 * stay (STAYS); afterwards FLAG_LEFT tells it to do nothing. */
void
stop (void)
{
  *state.alive = 0;
  CONTROL (AGENT_GONE) = 1;
  pthread_key_delete (state.thread_key); /* its destructor goes with this code */
}

int
is_recording (void)
{
  return *state.alive && !(CONTROL (FLAGS) & (FLAG_STOPPED | FLAG_LEFT));
}

/* Until this code outlives the session, which has said so, or until there is no recording any more. */
void
wait_to_stay (void)
{
  while (!CONTROL (STAYS) && is_recording () && !recorder_is_gone ())
    sleep_ns (500000);
}

/* What is said of the recording as a whole, in JSON. */
void
note (const char * text)
{
  u32 length = (u32) strlen (text);
  struct thread * self = is_recording () ? current_thread () : NULL;
  u64 time = now ();
  u8 * record;

  if (self == NULL || (record = reserve (self, length, time)) == NULL)
    return;
  copy (record + RECORD_HEADER_BYTES, text, length);
  commit (self, record, KIND_NOTE, 0, time, 0, length, 0);
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
