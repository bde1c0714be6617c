/* What single driver entries need beyond their parameters: launches, copies, allocations, modules. */

/* --- before the call --------------------------------------------------------------------------------- */

static void
enter_launch (struct call * call)
{
  u64 * word = call->word;

  switch (call->function->special)
  {
    case SPECIAL_LAUNCH_EX:
      call->layout = layout_of (call, word[1]);
      pack_parameters (call, (void **) word[2], (void **) word[3]);
      break;
    case SPECIAL_LAUNCH:
      call->layout = layout_of (call, word[0]);
      pack_parameters (call, (void **) word[9], (void **) word[10]);
      break;
    default: /* cooperative */
      call->layout = layout_of (call, word[0]);
      pack_parameters (call, (void **) word[9], NULL);
  }
}

/* cuMemcpy: what it is depends on the pointers; parameters are destination, source, size. */
static void
enter_unified_copy (struct call * call)
{
  call->to_host = memory_type (call->word[0]) == CU_MEMORYTYPE_HOST;
  call->from_host = memory_type (call->word[1]) == CU_MEMORYTYPE_HOST;
  if (call->from_host && !call->to_host && takes_contents ())
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
      if (state.outputs && !(call->flags & (LEAVE_DEFERRED | LEFT_OUT)))
        capture_before_launch (call);
      break;
    case SPECIAL_COPY_UNIFIED:
    case SPECIAL_COPY_UNIFIED_ASYNC:
      enter_unified_copy (call);
      break;
    case SPECIAL_CONTEXT_DESTROY:
    case SPECIAL_MODULE_UNLOAD:
    case SPECIAL_LIBRARY_UNLOAD:
      read_timers (call); /* the last occasion, as the program ends */
      break;
    case SPECIAL_BEGIN_CAPTURE: /* before other threads' calls are refused */
      atomic_add (&state.captures, 1);
      break;
    case SPECIAL_FREE:
      /* Taken out before: once it is free another thread may get the address. */
      call->freed = take_allocation (call->word[0]);
      bury (call->freed);
      break;
    case SPECIAL_UNMAP:
      call->freed = take_mapped (call->word[0], call->word[1]);
      bury (call->freed);
      break;
    case SPECIAL_FREE_ARRAY:
      call->freed = take_array (call->word[0]);
      break;
    case SPECIAL_FREE_TEXTURE:
      call->freed_target = take_object (call->word[0], OBJECT_TEXTURE);
      break;
    case SPECIAL_FREE_SURFACE:
      call->freed_target = take_object (call->word[0], OBJECT_SURFACE);
      break;
    case SPECIAL_COPY_BOX:
      enter_box_copy (call);
      break;
    case SPECIAL_GRAPH_LAUNCH:
      enter_graph_launch (call);
      break;
    case SPECIAL_COPY_H2A:
      if ((!state.outputs || is_choosing ()) && takes_contents ())
        write_data (call, call->start, 2, DIRECTION_IN, 0, (void *) call->word[2], call->word[3]);
      break;
    default:
      break;
  }
}

/* --- after the call, which succeeded ------------------------------------------------------------------ */

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
  if (call->function->stream != 0xff && state.outputs && !is_choosing ()) /* until the stream gets there it cannot be read */
    wait_for_stream (call, call->end, call->stream);
  state.driver.cuCtxGetCurrent ((u64) &context, 0, 0, 0);
  add_allocation (base, size, kind | MEMORY_OWN, context);
}

/* Device memory at [address, address + size) was written by a call whose data the record has. */
static void
leave_write (struct call * call, u64 address, u64 size, const u8 * host)
{
  if (size == 0 || !state.outputs)
    return;
  if (host == NULL || takes_contents ())
    note_written (address, size, host);
  if (!leaves_unseen ())
    wait_for_stream (call, call->end, call->stream);
}

/* Device memory was copied to the host: the bytes delivered, once they are. */
static void
leave_delivery (struct call * call, u32 parameter, u64 size)
{
  struct allocation * from;
  int settled = 1;

  if (is_choosing ())
  {
    from = find_allocation (call->word[1]);
    settled = is_settled (from);
    if (from != NULL)
      release (from);
  }
  if (state.outputs && size != 0 && settled && wait_for_stream (call, call->end, call->stream))
    write_data (call, call->end, parameter, DIRECTION_OUT, 0, (void *) call->word[parameter], size);
}

static void
leave_device_copy (struct call * call, u64 to, u64 size)
{
  if (size == 0 || !state.outputs || leaves_unseen ())
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
  if (call->flags & LEFT_OUT)
  {
    atomic_add (&state.unseen, 1);
    return;
  }
  if (call->flows && flow_after_launch (call))
    return;
  begin_looks (call);
  if (capture_after_launch (call, call->end))
    call->flags |= LEAVE_CAPTURED;
  else
    leaves_unseen ();
}

