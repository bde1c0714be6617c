/* Has the session follow children: into what they are after a fork (forks.c), and into the program that a process becomes.
 *
 * A process that is about to execute another program says so to the session (zluda/trace/following.py), by a socket, and
 * which of its threads it is; it waits for a byte, and executes it. Most such processes are children without an agent: of
 * `vfork`, `posix_spawn`, `system`, which until then run in their parent's memory, on their parent's stack and thread-local
 * storage. So nothing is written here but to the stack and errno. A session that is gone refuses or closes the connection.
 *
 * What stands here is for all recordings of the process, and for all that are forked from it: the session's name in
 * `following` is what a later recording changes.
 */
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long u64;
typedef long i64;

struct following
{
  volatile int owner;   /* the process whose memory this is, see descriptors.c */
  u32 address_size;     /* 0: nobody follows */
  u16 family;           /* a `struct sockaddr_un` from here on */
  char name[108];
};

extern struct following following;
extern int access (const char * path, int mode);
extern int socket (int domain, int type, int protocol);
extern int connect (int fd, const void * address, u32 size);
extern int setsockopt (int fd, int level, int name, const void * value, u32 size);
extern i64 send (int fd, const void * data, u64 size, int flags);
extern i64 recv (int fd, void * data, u64 size, int flags);
extern int close (int fd);
extern i64 syscall (i64 number, const void * first, const void * second, const void * third);
extern int * __errno_location (void);

#define AF_UNIX 1
#define SOCK_STREAM_CLOEXEC (1 | 02000000)
#define MSG_NOSIGNAL 0x4000
#define SOL_SOCKET 1
#define SO_RCVTIMEO 20
#define PATIENCE 120 /* seconds: a session that is stopped stops nobody else for good */
#define X_OK 1
#define EINTR 4
#define SYS_EXECVE 59
#define SYS_GETTID 186

static int
interrupted (void)
{
  return *__errno_location () == EINTR;
}

/* Say something, with its zero byte; 0: nobody is there. */
static int
say (int fd, const char * text)
{
  u64 size = 0;

  while (text[size] != 0)
    size++;
  return send (fd, text, size + 1, MSG_NOSIGNAL) == (i64) size + 1;
}

static int
is_answered (int fd)
{
  i64 got;
  char answer;

  do
    got = recv (fd, &answer, 1, 0);
  while (got < 0 && interrupted ());
  return got == 1;
}

static int
reach (int fd)
{
  u64 patience[2];
  int failed;

  patience[0] = PATIENCE;
  patience[1] = 0;
  setsockopt (fd, SOL_SOCKET, SO_RCVTIMEO, patience, sizeof patience);
  do
    failed = connect (fd, &following.family, following.address_size);
  while (failed != 0 && interrupted ());
  return failed == 0;
}

/* The connection to the session, which has answered what it was told: what is being done, by or in which process, and with
 * which file; -1: there is none. */
static int
tell_session (char what, u32 id, const char * path)
{
  char head[16], * digit = head + sizeof head;
  int fd = socket (AF_UNIX, SOCK_STREAM_CLOEXEC, 0);

  if (fd < 0)
    return -1;
  *--digit = 0;
  do
    *--digit = (char) ('0' + id % 10);
  while ((id /= 10) != 0);
  *--digit = what;
  if (reach (fd) && say (fd, digit) && say (fd, path) && is_answered (fd))
    return fd;
  close (fd);
  return -1;
}

/* In a forked child: there, or not, is an agent when this returns. */
void
tell_fork (int parent)
{
  int fd = following.address_size == 0 ? -1 : tell_session ('F', (u32) parent, "");

  if (fd >= 0)
    close (fd);
}

int
followed_exec (const char * path, char * const * arguments, char * const * environment)
{
  int fd = -1, failed;

  /* execvp and its like try directory after directory. */
  if (following.address_size != 0 && path != 0 && access (path, X_OK) == 0)
    fd = tell_session ('E', (u32) syscall (SYS_GETTID, 0, 0, 0), path);
  syscall (SYS_EXECVE, path, arguments, environment);
  failed = *__errno_location ();
  if (fd >= 0)
  {
    if (say (fd, ""))  /* it stays what it is: the session lets go of it */
      is_answered (fd);
    close (fd);
  }
  *__errno_location () = failed;
  return -1;
}
