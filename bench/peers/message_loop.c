/* SPDX-License-Identifier: Apache-2.0 */
/* The measuring loop for messages that all peers share.
 *
 * Ping-pong: rank 0 sends a message with the number of the round in it, rank 1 sends back what it got, rank 0
 * compares the numbers. Rounds follow each other without anything in between, and the clock is read once in
 * each; half of a round is one time.
 *
 * One way: rank 0 sends a batch of messages and keeps `window` of them under way; rank 1 keeps as many
 * receives posted, the first before rank 0 begins. A slot is used again as soon as its transfer has ended.
 * Each message carries its number, which rank 1 compares: a message in the wrong place is a wrong one. When
 * rank 1 has all, it sends an answer, and when rank 0 has that, the batch is over. Its time, divided by the
 * number of messages, is one time.
 *
 * Remote calls: a batch as well, of calls that rank 0 begins and waits for, while rank 1 sleeps and its
 * library serves. With a window of 1 that is one caller.
 *
 * Before and after the timed calls every byte is compared. The ranks agree by messages of the same library,
 * in the same turns. */
#include "bench/peers/message_loop.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/peers/samples.h"

#define CALLS_MIN    5
#define CALLS_MAX    200000
#define WARMUP_SHARE 0.2 /* of the time: a batch that takes this long ends the warm-up */
#define BATCH        4   /* windows of messages for one answer */
#define CALLS_BATCH  256 /* calls, likewise */
#define PAGE_LEN     ((size_t)4096)
#define SECONDS_MAX  600.0

struct session {
    const struct messenger *messenger;
    double seconds;
    size_t len;
    int window;     /* 0: ping-pong */
    uint32_t count; /* messages so far */
    bool exact;     /* no byte was wrong */
    unsigned char *buffers[WINDOW_MAX];
    double times[CALLS_MAX];
};

/* ---- agreement ---- */

/* Both ranks get rank 0's value and whether both are content. */
static bool agree(struct session *s, double *value, bool *content)
{
    const struct messenger *m = s->messenger;
    double note[2] = {*value, *content};
    if (m->rank == 0)
        return m->send(m->self, note, sizeof note) && m->recv(m->self, note, sizeof note) &&
               ((*content = *content && note[1] != 0), true);
    if (!m->recv(m->self, note, sizeof note))
        return false;
    *value = note[0];
    note[1] = *content = *content && note[1] != 0;
    return m->send(m->self, note, sizeof note);
}

/* ---- contents ---- */

static uint32_t stamp_of(const unsigned char *buffer)
{
    uint32_t stamp;
    memcpy(&stamp, buffer, sizeof stamp);
    return stamp;
}

static void stamp_set(unsigned char *buffer, uint32_t stamp)
{
    memcpy(buffer, &stamp, sizeof stamp);
}

/* Another one at every place and in every message. */
static unsigned char byte_at(size_t i, uint32_t stamp)
{
    return (unsigned char)((i * 2654435761U >> 13) + stamp * 97U + 1);
}

static void fill(const struct session *s, unsigned char *buffer, uint32_t stamp)
{
    for (size_t i = 0; i < s->len; i++)
        buffer[i] = byte_at(i, stamp);
}

static bool is_filled(const struct session *s, const unsigned char *buffer, uint32_t stamp)
{
    for (size_t i = 0; i < s->len; i++)
        if (buffer[i] != byte_at(i, stamp))
            return false;
    return true;
}

/* ---- the calls ---- */

static bool ping_pong(struct session *s, int calls)
{
    const struct messenger *m = s->messenger;
    unsigned char *out = s->buffers[0], *in = s->buffers[1];
    double start = now_s();
    for (int i = 0; i < calls; i++) {
        if (m->rank == 1) {
            if (!m->recv(m->self, in, s->len) || !m->send(m->self, in, s->len))
                return false;
            continue;
        }
        stamp_set(out, ++s->count);
        if (!m->send(m->self, out, s->len) || !m->recv(m->self, in, s->len))
            return false;
        s->exact = s->exact && stamp_of(in) == s->count;
        double end = now_s();
        s->times[i] = (end - start) / 2;
        start = end;
    }
    return true;
}

static int batch_len(const struct session *s)
{
    if (s->window == 0)
        return 2;
    return s->messenger->serve ? CALLS_BATCH : s->window * BATCH;
}

