/* CUDA arrays, and the texture and surface objects through which kernels reach memory.
 *
 * An array has no address, so it gets a number in its place that no pointer has, and is otherwise an allocation like
 * others: its contents, linearised, have pages. zluda/tracefile/arrays.py says how they are linearised.
 */

#define ARRAY_SPACE 0x5A00000000000000ULL
#define ARRAY_STEP (1ULL << 21)
#define MAX_LEVELS 18                /* 131072 texels are the widest */

#define MAX_NAMED 4                  /* a texture and a surface may share a handle */
#define MAX_REFERENCES 64

#define ARRAY_LAYERED 1              /* CUDA_ARRAY3D_ */
#define ARRAY_SURFACE 2
#define ARRAY_CUBE 4
#define ARRAY_SPARSE 64

enum { CREATE_2D, CREATE_3D, CREATE_MIPMAPPED };
enum { MEMORY_TYPE_HOST = 1, MEMORY_TYPE_DEVICE, MEMORY_TYPE_ARRAY, MEMORY_TYPE_UNIFIED };
enum { RESOURCE_ARRAY, RESOURCE_MIPMAPPED, RESOURCE_LINEAR, RESOURCE_PITCH };

struct array
{
  u64 width, height, depth;          /* of level 0; 0 where there is no such dimension */
  u32 texel, levels, flags, mipmapped;
  u64 handle[MAX_LEVELS + 1];        /* of each level, then of the mipmapped array */
};

/* A texture or surface object, or a reference to which memory is bound; sorted by handle. */
struct object
{
  u64 handle, target;                /* what it reaches: an address, or an array's number */
  u32 kind;
};

enum { OBJECT_TEXTURE, OBJECT_SURFACE, OBJECT_REFERENCE };

/* CUDA_MEMCPY3D of cuda.h, and in the same way of CUDA_MEMCPY3D_PEER, whose contexts stand in `reserved`. */
struct copy_end
{
  u64 x, y, z, level;
  u32 type, padding;
  u64 host, device, array, reserved, pitch, height;
};

struct box_copy
{
  struct copy_end from, to;
  u64 width, height, depth;
};

/* --- shapes ----------------------------------------------------------------------------------------------- */

/* Bytes of one channel of a CUarray_format; 0 for planar, packed and block-compressed formats. */
static u32
channel_bytes (u32 format)
{
  switch (format)
  {
    case 0x01: case 0x08: return 1;
    case 0x02: case 0x09: case 0x10: return 2;
    case 0x03: case 0x0a: case 0x20: return 4;
    case 0xc0: case 0xc1: case 0xc2: case 0xc6: case 0xc7: case 0xc8: return 1;
    case 0xc3: case 0xc4: case 0xc5: case 0xc9: case 0xca: case 0xcb: return 2;
    default: return 0;
  }
}

static u64
at_least_one (u64 value)
{
  return value != 0 ? value : 1;
}

/* Bytes of a row of a level, its rows, and its slices: depth, layers or faces. */
static void
level_extent (const struct array * array, u32 level, u64 * row, u64 * rows, u64 * slices)
{
  *row = at_least_one (array->width >> level) * array->texel;
  *rows = at_least_one (array->height >> level);
  *slices = at_least_one (array->flags & (ARRAY_LAYERED | ARRAY_CUBE) ? array->depth : array->depth >> level);
}

static u64
level_size (const struct array * array, u32 level)
{
  u64 row, rows, slices;

  level_extent (array, level, &row, &rows, &slices);
  return row * rows * slices;
}

static u64
level_offset (const struct array * array, u32 level)
{
  u64 offset = 0;

  while (level != 0)
    offset += level_size (array, --level);
  return offset;
}

