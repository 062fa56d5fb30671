/* SPDX-License-Identifier: Apache-2.0 */
/* Times that can be computed by hand, plans that do not fit each other, and the two large runs. */
#include <math.h>

#include "oracle.h"
#include "support/suite.h"

#define MEMBERS_MAX 16

static struct heap heap;
static struct plan plans[MEMBERS_MAX];

static void plans_write(struct plan_call *call)
{
    for (call->rank = 0; call->rank < call->size; call->rank++)
        write_ok(call, &heap, &plans[call->rank]);
}

static void plans_free(int size)
{
    for (int r = 0; r < size; r++)
        plan_fini(&plans[r]);
    assert_int_equal(heap.blocks, 0);
}

/* In chunks of 100 elements. */
static struct plan_call small_call(enum plan_kind kind, enum hearth_algo algo, int size, size_t count)
{
    struct plan_call call = call_of(kind, algo, size, count);
    call.chunk_bytes = 400;
    call.window_bytes = 40000;
    return call;
}

/* 1 second a hop, 100 bytes a second, so that 100 elements take 4. */
static struct dry_net slow_net(uint32_t slots)
{
    struct link_cost cost = {.alpha_s = 1, .bytes_per_s = 100};
    return (struct dry_net){.inside = cost, .across = cost, .slots = slots};
}

static struct dry_result run_ok(struct plan_call call, const struct dry_net *net)
{
    struct dry_result result;
    struct error error;

    plans_write(&call);
    if (dryrun(plans, call.size, net, &heap, &result, &error) != HEARTH_OK)
        fail_msg("%s", error.text);
    plans_free(call.size);
    return result;
}

static void near(double got, double expected)
{
    if (fabs(got - expected) > 1e-9 * fabs(expected))
        fail_msg("%.12g, not %.12g", got, expected);
}

/* ---- times ---- */

TEST(test_one_frame)
{
    struct dry_net net = slow_net(1);
    struct dry_result result = run_ok(small_call(PLAN_BROADCAST, HEARTH_ALGO_STAR, 2, 100), &net);

    near(result.time_s, 1 + 4);
    assert_int_equal(result.messages, 1);
    assert_int_equal(result.bytes_sent, 400);
    assert_int_equal(result.bytes_sent_max, 400);
    assert_int_equal(result.hops, 1);
    net.inside.overhead_s = 0.5;
    near(run_ok(small_call(PLAN_BROADCAST, HEARTH_ALGO_STAR, 2, 100), &net).time_s, 0.5 + 1 + 4);
    net.inside.gamma_s = 0.01;
    near(run_ok(small_call(PLAN_REDUCE, HEARTH_ALGO_STAR, 2, 100), &net).time_s, 0.5 + 1 + 4 + 4);
}

/* A port does one thing after the other, out and in, each frame with its overhead. */
TEST(test_ports)
{
    struct dry_net net = slow_net(1);

    net.inside.overhead_s = 0.25;
    near(run_ok(small_call(PLAN_BROADCAST, HEARTH_ALGO_STAR, 5, 100), &net).time_s, 4 * (0.25 + 4) + 1);
    near(run_ok(small_call(PLAN_REDUCE, HEARTH_ALGO_STAR, 5, 100), &net).time_s, 0.25 + 1 + 4 * 4);
    near(run_ok(small_call(PLAN_BROADCAST, HEARTH_ALGO_RING, 5, 100), &net).time_s, 4 * (0.25 + 1 + 4));
}

/* With one slot a frame must have been taken before the next may go; with more the wire is kept full. */
TEST(test_slots)
{
    struct dry_net net = slow_net(1);
    struct plan_call call = small_call(PLAN_BROADCAST, HEARTH_ALGO_STAR, 2, 1000);

    near(run_ok(call, &net).time_s, 10 * (1 + 4));
    net.slots = 2;
    near(run_ok(call, &net).time_s, 10 * 4 + 1);
}

/* No more than a window of lanes is under way: an all_reduce by star takes two hops a block. */
TEST(test_window)
{
    struct dry_net net = slow_net(64);
    struct plan_call call = small_call(PLAN_ALL_REDUCE, HEARTH_ALGO_STAR, 2, 1000);

    near(run_ok(call, &net).time_s, 1 + 10 * 4 + 4 + 1);
    call.window_bytes = 400;
    near(run_ok(call, &net).time_s, 10 * 2 * (1 + 4));
}

TEST(test_hosts)
{
    const int host[] = {0, 0, 1};
    struct dry_net net = slow_net(1);

    net.across.alpha_s = 10;
    net.across.bytes_per_s = 10;
    net.host = host;
    near(run_ok(small_call(PLAN_BROADCAST, HEARTH_ALGO_RING, 3, 100), &net).time_s, 1 + 4 + 10 + 40);
}

