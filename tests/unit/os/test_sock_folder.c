/* SPDX-License-Identifier: Apache-2.0 */
/* Where "unix:@name" lives: a folder that only this user may enter, whatever others have put in its place. */
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "addrs.h"
#include "support/suite.h"

static struct error error;

static char base[] = "/tmp/hearth-names-XXXXXX"; /* plays $XDG_RUNTIME_DIR */
static char inside[64], before_us[256];

static int folder_begin(void **state)
{
    const char *was = getenv("XDG_RUNTIME_DIR");
    snprintf(before_us, sizeof before_us, "%s", was ? was : "");
    snprintf(base, sizeof base, "/tmp/hearth-names-XXXXXX");
    if (!mkdtemp(base) || setenv("XDG_RUNTIME_DIR", base, 1) != 0)
        return -1;
    snprintf(inside, sizeof inside, "%s/hearth", base);
    return 0;
}

static int folder_end(void **state)
{
    char command[128];
    if (before_us[0] != '\0')
        setenv("XDG_RUNTIME_DIR", before_us, 1);
    else
        unsetenv("XDG_RUNTIME_DIR");
    snprintf(command, sizeof command, "rm -rf %s", base);
    return system(command);
}

static const char *path_of(const struct sock_addr *addr)
{
    return (const char *)addr->raw + offsetof(struct sockaddr_un, sun_path);
}

static bool leads_into(const char *folder)
{
    struct sock_addr addr = addr_of("unix:@x");
    return strncmp(path_of(&addr), folder, strlen(folder)) == 0;
}

static void assert_refused(const char *why)
{
    struct sock_addr addr = addr_of("unix:@x");
    int fd;

    assert_int_equal(sock_listen(&addr, 1, &fd, NULL, &error), HEARTH_SYSTEM);
    assert_non_null(strstr(error.text, why));
    assert_non_null(strstr(error.text, inside));
    assert_int_equal(sock_dial(&addr, NULL, &fd, &error), HEARTH_SYSTEM);
    assert_non_null(strstr(error.text, why));
}

TEST_WITH(a_folder_that_others_reach_is_refused, folder_begin, folder_end)
{
    struct sock_addr addr = addr_of("unix:@x");

    assert_int_equal(symlink("/tmp", inside), 0);
    assert_refused("symbolic link");
    assert_int_equal(unlink(inside), 0);
    int file = open(inside, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    close(file);
    assert_refused("file");
    assert_int_equal(unlink(inside), 0);
    assert_int_equal(mkdir(inside, 0700), 0);
    assert_int_equal(chmod(inside, 0710), 0);
    assert_refused("mode 0710): chmod 700");
    if (geteuid() == 0) {
        assert_int_equal(chmod(inside, 0700), 0);
        assert_int_equal(chown(inside, 64999, 64999), 0);
        assert_refused("belongs to user 64999");
        assert_int_equal(chown(inside, 0, 0), 0);
    }
    assert_int_equal(chmod(inside, 0700), 0);
    sock_unlisten(listen_on(&addr, NULL));
}

TEST_WITH(a_base_that_is_no_good_is_not_used, folder_begin, folder_end)
{
    char longer[64];

    assert_true(leads_into(inside));
    assert_int_equal(chmod(base, 0755), 0);
    assert_false(leads_into(base));
    assert_int_equal(chmod(base, 0700), 0);
    if (geteuid() == 0) {
        assert_int_equal(chown(base, 64999, 64999), 0);
        assert_false(leads_into(base));
        assert_int_equal(chown(base, 0, 0), 0);
    }
    snprintf(longer, sizeof longer, "%s/%s", base, "a-name-too-long");
    assert_int_equal(mkdir(longer, 0700), 0);
    setenv("XDG_RUNTIME_DIR", longer, 1);
    assert_false(leads_into(base));
    snprintf(longer, sizeof longer, "%s/l", base);
    assert_int_equal(symlink(base, longer), 0);
    setenv("XDG_RUNTIME_DIR", longer, 1);
    assert_false(leads_into(base));
    setenv("XDG_RUNTIME_DIR", "relative", 1);
    assert_false(leads_into("relative"));
    setenv("XDG_RUNTIME_DIR", base, 1);
    assert_true(leads_into(inside));
}

/* A killed process leaves a file that nobody will ever ask for by name. */
TEST_WITH(sockets_of_the_dead_are_removed, folder_begin, folder_end)
{
    struct sock_addr dead = addr_of("unix:@hearth-dead"), ours = addr_of("unix:@hearth-ours"),
                     next = addr_of("unix:@hearth-next");
    int fd[3] = {listen_on(&dead, NULL), listen_on(&ours, NULL), -1}, guest;

    sock_close(fd[0]); /* as a kill does: without taking the file away */
    assert_int_equal(access(path_of(&dead), F_OK), 0);
    fd[2] = listen_on(&next, NULL);
    assert_int_equal(access(path_of(&dead), F_OK), -1);
    assert_int_equal(access(path_of(&ours), F_OK), 0);
    assert_int_equal(sock_accept(fd[1], &guest, NULL), HEARTH_PENDING); /* who looked was not heard */
    sock_unlisten(fd[1]);
    sock_unlisten(fd[2]);
}

/* Whoever listens may have been started without the session's folder. */
TEST_WITH(a_name_is_found_below_tmp_too, folder_begin, folder_end)
{
    char name[64];
    int listener, fd;

    snprintf(name, sizeof name, "unix:@hearth-test-tmp-%d", (int)getpid());
    unsetenv("XDG_RUNTIME_DIR");
    struct sock_addr there = addr_of(name);
    listener = listen_on(&there, NULL);
    setenv("XDG_RUNTIME_DIR", base, 1);
    struct sock_addr here = addr_of(name);
    assert_false(sock_addr_equal(&here, &there));
    fd = dial_to(&here, NULL);
    sock_close(fd);
    sock_unlisten(listener);
    assert_int_equal(sock_dial(&here, NULL, &fd, &error), HEARTH_PEER_LOST);
}

#if defined(__linux__)
/* Names of the abstract space are anybody's: one that is taken there is still free for us. */
TEST_WITH(a_squatted_name_does_not_matter, folder_begin, folder_end)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    struct sock_addr addr = addr_of("unix:@hearth-test-squat");
    int guest, squatter = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    memcpy(un.sun_path + 1, "hearth-test-squat", 17);
    assert_int_equal(
        bind(squatter, (struct sockaddr *)&un, (socklen_t)offsetof(struct sockaddr_un, sun_path) + 18), 0);
    assert_int_equal(listen(squatter, 1), 0);
    int listener = listen_on(&addr, NULL), fd = dial_to(&addr, NULL);
    assert_int_equal(sock_accept(listener, &guest, NULL), HEARTH_OK);
    sock_close(guest);
    sock_close(fd);
    sock_unlisten(listener);
    close(squatter);
}
#endif
