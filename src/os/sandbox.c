/* SPDX-License-Identifier: Apache-2.0 */
/* Rights given up: no_new_privs, Landlock and seccomp of Linux; the portable twin gives up nothing. */
#include "os/sandbox.h"

#include <stdio.h>
#include <string.h>

/* Sanitizers look for leaks with threads, files and ptrace. */
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define SANITIZED 1
#endif
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#endif

#if defined(__linux__) && !defined(HEARTH_POSIX) && !defined(SANITIZED) &&                                   \
    (defined(__x86_64__) || defined(__aarch64__))

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/netlink.h>
#include <linux/seccomp.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

static int refused(struct error *error, const char *what)
{
    return error_set(error, HEARTH_UNSUPPORTED, RANK_NONE, "the kernel refuses %s: %s", what,
                     strerror(errno));
}

int sandbox_privileges(struct error *error)
{
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 ? HEARTH_OK : refused(error, "no_new_privs");
}

/* ---- files: Landlock. Headers are older than kernels, so its numbers are here ---- */

#define LANDLOCK_CREATE    444 /* system calls, the same on every processor */
#define LANDLOCK_RESTRICT  446
#define LANDLOCK_VERSION   1u /* flag: asks which version there is */
#define LANDLOCK_NET_ALL   3u /* bind and connect of TCP; from version 4 */
#define LANDLOCK_SCOPE_ALL 3u /* abstract unix sockets and signals; from version 6 */

struct landlock_rules {
    uint64_t files, net, scopes;
};

/* Bits of rights to files: 13 in version 1, moving between folders in 2, cutting in 3, devices in 5. */
static uint64_t file_rights(int version)
{
    int bits = version >= 5 ? 16 : version >= 3 ? 15 : version == 2 ? 14 : 13;
    return (UINT64_C(1) << bits) - 1;
}

int sandbox_files(struct error *error)
{
    struct landlock_rules rules = {0};
    int version = (int)syscall(LANDLOCK_CREATE, NULL, (size_t)0, LANDLOCK_VERSION);
    if (version < 1)
        return refused(error, "Landlock");
    rules.files = file_rights(version);
    rules.net = version >= 4 ? LANDLOCK_NET_ALL : 0;
    rules.scopes = version >= 6 ? LANDLOCK_SCOPE_ALL : 0;
    /* An older kernel takes a longer structure if it ends in zeros. */
    int fd = (int)syscall(LANDLOCK_CREATE, &rules, sizeof rules, 0u);
    if (fd < 0)
        return refused(error, "Landlock");
    bool good = syscall(LANDLOCK_RESTRICT, fd, 0u) == 0;
    int status = good ? HEARTH_OK : refused(error, "Landlock");
    close(fd);
    return status;
}

/* ---- system calls: seccomp ---- */

#if defined(__x86_64__)
#define ARCH AUDIT_ARCH_X86_64
#else
#define ARCH AUDIT_ARCH_AARCH64
#endif
#define X32_BIT     0x40000000u /* the third set of numbers that x86-64 has */
#define PROGRAM_MAX 256
#define DENY        (SECCOMP_RET_ERRNO | EPERM)
#define TYPE_MASK   0xfu /* of a socket's type, without its flags */

/* What malloc, poll, clocks, signals and sockets of datagrams need, some of it only on one processor. */
static const uint32_t allowed[] = {
#ifdef __NR_poll
    __NR_poll,
#endif
#ifdef __NR_alarm
    __NR_alarm,
#endif
#ifdef __NR_time
    __NR_time,
#endif
    __NR_ppoll,        __NR_read,
    __NR_readv,        __NR_write,
    __NR_writev,       __NR_close,
    __NR_fcntl,        __NR_fstat,
    __NR_lseek,        __NR_bind,
    __NR_getsockname,  __NR_getsockopt,
    __NR_setsockopt,   __NR_recvfrom,
    __NR_recvmsg,      __NR_sendto,
    __NR_sendmsg,      __NR_brk,
    __NR_munmap,       __NR_mremap,
    __NR_madvise,      __NR_futex,
    __NR_getrandom,    __NR_clock_gettime,
    __NR_clock_getres, __NR_gettimeofday,
    __NR_nanosleep,    __NR_clock_nanosleep,
    __NR_setitimer,    __NR_sched_yield,
    __NR_rt_sigaction, __NR_rt_sigprocmask,
    __NR_rt_sigreturn, __NR_restart_syscall,
    __NR_getpid,       __NR_getppid,
    __NR_gettid,       __NR_getuid,
    __NR_geteuid,      __NR_uname,
    __NR_exit,         __NR_exit_group,
};

struct filter_program {
    struct sock_filter code[PROGRAM_MAX];
    unsigned short count;
};

static void put(struct filter_program *p, uint16_t code, uint8_t yes, uint8_t no, uint32_t value)
{
    if (p->count < PROGRAM_MAX)
        p->code[p->count] = (struct sock_filter){code, yes, no, value};
    p->count++;
}

static void load(struct filter_program *p, size_t offset)
{
    put(p, BPF_LD | BPF_W | BPF_ABS, 0, 0, (uint32_t)offset);
}

/* Both processors are little-endian, and the kernel takes the low half of these arguments. */
static void load_argument(struct filter_program *p, int index)
{
    load(p, offsetof(struct seccomp_data, args) + 8 * (size_t)index);
}

