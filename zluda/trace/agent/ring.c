/* The producer's side of a ring; zluda/tracefile/ring.py describes it. */

static struct thread *
unrecorded_thread (struct thread * self)
{
  self->header = NULL;
  atomic_add (&CONTROL (LOST_THREADS), 1);
  return self;
}

/* Allocate the ring's file: `wanted` bytes of slots or, where the disk has no room, less. 0: not even the least.
 * Allocated, not only sized: a store to a hole of a full disk would kill the application. */
static u64
allocate_file (int fd, u64 wanted)
{
  u64 size, limit[2];

  /* Past RLIMIT_FSIZE the kernel would end the application by SIGXFSZ. */
  if (getrlimit (RLIMIT_FSIZE, limit) == 0 && limit[0] < RING_HEADER_BYTES + wanted)
  {
    if (limit[0] < RING_HEADER_BYTES + SMALL_RING_BYTES)
      return 0;
    wanted = (limit[0] - RING_HEADER_BYTES) / SLOT_BYTES * SLOT_BYTES;
  }
  for (size = wanted; size != 0; size = size / 2 >= SMALL_RING_BYTES ? size / 2 : 0)
  {
    if (fallocate (fd, 0, 0, (i64) (RING_HEADER_BYTES + size)) == 0)
      break;
    if (*__errno_location () != ENOSPC_NUMBER) /* a file system that cannot allocate ahead */
      break;
  }
  /* The size is exact even where an attempt got half way. */
  return size != 0 && ftruncate (fd, (i64) (RING_HEADER_BYTES + size)) == 0 ? size : 0;
}

/* Make a ring's file and map it: of so many slots or, where the disk has no room, fewer. 0 where that fails. */
static int
make_ring (struct thread * self, u64 slots, const char * path)
{
  int fd;
  u64 size;

  fd = open (path, O_RDWR_CREATE_EXCL_CLOEXEC, 0600);
  if (fd < 0)
    return 0;
  size = allocate_file (fd, slots * SLOT_BYTES);
  self->capacity = size / SLOT_BYTES;
  self->mapped = RING_HEADER_BYTES + size;
  self->header = size != 0 ? mmap (NULL, self->mapped, PROT_READ_WRITE, MAP_SHARED_FILE, fd, 0) : MAP_FAILED_ADDRESS;
  close (fd);
  if (self->header == MAP_FAILED_ADDRESS)
    return 0;
  self->slots = self->header + RING_HEADER_BYTES;
  return 1;
}

/* The recorder may read it from now on. */
static void
open_ring (struct thread * self)
{
  struct ring * ring = (struct ring *) self->header;

  ring->capacity = self->capacity;
  ring->thread = self->id;
  *(volatile u64 *) &ring->magic = RING_MAGIC_VALUE;
}

/* Where the calling thread's stack ends, so that what a call points to there is read without asking the kernel. */
static u64
end_of_stack (void)
{
  u64 attributes[16], address = 0, size = 0; /* pthread_attr_t has 56 bytes */

  if (pthread_getattr_np (pthread_self (), attributes) != 0)
    return 0;
  if (pthread_attr_getstack (attributes, &address, &size) != 0)
    address = size = 0;
  pthread_attr_destroy (attributes);
  return address + size;
}

/* The calling thread's first call: make its ring. */
static struct thread *
open_thread (void)
{
  char path[1100];
  struct thread * self = g_malloc0 (sizeof (struct thread));
  u64 bytes = CONTROL (RING_BYTES), index;

  if (atomic_exchange (&state.pinned, 1) == 0)
    dlopen (state.driver_path, RTLD_LAZY_NOLOAD_NODELETE);
  pthread_setspecific (state.thread_key, self);
  self->id = (u32) gettid ();
  self->stack_end = end_of_stack ();
  index = atomic_add (&CONTROL (RINGS), 1);
  self->number = (u32) index;
  if (index >= FULL_SIZE_RINGS && bytes > SMALL_RING_BYTES)
    bytes = SMALL_RING_BYTES;
  path_of (path, "/ring-", index);
  if (!make_ring (self, bytes / SLOT_BYTES, path))
    return unrecorded_thread (self);
  open_ring (self);
  return self;
}

static void leave_timers (struct thread * self);

/* The thread ends: its ring may be taken away once it is empty. */
static void
close_thread (void * data)
{
  struct thread * self = data;

  if (self->header != NULL && *state.alive)
  {
    ((volatile struct ring *) self->header)->closed = 1;
    munmap (self->header, self->mapped);
  }
  leave_timers (self);
  give_staging_back (self);
  g_free (self);
}

static struct thread *
current_thread (void)
{
  struct thread * self = pthread_getspecific (state.thread_key);

  if (self == NULL)
    self = open_thread ();
  return self->header != NULL ? self : NULL;
}

/* A call that is not recorded any more. When the recorder has left, the ring is of no use to anybody. */
static void
turn_away (void)
{
  struct thread * self;

  if (!(CONTROL (FLAGS) & FLAG_LEFT))
  {
    atomic_add (&CONTROL (LOST_CALLS), 1);
    return;
  }
  self = pthread_getspecific (state.thread_key);
  if (self == NULL || self->header == NULL || self->busy || self->current != 0)
    return;
  munmap (self->header, self->mapped);
  self->header = NULL;
}

static int
recorder_is_gone (void)
{
  return kill ((int) CONTROL (RECORDER_PID), 0) != 0 || now () - CONTROL (HEARTBEAT_NS) > HEARTBEAT_LIMIT_NS;
}

