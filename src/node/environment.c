/* SPDX-License-Identifier: Apache-2.0 */
/* Values of the environment, kept until the process ends. */
#include "node/environment.h"

#include <stdatomic.h>
#include <string.h>

#include "core/heap.h"

struct kept_bytes {
    struct kept_bytes *next;
    size_t len;
    max_align_t bytes[];
};

/* A list that only grows, at its head: no lock that a fork could find taken. */
static _Atomic(struct kept_bytes *) environments;

const struct hearth_environment *environment_of(const struct hearth_config *config)
{
    static const struct hearth_environment nothing = {.secret_fd = -1};
    return config->environment ? config->environment : &nothing;
}

static const void *find(const struct kept_bytes *from, const void *bytes, size_t len)
{
    for (const struct kept_bytes *k = from; k; k = k->next)
        if (k->len == len && memcmp(k->bytes, bytes, len) == 0)
            return k->bytes;
    return NULL;
}

const void *kept_forever(const void *bytes, size_t len)
{
    struct kept_bytes *first = atomic_load(&environments);
    const void *found = find(first, bytes, len);
    if (found)
        return found;
    struct heap *heap = heap_open(0);
    struct kept_bytes *kept = heap ? heap_alloc(heap, 1, sizeof *kept + len) : NULL;
    if (!kept) {
        heap_close(heap);
        return NULL;
    }
    kept->len = len;
    memcpy(kept->bytes, bytes, len);
    do
        kept->next = first;
    while (!atomic_compare_exchange_weak(&environments, &first, kept));
    return kept->bytes;
}
