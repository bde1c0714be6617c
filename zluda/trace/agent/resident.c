/* The functions that Frida calls around driver entries that get floats, structures, or what no header declares; around the
 * others stands code of agent.js's own (`thinCode`). They stay in the process for good, and pass calls on to the
 * recording that is under way, if any: hooks that were taken out, or put in a second time, might meet a thread inside them.
 *
 * `hooks` lies in memory that a later recording finds by its name, and that a forked child has a copy of.
 */
#include <gum/guminterceptor.h>

typedef void (* handler) (GumInvocationContext * context);

struct hooks
{
  volatile handler enter;   /* of the recording; NULL: there is none */
  volatile handler thin[2]; /* likewise, for thinCode */
};

extern struct hooks hooks;

/* What a recording keeps with a call begins with its own function for the return, or NULL. */
struct invocation
{
  handler leave;
};

void
resident_enter (GumInvocationContext * context)
{
  handler enter = hooks.enter;

  GUM_IC_GET_INVOCATION_DATA (context, struct invocation)->leave = NULL;
  if (enter != NULL)
    enter (context);
}

void
resident_leave (GumInvocationContext * context)
{
  handler leave = GUM_IC_GET_INVOCATION_DATA (context, struct invocation)->leave;

  if (leave != NULL)
    leave (context);
}
