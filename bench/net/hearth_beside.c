/* SPDX-License-Identifier: Apache-2.0 */
/* What a large message does to what goes beside it, between two processes. Uses hearth.h only; rank, world
 * and transport come from the environment.
 *
 *     hearth_beside stalled|flowing ROUNDS PROBES BYTES
 *         round trips of 4 B and barriers, without and with a message of BYTES on the way to the same peer
 *     hearth_beside line COUNT BYTES
 *         time of one message at a time
 *     hearth_beside pile COUNT BYTES MS
 *         sends to a peer that receives nothing, with a deadline
 *
 * Rank 0 measures and prints a line of JSON; rank 1 answers. Rounds without and with the large message take
 * turns. A message that is `stalled` has no receive until the round is over; a `flowing` one has one before
 * it begins, and only probes that end before it does count. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <hearth.h>

#include "bench/peers/samples.h"

#define PROBES_MAX 20000
#define BASE_MAX   200 /* probes of each kind in a round without a large message */
#define SENDS_MAX  100000
#define BLOCK      25 /* probes of one kind, then the other: a slow one is not the next kind's delay */
#define GAP_MS     5  /* between probes */
#define BEGIN_MS   50 /* for a large message to begin */
#define WAIT_MS    300000
#define PAGE_LEN   ((size_t)4096)

enum tags { TURN, BULK, PILE };
enum probe { MESSAGE, BARRIER, PROBES };
enum side { WITHOUT, WITH, SIDES };
enum order { PROBE_MESSAGE, PROBE_BARRIER, ROUND_OVER }; /* what rank 0 says in its 4 bytes */

struct series {
    double times[PROBES_MAX];
    int count;
};

struct bench {
    hearth_node *node;
    hearth_group *world;
    bool flowing;
    int rounds, probes;
    unsigned char *buffer;
    size_t len;
    struct series series[PROBES][SIDES];
};

static bool good(int status, const char *what)
{
    if (status != HEARTH_OK)
        fprintf(stderr, "hearth_beside: %s: %s\n", what, hearth_error_text());
    return status == HEARTH_OK;
}

static bool wrong(const char *what)
{
    fprintf(stderr, "hearth_beside: %s\n", what);
    return false;
}

static void pause_ms(int ms)
{
    struct timespec t = {ms / 1000, ms % 1000 * 1000000L};
    nanosleep(&t, NULL);
}

/* ---- contents of the large message: a page each of another number, other ones in every round ---- */

static void fill(unsigned char *buffer, size_t len, int round)
{
    for (size_t i = 0; i < len; i += PAGE_LEN)
        memset(buffer + i, (int)((i / PAGE_LEN * 31 + (size_t)round * 7) & 0xff),
               len - i < PAGE_LEN ? len - i : PAGE_LEN);
}

static bool is_filled(const unsigned char *buffer, size_t len, int round)
{
    static unsigned char page[PAGE_LEN];
    for (size_t i = 0; i < len; i += PAGE_LEN) {
        size_t part = len - i < PAGE_LEN ? len - i : PAGE_LEN;
        memset(page, (int)((i / PAGE_LEN * 31 + (size_t)round * 7) & 0xff), part);
        if (memcmp(buffer + i, page, part) != 0)
            return false;
    }
    return true;
}

/* ---- probes ---- */

static bool say(const struct bench *b, int32_t order)
{
    return good(hearth_send(b->world, 1, TURN, &order, sizeof order, NULL), "send");
}

static bool hear(const struct bench *b, int32_t *order)
{
    return good(hearth_recv(b->world, 1, TURN, order, sizeof *order, NULL, NULL), "receive");
}

/* A round trip of 4 bytes; of a barrier the time is taken after one, so that both ranks stand before it. */
static bool probe_once(struct bench *b, enum probe kind, double *took)
{
    int32_t order = kind == BARRIER ? PROBE_BARRIER : PROBE_MESSAGE;
    double start = now_s();
    if (!say(b, order) || !hear(b, &order))
        return false;
    if (kind == BARRIER) {
        start = now_s();
        if (!good(hearth_barrier(b->world, NULL), "barrier"))
            return false;
    }
    *took = now_s() - start;
    return true;
}

