/* Keeps Frida's file descriptors open where the program closes whole ranges of them.
 *
 * Between `fork` and `exec` programs close what the new program is not to inherit (Python's subprocess does, by
 * close_range). Frida's connection among them, Frida would wait for ever for an answer to what it says at `exec`.
 * A child without an agent (execs.c) has no such connection.
 * A module of its own: it is in place before there is a driver. `kept` is written once, in ascending order.
 */
typedef unsigned int u32;

struct kept
{
  u32 count;
  u32 descriptors[MAX_KEPT];
};

extern const struct kept kept;
extern volatile int owner;  /* the process whose memory this is, see execs.c */
extern int getpid (void);
extern int close_range (u32 first, u32 last, int flags);

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
    if (descriptor < first)
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