/* The processor is busy with one combination after the other; loading costs nothing. */
TEST(test_work)
{
    struct dry_net net = slow_net(1);

    net.inside.bytes_per_s = 1e12;
    net.inside.gamma_s = 0.01;
    struct dry_result result = run_ok(small_call(PLAN_REDUCE, HEARTH_ALGO_STAR, 5, 100), &net);
    assert_true(fabs(result.time_s - (1 + 4 * 4)) < 1e-6);
}

/* Halving sends one part of a sum and combines into another: nothing waits. A scan by doubling combines
 * into what it has just sent: that waits until it has left the port. Here member 2 sends its sum slowly to
 * member 4 while the next contribution is there already; each combination takes 100 seconds. */
TEST(test_lent_sums)
{
    const int host[] = {0, 0, 0, 0, 1};
    struct dry_net net = slow_net(1);
    double sent_at = 1 + 4 + 100, left_at = sent_at + 40;

    near(run_ok(small_call(PLAN_ALL_REDUCE, HEARTH_ALGO_HALVING, 4, 100), &net).time_s,
         (1 + 2) + (1 + 1) + (1 + 1) + (1 + 2));
    net.host = host;
    net.inside.gamma_s = 0.25;
    net.across = (struct link_cost){.alpha_s = 10, .bytes_per_s = 10};
    near(run_ok(small_call(PLAN_SCAN, HEARTH_ALGO_TREE, 5, 100), &net).time_s, left_at + 100);
}

static void count_sends(void *arg, int rank, uint64_t lane, const struct move *move)
{
    int *sends = arg; /* of member 0, until its first target is written */

    if (rank == 0 && (move->bits & MOVE_SEND) && *sends >= 0)
        ++*sends;
    if (rank == 0 && (move->bits & MOVE_IDENTITY) && *sends >= 0)
        *sends = -1 - *sends;
}

/* Behind a fence a lane waits while the others go on. */
TEST(test_fence)
{
    int sends = 0;
    struct dry_net net = slow_net(3);

    net.observer = count_sends;
    net.observer_arg = &sends;
    run_ok(small_call(PLAN_EXCLUSIVE_SCAN, HEARTH_ALGO_RING, 2, 300), &net);
    assert_int_equal(-1 - sends, 3);
}

/* Everyone begins at its right-hand neighbour, so nobody waits for a port. */
TEST(test_all_to_all_spreads)
{
    struct dry_net net = slow_net(1);
    near(run_ok(small_call(PLAN_ALL_TO_ALL, HEARTH_ALGO_DIRECT, 8, 100), &net).time_s, 1 + 7 * 4);
}

TEST(test_same_again)
{
    struct dry_net net = slow_net(2);
    struct plan_call call = small_call(PLAN_ALL_REDUCE, HEARTH_ALGO_HIERARCHICAL, 11, 2500);
    const int host[] = {0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 0};

    call.host = net.host = host;
    net.across.alpha_s = 3;
    struct dry_result a = run_ok(call, &net), b = run_ok(call, &net);
    assert_memory_equal(&a.time_s, &b.time_s, sizeof a.time_s);
    assert_int_equal(a.messages, b.messages);
}

/* ---- order ---- */

struct log {
    int size;
    uint32_t moves_of_lane; /* moves that send on the link 0 -> 1, by step */
    uint64_t sent[MEMBERS_MAX][MEMBERS_MAX],
        taken[MEMBERS_MAX][MEMBERS_MAX]; /* hash of what was seen, in order */
    uint64_t last_key[MEMBERS_MAX][MEMBERS_MAX], window;
    bool falls;
};

static void log_move(void *arg, int rank, uint64_t lane, const struct move *move)
{
    struct log *log = arg;

    if (move->bits & MOVE_SEND) {
        uint64_t key = (lane / log->window) << 40 | (uint64_t)move->to_step << 20 | lane;
        log->falls = log->falls || key + 1 <= log->last_key[rank][move->to];
        log->last_key[rank][move->to] = key + 1;
        log->sent[rank][move->to] = log->sent[rank][move->to] * 31 + lane * 1000 + move->to_step + 1;
    }
    if (move->bits & MOVE_RECV)
        log->taken[move->from][rank] = log->taken[move->from][rank] * 31 + lane * 1000 + move->from_step + 1;
}

