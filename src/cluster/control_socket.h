/* SPDX-License-Identifier: Apache-2.0 */
/* A private unix socket where programs of the same user ask a running node how things are: one line in, one
 * answer out, closed. At most 8 at a time, a second each; who comes while 8 are there waits. The owner drives
 * it; nothing blocks.
 *
 * Question: 1 to 64 printable characters and a newline, nothing behind. Answer: "ok LENGTH\n" and so many
 * bytes, so that an answer that was cut is seen; or "no REASON\n". Then the end. */
#pragma once

#include "core/heap.h"
#include "core/log.h"
#include "os/sock.h"

#define CONTROL_SOCKET_QUESTION_MAX 64 /* characters */
#define CONTROL_SOCKET_ANSWER_MAX                                                                            \
    (2 * 1024 * 1024)           /* bytes that a control socket sends: 64 members, 1,024 sightings fit */
#define CONTROL_SOCKET_PATHS 16 /* the name itself, then ".2" to ".16" behind it */

struct control_socket;
/* Answers a question ("status", "metrics"): the text, on the heap, the control socket's then; NULL: no such
 * question.
 */
typedef char *control_socket_answer_fn(void *arg, const char *question);
struct control_socket_setup {
    struct heap *heap;
    struct log log;
    const char *path; /* of the socket, as os/sock.h reads it ("unix:@name", "unix:/folder/name"); one that is
                         there and dead is replaced; one that lives: this one gets ".2", ".3", up to ".16"
                         behind its name */
    control_socket_answer_fn *answer;
    void *arg;
};
#define CONTROL_SOCKET_WAITS_MAX 10
int MUST_CHECK control_socket_open(const struct control_socket_setup *setup, struct control_socket **out,
                                   struct error *error);
void control_socket_close(struct control_socket *control); /* NULL is allowed */
const char *
control_socket_path(const struct control_socket *control); /* with the number that it got, if it got one */
void control_socket_pump(struct control_socket *control, uint64_t now_ns);
size_t control_socket_waits(const struct control_socket *control, struct sock_wait *items, size_t max,
                            uint64_t *deadline_ns);

/* The other side, for the command: asks whoever sits at exactly this path. Blocks until the deadline
 * (clock_real). The answer is the caller's to heap_free. HEARTH_PEER_LOST: nobody, or it went away before all
 * was said, or it runs as another user. HEARTH_UNSUPPORTED: it does not know that question. HEARTH_LIMIT: the
 * answer is longer than 4 MiB. */
#define CONTROL_SOCKET_TAKEN_MAX (4 * 1024 * 1024)
int MUST_CHECK control_socket_ask(struct heap *heap, const char *path, const char *question,
                                  uint64_t deadline_ns, char **answer, struct error *error);

/* Where the node of a user and a config folder sits: "unix:@hearth-<user>-<16 digits>". */
#define CONTROL_SOCKET_PLACE_MAX 64
void control_socket_place(const char *folder, uint32_t user, char *path, size_t size);
