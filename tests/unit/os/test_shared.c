/* SPDX-License-Identifier: Apache-2.0 */
/* Shared memory: what one mapping writes the other sees, rings have no seam, and nothing that could shrink
 * under us is mapped. */
#if defined(__linux__) && !defined(_GNU_SOURCE)
#define _GNU_SOURCE /* memfd_create */
#endif
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "os/memory.h"
#include "support/suite.h"

TEST(new_memory_is_zero_and_shared)
{
    int fd;
    size_t len = 3 * memory_page();
    assert_int_equal(shared_make(len, &fd), HEARTH_OK);
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
    int fd, status;
    size_t len = memory_page();
    assert_int_equal(shared_make(len, &fd), HEARTH_OK);
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
    int fd, status;
    size_t len = memory_page();
    assert_int_equal(shared_make(len, &fd), HEARTH_OK);
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
    int fd;
    size_t len = 2 * memory_page(), whole = 3 * len;
    assert_int_equal(shared_make(whole, &fd), HEARTH_OK);
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
    int fd;
    size_t page = memory_page();
    assert_int_equal(shared_make(2 * page, &fd), HEARTH_OK);
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
    int fd;
    size_t page = memory_page();
    assert_int_equal(shared_make(2 * page, &fd), HEARTH_OK);
    assert_int_not_equal(ftruncate(fd, (off_t)page), 0);
    assert_int_not_equal(ftruncate(fd, (off_t)(3 * page)), 0);
    assert_int_not_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), 0); /* and that is how it stays */
    shared_close(fd);
}

#endif
