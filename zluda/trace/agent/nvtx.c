/* What a program tells about itself by NVTX, a C module of its own that is there before the driver is.
 *
 * NVTX's headers (and libnvToolsExt of old) look for a library by the environment's NVTX_INJECTION64_PATH and call its
 * InitializeInjectionNvtx2, which puts functions of its own in the place of NVTX's. That library is a stub
 * (zluda/trace/nvtx_stub.py) which jumps to `initialize`. What comes goes to `sink`, a function of the agent's
 * (ranges.c), once there is one. Numbers and structures are those of nvtxTypes.h and nvToolsExt.h, NVTX version 3.
 */
#include <glib.h>
#include <string.h>

typedef guint8 u8;
typedef guint32 u32;
typedef guint64 u64;

extern void (* volatile sink) (u32 kind, const char * message, const char * domain, u64 id);
extern u64 next_range;

enum { MARK, PUSH, POP, START, END };

#define CALLBACKS_TABLE 1              /* NVTX_ETID_CALLBACKS */
#define MODULE_CORE 1                  /* NVTX_CB_MODULE_ */
#define MODULE_CORE2 5
#define NO_PUSH_POP_TRACKING (-2)

struct callbacks
{
  u64 size;
  int (* table) (u32 module, void **** functions, u32 * count);
};

/* nvtxEventAttributes_t */
struct attributes
{
  guint16 version, size;
  u32 category, color_type, color, payload_type, reserved;
  u64 payload;
  u32 message_type;                    /* MESSAGE_ */
  const void * message;
};

enum { MESSAGE_NONE, MESSAGE_TEXT, MESSAGE_WIDE, MESSAGE_REGISTERED };

static void
tell (u32 kind, const char * message, const char * domain, u64 id)
{
  if (sink != NULL)
    sink (kind, message, domain, id);
}

/* A wide string as UTF-8, to be freed. */
static char *
narrow (const u32 * wide)
{
  u32 length = 0, at = 0;
  char * text;

  while (wide != NULL && wide[length] != 0)
    length++;
  text = g_malloc0 (4 * length + 1);
  for (; length != 0; length--, wide++)
    if (*wide < 0x80)
      text[at++] = (char) *wide;
    else
    {
      u32 more = *wide < 0x800 ? 1 : *wide < 0x10000 ? 2 : 3, lead = (0xff00 >> (more + 1)) & 0xff;

      text[at++] = (char) (lead | *wide >> 6 * more);
      while (more-- != 0)
        text[at++] = (char) (0x80 | (*wide >> 6 * more & 0x3f));
    }
  return text;
}

static void
tell_wide (u32 kind, const u32 * message, u64 id)
{
  char * text = narrow (message);

  tell (kind, text, NULL, id);
  g_free (text);
}

static void
tell_attributes (u32 kind, const char * domain, const struct attributes * attributes, u64 id)
{
  char * text;

  if (attributes == NULL || attributes->message == NULL || attributes->message_type == MESSAGE_NONE)
    tell (kind, "", domain, id);
  else if (attributes->message_type != MESSAGE_WIDE)
    tell (kind, attributes->message, domain, id);
  else
  {
    text = narrow (attributes->message);
    tell (kind, text, domain, id);
    g_free (text);
  }
}

static u64
new_range (void)
{
  u64 value = 1, * where = &next_range;

  __asm__ volatile ("lock; xaddq %0, %1" : "+r" (value), "+m" (*where) : : "memory");
  return value;
}

/* --- the core module ------------------------------------------------------------------------------------- */

static void mark_ex (const struct attributes * a) { tell_attributes (MARK, NULL, a, 0); }
static void mark_a (const char * message) { tell (MARK, message, NULL, 0); }
static void mark_w (const u32 * message) { tell_wide (MARK, message, 0); }

static u64
start_ex (const struct attributes * attributes)
{
  u64 id = new_range ();

  tell_attributes (START, NULL, attributes, id);
  return id;
}

