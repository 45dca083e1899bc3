// Faults on purpose. Preloaded (LD_PRELOAD), this library stands between a program and the C library, and sees every
// operation that changes files below the directory FAULTS_ROOT. Each is a point, named by its kind, its file and how many of
// that kind the file has had: names do not depend on the order of threads. Points are written to the file FAULTS_LOG. At the
// point FAULTS_AT, FAULTS_HOW happens:
//   fail    the operation fails once: no space, or an error of the disk where space does not matter
//   full    a write is cut short, and from then on nothing that takes space succeeds
//   kill    SIGKILL before the operation; in the middle of a write
//   killed  SIGKILL after the operation
//   signal  SIGINT before the operation, as by Ctrl-C; it goes on a little later
// With FAULTS_NO_EXCHANGE, two files cannot be exchanged, as on many network file systems; with FAULTS_NO_LOCKS files cannot be
// locked, with FAULTS_NO_PROC there is no /proc, and with FAULTS_THREADS no more than so many threads are started. FAULTS_PROGRAM
// limits all that to one program, for those that a shell starts.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum { NOTHING, FAIL, CUT, KILL, KILLED, SIGNAL };

static const char *root, *at, *how;
static int log_file = -1, no_exchange, no_locks, no_proc, full;
static long threads = LONG_MAX;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct count { char *name; long n; struct count *next; } *counts;

__attribute__((constructor)) static void start(void) {
    const char *log = getenv("FAULTS_LOG");
    root = getenv("FAULTS_ROOT");
    at = getenv("FAULTS_AT");
    how = getenv("FAULTS_HOW");
    no_exchange = getenv("FAULTS_NO_EXCHANGE") != NULL;
    if (log) log_file = syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    const char *program = getenv("FAULTS_PROGRAM"), *allowed = getenv("FAULTS_THREADS");
    char own[PATH_MAX] = "";
    if (program && (readlink("/proc/self/exe", own, PATH_MAX - 1) < 0 || strcmp(own, program))) return;
    no_locks = getenv("FAULTS_NO_LOCKS") != NULL;
    no_proc = getenv("FAULTS_NO_PROC") != NULL;
    if (allowed) threads = atol(allowed);
}

static void note(const char *text) {
    if (log_file >= 0) syscall(SYS_write, log_file, text, strlen(text));
}

static void die(void) {
    kill(getpid(), SIGKILL);
    for (;;) pause();
}

// The path of an open file, or of `name` in the open directory `fd`; 0 if that is not below the root.
static int below(int fd, const char *name, char *out) {
    char path[2 * PATH_MAX] = "", link[64];
    if (!root) return 0;
    if (!name || name[0] != '/') {
        if (fd == AT_FDCWD) snprintf(link, sizeof link, "/proc/self/cwd");
        else snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        ssize_t n = readlink(link, path, PATH_MAX - 1);
        if (n < 0) return 0;
        path[n] = 0;
    }
    if (name) {
        if (name[0] != '/') strcat(path, "/");
        strncat(path, name, PATH_MAX);
    }
    size_t length = strlen(root);
    if (strncmp(path, root, length) || (path[length] != '/' && path[length])) return 0;
    // The number of the process becomes PID, and a newline would end the log's line.
    char pid[32];
    snprintf(pid, sizeof pid, ".partial-%d-", getpid());
    const char *from = path + length + (path[length] == '/');
    while (*from) {
        if (!strncmp(from, pid, strlen(pid))) {
            strcpy(out, ".partial-PID-");
            out += strlen(out);
            from += strlen(pid);
        } else {
            *out++ = *from == '\n' ? '?' : *from;
            from++;
        }
    }
    *out = 0;
    return 1;
}

