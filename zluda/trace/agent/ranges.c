/* NVTX ranges and marks on record, as calls of `nvtxMark`, `nvtxRangePush`, `nvtxRangePop`, `nvtxRangeStart`,
 * `nvtxRangeEnd`; and as markers that open and close the window of what is chosen (choice.c).
 */

enum { RANGE_MARK, RANGE_PUSH, RANGE_POP, RANGE_START, RANGE_END };

/* A range of this name begins, or a mark is set. 1 where its end closes the window. */
static int
range_begun (const char * message)
{
  const struct choice * choice = state.choice;

  if (choice->opens.kind == MARKER_RANGE && same (message, choice->opens.name)
      && is_reached (&choice->opens, &state.openings))
    state.window = 1;
  return choice->closes.kind == MARKER_RANGE && same (message, choice->closes.name)
      && is_reached (&choice->closes, &state.closings);
}

/* Ranges by number may end in another thread; of those whose end closes the window a few are kept. */
static void
note_closing (u64 id)
{
  lock ();
  state.closing[state.next_closing++ % MAX_CLOSING] = id;
  unlock ();
}

static int
takes_closing (u64 id)
{
  u32 index, found = 0;

  lock ();
  for (index = 0; index != MAX_CLOSING && !found; index++)
    if (state.closing[index] == id)
    {
      state.closing[index] = 0;
      found = 1;
    }
  unlock ();
  return (int) found;
}

/* What a thread pushed is a stack: of its ranges down to a depth of 64, a bit says whether the end closes the window. */
static int
window_ends (struct thread * self, u32 kind, const char * message, u64 id)
{
  int closes;

  if (kind == RANGE_POP)
  {
    if (self->pushed == 0)
      return 0;
    self->pushed--;
    return self->pushed < 64 && self->closing >> self->pushed & 1;
  }
  if (kind == RANGE_END)
    return id != 0 && takes_closing (id);
  closes = range_begun (message);
  if (kind == RANGE_MARK)
    return closes;
  if (kind == RANGE_START && closes)
    note_closing (id);
  if (kind == RANGE_PUSH)
  {
    if (self->pushed < 64)
      self->closing = (self->closing & ~(1ULL << self->pushed)) | (u64) closes << self->pushed;
    self->pushed++;
  }
  return 0;
}

static const struct function *
range_function (u32 kind)
{
  switch (kind)
  {
    case RANGE_MARK: return state.stands_for.nvtxMark;
    case RANGE_PUSH: return state.stands_for.nvtxRangePush;
    case RANGE_POP: return state.stands_for.nvtxRangePop;
    case RANGE_START: return state.stands_for.nvtxRangeStart;
    default: return state.stands_for.nvtxRangeEnd;
  }
}

/* What nvtx.c calls. `message` and `domain` may be NULL. */
void
range_told (u32 kind, const char * message, const char * domain, u64 id)
{
  struct thread * self;
  struct call made;
  int ends;

  if (!*state.alive || CONTROL (FLAGS) & FLAG_STOPPED)
    return;
  self = current_thread ();
  if (self == NULL || self->busy)
    return;
  self->busy = 1;
  ends = window_ends (self, kind, message != NULL ? message : "", id);
  memset (&made, 0, sizeof (made) - sizeof (made.packed_room));
  made.function = range_function (kind);
  made.thread = self;
  made.parent = self->current;
  made.start = made.end = now ();
  made.sequence = atomic_add (&CONTROL (SEQUENCE), 1);
  made.word[0] = kind == RANGE_END ? id : (u64) message;
  made.word[1] = (u64) domain;
  made.word[2] = id;
  write_enter (&made);
  write_variable (&made, made.start, DIRECTION_IN);
  write_leave (&made, 0);
  if (ends)
    state.window = 0;
  self->busy = 0;
}
