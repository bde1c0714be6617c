/* Copies and fills of rectangles and boxes, and those whose end is an array. */

/* One end of a copy: host memory, or bytes [start, start + span) of an allocation. */
struct end
{
  u64 host, pitch, slice;            /* of the host's rows and slices */
  struct allocation * allocation;    /* with a reference; NULL: host memory, or memory that is not known */
  u64 start, span;
};

#define SIZE_2D 128                  /* of CUDA_MEMCPY2D and CUDA_MEMCPY3D; earlier versions have 32-bit addresses */
#define SIZE_3D 200

/* CUDA_MEMCPY2D */
struct flat_end
{
  u64 x, y;
  u32 type, padding;
  u64 host, device, array, pitch;
};

/* CU_MEMORYTYPE of a pointer; plain host memory is unknown to the driver. */
static u32
memory_type (u64 pointer)
{
  u32 type = 0;

  if (state.driver.cuPointerGetAttribute ((u64) &type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, pointer, 0) & 0xffffffff)
    return CU_MEMORYTYPE_HOST;
  return type == CU_MEMORYTYPE_HOST ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
}

static void
widen (struct copy_end * to, const struct flat_end * from)
{
  memset (to, 0, sizeof (struct copy_end));
  to->x = from->x;
  to->y = from->y;
  to->type = from->type;
  to->host = from->host;
  to->device = from->device;
  to->array = from->array;
  to->pitch = from->pitch;
}

/* A call's copy as a box; 0 where its structure is of a version that is not understood. */
static int
box_of (const struct call * call, struct box_copy * box)
{
  const struct flat_end * flat = (const struct flat_end *) call->word[0];
  const u64 * size = (const u64 *) (flat + 2);

  if (flat == NULL)
    return 0;
  if (call->function->parameter[0].size == SIZE_3D)
  {
    memcpy (box, flat, sizeof (struct box_copy));
    return 1;
  }
  if (call->function->parameter[0].size != SIZE_2D)
    return 0;
  widen (&box->from, flat);
  widen (&box->to, flat + 1);
  box->width = size[0];
  box->height = size[1];
  box->depth = 1;
  return 1;
}

/* The bytes that a box's end spans: whole rows and slices between its first byte and its last. */
static void
find_end (struct end * end, const struct copy_end * of, const struct box_copy * box)
{
  u64 pitch = of->pitch != 0 ? of->pitch : of->x + box->width;
  u64 rows = of->height != 0 ? of->height : of->y + box->height, address = of->device, slices;
  u32 type = of->type, level;

  memset (end, 0, sizeof (struct end));
  if (type == MEMORY_TYPE_UNIFIED && memory_type (of->device) == CU_MEMORYTYPE_HOST)
  {
    type = MEMORY_TYPE_HOST;
    address = of->device;
  }
  else if (type == MEMORY_TYPE_HOST)
    address = of->host;
  if (type == MEMORY_TYPE_ARRAY)
  {
    end->allocation = find_array (of->array, &level);
    if (end->allocation == NULL)
      return;
    level_extent (end->allocation->array, level, &pitch, &rows, &slices);
    end->start = level_offset (end->allocation->array, level);
  }
  end->pitch = pitch;
  end->slice = pitch * rows;
  end->start += of->z * end->slice + of->y * pitch + of->x;
  end->span = (box->depth - 1) * end->slice + (box->height - 1) * pitch + box->width;
  if (type == MEMORY_TYPE_HOST)
    end->host = address + end->start;
  else if (type != MEMORY_TYPE_ARRAY)
  {
    end->allocation = find_allocation (address);
    if (end->allocation != NULL)
      end->start += address - end->allocation->base;
  }
}