/* The descriptor that an array was made by, of either version; 0 where its contents cannot be linearised. */
static int
read_descriptor (struct array * array, const void * descriptor, u32 size, u32 kind)
{
  const u64 * wide = descriptor;
  const u32 * narrow = descriptor, * rest;

  if (size == 40 || (size == 24 && kind == CREATE_2D))
  {
    array->width = wide[0];
    array->height = wide[1];
    array->depth = kind != CREATE_2D ? wide[2] : 0;
    rest = (const u32 *) (wide + (kind != CREATE_2D ? 3 : 2));
  }
  else
  {
    array->width = narrow[0];
    array->height = narrow[1];
    array->depth = kind != CREATE_2D ? narrow[2] : 0;
    rest = narrow + (kind != CREATE_2D ? 3 : 2);
  }
  array->texel = channel_bytes (rest[0]) * rest[1];
  array->flags = kind != CREATE_2D ? rest[2] : 0;
  return array->texel != 0 && array->width != 0 && !(array->flags & ARRAY_SPARSE);
}

/* --- the table of arrays ------------------------------------------------------------------------------------ */

/* Index of the live array that has a handle, and its level; -1 where there is none. Holding the lock. */
static int
array_index (u64 handle, u32 * level)
{
  u32 index, number;

  for (index = 0; index != state.array_count; index++)
  {
    const struct array * array = state.arrays[index]->array;

    for (number = 0; number != array->levels; number++)
      if (array->handle[number] == handle)
        break;
    if (number == array->levels && !(array->mipmapped && array->handle[MAX_LEVELS] == handle))
      continue;
    *level = number != array->levels ? number : 0;
    return (int) index;
  }
  return -1;
}

/* The array that has a handle, with a reference. */
static struct allocation *
find_array (u64 handle, u32 * level)
{
  struct allocation * found = NULL;
  int index;

  lock ();
  index = array_index (handle, level);
  if (index >= 0)
  {
    found = state.arrays[index];
    found->references++;
  }
  unlock ();
  return found;
}

static void
remove_array_at (u32 index)
{
  release_locked (state.arrays[index]);
  state.arrays[index] = state.arrays[--state.array_count];
}

static void
keep_array (struct allocation * allocation)
{
  lock ();
  if (state.array_count == state.array_room)
  {
    state.array_room = state.array_room * 2 + 64;
    state.arrays = g_realloc (state.arrays, 8ULL * state.array_room);
  }
  state.arrays[state.array_count++] = allocation;
  unlock ();
}

/* Take the array that has a handle out of the table; the caller gets its reference. */
static struct allocation *
take_array (u64 handle)
{
  struct allocation * taken = NULL;
  u32 level;
  int index;

  lock ();
  index = array_index (handle, &level);
  if (index >= 0)
  {
    taken = state.arrays[index];
    taken->references++;
    remove_array_at ((u32) index);
  }
  unlock ();
  return taken;
}

static void
remove_arrays_of (u64 owner)
{
  u32 index;

  lock ();
  for (index = state.array_count; index-- != 0;)
    if (state.arrays[index]->owner == owner)
      remove_array_at (index);
  unlock ();
}

static void
distrust_arrays (void)
{
  u32 index;

  lock ();
  for (index = 0; index != state.array_count; index++)
    distrust (state.arrays[index]);
  unlock ();
}

/* The allocation at an address or the array of a number, with a reference. */
static struct allocation *
find_target (u64 target)
{
  struct allocation * found = NULL;
  u32 index;

  if (target < ARRAY_SPACE)
    return find_allocation (target);
  lock ();
  for (index = 0; index != state.array_count && found == NULL; index++)
    if (state.arrays[index]->base == target)
    {
      found = state.arrays[index];
      found->references++;
    }
  unlock ();
  return found;
}

/* --- making and ending them --------------------------------------------------------------------------------- */

static void
write_array (struct call * call, const struct allocation * allocation, u64 handle)
{
  u8 * record = reserve (call->thread, 16, call->end);

  if (record == NULL)
    return;
  copy (copy (record + RECORD_HEADER_BYTES, &allocation->size, 8), &handle, 8);
  commit (call->thread, record, KIND_ARRAY, call->sequence, call->end, 0, 16, allocation->base);
}