static bool send_batch(struct session *s, int total)
{
    const struct messenger *m = s->messenger;
    for (int i = 0; i < total + s->window; i++) {
        int slot = i % s->window;
        if (i >= s->window && !m->wait(m->self, slot))
            return false;
        if (i >= total)
            continue;
        stamp_set(s->buffers[slot], ++s->count);
        if (!m->start_send(m->self, slot, s->buffers[slot], s->len))
            return false;
    }
    return true;
}

/* The first window is posted already. */
static bool receive_batch(struct session *s, int total)
{
    const struct messenger *m = s->messenger;
    for (int i = 0; i < total; i++) {
        int slot = i % s->window;
        if (!m->wait(m->self, slot))
            return false;
        s->exact = s->exact && stamp_of(s->buffers[slot]) == ++s->count;
        if (i + s->window < total && !m->start_recv(m->self, slot, s->buffers[slot], s->len))
            return false;
    }
    return true;
}

static bool post_window(struct session *s)
{
    const struct messenger *m = s->messenger;
    for (int slot = 0; slot < s->window; slot++)
        if (!m->start_recv(m->self, slot, s->buffers[slot], s->len))
            return false;
    return true;
}

static bool remote_calls(struct session *s, int calls)
{
    const struct messenger *m = s->messenger;
    int total = batch_len(s);
    if (m->rank == 1)
        return m->serve(m->self);
    for (int i = 0; i < calls; i++) {
        double start = now_s();
        if (!send_batch(s, total))
            return false;
        s->times[i] = (now_s() - start) / total;
    }
    return m->dismiss(m->self);
}

static bool one_way(struct session *s, int calls)
{
    const struct messenger *m = s->messenger;
    int total = batch_len(s);
    for (int i = 0; i < calls; i++) {
        double value = 0, start;
        bool content = true;
        if (m->rank == 1) { /* its answer to the agreement says that the window is posted */
            if (!post_window(s) || !agree(s, &value, &content) || !receive_batch(s, total) ||
                !agree(s, &value, &content))
                return false;
            continue;
        }
        if (!agree(s, &value, &content))
            return false;
        start = now_s();
        if (!send_batch(s, total) || !agree(s, &value, &content))
            return false;
        s->times[i] = (now_s() - start) / total;
    }
    return true;
}

static bool run_calls(struct session *s, int calls)
{
    if (s->messenger->serve)
        return remote_calls(s, calls);
    return s->window > 0 ? one_way(s, calls) : ping_pong(s, calls);
}

/* ---- checks ---- */

static bool verify_ping_pong(struct session *s)
{
    const struct messenger *m = s->messenger;
    fill(s, s->buffers[0], 0);
    memset(s->buffers[1], 0, s->len);
    if (m->rank == 0 && !m->send(m->self, s->buffers[0], s->len))
        return false;
    if (!m->recv(m->self, s->buffers[1], s->len))
        return false;
    if (m->rank == 1 && !m->send(m->self, s->buffers[1], s->len))
        return false;
    s->exact = s->exact && is_filled(s, s->buffers[1], 0);
    return true;
}

static bool verify_one_way(struct session *s)
{
    const struct messenger *m = s->messenger;
    double value = 0;
    bool content = true;
    for (int slot = 0; slot < s->window; slot++) {
        if (m->rank == 0)
            fill(s, s->buffers[slot], (uint32_t)slot);
        else
            memset(s->buffers[slot], 0, s->len);
    }
    if ((m->rank == 1 && !post_window(s)) || !agree(s, &value, &content))
        return false;
    for (int slot = 0; m->rank == 0 && slot < s->window; slot++)
        if (!m->start_send(m->self, slot, s->buffers[slot], s->len))
            return false;
    for (int slot = 0; slot < s->window; slot++)
        if (!m->wait(m->self, slot))
            return false;
    for (int slot = 0; slot < s->window; slot++)
        s->exact = s->exact && is_filled(s, s->buffers[slot], (uint32_t)slot);
    return true;
}

static bool verify(struct session *s)
{
    if (s->messenger->serve)
        return remote_calls(s, 1);
    return s->window > 0 ? verify_one_way(s) : verify_ping_pong(s);
}

/* ---- the whole ---- */

