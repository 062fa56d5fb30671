/* SPDX-License-Identifier: Apache-2.0 */
/* A private unix socket where programs of the same user ask a running node how things are: one line in, one
 * answer out, closed. At most 8 at a time, a second each; who comes while 8 are there waits. The owner drives
 * it; nothing blocks.
 *
 * Question: 1 to 64 printable characters and a newline, nothing behind. Answer: "ok LENGTH\n" and so many
 * bytes, so that an answer that was cut is seen; or "no REASON\n". Then the end. */
#ifndef HOME_DESK_H
#define HOME_DESK_H

#include "core/heap.h"
#include "core/log.h"
#include "os/sock.h"

#define DESK_QUESTION_MAX 64                /* characters */
#define DESK_ANSWER_MAX   (2 * 1024 * 1024) /* bytes that a desk sends: 64 members, 1,024 sightings fit */
#define DESK_PATHS        16                /* the name itself, then ".2" to ".16" behind it */

struct desk;
/* Answers a question ("status", "metrics"): the text, on the heap, the desk's then; NULL: no such question.
 */
typedef char *desk_answer_fn(void *arg, const char *question);
struct desk_setup {
    struct heap *heap;
    struct log log;
    const char *path; /* of the socket, as os/sock.h reads it ("unix:@name", "unix:/folder/name"); one that is
                         there and dead is replaced; one that lives: this one gets ".2", ".3", up to ".16"
                         behind its name */
    desk_answer_fn *answer;
    void *arg;
};
#define DESK_WAITS_MAX 10
int MUST_CHECK desk_open(const struct desk_setup *setup, struct desk **out, struct error *error);
void desk_close(struct desk *desk);             /* NULL is allowed */
const char *desk_path(const struct desk *desk); /* with the number that it got, if it got one */
void desk_pump(struct desk *desk, uint64_t now_ns);
size_t desk_waits(const struct desk *desk, struct sock_wait *items, size_t max, uint64_t *deadline_ns);

/* The other side, for the command: asks whoever sits at exactly this path. Blocks until the deadline
 * (clock_real). The answer is the caller's to heap_free. HEARTH_PEER_LOST: nobody, or it went away before all
 * was said, or it runs as another user. HEARTH_UNSUPPORTED: it does not know that question. HEARTH_LIMIT: the
 * answer is longer than 4 MiB. */
#define DESK_TAKEN_MAX (4 * 1024 * 1024)
int MUST_CHECK desk_ask(struct heap *heap, const char *path, const char *question, uint64_t deadline_ns,
                        char **answer, struct error *error);

/* Where the node of a user and a config folder sits: "unix:@hearth-<user>-<16 digits>". */
#define DESK_PLACE_MAX 64
void desk_place(const char *folder, uint32_t user, char *path, size_t size);

#endif
