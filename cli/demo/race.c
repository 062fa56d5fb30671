/* SPDX-License-Identifier: Apache-2.0 */
/* The demo's race: its lanes, and one rank of it, which trains with one codec after the other and tells what
 * it sees. */
#include "cli/demo/race.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/cluster/cluster_plan.h"
#include "core/hash.h"

#define RANKS_MAX      64  /* members of a cluster */
#define STEPS_EXPECTED 110 /* of the first lane */
#define LIKE_FACTOR    2

_Static_assert(sizeof(struct race_note) <= PIPE_BUF, "notes are written in one piece");

void race_init(struct race *race)
{
    static const struct race_track lanes[RACE_LANES] = {
        {"plain", "none", .like = -1},
        {"int8", "int8", .like = -1},
        {"topk:0.01", "topk:0.01", .like = -1},
        {"powersgd:4", "powersgd:4", .like = -1},
        {"topk, no feedback", "topk:0.01,feedback=off", .like = 2},
    };
    memcpy(race->lanes, lanes, sizeof lanes);
    race->lane_count = RACE_LANES;
}

/* At most so many steps. */
static size_t limit_of(const struct race *race, const struct race_track *lane)
{
    size_t twice = lane->like >= 0 ? race->lanes[lane->like].result.steps * LIKE_FACTOR : race->steps_max;
    return twice < race->steps_max ? twice : race->steps_max;
}

double race_share(const struct race *race, const struct race_track *lane)
{
    size_t expected = race->lanes[0].done ? race->lanes[0].result.steps : STEPS_EXPECTED;
    if (lane->like >= 0)
        expected = limit_of(race, lane);
    double share = (double)race_last(lane).step / (double)expected;
    return share < 0.99 ? share : 0.99;
}

const struct race_point *race_at(const struct race_track *lane, size_t step)
{
    for (size_t i = lane->point_count; i > 0; i--) {
        if (lane->points[i - 1].step <= step)
            return &lane->points[i - 1];
    }
    return NULL;
}

struct race_point race_last(const struct race_track *lane)
{
    return lane->point_count ? lane->points[lane->point_count - 1] : (struct race_point){.step = 0};
}

/* ---- notes ---- */

void race_see(const struct race *race, enum race_event event, const struct race_track *lane)
{
    if (race->seen)
        race->seen(race->arg, event, lane);
}

void race_take(struct race *race, const struct race_note *note)
{
    struct race_track *lane = &race->lanes[note->lane];
    if (note->event == RACE_POINT && lane->point_count < RACE_POINTS_MAX)
        lane->points[lane->point_count++] = note->point;
    if (note->event == RACE_END) {
        lane->result = note->result;
        lane->done = true;
    }
    race_see(race, note->event, lane);
    bool differs = note->event == RACE_END && !lane->result.same;
    if (differs)
        fprintf(stderr,
                "hearth demo: after %s the replicas differ; this is a bug in Hearth, please report it\n",
                lane->name);
    if (note->event == RACE_TROUBLE)
        fprintf(stderr, "hearth demo: rank %d, %s: %s\n", note->rank, lane->name, note->text);
    race->failed = race->failed || differs || note->event == RACE_TROUBLE;
}

static void tell(const struct racer *r, struct race_note *note)
{
    note->rank = r->rank;
    if (r->pipe < 0)
        race_take(r->race, note);
    else if (r->rank == 0 || note->event == RACE_TROUBLE)
        while (write(r->pipe, note, sizeof *note) < 0 && errno == EINTR) {
        }
}

int racer_fail(const struct racer *r, int lane, int status, const char *text)
{
    struct race_note note = {.event = RACE_TROUBLE, .lane = lane};
    snprintf(note.text, sizeof note.text, "%s: %s", hearth_status_name(status), text);
    tell(r, &note);
    return status;
}

/* ---- one lane ---- */

/* What this rank has sent; among machines the busiest one: of two on one machine only one sends to others. */
static int sent_bytes(struct racer *r, double *bytes)
{
    struct hearth_compressor_stats stats = {.size = sizeof stats};
    int status = hearth_compressor_stats(r->trainer.compressor, NULL, &stats);
    *bytes = status ? 0 : (double)stats.sent_bytes;
    if (!status && r->pipe < 0)
        status = hearth_all_reduce(r->trainer.group, bytes, bytes, 1, HEARTH_F64, HEARTH_OP_MAX, NULL);
    return status;
}

/* Compares the replicas and looks how good they are. */
static int look(struct racer *r, struct race_result *result, struct race_point *point)
{
    struct trainer *t = &r->trainer;
    int status = hearth_group_same(t->group, t->params, t->count * sizeof *t->params, NULL, NULL);
    if (!status)
        status = trainer_score(t, r->race->test_images, &point->score);
    if (status)
        return status;
    point->step = t->step;
    point->seconds = (double)(t->compute_ns + t->call_ns) / (double)NS_PER_S;
    result->checks++;
    return sent_bytes(r, &point->bytes);
}

static int run_steps(struct racer *r, const struct race_track *lane, struct race_result *result)
{
    struct race_note note = {.event = RACE_POINT, .lane = (int)(lane - r->race->lanes)};
    struct trainer *t = &r->trainer;
    size_t limit = limit_of(r->race, lane);
    double loss = 0;
    int status = trainer_start(t);
    while (!status && !result->reached && t->step < limit) {
        status = r->quit && atomic_load(r->quit) ? HEARTH_CANCELLED : trainer_step(t, &loss);
        if (status || t->step % RACE_EVERY != 0)
            continue;
        status = look(r, result, &note.point);
        result->reached = !status && lane->like < 0 && note.point.score.accuracy >= r->race->target;
        if (!status)
            tell(r, &note);
    }
    result->steps = t->step;
    return status;
}

static int open_lane(struct racer *r, const struct race_track *lane)
{
    struct trainer *t = &r->trainer;
    struct hearth_compressor_config config;
    hearth_compressor_config_init(&config);
    config.codec = lane->codec;
    int status = hearth_compressor_open(t->group, &config, &t->compressor);
    return !status && r->pipe < 0 ? trainer_sync(t) : status;
}

static void close_lane(struct racer *r)
{
    hearth_sync_close(r->trainer.sync);
    hearth_compressor_close(r->trainer.compressor);
    r->trainer.sync = NULL;
    r->trainer.compressor = NULL;
}

/* What differs between ranks: times and, if something is wrong, the hash. */
static int agree_on_end(const struct trainer *t, struct race_result *result)
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
    int first = 0; /* which rank waited least for others that compute */
    for (int rank = 1; rank < t->size; rank++)
        first = times[rank][0] < times[first][0] ? rank : first;
    result->network_s = times[first][0];
    result->compute_s = times[first][1];
    result->hash = hash;
    result->same = least == most;
    return HEARTH_OK;
}

int racer_lane(struct racer *r, int index)
{
    struct race_note note = {.event = RACE_BEGIN, .lane = index};
    struct race_track *lane = &r->race->lanes[index];
    tell(r, &note);
    int status = open_lane(r, lane);
    if (!status)
        status = run_steps(r, lane, &note.result);
    if (!status)
        status = agree_on_end(&r->trainer, &note.result);
    if (status && !(r->pipe < 0 && cluster_lost(status)))
        racer_fail(r, index, status, status == HEARTH_CANCELLED ? "asked to end" : hearth_error_text());
    lane->result = note.result; /* a later lane may run as many steps as this one */
    note.event = RACE_END;
    if (!status)
        tell(r, &note);
    close_lane(r);
    return status;
}
