/* What was there before recording began, of a program that was running: found when a call names it.
 *
 * The driver lists neither allocations nor modules, but says of an address which allocation it is in. So memory is put
 * on record by a call that stands for the one that was missed, a cuMemAlloc of the same base and size, with the number
 * just before the call that first names it.
 */

static int
is_known (u64 address)
{
  struct allocation * found = find_allocation (address);

  if (found != NULL)
    release (found);
  return found != NULL;
}

/* Put the allocation that holds `address` on record, where there is one; the call takes the next number. */
static void
find_earlier (struct call * call, u64 address)
{
  u64 base = 0, size = 0, context = 0;
  struct call made;

  if (address < PAGE_BYTES || is_known (address)
      || ask (state.driver.cuMemGetAddressRange_v2, (u64) &base, (u64) &size, address, 0) || size == 0)
    return;
  make_call (&made, call, state.stands_for.cuMemAlloc_v2, call->sequence);
  made.parent = call->parent;
  made.word[0] = (u64) &base;
  made.word[1] = size;
  write_enter (&made);
  write_gap (&made, made.start, "attach", "made before recording began; found when a later call named it");
  state.driver.cuCtxGetCurrent ((u64) &context, 0, 0, 0);
  add_allocation (base, size, MEMORY_DEVICE, context);
  made.end = made.start;
  write_leave (&made, 0);
  call->sequence = atomic_add (&CONTROL (SEQUENCE), 1);
  call->thread->current = call->sequence + 1;
}

/* Addresses in a launch's parameters, or in the first two words of another call that works on a stream. */
static void
find_earlier_memory (struct call * call)
{
  u32 special = call->function->special, index;

  if (call->graph != NULL || special == 0 || special > SPECIAL_OPAQUE_WRITE)
    return;
  if (special <= SPECIAL_LAUNCH_COOPERATIVE)
    for (index = 0; index + 8 <= call->packed_size; index += 8)
      find_earlier (call, *(const u64 *) (call->packed + index));
  else
    for (index = 0; index != 2 && index != call->function->parameters; index++)
      find_earlier (call, call->word[index]);
}
