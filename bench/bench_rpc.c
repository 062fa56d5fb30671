/* SPDX-License-Identifier: Apache-2.0 */
/* Remote calls beside plain messages, interleaved: hearth run -n 2 --transport tcp -- build/bench/bench_rpc.
 * Rank 0 calls rank 1: one call at a time against a ping-pong of the same length, then 64 in flight. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <hearth.h>

#define LEN     64
#define ROUNDS  5
#define TURNS   1000
#define FLIGHT  64
#define BATCHES 200

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void must(int status)
{
    if (status == HEARTH_OK)
        return;
    fprintf(stderr, "%s\n", hearth_error_text());
    exit(1);
}

static void echo(void *arg, hearth_rpc *rpc, const void *request, size_t len)
{
    (void)arg;
    must(hearth_rpc_reply(rpc, request, len));
}

static double ping(hearth_group *world, int rank)
{
    char bytes[LEN] = {0};
    double start = now_s();
    for (int i = 0; i < TURNS; i++) {
        if (rank == 0)
            must(hearth_send(world, 1, 1, bytes, LEN, NULL));
        must(hearth_recv(world, !rank, 1, bytes, LEN, NULL, NULL));
        if (rank == 1)
            must(hearth_send(world, 0, 1, bytes, LEN, NULL));
    }
    return (now_s() - start) / TURNS;
}

static double call(hearth_group *world)
{
    char bytes[LEN] = {0};
    double start = now_s();
    for (int i = 0; i < TURNS; i++) {
        struct hearth_message *reply;
        must(hearth_rpc_call(world, 1, "echo", bytes, LEN, NULL, &reply));
        hearth_message_free(reply);
    }
    return (now_s() - start) / TURNS;
}

/* The oldest is waited for, then another begins. */
static double many(hearth_group *world)
{
    static struct hearth_message *replies[FLIGHT];
    static hearth_request *requests[FLIGHT];
    char bytes[LEN] = {0};
    double start = now_s();
    for (int i = 0; i < FLIGHT * BATCHES; i++) {
        int at = i % FLIGHT;
        if (i >= FLIGHT) {
            must(hearth_request_wait(requests[at], -1));
            hearth_request_close(requests[at]);
            hearth_message_free(replies[at]);
        }
        must(hearth_rpc_call_nb(world, 1, "echo", bytes, LEN, NULL, &replies[at], &requests[at]));
    }
    for (int at = 0; at < FLIGHT; at++) {
        must(hearth_request_wait(requests[at], -1));
        hearth_request_close(requests[at]);
        hearth_message_free(replies[at]);
    }
    return FLIGHT * BATCHES / (now_s() - start);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values)
{
    qsort(values, ROUNDS, sizeof *values, by_value);
    return values[ROUNDS / 2];
}

int main(void)
{
    hearth_node *node;
    double pings[ROUNDS], calls[ROUNDS], rates[ROUNDS];
    must(hearth_node_open(NULL, &node));
    hearth_group *world = hearth_node_world(node);
    int rank = hearth_group_rank(world);
    if (rank == 1)
        must(hearth_rpc_register(node, "echo", echo, NULL, NULL));
    must(hearth_barrier(world, NULL));
    for (int i = 0; i < ROUNDS; i++) {
        pings[i] = ping(world, rank);
        char done = 0;
        if (rank == 0) {
            calls[i] = call(world);
            rates[i] = many(world);
            must(hearth_send(world, 1, 2, &done, 1, NULL));
        } else if (getenv("BENCH_RPC_MAIN_SLEEPS")) {
            struct timespec pause = {.tv_nsec = 1000000};
            struct hearth_opts opts;
            hearth_opts_init(&opts);
            opts.timeout_ms = 0;
            struct hearth_received got = {.size = sizeof got};
            while (hearth_probe(world, 0, 2, &opts, &got) == HEARTH_PENDING)
                nanosleep(&pause, NULL);
            must(hearth_recv(world, 0, 2, &done, 1, NULL, NULL));
        } else {
            must(hearth_recv(world, 0, 2, &done, 1, NULL, NULL));
        }
    }
    if (rank == 0) {
        double p = median(pings) * 1e6, c = median(calls) * 1e6;
        printf("ping-pong of %d B: %.1f us, call and answer: %.1f us, %.2f x; %d in flight: %.0f calls a "
               "second (medians of %d)\n",
               LEN, p, c, c / p, FLIGHT, median(rates), ROUNDS);
    }
    hearth_node_close(node);
    return 0;
}
