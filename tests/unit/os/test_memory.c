/* SPDX-License-Identifier: Apache-2.0 */
/* Shared memory: what one mapping writes the other sees, rings have no seam, and nothing that could shrink
 * under us is mapped. A memory file: a program has it only when it was handed on. */
#if defined(__linux__) && !defined(_GNU_SOURCE)
#define _GNU_SOURCE /* memfd_create */
#endif
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "os/memory.h"
#include "support/suite.h"

static int made(size_t len)
{
    int fd = -1;
    assert_int_equal(shared_make(len, &fd), HEARTH_OK);
    return fd;
}

TEST(new_memory_is_zero_and_shared)
{
    size_t len = 3 * memory_page();
    int fd = made(len);
    assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    uint8_t *a = shared_map(fd, len, true);
    const uint8_t *b = shared_map(fd, len, false);
    assert_non_null(a);
    assert_non_null(b);
    for (size_t i = 0; i < len; i++)
        assert_int_equal(b[i], 0);
    shared_close(fd); /* the mappings stay */
    memset(a, 0x5a, len);
    for (size_t i = 0; i < len; i++)
        assert_int_equal(b[i], 0x5a);
    shared_unmap(a, len);
    assert_int_equal(b[len - 1], 0x5a);
    shared_unmap((void *)(uintptr_t)b, len);
}

