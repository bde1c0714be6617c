/* Tells which process is about to become another program.
 *
 * A child of `posix_spawn` (and so of `system` and `popen`) calls execve in its parent's memory. Frida then has the
 * parent's agent dispose of its scripts, as if the parent were the one to go. So `told_exec` comes before Frida's hook,
 * as fork_alone does (forks.c), and agent.js asks who it was.
 */
extern int getpid (void);
extern int hooked_exec (const char * path, char * const * arguments, char * const * environment);
extern volatile int becoming;

int
told_exec (const char * path, char * const * arguments, char * const * environment)
{
  becoming = getpid ();
  return hooked_exec (path, arguments, environment);
}