static bool probe_many(struct bench *b, enum side side, hearth_request *bulk)
{
    int count = side == WITHOUT && b->probes > BASE_MAX ? BASE_MAX : b->probes;
    for (int i = 0; i < count * PROBES; i++) {
        enum probe kind = (enum probe)(i / BLOCK % PROBES);
        struct series *series = &b->series[kind][side];
        double took;
        if (!probe_once(b, kind, &took))
            return false;
        if (bulk && hearth_request_test(bulk) != HEARTH_PENDING)
            return b->flowing || wrong("a message without a receive has ended");
        if (series->count < PROBES_MAX)
            series->times[series->count++] = took;
        pause_ms(GAP_MS);
    }
    return true;
}

static bool round_of_sender(struct bench *b, int round)
{
    hearth_request *bulk;
    struct hearth_opts opts;
    hearth_opts_init(&opts);
    opts.flags = HEARTH_FLAG_SYNC_SEND;
    fill(b->buffer, b->len, round);
    if (!probe_many(b, WITHOUT, NULL) || !say(b, ROUND_OVER) ||
        !good(hearth_send_nb(b->world, 1, BULK, b->buffer, b->len, &opts, &bulk), "large send"))
        return false;
    pause_ms(BEGIN_MS);
    bool fine = probe_many(b, WITH, bulk) && say(b, ROUND_OVER);
    fine = fine && good(hearth_request_wait(bulk, WAIT_MS), "large send");
    hearth_request_close(bulk);
    return fine;
}

static bool answer_probes(const struct bench *b)
{
    for (;;) {
        int32_t order;
        if (!good(hearth_recv(b->world, 0, TURN, &order, sizeof order, NULL, NULL), "receive"))
            return false;
        if (order == ROUND_OVER)
            return true;
        if (!good(hearth_send(b->world, 0, TURN, &order, sizeof order, NULL), "send") ||
            (order == PROBE_BARRIER && !good(hearth_barrier(b->world, NULL), "barrier")))
            return false;
    }
}

static bool post_bulk(struct bench *b, hearth_request **bulk)
{
    return good(hearth_recv_nb(b->world, 0, BULK, b->buffer, b->len, NULL, NULL, bulk), "large receive");
}

static bool round_of_receiver(struct bench *b, int round)
{
    hearth_request *bulk;
    memset(b->buffer, 0, b->len);
    if ((b->flowing && !post_bulk(b, &bulk)) || !answer_probes(b) || !answer_probes(b) ||
        (!b->flowing && !post_bulk(b, &bulk)))
        return false;
    bool fine = good(hearth_request_wait(bulk, WAIT_MS), "large receive");
    hearth_request_close(bulk);
    if (fine && !is_filled(b->buffer, b->len, round))
        return wrong("the large message has wrong bytes");
    return fine;
}

static void print_series(struct bench *b, enum probe kind)
{
    static const char *const names[] = {"message", "barrier"};
    struct series *s = b->series[kind];
    double median[SIDES], p99[SIDES];
    for (int side = 0; side < SIDES; side++) {
        samples_sort(s[side].times, s[side].count);
        median[side] = samples_median(s[side].times, s[side].count) * 1e6;
        p99[side] = samples_p99(s[side].times, s[side].count) * 1e6;
    }
    printf("{\"mode\": \"%s\", \"probe\": \"%s\", \"bytes\": %zu, \"count\": %d, \"vs_count\": %d, ",
           b->flowing ? "flowing" : "stalled", names[kind], b->len, s[WITH].count, s[WITHOUT].count);
    printf("\"median_us\": %.2f, \"p99_us\": %.2f, \"vs_median_us\": %.2f, \"vs_p99_us\": %.2f, ",
           median[WITH], p99[WITH], median[WITHOUT], p99[WITHOUT]);
    printf("\"later_us\": %.2f, \"later_p99_us\": %.2f}\n", median[WITH] - median[WITHOUT],
           p99[WITH] - p99[WITHOUT]);
    fflush(stdout);
}

