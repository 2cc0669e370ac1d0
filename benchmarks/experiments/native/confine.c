/* Landlock and seccomp for the calling process, from inside of it, and a supervisor that lists system calls.

   confine_paths(read_only, read_write): Landlock; lists of paths, ended by NULL. Gives the number of paths that could
   not be opened, or -errno. confine_calls(numbers, n): seccomp, every other call fails with EPERM, for all threads.
   confine_watch(): every call is announced to a listener; gives the listener's descriptor. confine_supervise(listener,
   seen, n, ms): counts and lets go each call until nothing came for `ms` milliseconds or the process has ended.  */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
typedef struct { uint64_t fs, net, scoped; } Ruleset; /* landlock_ruleset_attr of ABI 6 */
typedef struct { uint64_t access; int32_t parent; } __attribute__((packed)) Beneath;
enum { CREATE_RULESET = 444, ADD_RULE = 445, RESTRICT_SELF = 446 };

EXPORT int confine_abi(void) { long v = syscall(CREATE_RULESET, NULL, 0, 1); return v < 0 ? -errno : (int)v; }

EXPORT int confine_paths(const char **read_only, const char **read_write) {
  int abi = confine_abi(), missing = 0;
  if (abi < 0) return abi;
  /* Rights 0-12 are of ABI 1, refer of 2, truncate of 3, ioctl on devices of 5. */
  uint64_t all = (1ull << 13) - 1, file = 1 | 2 | 4;
  if (abi >= 2) all |= 1ull << 13;
  if (abi >= 3) { all |= 1ull << 14; file |= 1ull << 14; }
  if (abi >= 5) { all |= 1ull << 15; file |= 1ull << 15; }
  Ruleset rules = {all, abi >= 4 ? 3 : 0, abi >= 6 ? 3 : 0};
  size_t size = abi >= 6 ? 24 : abi >= 4 ? 16 : 8;
  int set = (int)syscall(CREATE_RULESET, &rules, size, 0);
  if (set < 0) return -errno;
  for (int write = 0; write < 2; write++)
    for (const char **p = write ? read_write : read_only; *p; p++) {
      struct stat s;
      Beneath rule = {write ? all : 1 | 4 | 8, open(*p, O_PATH | O_CLOEXEC)};
      if (rule.parent < 0) { missing++; continue; }
      if (!fstat(rule.parent, &s) && !S_ISDIR(s.st_mode)) rule.access &= file;
      if (syscall(ADD_RULE, set, 1, &rule, 0)) missing++;
      close(rule.parent);
    }
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || syscall(RESTRICT_SELF, set, 0)) return -errno;
  close(set);
  return missing;
}

static int filter(struct sock_filter *code, unsigned short n, unsigned flags) {
  struct sock_fprog program = {n, code};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) return -errno;
  int r = (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program);
  return r < 0 ? -errno : r;
}

EXPORT int confine_calls(const int *numbers, int n) {
  struct sock_filter *code = calloc(2 * n + 5, sizeof *code), *p = code;
  *p++ = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch));
  *p++ = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0xc000003e, 1, 0); /* x86-64 */
  *p++ = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
  *p++ = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
  for (int i = 0; i < n; i++) { /* two instructions each: a jump reaches 255 instructions at most */
    *p++ = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)numbers[i], 0, 1);
    *p++ = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  }
  *p++ = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
  return filter(code, (unsigned short)(p - code), SECCOMP_FILTER_FLAG_TSYNC);
}

EXPORT int confine_watch(void) {
  struct sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
  };
  return filter(code, 2, SECCOMP_FILTER_FLAG_NEW_LISTENER);
}

EXPORT int confine_listener(int pid, int number) { /* the listener of another process, by its number there */
  int process = (int)syscall(SYS_pidfd_open, pid, 0);
  if (process < 0) return -errno;
  int mine = (int)syscall(SYS_pidfd_getfd, process, number, 0), e = errno;
  close(process);
  return mine < 0 ? -e : mine;
}

EXPORT long confine_supervise(int listener, long *seen, int n, int ms) {
  long total = 0;
  for (;;) {
    struct pollfd p = {listener, POLLIN, 0};
    if (poll(&p, 1, ms) <= 0 || !(p.revents & POLLIN)) return total;
    struct seccomp_notif asked;
    struct seccomp_notif_resp answer;
    memset(&asked, 0, sizeof asked);
    memset(&answer, 0, sizeof answer);
    if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &asked)) { if (errno == EINTR || errno == ENOENT) continue; return total; }
    if (asked.data.nr >= 0 && asked.data.nr < n) seen[asked.data.nr]++;
    total++;
    answer.id = asked.id;
    answer.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
    ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &answer);
  }
}
