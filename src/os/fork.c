/* SPDX-License-Identifier: Apache-2.0 */
/* One bit for each descriptor; the handler that fork runs in the child goes through them. */
#include "os/fork.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#define WORD_BITS 64

static _Atomic(uint64_t) marks[(FORK_FD_MAX + 1) / WORD_BITS];

/* Only what is allowed between fork and exec: other threads may have been in the middle of anything. The
 * marks go too, since the child's own descriptors will have the same numbers. */
static void close_marked(void)
{
    for (int word = 0; word < (FORK_FD_MAX + 1) / WORD_BITS; word++) {
        uint64_t marked = atomic_exchange_explicit(&marks[word], 0, memory_order_relaxed);
        for (; marked != 0; marked &= marked - 1)
            close(word * WORD_BITS + __builtin_ctzll(marked));
    }
}

static void handler_set(void)
{
    (void)pthread_atfork(NULL, NULL, close_marked); /* without memory for it children keep them, as ever */
}

void fork_closes(int fd)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, handler_set);
    if (fd >= 0 && fd <= FORK_FD_MAX)
        atomic_fetch_or_explicit(&marks[fd / WORD_BITS], UINT64_C(1) << fd % WORD_BITS, memory_order_relaxed);
}

void fork_keeps(int fd)
{
    if (fd >= 0 && fd <= FORK_FD_MAX)
        atomic_fetch_and_explicit(&marks[fd / WORD_BITS], ~(UINT64_C(1) << fd % WORD_BITS),
                                  memory_order_relaxed);
}