static bool run_beside(struct bench *b, char **argv)
{
    int rank = hearth_group_rank(b->world);
    b->flowing = strcmp(argv[1], "flowing") == 0;
    b->rounds = (int)strtol(argv[2], NULL, 10);
    b->probes = (int)strtol(argv[3], NULL, 10);
    for (int i = 0; i < b->rounds; i++)
        if (!good(hearth_barrier(b->world, NULL), "barrier") ||
            !(rank == 0 ? round_of_sender(b, i) : round_of_receiver(b, i)))
            return false;
    for (int kind = 0; rank == 0 && kind < PROBES; kind++) {
        if (b->series[kind][WITH].count == 0)
            return wrong("no probe ended beside the large message");
        print_series(b, (enum probe)kind);
    }
    return true;
}

/* ---- one message at a time ---- */

static bool run_line(struct bench *b, char **argv)
{
    int rank = hearth_group_rank(b->world), count = (int)strtol(argv[2], NULL, 10);
    static double times[SENDS_MAX];
    struct hearth_opts opts;
    bool fine = count > 0 && count <= SENDS_MAX;
    hearth_opts_init(&opts);
    opts.flags = HEARTH_FLAG_SYNC_SEND;
    for (int i = 0; i < count && fine; i++) {
        hearth_request *bulk = NULL;
        if (rank == 0)
            fill(b->buffer, b->len, i);
        else
            fine = post_bulk(b, &bulk);
        fine = fine && good(hearth_barrier(b->world, NULL), "barrier");
        double start = now_s();
        if (rank == 0)
            fine = fine && good(hearth_send(b->world, 1, BULK, b->buffer, b->len, &opts), "large send");
        else
            fine = fine && good(hearth_request_wait(bulk, WAIT_MS), "large receive");
        times[i] = now_s() - start;
        hearth_request_close(bulk);
        if (rank == 1 && fine && !is_filled(b->buffer, b->len, i))
            fine = wrong("the message has wrong bytes");
    }
    if (!fine || rank == 1)
        return fine;
    samples_sort(times, count);
    printf("{\"mode\": \"line\", \"bytes\": %zu, \"count\": %d, \"median_us\": %.1f, \"min_us\": %.1f}\n",
           b->len, count, samples_median(times, count) * 1e6, times[0] * 1e6);
    fflush(stdout);
    return true;
}

/* ---- many sends, no receive ---- */

struct pile {
    double start_s;   /* to begin all sends */
    int sent, late;   /* ended well; ended by their deadline */
    int named;        /* of the late ones, whose error names the receiver */
    int64_t grown[2]; /* of each rank's resident set, at most, in bytes */
    char text[256];   /* of the first late one */
};

static int64_t resident_bytes(void)
{
    char line[256];
    long kib = 0;
    FILE *file = fopen("/proc/self/status", "re");
    while (file && fgets(line, sizeof line, file))
        if (strncmp(line, "VmHWM:", 6) == 0)
            kib = strtol(line + 6, NULL, 10);
    if (file)
        fclose(file);
    return (int64_t)kib * 1024;
}

static bool pile_up(struct bench *b, int count, int64_t deadline_ms, struct pile *pile)
{
    static hearth_request *requests[SENDS_MAX];
    struct hearth_opts opts;
    hearth_opts_init(&opts);
    opts.timeout_ms = deadline_ms;
    double start = now_s();
    for (int i = 0; i < count; i++)
        if (!good(hearth_send_nb(b->world, 1, PILE, b->buffer, b->len, &opts, &requests[i]), "send"))
            return false;
    pile->start_s = now_s() - start;
    for (int i = 0; i < count; i++) {
        int status = hearth_request_wait(requests[i], WAIT_MS);
        pile->sent += status == HEARTH_OK;
        if (status == HEARTH_TIMEOUT) {
            pile->named += hearth_request_error_rank(requests[i]) == 1;
            if (pile->late++ == 0)
                snprintf(pile->text, sizeof pile->text, "%s", hearth_request_error(requests[i]));
        }
        hearth_request_close(requests[i]);
    }
    return true;
}