TEST(test_canonical_order)
{
    const int host[] = {0, 1, 1, 0, 2, 2, 2, 0, 1};
    for (int algo = 1; algo < ALGO_COUNT; algo++)
        for (uint32_t slots = 1; slots < 9; slots += 3) {
            struct log log = {.window = 3};
            struct dry_net net = slow_net(slots);
            struct plan_call call = small_call(PLAN_ALL_REDUCE, (enum hearth_algo)algo, 9, 9 * 100 * 11);
            struct dry_result result;
            struct error error;

            net.across.alpha_s = 7;
            net.inside.gamma_s = 0.003;
            net.observer = log_move;
            net.observer_arg = &log;
            call.host = net.host = host;
            call.window_bytes = 1200;
            plans_write(&call);
            assert_true(plans[0].lanes > 6);
            log.window = plans[0].window;
            assert_int_equal(dryrun(plans, 9, &net, &heap, &result, &error), HEARTH_OK);
            assert_false(log.falls);
            assert_memory_equal(log.sent, log.taken, sizeof log.sent);
            plans_free(9);
        }
}

/* ---- misfits ---- */

static void refused(int size, const struct dry_net *net, int status, const char *words)
{
    struct dry_result result;
    struct error error;

    assert_int_equal(dryrun(plans, size, net, &heap, &result, &error), status);
    if (!strstr(error.text, words))
        fail_msg("\"%s\" does not say \"%s\"", error.text, words);
    plans_free(size);
}

/* With one slot; the plans are right again after it. */
static void misfit(struct plan_call *call, const char *words)
{
    struct dry_net net = slow_net(1);
    refused(call->size, &net, HEARTH_PROTOCOL, words);
    plans_write(call);
}

TEST(test_misfits)
{
    struct dry_net no_slot = slow_net(0);
    struct plan_call call = small_call(PLAN_ALL_REDUCE, HEARTH_ALGO_RING, 3, 30);

    plans_write(&call);
    plans[1].moves[1].from_step = 9;
    misfit(&call,
           "rank 1, lane 0, move 1 (recv_reduce_send) gets the frame of another step: from rank 0, step 0");
    plans[2].count = 33;
    misfit(&call, "gets a frame of another length: from rank");
    plans[0].move_count--; /* never takes its last frame */
    misfit(&call, "rank 0 never takes the frame of lane 0, step 3, from rank 2");
    plans[1].move_count = 2; /* stops half way */
    misfit(&call, "waits for ever: to send to rank 1, step 2");
    plans[0].moves[1].to_step = 0; /* as the one before */
    misfit(&call, "rank 0, move 1: its step is not after the one before on the same link");
    plans[0].moves[0].to = 0;
    misfit(&call, "rank 0, move 0: it sends to nobody");
    plans[0].moves[1].from = 3;
    misfit(&call, "rank 0, move 1: it receives from nobody");
    plans[0].moves[1].part = 3;
    misfit(&call, "its parts are not there");
    plans[1].rank = 2;
    misfit(&call, "plan 1 is that of rank 2");
    refused(3, &no_slot, HEARTH_INVALID, "slot");
    call = small_call(PLAN_BROADCAST, HEARTH_ALGO_STAR, 2, 10);
    plans_write(&call);
    plans[0].moves[0].bits = MOVE_COPY;
    misfit(&call, "move 0 (recv) waits for a frame that is never sent: from rank 0, step 0");
    plans_free(2);
}

/* Both want to receive before they send. */
TEST(test_deadlock)
{
    struct dry_net net = slow_net(4);
    struct plan_call call = small_call(PLAN_BARRIER, HEARTH_ALGO_EXCHANGE, 2, 0);

    plans_write(&call);
    for (int r = 0; r < 2; r++) {
        struct move first = plans[r].moves[0];
        plans[r].moves[0] = plans[r].moves[1];
        plans[r].moves[1] = first;
    }
    refused(2, &net, HEARTH_PROTOCOL, "rank 0, lane 0, move 0 (recv) waits for ever: for rank 1");
}

/* Two lanes of which each waits for the slot that the other's frame stands in. */
TEST(test_deadlock_of_slots)
{
    struct dry_net net = slow_net(1);
    struct plan_call call = small_call(PLAN_ALL_TO_ALL, HEARTH_ALGO_DIRECT, 2, 100);

    plans_write(&call);
    for (int r = 0; r < 2; r++) { /* two frames each way before anything is taken: one slot is not enough */
        struct plan_writer writer = {.plan = &plans[r], .heap = &heap};
        struct move extra = plans[r].moves[1];
        extra.to_step = 1;
        plan_writer_add(&writer, extra);
        extra = plans[r].moves[2];
        plans[r].moves[2] = plans[r].moves[3];
        plans[r].moves[3] = extra;
        extra.from_step = 1;
        plan_writer_add(&writer, extra);
        assert_int_equal(writer.status, HEARTH_OK);
    }
    struct dry_result result;
    struct error error;
    struct dry_net wide = slow_net(2);
    assert_int_equal(dryrun(plans, 2, &wide, &heap, &result, &error), HEARTH_OK);
    assert_int_equal(result.messages, 4);
    refused(2, &net, HEARTH_PROTOCOL, "waits for ever: to send to rank 1, step 1");
}

