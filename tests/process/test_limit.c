/* SPDX-License-Identifier: Apache-2.0 */
/* Members that send at most so much: right results, not earlier than the bytes allow, without burning
 * processor time, and a member that is slower than the others. */
#include <sys/resource.h>

#include "process/team.h"
#include "support/watchdog.h"

#define COUNT 262144u /* 1 MiB of f32 */
#define RATE  80e6    /* bits a second */
#define CALLS 3

static double cpu_s(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6;
}

static void call(hearth_node *node, float *buffer, bool blocking)
{
    hearth_group *world = hearth_node_world(node);
    int size = hearth_group_size(world);
    for (size_t i = 0; i < COUNT; i++)
        buffer[i] = (float)(i % 100 + (size_t)hearth_group_rank(world));
    hearth_request *request = NULL;
    if (blocking) {
        check_ok(hearth_all_reduce(world, buffer, buffer, COUNT, HEARTH_F32, HEARTH_OP_SUM, NULL));
    } else {
        /* Nobody waits: the progress thread lets it out. The barrier is done before it. */
        struct hearth_opts opts = opts_default();
        check_ok(
            hearth_all_reduce_nb(world, buffer, buffer, COUNT, HEARTH_F32, HEARTH_OP_SUM, NULL, &request));
        opts.tag = 1;
        check_ok(hearth_barrier(world, &opts));
        check_ok(hearth_request_wait(request, -1));
        hearth_request_close(request);
    }
    for (size_t i = 0; i < COUNT; i += 101)
        check(buffer[i] == (float)((int)(i % 100) * size + size * (size - 1) / 2), "element %zu is %g", i,
              (double)buffer[i]);
}

struct setup {
    bool shared, slower; /* buffers of hearth_mem_alloc; the last rank has half the rate */
};

static void member(struct team *team, int rank, void *arg)
{
    const struct setup *setup = arg;
    double rate = setup->slower && rank == team->size - 1 ? RATE / 2 : RATE;
    set_number_env("HEARTH_RATE", (long)rate);
    hearth_node *node = member_open();
    if (!node)
        return;
    float *buffer =
        setup->shared ? hearth_mem_alloc(node, COUNT * sizeof(float)) : must_alloc(COUNT * sizeof(float));
    check_ok(hearth_barrier(hearth_node_world(node), NULL));
    uint64_t begin = now_ns(), before = metric(node, "hearth_sent_bytes_total");
    double cpu = cpu_s();
    for (int i = 0; i < CALLS; i++)
        call(node, buffer, i != 1);
    double took = (double)(now_ns() - begin) * 1e-9;
    /* References are counted as they travel; but of two members each has a whole tensor to send. */
    double sent = setup->shared ? CALLS * COUNT * sizeof(float)
                                : (double)(metric(node, "hearth_sent_bytes_total") - before);
    double least = sent * 8 / rate;
    check(took >= 0.97 * least, "rank %d: %.3f s, faster than %.3f s", rank, took, least);
    team->board->notes[rank].value = took / least;
    check(cpu_s() - cpu < (0.5 * took + 0.1) * slow_factor(), "rank %d burns %.3f s in %.3f s", rank,
          cpu_s() - cpu, took);
    if (!setup->shared)
        free(buffer);
    hearth_node_close(node);
}

static void limited(const char *transport, int size, struct setup setup)
{
    struct team team;
    watchdog(60 * (unsigned)slow_factor(), "limit");
    team_start(&team, size, transport, member, &setup);
    team_join(&team, 30 * (unsigned)slow_factor());
    print_message("%s, %d members: %.4f of the time that the bytes need\n", transport, size,
                  team.board->notes[size - 1].value);
    team_free(&team);
    checks_end();
}

TEST(test_tcp)
{
    limited("tcp", 2, (struct setup){0});
}

TEST(test_tcp_slower_member)
{
    limited("tcp", 3, (struct setup){.slower = true});
}

TEST(test_shm)
{
    limited("shm", 3, (struct setup){0});
}

TEST(test_shm_references)
{
    limited("shm", 2, (struct setup){.shared = true});
}