/* What had left is received, whole; then rank 1 tells how far it had grown. */
static bool pile_down(struct bench *b, int64_t base)
{
    int32_t count;
    if (!good(hearth_recv(b->world, 0, TURN, &count, sizeof count, NULL, NULL), "receive"))
        return false;
    int64_t grown = resident_bytes() - base;
    for (int i = 0; i < count; i++) {
        memset(b->buffer, 0xff, b->len);
        if (!good(hearth_recv(b->world, 0, PILE, b->buffer, b->len, NULL, NULL), "receive"))
            return false;
        if (!is_filled(b->buffer, b->len, 0))
            return wrong("a message has wrong bytes");
    }
    return good(hearth_send(b->world, 0, TURN, &grown, sizeof grown, NULL), "send");
}

static bool run_pile(struct bench *b, char **argv)
{
    int count = (int)strtol(argv[2], NULL, 10);
    struct pile pile = {0};
    fill(b->buffer, b->len, 0);
    if (count < 1 || count > SENDS_MAX || !argv[4] || !good(hearth_barrier(b->world, NULL), "barrier"))
        return false;
    int64_t base = resident_bytes();
    if (hearth_group_rank(b->world) == 1)
        return pile_down(b, base);
    if (!pile_up(b, count, strtoll(argv[4], NULL, 10), &pile))
        return false;
    pile.grown[0] = resident_bytes() - base;
    if (!say(b, pile.sent) ||
        !good(hearth_recv(b->world, 1, TURN, &pile.grown[1], sizeof pile.grown[1], NULL, NULL), "receive"))
        return false;
    printf("{\"mode\": \"pile\", \"bytes\": %zu, \"count\": %d, \"sent\": %d, \"late\": %d, \"named\": %d, ",
           b->len, count, pile.sent, pile.late, pile.named);
    printf("\"start_us\": %.1f, \"sender_bytes\": %lld, \"receiver_bytes\": %lld, \"text\": \"%s\"}\n",
           pile.start_s * 1e6, (long long)pile.grown[0], (long long)pile.grown[1], pile.text);
    fflush(stdout);
    return true;
}

/* ---- */

static bool run(struct bench *b, int argc, char **argv)
{
    bool beside = strcmp(argv[1], "stalled") == 0 || strcmp(argv[1], "flowing") == 0;
    b->len = strtoull(argv[argc < 5 || !beside ? 3 : 4], NULL, 10);
    b->buffer = aligned_alloc(PAGE_LEN, (b->len + PAGE_LEN - 1) / PAGE_LEN * PAGE_LEN);
    if (!b->buffer || b->len == 0)
        return wrong("no memory for the message");
    if (beside && argc == 5)
        return run_beside(b, argv);
    if (strcmp(argv[1], "line") == 0)
        return run_line(b, argv);
    if (strcmp(argv[1], "pile") == 0 && argc == 5)
        return run_pile(b, argv);
    return wrong("no such measurement");
}

int main(int argc, char **argv)
{
    static struct bench bench;
    if (argc < 4) {
        fprintf(stderr, "usage: hearth_beside stalled|flowing|line|pile COUNT ... BYTES; see its source\n");
        return 2;
    }
    if (!good(hearth_node_open(NULL, &bench.node), "open"))
        return 1;
    bench.world = hearth_node_world(bench.node);
    bool fine = hearth_group_size(bench.world) == 2 && run(&bench, argc, argv);
    hearth_node_close(bench.node);
    free(bench.buffer);
    return fine ? 0 : 1;
}