/* Warms up and finds how many calls fit, as rank 0 sees it. */
static bool pace(struct session *s, int *calls)
{
    double took = 0;
    bool content = true;
    int batch = 1, messages = batch_len(s);
    for (;; batch *= 2) {
        if (!run_calls(s, batch))
            return false;
        took = 0;
        for (int i = 0; i < batch; i++)
            took += s->times[i] * messages;
        if (!agree(s, &took, &content))
            return false;
        if (took >= s->seconds * WARMUP_SHARE || batch > CALLS_MAX / 2)
            break;
    }
    double fit = s->seconds * batch / took;
    *calls = (int)(fit < CALLS_MIN ? CALLS_MIN : fit > CALLS_MAX ? CALLS_MAX : fit);
    return true;
}

static void print_row(const struct session *s, int calls)
{
    const struct messenger *m = s->messenger;
    printf("{\"name\": \"%s\", \"algo\": \"%s\", \"alloc\": \"%s\", \"ranks\": 2, \"bytes\": %zu, ", m->name,
           m->algo, m->alloc, s->len);
    printf("\"course\": \"%s\", \"window\": %d, \"calls\": %d, ",
           m->serve        ? "calls"
           : s->window > 0 ? "one_way"
                           : "ping_pong",
           s->window, calls);
    printf("\"median_us\": %.4f, \"p99_us\": %.4f, \"min_us\": %.4f, ", samples_median(s->times, calls) * 1e6,
           samples_p99(s->times, calls) * 1e6, s->times[0] * 1e6);
    printf("\"ok\": %s}\n", s->exact ? "true" : "false");
    fflush(stdout);
}

static bool measure_session(struct session *s)
{
    double value = 0;
    int calls;
    s->exact = true;
    if (!verify(s) || !pace(s, &calls) || !run_calls(s, calls) || !verify(s) || !agree(s, &value, &s->exact))
        return false;
    if (s->messenger->rank == 0) {
        samples_sort(s->times, calls);
        print_row(s, calls);
    }
    return true;
}

static void buffers_free(struct session *s)
{
    const struct messenger *m = s->messenger;
    for (int i = 0; i < WINDOW_MAX; i++) {
        if (s->buffers[i] && m->give)
            m->give(m->self, s->buffers[i]);
        else
            free(s->buffers[i]);
        s->buffers[i] = NULL;
    }
}

static bool buffers_take(struct session *s)
{
    const struct messenger *m = s->messenger;
    int count = s->window > 0 ? s->window : 2;
    for (int i = 0; i < count; i++) {
        s->buffers[i] = m->take ? m->take(m->self, s->len)
                                : aligned_alloc(PAGE_LEN, (s->len + PAGE_LEN - 1) / PAGE_LEN * PAGE_LEN);
        if (!s->buffers[i]) {
            fprintf(stderr, "%s: no memory for %d messages of %zu bytes\n", m->name, count, s->len);
            return false;
        }
    }
    return true;
}

int measure_messages(const struct messenger *messenger, const struct course *course)
{
    static struct session s; /* large, and a program measures once */
    char *seconds_end, *window_end, *size_end;
    long window = strtol(course->window, &window_end, 10);
    s = (struct session){.messenger = messenger, .seconds = strtod(course->seconds, &seconds_end)};
    s.len = strtoull(course->size, &size_end, 10);
    if (!(s.seconds > 0 && s.seconds <= SECONDS_MAX) || *seconds_end) {
        fprintf(stderr, "%s: --seconds %s: more than 0, at most %g\n", messenger->name, course->seconds,
                SECONDS_MAX);
        return 2;
    }
    if (*window_end || window < 0 || window > WINDOW_MAX || (window > 0 && !messenger->start_send)) {
        fprintf(stderr, "%s: --window %s: 0 for ping-pong%s\n", messenger->name, course->window,
                messenger->start_send ? ", at most 64" : " is all that it does");
        return 2;
    }
    if (*size_end || s.len < sizeof s.count || s.len > SIZE_MAX / 2) {
        fprintf(stderr, "%s: %s is not a size in bytes, at least 4\n", messenger->name, course->size);
        return 2;
    }
    s.window = (int)window;
    bool good = buffers_take(&s) && measure_session(&s);
    buffers_free(&s);
    return good ? 0 : 1;
}
