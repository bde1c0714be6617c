/* What every part of the agent knows: imported functions, the driver's entries, the shared state.
 *
 * A CModule's own data is read-only, so everything that changes lives in `state`, which the JavaScript side
 * allocates. There is no errno, no thread-local storage and no atomic builtin here: see docs/recording.md.
 */
#include <gum/guminterceptor.h>
#include <string.h>

typedef guint8 u8;
typedef guint16 u16;
typedef guint32 u32;
typedef guint64 u64;
typedef gint64 i64;

/* What a C module is given under these names is Frida's own, which goes byte by byte: 43 µs for a page of 64 KiB in the cache
 * where the C library takes half of one, and 30 ns for 48 bytes where it takes 2. */
extern void * libc_memcpy (void * to, const void * from, gsize size);
extern void * libc_memset (void * to, int byte, gsize size);
#define memcpy libc_memcpy
#define memset libc_memset

extern char * strcpy (char * to, const char * from);
extern char * strcat (char * to, const char * from);
extern int strcmp (const char * a, const char * b);
extern int memcmp (const void * a, const void * b, u64 size);
extern void * pthread_getspecific (u32 key);
extern int pthread_setspecific (u32 key, const void * value);
extern int pthread_key_create (u32 * key, void (* destructor) (void *));
extern int pthread_key_delete (u32 key);
extern int gettid (void);
extern int open (const char * path, int flags, int mode);
extern int close (int fd);
extern i64 read (int fd, void * data, u64 size);
extern int fallocate (int fd, int mode, i64 offset, i64 size);
extern int ftruncate (int fd, i64 size);
extern int * __errno_location (void);
extern int getrlimit (int resource, u64 * limits);
extern void * mmap (void * address, u64 size, int protection, int flags, int fd, i64 offset);
extern int munmap (void * address, u64 size);
extern int madvise (void * address, u64 size, int advice);
extern int clock_gettime (int clock, u64 * time);
extern int nanosleep (const u64 * time, void * remaining);
extern int kill (int pid, int signal);
extern u64 pthread_self (void);
extern int pthread_getattr_np (u64 thread, u64 * attributes);
extern int pthread_attr_getstack (const u64 * attributes, u64 * address, u64 * size);
extern int pthread_attr_destroy (u64 * attributes);
extern int symlink (const char * target, const char * path);
extern int unlink (const char * path);
extern void * dlopen (const char * path, int mode);

#define O_RDWR_CREATE_EXCL_CLOEXEC (2 | 0100 | 0200 | 02000000)
#define O_RDONLY_CLOEXEC 02000000
#define ENOSPC_NUMBER 28
#define RLIMIT_FSIZE 1
#define PROT_READ_WRITE 3
#define MAP_SHARED_FILE 1
#define MAP_PRIVATE_ANONYMOUS 0x22
#define MADV_WIPEONFORK 18
/* Streams of a program that was running may be being captured; it is not known when that ends. */
#define UNKNOWN_CAPTURES (1ULL << 32)
#define RTLD_LAZY_NOLOAD_NODELETE (1 | 4 | 0x1000)
#define CLOCK_MONOTONIC_ID 1
#define MAP_FAILED_ADDRESS ((void *) -1)

/* The driver entries that the agent itself calls. */
#define DRIVER_ENTRIES(X) \
  X (cuCtxGetCurrent) X (cuCtxGetDevice) X (cuStreamQuery) X (cuStreamIsCapturing) X (cuStreamCreate) \
  X (cuStreamSynchronize) X (cuEventCreate) X (cuEventRecord) X (cuEventQuery) X (cuEventElapsedTime) \
  X (cuMemcpyDtoHAsync_v2) X (cuFuncGetParamInfo) X (cuKernelGetParamInfo) X (cuFuncGetName) \
  X (cuMemHostAlloc) X (cuMemHostRegister_v2) X (cuMemHostGetDevicePointer_v2) X (cuModuleLoadData) X (cuModuleGetFunction) X (cuLaunchKernel) \
  X (cuKernelGetName) X (cuFuncGetModule) X (cuKernelGetLibrary) X (cuModuleGetGlobal_v2) X (cuLibraryGetGlobal) X (cuThreadExchangeStreamCaptureMode) \
  X (cuDriverGetVersion) X (cuDeviceGetCount) X (cuDeviceGet) X (cuDeviceGetName) X (cuDeviceGetAttribute) \
  X (cuDeviceTotalMem_v2) X (cuPointerGetAttribute) X (cuMemcpy3DAsync_v2) X (cuMipmappedArrayGetLevel) \
  X (cuMemGetAddressRange_v2) X (cuStreamGetCaptureInfo) X (cuKernelGetFunction) X (cuGraphGetNodes) X (cuGraphGetEdges) \
  X (cuGraphGetEdges_v2) X (cuGraphNodeGetType) X (cuGraphKernelNodeGetParams) X (cuGraphKernelNodeGetParams_v2) \
  X (cuGraphKernelNodeGetAttribute) X (cuGraphMemcpyNodeGetParams) X (cuGraphMemsetNodeGetParams) \
  X (cuGraphHostNodeGetParams) X (cuGraphChildGraphNodeGetGraph) X (cuGraphEventWaitNodeGetEvent) \
  X (cuGraphEventRecordNodeGetEvent) X (cuGraphMemAllocNodeGetParams) X (cuGraphMemFreeNodeGetParams)

