/* SPDX-License-Identifier: Apache-2.0 */
/* The bursts of `hearth bench messages`: a thread for each node, started together. After a failure a node
 * still comes to where the other one waits for it; what that waits for ends by its deadline. */
#include "cli/bench/message_bursts.h"

#include <string.h>

#include "cli/shared/stats.h"
#include "connect/dial_driver.h"
#include "os/clock.h"
#include "os/sock.h"
#include "os/thread.h"

#define OP_TIMEOUT_MS   60000
#define SPINS_PER_YIELD 50
#define BLOCK_LEN       1021 /* a prime, so that a piece at a wrong place shows */
#define CALL_NAME       "bench"
#define DIAL_NS         (5 * NS_PER_S)

enum { TAG_TRIP, TAG_STREAM };

/* ---- contents ---- */

static void block_fill(uint8_t block[BLOCK_LEN], int slot)
{
    for (int i = 0; i < BLOCK_LEN; i++)
        block[i] = (uint8_t)(i * 31 + slot * 17 + 1);
}

static uint8_t *slot_of(const struct message_bench *b, uint8_t *memory, int slot)
{
    return memory + (size_t)slot * b->stride;
}

/* What a node sends is in `source`, what it receives in `buffer`. */
static void job_fill(void *arg, int index)
{
    struct message_bench *b = arg;
    struct bench_node *n = &b->nodes.list[index];
    uint8_t block[BLOCK_LEN];
    for (int slot = 0; slot < b->window; slot++) {
        block_fill(block, slot);
        pattern_fill(slot_of(b, n->source, slot), b->bytes, block, BLOCK_LEN);
        memset(slot_of(b, n->buffer, slot), 0, b->bytes);
    }
}

static bool arrived_whole(const struct message_bench *b, int index, int slots)
{
    uint8_t block[BLOCK_LEN];
    for (int slot = 0; slot < slots; slot++) {
        block_fill(block, slot);
        if (!pattern_holds(slot_of(b, b->nodes.list[index].buffer, slot), b->bytes, block, BLOCK_LEN))
            return false;
    }
    return true;
}

/* ---- bare sockets ---- */

static int socket_move(int fd, uint8_t *data, size_t len, bool sending)
{
    unsigned spins = 0;
    while (len > 0) {
        struct iovec piece = {data, len};
        ssize_t done = sending ? sock_send(fd, &piece, 1) : sock_recv(fd, &piece, 1);
        if (done < 0)
            return (int)done;
        data += done;
        len -= (size_t)done;
        if (done == 0 && ++spins % SPINS_PER_YIELD == 0)
            thread_yield();
    }
    return HEARTH_OK;
}

static int sockets_open(int fds[2])
{
    struct sock_addr addr, bound;
    struct error error;
    struct sock_tuning tuning = {.congestion = true};
    int listener = -1, status = sock_addr_parse("127.0.0.1:0", 0, &addr);
    uint64_t deadline = clock_real() + DIAL_NS;
    if (!status)
        status = sock_listen(&addr, 1, &listener, &bound, &error);
    if (!status)
        status = dial_wait(&bound, deadline, &fds[0], &error);
    if (!status)
        status = sock_accept(listener, &fds[1], &addr);
    if (listener >= 0)
        sock_unlisten(listener);
    for (int i = 0; i < 2 && !status; i++)
        sock_tune(fds[i], &tuning);
    return status;
}

/* ---- one message ---- */

static int pass_on(const struct message_bench *b, int index, uint8_t *data)
{
    if (b->medium == BY_SOCKETS)
        return socket_move(b->sockets[index], data, b->bytes, true);
    return hearth_send(b->nodes.list[index].group, 1 - index, TAG_TRIP, data, b->bytes, NULL);
}

static int take_in(const struct message_bench *b, int index, uint8_t *data)
{
    if (b->medium == BY_SOCKETS)
        return socket_move(b->sockets[index], data, b->bytes, false);
    return hearth_recv(b->nodes.list[index].group, 1 - index, TAG_TRIP, data, b->bytes, NULL, NULL);
}

static void job_trip(void *arg, int index)
{
    struct message_bench *b = arg;
    struct bench_node *n = &b->nodes.list[index];
    int status = HEARTH_OK;
    rank_threads_align(&b->nodes.threads);
    uint64_t start = clock_real();
    for (int i = 0; i < b->count && !status; i++) {
        if (index == 0)
            status = pass_on(b, index, n->source);
        if (!status)
            status = take_in(b, index, n->buffer);
        if (!status && index == 1)
            status = pass_on(b, index, n->buffer);
        if (index == 1)
            continue;
        uint64_t end = clock_real();
        b->took[i] = (double)(end - start) / 2 / (double)NS_PER_S;
        start = end;
    }
    bench_note_failure(n, status);
}

/* ---- a window of them ---- */

struct window {
    hearth_request *requests[MESSAGE_WINDOW_MAX];
    struct hearth_message *replies[MESSAGE_WINDOW_MAX];
};

static int window_start(struct message_bench *b, struct window *w, int index, int slot)
{
    struct bench_node *n = &b->nodes.list[index];
    uint8_t *source = slot_of(b, n->source, slot), *buffer = slot_of(b, n->buffer, slot);
    if (b->course == COURSE_CALL)
        return hearth_rpc_call_nb(n->group, 1, CALL_NAME, source, b->bytes, NULL, &w->replies[slot],
                                  &w->requests[slot]);
    if (index == 0)
        return hearth_send_nb(n->group, 1, TAG_STREAM, source, b->bytes, NULL, &w->requests[slot]);
    return hearth_recv_nb(n->group, 0, TAG_STREAM, buffer, b->bytes, NULL, NULL, &w->requests[slot]);
}

