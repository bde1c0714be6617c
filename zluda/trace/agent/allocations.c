/* Device memory: what is allocated, and what of it is on record. */

#define PAGE_BYTES CHUNK_BYTES
#define STAGING_PAGES 64             /* 4 MiB a thread, of pinned memory: threads may be many */
#define NESTED_LIMIT (1 << 20)       /* as zluda/tracefile/reachability.py */

/* What is known of a page. */
enum
{
  PAGE_UNKNOWN,   /* never on record: written to the record when a launch can first reach it */
  PAGE_STALE,     /* a recorded call wrote it, so the record has it; its digest is not known */
  PAGE_KNOWN,     /* on record, and the digest is of that */
  PAGE_OPAQUE     /* as KNOWN, but something wrote it since that the record does not have */
};

enum { MEMORY_DEVICE, MEMORY_MANAGED, MEMORY_HOST, MEMORY_GLOBAL, MEMORY_ARRAY, MEMORY_VIRTUAL };

/* Beside a kind: others write it without a call; it cannot be read yet; nobody but a call that is hooked ends it, so that
 * a kernel of the agent's may read it. */
#define MEMORY_SHARED 0x100
#define MEMORY_CLOSED 0x200
#define MEMORY_OWN 0x400
#define MEMORY_KIND 0xff

/* Whether a kernel that runs in the context of an allocation reaches it. */
enum { PLACE_UNKNOWN, PLACE_HERE, PLACE_ELSEWHERE };

struct array;

struct allocation
{
  u64 base, size, owner;        /* owner: the module of a global, the context of the rest */
  u32 kind, references, pages, targets, target_room;
  u32 shared, closed, own;      /* MEMORY_SHARED, MEMORY_CLOSED, MEMORY_OWN */
  u32 place;                    /* PLACE_ */
  u64 seen;                     /* `unseen` of the state when it was last looked at */
  volatile u32 dead;            /* a call has begun to free it: not to be touched any more */
  u64 physical;                 /* of mapped memory: its handle; what else has it holds the same */
  struct allocation * next;     /* among those that a call ends */
  u8 * known;                   /* PAGE_ a page */
  u64 * digest;                 /* two words a page */
  u32 flows;                    /* these lie where the GPU reaches them, see flow.c */
  u64 * target;                 /* addresses found in the contents */
  volatile u32 looking;         /* one thread at a time looks at the contents */
  struct array * array;         /* of an array: its shape; such are in a table of their own */
};

/* --- the table of live allocations ------------------------------------------------------------------ */

