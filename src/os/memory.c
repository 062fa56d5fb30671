/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of the system: memfd, seals and madvise on Linux; elsewhere and in the posix build files whose names
 * are taken away at once. */
#if defined(__linux__) && !defined(_GNU_SOURCE)
#define _GNU_SOURCE /* memfd_create, seals, madvise */
#endif
#include "os/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "os/host.h"
#include "os/random.h"

#define FIRST_FREE 3 /* the standard descriptors are the program's */

size_t memory_page(void)
{
    long page = sysconf(_SC_PAGESIZE);
    return page > 0 ? (size_t)page : 4096;
}

/* The two ends of a memory file. */
struct ends {
    int writer, reader; /* -1: none */
};

#if defined(__linux__) && !defined(HEARTH_POSIX)

static int unnamed(void)
{
    return memfd_create("hearth", MFD_CLOEXEC | MFD_ALLOW_SEALING);
}

/* A peer that cut the memory short would kill us with a signal at the next touch. */
static bool keeps_size(int fd)
{
    int seals = fcntl(fd, F_GET_SEALS);
    return seals >= 0 && (seals & F_SEAL_SHRINK);
}

static bool keep_size(int fd)
{
    return fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0;
}

static bool ends_open(struct ends *ends)
{
    ends->writer = unnamed();
    ends->reader = ends->writer < 0 ? -1 : dup(ends->writer);
    return ends->reader >= 0;
}

static bool freeze(int fd)
{
    return fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) == 0;
}

#else

#define NAME_TRIES 8

static int unnamed(void)
{
    for (int i = 0; i < NAME_TRIES; i++) {
        uint64_t number;
        char name[32];
        if (random_bytes(&number, sizeof number) != HEARTH_OK)
            return -1;
        snprintf(name, sizeof name, "/hearth-%016llx", (unsigned long long)number);
        int fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
        if (fd >= 0) {
            shm_unlink(name);
            fcntl(fd, F_SETFD, FD_CLOEXEC);
            return fd;
        }
        if (errno != EEXIST)
            return -1;
    }
    return -1;
}

static bool ends_open(struct ends *ends)
{
    char memory[] = "/dev/shm/hearth-XXXXXX", disk[] = "/tmp/hearth-XXXXXX";
    char *name = memory;
    ends->writer = mkstemp(name); /* mode 0600 */
    if (ends->writer < 0) {
        name = disk;
        ends->writer = mkstemp(name);
    }
    if (ends->writer < 0)
        return false;
    ends->reader = open(name, O_RDONLY | O_CLOEXEC);
    unlink(name);
    fcntl(ends->writer, F_SETFD, FD_CLOEXEC);
    return ends->reader >= 0;
}

/* There are no seals. Holders of the reading end cannot write by it, and a process of the same user is
 * trusted not to cut shared memory short. */
static bool keeps_size(int fd)
{
    return fd >= 0;
}

static bool keep_size(int fd)
{
    return fd >= 0;
}

static bool freeze(int fd)
{
    return fd >= 0;
}

#endif

/* ---- shared memory ---- */

int shared_make(size_t len, int *fd)
{
    int made = unnamed();
    if (made < 0)
        return errno == ENOMEM ? HEARTH_NO_MEMORY : HEARTH_SYSTEM;
    if (len > INT64_MAX || ftruncate(made, (off_t)len) != 0 || !keep_size(made)) {
        close(made);
        return HEARTH_NO_MEMORY;
    }
    *fd = made;
    return HEARTH_OK;
}

static bool has_len(int fd, size_t len)
{
    struct stat about;
    return fstat(fd, &about) == 0 && about.st_size >= 0 && (size_t)about.st_size == len && keeps_size(fd);
}

void *shared_map(int fd, size_t len, bool writable)
{
    if (len == 0 || !has_len(fd, len))
        return NULL;
    void *memory = mmap(NULL, len, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

void *shared_map_ring(int fd, size_t offset, size_t len)
{
    /* Reserve the place for both, then lay them into it. */
    char *place = mmap(NULL, 2 * len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (place == MAP_FAILED)
        return NULL;
    for (int i = 0; i < 2; i++) {
        void *want = place + (size_t)i * len;
        if (mmap(want, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, (off_t)offset) == want)
            continue;
        munmap(place, 2 * len);
        return NULL;
    }
    return place;
}

void shared_unmap(void *memory, size_t len)
{
    if (memory)
        munmap(memory, len);
}

void shared_close(int fd)
{
    if (fd >= 0)
        close(fd);
}

/* ---- memory files ---- */

int memory_file_make(const void *bytes, size_t len, int *fd)
{
    struct ends ends = {-1, -1};
    bool good = ends_open(&ends) && file_write(ends.writer, bytes, len) && freeze(ends.writer);
    int high = good ? fcntl(ends.reader, F_DUPFD_CLOEXEC, FIRST_FREE) : -1;
    shared_close(ends.writer);
    shared_close(ends.reader);
    if (high < 0)
        return HEARTH_SYSTEM;
    if (lseek(high, 0, SEEK_SET) != 0) {
        close(high);
        return HEARTH_SYSTEM;
    }
    *fd = high;
    return HEARTH_OK;
}

int memory_file_hand_on(int fd)
{
    int flags = fcntl(fd, F_GETFD);
    return flags >= 0 && fcntl(fd, F_SETFD, flags & ~FD_CLOEXEC) == 0 ? HEARTH_OK : HEARTH_SYSTEM;
}

/* ---- private pages ---- */

void *private_pages_map(size_t len)
{
    void *pages = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (pages == MAP_FAILED)
        return NULL;
        /* A kernel that cannot do one of these still gives memory that works. */
#if defined(MADV_DONTDUMP) && !defined(HEARTH_POSIX)
    (void)madvise(pages, len, MADV_DONTDUMP);
#endif
#if defined(MADV_WIPEONFORK) && !defined(HEARTH_POSIX)
    (void)madvise(pages, len, MADV_WIPEONFORK);
#endif
    (void)mlock(pages, len);
    return pages;
}

void private_pages_unmap(void *pages, size_t len)
{
    (void)munmap(pages, len);
}
