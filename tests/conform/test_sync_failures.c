/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients of a model, and what may go wrong: tensors that are not ready, members that differ, failures. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conform/model.h"
#include "gradient/sync.h"

/* ---- what is not ready ---- */

static void never_ready(struct fixture *c, int rank, void *arg)
{
    struct model m;
    hearth_group *g = c->world[rank];
    model_open(&m, g, "int8", HEARTH_OP_SUM);
    for (int step = 0; step < 2; step++) {
        model_fill(&m, rank, step);
        if (rank == 0) {
            check_status(hearth_sync_wait(m.sync, NULL), HEARTH_INVALID);
            check_text(hearth_error_text(), "24 of 24");
            check_text(hearth_error_text(), "\"layer0.weight\", \"layer1.weight\", \"layer2.weight\", ...");
        }
        for (int i = 0; i < TENSORS; i++)
            if (i != 5 && i != 16)
                check_status(hearth_sync_ready(m.sync, i), HEARTH_OK);
        check_status(hearth_sync_wait(m.sync, NULL), HEARTH_INVALID);
        check_text(hearth_error_text(), "2 of 24");
        check_text(hearth_error_text(), "\"layer5.weight\", \"layer16.weight\"");
        check(model_holds(&m, 5, m.before) && model_holds(&m, 16, m.before),
              "what was not ready has changed");
        check_status(hearth_sync_ready(m.sync, 16), HEARTH_OK);
        check_status(hearth_sync_ready(m.sync, 5), HEARTH_OK);
        check_status(hearth_sync_wait(m.sync, NULL), HEARTH_OK);
        model_same(&m, g);
    }
    model_close(&m);
}

TEST(test_never_ready)
{
    fixture_once(3, NULL, never_ready, NULL);
}

/* ---- members that differ ---- */

struct difference {
    const char *what;
    int count;    /* tensors of the one that differs */
    int swap;     /* exchanges this and the next, or -1 */
    int renamed;  /* or -1 */
    int reshaped; /* or -1 */
    enum hearth_op op;
    const char *codec;
    const char *text; /* of the error */
};

static const struct difference differences[] = {
    {"one more", 9, -1, -1, -1, HEARTH_OP_SUM, NULL, "index 8"},
    {"one fewer", 7, -1, -1, -1, HEARTH_OP_SUM, NULL, "index 7"},
    {"none", 0, -1, -1, -1, HEARTH_OP_SUM, NULL, "index 0"},
    {"order", 8, 3, -1, -1, HEARTH_OP_SUM, NULL, "index 3"},
    {"name", 8, -1, 6, -1, HEARTH_OP_SUM, NULL, "index 6"},
    {"shape", 8, -1, -1, 1, HEARTH_OP_SUM, NULL, "index"},
    {"operation", 8, -1, -1, -1, HEARTH_OP_AVG, NULL, "operation"},
    {"codec", 8, -1, -1, -1, HEARTH_OP_SUM, "int8", "codec"},
};

static void differ(struct fixture *c, int rank, void *arg)
{
    const struct difference *d = arg;
    bool odd = rank == 1;
    hearth_sync *sync;
    float *data = must_alloc(model_len(9)), *before = must_alloc(model_len(9));
    for (size_t i = 0; i < model_count(9); i++)
        data[i] = before[i] = (float)(i % 100);
    check_status(hearth_sync_open(c->world[rank], odd ? d->codec : NULL, odd ? d->op : HEARTH_OP_SUM, &sync),
                 HEARTH_OK);
    int count = odd ? d->count : 8;
    for (int i = 0; i < count; i++) {
        char name[32];
        int which = odd && i == d->swap ? i + 1 : odd && i == d->swap + 1 && d->swap >= 0 ? i - 1 : i;
        snprintf(name, sizeof name, odd && i == d->renamed ? "other%d" : "name%d", which);
        check(model_add(sync, odd && i == d->reshaped ? 17 : which, name, data) == i, "%s",
              hearth_error_text());
    }
    for (int i = 0; i < count; i++)
        check_status(hearth_sync_ready(sync, i), HEARTH_OK);
    for (int again = 0; again < 2; again++) {
        check_status(hearth_sync_wait(sync, NULL), HEARTH_MISMATCH);
        check_text(hearth_error_text(), "rank 1");
        check_text(hearth_error_text(), d->text);
    }
    if (count > 0)
        check_status(hearth_sync_ready(sync, 0), HEARTH_MISMATCH);
    check(memcmp(data, before, model_len(9)) == 0, "%s: data has changed", d->what);
    hearth_sync_close(sync);
    free(data);
    free(before);
}

