/* SPDX-License-Identifier: Apache-2.0 */
/* What a process cannot do any more once it has given up its rights, and what it still can. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "os/sandbox.h"
#include "os/sock.h"
#include "support/suite.h"

#define UNSUPPORTED 77

static struct error error;
static char secret[] = "/tmp/hearth-sandbox-XXXXXX";

static int begin(void **state)
{
    snprintf(secret, sizeof secret, "/tmp/hearth-sandbox-XXXXXX");
    int fd = mkstemp(secret);
    return fd >= 0 && write(fd, "secret", 6) == 6 && close(fd) == 0 ? 0 : -1;
}

static int end(void **state)
{
    return unlink(secret);
}

/* In a child, which gives the number of the first line that failed. */
static void in_child(int (*what)(void))
{
    int code;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(what());
    assert_int_equal(waitpid(child, &code, 0), child);
    assert_true(WIFEXITED(code));
    if (WEXITSTATUS(code) == UNSUPPORTED) {
        print_message("skipped: this kernel or build has no sandbox\n");
        skip();
    }
    if (WEXITSTATUS(code) != 0)
        fail_msg("step %d went wrong", WEXITSTATUS(code));
}

#define STEP(number, good)                                                                                   \
    do {                                                                                                     \
        if (!(good))                                                                                         \
            return number;                                                                                   \
    } while (0)

static bool opens(const char *path, int flags)
{
    int fd = open(path, flags | O_CLOEXEC, 0600);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

static bool executes(void)
{
    char name[] = "false", *args[] = {name, NULL};
    execv("/bin/false", args);
    return false; /* else the child is another program, which ends with 1 */
}

static bool has_socket(int family, int type)
{
    int fd = socket(family, type, 0);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

static int without_files(void)
{
    int kept = open(secret, O_RDONLY | O_CLOEXEC);
    char byte;
    STEP(1, kept >= 0 && opens(secret, O_RDONLY));
    if (sandbox_privileges(&error) != HEARTH_OK || sandbox_files(&error) != HEARTH_OK)
        return UNSUPPORTED;
    STEP(2, !opens(secret, O_RDONLY) && errno == EACCES);
    STEP(3, !opens(secret, O_WRONLY));
    STEP(4, !opens("/tmp/hearth-sandbox-new", O_CREAT | O_WRONLY));
    STEP(5, !executes() && errno == EACCES);
    STEP(6, read(kept, &byte, 1) == 1 && byte == 's'); /* what is open stays so */
    STEP(7, has_socket(AF_INET, SOCK_DGRAM));
    return 0;
}

static int without_calls(void)
{
    if (sandbox_privileges(&error) != HEARTH_OK || sandbox_calls(&error) != HEARTH_OK)
        return UNSUPPORTED;
    STEP(1, prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == -1 && errno == EPERM);
    STEP(2, !executes() && errno == EPERM);
    STEP(3, fork() == -1 && errno == EPERM);
    STEP(4, !opens(secret, O_RDONLY) && errno == EPERM);
    STEP(5, !opens(secret, O_WRONLY | O_TRUNC) && unlink(secret) == -1);
    STEP(6, kill(getppid(), 0) == -1 && errno == EPERM);
    STEP(7, !has_socket(AF_INET, SOCK_STREAM) && !has_socket(AF_INET6, SOCK_STREAM) &&
                !has_socket(AF_UNIX, SOCK_STREAM) && !has_socket(AF_INET, SOCK_RAW) &&
                !has_socket(AF_PACKET, SOCK_DGRAM));
    for (int other = 1; other < 22; other++)
        STEP(7, socket(AF_NETLINK, SOCK_DGRAM, other) == -1 && errno == EPERM);
    STEP(8, mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED);
    STEP(9, ioctl(0, 0x5412 /* TIOCSTI */, "x") == -1 && errno == EPERM);
    return 0;
}

/* What the helper does all day. */
static int with_datagrams(void)
{
    struct sock_addr addr;
    char bytes[4], text[SOCK_TEXT_MAX];
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0)
        return 1;
    if (sandbox_enter(&error) != HEARTH_OK)
        return UNSUPPORTED;
    STEP(2, has_socket(AF_INET, SOCK_DGRAM) && has_socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC) &&
                has_socket(AF_NETLINK, SOCK_RAW) && has_socket(AF_NETLINK, SOCK_DGRAM));
    STEP(3, write(ends[0], "abc", 3) == 3 && read(ends[1], bytes, 4) == 3);
    STEP(4, sock_addr_parse("[fe80::1%lo]:1", 0, &addr) == HEARTH_OK); /* interfaces by name */
    sock_addr_text(&addr, text, sizeof text);
    STEP(5, strcmp(text, "[fe80::1%lo]:1") == 0); /* and by number */
    void *memory = malloc(64 << 20);
    STEP(6, memory);
    memset(memory, 1, 64 << 20);
    free(memory);
    STEP(7, alarm(2) == 0 && alarm(0) > 0);
    return 0;
}

TEST_WITH(no_path_leads_to_a_file, begin, end)
{
    in_child(without_files);
}

TEST_WITH(calls_that_are_not_needed_fail, begin, end)
{
    in_child(without_calls);
}

TEST_WITH(datagrams_and_memory_still_go, begin, end)
{
    in_child(with_datagrams);
}
