/* SPDX-License-Identifier: Apache-2.0 */
/* The job of `hearth up -- PROGRAM`.
 *
 * Each member broadcasts how its program ended, under a tag of its own, and all others wait for that from the
 * beginning: so every member always has an operation in flight, which ends when somebody is lost, and nobody
 * leaves the group before all programs have ended. */
#include "cli/cluster/up_job.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cluster/cluster_plan.h"
#include "cli/shared/route.h"
#include "core/bytes.h"

#define SLICE_MS     200
#define TAG_END      100                  /* + rank */
#define FOREVER_MS   INT64_C(31536000000) /* a year, the longest that there is */
#define CODE_RUNNING INT32_MIN

/* What members tell each other about where to meet. On the wire: the text, then both numbers. */
#define PLACE_LEN (UP_ADDRESS_MAX + 8)
struct up_place {
    char master[UP_ADDRESS_MAX]; /* rank 0, as this member reaches it */
    int32_t first;               /* lowest rank on this member's machine */
    int32_t port;                /* rank 0: two free ports begin there */
};

/* ---- where to meet ---- */

static void network_scan(struct up_job *job, struct up_place *place)
{
    job->local_rank = job->local_size = 0;
    place->first = job->rank;
    for (int rank = 0; rank < job->size; rank++) {
        struct hearth_member member = {.size = sizeof member};
        bool known = hearth_group_member(job->group, rank, &member) == HEARTH_OK;
        bool here = rank == job->rank || (known && member.same_host);
        job->local_rank += here && rank < job->rank;
        job->local_size += here;
        if (here && rank < place->first)
            place->first = rank;
        snprintf(job->names[rank], sizeof job->names[rank], "%s", known ? member.name : "");
        if (rank == 0)
            snprintf(place->master, sizeof place->master, "%s", known ? member.address : "");
    }
    if (job->rank == 0)
        place->port = route_ports();
}

static bool is_six(const char *address)
{
    return strchr(address, ':');
}

/* Rank 0 listens where all others dial: at one address if they agree on one, else at all of its own. */
static void choose_meeting(struct up_job *job, const struct up_place *places)
{
    const char *own = places[job->rank].master, *dialled = NULL;
    bool one = true, mixed = false;
    for (int rank = 1; rank < job->size; rank++) {
        one = one && (!dialled || strcmp(dialled, places[rank].master) == 0);
        mixed = mixed || is_six(places[rank].master) != is_six(places[1].master);
        dialled = places[1].master;
    }
    if (mixed)
        own = places[0].master; /* by which others may reach it, says rank 0 */
    else if (job->rank == 0 && dialled && one)
        own = dialled;
    else if (job->rank == 0 && dialled)
        own = is_six(dialled) ? "::" : "0.0.0.0";
    job->port = (uint16_t)places[0].port;
    snprintf(job->master, sizeof job->master, "%.*s", UP_ADDRESS_MAX - 1,
             job->rank == 0 ? places[0].master : own);
    snprintf(job->meeting, sizeof job->meeting, is_six(own) ? "[%.*s]:%u" : "%.*s:%u", UP_ADDRESS_MAX - 16,
             own, job->port + 1U);
    job->host_rank = 0;
    for (int rank = 0; rank < places[job->rank].first; rank++)
        job->host_rank += places[rank].first == rank;
}

bool up_place_good(const char *address, int32_t port)
{
    static const char numeric[] = "0123456789abcdefABCDEF:.", scope[] = "abcdefghijklmnopqrstuvwxyz"
                                                                        "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                                                        "0123456789._-";
    size_t len = strspn(address, numeric);
    if (address[len] == '%' && len > 0)
        len += 1 + strspn(address + len + 1, scope);
    return address[len] == 0 && port >= 0 && port < UINT16_MAX;
}

static void place_encode(const struct up_place *place, uint8_t bytes[static PLACE_LEN])
{
    struct writer w = writer_of(bytes, PLACE_LEN);
    put_bytes(&w, place->master, UP_ADDRESS_MAX);
    put_u32(&w, (uint32_t)place->first);
    put_u32(&w, (uint32_t)place->port);
}

/* false: it cannot be used. */
static bool place_decode(struct up_place *place, const uint8_t bytes[static PLACE_LEN])
{
    struct reader r = reader_of(bytes, PLACE_LEN);
    get_bytes(&r, place->master, UP_ADDRESS_MAX);
    place->master[UP_ADDRESS_MAX - 1] = 0;
    place->first = (int32_t)get_u32(&r);
    place->port = (int32_t)get_u32(&r);
    return up_place_good(place->master, place->port);
}

static int agree(struct up_job *job)
{
    struct up_place places[UP_MEMBERS_MAX] = {{.port = 0}};
    uint8_t bytes[UP_MEMBERS_MAX][PLACE_LEN];
    network_scan(job, &places[job->rank]);
    place_encode(&places[job->rank], bytes[job->rank]);
    int status = hearth_all_gather(job->group, bytes[job->rank], bytes, PLACE_LEN, HEARTH_U8, NULL);
    for (int rank = 0; rank < job->size && !status; rank++)
        status = place_decode(&places[rank], bytes[rank]) ? HEARTH_OK : HEARTH_PROTOCOL;
    if (!status)
        choose_meeting(job, places);
    return !status && job->port == 0 ? HEARTH_SYSTEM : status;
}

/* ---- forming ---- */

static void woken(void *arg, int status)
{
    struct up_job *job = arg;
    (void)status;
    job->ring(job->arg);
}

