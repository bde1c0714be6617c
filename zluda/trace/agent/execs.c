/* Has the session follow a child into the program that it becomes.
 *
 * Frida's hook of execve speaks to the session through the process's own agent. A child that has none (one of `vfork`,
 * `posix_spawn`, `system`, which until then runs in its parent's memory, on its parent's stack and thread-local storage;
 * one of a bare `clone`) would do so in its parent's name, and leave there what only the return of execve takes back.
 * So `followed_exec` comes before Frida's hook, and such a child asks the session itself (zluda/trace/following.py): it
 * says what it is about to become, waits for a byte, and becomes it. A session that is gone closes the connection.
 *
 * Frida's hook is for processes that have an agent: `owner`, which forks.c keeps. Into `ptxas` none is to get: the session
 * traces it (zluda/trace/assemblers.py).
 */
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long u64;
typedef long i64;

struct following
{
  volatile int owner;   /* the process whose memory this is */
  u32 address_size;     /* 0: nobody follows */
  u16 family;           /* a `struct sockaddr_un` from here on */
  char name[108];
};

extern struct following following;
extern int getpid (void);
extern int access (const char * path, int mode);
extern int socket (int domain, int type, int protocol);
extern int connect (int fd, const void * address, u32 size);
extern i64 send (int fd, const void * data, u64 size, int flags);
extern i64 recv (int fd, void * data, u64 size, int flags);
extern int close (int fd);
extern i64 syscall (i64 number, const void * first, const void * second, const void * third);
extern int * __errno_location (void);
extern int (* hooked) (const char * path, char * const * arguments, char * const * environment); /* where Frida's jump leads */

#define AF_UNIX 1
#define SOCK_STREAM_CLOEXEC (1 | 02000000)
#define MSG_NOSIGNAL 0x4000
#define X_OK 1
#define EINTR 4
#define SYS_EXECVE 59

static int
is_assembler (const char * path)
{
  const char * name = path;

  for (; path != 0 && *path != 0; path++)
    if (*path == '/')
      name = path + 1;
  return name != 0 && name[0] == 'p' && name[1] == 't' && name[2] == 'x' && name[3] == 'a' && name[4] == 's';
}

/* Say something and wait for the answer; 0: nobody is there. */
static int
ask (int fd, const char * text)
{
  u64 size = 0;
  i64 got;
  char answer;

  while (text[size] != 0)
    size++;
  if (send (fd, text, size + 1, MSG_NOSIGNAL) != (i64) size + 1)
    return 0;
  do
    got = recv (fd, &answer, 1, 0);
  while (got < 0 && *__errno_location () == EINTR);
  return got == 1;
}

/* The connection to the session, which has said that it is ready; -1: there is none. */
static int
tell_session (const char * path)
{
  int fd;

  /* execvp and its like try directory after directory. */
  if (following.address_size == 0 || path == 0 || access (path, X_OK) != 0)
    return -1;
  fd = socket (AF_UNIX, SOCK_STREAM_CLOEXEC, 0);
  if (fd < 0)
    return -1;
  if (connect (fd, &following.family, following.address_size) == 0 && ask (fd, path))
    return fd;
  close (fd);
  return -1;
}

int
followed_exec (const char * path, char * const * arguments, char * const * environment)
{
  int fd, failed;

  if (getpid () == following.owner && !(following.address_size != 0 && is_assembler (path)))
    return hooked (path, arguments, environment);
  fd = tell_session (path);
  syscall (SYS_EXECVE, path, arguments, environment);
  failed = *__errno_location ();
  if (fd >= 0)
  {
    ask (fd, "");  /* it stays what it is: the session lets go of it */
    close (fd);
  }
  *__errno_location () = failed;
  return -1;
}
