/* SPDX-License-Identifier: Apache-2.0 */
/* The demo's race: processes behind slow lines train the same model to the same accuracy, once for each
 * codec.
 *
 * The ranks are children of this process; they inherit the images. They meet over TCP on this machine, each
 * sending no faster than the rate it was given. What they see comes back in notes of one size through one
 * pipe: short enough that the system never mixes two of them. All ranks see the same scores, so each decides
 * by itself when a lane ends, and all decide alike. */
#include "cli/demo/race.h"
#include "cli/shared/signals.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/demo/racer.h"
#include "cli/run/launch_message.h"
#include "cli/shared/secret_handover.h"
#include "os/random.h"
#include "os/spawn.h"

#define STEPS_EXPECTED 110 /* of the first lane */
#define LIKE_FACTOR    2

_Static_assert(sizeof(struct race_note) <= PIPE_BUF, "notes are written in one piece");

/* One rank, in its own process. */
struct runner {
    struct racer racer;
    hearth_node *node;
    int pipe;
};

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

/* ---- the ranks ---- */

static void tell(void *arg, const struct race_note *note)
{
    struct runner *r = arg;
    while (write(r->pipe, note, sizeof *note) < 0 && errno == EINTR)
        ;
}

static int open_node(struct runner *r, const char *meeting)
{
    struct hearth_config config;
    hearth_config_init(&config);
    int status = hearth_config_env(&config);
    config.peers = NULL;
    config.rendezvous = meeting;
    config.job = "hearth demo"; /* always the same: what codecs draw depends on it */
    config.rank = r->racer.rank;
    config.world_size = r->racer.race->ranks;
    config.bind = "127.0.0.1";
    config.transport = "tcp"; /* as between machines; shared memory would have no line to be slow */
    config.rate = (uint64_t)(r->racer.race->rate * 8);
    if (!status)
        status = hearth_node_open(&config, &r->node);
    if (status)
        return racer_fail(&r->racer, 0, status, hearth_error_text());
    if (!trainer_init(&r->racer.trainer, r->racer.race->job, hearth_node_world(r->node)))
        return racer_fail(&r->racer, 0, HEARTH_NO_MEMORY, "no memory for a replica");
    return HEARTH_OK;
}

static int rank_main(struct race *race, int rank, int pipe, const char *meeting)
{
    struct runner r = {.pipe = pipe};
    r.racer = (struct racer){.race = race, .rank = rank, .speaks = rank == 0, .tell = tell, .arg = &r};
    int status = open_node(&r, meeting);
    for (int lane = 0; lane < race->lane_count && !status; lane++)
        status = racer_lane(&r.racer, lane);
    hearth_node_close(r.node);
    trainer_fini(&r.racer.trainer);
    return status ? 1 : 0;
}

/* ---- their parent ---- */

static bool take_end(struct race *race, struct race_track *lane, const struct race_note *note)
{
    lane->same = note->same;
    lane->hash = note->hash;
    lane->steps = note->steps;
    lane->checks = note->checks;
    lane->reached = note->reached;
    lane->network_s = note->network_s;
    lane->compute_s = note->compute_s;
    lane->done = true;
    race->lane_ended(race->arg, lane);
    if (!lane->same)
        fprintf(stderr,
                "hearth demo: after %s the replicas differ; this is a bug in Hearth, please report it\n",
                lane->name);
    return lane->same;
}

bool race_take(struct race *race, const struct race_note *note)
{
    struct race_track *lane = &race->lanes[note->lane];
    switch (note->kind) {
    case NOTE_BEGIN:
        race->lane_begins(race->arg, lane);
        return true;
    case NOTE_POINT:
        if (lane->point_count < RACE_POINTS_MAX)
            lane->points[lane->point_count++] = note->point;
        race->point_seen(race->arg, lane);
        return true;
    case NOTE_END:
        return take_end(race, lane, note);
    case NOTE_FAILED:
        race->trouble(race->arg);
        fprintf(stderr, "hearth demo: rank %d, %s: %s\n", note->rank, lane->name, note->text);
        break;
    }
    return false;
}

/* Until the last rank has closed its end. false: something failed. */
static bool hear(struct race *race, int pipe)
{
    struct race_note note;
    bool good = true;
    for (;;) {
        ssize_t got = read(pipe, &note, sizeof note);
        if (got < 0 && errno == EINTR)
            continue;
        if (got != (ssize_t)sizeof note)
            return good;
        good = race_take(race, &note) && good;
    }
}

static bool start_ranks(struct race *race, const int pipe[2], const char *meeting, pid_t *pids)
{
    int parent = (int)getpid();
    for (int rank = 0; rank < race->ranks; rank++) {
        pids[rank] = fork();
        if (pids[rank] == 0) {
            close(pipe[0]);
            _exit(leash_tie(parent) ? rank_main(race, rank, pipe[1], meeting) : 1);
        }
        if (pids[rank] > 0)
            continue;
        fprintf(stderr, "hearth demo: cannot start %d processes: %s\n", race->ranks, strerror(errno));
        for (int r = 0; r < rank; r++)
            kill(pids[r], SIGKILL); /* they would wait for those that never come */
        return false;
    }
    return true;
}

/* How each of them ended; a rank that failed has said why. */
static bool reap(const struct race *race, const pid_t *pids, bool told)
{
    bool good = true;
    for (int rank = 0; rank < race->ranks && pids[rank] > 0; rank++) {
        int status = 0;
        while (waitpid(pids[rank], &status, 0) < 0 && errno == EINTR)
            ;
        if (WIFSIGNALED(status))
            fprintf(stderr, "hearth demo: rank %d was killed by signal %d (%s)\n", rank, WTERMSIG(status),
                    strsignal(WTERMSIG(status)));
        else if (status != 0 && !told)
            fprintf(stderr, "hearth demo: rank %d ended with code %d\n", rank, WEXITSTATUS(status));
        good = good && status == 0;
    }
    return good;
}

bool race_run(struct race *race)
{
    pid_t pids[RACE_RANKS_MAX] = {0};
    int ends[2];
    uint64_t draw;
    char meeting[64];
    bool heard = true;
    if (random_bytes(&draw, sizeof draw) || !pipe_open(ends)) {
        fprintf(stderr, "hearth demo: no pipe or no random numbers: %s\n", strerror(errno));
        return false;
    }
    if (!secret_handover_here("demo", false))
        return false;
    snprintf(meeting, sizeof meeting, "unix:@hearth-demo-%016llx", (unsigned long long)draw);
    fflush(NULL); /* what waits in buffers is the parent's to write */
    bool started = start_ranks(race, ends, meeting, pids);
    close(ends[1]);
    if (started)
        heard = hear(race, ends[0]);
    close(ends[0]);
    bool good = reap(race, pids, !heard);
    return started && good && heard;
}

/* ---- what came out ---- */

size_t race_limit(const struct race *race, const struct race_track *lane)
{
    size_t limit = race->steps_max;
    if (lane->like >= 0 && race->lanes[lane->like].steps * LIKE_FACTOR < limit)
        limit = race->lanes[lane->like].steps * LIKE_FACTOR;
    return limit;
}

double race_share(const struct race *race, const struct race_track *lane)
{
    size_t expected = race->lanes[0].done ? race->lanes[0].steps : STEPS_EXPECTED;
    if (lane->like >= 0)
        expected = race_limit(race, lane);
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