TEST(a_child_sees_it)
{
    size_t len = memory_page();
    int fd = made(len), status;
    volatile uint8_t *memory = shared_map(fd, len, true);
    assert_non_null((void *)(uintptr_t)memory);
    pid_t child = fork();
    if (child == 0) {
        memory[7] = 77;
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(memory[7], 77);
    shared_unmap((void *)(uintptr_t)memory, len);
    shared_close(fd);
}

TEST(a_mapping_to_read_cannot_be_written)
{
    size_t len = memory_page();
    int fd = made(len), status;
    volatile uint8_t *memory = shared_map(fd, len, false);
    pid_t child = fork();
    if (child == 0) {
        struct rlimit none = {0, 0};
        setrlimit(RLIMIT_CORE, &none);
        signal(SIGSEGV, SIG_DFL); /* not what the test's own frame would do */
        signal(SIGBUS, SIG_DFL);
        memory[0] = 1;
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    shared_unmap((void *)(uintptr_t)memory, len);
    shared_close(fd);
}

TEST(a_ring_has_no_seam)
{
    size_t len = 2 * memory_page(), whole = 3 * len;
    int fd = made(whole);
    uint8_t *all = shared_map(fd, whole, true);
    uint8_t *ring = shared_map_ring(fd, len, len);
    assert_non_null(all);
    assert_non_null(ring);
    for (size_t i = 0; i < len; i++)
        ring[len / 2 + i] = (uint8_t)(i * 7); /* over the end */
    for (size_t i = 0; i < len; i++) {
        assert_int_equal(ring[i], ring[len + i]);
        assert_int_equal(ring[i], all[len + i]);
        assert_int_equal(all[i], 0); /* its neighbours are untouched */
        assert_int_equal(all[2 * len + i], 0);
    }
    shared_unmap(ring, 2 * len);
    shared_unmap(all, whole);
    assert_null(shared_map_ring(-1, 0, len));
    shared_close(fd);
}

TEST(another_length_is_refused)
{
    size_t page = memory_page();
    int fd = made(2 * page);
    assert_null(shared_map(fd, page, true));
    assert_null(shared_map(fd, 3 * page, true));
    assert_null(shared_map(fd, 2 * page - 1, false));
    assert_null(shared_map(fd, 0, false));
    assert_null(shared_map(fd, SIZE_MAX, false));
    shared_close(fd);
    assert_null(shared_map(fd, 2 * page, true));
    assert_null(shared_map(-1, 2 * page, true));
}

TEST(what_there_cannot_be_is_refused)
{
    int fd = -7;
    assert_int_equal(shared_make(SIZE_MAX, &fd), HEARTH_NO_MEMORY);
    assert_int_equal(fd, -7);
    shared_unmap(NULL, 0);
    shared_close(-1);
}

#if defined(__linux__) && !defined(HEARTH_POSIX)

TEST(memory_that_could_shrink_is_refused)
{
    size_t page = memory_page();
    int open_one = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_true(open_one >= 0);
    assert_int_equal(ftruncate(open_one, (off_t)page), 0);
    assert_null(shared_map(open_one, page, false));
    assert_int_equal(fcntl(open_one, F_ADD_SEALS, F_SEAL_GROW), 0);
    assert_null(shared_map(open_one, page, false)); /* the other seal */
    assert_int_equal(fcntl(open_one, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    void *memory = shared_map(open_one, page, false);
    assert_non_null(memory);
    shared_unmap(memory, page);
    shared_close(open_one);

    int unsealed = memfd_create("test", MFD_CLOEXEC);
    assert_int_equal(ftruncate(unsealed, (off_t)page), 0);
    assert_null(shared_map(unsealed, page, false));
    shared_close(unsealed);

    FILE *file = tmpfile();
    assert_non_null(file);
    assert_int_equal(ftruncate(fileno(file), (off_t)page), 0);
    assert_null(shared_map(fileno(file), page, false));
    fclose(file);
    int pipes[2];
    assert_int_equal(pipe(pipes), 0);
    assert_null(shared_map(pipes[0], page, false));
    close(pipes[0]);
    close(pipes[1]);
}

TEST(ours_can_neither_shrink_nor_grow)
{
    size_t page = memory_page();
    int fd = made(2 * page);
    assert_int_not_equal(ftruncate(fd, (off_t)page), 0);
    assert_int_not_equal(ftruncate(fd, (off_t)(3 * page)), 0);
    assert_int_not_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), 0); /* and that is how it stays */
    shared_close(fd);
}

#endif

/* ---- memory files ---- */

static const char words[] = "not for everybody";

TEST(test_bytes)
{
    char read_back[64] = "";
    struct stat about;
    int fd = -1;
    assert_int_equal(memory_file_make(words, sizeof words, &fd), HEARTH_OK);
    assert_true(fd > STDERR_FILENO);
    assert_int_equal(lseek(fd, 0, SEEK_CUR), 0);
    assert_int_equal(read(fd, read_back, sizeof read_back), sizeof words);
    assert_string_equal(read_back, words);
    assert_int_equal(fstat(fd, &about), 0);
    assert_int_equal(about.st_size, sizeof words);
    assert_int_equal(about.st_nlink, 0); /* no name anywhere */
    assert_int_equal(pwrite(fd, "X", 1, 0), -1);
    close(fd);
}

/* Also where a standard descriptor is free. */
TEST(test_above_standard)
{
    int saved = dup(STDIN_FILENO), fd = -1;
    close(STDIN_FILENO);
    int status = memory_file_make(words, sizeof words, &fd);
    assert_true(dup2(saved, STDIN_FILENO) == STDIN_FILENO);
    close(saved);
    assert_int_equal(status, HEARTH_OK);
    assert_true(fd > STDERR_FILENO);
    close(fd);
}

/* The exit code of a program that looks for the descriptor. */
static int program_finds(int fd, bool handed_on)
{
    char test[64];
    int status = 0;
    snprintf(test, sizeof test, "read line </dev/fd/%d && test \"$line\" = 'not for everybody'", fd);
    pid_t pid = fork();
    if (pid == 0) {
        if (handed_on && memory_file_hand_on(fd))
            _exit(100);
        if (!freopen("/dev/null", "w", stderr))
            _exit(101);
        execl("/bin/sh", "sh", "-c", test, (char *)NULL);
        _exit(102);
    }
    assert_true(pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status));
    return WEXITSTATUS(status);
}

TEST(test_hand_on)
{
    static const char line[] = "not for everybody\n";
    int fd = -1;
    assert_int_equal(memory_file_make(line, strlen(line), &fd), HEARTH_OK);
    assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    int code = program_finds(fd, false);
    assert_true(code != 0 && code < 100);
    assert_int_equal(program_finds(fd, true), 0);
    close(fd);
    assert_int_equal(memory_file_hand_on(fd), HEARTH_SYSTEM);
}