/* The functions as which is put on record what is no call of the driver: nodes of graphs that are launched, what was
 * there before recording began, what the program tells by NVTX, and what stands around a conditional node's graphs. */
#define NODE_ENTRIES(X) \
  X (cuLaunchKernelEx) X (cuMemcpy3DAsync_v2) X (cuMemsetD8Async) X (cuMemsetD16Async) X (cuMemsetD32Async) \
  X (cuMemsetD2D8Async) X (cuMemsetD2D16Async) X (cuMemsetD2D32Async) X (cuLaunchHostFunc) X (cuEventRecord) \
  X (cuStreamWaitEvent) X (cuMemAllocAsync) X (cuMemFreeAsync) X (cuStreamQuery) \
  X (cuMemAlloc_v2) \
  X (nvtxMark) X (nvtxRangePush) X (nvtxRangePop) X (nvtxRangeStart) X (nvtxRangeEnd) \
  X (zluda_conditional) X (zluda_body) X (zluda_conditional_end)

/* All take integers and pointers only, so one type serves: the ABI passes them alike. */
typedef u64 (* entry) (u64, u64, u64, u64);

struct driver
{
#define X(name) entry name;
  DRIVER_ENTRIES (X)
#undef X
};

/* One parameter and one function, as zluda/trace/spec.py packs them. */
struct parameter
{
  u8 slot;        /* among the integer argument words; VECTOR_SLOT + n: in a vector register; 0xff: nowhere */
  u8 direction;
  u8 rule;
  u8 count;       /* the parameter that holds the number of elements */
  u32 size;       /* of the pointee, of one element, or (RULE_NONE) of the value itself */
};

struct function
{
  u16 index;
  u8 parameters;
  u8 special;
  u8 stream;      /* the parameter that names the stream; 0xff: none */
  u8 per_thread;  /* a _ptsz or _ptds form: stream 0 is the thread's own */
  u8 variable;    /* has data of variable size */
  u8 marks;       /* MARK_: opens or closes the window of what is chosen */
  u64 library;    /* of a library above the driver: what its pointers point to may be the device's */
  const struct made * made; /* what it makes, of its own library; NULL: nothing */
  struct parameter parameter[MAX_PARAMETERS];
};

/* How a library tells what one of its functions has made: pairs of functions, (handle, where to). NULL: it has none. */
struct made
{
  u64 count;
  struct
  {
    entry size, content;
  } pair[1];
};

struct stands_for
{
#define X(name) const struct function * name;
  NODE_ENTRIES (X)
#undef X
};

/* A capture of a stream into a graph: its id, and the call that began it. */
struct begun
{
  u64 id, sequence;
};

#define BEGUN_KEPT 16

struct ring
{
  u64 magic, capacity, thread, closed;
};

struct allocation;
struct look;
struct place;
struct layout;
struct choice;
struct timer;
struct gpu_clock;
struct flow;

/* One a thread of the application. */
struct thread
{
  u8 * header;         /* the ring's header; NULL: this thread is not recorded */
  u8 * slots;
  u64 capacity, head, tail;
  u64 mapped;
  u64 current;         /* the innermost open call's number + 1 */
  u32 busy;            /* the agent itself is calling the driver */
  u32 in_library;      /* that call is of a library's function */
  u32 id;
  u64 stack_end;       /* what lies between the agent's own frame and this is the thread's stack */
  u64 last_handle, last_generation;
  struct layout * last_layout;
  struct timer * timer;  /* the latest of this thread's */
  u8 * staging;
  struct look * looks; /* what the GPU is asked and tells, behind the staging buffer; NULL: that is not pinned */
  struct place * places; /* of what it is asked */
  u32 number;          /* of the ring */
  u32 gave_up;         /* the GPU did not answer in time: pages are read */
  u64 stream_context[4], stream_handle[4], stream_generation;
  u64 order_context, order_event, order_generation; /* what is waited for before a chosen launch */
  u64 pushed, closing;           /* NVTX ranges: how many are open, and which of them close the window */
  struct allocation * reached[MAX_REACHED];
  u32 reached_count;
};

struct pending;
struct object;
struct graph;
struct body;

