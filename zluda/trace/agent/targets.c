/* Addresses in the contents of allocations: what a launch reaches through memory. */

static void
add_target (struct allocation * allocation, u64 base)
{
  u32 target;

  for (target = 0; target != allocation->targets && allocation->target[target] != base; target++)
    ;
  if (target != allocation->targets || target == MAX_REACHED)
    return;
  if (allocation->targets == allocation->target_room)
  {
    allocation->target_room = allocation->target_room * 2 + 8;
    allocation->target = g_realloc (allocation->target, 8ULL * allocation->target_room);
  }
  allocation->target[allocation->targets++] = base;
}

/* Where live allocations lie: [low, high). */
static void
address_range (u64 * low, u64 * high)
{
  lock ();
  *low = *high = 0;
  if (state.allocation_count != 0)
  {
    *low = state.allocations[0]->base;
    *high = state.allocations[state.allocation_count - 1]->base
        + state.allocations[state.allocation_count - 1]->size;
  }
  unlock ();
}

/* Addresses of live allocations among the aligned words of `data`, and what live objects named there reach, added
 * to the allocation's targets. */
static void
scan_for_targets (struct allocation * allocation, const u8 * data, u64 size)
{
  u64 low, high, first, last, index, named[MAX_NAMED];
  u32 count;

  handle_range (&first, &last);
  address_range (&low, &high);
  for (index = 0; index + 8 <= size; index += 8)
  {
    u64 word = *(const u64 *) (data + index);
    struct allocation * found;

    if (word >= first && word <= last)
      for (count = targets_of (word, named, MAX_NAMED); count != 0;)
        add_target (allocation, named[--count]);
    if (word < low || word >= high || (found = find_allocation (word)) == NULL)
      continue;
    word = found->base;
    release (found);
    add_target (allocation, word);
  }
}

static void
begin_looking (struct allocation * allocation)
{
  while (atomic_exchange (&allocation->looking, 1))
    sleep_ns (20000);
}

static void
end_looking (struct allocation * allocation)
{
  atomic_exchange (&allocation->looking, 0);
}
