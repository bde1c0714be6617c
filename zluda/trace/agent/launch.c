/* Kernel handles, the layout of their parameters, and the packed parameters of a launch. */

enum { HANDLE_UNKNOWN, HANDLE_FUNCTION, HANDLE_KERNEL };

struct sampled;

struct layout
{
  u64 handle;
  u64 owner;           /* CUmodule or CUlibrary, 0 where unknown */
  u64 kernel;          /* of a function that only a graph's node names: the CUkernel that it is of */
  u32 kind;
  u32 known;           /* offsets and sizes have been asked for */
  u32 count, total;
  u32 offset[MAX_KERNEL_PARAMETERS], size[MAX_KERNEL_PARAMETERS];
  u32 named;           /* whether it is asked for by name: 1 or 2, for yes or no */
  struct sampled * sampled;
};

/* CUlaunchConfig, CUlaunchAttribute */
#define CONFIG_STREAM 32
#define CONFIG_ATTRIBUTES 40
#define CONFIG_ATTRIBUTE_COUNT 48
#define ATTRIBUTE_BYTES 72

#define LAUNCH_PARAM_END 0
#define LAUNCH_PARAM_BUFFER_POINTER 1
#define LAUNCH_PARAM_BUFFER_SIZE 2

/* The place of a handle in the table: its entry, or the empty one where it belongs. Holding the lock. */
static struct layout **
layout_place (u64 handle)
{
  u64 index = (handle >> 4) * 0x9E3779B97F4A7C15ULL >> 40;
  u32 step;

  for (step = 0; step != LAYOUT_PLACES; step++)
  {
    struct layout ** place = &state.layouts[(index + step) % LAYOUT_PLACES];

    if (*place == NULL || (*place)->handle == handle)
      return place;
  }
  return NULL;
}

/* Note what a handle is, when the driver gives it out; `owner` is found through `parent` if that is a kernel. */
static void
note_handle (u64 handle, u32 kind, u64 owner, u64 parent)
{
  struct layout * layout, ** place;

  layout = g_malloc0 (sizeof (struct layout));
  layout->handle = handle;
  layout->kind = kind;
  lock ();
  if (parent != 0 && (place = layout_place (parent)) != NULL && *place != NULL)
    owner = (*place)->owner;
  layout->owner = owner;
  place = layout_place (handle);
  /* The driver gives one handle for one kernel, however often it is asked. */
  if (place != NULL && *place != NULL && (*place)->kind == kind && (*place)->owner == owner)
    place = NULL;
  if (place != NULL)
    *place = layout; /* an older one may be in use by another thread, so it is never freed */
  unlock ();
  if (place == NULL)
    g_free (layout);
  else
    atomic_add (&state.generation, 1);
}

static void forget_choice (struct layout * layout);

/* A module or library is unloaded: its handles may come again as others. */
static void
forget_handles_of (u64 owner)
{
  u32 index;

  lock ();
  for (index = 0; index != LAYOUT_PLACES; index++)
  {
    struct layout * layout = state.layouts[index];

    if (layout != NULL && layout->owner == owner)
    {
      layout->owner = layout->kernel = 0;
      layout->kind = HANDLE_UNKNOWN;
      layout->known = 0;
      forget_choice (layout);
    }
  }
  unlock ();
  atomic_add (&state.generation, 1);
}

static int
ask_layout (struct layout * layout, entry info)
{
  u64 offset, size, result;

  layout->count = layout->total = 0;
  while (layout->count != MAX_KERNEL_PARAMETERS)
  {
    offset = size = 0;
    result = info (layout->handle, layout->count, (u64) &offset, (u64) &size) & 0xffffffff;
    if (result != 0)
      return layout->count != 0 || result == CUDA_ERROR_INVALID_VALUE;
    layout->offset[layout->count] = (u32) offset;
    layout->size[layout->count] = (u32) size;
    layout->count++;
    if (offset + size > layout->total)
      layout->total = (u32) (offset + size);
  }
  return 1;
}

/* Ask the driver for the layout: of a kernel or a function, both where nobody knows which it is. */
static int
resolve_layout (struct layout * layout)
{
  struct layout other;

  if (layout->kind == HANDLE_KERNEL)
    return ask_layout (layout, state.driver.cuKernelGetParamInfo);
  if (layout->kind == HANDLE_FUNCTION)
    return ask_layout (layout, state.driver.cuFuncGetParamInfo);
  if (ask_layout (layout, state.driver.cuFuncGetParamInfo) && layout->count != 0)
    return 1;
  other = *layout;
  if (ask_layout (&other, state.driver.cuKernelGetParamInfo) && other.count != 0)
  {
    *layout = other;
    layout->kind = HANDLE_KERNEL;
    return 1;
  }
  return ask_layout (layout, state.driver.cuFuncGetParamInfo);
}

static const char *
kernel_name (struct layout * layout)
{
  const char * name = NULL;
  entry get = layout->kind == HANDLE_KERNEL ? state.driver.cuKernelGetName : state.driver.cuFuncGetName;

  if ((get ((u64) &name, layout->handle, 0, 0) & 0xffffffff) != 0 || name == NULL)
    return "";
  return name;
}