TEST(test_members_that_differ)
{
    struct fixture c;
    fixture_open(&c, 3, NULL);
    for (size_t i = 0; i < sizeof differences / sizeof differences[0]; i++) {
        struct difference d = differences[i];
        fixture_run(&c, differ, &d);
        fixture_works(&c);
    }
    fixture_close(&c);
}

/* ---- failures ---- */

/* Rank 0 takes one bucket back before the others have come to it: that one fails on all, the rest is done. */
static void retry(struct fixture *c, int rank, void *arg)
{
    const int *bad = arg; /* a tensor of the bucket that fails */
    struct model m;
    hearth_group *g = c->world[rank];
    model_open(&m, g, NULL, HEARTH_OP_SUM);
    for (int step = 0; step < 3; step++) {
        model_fill(&m, rank, step);
        model_reduce(&m, g, HEARTH_OP_SUM, 1);
        if (step == 0 || rank == 0)
            model_ready(&m, (uint64_t)rank);
        if (step > 0) {
            uint32_t bucket = m.sync->tensors[*bad].item.bucket;
            if (rank == 0)
                check_status(hearth_request_cancel(m.sync->buckets[bucket].request), HEARTH_OK);
            fixture_meet(c);
            if (rank != 0)
                model_ready(&m, (uint64_t)rank);
            check_status(hearth_sync_wait(m.sync, NULL), rank == 0 ? HEARTH_CANCELLED : HEARTH_ABORTED);
            check_text(hearth_error_text(), m.sync->tensors[m.sync->buckets[bucket].plan.first].name);
            for (int i = 0; i < TENSORS; i++) {
                bool failed = m.sync->tensors[i].item.bucket == bucket;
                check(model_holds(&m, i, failed ? m.before : m.wanted), "tensor %d of step %d", i, step);
            }
            fixture_meet(c);
            model_ready(&m, (uint64_t)rank + 9);
        }
        check_status(hearth_sync_wait(m.sync, NULL), HEARTH_OK);
        model_check(&m, m.wanted, "the sum");
    }
    model_close(&m);
}

TEST(test_retry)
{
    struct fixture c;
    int bad[] = {1, 9}; /* in a bucket with others; alone */
    fixture_open(&c, 3, NULL);
    for (int i = 0; i < 2; i++)
        fixture_run(&c, retry, &bad[i]);
    fixture_works(&c);
    fixture_close(&c);
}

/* A gradient that is no number spoils its tensor's operation on all members, and nothing else. */
static void poison(struct fixture *c, int rank, void *arg)
{
    enum { BAD = 16 };
    struct model m;
    hearth_group *g = c->world[rank];
    model_open(&m, g, "int8", HEARTH_OP_AVG);
    for (int step = 0; step < 6; step++) {
        bool bad = step % 3 > 0;
        model_fill(&m, rank, step);
        model_reduce(&m, g, HEARTH_OP_AVG, 1);
        float *x = m.data[BAD], kept = x[77];
        if (bad && rank == 1)
            ((float *)m.before[BAD])[77] = x[77] = (float)NAN;
        model_ready(&m, (uint64_t)(step + rank));
        if (bad) {
            check_status(hearth_sync_wait(m.sync, NULL), HEARTH_POISONED);
            check_text(hearth_error_text(), "\"layer16.weight\"");
            check_text(hearth_error_text(), "rank 1");
            check(model_holds(&m, BAD, m.before), "the poisoned tensor has changed");
            check(model_holds(&m, 1, m.wanted) && model_holds(&m, 9, m.wanted),
                  "a plain tensor is not reduced");
        }
        if (step % 3 == 2) {
            hearth_sync_drop(m.sync);
            continue;
        }
        if (bad) {
            x[77] = kept;
            model_ready(&m, (uint64_t)rank);
        }
        check_status(hearth_sync_wait(m.sync, NULL), HEARTH_OK);
        model_same(&m, g);
    }
    struct hearth_compressor_stats stats = {.size = sizeof stats};
    check_status(hearth_compressor_stats(hearth_sync_compressor(m.sync), "layer16.weight", &stats),
                 HEARTH_OK);
    check(stats.steps == 4, "the tensor has %" PRIu64 " steps", stats.steps);
    model_close(&m);
}

