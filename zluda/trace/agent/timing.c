/* GPU times: an event on its stream before and one after each launch, and each launch of a graph, read when both have
 * come, by whichever thread is at it then. Nothing is waited for, and no event goes to a stream that is captured.
 *
 * Where launches follow each other on a stream that is busy, one's end is the next one's start: an event costs the GPU as
 * much as a small kernel.
 *
 * A thread has a timer in each context it launches in: a ring of pairs of events. The thread alone adds to it; whoever
 * holds `reading` takes from it. Times are of the context's clock, which begins with the first of its anchors: events
 * on a private stream, one a second, each noted with the host's time, so that the host's and the GPU's clocks can be
 * compared, and near enough to a launch that the 24 bits of a float tell its distance.
 */

#define TIMER_PAIRS 2048             /* the driver queues fewer launches before it makes the program wait */
#define READ_EVERY 64                /* launches, where nothing waits for the GPU */
#define TIMES_AT_ONCE 64
#define ANCHORS 8
#define ANCHOR_NS 1000000000ULL
#define ANCHOR_WAIT_NS 100000        /* for an event on an idle stream; it takes some 10 µs */
#define FIRST_ANCHOR_WAIT_NS 5000000

struct gpu_clock
{
  u64 context, generation;           /* `contexts_ended` */
  u32 id;
  volatile u32 setting;              /* one thread at a time sets an anchor */
  volatile u64 anchors;              /* set so far */
  u64 tried;                         /* when the last one was, or was given up */
  u64 event[ANCHORS];
  i64 gpu_ns[ANCHORS];
};

struct pair
{
  u64 start, end;                    /* events, used again and again */
  u64 sequence, anchor;              /* the latest anchor when the launch was made */
  u32 follows;                       /* its start is the end of the pair before it */
};

struct timer
{
  struct timer * next;               /* among all; none is ever taken out */
  struct thread * owner;             /* NULL: it has ended, and another may take the timer over */
  u64 context, generation;
  struct gpu_clock * clock;
  volatile u64 head, tail;           /* pairs noted, pairs read */
  volatile u32 reading;
  u32 open;                          /* between the events of a launch */
  u64 stream, work;                  /* of the latest launch */
  u64 known;                         /* the pair, counted from 1, whose end was read last */
  i64 known_ns;
  struct pair pair[TIMER_PAIRS];
};

/* What one TIME record holds of a launch. */
struct gpu_time
{
  u64 sequence;
  i64 start_ns;                      /* of the clock */
  u64 duration_ns;
};

static i64
nanoseconds (float milliseconds)
{
  return (i64) ((double) milliseconds * 1e6);
}

/* --- clocks --------------------------------------------------------------------------------------------- */

static struct gpu_clock *
clock_of (u64 context)
{
  struct gpu_clock * found = NULL;
  u32 index;

  lock ();
  for (index = 0; index != state.clock_count && found == NULL; index++)
    if (state.clocks[index]->context == context && state.clocks[index]->generation == state.contexts_ended)
      found = state.clocks[index];
  if (found == NULL && state.clock_count != MAX_CLOCKS)
  {
    found = g_malloc0 (sizeof (struct gpu_clock));
    found->context = context;
    found->generation = state.contexts_ended;
    found->id = state.clock_count;
    state.clocks[state.clock_count++] = found;
  }
  unlock ();
  return found;
}

static void
write_moment (struct call * call, u32 clock, i64 gpu_ns, u64 host_ns, u64 error_ns)
{
  u8 * record = reserve (call->thread, 16, call->start), * body;

  if (record == NULL)
    return;
  body = copy (record + RECORD_HEADER_BYTES, &gpu_ns, 8);
  copy (body, &error_ns, 8);
  commit (call->thread, record, KIND_CLOCK, call->sequence, call->start, clock, 16, host_ns);
}

/* Set the clock's next anchor; it is given up where the private stream's event does not come at once. */
static void
set_anchor (struct call * call, struct gpu_clock * clock)
{
  u64 stream = private_stream (call->thread), number = clock->anchors, before, after;
  u64 limit = number != 0 ? ANCHOR_WAIT_NS : FIRST_ANCHOR_WAIT_NS, * event = &clock->event[number % ANCHORS];
  float since = 0;

  if (stream == 0 || (*event == 0 && state.driver.cuEventCreate ((u64) event, 0, 0, 0) & 0xffffffff))
    return;
  before = now ();
  if (state.driver.cuEventRecord (*event, stream, 0, 0) & 0xffffffff)
    return;
  do
    after = now ();
  while ((state.driver.cuEventQuery (*event, 0, 0, 0) & 0xffffffff) == CUDA_ERROR_NOT_READY && after - before < limit);
  if (state.driver.cuEventQuery (*event, 0, 0, 0) & 0xffffffff)
    return;
  if (number != 0
      && state.driver.cuEventElapsedTime ((u64) &since, clock->event[(number - 1) % ANCHORS], *event, 0) & 0xffffffff)
    return;
  clock->gpu_ns[number % ANCHORS] = number != 0 ? clock->gpu_ns[(number - 1) % ANCHORS] + nanoseconds (since) : 0;
  clock->anchors = number + 1;
  write_moment (call, clock->id, clock->gpu_ns[number % ANCHORS], before + (after - before) / 2, (after - before) / 2);
}

