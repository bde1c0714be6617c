/* Module images, and the addresses of modules' variables. */

#define WRAPPER_MAGIC 0x466243B1U
#define FATBIN_MAGIC 0xBA55ED50U
#define ELF_MAGIC 0x464C457FU
#define TEXT_LIMIT (1ULL << 30)
#define ANSWER_LIMIT_NS 30000000000ULL

/* A library whose variables' names are known and whose addresses are not: no context was current. */
struct pending
{
  struct pending * next;
  u64 handle, sequence, library;
  char names[1];
};

static u64
elf_size (const u8 * elf)
{
  u64 sections, programs, size = 64, index, end;
  u32 count;

  if (elf[4] != 2) /* ELFCLASS64; a 32-bit image has not been loadable since CUDA 12 */
    return 0;
  programs = *(const u64 *) (elf + 32);
  sections = *(const u64 *) (elf + 40);
  count = *(const u16 *) (elf + 60);
  end = sections + (u64) count * *(const u16 *) (elf + 58);
  size = end > size ? end : size;
  end = programs + (u64) *(const u16 *) (elf + 56) * *(const u16 *) (elf + 54);
  size = end > size ? end : size;
  for (index = 0; index != count; index++)
  {
    const u8 * header = elf + sections + index * *(const u16 *) (elf + 58);

    if (*(const u32 *) (header + 4) == 8) /* SHT_NOBITS takes no room */
      continue;
    end = *(const u64 *) (header + 24) + *(const u64 *) (header + 32);
    size = end > size ? end : size;
  }
  return size;
}

/* Bytes of an image that is one piece; text ends with its NUL. */
static u64
image_size (const u8 * image)
{
  u32 magic = *(const u32 *) image;

  if (magic == FATBIN_MAGIC)
    return *(const u16 *) (image + 6) + *(const u64 *) (image + 8);
  if (magic == ELF_MAGIC)
    return elf_size (image);
  return strlen ((const char *) image);
}

/* What the application handed over: one piece, or the fat binaries that a wrapper points to. */
static void
write_image (struct call * call, u32 parameter, const u8 * image)
{
  u32 part = 0;
  const u8 * piece, ** list;

  if (image == NULL)
    return;
  if (*(const u32 *) image != WRAPPER_MAGIC)
  {
    write_data (call, call->start, parameter, DIRECTION_IN, 0, image, image_size (image));
    return;
  }
  piece = *(const u8 **) (image + 8);
  if (piece != NULL && image_size (piece) > 16)
    write_data (call, call->start, parameter, DIRECTION_IN, part++, piece, image_size (piece));
  /* Version 2 (relocatable device code): a list of the units' own fat binaries. */
  list = *(const u32 *) (image + 4) >= 2 ? *(const u8 ***) (image + 16) : NULL;
  while (list != NULL && *list != NULL)
  {
    piece = *list++;
    write_data (call, call->start, parameter, DIRECTION_IN, part++, piece, image_size (piece));
  }
}

static void
write_global (struct call * call, u64 module, u64 address, u64 size, const char * name)
{
  u32 length = 16 + (u32) strlen (name);
  u8 * record = reserve (call->thread, length, call->end);

  if (record == NULL)
    return;
  copy (copy (copy (record + RECORD_HEADER_BYTES, &size, 8), &module, 8), name, strlen (name));
  commit (call->thread, record, KIND_GLOBAL, call->sequence, call->end, 0, length, address);
}

/* Ask for the address of each name; 0 when no context is current. */
static int
resolve_globals (struct call * call, u64 handle, int library, const char * names)
{
  entry get = library ? state.driver.cuLibraryGetGlobal : state.driver.cuModuleGetGlobal_v2;
  u64 context = 0, address, size, result;
  char name[1024];

  if (state.driver.cuCtxGetCurrent ((u64) &context, 0, 0, 0) & 0xffffffff || context == 0)
    return 0;
  while (*names != 0)
  {
    u32 length = 0;

    while (names[length] != '\n' && names[length] != 0)
      length++;
    if (length != 0 && length < sizeof (name))
    {
      memcpy (name, names, length);
      name[length] = 0;
      address = size = 0;
      result = get ((u64) &address, (u64) &size, handle, (u64) name) & 0xffffffff;
      if (result == 0 && address != 0)
      {
        add_allocation (address, size, MEMORY_GLOBAL | (is_managed (address) ? MEMORY_SHARED : 0), handle);
        write_global (call, handle, address, size, name);
      }
      /* Local names of compiler-made constants cannot be asked for; their contents are in the PTX. */
    }
    names += length;
    if (*names == '\n')
      names++;
  }
  return 1;
}