/* After the real call succeeded. */
static void
leave_special (struct call * call)
{
  u64 * word = call->word, handle;
  u32 special = call->function->special;

  if (call->flags & LEAVE_DEFERRED) /* what it does is on record when the graph is launched */
    return;
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
    case SPECIAL_REGISTER_HOST:
      leave_register_host (call);
      break;
    case SPECIAL_OPEN_MEMORY:
      leave_open_memory (call);
      break;
    case SPECIAL_CREATE_PHYSICAL:
      leave_create_physical (call);
      break;
    case SPECIAL_IMPORT_PHYSICAL:
      leave_create_physical (call);
      if (word[0] != 0)
        note_foreign (*(u64 *) word[0]);
      break;
    case SPECIAL_EXPORT_PHYSICAL:
      note_foreign (word[1]);
      break;
    case SPECIAL_MAP:
      leave_map (call);
      break;
    case SPECIAL_SET_ACCESS:
      leave_set_access (call);
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
    case SPECIAL_GRAPH_LAUNCH:
      leave_graph_launch (call);
      break;
    case SPECIAL_HOST_FUNCTION:
      if (state.outputs && !leaves_unseen ()) /* what it writes is there for the calls that come after */
        wait_for_stream (call, call->end, call->stream);
      break;
    case SPECIAL_GRAPH_INSTANTIATE:
      leave_instantiate (call);
      break;
    case SPECIAL_GRAPH_DESTROY:
      forget_graph (word[0]);
      break;
    case SPECIAL_GRAPH_UPDATE:
      leave_graph_update (call);
      break;
    case SPECIAL_GRAPH_SET_NODE:
      leave_set_node (call);
      break;
    case SPECIAL_GRAPH_SET_ENABLED:
      leave_set_enabled (call);
      break;
    case SPECIAL_GRAPH_ADD_NODE:
      leave_add_node (call);
      break;
    case SPECIAL_OPAQUE_WRITE:
      if (state.outputs)
        leave_unknown_write (call);
      break;
    case SPECIAL_COPY_BOX:
      leave_box_copy (call);
      break;
    case SPECIAL_COPY_H2A:
    case SPECIAL_COPY_D2A:
      leave_array_write (call, word[0], word[1], word[3]);
      break;
    case SPECIAL_COPY_A2A:
      leave_array_write (call, word[0], word[1], word[4]);
      break;
    case SPECIAL_COPY_A2D:
      leave_device_copy (call, word[0], word[3]);
      break;
    case SPECIAL_COPY_A2H:
      leave_delivery (call, 0, word[3]);
      break;
    case SPECIAL_SET_FLAT_1:
      leave_flat_fill (call, 1);
      break;
    case SPECIAL_SET_FLAT_2:
      leave_flat_fill (call, 2);
      break;
    case SPECIAL_SET_FLAT_4:
      leave_flat_fill (call, 4);
      break;
    case SPECIAL_CREATE_ARRAY:
      leave_create_array (call, CREATE_2D);
      break;
    case SPECIAL_CREATE_ARRAY_3D:
      leave_create_array (call, CREATE_3D);
      break;
    case SPECIAL_CREATE_MIPMAPPED:
      leave_create_array (call, CREATE_MIPMAPPED);
      break;
    case SPECIAL_GET_LEVEL:
      leave_get_level (call);
      break;
    case SPECIAL_CREATE_TEXTURE:
      leave_create_object (call, OBJECT_TEXTURE);
      break;
    case SPECIAL_CREATE_SURFACE:
      leave_create_object (call, OBJECT_SURFACE);
      break;
    case SPECIAL_BIND_ARRAY:
      add_object (word[0], OBJECT_REFERENCE, array_number (word[1]));
      break;
    case SPECIAL_BIND_ADDRESS:
      add_object (word[1], OBJECT_REFERENCE, word[2]);
      break;
    case SPECIAL_BIND_FLAT:
      add_object (word[0], OBJECT_REFERENCE, word[2]);
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
      atomic_add (&state.contexts_ended, 1);
      remove_allocations_of (word[0]);
      remove_arrays_of (word[0]);
      break;
    case SPECIAL_BEGIN_CAPTURE:
      capture_begun (call);
      break;
    case SPECIAL_END_CAPTURE:
      atomic_add (&state.captures, (u64) -1);
      break;
    default:
      break;
  }
}

static void
leave_failed (struct call * call, u64 result)
{
  struct allocation * freed = call->freed;

  if (call->function->special == SPECIAL_GRAPH_LAUNCH)
    leave_nodes (call, result);
  if (call->function->special == SPECIAL_BEGIN_CAPTURE)
    atomic_add (&state.captures, (u64) -1);
  if (call->function->special == SPECIAL_END_CAPTURE
      && (result == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED || result == CUDA_ERROR_STREAM_CAPTURE_UNJOINED))
    /* it was spoilt, and is over all the same */
    atomic_add (&state.captures, (u64) -1);
  if (call->freed_target != 0)
    add_object (call->word[0], call->function->special == SPECIAL_FREE_SURFACE ? OBJECT_SURFACE : OBJECT_TEXTURE,
                call->freed_target);
  if (freed == NULL)
    return;
  if (freed->array != NULL)
  {
    keep_array (freed);
    call->freed = NULL;
  }
  else /* it was not freed after all; what is known of it is asked for anew */
    for (; freed != NULL; freed = freed->next)
      add_allocation (freed->base, freed->size,
                      freed->kind | (freed->shared ? MEMORY_SHARED : 0) | (freed->closed ? MEMORY_CLOSED : 0)
                          | (freed->own ? MEMORY_OWN : 0),
                      freed->owner);
}