/* Index of the first allocation whose base is above `address`. Holding the lock. */
static u32
allocations_above (u64 address)
{
  u32 low = 0, high = state.allocation_count;

  while (low != high)
  {
    u32 middle = (low + high) / 2;

    if (state.allocations[middle]->base <= address)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

static void free_digests (struct allocation * allocation);

static void
release_locked (struct allocation * allocation)
{
  if (--allocation->references != 0)
    return;
  g_free (allocation->known);
  free_digests (allocation);
  g_free (allocation->target);
  g_free (allocation->array);
  g_free (allocation);
}

static void
release (struct allocation * allocation)
{
  lock ();
  release_locked (allocation);
  unlock ();
}

static void
remove_at (u32 index)
{
  u32 i;

  release_locked (state.allocations[index]);
  state.allocation_count--;
  for (i = index; i != state.allocation_count; i++)
    state.allocations[i] = state.allocations[i + 1];
}

/* The allocation that holds `address`, with a reference; NULL where there is none. */
static struct allocation *
find_allocation (u64 address)
{
  struct allocation * found = NULL;
  u32 index;

  lock ();
  index = allocations_above (address);
  if (index != 0 && address - state.allocations[index - 1]->base < state.allocations[index - 1]->size)
  {
    found = state.allocations[index - 1];
    found->references++;
  }
  unlock ();
  return found;
}

static struct allocation *
make_allocation (u64 base, u64 size, u32 kind, u64 owner)
{
  struct allocation * allocation = g_malloc0 (sizeof (struct allocation));

  allocation->base = base;
  allocation->size = size;
  allocation->kind = kind & MEMORY_KIND;
  allocation->shared = (kind & MEMORY_SHARED) != 0 || allocation->kind == MEMORY_MANAGED
      || allocation->kind == MEMORY_HOST;
  allocation->closed = (kind & MEMORY_CLOSED) != 0;
  allocation->own = (kind & MEMORY_OWN) != 0;
  allocation->owner = owner;
  allocation->references = 1;
  allocation->pages = (u32) ((size + PAGE_BYTES - 1) / PAGE_BYTES);
  allocation->known = g_malloc0 (allocation->pages);
  allocation->digest = g_malloc0 (16ULL * allocation->pages);
  return allocation;
}

static void
add_allocation (u64 base, u64 size, u32 kind, u64 owner)
{
  struct allocation * allocation;
  u32 index, i;

  if (base == 0 || size == 0)
    return;
  allocation = make_allocation (base, size, kind, owner);
  lock ();
  /* What overlaps is gone without our notice: with its context, or by a call that is not understood. */
  index = allocations_above (base);
  if (index != 0 && base - state.allocations[index - 1]->base < state.allocations[index - 1]->size)
    remove_at (--index);
  while (index != state.allocation_count && state.allocations[index]->base < base + size)
    remove_at (index);
  if (state.allocation_count == state.allocation_room)
  {
    state.allocation_room = state.allocation_room * 2 + 256;
    state.allocations = g_realloc (state.allocations, 8ULL * state.allocation_room);
  }
  for (i = state.allocation_count++; i != index; i--)
    state.allocations[i] = state.allocations[i - 1];
  state.allocations[index] = allocation;
  unlock ();
}

/* Take the allocation at `base` out of the table; the caller gets its reference. */
static struct allocation *
take_allocation (u64 base)
{
  struct allocation * taken = NULL;
  u32 index;

  lock ();
  index = allocations_above (base);
  if (index != 0 && state.allocations[index - 1]->base == base)
  {
    taken = state.allocations[index - 1];
    taken->references++;
    remove_at (index - 1);
  }
  unlock ();
  return taken;
}

/* Take out the mapped memory in [base, base + size), as a list; the caller gets its references. */
static struct allocation *
take_mapped (u64 base, u64 size)
{
  struct allocation * taken = NULL;
  u32 index;

  lock ();
  for (index = allocations_above (base + size - 1); index-- != 0 && state.allocations[index]->base >= base;)
    if (state.allocations[index]->kind == MEMORY_VIRTUAL)
    {
      state.allocations[index]->references++;
      state.allocations[index]->next = taken;
      taken = state.allocations[index];
      remove_at (index);
    }
  unlock ();
  return taken;
}

/* Note what physical memory is mapped at `base`. Holding the lock. */
static void
alias_at (u64 base, u64 physical)
{
  u32 index = allocations_above (base);

  if (index != 0 && state.allocations[index - 1]->base == base)
    state.allocations[index - 1]->physical = physical;
}

static void
remove_allocations_of (u64 owner)
{
  u32 index;

  lock ();
  for (index = state.allocation_count; index-- != 0;)
    if (state.allocations[index]->owner == owner)
      remove_at (index);
  unlock ();
}

/* --- page states ------------------------------------------------------------------------ */

static u64
page_size (struct allocation * allocation, u32 page)
{
  u64 rest = allocation->size - (u64) page * PAGE_BYTES;

  return rest < PAGE_BYTES ? rest : PAGE_BYTES;
}

/* Something wrote memory that the record does not have: distrust every page. */
static void
distrust (struct allocation * allocation)
{
  u32 page;

  for (page = 0; page != allocation->pages; page++)
    if (allocation->known[page] == PAGE_KNOWN)
      allocation->known[page] = PAGE_OPAQUE;
    else if (allocation->known[page] == PAGE_STALE)
      allocation->known[page] = PAGE_UNKNOWN;
}

static void distrust_arrays (void);

static void
distrust_all (void)
{
  u32 index;

  lock ();
  for (index = 0; index != state.allocation_count; index++)
    distrust (state.allocations[index]);
  unlock ();
  distrust_arrays ();
}