/* The recorder's answer to the load that is call `sequence`: names, one a line. NULL when there is none. */
static char *
read_answer (u64 sequence)
{
  char path[1100], * text = NULL;
  u64 start = now (), size = 0, room = 0;
  i64 got;
  int fd;

  path_of (path, "/globals-", sequence);
  while ((fd = open (path, O_RDONLY_CLOEXEC, 0)) < 0)
  {
    if (CONTROL (FLAGS) & (FLAG_STOPPED | FLAG_LEFT) || now () - start > ANSWER_LIMIT_NS || recorder_is_gone ())
      return NULL;
    sleep_ns (500000);
  }
  do
  {
    if (size + 4096 > room)
      text = g_realloc (text, room = room * 2 + 65536);
    got = read (fd, text + size, 4095);
    size += got > 0 ? (u64) got : 0;
  }
  while (got > 0);
  close (fd);
  text[size] = 0;
  return text;
}

static void
learn_globals (struct call * call, u64 handle, int library)
{
  char * names = read_answer (call->sequence);
  struct pending * pending;

  if (names == NULL)
    write_gap (call, call->end, "module", "the recorder did not list the module's variables in time");
  else if (*names != 0 && !resolve_globals (call, handle, library, names))
  {
    pending = g_malloc (sizeof (struct pending) + strlen (names) + 1);
    pending->handle = handle;
    pending->sequence = call->sequence;
    pending->library = (u64) library;
    strcpy (pending->names, names);
    lock ();
    pending->next = state.pending;
    state.pending = pending;
    unlock ();
  }
  g_free (names);
}

/* Resolve what had to wait for a context, if one is current now. */
static void
resolve_pending (struct call * call)
{
  struct pending * pending, * next;

  lock ();
  pending = state.pending;
  state.pending = NULL;
  unlock ();
  for (; pending != NULL; pending = next)
  {
    next = pending->next;
    if (resolve_globals (call, pending->handle, (int) pending->library, pending->names))
    {
      g_free (pending);
      continue;
    }
    lock ();
    pending->next = state.pending;
    state.pending = pending;
    unlock ();
  }
}

static void
forget_pending (u64 handle)
{
  struct pending ** place;

  lock ();
  for (place = &state.pending; *place != NULL;)
  {
    struct pending * pending = *place;

    if (pending->handle == handle)
    {
      *place = pending->next;
      g_free (pending);
    }
    else
      place = &pending->next;
  }
  unlock ();
}

/* The machine's GPUs and driver, once, when the driver has been initialised. */
static void
describe_devices (struct call * call)
{
  u32 count = 0, ordinal, device, version = 0, major, minor;
  u64 memory, numbers[3];
  char name[256];
  u8 * record;

  if (atomic_exchange (&state.described, 1))
    return;
  state.driver.cuDriverGetVersion ((u64) &version, 0, 0, 0);
  if ((record = reserve (call->thread, 0, call->end)) != NULL)
    commit (call->thread, record, KIND_DRIVER, call->sequence, call->end, 0, 0, version);
  state.driver.cuDeviceGetCount ((u64) &count, 0, 0, 0);
  state.device_count = count;
  for (ordinal = 0; ordinal < count; ordinal++)
  {
    u32 length;

    device = major = minor = 0;
    memory = 0;
    name[0] = 0;
    state.driver.cuDeviceGet ((u64) &device, ordinal, 0, 0);
    state.driver.cuDeviceGetName ((u64) name, sizeof (name) - 1, device, 0);
    state.driver.cuDeviceTotalMem_v2 ((u64) &memory, device, 0, 0);
    state.driver.cuDeviceGetAttribute ((u64) &major, CU_COMPUTE_CAPABILITY_MAJOR, device, 0);
    state.driver.cuDeviceGetAttribute ((u64) &minor, CU_COMPUTE_CAPABILITY_MINOR, device, 0);
    numbers[0] = memory;
    numbers[1] = major;
    numbers[2] = minor;
    length = 24 + (u32) strlen (name);
    if ((record = reserve (call->thread, length, call->end)) == NULL)
      return;
    copy (copy (record + RECORD_HEADER_BYTES, numbers, 24), name, strlen (name));
    commit (call->thread, record, KIND_DEVICE, call->sequence, call->end, ordinal, length, 0);
  }
}