/* The answer to a call goes to where messages arrive, for the comparison. */
static int window_wait(struct message_bench *b, struct window *w, int index, int slot)
{
    int status = hearth_request_wait(w->requests[slot], OP_TIMEOUT_MS);
    hearth_request_close(w->requests[slot]);
    w->requests[slot] = NULL;
    if (status || b->course != COURSE_CALL)
        return status;
    if (w->replies[slot]->len == b->bytes)
        memcpy(slot_of(b, b->nodes.list[index].buffer, slot), w->replies[slot]->data, b->bytes);
    else
        b->exact = false;
    hearth_message_free(w->replies[slot]);
    return HEARTH_OK;
}

static int window_run(struct message_bench *b, struct window *w, int index, int posted)
{
    int status = HEARTH_OK;
    for (int i = posted; i < b->count + b->window && !status; i++) {
        if (i >= b->window)
            status = window_wait(b, w, index, i % b->window);
        if (!status && i < b->count)
            status = window_start(b, w, index, i % b->window);
    }
    for (int slot = 0; slot < b->window; slot++)
        hearth_request_close(w->requests[slot]);
    return status;
}

static void job_stream(void *arg, int index)
{
    struct message_bench *b = arg;
    struct bench_node *n = &b->nodes.list[index];
    struct window w = {.requests = {NULL}};
    int posted = 0, status = HEARTH_OK;
    while (index == 1 && b->medium == BY_NODES && posted < b->window && !status)
        status = window_start(b, &w, index, posted++);
    rank_threads_align(&b->nodes.threads);
    if (index == 0)
        b->begin_ns = clock_real();
    for (int i = 0; i < b->count && b->medium == BY_SOCKETS && !status; i++)
        status = socket_move(b->sockets[index], slot_of(b, index == 0 ? n->source : n->buffer, i % b->window),
                             b->bytes, index == 0);
    if (b->medium == BY_NODES && !status)
        status = window_run(b, &w, index, posted);
    if (index == 1)
        b->end_ns = clock_real();
    bench_note_failure(n, status);
}

/* Node 1 does nothing for it: its library answers. */
static void job_call(void *arg, int index)
{
    struct message_bench *b = arg;
    struct window w = {.requests = {NULL}};
    if (index == 1)
        return;
    b->begin_ns = clock_real();
    bench_note_failure(&b->nodes.list[0], window_run(b, &w, index, 0));
    b->end_ns = clock_real();
}

static void answer(void *arg, hearth_rpc *rpc, const void *request, size_t len)
{
    (void)arg;
    (void)hearth_rpc_reply(rpc, request, len);
}

/* ---- copies ---- */

static void *(*volatile copy)(void *, const void *, size_t) = memcpy;

static void run_copies(struct message_bench *b)
{
    for (int i = 0; i < b->count; i++)
        copy(slot_of(b, b->nodes.list[1].buffer, i % b->window),
             slot_of(b, b->nodes.list[0].source, i % b->window), b->bytes);
}

/* ---- */

int message_burst(struct message_bench *b)
{
    static rank_threads_job *const jobs[COURSES] = {job_trip, job_stream, job_call};
    if (b->medium == BY_COPY) {
        b->begin_ns = clock_real();
        run_copies(b);
        b->end_ns = clock_real();
    } else {
        int code = bench_nodes_run(&b->nodes, jobs[b->course], b, b->bytes);
        if (code)
            return code;
    }
    bool each = b->course == COURSE_TRIP && b->medium != BY_COPY;
    b->times = each ? b->count : 1;
    if (!each)
        b->took[0] = (double)(b->end_ns - b->begin_ns) / (double)NS_PER_S / b->count;
    return EXIT_GOOD;
}

int message_verify(struct message_bench *b)
{
    int count = b->count;
    rank_threads_run(&b->nodes.threads, job_fill, b);
    b->count = b->course == COURSE_TRIP ? 1 : b->window;
    int code = message_burst(b);
    if (!code && b->course != COURSE_STREAM)
        b->exact = b->exact && arrived_whole(b, 0, b->count);
    if (!code && b->course != COURSE_CALL)
        b->exact = b->exact && arrived_whole(b, 1, b->count);
    b->count = count;
    return code;
}

int message_bench_open(struct message_bench *b, const struct bench_line *line, size_t window_bytes)
{
    struct arg_list memory = {{window_bytes}, 1};
    struct hearth_rpc_limits limits;
    b->sockets[0] = b->sockets[1] = -1;
    int code = bench_nodes_open(&b->nodes, line, &memory, true, NULL, NULL);
    if (code)
        return code;
    hearth_rpc_limits_init(&limits);
    limits.request_max = limits.reply_max = window_bytes;
    if (hearth_rpc_register(b->nodes.list[1].node, CALL_NAME, answer, NULL, &limits))
        return command_fail(line->command, "cannot answer calls: %s", hearth_error_text());
    if (sockets_open(b->sockets))
        return command_fail(line->command, "no TCP connection over loopback to compare with");
    return EXIT_GOOD;
}

void message_bench_close(struct message_bench *b)
{
    bench_nodes_close(&b->nodes);
    sock_close(b->sockets[0]);
    sock_close(b->sockets[1]);
}
