/* Lets the program fork in one thread at a time.
 *
 * Frida's own hook of fork (which stands for vfork too) keeps what it knows of the fork under way in one place:
 * threads that fork together, as when several start subprocesses, get each other's child, and the program dies. So
 * `fork_alone` comes before it: staying.js makes fork's first instruction, Frida's jump, a jump to it. `forking` lies in
 * a page that the kernel wipes in a child, since there the thread that would let go does not exist.
 */
typedef unsigned int u32;
typedef unsigned long u64;

extern int nanosleep (const u64 * time, void * remaining);
extern int hooked_fork (void);   /* where Frida's jump leads */
extern volatile u32 forking;

int
fork_alone (void)
{
  volatile u32 * where = &forking;
  u64 pause[2];
  u32 held;
  int pid;

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
  pid = hooked_fork ();
  *where = 0;
  return pid;
}
