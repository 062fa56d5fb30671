/* SPDX-License-Identifier: Apache-2.0 */
/* The file of a secret: stored whole, kept unless told otherwise, and read by the rules of a key file; and
 * descriptors that a launcher leaves open. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "folder.h"
#include "security/secret.h"
#include "support/suite.h"

#define CODE  "000g40r40m30e209185gr38e1w8124gk2gahc5rr34d1p70x3rf"
#define TOKEN "hearth1-hearth-" CODE "n1hdrv8"

static struct error error;

static void assert_says(const char *why)
{
    if (!strstr(error.text, why))
        fail_msg("no \"%s\" in: %s", why, error.text);
    assert_null(strstr(error.text, CODE));
}

static struct secret *drawn(const char *name)
{
    struct secret *secret = NULL;
    assert_int_equal(secret_draw(name, &secret, &error), HEARTH_OK);
    return secret;
}

static void assert_stored(const char *path, const struct secret *secret)
{
    struct secret *again = NULL;
    bool missing = true;

    if (secret_load(path, &again, &missing, &error))
        fail_msg("%s", error.text);
    assert_false(missing);
    assert_memory_equal(secret_bytes(again), secret_bytes(secret), SECRET_LEN);
    assert_string_equal(secret_name(again), secret_name(secret));
    secret_close(again);
}

static void assert_refused(const char *path, const char *why)
{
    struct secret *secret = NULL;
    bool missing = true;

    assert_int_equal(secret_load(path, &secret, &missing, &error), HEARTH_INVALID);
    assert_false(missing);
    assert_null(secret);
    assert_says(path);
    assert_says(why);
}

TEST_WITH(what_is_stored_comes_back, folder_make, folder_remove)
{
    const char *path = folder_path("hearth/secret");
    struct secret *first = drawn("lab"), *second = drawn(NULL);
    char text[SECRET_TOKEN_MAX + 1], token[SECRET_TOKEN_MAX];

    umask(0);
    assert_int_equal(secret_store(first, path, false, &error), HEARTH_OK);
    assert_int_equal(file_mode(path), 0600);
    assert_int_equal(file_mode(folder_path("hearth")), 0700);
    assert_stored(path, first);
    secret_token(first, token);
    assert_int_equal(file_get(path, text, sizeof text), strlen(token) + 1);
    assert_memory_equal(text, token, strlen(token));

    assert_int_equal(secret_store(second, path, false, &error), HEARTH_INVALID);
    assert_says("is there already and stays as it is");
    assert_stored(path, first);
    assert_int_equal(secret_store(second, path, true, &error), HEARTH_OK);
    assert_stored(path, second);
    assert_int_equal(secret_store(second, folder_path("hearth/new"), true, &error), HEARTH_OK);
    assert_int_equal(file_count(folder_path("hearth"), "secret", NULL), 2);
    secret_close(first);
    secret_close(second);
}

TEST_WITH(a_link_is_replaced_and_not_followed, folder_make, folder_remove)
{
    const char *target = folder_path("target"), *path = folder_path("secret");
    struct secret *secret = drawn(NULL);
    char text[8];

    file_put(target, "mine", 4, 0600);
    assert_int_equal(symlink(target, path), 0);
    assert_int_equal(secret_store(secret, path, false, &error), HEARTH_INVALID);
    assert_int_equal(secret_store(secret, path, true, &error), HEARTH_OK);
    assert_stored(path, secret);
    assert_int_equal(file_get(target, text, sizeof text), 4);
    secret_close(secret);
}

TEST_WITH(a_missing_file_is_told_apart, folder_make, folder_remove)
{
    struct secret *secret = NULL;
    bool missing = false;

    assert_int_equal(secret_load(folder_path("secret"), &secret, &missing, &error), HEARTH_INVALID);
    assert_true(missing);
    assert_says("hearth init");
    assert_says("hearth join");
    assert_null(secret);
}

TEST_WITH(other_files_are_refused, folder_make, folder_remove)
{
    const char *path = folder_path("secret");
    static const char zero[] = TOKEN "\0x";
    char fill[2000];

    memset(fill, ' ', sizeof fill);
    file_put(path, TOKEN "\n", strlen(TOKEN) + 1, 0640);
    assert_refused(path, "chmod 600");
    file_put(path, "", 0, 0600);
    assert_refused(path, "empty");
    file_put(path, TOKEN, strlen(TOKEN) - 4, 0600);
    assert_refused(path, "cut short");
    file_put(path, zero, sizeof zero - 1, 0600);
    assert_refused(path, "no join token");
    file_put(path, fill, sizeof fill, 0600);
    assert_refused(path, "too long");
    file_put(path,
             "\x7f"
             "ELF",
             4, 0600);
    assert_refused(path, "no join token");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_refused(path, "not a regular file");
}

TEST_WITH(a_descriptor_can_be_read_again_and_again, folder_make, folder_remove)
{
    const char *path = folder_path("secret");
    int fd;

    file_put(path, "\n" TOKEN "\n", strlen(TOKEN) + 2, 0600);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(lseek(fd, 5, SEEK_SET), 5);
    for (int i = 0; i < 2; i++) {
        struct secret *secret = NULL;
        assert_int_equal(secret_read_fd(fd, &secret, &error), HEARTH_OK);
        assert_int_equal(secret_bytes(secret)[31], 31);
        secret_close(secret);
        assert_int_equal(lseek(fd, 0, SEEK_CUR), 5);
    }
    close(fd);
}

/* Another process may not find it, this one may, whatever has the number now. */
TEST_WITH(an_inherited_one_is_closed_and_remembered, folder_make, folder_remove)
{
    const char *path = folder_path("secret");
    struct secret *secret = NULL;
    int fd, other, code;

    file_put(path, TOKEN "\n", strlen(TOKEN) + 1, 0600);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(secret_inherit(fd + 1000, &secret, &error), HEARTH_INVALID);
    assert_int_equal(secret_inherit(fd, &secret, &error), HEARTH_OK);
    secret_close(secret);
    assert_int_equal(fcntl(fd, F_GETFD), -1);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(secret_inherit(fd, &secret, &error), HEARTH_OK);
        assert_int_equal(secret_bytes(secret)[31], 31);
        assert_string_equal(secret_name(secret), "hearth");
        secret_close(secret);
        other = open("/dev/null", O_RDONLY | O_CLOEXEC);
        assert_int_equal(other, fd);
        assert_int_equal(secret_inherit(fd, &secret, &error), HEARTH_OK);
        secret_close(secret);
        assert_int_equal(close(other), 0); /* it was not ours to close */
    }
    pid_t child = fork();
    if (child == 0)
        _exit(secret_inherit(fd, &secret, &error) == HEARTH_INVALID ? 0 : 1);
    assert_int_equal(waitpid(child, &code, 0), child);
    assert_true(WIFEXITED(code) && WEXITSTATUS(code) == 0);
}