/* The module or library of a kernel that the driver gave out in a way that no export of it shows, as cuFFT's. */
static u64
kernel_owner (struct layout * layout)
{
  u64 owner = 0;
  entry get = layout->kind == HANDLE_KERNEL ? state.driver.cuKernelGetLibrary : state.driver.cuFuncGetModule;

  return (get ((u64) &owner, layout->handle, 0, 0) & 0xffffffff) == 0 ? owner : 0;
}

static void
write_function (struct call * call, struct layout * layout)
{
  const char * name = kernel_name (layout);
  u32 length = 16 + 8 * layout->count + (u32) strlen (name), index;
  u8 * record = reserve (call->thread, length, call->start), * body;

  if (record == NULL)
    return;
  body = copy (record + RECORD_HEADER_BYTES, &layout->kind, 4);
  body = copy (body, &layout->count, 4);
  body = copy (body, &layout->owner, 8);
  for (index = 0; index != layout->count; index++)
  {
    body = copy (body, &layout->offset[index], 4);
    body = copy (body, &layout->size[index], 4);
  }
  copy (body, name, strlen (name));
  commit (call->thread, record, KIND_FUNCTION, call->sequence, call->start, 0, length, layout->handle);
}

/* Ask for a layout that is not known. Threads that launch a kernel for the first time together all ask, each into
 * a copy of its own: what others read is whole or not `known`. */
static int
learn_layout (struct call * call, struct layout * layout)
{
  struct layout found;

  lock ();
  found = *layout;
  unlock ();
  if (!resolve_layout (&found))
    return 0;
  if (found.owner == 0)
    found.owner = kernel_owner (&found);
  lock ();
  if (!layout->known)
  {
    memcpy (layout->offset, found.offset, sizeof (found.offset));
    memcpy (layout->size, found.size, sizeof (found.size));
    layout->count = found.count;
    layout->total = found.total;
    layout->kind = found.kind;
    layout->owner = found.owner;
    *(volatile u32 *) &layout->known = 1;
  }
  unlock ();
  write_function (call, &found);
  return 1;
}

/* The layout of a launch's kernel, asked for at its first launch. NULL where the driver does not tell. */
static struct layout *
layout_of (struct call * call, u64 handle)
{
  struct thread * self = call->thread;
  struct layout * layout, ** place;

  if (self->last_handle == handle && self->last_generation == state.generation)
    return self->last_layout;

  lock ();
  place = layout_place (handle);
  layout = place != NULL ? *place : NULL;
  unlock ();
  if (layout == NULL)
  {
    note_handle (handle, HANDLE_UNKNOWN, 0, 0);
    lock ();
    place = layout_place (handle);
    layout = place != NULL ? *place : NULL;
    unlock ();
  }
  if (layout == NULL)
    return NULL;
  if (!layout->known && !learn_layout (call, layout))
    return NULL;
  self->last_handle = handle;
  self->last_generation = state.generation;
  self->last_layout = layout;
  return layout;
}

/* The launch's parameter buffer, gathered from `kernelParams` or found through `extra`. */
static void
pack_parameters (struct call * call, void ** parameters, void ** extra)
{
  struct layout * layout = call->layout;
  u8 * room = call->packed_room;
  u32 index;

  if (extra != NULL && parameters == NULL)
  {
    for (index = 0; index < 8 && (u64) extra[index] != LAUNCH_PARAM_END; index += 2)
    {
      if ((u64) extra[index] == LAUNCH_PARAM_BUFFER_POINTER)
        call->packed = extra[index + 1];
      else if ((u64) extra[index] == LAUNCH_PARAM_BUFFER_SIZE)
        call->packed_size = (u32) *(u64 *) extra[index + 1];
    }
    if (call->packed == NULL)
      call->packed_size = 0;
    return;
  }
  if (layout == NULL)
  {
    write_gap (call, call->start, "launch", "the layout of the kernel's parameters is not known");
    return;
  }
  if (layout->total == 0 || parameters == NULL)
    return;
  if (layout->total > sizeof (call->packed_room))
  {
    room = g_malloc0 (layout->total);
    call->flags |= CALL_OWNS_PACKED;
  }
  else
    memset (room, 0, layout->total);
  for (index = 0; index != layout->count; index++)
    memcpy (room + layout->offset[index], parameters[index], layout->size[index]);
  call->packed = room;
  call->packed_size = layout->total;
}

static void
write_attributes (struct call * call)
{
  const u8 * config = (const u8 *) call->word[0];
  u32 count;

  if (config == NULL || *(const u8 **) (config + CONFIG_ATTRIBUTES) == NULL)
    return;
  count = *(const u32 *) (config + CONFIG_ATTRIBUTE_COUNT);
  write_data (call, call->start, PARAMETER_ATTRIBUTES, DIRECTION_IN, 0,
              *(const u8 **) (config + CONFIG_ATTRIBUTES), (u64) count * ATTRIBUTE_BYTES);
}
