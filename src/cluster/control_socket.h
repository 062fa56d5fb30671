/* SPDX-License-Identifier: Apache-2.0 */
/* A private unix socket where programs of the same user query a running node: one line in, one answer out,
 * closed. At most 8 clients at a time, a second each; further ones wait. The owner drives it; nothing blocks.
 *
 * Question: 1 to 64 printable characters and a newline, nothing after it. Answer: "ok LENGTH\n" and LENGTH
 * bytes, so that a truncated answer shows; or "no REASON\n". Then the end. */
#pragma once

#include "core/heap.h"
#include "core/log.h"
#include "os/sock.h"

#define CONTROL_SOCKET_QUESTION_MAX 64                /* characters */
#define CONTROL_SOCKET_ANSWER_MAX   (2 * 1024 * 1024) /* bytes: enough for 64 members, 1,024 sightings */
#define CONTROL_SOCKET_PATHS        16                /* the name itself, then with ".2" to ".16" appended */

struct control_socket;
/* Answers a question ("status", "metrics"): the text, on the heap; the control socket frees it. NULL: unknown
 * question. */
typedef char *control_socket_answer_fn(void *arg, const char *question);
struct control_socket_setup {
    struct heap *heap;
    struct log log;
    const char *path; /* as in os/sock.h ("unix:@name", "unix:/folder/name"); a dead socket there is replaced;
                         if a live one has the name, ".2" up to ".16" is appended */
    control_socket_answer_fn *answer;
    void *arg;
};
#define CONTROL_SOCKET_WAITS_MAX 10
int MUST_CHECK control_socket_open(const struct control_socket_setup *setup, struct control_socket **out,
                                   struct error *error);
void control_socket_close(struct control_socket *control);             /* NULL is allowed */
const char *control_socket_path(const struct control_socket *control); /* with its number, if any */
void control_socket_pump(struct control_socket *control, uint64_t now_ns);
size_t control_socket_waits(const struct control_socket *control, struct sock_wait *items, size_t max,
                            uint64_t *deadline_ns);

/* The client side, for the command: queries the node at exactly this path. Blocks until the deadline
 * (clock_real). The caller frees the answer with heap_free. HEARTH_PEER_LOST: no node, or it closed before
 * the end of the answer, or it runs as another user. HEARTH_UNSUPPORTED: unknown question. HEARTH_LIMIT: the
 * answer is longer than 4 MiB. */
#define CONTROL_SOCKET_TAKEN_MAX (4 * 1024 * 1024)
int MUST_CHECK control_socket_ask(struct heap *heap, const char *path, const char *question,
                                  uint64_t deadline_ns, char **answer, struct error *error);

/* The path for a user and a config folder: "unix:@hearth-<user>-<16 digits>". */
#define CONTROL_SOCKET_PLACE_MAX 64
void control_socket_place(const char *folder, uint32_t user, char *path, size_t size);