// Notes a point, and says what is to happen there.
static int point(const char *kind, const char *path, int takes_space) {
    char name[3 * PATH_MAX], line[3 * PATH_MAX + 64];
    snprintf(name, sizeof name, "%s\t%s", kind, path);
    pthread_mutex_lock(&lock);
    struct count *c = counts;
    while (c && strcmp(c->name, name)) c = c->next;
    if (!c) {
        c = calloc(1, sizeof *c);
        c->name = strdup(name);
        c->next = counts;
        counts = c;
    }
    snprintf(line, sizeof line, "%s\t%ld", name, ++c->n);
    int here = at && how && !strcmp(line, at), todo = NOTHING;
    if (here)
        todo = !strcmp(how, "fail")   ? FAIL
             : !strcmp(how, "full")   ? CUT
             : !strcmp(how, "kill")   ? KILL
             : !strcmp(how, "killed") ? KILLED
                                      : SIGNAL;
    if (full && takes_space) todo = FAIL;
    if (todo == CUT) full = 1;
    pthread_mutex_unlock(&lock);
    strcat(line, here ? "\thit\n" : "\n");
    note(line);
    if (todo == SIGNAL) {
        kill(getpid(), SIGINT);
        // The program may notice the signal first, or after the operation: both happen.
        usleep(2000);
    }
    return todo;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

// An operation that is whole or not done at all.
#define WHOLE(kind, path, takes_space, error, call)                          \
    do {                                                                     \
        int todo = point(kind, path, takes_space);                           \
        if (todo == KILL) die();                                             \
        if (todo == FAIL || todo == CUT) return errno = error, -1;           \
        __typeof__(call) result = call;                                      \
        if (todo == KILLED) die();                                           \
        return result;                                                       \
    } while (0)

// A write of `length` bytes, which may be done by half.
#define WRITE(length, part, call)                                            \
    do {                                                                     \
        char path[2 * PATH_MAX];                                             \
        if (!below(fd, NULL, path)) return call;                             \
        int todo = point("write", path, 1);                                  \
        if (todo == FAIL || (todo == CUT && (length) < 2)) return errno = ENOSPC, -1; \
        if (todo == CUT || todo == KILL) {                                   \
            ssize_t result = part;                                           \
            if (todo == KILL) die();                                         \
            return result;                                                   \
        }                                                                    \
        ssize_t result = call;                                               \
        if (todo == KILLED) die();                                           \
        return result;                                                       \
    } while (0)

ssize_t write(int fd, const void *from, size_t n) {
    WRITE(n, REAL(write)(fd, from, n / 2), REAL(write)(fd, from, n));
}

ssize_t pwrite(int fd, const void *from, size_t n, off_t offset) {
    WRITE(n, REAL(pwrite)(fd, from, n / 2, offset), REAL(pwrite)(fd, from, n, offset));
}

ssize_t pwrite64(int fd, const void *from, size_t n, off64_t offset) {
    WRITE(n, REAL(pwrite64)(fd, from, n / 2, offset), REAL(pwrite64)(fd, from, n, offset));
}

ssize_t writev(int fd, const struct iovec *parts, int n) {
    size_t first = n > 0 ? parts[0].iov_len : 0;
    WRITE(first, REAL(write)(fd, parts[0].iov_base, first / 2), REAL(writev)(fd, parts, n));
}

ssize_t copy_file_range(int from, off64_t *from_at, int fd, off64_t *to_at, size_t n, unsigned flags) {
    WRITE(n, REAL(copy_file_range)(from, from_at, fd, to_at, n / 2, flags), REAL(copy_file_range)(from, from_at, fd, to_at, n, flags));
}

ssize_t sendfile64(int fd, int from, off64_t *from_at, size_t n) {
    WRITE(n, REAL(sendfile64)(fd, from, from_at, n / 2), REAL(sendfile64)(fd, from, from_at, n));
}

#define OF_FILE(kind, takes_space, error, call)                              \
    do {                                                                     \
        char path[2 * PATH_MAX];                                             \
        if (!below(fd, NULL, path)) return call;                             \
        WHOLE(kind, path, takes_space, error, call);                         \
    } while (0)

int fsync(int fd) { OF_FILE("sync", 0, EIO, REAL(fsync)(fd)); }
int fdatasync(int fd) { OF_FILE("sync", 0, EIO, REAL(fdatasync)(fd)); }
int ftruncate(int fd, off_t n) { OF_FILE("truncate", 0, EIO, REAL(ftruncate)(fd, n)); }
int ftruncate64(int fd, off64_t n) { OF_FILE("truncate", 0, EIO, REAL(ftruncate64)(fd, n)); }
int fallocate(int fd, int mode, off_t from, off_t n) { OF_FILE("allocate", 1, ENOSPC, REAL(fallocate)(fd, mode, from, n)); }
int fallocate64(int fd, int mode, off64_t from, off64_t n) {
    OF_FILE("allocate", 1, ENOSPC, REAL(fallocate64)(fd, mode, from, n));
}
int fchmod(int fd, mode_t mode) { OF_FILE("chmod", 0, EPERM, REAL(fchmod)(fd, mode)); }

#define OF_NAME(kind, fd, name, takes_space, error, call)                    \
    do {                                                                     \
        char path[2 * PATH_MAX];                                             \
        if (!below(fd, name, path)) return call;                             \
        WHOLE(kind, path, takes_space, error, call);                         \
    } while (0)

#define OPEN(fd, call)                                                       \
    do {                                                                     \
        if (no_proc && !strncmp(name, "/proc/", 6)) return errno = ENOENT, -1; \
        mode_t mode = 0;                                                     \
        if (flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE) {                                 \
            va_list more;                                                    \
            va_start(more, flags);                                           \
            mode = va_arg(more, mode_t);                                     \
            va_end(more);                                                    \
        }                                                                    \
        if (!(flags & (O_CREAT | O_TRUNC))) return call;                     \
        OF_NAME("create", fd, name, 1, ENOSPC, call);                        \
    } while (0)

int open(const char *name, int flags, ...) { OPEN(AT_FDCWD, REAL(open)(name, flags, mode)); }
int open64(const char *name, int flags, ...) { OPEN(AT_FDCWD, REAL(open64)(name, flags, mode)); }
int openat(int fd, const char *name, int flags, ...) { OPEN(fd, REAL(openat)(fd, name, flags, mode)); }
int openat64(int fd, const char *name, int flags, ...) { OPEN(fd, REAL(openat64)(fd, name, flags, mode)); }

int mkdir(const char *name, mode_t mode) { OF_NAME("mkdir", AT_FDCWD, name, 1, ENOSPC, REAL(mkdir)(name, mode)); }
int mkdirat(int fd, const char *name, mode_t mode) { OF_NAME("mkdir", fd, name, 1, ENOSPC, REAL(mkdirat)(fd, name, mode)); }
int unlink(const char *name) { OF_NAME("remove", AT_FDCWD, name, 0, EIO, REAL(unlink)(name)); }
int unlinkat(int fd, const char *name, int flags) { OF_NAME("remove", fd, name, 0, EIO, REAL(unlinkat)(fd, name, flags)); }
int rmdir(const char *name) { OF_NAME("remove", AT_FDCWD, name, 0, EIO, REAL(rmdir)(name)); }
int chmod(const char *name, mode_t mode) { OF_NAME("chmod", AT_FDCWD, name, 0, EPERM, REAL(chmod)(name, mode)); }
int link(const char *a, const char *b) { OF_NAME("link", AT_FDCWD, b, 1, ENOSPC, REAL(link)(a, b)); }
int symlink(const char *a, const char *b) { OF_NAME("link", AT_FDCWD, b, 1, ENOSPC, REAL(symlink)(a, b)); }
int linkat(int a, const char *from, int b, const char *to, int flags) {
    OF_NAME("link", b, to, 1, ENOSPC, REAL(linkat)(a, from, b, to, flags));
}
int rename(const char *a, const char *b) { OF_NAME("rename", AT_FDCWD, a, 0, EIO, REAL(rename)(a, b)); }
int renameat(int from, const char *a, int to, const char *b) { OF_NAME("rename", from, a, 0, EIO, REAL(renameat)(from, a, to, b)); }
int renameat2(int from, const char *a, int to, const char *b, unsigned flags) {
    if (no_exchange && flags & 2) return errno = EINVAL, -1;
    OF_NAME(flags & 2 ? "exchange" : "rename", from, a, 0, EIO, REAL(renameat2)(from, a, to, b, flags));
}
int flock(int fd, int operation) {
    if (no_locks) return errno = ENOLCK, -1;
    OF_FILE("lock", 0, ENOLCK, REAL(flock)(fd, operation));
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *argument) {
    static long started;
    if (__atomic_add_fetch(&started, 1, __ATOMIC_RELAXED) > threads) return EAGAIN;
    return REAL(pthread_create)(thread, attributes, run, argument);
}
