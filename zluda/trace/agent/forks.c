/* Lets the program fork in one thread at a time, and keeps `vfork` what it is.
 *
 * Frida's own hook of fork keeps what it knows of the fork under way in one place: threads that fork together get each
 * other's child, and the program dies. So `fork_alone` comes before it: staying.js makes fork's first instruction,
 * Frida's jump, a jump to it. `forking` lies in a page that the kernel wipes in a child, since there the thread that
 * would let go does not exist.
 *
 * Frida has fork stand for vfork, and would bring each child an agent that the next exec throws away. Ours is the kernel's
 * again (`vfork_code` in staying.js); what it becomes is followed by execs.c.
 */
typedef unsigned int u32;
typedef unsigned long u64;

#define SYS_FORK 57

extern int getpid (void);
extern int nanosleep (const u64 * time, void * remaining);
extern long syscall (long number);
extern int * __errno_location (void);
extern int (* hooked) (void);    /* where Frida's jump leads */
extern volatile u32 forking;
extern volatile int owner;       /* of this memory, see execs.c */

int
fork_alone (void)
{
  volatile u32 * where = &forking;
  u64 pause[2];
  u32 held;
  int pid;

  if (getpid () != owner)  /* a child without an agent, maybe in its parent's memory */
    return (int) syscall (SYS_FORK);
  pause[0] = 0;
  pause[1] = 100000;
  for (;;)
  {
    held = 1;
    __asm__ volatile ("xchgl %0, %1" : "+r" (held), "+m" (*where) : : "memory");
    if (!held)
      break;
    nanosleep (pause, 0);
  }
  pid = hooked ();
  if (pid == 0)
    owner = getpid ();
  *where = 0;
  return pid;
}

/* Where vfork_code goes with the kernel's negative error number. */
int
vfork_failed (int error)
{
  *__errno_location () = -error;
  return -1;
}
