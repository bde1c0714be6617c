/* Keeps Frida's file descriptors open where the program closes descriptors that are not its own.
 *
 * Programs that become daemons, and children before they execute another program, close all that they inherited: whole
 * ranges (Python's subprocess does, by close_range), or number by number. With its connection gone, Frida would take the
 * session for gone, and with it what was to wait for the driver.
 * Who has no agent has nothing to keep: a forked child to which none has come yet, one in its parent's memory (of `vfork`).
 * A module of its own: it is in place before there is a driver. `kept` is written by each agent that comes.
 */
typedef unsigned int u32;
typedef unsigned long u64;

struct kept
{
  u64 code, code_end;            /* of the agent whose they are, which may close them */
  u64 bits[MAX_DESCRIPTOR / 64]; /* by descriptor; staying.js looks here before anything else */
  u32 count;
  u32 descriptors[MAX_KEPT];     /* in ascending order, those that Frida has closed since among them */
};

extern struct kept kept;
extern volatile int owner;      /* the process whose memory this is, see execs.c */
extern volatile u64 agent_count; /* see exits.c */
extern int getpid (void);
extern int (* real_close) (int fd);
extern int close_range (u32 first, u32 last, int flags);
extern int * __errno_location (void);

#define EBADF 9

static int
is_kept (u32 fd)
{
  return (int) (kept.bits[fd >> 6] >> (fd & 63) & 1);
}

/* Of a descriptor that is kept; `caller` is where close returns to. */
int
close_but_kept (int fd, u64 caller)
{
  if (getpid () != owner)
    return real_close (fd);
  if (caller >= kept.code && caller < kept.code_end)
  {
    kept.bits[fd >> 6] &= ~(1ULL << (fd & 63)); /* from now on it is whose it becomes */
    return real_close (fd);
  }
  *__errno_location () = EBADF;
  return -1;
}

int
close_range_but_kept (u32 first, u32 last, int flags)
{
  u32 i, descriptor;
  int result = 0;

  if (first > last /* refused */ || getpid () != owner)
    return close_range (first, last, flags);
  for (i = 0; i != kept.count && first <= last; i++)
  {
    descriptor = kept.descriptors[i];
    if (descriptor < first || !is_kept (descriptor))
      continue;
    if (descriptor > last)
      break;
    if (descriptor > first && close_range (first, descriptor - 1, flags) != 0)
      result = -1;
    if (descriptor == last)
      return result;
    first = descriptor + 1;
  }
  return close_range (first, last, flags) != 0 ? -1 : result;
}

void
closefrom_but_kept (int lowest)
{
  close_range_but_kept (lowest < 0 ? 0 : (u32) lowest, ~0U, 0);
}

/* In a forked child: its parent's agents are not there, and what it has of their descriptors keeps nobody's connection. */
void
forget_agents (void)
{
  u32 i;

  for (i = 0; i != kept.count; i++)
    if (is_kept (kept.descriptors[i]))
      real_close ((int) kept.descriptors[i]);
  for (i = 0; i != MAX_DESCRIPTOR / 64; i++)
    kept.bits[i] = 0;
  kept.count = 0;
  agent_count = 0;
  owner = getpid ();
}