static int
wait_for_room (struct thread * self, u64 wanted)
{
  u64 start = now (), waits = 0;
  int room = 1;

  for (;;)
  {
    self->tail = *(volatile u64 *) (self->header + RING_TAIL);
    if (self->head + wanted - self->tail <= self->capacity)
      break;
    if (CONTROL (FLAGS) & (FLAG_STOPPED | FLAG_LEFT))
      room = 0;
    else if (++waits % 64 == 0 && recorder_is_gone ())
    {
      CONTROL (FLAGS) |= FLAG_STOPPED;
      room = 0;
    }
    if (!room)
      break;
    sleep_ns (50000);
  }
  atomic_add (&CONTROL (STALL_NS), now () - start);
  return room;
}

static void
publish (struct thread * self, u8 * record, u32 kind, u64 slots, u64 sequence, u64 time, u32 function,
         u32 length, u64 extra)
{
  *(u16 *) (record + 4) = (u16) kind;
  *(u16 *) (record + 6) = (u16) slots;
  *(u64 *) (record + 8) = sequence;
  *(u64 *) (record + 16) = time;
  *(u32 *) (record + 24) = function;
  *(u32 *) (record + 28) = length;
  *(u64 *) (record + 32) = extra;
  *(volatile u32 *) record = (u32) (self->head + 1);
  self->head += slots;
  *(volatile u64 *) (self->header + RING_HEAD) = self->head;
}

/* Room for a record with a body of `length` bytes; NULL when recording has stopped. */
static u8 *
reserve (struct thread * self, u32 length, u64 time)
{
  u64 slots = (RECORD_HEADER_BYTES + length + SLOT_BYTES - 1) / SLOT_BYTES;
  u64 index = self->head % self->capacity;
  u64 rest = self->capacity - index;
  u64 wanted = slots <= rest ? slots : rest + slots;

  if (self->head + wanted - self->tail > self->capacity && !wait_for_room (self, wanted))
    return NULL;
  if (slots > rest)
  {
    publish (self, self->slots + index * SLOT_BYTES, KIND_PAD, rest, 0, time, 0, 0, 0);
    index = 0;
  }
  return self->slots + index * SLOT_BYTES;
}

static void
commit (struct thread * self, u8 * record, u32 kind, u64 sequence, u64 time, u32 function, u32 length,
        u64 extra)
{
  publish (self, record, kind, (RECORD_HEADER_BYTES + length + SLOT_BYTES - 1) / SLOT_BYTES, sequence, time,
           function, length, extra);
}

#define CALL_SHORT 0x200       /* enter_short has seen to it */
#define CALL_OWNS_PACKED 0x100 /* the parameter buffer was allocated for this call */

/* A call that is being recorded. Frida keeps it beside the invocation, from entry to return. */
struct call
{
  void (* leave) (GumInvocationContext * context); /* resident.c calls it; NULL: this invocation is not recorded */
  const struct function * function;
  struct thread * thread;
  u64 sequence, parent, start, end;
  u64 outer;                          /* the call around this one, as `current` of the thread */
  u32 outer_library;                  /* likewise, as `in_library` */
  u64 word[MAX_PARAMETERS];
  struct layout * layout;
  u64 stream;
  const u8 * packed;                  /* the launch's parameter buffer, in packed_room or heap */
  u32 packed_size;
  u32 flags;                          /* LEAVE_, CALL_ */
  u32 to_host, from_host;             /* of cuMemcpy, which goes by the pointers */
  struct allocation * freed;          /* taken out of the table when cuMemFree or cuArrayDestroy was entered */
  u64 freed_target;                   /* of an object taken out likewise */
  struct graph * graph;               /* that a call launches, where it is known */
  struct timer * timer;               /* between the events around a launch */
  u64 work;                           /* `work` of the state with this call */
  u32 looks;                          /* counted among `lookers` */
  u32 flows, flow_count, flow_pages;  /* a launch that nobody waits for, see flow.c: what it reaches */
  struct allocation * flow[FLOW_SEGMENTS];
  u8 packed_room[256];
};

typedef char call_fits[sizeof (struct call) <= CALL_BYTES ? 1 : -1];

static u8 *
copy (u8 * to, const void * from, u64 size)
{
  memcpy (to, from, size);
  return to + size;
}

static void
write_gap (struct call * call, u64 time, const char * kind, const char * text)
{
  u32 kind_size = (u32) strlen (kind) + 1, text_size = (u32) strlen (text);
  u8 * record = reserve (call->thread, kind_size + text_size, time);

  if (record == NULL)
    return;
  copy (copy (record + RECORD_HEADER_BYTES, kind, kind_size), text, text_size);
  commit (call->thread, record, KIND_GAP, call->sequence, time, 0, kind_size + text_size, 0);
}

/* Data that a parameter points to, in pieces. */
static void
write_data (struct call * call, u64 time, u32 parameter, u32 direction, u32 part, const void * data, u64 size)
{
  u64 offset = 0;

  do
  {
    u64 piece = size - offset < CHUNK_BYTES ? size - offset : CHUNK_BYTES;
    u32 length = (u32) (DATA_HEADER_BYTES + piece);
    u8 * record = reserve (call->thread, length, time);
    u8 * body;

    if (record == NULL)
      return;
    body = record + RECORD_HEADER_BYTES;
    body = copy (body, &size, 8);
    body = copy (body, &offset, 8);
    copy (body, (const u8 *) data + offset, piece);
    commit (call->thread, record, KIND_DATA, call->sequence, time, parameter | direction << 8 | part << 16,
            length, (u64) data);
    offset += piece;
  }
  while (offset < size);
}
