/* A main thread that leaves by pthread_exit while others go on: it stays, asleep, and ends the process after them.
 *
 * Threads are looked up in /proc: Frida's own list of them stops each one to read its registers.
 */
#include <gum/guminterceptor.h>

extern int gettid (void);
extern int getpid (void);
extern int nanosleep (const guint64 * time, void * remaining);
extern void * opendir (const char * path);
extern char * readdir (void * directory);
extern int closedir (void * directory);
extern void exit (int status);

#define NAME 19 /* of `struct dirent` */

/* Each recording of the process has brought an agent of Frida's, which knows its own threads. */
struct agents
{
  volatile guint64 count;
  struct
  {
    void * place;
    int (* is_fridas) (int thread);
  } agent[];
};

extern struct agents agents;

static int
is_fridas (int thread)
{
  guint64 number;

  for (number = 0; number != agents.count; number++)
    if (agents.agent[number].is_fridas (thread))
      return 1;
  return 0;
}

static int
is_alone (void)
{
  void * directory = opendir ("/proc/self/task");
  char * entry;
  int alone = 1;

  if (directory == NULL)
    return 1;
  while (alone && (entry = readdir (directory)) != NULL)
  {
    int thread = 0;

    for (entry += NAME; *entry >= '0' && *entry <= '9'; entry++)
      thread = 10 * thread + (*entry - '0');
    alone = thread == 0 || thread == getpid () || is_fridas (thread);
  }
  closedir (directory);
  return alone;
}

void
enter_exit (GumInvocationContext * context)
{
  guint64 time[2];

  if (gettid () != getpid ())
    return;
  time[0] = 0;
  time[1] = 20000000;
  while (!is_alone ())
    nanosleep (time, NULL);
  exit (0);
}