static int wait_for_ends(struct up_job *job)
{
    struct hearth_opts opts;
    hearth_opts_init(&opts);
    opts.timeout_ms = FOREVER_MS;
    opts.done = woken;
    opts.done_arg = job;
    int status = HEARTH_OK;
    for (int rank = 0; rank < job->size && !status; rank++) {
        job->codes[rank] = CODE_RUNNING;
        opts.tag = TAG_END + (uint64_t)rank;
        if (rank != job->rank)
            status = hearth_broadcast_nb(job->group, &job->codes[rank], 1, HEARTH_I32, rank, &opts,
                                         &job->ends[rank]);
    }
    return status;
}

static void note_wait(struct up_job *job, const char *text)
{
    mutex_lock(&job->lock);
    bool changed = strcmp(job->waits, text) != 0;
    snprintf(job->waits, sizeof job->waits, "%s", text);
    job->waits_changed += changed;
    mutex_unlock(&job->lock);
    if (changed)
        job->ring(job->arg);
}

bool up_job_waits(struct up_job *job, unsigned *seen, char *text, size_t size)
{
    mutex_lock(&job->lock);
    bool changed = *seen != job->waits_changed && job->waits[0];
    *seen = job->waits_changed;
    snprintf(text, size, "%s", job->waits);
    mutex_unlock(&job->lock);
    return changed;
}

bool up_job_once_more(int status)
{
    return status == HEARTH_TIMEOUT || cluster_lost(status);
}

/* In slices, so that what it waits for is said; who quits interrupts them. */
static int form(struct up_job *job)
{
    int status = HEARTH_TIMEOUT;
    note_wait(job, "");
    while (up_job_once_more(status) && !atomic_load(&job->quit)) {
        status = hearth_node_wait_for_peers(job->node, job->min - 1, SLICE_MS);
        if (status)
            continue;
        status = hearth_group_form(job->node, job->name, job->min, NULL, &job->group);
        if (up_job_once_more(status))
            note_wait(job, hearth_error_text());
    }
    return atomic_load(&job->quit) && up_job_once_more(status) ? HEARTH_CANCELLED : status;
}

int up_job_form(struct up_job *job)
{
    job->told = false;
    for (;;) {
        int status = form(job);
        if (status)
            return status;
        job->rank = hearth_group_rank(job->group);
        job->size = hearth_group_size(job->group);
        status = job->size <= UP_MEMBERS_MAX ? agree(job) : HEARTH_LIMIT;
        if (!status)
            status = wait_for_ends(job);
        if (!status)
            return HEARTH_OK;
        up_job_close(job);
        if (!up_job_once_more(status))
            return status;
    }
}

void up_job_vars(const struct up_job *job, struct vars *vars)
{
    const struct rank_place place = {job->rank,       job->size,      job->local_rank,
                                     job->local_size, job->host_rank, job->meeting,
                                     job->name,       job->master,    job->port};
    vars_add_place(vars, &place);
    vars_add(vars, "HEARTH_DISCOVER=off");
    if (job->bind)
        vars_add(vars, "HEARTH_BIND=%s", job->bind);
    if (job->local_size > 1 && !getenv("OMP_NUM_THREADS"))
        vars_add(vars, "OMP_NUM_THREADS=1"); /* as hearth run does */
}

/* ---- watching ---- */

static bool has_failed(const struct up_job *job, int rank)
{
    bool ended =
        rank == job->rank ? job->told : job->ends[rank] && hearth_request_test(job->ends[rank]) == HEARTH_OK;
    return ended && job->codes[rank] != 0;
}

enum up_job_state up_job_look(struct up_job *job, int *who)
{
    int running = 0;
    bool failed = false;
    for (int rank = 0; rank < job->size; rank++) {
        int status = job->ends[rank]                  ? hearth_request_test(job->ends[rank])
                     : rank == job->rank && job->told ? HEARTH_OK
                                                      : HEARTH_PENDING;
        failed = failed || has_failed(job, rank);
        if (status == HEARTH_PENDING) {
            running++;
        } else if (status) {
            *who = hearth_request_error_rank(job->ends[rank]);
            return UP_JOB_LOST;
        }
    }
    return running == 0 ? UP_JOB_OVER : failed ? UP_JOB_FAILED : UP_JOB_RUNS;
}

int up_job_failures(const struct up_job *job, char *text, size_t size)
{
    int count = 0, last = -1;
    size_t at = 0;
    for (int rank = 0; rank < job->size; rank++)
        last = has_failed(job, rank) ? rank : last;
    snprintf(text, size, "none");
    for (int rank = 0; rank <= last && at < size; rank++) {
        if (!has_failed(job, rank))
            continue;
        const char *between = count++ == 0 ? "" : rank == last ? " and " : ", ";
        at += (size_t)snprintf(text + at, size - at, "%s%s (rank %d, exit code %d)", between,
                               job->names[rank][0] ? job->names[rank] : "a machine", rank, job->codes[rank]);
    }
    return count;
}

void up_job_tell(struct up_job *job, int code)
{
    struct hearth_opts opts;
    hearth_opts_init(&opts);
    opts.tag = TAG_END + (uint64_t)job->rank;
    opts.done = woken;
    opts.done_arg = job;
    job->codes[job->rank] = code;
    job->told = true;
    /* A failure of the call shows in the others' requests too. */
    (void)hearth_broadcast_nb(job->group, &job->codes[job->rank], 1, HEARTH_I32, job->rank, &opts,
                              &job->ends[job->rank]);
}

void up_job_close(struct up_job *job)
{
    for (int rank = 0; rank < UP_MEMBERS_MAX; rank++) {
        hearth_request_close(job->ends[rank]);
        job->ends[rank] = NULL;
    }
    hearth_group_close(job->group);
    job->group = NULL;
}
