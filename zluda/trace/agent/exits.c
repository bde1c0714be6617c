/* A main thread that leaves by pthread_exit while others go on: it stays, asleep, and ends the process after them. */
#include <gum/guminterceptor.h>

extern int alone (void);
extern int gettid (void);
extern int getpid (void);
extern int nanosleep (const guint64 * time, void * remaining);
extern void exit (int status);

void
enter_exit (GumInvocationContext * context)
{
  guint64 time[2];

  if (gettid () != getpid ())
    return;
  time[0] = 0;
  time[1] = 10000000;
  while (!alone ())
    nanosleep (time, NULL);
  exit (0);
}
