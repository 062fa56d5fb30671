/* SPDX-License-Identifier: Apache-2.0 */
/* One rank of the demo's race: trains with one codec after the other, and tells what it sees. */
#include "cli/demo/racer.h"

#include <stdio.h>

#include "cli/cluster/cluster_plan.h"
#include "core/hash.h"

#define RANKS_MAX 64 /* members of a cluster */

static void tell(const struct racer *r, struct race_note *note)
{
    note->rank = r->rank;
    r->tell(r->arg, note);
}

int racer_fail(const struct racer *r, int lane, int status, const char *text)
{
    struct race_note note = {.kind = NOTE_FAILED, .lane = lane};
    snprintf(note.text, sizeof note.text, "%s: %s", hearth_status_name(status), text);
    tell(r, &note);
    return status;
}

/* What this rank has sent; among machines the busiest one: of two on one machine only one sends to others. */
static int sent_bytes(struct racer *r, double *bytes)
{
    struct hearth_compressor_stats stats = {.size = sizeof stats};
    int status = hearth_compressor_stats(r->trainer.compressor, NULL, &stats);
    *bytes = status ? 0 : (double)stats.sent_bytes;
    if (!status && r->syncs)
        status = hearth_all_reduce(r->trainer.group, bytes, bytes, 1, HEARTH_F64, HEARTH_OP_MAX, NULL);
    return status;
}

/* Compares the replicas and looks how good they are. */
static int look(struct racer *r, struct race_track *lane, struct race_point *point)
{
    struct trainer *t = &r->trainer;
    int status = hearth_group_same(t->group, t->params, t->count * sizeof *t->params, NULL, NULL);
    if (!status)
        status = trainer_score(t, r->race->test_images, &point->score);
    if (status)
        return status;
    point->step = t->step;
    point->seconds = (double)(t->compute_ns + t->call_ns) / (double)NS_PER_S;
    lane->checks++;
    return sent_bytes(r, &point->bytes);
}

static int run_steps(struct racer *r, struct race_track *lane)
{
    struct race_note note = {.kind = NOTE_POINT, .lane = (int)(lane - r->race->lanes)};
    struct trainer *t = &r->trainer;
    size_t limit = race_limit(r->race, lane);
    double loss = 0;
    int status = trainer_start(t);
    while (!status && !lane->reached && t->step < limit) {
        status = r->quit && atomic_load(r->quit) ? HEARTH_CANCELLED : trainer_step(t, &loss);
        if (status || t->step % RACE_EVERY != 0)
            continue;
        status = look(r, lane, &note.point);
        lane->reached = !status && lane->like < 0 && note.point.score.accuracy >= r->race->target;
        if (!status && r->speaks)
            tell(r, &note);
    }
    lane->steps = t->step;
    return status;
}

static int open_lane(struct racer *r, const struct race_track *lane)
{
    struct trainer *t = &r->trainer;
    struct hearth_compressor_config config;
    hearth_compressor_config_init(&config);
    config.codec = lane->codec;
    int status = hearth_compressor_open(t->group, &config, &t->compressor);
    return !status && r->syncs ? trainer_sync(t) : status;
}

static void close_lane(struct racer *r)
{
    struct trainer *t = &r->trainer;
    hearth_sync_close(t->sync);
    hearth_compressor_close(t->compressor);
    t->sync = NULL;
    t->compressor = NULL;
}

/* What differs between ranks: times and, if something is wrong, the hash. */
static int agree_on_end(const struct trainer *t, struct race_note *note)
{
    double times[RANKS_MAX][2];
    uint64_t hash = hash64(0, t->params, t->count * sizeof *t->params), least, most;
    if (t->size > RANKS_MAX)
        return HEARTH_LIMIT;
    times[t->rank][0] = (double)t->call_ns / (double)NS_PER_S;
    times[t->rank][1] = (double)t->compute_ns / (double)NS_PER_S;
    int status = hearth_all_gather(t->group, times[t->rank], times, 2, HEARTH_F64, NULL);
    if (!status)
        status = hearth_all_reduce(t->group, &hash, &least, 1, HEARTH_U64, HEARTH_OP_MIN, NULL);
    if (!status)
        status = hearth_all_reduce(t->group, &hash, &most, 1, HEARTH_U64, HEARTH_OP_MAX, NULL);
    if (status)
        return status;
    int first = 0; /* who waited least for others that compute */
    for (int rank = 1; rank < t->size; rank++)
        first = times[rank][0] < times[first][0] ? rank : first;
    note->network_s = times[first][0];
    note->compute_s = times[first][1];
    note->hash = hash;
    note->same = least == most;
    return HEARTH_OK;
}

int racer_lane(struct racer *r, int index)
{
    struct race_note note = {.kind = NOTE_BEGIN, .lane = index};
    struct race_track *lane = &r->race->lanes[index];
    if (r->speaks)
        tell(r, &note);
    int status = open_lane(r, lane);
    if (!status)
        status = run_steps(r, lane);
    if (!status)
        status = agree_on_end(&r->trainer, &note);
    if (status && !(r->goes_on && cluster_lost(status)))
        racer_fail(r, index, status, status == HEARTH_CANCELLED ? "asked to end" : hearth_error_text());
    note.kind = NOTE_END;
    note.steps = lane->steps;
    note.checks = lane->checks;
    note.reached = lane->reached;
    if (!status && r->speaks)
        tell(r, &note);
    close_lane(r);
    return status;
}