static void give(struct filter_program *p, uint32_t verdict)
{
    put(p, BPF_RET | BPF_K, 0, 0, verdict);
}

/* If what was loaded is `value`, that is the end. */
static void give_if(struct filter_program *p, uint32_t value, uint32_t verdict)
{
    put(p, BPF_JMP | BPF_JEQ | BPF_K, 0, 1, value);
    give(p, verdict);
}

/* What follows until `close_call` is for this system call alone; it ends with a verdict. */
static unsigned short open_call(struct filter_program *p, uint32_t number)
{
    put(p, BPF_JMP | BPF_JEQ | BPF_K, 0, 0, number);
    return (unsigned short)(p->count - 1);
}

static void close_call(struct filter_program *p, unsigned short begin)
{
    if (p->count <= PROGRAM_MAX)
        p->code[begin].jf = (uint8_t)(p->count - begin - 1);
}

/* Datagrams of the internet; unix ones, which are how the C library asks for the number of an interface; and
 * what the kernel tells about interfaces. */
static void judge_socket(struct filter_program *p)
{
    unsigned short call = open_call(p, __NR_socket);
    load_argument(p, 0);
    put(p, BPF_JMP | BPF_JEQ | BPF_K, 0, 4, AF_NETLINK);
    load_argument(p, 2);
    give_if(p, NETLINK_ROUTE, SECCOMP_RET_ALLOW);
    give(p, DENY);
    put(p, BPF_JMP | BPF_JEQ | BPF_K, 3, 0, AF_UNIX);
    put(p, BPF_JMP | BPF_JEQ | BPF_K, 2, 0, AF_INET);
    put(p, BPF_JMP | BPF_JEQ | BPF_K, 1, 0, AF_INET6);
    give(p, DENY);
    load_argument(p, 1);
    put(p, BPF_ALU | BPF_AND | BPF_K, 0, 0, TYPE_MASK);
    give_if(p, SOCK_DGRAM, SECCOMP_RET_ALLOW);
    give(p, DENY);
    close_call(p, call);
}

/* Questions about interfaces, and how much there is to read. */
static void judge_ioctl(struct filter_program *p)
{
    static const uint32_t questions[] = {FIONREAD, SIOCGIFINDEX, SIOCGIFNAME, SIOCGIFFLAGS};
    unsigned short call = open_call(p, __NR_ioctl);
    load_argument(p, 1);
    for (size_t i = 0; i < sizeof questions / sizeof questions[0]; i++)
        give_if(p, questions[i], SECCOMP_RET_ALLOW);
    give(p, DENY);
    close_call(p, call);
}

/* Memory that is no code. */
static void judge_memory(struct filter_program *p, uint32_t number)
{
    unsigned short call = open_call(p, number);
    load_argument(p, 2);
    put(p, BPF_JMP | BPF_JSET | BPF_K, 0, 1, PROT_EXEC);
    give(p, DENY);
    give(p, SECCOMP_RET_ALLOW);
    close_call(p, call);
}

static void write_program(struct filter_program *p)
{
    load(p, offsetof(struct seccomp_data, arch));
    put(p, BPF_JMP | BPF_JEQ | BPF_K, 1, 0, ARCH);
    give(p, DENY);
    load(p, offsetof(struct seccomp_data, nr));
    put(p, BPF_JMP | BPF_JGE | BPF_K, 0, 1, X32_BIT);
    give(p, DENY);
    for (size_t i = 0; i < sizeof allowed / sizeof allowed[0]; i++)
        give_if(p, allowed[i], SECCOMP_RET_ALLOW);
    judge_socket(p);
    judge_ioctl(p);
    judge_memory(p, __NR_mmap);
    judge_memory(p, __NR_mprotect);
    give(p, DENY);
}

int sandbox_calls(struct error *error)
{
    struct filter_program program = {.count = 0};
    write_program(&program);
    struct sock_fprog filter = {.len = program.count, .filter = program.code};
    if (program.count > PROGRAM_MAX || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter, 0, 0) != 0)
        return refused(error, "seccomp");
    return HEARTH_OK;
}

#else

static int unknown(struct error *error)
{
    return error_set(error, HEARTH_UNSUPPORTED, RANK_NONE, "this build has no sandbox");
}

int sandbox_privileges(struct error *error)
{
    return unknown(error);
}

int sandbox_files(struct error *error)
{
    return unknown(error);
}

int sandbox_calls(struct error *error)
{
    return unknown(error);
}

#endif

/* Files before calls: the filter does not let Landlock through. */
int sandbox_enter(struct error *error)
{
    struct error why[2];
    int status = sandbox_privileges(error);

    if (status != HEARTH_OK)
        return status;
    int files = sandbox_files(&why[0]), calls = sandbox_calls(&why[1]);
    if (files == HEARTH_OK && calls == HEARTH_OK)
        return HEARTH_OK;
    return error_set(error, HEARTH_UNSUPPORTED, RANK_NONE, "%s%s%s", files != HEARTH_OK ? why[0].text : "",
                     files != HEARTH_OK && calls != HEARTH_OK ? "; " : "",
                     calls != HEARTH_OK ? why[1].text : "");
}