static int
wants_anchor (const struct gpu_clock * clock, u64 time)
{
  return clock->tried == 0 || (i64) (time - clock->tried) >= (i64) ANCHOR_NS;
}

/* See that the clock has an anchor from the last second. Threads that begin together wait for the first. */
static void
keep_clock (struct call * call, struct gpu_clock * clock)
{
  if (!wants_anchor (clock, call->start))
    return;
  while (atomic_exchange (&clock->setting, 1))
  {
    if (clock->anchors != 0)
      return;
    sleep_ns (5000);
  }
  if (wants_anchor (clock, call->start))
  {
    set_anchor (call, clock);
    clock->tried = call->start;
  }
  atomic_exchange (&clock->setting, 0);
}

/* --- timers --------------------------------------------------------------------------------------------- */

/* The thread's timer in the current context: its own, or one that an ended thread left; NULL where there is none. */
static struct timer *
timer_of (struct thread * self)
{
  u64 context = 0;
  struct timer * timer;
  struct gpu_clock * clock;

  if (state.driver.cuCtxGetCurrent ((u64) &context, 0, 0, 0) & 0xffffffff || context == 0)
    return NULL;
  timer = self->timer;
  if (timer != NULL && timer->context == context && timer->generation == state.contexts_ended)
    return timer;
  if ((clock = clock_of (context)) == NULL)
    return NULL;
  lock ();
  for (timer = state.timers; timer != NULL; timer = timer->next)
    if (timer->context == context && timer->generation == state.contexts_ended
        && (timer->owner == self || timer->owner == NULL))
      break;
  if (timer != NULL)
    timer->owner = self;
  unlock ();
  if (timer == NULL)
  {
    timer = g_malloc0 (sizeof (struct timer));
    timer->owner = self;
    timer->context = context;
    timer->generation = state.contexts_ended;
    timer->clock = clock;
    lock ();
    timer->next = state.timers;
    state.timers = timer;
    unlock ();
  }
  self->timer = timer;
  return timer;
}

static void
write_times (struct call * call, u32 clock, const struct gpu_time * time, u32 count)
{
  u32 length = count * sizeof (struct gpu_time);
  u64 stamp = now ();
  u8 * record;

  if (count == 0 || (record = reserve (call->thread, length, stamp)) == NULL)
    return;
  copy (record + RECORD_HEADER_BYTES, time, length);
  commit (call->thread, record, KIND_TIME, call->sequence, stamp, clock, length, 0);
}

/* When an event was, on the clock. 0, or the driver's error. */
static u32
read_event (const struct gpu_clock * clock, u64 anchor, u64 event, i64 * ns)
{
  float since = 0;
  u32 at = (u32) (anchor % ANCHORS), result;

  if (anchor + ANCHORS <= clock->anchors) /* the anchor's event is another's by now */
    return CUDA_ERROR_NOT_FOUND;
  result = (u32) state.driver.cuEventElapsedTime ((u64) &since, clock->event[at], event, 0);
  *ns = clock->gpu_ns[at] + nanoseconds (since);
  return result;
}

/* Times of the pair `tail`, whose events have come: 0; else CUDA_ERROR_NOT_READY, or that they cannot be had. */
static u32
read_pair (struct timer * timer, struct gpu_time * time)
{
  const struct pair * pair = &timer->pair[timer->tail % TIMER_PAIRS];
  u64 start = pair->follows ? timer->pair[(timer->tail - 1) % TIMER_PAIRS].end : pair->start;
  float took = 0;
  u32 result = (u32) state.driver.cuEventElapsedTime ((u64) &took, start, pair->end, 0);

  if (result != 0)
    return result;
  time->sequence = pair->sequence;
  time->start_ns = timer->known_ns;
  time->duration_ns = took > 0 ? (u64) nanoseconds (took) : 0;
  if (!pair->follows || timer->known != timer->tail)
    result = read_event (timer->clock, pair->anchor, start, &time->start_ns);
  timer->known = result == 0 ? timer->tail + 1 : 0;
  timer->known_ns = time->start_ns + (i64) time->duration_ns;
  return result;
}

