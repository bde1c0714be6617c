/* Events of the stand-in driver, by a GPU's clock that gains 100 µs a second. An event has come STANDIN_LAG microseconds
 * after it was recorded; on a stream that is captured it becomes part of the graph, and the capture is spoilt for tests. */
#include <time.h>

struct event { uint64_t gpu_ns, host_ns; };

static uint64_t
host_clock (void)
{
  struct timespec time;

  clock_gettime (CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1000000000ULL + time.tv_nsec;
}

static int
has_come (const struct event * event)
{
  static int64_t lag = -1;

  if (lag < 0)
    lag = getenv ("STANDIN_LAG") ? 1000 * atoll (getenv ("STANDIN_LAG")) : 0;
  return !stuck && host_clock () >= event->host_ns + lag;
}

API cuEventCreate (struct event ** event, unsigned flags) { *event = calloc (1, sizeof **event); return OK; }
API cuEventDestroy_v2 (struct event * event) { free (event); return OK; }
API cuEventRecord (struct event * event, void * stream)
{
  if (captures_stream (stream))
    return spoilt = 1, 901;
  event->host_ns = host_clock ();
  event->gpu_ns = event->host_ns + event->host_ns / 10000;
  return OK;
}
API cuEventSynchronize (struct event * event)
{
  while (!has_come (event))
    usleep (10);
  return OK;
}
API cuEventQuery (struct event * event) { return unsafe () ? 900 : has_come (event) ? OK : NOT_READY; }
API cuEventElapsedTime (float * ms, struct event * start, struct event * end)
{
  if (start->host_ns == 0 || end->host_ns == 0)
    return INVALID_HANDLE;
  *ms = (float) ((double) (int64_t) (end->gpu_ns - start->gpu_ns) / 1e6);
  return has_come (start) && has_come (end) ? OK : NOT_READY;
}