TEST(test_poison)
{
    struct fixture c;
    fixture_open(&c, 3, NULL);
    fixture_run(&c, poison, NULL);
    fixture_works(&c);
    fixture_close(&c);
}

/* Nobody comes in time; then all do. In the first step it is the comparison that nobody came to. */
static void late(struct fixture *c, int rank, void *arg)
{
    struct model m;
    hearth_group *g = c->world[rank];
    struct hearth_opts opts = opts_default();
    opts.timeout_ms = 10;
    model_open(&m, g, NULL, HEARTH_OP_SUM);
    for (int step = 0; step < 3; step++) {
        model_fill(&m, rank, step);
        model_reduce(&m, g, HEARTH_OP_SUM, 1);
        fixture_meet(c);
        if (rank == 0) {
            model_ready(&m, 1);
            check_status(hearth_sync_wait(m.sync, &opts), HEARTH_TIMEOUT);
            model_check(&m, m.before, "what it held before");
        }
        fixture_meet(c);
        if (rank != 0 || step > 0)
            model_ready(&m, (uint64_t)rank);
        int status = hearth_sync_wait(m.sync, NULL);
        if (rank != 0) {
            check_status(status, HEARTH_ABORTED);
            check_text(hearth_error_text(), "rank 0");
            model_check(&m, m.before, "what it held before");
            if (step > 0)
                model_ready(&m, (uint64_t)rank);
            status = hearth_sync_wait(m.sync, NULL);
        }
        check_status(status, HEARTH_OK);
        model_check(&m, m.wanted, "the sum");
    }
    model_close(&m);
}

/* Rank 0 gives a step up half-way. The others hear of it, wherever they are, and the next step is right. */
static void drop(struct fixture *c, int rank, void *arg)
{
    const int *made_ready = arg;
    struct model m;
    hearth_group *g = c->world[rank];
    model_open(&m, g, NULL, HEARTH_OP_SUM);
    for (int step = 0; step < 4; step++) {
        model_fill(&m, rank, step);
        model_reduce(&m, g, HEARTH_OP_SUM, 1);
        fixture_meet(c);
        bool gives_up = step % 2 == 1;
        if (!gives_up || rank != 0) {
            model_ready(&m, (uint64_t)(step + rank));
        } else {
            for (int i = 0; i < *made_ready; i++)
                check_status(hearth_sync_ready(m.sync, i), HEARTH_OK);
            hearth_sync_drop(m.sync);
        }
        if (gives_up && rank != 0) {
            int status = hearth_sync_wait(m.sync, NULL);
            bool too_late = *made_ready == TENSORS && status == HEARTH_OK; /* all had ended before */
            check(too_late || status == HEARTH_ABORTED, "wait: %s", hearth_status_name(status));
            hearth_sync_drop(m.sync);
        }
        if (gives_up)
            continue;
        check_status(hearth_sync_wait(m.sync, NULL), HEARTH_OK);
        model_check(&m, m.wanted, "the sum");
    }
    hearth_sync_drop(m.sync); /* nothing has begun */
    model_close(&m);
}