/* Put on record what a timer knows by now. */
static void
read_timer (struct call * call, struct timer * timer)
{
  struct gpu_time time[TIMES_AT_ONCE];
  u32 count = 0, result;

  if (timer->tail == timer->head || atomic_exchange (&timer->reading, 1))
    return;
  while (timer->tail != timer->head)
  {
    result = read_pair (timer, &time[count]);
    if (result == CUDA_ERROR_NOT_READY)
      break;
    if (result == 0)
      count++;
    else
      atomic_add (&CONTROL (UNTIMED), 1);
    timer->tail++;
    if (count == TIMES_AT_ONCE)
    {
      write_times (call, timer->clock->id, time, count);
      count = 0;
    }
  }
  write_times (call, timer->clock->id, time, count);
  atomic_exchange (&timer->reading, 0);
}

/* The GPU was waited for: put on record what all timers of the current context know. */
static void
read_timers (struct call * call)
{
  u64 context = 0;
  struct timer * timer;

  if (state.timers == NULL || state.driver.cuCtxGetCurrent ((u64) &context, 0, 0, 0) & 0xffffffff)
    return;
  for (timer = state.timers; timer != NULL; timer = timer->next)
    if (timer->context == context && timer->generation == state.contexts_ended)
      read_timer (call, timer);
}

/* --- around a launch ------------------------------------------------------------------------------------- */

static int
is_timed (const struct call * call)
{
  u32 special = call->function->special;

  return state.timing && !(call->flags & (LEAVE_DEFERRED | LEFT_OUT))
      && ((special >= SPECIAL_LAUNCH && special <= SPECIAL_LAUNCH_COOPERATIVE) || special == SPECIAL_GRAPH_LAUNCH);
}

/* Whether a call may put something on a stream, or have one wait. */
static int
may_work (const struct function * function)
{
  return function->stream != 0xff || (function->special != 0 && function->special <= SPECIAL_OPAQUE_WRITE);
}

static int
has_event (u64 * event)
{
  return *event != 0 || !(state.driver.cuEventCreate ((u64) event, 0, 0, 0) & 0xffffffff);
}

/* Whether the launch begins when the one before it ends: that has not ended yet, is on the same stream, and nothing came
 * between them, by whatever thread. */
static int
follows_another (const struct timer * timer, const struct call * call)
{
  return timer->head != timer->tail && timer->work + 1 == call->work && timer->stream == call->stream
      && (state.driver.cuEventQuery (timer->pair[(timer->head - 1) % TIMER_PAIRS].end, 0, 0, 0) & 0xffffffff)
             == CUDA_ERROR_NOT_READY;
}

static int
begin_pair (const struct timer * timer, struct pair * pair, const struct call * call)
{
  pair->follows = !state.outputs && follows_another (timer, call); /* else looks at memory come between */
  return has_event (&pair->end)
      && (pair->follows
          || (has_event (&pair->start)
              && (state.driver.cuEventRecord (pair->start, call->stream, 0, 0) & 0xffffffff) == 0));
}

static int
is_full (const struct timer * timer) /* the last one read may be the start of the next */
{
  return timer->head - timer->tail >= TIMER_PAIRS - 1;
}

/* The last thing before the real call. A launch inside another's call is not timed: the outer one is. */
static void
begin_time (struct call * call)
{
  struct timer * timer = timer_of (call->thread);
  struct pair * pair;

  if (timer != NULL && timer->open)
    return;
  if (timer != NULL)
  {
    keep_clock (call, timer->clock);
    if (is_full (timer))
      read_timer (call, timer);
    pair = &timer->pair[timer->head % TIMER_PAIRS];
    if (timer->clock->anchors != 0 && !is_full (timer) && begin_pair (timer, pair, call))
    {
      pair->anchor = timer->clock->anchors - 1;
      pair->sequence = call->sequence;
      timer->open = 1;
      call->timer = timer;
      return;
    }
  }
  atomic_add (&CONTROL (UNTIMED), 1);
}

/* The first thing after it. */
static void
end_time (struct call * call, u64 result)
{
  struct timer * timer = call->timer;
  struct pair * pair = &timer->pair[timer->head % TIMER_PAIRS];

  if (result == 0 && (state.driver.cuEventRecord (pair->end, call->stream, 0, 0) & 0xffffffff) == 0)
    return;
  if (result == 0)
    atomic_add (&CONTROL (UNTIMED), 1);
  timer->open = 0;
  call->timer = NULL;
}

/* After LEAVE is on record: a time is never there before its launch. */
static void
note_time (struct call * call)
{
  struct timer * timer = call->timer;

  timer->stream = call->stream;
  timer->work = call->work;
  timer->head++;
  timer->open = 0;
  if (state.outputs || timer->head % READ_EVERY == 0)
    read_timer (call, timer);
}

/* A thread ends. What its timers have not told yet, others read. */
static void
leave_timers (struct thread * self)
{
  struct timer * timer;

  lock ();
  for (timer = state.timers; timer != NULL; timer = timer->next)
    if (timer->owner == self)
      timer->owner = NULL;
  unlock ();
}