/* An array was made: parameters are where its handle is put, its descriptor and, of a mipmapped one, levels. */
static void
leave_create_array (struct call * call, u32 kind)
{
  struct array * array;
  struct allocation * allocation;
  u64 context = 0, handle, base, size;
  u32 level;

  if (call->word[0] == 0 || call->word[1] == 0)
    return;
  handle = *(u64 *) call->word[0];
  array = g_malloc0 (sizeof (struct array));
  array->levels = kind == CREATE_MIPMAPPED ? (u32) call->word[2] : 1;
  array->mipmapped = kind == CREATE_MIPMAPPED;
  if (!read_descriptor (array, (void *) call->word[1], call->function->parameter[1].size, kind)
      || array->levels > MAX_LEVELS)
  {
    g_free (array);
    write_gap (call, call->end, "memory", "arrays of this format are not looked at");
    return;
  }
  array->handle[0] = array->handle[MAX_LEVELS] = handle;
  for (level = 0; array->mipmapped && level != array->levels; level++)
    if (state.driver.cuMipmappedArrayGetLevel ((u64) &array->handle[level], handle, level, 0) & 0xffffffff)
      array->handle[level] = 0;
  size = level_offset (array, array->levels);
  base = ARRAY_SPACE + atomic_add (&state.array_space, (size / ARRAY_STEP + 1) * ARRAY_STEP);
  state.driver.cuCtxGetCurrent ((u64) &context, 0, 0, 0);
  allocation = make_allocation (base, size, MEMORY_ARRAY, context);
  allocation->array = array;
  keep_array (allocation);
  write_array (call, allocation, handle);
}

/* cuMipmappedArrayGetLevel: the driver may name a level otherwise than when the agent asked. */
static void
leave_get_level (struct call * call)
{
  struct allocation * allocation;
  u32 level;

  if (call->word[0] == 0 || (allocation = find_array (call->word[1], &level)) == NULL)
    return;
  if (call->word[2] < allocation->array->levels)
    allocation->array->handle[call->word[2]] = *(u64 *) call->word[0];
  release (allocation);
}

/* --- objects ------------------------------------------------------------------------------------------------ */

