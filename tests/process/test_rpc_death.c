/* SPDX-License-Identifier: Apache-2.0 */
/* Remote calls between processes: the callee is killed in the middle. Every call that ran was counted by the
 * callee in memory that the test sees, so what the callers' errors say of their calls can be checked: no call
 * runs twice, one that was answered has run, one that "did not run" has not. */
#include <signal.h>
#include <string.h>
#include <sys/mman.h>

#include "process/team.h"
#include "support/watchdog.h"

#define CALLEE    0
#define CALLS_MAX 2000000
#define FLIGHT    16
#define JOIN_S    60

struct scene {
    atomic_uchar ran[2][CALLS_MAX]; /* by caller and call */
};

static void count(void *arg, hearth_rpc *rpc, const void *request, size_t len)
{
    struct scene *scene = arg;
    uint32_t number;
    memcpy(&number, request, sizeof number);
    atomic_fetch_add(&scene->ran[hearth_rpc_rank(rpc) - 1][number], 1);
    hearth_rpc_reply(rpc, request, len); /* the caller may be gone at the end */
}

struct flight {
    hearth_request *request;
    struct hearth_message *reply;
    uint32_t number;
};

/* The end of one call; its status. */
static int landed(struct scene *scene, int rank, struct flight *f, struct note *note)
{
    int status = hearth_request_wait(f->request, -1);
    int ran = atomic_load(&scene->ran[rank - 1][f->number]);
    check(ran <= 1, "call %u ran %d times", f->number, ran);
    if (status == HEARTH_OK) {
        check(ran == 1 && f->reply->len == sizeof f->number &&
                  memcmp(f->reply->data, &f->number, sizeof f->number) == 0,
              "call %u ran %d times and has an answer", f->number, ran);
        atomic_fetch_add(&note->rounds, 1);
    } else {
        enum hearth_fate fate = hearth_request_error_fate(f->request);
        check(fate == HEARTH_FATE_UNKNOWN || (fate == HEARTH_FATE_NOT_DELIVERED && ran == 0),
              "call %u ran %d times: %s", f->number, ran, hearth_request_error(f->request));
        check(names_rank(hearth_request_error(f->request), CALLEE), "%s", hearth_request_error(f->request));
        if (note->status == HEARTH_OK)
            note_failed(note, status);
    }
    hearth_request_close(f->request);
    hearth_message_free(f->reply);
    *f = (struct flight){0};
    return status;
}

static void calls(struct scene *scene, hearth_group *world, struct note *note)
{
    struct flight flights[FLIGHT] = {{0}};
    int rank = hearth_group_rank(world), status = HEARTH_OK;
    for (uint32_t i = 0; status == HEARTH_OK && i < CALLS_MAX; i++) {
        struct flight *f = &flights[i % FLIGHT];
        if (f->request)
            status = landed(scene, rank, f, note);
        if (status != HEARTH_OK)
            break;
        f->number = i;
        status = hearth_rpc_call_nb(world, CALLEE, "count", &f->number, sizeof f->number, NULL, &f->reply,
                                    &f->request);
        if (status != HEARTH_OK) {
            check(hearth_error_fate() == HEARTH_FATE_NOT_DELIVERED, "%s", hearth_error_text());
            if (note->status == HEARTH_OK)
                note_failed(note, status);
        }
        if (i == 200)
            atomic_store(&note->ready, true);
    }
    for (int i = 0; i < FLIGHT; i++)
        if (flights[i].request)
            landed(scene, rank, &flights[i], note);
    check(note->status == HEARTH_PEER_LOST || note->status == HEARTH_GROUP_BROKEN, "%s: %s",
          hearth_status_name(note->status), note->text);
}

static void member(struct team *team, int rank, void *arg)
{
    struct scene *scene = arg;
    struct note *note = &team->board->notes[rank];
    hearth_node *node = member_open();
    if (!node)
        return;
    hearth_group *world = hearth_node_world(node);
    if (rank == CALLEE)
        check_ok(hearth_rpc_register(node, "count", count, scene, NULL));
    check_ok(hearth_barrier(world, NULL));
    if (rank != CALLEE) {
        calls(scene, world, note);
        hearth_node_close(node);
        return;
    }
    atomic_store(&note->ready, true);
    for (;;)
        sleep_ms(1000);
}

static void kill_the_callee(const char *transport, int milliseconds)
{
    struct team team;
    struct scene *scene =
        mmap(NULL, sizeof *scene, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(scene != MAP_FAILED);
    watchdog(120 * (unsigned)slow_factor(), "remote calls to a callee that is killed");
    team_start(&team, 3, transport, member, scene);
    if (team_ready(&team, JOIN_S)) {
        sleep_ms(milliseconds);
        team_kill(&team, CALLEE, SIGKILL);
    }
    team_join(&team, JOIN_S);
    for (int rank = 1; rank < 3; rank++)
        check(atomic_load(&team.board->notes[rank].rounds) > 100, "rank %d had %d answers", rank,
              (int)atomic_load(&team.board->notes[rank].rounds));
    team_free(&team);
    munmap(scene, sizeof *scene);
    checks_end();
}

TEST(over_tcp_with_tls)
{
    for (int i = 0; i < 3; i++)
        kill_the_callee("tcp", 3 * i);
}

TEST(over_shared_memory)
{
    kill_the_callee("shm", 5);
}
