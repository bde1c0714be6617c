/* Not linked with libcuda: loads it late, as the CUDA runtime does. Leaves without running atexit handlers. */
#include <dlfcn.h>
#include <stdint.h>
#include <unistd.h>

int
main (int argc, char ** argv)
{
  void * driver = dlopen (argv[1], RTLD_NOW);
  int (* init) (unsigned) = dlsym (driver, "cuInit");
  int (* count) (int *) = dlsym (driver, "cuDeviceGetCount");
  int devices = 0;

  init (0);
  count (&devices);
  _exit (devices == 1 ? 0 : 1);
}
