/* SPDX-License-Identifier: Apache-2.0 */
/* Private pages: madvise on Linux; elsewhere and in the posix build only what POSIX has. */
#if defined(__linux__) && !defined(_GNU_SOURCE)
#define _GNU_SOURCE /* madvise */
#endif
#include "os/vault_pages.h"

#include <sys/mman.h>
#include <unistd.h>

size_t vault_page(void)
{
    long page = sysconf(_SC_PAGESIZE);
    return page > 0 ? (size_t)page : 4096;
}

#if defined(__linux__) && !defined(HEARTH_POSIX)

/* A kernel that cannot do one of these still gives memory that works. */
static void keep_private(void *pages, size_t len)
{
    (void)madvise(pages, len, MADV_DONTDUMP);
#ifdef MADV_WIPEONFORK
    (void)madvise(pages, len, MADV_WIPEONFORK);
#endif
    (void)mlock(pages, len);
}

#else

static void keep_private(void *pages, size_t len)
{
    (void)mlock(pages, len);
}

#endif

void *vault_pages_map(size_t len)
{
    void *pages = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (pages == MAP_FAILED)
        return NULL;
    keep_private(pages, len);
    return pages;
}

void vault_pages_unmap(void *pages, size_t len)
{
    (void)munmap(pages, len);
}