/* ---- progress, memory ---- */

struct watch {
    int calls, limit;
    double last;
};

static bool watch_progress(void *arg, double share)
{
    struct watch *watch = arg;
    assert_true(share >= watch->last && share <= 1);
    watch->last = share;
    return ++watch->calls < watch->limit;
}

TEST(test_progress)
{
    struct watch watch = {.limit = 1};
    struct dry_net net = slow_net(4);
    struct plan_call call = small_call(PLAN_ALL_REDUCE, HEARTH_ALGO_RING, 16, 1600 * 100);
    struct dry_result result;
    struct error error;

    net.progress = watch_progress;
    net.progress_arg = &watch;
    plans_write(&call);
    assert_int_equal(dryrun(plans, 16, &net, &heap, &result, &error), HEARTH_CANCELLED);
    assert_int_equal(watch.calls, 1);
    watch = (struct watch){.limit = 1 << 30};
    assert_int_equal(dryrun(plans, 16, &net, &heap, &result, &error), HEARTH_OK);
    assert_true(watch.calls >= 1);
    plans_free(16);
}

TEST(test_no_memory)
{
    struct dry_net net = slow_net(8);
    struct plan_call call = small_call(PLAN_ALL_REDUCE, HEARTH_ALGO_EXCHANGE, 16, 500);
    struct dry_result result;
    struct error error;
    int status = HEARTH_NO_MEMORY;

    plans_write(&call);
    uint64_t blocks = heap.blocks;
    for (int64_t n = 0; status != HEARTH_OK; n++) {
        heap.fail_after = n;
        status = dryrun(plans, 16, &net, &heap, &result, &error);
        assert_true(status == HEARTH_OK || status == HEARTH_NO_MEMORY);
        assert_int_equal(heap.blocks, blocks);
        assert_true(n < 1000);
    }
    heap.fail_after = -1;
    plans_free(16);
}

TEST(test_nothing_to_do)
{
    struct dry_net net = slow_net(1);
    struct dry_result result = run_ok(small_call(PLAN_ALL_REDUCE, HEARTH_ALGO_RING, 4, 0), &net);

    assert_int_equal(result.messages, 0);
    near(result.time_s, 0);
    near(run_ok(small_call(PLAN_BARRIER, HEARTH_ALGO_TREE, 1, 0), &net).time_s, 0);
    near(run_ok(small_call(PLAN_BARRIER, HEARTH_ALGO_HALVING, 9, 0), &net).time_s, 4);
}

/* ---- large ---- */

static struct dry_result run_large(enum hearth_algo algo, int size, size_t count, const struct dry_net *net)
{
    struct plan_call call = small_call(PLAN_ALL_REDUCE, algo, size, count);
    struct plan *many = calloc((size_t)size, sizeof *many);
    struct dry_result result;
    struct error error;

    call.chunk_bytes = 262144;
    call.window_bytes = 4194304;
    for (call.rank = 0; call.rank < size; call.rank++)
        write_ok(&call, &heap, &many[call.rank]);
    if (dryrun(many, size, net, &heap, &result, &error) != HEARTH_OK)
        fail_msg("%s", error.text);
    for (int r = 0; r < size; r++)
        plan_fini(&many[r]);
    free(many);
    assert_int_equal(heap.blocks, 0);
    return result;
}

/* 1000 members, 100 MB, ring, over 1 Gbit/s: within 3 % of 2(N-1)(alpha + bytes/(N*rate)). */
TEST(test_ring_of_1000)
{
    struct link_cost cost = {.alpha_s = 100e-6, .bytes_per_s = 125e6};
    struct dry_net net = {.inside = cost, .across = cost, .slots = 4};
    struct dry_result result = run_large(HEARTH_ALGO_RING, 1000, 25 * 1000 * 1000, &net);
    double bound = 2 * 999 * (100e-6 + 100e6 / (1000 * 125e6));

    assert_true(fabs(result.time_s - bound) < 0.03 * bound);
    assert_int_equal(result.messages, 1000 * 1998);
    assert_int_equal(result.hops, 1998);
    assert_int_equal(result.bytes_sent_max, 199800000);
}

TEST(test_tree_of_10000)
{
    struct link_cost cost = {.alpha_s = 100e-6, .bytes_per_s = 125e6};
    struct dry_net net = {.inside = cost, .across = cost, .slots = 4};
    struct dry_result result = run_large(HEARTH_ALGO_TREE, 10000, 250000, &net);

    assert_int_equal(result.messages, 4 * 2 * 9999);
    assert_true(result.hops <= 2 * 14);
}

int main(void)
{
    heap_init(&heap, 0);
    return suite_run();
}