/* Index of the first object whose handle is not below `handle`. Holding the lock. */
static u32
object_place (u64 handle)
{
  u32 low = 0, high = state.object_count;

  while (low != high)
  {
    u32 middle = (low + high) / 2;

    if (state.objects[middle].handle < handle)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

static u32
find_object (u64 handle, u32 kind)
{
  u32 place = object_place (handle);

  while (place != state.object_count && state.objects[place].handle == handle && state.objects[place].kind != kind)
    place++;
  return place != state.object_count && state.objects[place].handle == handle ? place : state.object_count;
}

static void
add_object (u64 handle, u32 kind, u64 target)
{
  u32 place, i;

  if (handle == 0 || target == 0)
    return;
  lock ();
  place = find_object (handle, kind);
  if (place == state.object_count)
  {
    if (state.object_count == state.object_room)
    {
      state.object_room = state.object_room * 2 + 64;
      state.objects = g_realloc (state.objects, sizeof (struct object) * state.object_room);
    }
    place = object_place (handle);
    for (i = state.object_count++; i != place; i--)
      state.objects[i] = state.objects[i - 1];
  }
  state.objects[place].handle = handle;
  state.objects[place].kind = kind;
  state.objects[place].target = target;
  unlock ();
}

/* Take an object out; what it reached, 0 where it is not known. */
static u64
take_object (u64 handle, u32 kind)
{
  u64 target = 0;
  u32 place, i;

  lock ();
  place = find_object (handle, kind);
  if (place != state.object_count)
  {
    target = state.objects[place].target;
    state.object_count--;
    for (i = place; i != state.object_count; i++)
      state.objects[i] = state.objects[i + 1];
  }
  unlock ();
  return target;
}

/* The least and the largest handle of texture and surface objects: most words are neither. */
static void
handle_range (u64 * first, u64 * last)
{
  u32 index;

  *first = ~0ULL;
  *last = 0;
  if (state.object_count == 0)
    return;
  lock ();
  for (index = 0; index != state.object_count; index++)
    if (state.objects[index].kind != OBJECT_REFERENCE)
    {
      if (*last == 0)
        *first = state.objects[index].handle;
      *last = state.objects[index].handle;
    }
  unlock ();
}

static u64
array_number (u64 handle)
{
  u32 level;
  u64 number = 0;
  struct allocation * allocation = find_array (handle, &level);

  if (allocation != NULL)
  {
    number = allocation->base;
    release (allocation);
  }
  return number;
}

/* cuTexObjectCreate, cuSurfObjectCreate: what the CUDA_RESOURCE_DESC names. */
static void
leave_create_object (struct call * call, u32 kind)
{
  const u8 * resource = (const u8 *) call->word[1];
  u64 named;

  if (call->word[0] == 0 || resource == NULL)
    return;
  named = *(const u64 *) (resource + 8);
  if (*(const u32 *) resource <= RESOURCE_MIPMAPPED)
    named = array_number (named);
  add_object (*(u64 *) call->word[0], kind, named);
}

/* Up to `room` targets of the objects of a handle, or (handle 0) of all references. */
static u32
targets_of (u64 handle, u64 * target, u32 room)
{
  u32 place, count = 0;

  if (state.object_count == 0)
    return 0;
  lock ();
  place = handle != 0 ? object_place (handle) : 0;
  for (; place != state.object_count && count != room; place++)
  {
    const struct object * object = &state.objects[place];

    if (handle != 0 && object->handle != handle)
      break;
    if ((object->kind == OBJECT_REFERENCE) == (handle == 0))
      target[count++] = object->target;
  }
  unlock ();
  return count;
}

/* --- contents ----------------------------------------------------------------------------------------------- */

/* Copy [offset, offset + size) of an array's linearised contents to the host, box by box. 0, or the driver's error. */
static u32
read_array (const struct allocation * allocation, u64 offset, u64 size, u8 * to, u64 stream)
{
  const struct array * array = allocation->array;
  struct box_copy box;
  u32 level = 0, result;
  u64 row, rows, slices, slice, rest, bytes;

  while (level + 1 < array->levels && offset >= level_size (array, level))
    offset -= level_size (array, level++);
  while (size != 0)
  {
    level_extent (array, level, &row, &rows, &slices);
    slice = row * rows;
    memset (&box, 0, sizeof (box));
    box.from.z = offset / slice;
    rest = offset % slice;
    box.from.y = rest / row;
    box.from.x = rest % row;
    box.width = row;
    box.height = box.depth = 1;
    if (box.from.x != 0 || size < row) /* part of a row, rows of a slice, or slices */
      box.width = size < row - box.from.x ? size : row - box.from.x;
    else if (box.from.y != 0 || size < slice)
      box.height = size / row < rows - box.from.y ? size / row : rows - box.from.y;
    else
    {
      box.height = rows;
      box.depth = size / slice < slices - box.from.z ? size / slice : slices - box.from.z;
    }
    box.from.type = MEMORY_TYPE_ARRAY;
    box.from.array = array->handle[level];
    box.to.type = MEMORY_TYPE_HOST;
    box.to.host = (u64) to;
    box.to.pitch = box.width;
    box.to.height = box.height;
    result = (u32) state.driver.cuMemcpy3DAsync_v2 ((u64) &box, stream, 0, 0);
    if (result != 0)
      return result;
    bytes = box.width * box.height * box.depth;
    to += bytes;
    size -= bytes;
    offset += bytes;
    if (offset == slice * slices)
    {
      offset = 0;
      level++;
    }
  }
  return 0;
}