struct state
{
  volatile u8 * control;
  volatile u32 * alive;          /* wiped in a forked child, whose rings belong to the parent */
  u32 thread_key;
  u32 outputs;                   /* --capture outputs, or full */
  u32 full;                      /* --capture full */
  u32 late;                      /* the program was running before it was recorded */
  u64 progress_limit;            /* nanoseconds for which a stream is waited for */
  char directory[1024];
  const struct function ** hooked;
  const char * driver_path;
  volatile u32 pinned;           /* the driver's library stays: hooks in memory that goes would end the program */
  volatile u32 lock;             /* guards the tables below; never held across a driver call */
  struct allocation ** allocations;
  u32 allocation_count, allocation_room;
  struct allocation ** arrays;
  u32 array_count, array_room;
  volatile u64 array_space;      /* numbers given out in place of addresses */
  struct object * objects;
  u32 object_count, object_room;
  struct layout ** layouts;      /* open addressing by handle */
  volatile u64 generation;       /* of kernel handles: an unload may free any of them */
  volatile u64 contexts_ended;   /* private streams may have ended with one of them */
  struct pending * pending;      /* libraries whose variables have no address yet */
  u64 finder_context[MAX_FINDERS], finder_function[MAX_FINDERS]; /* the digest kernel of each */
  u64 finders_ended;             /* contexts_ended when they were noted */
  u32 finder_count;
  u8 * spare[MAX_SPARES];        /* pinned memory of threads that have ended */
  u64 spares_ended;              /* contexts_ended when they were kept */
  u32 spare_count;
  volatile u64 captures;         /* streams being captured into graphs */
  struct begun begun[BEGUN_KEPT];
  u32 next_begun;
  struct graph ** graphs;        /* those that can be launched */
  u32 graph_count, graph_room;
  struct body * bodies;          /* of conditional nodes */
  u32 body_count, body_room;
  u64 * foreign;                 /* handles of physical memory that other processes have, too */
  u32 foreign_count, foreign_room;
  u32 timing;                    /* --timing events */
  struct timer * timers;
  struct gpu_clock * clocks[MAX_CLOCKS];
  u32 clock_count;
  volatile u64 work;             /* calls that may put something on a stream */
  u32 floats;                    /* vector registers are where they were found */
  u32 device_count;
  volatile u32 described;               /* the devices are on record */
  const struct choice * choice;  /* of launches */
  volatile u32 window;           /* open: launches may be chosen */
  volatile u64 unseen;           /* calls that were not looked at and may have written memory */
  volatile u64 launches, openings, closings; /* counted: launches in the window, and its markers */
  struct flow * volatile flow;   /* of launches that nobody waits for; NULL: there were none yet, or none can be */
  volatile u32 flow_ended;       /* there will be none any more */
  volatile u64 flow_launches;    /* that would have been of it, before it was there */
  volatile u64 lookers;          /* calls under way that look at memory, or change what is known of it */
  u64 closing[MAX_CLOSING];      /* NVTX ranges by number whose end closes the window; 0: none */
  u32 next_closing;
  struct driver driver;
  struct stands_for stands_for;
};

typedef char state_fits[sizeof (struct state) <= STATE_BYTES ? 1 : -1];

/* What forks.c keeps for a forked child: see `struct first` there. */
struct first
{
  void * enter;
  void (* ask) (void);
  volatile u32 waiting;
};

extern struct first first;
extern struct state state;

#define CONTROL(name) (*(volatile u64 *) (state.control + CONTROL_##name))

static u64
atomic_add (volatile u64 * where, u64 value)
{
  __asm__ volatile ("lock; xaddq %0, %1" : "+r" (value), "+m" (*where) : : "memory");
  return value;
}

static u32
atomic_exchange (volatile u32 * where, u32 value)
{
  __asm__ volatile ("xchgl %0, %1" : "+r" (value), "+m" (*where) : : "memory");
  return value;
}

static void
sleep_ns (u64 ns)
{
  u64 time[2];

  time[0] = 0;
  time[1] = ns;
  nanosleep (time, NULL);
}

static u64
now (void)
{
  u64 time[2];

  clock_gettime (CLOCK_MONOTONIC_ID, time);
  return time[0] * 1000000000ULL + time[1];
}

static void
lock (void)
{
  u32 spins = 0;

  while (atomic_exchange (&state.lock, 1))
    if (++spins > 100)
      sleep_ns (10000);
}

static void
unlock (void)
{
  atomic_exchange (&state.lock, 0);
}

/* A thread ends: its pinned memory is the next one's. It cannot be freed from here, where the driver must not be called. */
static void
give_staging_back (struct thread * self)
{
  g_free (self->places);
  if (self->looks == NULL) /* pageable */
  {
    g_free (self->staging);
    return;
  }
  lock ();
  if (self->stream_generation == state.contexts_ended)
  {
    if (state.spares_ended != state.contexts_ended)
      state.spare_count = 0;
    state.spares_ended = state.contexts_ended;
    if (state.spare_count != MAX_SPARES)
      state.spare[state.spare_count++] = self->staging;
  }
  unlock ();
}

static char *
append_number (char * text, u64 number)
{
  char digits[24];
  int count = 0;

  do
    digits[count++] = (char) ('0' + number % 10);
  while (number /= 10);
  while (count)
    *text++ = digits[--count];
  *text = 0;
  return text;
}

/* directory/name-number into `path` (of 1100 bytes). */
static void
path_of (char * path, const char * name, u64 number)
{
  strcpy (path, state.directory);
  strcat (path, name);
  append_number (path + strlen (path), number);
}