TEST_WITH(other_descriptors_are_refused, folder_make, folder_remove)
{
    struct secret *secret = NULL;
    int ends[2], fd;

    assert_int_equal(pipe(ends), 0);
    assert_int_equal(secret_read_fd(ends[0], &secret, &error), HEARTH_INVALID);
    assert_says("descriptor");
    close(ends[0]);
    close(ends[1]);
    assert_int_equal(secret_read_fd(ends[0], &secret, &error), HEARTH_INVALID);
    assert_int_equal(secret_read_fd(-1, &secret, &error), HEARTH_INVALID);
    fd = open("/dev/zero", O_RDONLY | O_CLOEXEC);
    assert_int_equal(secret_read_fd(fd, &secret, &error), HEARTH_INVALID);
    assert_says("too much");
    close(fd);
    fd = open(folder(), O_RDONLY | O_CLOEXEC);
    assert_int_equal(secret_read_fd(fd, &secret, &error), HEARTH_INVALID);
    close(fd);
    assert_null(secret);
}

static int store_without_room(void *arg)
{
    const struct rlimit limit = {.rlim_cur = 10, .rlim_max = 10};
    struct secret *secret = NULL;

    signal(SIGXFSZ, SIG_IGN);
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0 || secret_draw(NULL, &secret, &error))
        return 2;
    return secret_store(secret, arg, true, &error) == HEARTH_SYSTEM ? 0 : 3;
}

TEST_WITH(what_was_there_stays_when_there_is_no_room, folder_make, folder_remove)
{
    const char *path = folder_path("secret");
    struct secret *secret = drawn("old");

    assert_int_equal(secret_store(secret, path, false, &error), HEARTH_OK);
    assert_int_equal(child_run(store_without_room, (void *)path), 0);
    assert_stored(path, secret);
    assert_int_equal(file_count(folder(), "secret", NULL), 1);
    secret_close(secret);
}