TEST(test_late_and_drop)
{
    struct fixture c;
    int made_ready[] = {1, TENSORS / 2, TENSORS};
    fixture_open(&c, 3, NULL);
    fixture_run(&c, late, NULL);
    for (int i = 0; i < 3; i++)
        fixture_run(&c, drop, &made_ready[i]);
    fixture_works(&c);
    fixture_close(&c);
}

/* Rank 0 gives the first step up before the others have begun it, and so before they have compared their
 * tensors with its: they do not wait for it, and do not take its next step for this one. */
static void drop_first(struct fixture *c, int rank, void *arg)
{
    struct model m;
    hearth_group *g = c->world[rank];
    model_open(&m, g, NULL, HEARTH_OP_SUM);
    model_fill(&m, rank, 0);
    if (rank == 0) {
        check_status(hearth_sync_ready(m.sync, 9), HEARTH_OK); /* a bucket of its own */
        hearth_sync_drop(m.sync);
    }
    fixture_meet(c);
    if (rank != 0) {
        model_ready(&m, (uint64_t)rank);
        check_status(hearth_sync_wait(m.sync, NULL), HEARTH_ABORTED);
        check_text(hearth_error_text(), "given up");
        hearth_sync_drop(m.sync);
    }
    fixture_meet(c);
    model_fill(&m, rank, 1);
    model_reduce(&m, g, HEARTH_OP_SUM, 1);
    model_ready(&m, (uint64_t)rank);
    check_status(hearth_sync_wait(m.sync, NULL), HEARTH_OK);
    model_check(&m, m.wanted, "the sum");
    model_close(&m);
}

TEST(test_drop_first)
{
    fixture_once(3, NULL, drop_first, NULL);
}

/* Closed in the middle of a step: nobody hangs, the group stays usable. */
static void close_in_flight(struct fixture *c, int rank, void *arg)
{
    const int *steps = arg;
    struct model m;
    hearth_group *g = c->world[rank];
    model_open(&m, g, NULL, HEARTH_OP_SUM);
    for (int step = 0; step <= *steps; step++) {
        model_fill(&m, rank, step);
        bool last = step == *steps;
        for (int i = 0; i < (last && rank == 0 ? TENSORS / 3 : TENSORS); i++)
            check_status(hearth_sync_ready(m.sync, i), HEARTH_OK);
        if (last && rank == 0)
            break;
        check_status(hearth_sync_wait(m.sync, NULL), last ? HEARTH_ABORTED : HEARTH_OK);
    }
    model_close(&m);
}

TEST(test_close_in_flight)
{
    for (int steps = 0; steps < 2; steps++) {
        struct fixture c;
        fixture_open(&c, 3, NULL);
        fixture_run(&c, close_in_flight, &steps);
        fixture_works(&c);
        fixture_close(&c);
    }
}

/* A node that closes takes its syncs along, in flight or not. */
static void node_closes(struct fixture *c, int rank, void *arg)
{
    struct model m;
    model_open(&m, c->world[rank], NULL, HEARTH_OP_SUM);
    for (int step = 0; step < 2; step++) {
        model_fill(&m, rank, step);
        if (step == 0 || rank != 0)
            model_ready(&m, (uint64_t)rank);
        else
            check_status(hearth_sync_ready(m.sync, 9), HEARTH_OK);
        if (step == 1 && rank == 0) {
            hearth_node_close(c->nodes[0]);
            continue;
        }
        int status = hearth_sync_wait(m.sync, NULL);
        if (step == 0)
            check_status(status, HEARTH_OK);
        else
            check(status == HEARTH_PEER_LOST || status == HEARTH_GROUP_BROKEN, "%s", hearth_error_text());
    }
    if (rank == 0)
        m.sync = NULL;
    model_close(&m);
}

TEST(test_node_closes)
{
    struct fixture c;
    fixture_open(&c, 3, NULL);
    fixture_run(&c, node_closes, NULL);
    c.nodes[0] = NULL;
    fixture_close(&c);
}
