/* Has the session get an agent into forked children that have a use for one.
 *
 * Nothing that the program's own fork needs lies outside the program: of a session that is killed at any moment it notices
 * nothing. (Frida's own hook of fork asks its session before and after, and ends the program where that is gone. So Frida is
 * not told to follow children.) Of the child, which has no thread but this one, and none of its parent's agents' any more:
 *
 * - where the driver is hooked (`first.enter`), it goes on at once. Its first call of the driver or of a library asks the
 *   session, and waits. Most children never make one; and a session that is killed while Frida gets in ends the child.
 * - Else the agent is needed to see the driver come, and the session is asked before fork returns.
 *
 * A session that is gone refuses the connection, or closes it.
 */
typedef unsigned int u32;
typedef unsigned long u64;
/* What calls are entered with; the hooks' memory begins with one for each kind of hook, 0 where there is none. */
typedef void (* handler) (u64 first_argument, u64 second, u64 third, u64 fourth);

struct first
{
  volatile handler * enter;  /* of the hooks (resident.c), where they are there; NULL: the driver is not hooked */
  void (* ask) (void);       /* `ask_at_first_use`, for calls of libraries (hooks.c) */
  volatile u32 waiting;      /* in a forked child: nobody has been asked for an agent yet, or not answered */
  volatile u32 asked;
  int parent;
};

extern struct first first;
extern int (* real_fork) (void);    /* the C library's own */
extern void tell_fork (int parent); /* see execs.c */
extern void forget_agents (void);   /* see descriptors.c */
extern int getpid (void);
extern int nanosleep (const u64 * time, void * remaining);
extern int * __errno_location (void);

static void enter_first (u64 first_argument, u64 second, u64 third, u64 fourth);
static void enter_thin_first (u64 first_argument, u64 second, u64 third, u64 fourth);

void
ask_at_first_use (void)
{
  volatile u32 * place = &first.asked;  /* assembly has no way to what is outside of the module */
  u64 pause[2];
  u32 asked = 1;
  int before = *__errno_location ();

  pause[0] = 0;
  pause[1] = 1000000;
  __asm__ volatile ("xchgl %0, %1" : "+r" (asked), "+m" (*place) : : "memory");
  if (!asked)
  {
    tell_fork (first.parent);
    if (first.enter[0] == enter_first)  /* none came */
      first.enter[0] = 0;
    if (first.enter[1] == enter_thin_first)
      first.enter[1] = 0;
    first.waiting = 0;
  }
  while (first.waiting)
    nanosleep (pause, 0);
  *__errno_location () = before;
}

/* In the place of the hooks' handlers, until there is an agent whose handlers those are. */
static void
enter_first (u64 first_argument, u64 second, u64 third, u64 fourth)
{
  ask_at_first_use ();
  if (first.enter[0] != 0)
    first.enter[0] (first_argument, second, third, fourth);
}

static void
enter_thin_first (u64 first_argument, u64 second, u64 third, u64 fourth)
{
  ask_at_first_use ();
  if (first.enter[1] != 0)
    first.enter[1] (first_argument, second, third, fourth);
}

int
followed_fork (void)
{
  int parent = getpid (), before = *__errno_location (), child = real_fork ();

  if (child != 0)
    return child;
  forget_agents ();
  first.parent = parent;
  first.asked = 0;
  first.waiting = first.enter != 0;
  if (!first.waiting)
    tell_fork (parent);
  else
  {
    if (first.enter[0] != 0)
      first.enter[0] = enter_first;
    if (first.enter[1] != 0)
      first.enter[1] = enter_thin_first;
  }
  *__errno_location () = before;
  return 0;
}
