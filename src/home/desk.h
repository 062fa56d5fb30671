/* SPDX-License-Identifier: Apache-2.0 */
/* A private unix socket where programs of the same user ask a running node how things are: one line in, one
 * answer out, closed. At most 8 at a time, a second each. The owner drives it; nothing blocks. */
#ifndef HOME_DESK_H
#define HOME_DESK_H

#include "core/heap.h"
#include "core/log.h"
#include "os/sock.h"

struct desk;
/* Answers a question ("status", "metrics"): the text, on the heap, the desk's then; NULL: no such question.
 */
typedef char *desk_answer_fn(void *arg, const char *question);
struct desk_setup {
    struct heap *heap;
    struct log log;
    const char *path; /* of the socket; one that is there and dead is replaced; one that lives: this one gets
                         ".2", ".3", up to ".16" behind its name */
    desk_answer_fn *answer;
    void *arg;
};
#define DESK_WAITS_MAX 10
int MUST_CHECK desk_open(const struct desk_setup *setup, struct desk **out, struct error *error);
void desk_close(struct desk *desk);
void desk_pump(struct desk *desk, uint64_t now_ns);
size_t desk_waits(const struct desk *desk, struct sock_wait *items, size_t max, uint64_t *deadline_ns);

/* The other side, for the command: asks whoever sits there. Blocks until the deadline. HEARTH_PEER_LOST:
 * nobody. */
int MUST_CHECK desk_ask(struct heap *heap, const char *path, const char *question, uint64_t deadline_ns,
                        char **answer, struct error *error);

#endif