static u64
start_a (const char * message)
{
  u64 id = new_range ();

  tell (START, message, NULL, id);
  return id;
}

static u64
start_w (const u32 * message)
{
  u64 id = new_range ();

  tell_wide (START, message, id);
  return id;
}

static void end (u64 id) { tell (END, NULL, NULL, id); }

static int
push_ex (const struct attributes * attributes)
{
  tell_attributes (PUSH, NULL, attributes, 0);
  return NO_PUSH_POP_TRACKING;
}

static int
push_a (const char * message)
{
  tell (PUSH, message, NULL, 0);
  return NO_PUSH_POP_TRACKING;
}

static int
push_w (const u32 * message)
{
  tell_wide (PUSH, message, 0);
  return NO_PUSH_POP_TRACKING;
}

static int
pop (void)
{
  tell (POP, NULL, NULL, 0);
  return NO_PUSH_POP_TRACKING;
}

/* --- domains: a handle is the domain's name ----------------------------------------------------------------- */

static void domain_mark (const char * domain, const struct attributes * a) { tell_attributes (MARK, domain, a, 0); }

static u64
domain_start (const char * domain, const struct attributes * attributes)
{
  u64 id = new_range ();

  tell_attributes (START, domain, attributes, id);
  return id;
}

static void domain_end (const char * domain, u64 id) { tell (END, NULL, domain, id); }

static int
domain_push (const char * domain, const struct attributes * attributes)
{
  tell_attributes (PUSH, domain, attributes, 0);
  return NO_PUSH_POP_TRACKING;
}

static int
domain_pop (const char * domain)
{
  tell (POP, NULL, domain, 0);
  return NO_PUSH_POP_TRACKING;
}

static char *
kept (const char * text)
{
  u64 size = text != NULL ? strlen (text) + 1 : 1;
  char * copy = g_malloc0 (size);

  if (text != NULL)
    memcpy (copy, text, size);
  return copy;
}

static void * domain_register_a (const char * domain, const char * text) { return kept (text); }
static void * domain_register_w (const char * domain, const u32 * text) { return narrow (text); }
static void * domain_create_a (const char * name) { return kept (name); }
static void * domain_create_w (const u32 * name) { return narrow (name); }

/* --- taking their place --------------------------------------------------------------------------------------- */

struct place { u32 module, index; void * function; };

/* NVTX_CBID_CORE_, NVTX_CBID_CORE2_ */
static const struct place places[] = {
  { MODULE_CORE, 1, mark_ex }, { MODULE_CORE, 2, mark_a }, { MODULE_CORE, 3, mark_w },
  { MODULE_CORE, 4, start_ex }, { MODULE_CORE, 5, start_a }, { MODULE_CORE, 6, start_w }, { MODULE_CORE, 7, end },
  { MODULE_CORE, 8, push_ex }, { MODULE_CORE, 9, push_a }, { MODULE_CORE, 10, push_w }, { MODULE_CORE, 11, pop },
  { MODULE_CORE2, 1, domain_mark }, { MODULE_CORE2, 2, domain_start }, { MODULE_CORE2, 3, domain_end },
  { MODULE_CORE2, 4, domain_push }, { MODULE_CORE2, 5, domain_pop },
  { MODULE_CORE2, 10, domain_register_a }, { MODULE_CORE2, 11, domain_register_w },
  { MODULE_CORE2, 12, domain_create_a }, { MODULE_CORE2, 13, domain_create_w },
};

/* InitializeInjectionNvtx2: 1 on success. */
int
initialize (const void * (* export_table) (u32 id))
{
  const struct callbacks * callbacks = export_table (CALLBACKS_TABLE);
  void *** functions;
  u32 index, count;

  if (callbacks == NULL || callbacks->size < sizeof (struct callbacks))
    return 0;
  for (index = 0; index != sizeof (places) / sizeof (places[0]); index++)
    if (callbacks->table (places[index].module, &functions, &count) && places[index].index < count
        && functions[places[index].index] != NULL)
      *functions[places[index].index] = places[index].function;
  return 1;
}
