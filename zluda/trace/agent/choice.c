/* Choosing: which launches have their memory on record. zluda/trace/choice.py packs what was asked for.
 *
 * Around a launch that is not chosen nothing is waited for and nothing is looked at; nor around copies and fills, while
 * there is a choice. All that is noted is that memory may be other than the record has it (`state.unseen`). Before a
 * launch that is chosen, its stream is waited for, and what it reaches is distrusted and looked at: what others have
 * written meanwhile is on record as found, and the launch can be replayed. So a launch that is not chosen costs what it
 * costs with `--capture calls`.
 */

enum { MARKER_NONE, MARKER_CALL, MARKER_RANGE };

/* In `marks` of a function: a call of it opens or closes the window. */
#define MARK_OPENS 1
#define MARK_CLOSES 2

struct marker
{
  u32 kind, occurrence;                /* the first is 1; 0: every one */
  char name[MARKER_NAME];              /* of a range */
};

struct choice
{
  u32 selective;                       /* not every launch is chosen */
  u32 open;                            /* the window is open from the start */
  u32 sample;                          /* launches of each kernel and shape; 0: all */
  u32 kernels;                         /* kernel_matches is to be asked */
  u32 ranges, reserved;
  struct marker opens, closes;
  u64 range[MAX_RANGES][3];            /* of launch numbers: first, last, step */
};

/* One shape in which a kernel was launched: grid, block, shared bytes. */
struct sampled
{
  struct sampled * next;
  u32 shape[7], count;
};

#define LEFT_OUT (LEAVE_UNSELECTED | LEAVE_OVER_BUDGET)

extern int kernel_matches (const char * name);

static int
is_over_budget (void)
{
  return (CONTROL (FLAGS) & FLAG_OVER_BUDGET) != 0;
}

/* Whether memory is only looked at around chosen launches. */
static int
is_choosing (void)
{
  return state.choice->selective || is_over_budget ();
}

/* Whether what the host sends goes to the record. */
static int
takes_contents (void)
{
  return state.window && !is_over_budget ();
}

/* A call that is not looked at may have written memory. 0 where every such call is looked at. */
static int
leaves_unseen (void)
{
  if (!is_choosing ())
    return 0;
  atomic_add (&state.unseen, 1);
  return 1;
}

/* --- the window ------------------------------------------------------------------------------------------ */

/* The marker's call or range has come once more; 1 where that is the one meant. */
static int
is_reached (const struct marker * marker, volatile u64 * count)
{
  u64 number = atomic_add (count, 1) + 1;

  return marker->occurrence == 0 || marker->occurrence == number;
}

static void
call_entered (const struct function * function)
{
  if (function->marks & MARK_OPENS && is_reached (&state.choice->opens, &state.openings))
    state.window = 1;
}

static void
call_left (const struct function * function)
{
  if (function->marks & MARK_CLOSES && is_reached (&state.choice->closes, &state.closings))
    state.window = 0;
}

/* --- launches -------------------------------------------------------------------------------------------- */

static int
is_in_ranges (const struct choice * choice, u64 number)
{
  u32 index;

  for (index = 0; index != choice->ranges; index++)
  {
    const u64 * range = choice->range[index];

    if (number >= range[0] && number <= range[1] && (number - range[0]) % range[2] == 0)
      return 1;
  }
  return choice->ranges == 0;
}

/* Whether a kernel's name is asked for; known of each handle once it has been asked. */
static int
is_named (struct layout * layout)
{
  if (layout->named == 0)
    layout->named = kernel_matches (kernel_name (layout)) ? 1 : 2;
  return layout->named == 1;
}

/* How often a kernel was launched in this shape before. */
static u32
times_sampled (struct layout * layout, const u32 * shape)
{
  struct sampled ** place, * found;
  u32 count;

  lock ();
  for (place = &layout->sampled; (found = *place) != NULL; place = &found->next)
    if (memcmp (found->shape, shape, sizeof (found->shape)) == 0)
      break;
  if (found == NULL)
  {
    found = g_malloc0 (sizeof (struct sampled));
    memcpy (found->shape, shape, sizeof (found->shape));
  }
  else
    *place = found->next;
  found->next = layout->sampled; /* the one that comes again soon is found first */
  layout->sampled = found;
  count = found->count++;
  unlock ();
  return count;
}

/* One kernel's launch in the open window; `shape` is grid, block, shared bytes. */
static int
is_chosen (struct layout * layout, const u32 * shape)
{
  const struct choice * choice = state.choice;

  if (!is_in_ranges (choice, atomic_add (&state.launches, 1)))
    return 0;
  if (choice->kernels && (layout == NULL || !is_named (layout)))
    return 0;
  return choice->sample == 0 || layout == NULL || times_sampled (layout, shape) < choice->sample;
}

/* The handle stands for another kernel from now on. Holding the lock. */
static void
forget_choice (struct layout * layout)
{
  struct sampled * next;

  layout->named = 0;
  for (; layout->sampled != NULL; layout->sampled = next)
  {
    next = layout->sampled->next;
    g_free (layout->sampled);
  }
}

static int
is_call_chosen (struct call * call)
{
  u32 shape[7], index;

  if (call->function->special == SPECIAL_LAUNCH_EX)
    return call->word[0] == 0 || is_chosen (call->layout, (const u32 *) call->word[0]);
  for (index = 0; index != 7; index++)
    shape[index] = (u32) call->word[1 + index];
  return is_chosen (call->layout, shape);
}

static int is_graph_chosen (struct call * call);

/* Note, before a launch, whether its memory goes to the record. */
static void
choose (struct call * call)
{
  if (!state.outputs || call->flags & LEAVE_DEFERRED || !is_choosing ())
    return;
  if (is_over_budget ())
    call->flags |= LEAVE_OVER_BUDGET;
  else if (!state.window
           || !(call->function->special == SPECIAL_GRAPH_LAUNCH ? is_graph_chosen (call) : is_call_chosen (call)))
    call->flags |= LEAVE_UNSELECTED;
}
