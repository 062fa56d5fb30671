/* SPDX-License-Identifier: Apache-2.0 */
/* What staging costs and what overlap gives: all-reduces of two members in one process, on links of limited
 * rate, from host memory, from a device that copies at 5 GB/s with copies before and after by hand, and from
 * the same device through the group's memory adapter. Interleaved; medians in milliseconds. */
#include <hearth.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MEMBERS     2
#define ROUNDS      11
#define LEN         ((size_t)64 << 20)
#define BYTES_PER_S 5000000000u

enum way { HOST, BY_HAND, ADAPTER, WAYS };

/* Copies that a thread has begun; `wait` takes as long as a device would. */
static _Thread_local size_t begun;

struct member {
    hearth_group *group;
    char *device, *host;
    size_t pieces; /* operations in flight */
    enum way way;
    pthread_barrier_t *start;
};

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int copy_in(void *arg, void *host, const void *device, size_t len)
{
    (void)arg;
    memcpy(host, device, len);
    begun += len;
    return 0;
}

static int copy_out(void *arg, void *device, const void *host, size_t len)
{
    return copy_in(arg, device, host, len);
}

/* The processor has copied; a device would leave it alone meanwhile, so that time is not counted twice. */
static int copy_wait(void *arg)
{
    double *last = arg; /* when the copies of this device end, as if it made them alone */
    double begin = now_s();
    *last = (*last > begin ? *last : begin) + (double)begun / BYTES_PER_S;
    begun = 0;
    double left = *last - now_s();
    if (left > 0) {
        struct timespec t = {.tv_sec = (time_t)left, .tv_nsec = (long)(1e9 * (left - (double)(time_t)left))};
        nanosleep(&t, NULL);
    }
    return 0;
}

static void must(int status)
{
    if (status == HEARTH_OK)
        return;
    fprintf(stderr, "bench_device: %s\n", hearth_error_text());
    exit(1);
}

static void reduce(struct member *m, char *base)
{
    hearth_request *requests[64];
    size_t len = LEN / m->pieces;
    for (size_t i = 0; i < m->pieces; i++) {
        char *x = base + i * len;
        must(hearth_all_reduce_nb(m->group, x, x, len / 4, HEARTH_F32, HEARTH_OP_SUM, NULL, &requests[i]));
    }
    must(hearth_request_wait_all(requests, m->pieces, -1));
    for (size_t i = 0; i < m->pieces; i++)
        hearth_request_close(requests[i]);
}

static void *run(void *arg)
{
    struct member *m = arg;
    double last = 0;
    struct hearth_memory memory;
    hearth_memory_init(&memory);
    memory.arg = &last;
    memory.copy_in = copy_in;
    memory.copy_out = copy_out;
    memory.wait = copy_wait;
    must(hearth_group_set_memory(m->group, m->way == ADAPTER ? &memory : NULL));
    pthread_barrier_wait(m->start);
    if (m->way == BY_HAND) {
        copy_in(&last, m->host, m->device, LEN);
        copy_wait(&last);
    }
    reduce(m, m->way == BY_HAND ? m->host : m->device);
    if (m->way == BY_HAND) {
        copy_out(&last, m->device, m->host, LEN);
        copy_wait(&last);
    }
    return NULL;
}

static double measure(struct member members[MEMBERS], enum way way, size_t pieces)
{
    pthread_t threads[MEMBERS];
    pthread_barrier_t start;
    pthread_barrier_init(&start, NULL, MEMBERS + 1);
    for (int i = 0; i < MEMBERS; i++) {
        members[i].way = way;
        members[i].pieces = pieces;
        members[i].start = &start;
        pthread_create(&threads[i], NULL, run, &members[i]);
    }
    pthread_barrier_wait(&start);
    double begin = now_s();
    for (int i = 0; i < MEMBERS; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&start);
    return now_s() - begin;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure_rate(uint64_t rate)
{
    static const size_t pieces[] = {1, 16};
    struct hearth_config config;
    hearth_node *nodes[MEMBERS];
    struct member members[MEMBERS];
    hearth_config_init(&config);
    config.rate = rate;
    must(hearth_node_open_local(&config, MEMBERS, nodes));
    for (int i = 0; i < MEMBERS; i++) {
        members[i] =
            (struct member){.group = hearth_node_world(nodes[i]), .device = malloc(LEN), .host = malloc(LEN)};
        memset(members[i].device, 0, LEN);
        memset(members[i].host, 0, LEN);
    }
    for (size_t p = 0; p < sizeof pieces / sizeof *pieces; p++) {
        double times[WAYS][ROUNDS];
        for (int round = -1; round < ROUNDS; round++)
            for (int way = 0; way < WAYS; way++) {
                double took = measure(members, (enum way)way, pieces[p]);
                if (round >= 0)
                    times[way][round] = took;
            }
        for (int way = 0; way < WAYS; way++)
            qsort(times[way], ROUNDS, sizeof times[way][0], compare);
        double host = times[HOST][ROUNDS / 2], hand = times[BY_HAND][ROUNDS / 2],
               adapter = times[ADAPTER][ROUNDS / 2];
        printf("%5.1f Gbit/s  %2zu x %2zu MiB  host %6.1f  by hand %6.1f  adapter %6.1f  (%.2f x by hand)\n",
               (double)rate / 1e9, pieces[p], (LEN >> 20) / pieces[p], 1e3 * host, 1e3 * hand, 1e3 * adapter,
               hand / adapter);
    }
    for (int i = 0; i < MEMBERS; i++) {
        hearth_node_close(nodes[i]);
        free(members[i].device);
        free(members[i].host);
    }
}

int main(void)
{
    measure_rate(UINT64_C(5000000000));
    measure_rate(UINT64_C(10000000000));
    measure_rate(UINT64_C(25000000000));
    return 0;
}