/* The bytes of a box in host memory, without the gaps between its rows. */
static void
write_rows (struct call * call, u64 time, u32 parameter, u32 direction, const struct end * host,
            const struct box_copy * box)
{
  u64 slice = box->width * box->height, size = slice * box->depth, offset = 0;

  while (offset < size)
  {
    u64 piece = size - offset < CHUNK_BYTES ? size - offset : CHUNK_BYTES, filled, run, at;
    u32 length = (u32) (DATA_HEADER_BYTES + piece);
    u8 * record = reserve (call->thread, length, time), * body;

    if (record == NULL)
      return;
    body = copy (copy (record + RECORD_HEADER_BYTES, &size, 8), &offset, 8);
    for (filled = 0; filled != piece; filled += run)
    {
      at = offset + filled;
      run = box->width - at % box->width;
      run = run < piece - filled ? run : piece - filled;
      body = copy (body, (const u8 *) host->host + at / slice * host->slice
                             + at % slice / box->width * host->pitch + at % box->width, run);
    }
    commit (call->thread, record, KIND_DATA, call->sequence, time, parameter | direction << 8, length, host->host);
    offset += piece;
  }
}

static void
release_end (struct end * end)
{
  if (end->allocation != NULL)
    release (end->allocation);
}

/* Whether the record has what an allocation holds, or would have by what is looked at. */
static int
is_settled (const struct allocation * allocation)
{
  return !is_choosing () || (takes_contents () && allocation != NULL && allocation->seen == state.unseen);
}

/* The host's bytes, where what the copy leaves behind will not be read back. */
static void
enter_box_copy (struct call * call)
{
  struct box_copy box;
  struct end from, to;

  if (!box_of (call, &box) || box.width == 0 || box.height == 0 || box.depth == 0)
    return;
  find_end (&from, &box.from, &box);
  find_end (&to, &box.to, &box);
  if (from.host != 0 && to.host == 0 && (!state.outputs || to.allocation == NULL || is_choosing ()) && takes_contents ())
    write_rows (call, call->start, 0, DIRECTION_IN, &from, &box);
  release_end (&from);
  release_end (&to);
}

static void
leave_unknown_write (struct call * call)
{
  if (leaves_unseen ())
    return;
  wait_for_stream (call, call->end, call->stream);
  distrust_all ();
}

static void
leave_box_copy (struct call * call)
{
  struct box_copy box;
  struct end from, to;
  int looked;

  if (!state.outputs)
    return;
  if (!box_of (call, &box))
  {
    leave_unknown_write (call);
    return;
  }
  if (box.width == 0 || box.height == 0 || box.depth == 0)
    return;
  find_end (&from, &box.from, &box);
  find_end (&to, &box.to, &box);
  looked = to.host != 0 ? is_settled (from.allocation) : !leaves_unseen ();
  if (looked && (to.host == 0 || from.host == 0) && wait_for_stream (call, call->end, call->stream))
  {
    if (to.host != 0)
      write_rows (call, call->end, 0, DIRECTION_OUT, &to, &box);
    else if (to.allocation != NULL)
      capture_span (call, call->end, to.allocation, to.start, to.span);
  }
  release_end (&from);
  release_end (&to);
}

/* Bytes [offset, offset + size) of an array were written. */
static void
leave_array_write (struct call * call, u64 handle, u64 offset, u64 size)
{
  u32 level;
  struct allocation * allocation;

  if (!state.outputs || size == 0 || leaves_unseen () || (allocation = find_array (handle, &level)) == NULL)
    return;
  if (wait_for_stream (call, call->end, call->stream))
    capture_span (call, call->end, allocation, level_offset (allocation->array, level) + offset, size);
  release (allocation);
}

/* cuMemsetD2D*: address, pitch, value, width in elements, height. */
static void
leave_flat_fill (struct call * call, u32 unit)
{
  u64 * word = call->word, width = word[3] * unit;
  struct allocation * allocation;

  if (!state.outputs || width == 0 || word[4] == 0 || leaves_unseen ())
    return;
  allocation = wait_for_stream (call, call->end, call->stream) ? find_allocation (word[0]) : NULL;
  if (allocation == NULL)
    return;
  capture_span (call, call->end, allocation, word[0] - allocation->base, (word[4] - 1) * word[1] + width);
  release (allocation);
}
