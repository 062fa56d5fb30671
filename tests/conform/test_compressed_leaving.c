/* SPDX-License-Identifier: Apache-2.0 */
/* A member of several hosts leaves in a stream of compressed all-reduces: the others name it by its rank in
 * the group, whatever circle of members the operation was in, and their tensors are as before the step. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conform/mass.h"
#include "support/watchdog.h"

#define SIZE  5
#define STEPS 3 /* of all, before one leaves */

static const char *const codecs[] = {"int8", "topk:0.01", "randomk:0.05", "topk:0.02,chunk=4096", "bf16"};

struct leaving {
    struct mass mass;
    int who, spin;
};

static int start(struct fixture *c, struct mass *m, int rank, hearth_request **request)
{
    struct hearth_opts opts = opts_default();
    opts.algo = m->algo;
    return hearth_all_reduce_compressed_nb(c->world[rank], m->x[rank], m->count, m->dtype, m->op, m->codec,
                                           m->e[rank], &opts, request);
}

/* That it is lost or has left, or what it said itself; members that hear of it first pass it on. */
static bool names(const char *text, int who)
{
    char lost[32], left[32], circle[32], itself[32];
    snprintf(lost, sizeof lost, "rank %d is lost", who);
    snprintf(left, sizeof left, "rank %d has left", who);
    snprintf(circle, sizeof circle, "rank %d, which is rank", who);
    snprintf(itself, sizeof itself, " on rank %d of %d: ", who, SIZE);
    return strstr(text, lost) || strstr(text, left) || strstr(text, circle) || strstr(text, itself);
}

static void stay(struct fixture *c, struct leaving *l, int rank)
{
    struct mass *m = &l->mass;
    int status = mass_step(c, m, rank);
    if (status == HEARTH_OK) /* the one that leaves had done its part */
        status = mass_step(c, m, rank);
    check(status == HEARTH_PEER_LOST || status == HEARTH_ABORTED || status == HEARTH_GROUP_BROKEN,
          "%s: rank %d: %s: %s", m->codec, rank, hearth_status_name(status), hearth_error_text());
    check(hearth_error_reason() == HEARTH_REASON_PEER_LEFT, "%s: rank %d: %s: %s", m->codec, rank,
          hearth_reason_name(hearth_error_reason()), hearth_error_text());
    check(names(hearth_error_text(), l->who), "%s: rank %d does not name rank %d: %s", m->codec, rank, l->who,
          hearth_error_text());
    mass_check_member(m, rank);
}

static void member(struct fixture *c, int rank, void *arg)
{
    struct leaving *l = arg;
    for (int i = 0; i < STEPS; i++) {
        mass_fill(&l->mass, rank);
        check_status(mass_step(c, &l->mass, rank), HEARTH_OK);
    }
    mass_fill(&l->mass, rank);
    fixture_meet(c);
    if (rank != l->who) {
        stay(c, l, rank);
    } else {
        hearth_request *request;
        check_status(start(c, &l->mass, rank, &request), HEARTH_OK);
        for (int i = 0; i < l->spin; i++)
            hearth_request_test(request);
        hearth_node_close(c->nodes[rank]);
        c->nodes[rank] = NULL;
    }
    fixture_meet(c);
}

/* One takes it back: all others name it, whoever told them. */
static void cancelling_member(struct fixture *c, int rank, void *arg)
{
    struct leaving *l = arg;
    mass_fill(&l->mass, rank);
    fixture_meet(c);
    if (rank == l->who) {
        hearth_request *request;
        check_status(start(c, &l->mass, rank, &request), HEARTH_OK);
        for (int i = 0; i < l->spin; i++)
            hearth_request_test(request);
        hearth_request_cancel(request);
        hearth_request_close(request);
    } else if (mass_step(c, &l->mass, rank) == HEARTH_ABORTED) {
        check(hearth_error_rank() == l->who, "%s: rank %d blames rank %d for what rank %d did: %s",
              l->mass.codec, rank, hearth_error_rank(), l->who, hearth_error_text());
        check(hearth_error_reason() == HEARTH_REASON_CANCELLED, "%s: rank %d: %s: %s", l->mass.codec, rank,
              hearth_reason_name(hearth_error_reason()), hearth_error_text());
    }
    fixture_meet(c);
}

static void leave(enum hearth_algo algo, unsigned long count, member_fn *fn)
{
    static const int host[SIZE] = {0, 1, 0, 1, 2}; /* ranks 0, 1 and 4 lead their hosts */
    for (unsigned long i = 0; i < count; i++) {
        struct fixture c;
        uint64_t seed = first_seed() + i;
        const char *codec = codecs[i % (sizeof codecs / sizeof *codecs)];
        struct leaving l = {.mass = mass_of(codec, HEARTH_OP_SUM, 70000, seed)};
        l.mass.algo = algo;
        l.who = (int)draw_below(&seed, SIZE);
        l.spin = (int)draw_below(&seed, 2000);
        fixture_open_known(&c, SIZE, host, 0);
        mass_open(&l.mass, SIZE);
        fixture_run(&c, fn, &l);
        fixture_close(&c);
        mass_close(&l.mass, SIZE);
    }
}

TEST(test_two_levels)
{
    leave(HEARTH_ALGO_HIERARCHICAL, repeat_count(25), member);
}

TEST(test_one_level)
{
    leave(HEARTH_ALGO_AUTO, repeat_count(10), member);
}

TEST(test_who_has_cancelled)
{
    leave(HEARTH_ALGO_HIERARCHICAL, repeat_count(15), cancelling_member);
    leave(HEARTH_ALGO_AUTO, repeat_count(15), cancelling_member);
}
