/* SPDX-License-Identifier: Apache-2.0 */
/* A member that is busy is not dead: all processors burn, the links are full, and one computes for longer
 * than the peer timeout without a call. Pings go out and are answered all the same, by the node's thread. */
#include <pthread.h>
#include <unistd.h>

#include "process/team.h"
#include "support/watchdog.h"

#define MEMBERS         3
#define PEER_TIMEOUT_MS 1000
#define BURN_MS         (7 * PEER_TIMEOUT_MS / 4)
#define COUNT           (4u << 20) /* elements of a buffer that fills the links */
#define BURNERS_MAX     16

static _Atomic(bool) cold;

static void *burn(void *arg)
{
    volatile uint64_t x = 1;
    while (!atomic_load_explicit(&cold, memory_order_relaxed))
        x = x * 6364136223846793005u + 1;
    return NULL;
}

/* Two threads for every processor, in each member: a thread that must be heard has to wait for its turn. */
static int burners_start(pthread_t *threads)
{
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    int count = processors > 0 && processors * 2 < BURNERS_MAX ? (int)processors * 2 : BURNERS_MAX;
    for (int i = 0; i < count; i++)
        if (pthread_create(&threads[i], NULL, burn, NULL) != 0)
            return i;
    return count;
}

static void rounds(hearth_group *world, struct note *note, float *x)
{
    uint64_t until = now_ns() + (uint64_t)BURN_MS * 1000000;
    int64_t more = 1;
    while (more > 0) {
        more = now_ns() < until;
        if (!check_ok(hearth_all_reduce(world, x, x, COUNT, HEARTH_F32, HEARTH_OP_MAX, NULL)) ||
            !check_ok(hearth_all_reduce(world, &more, &more, 1, HEARTH_I64, HEARTH_OP_MAX, NULL)))
            return;
        atomic_fetch_add(&note->rounds, 1);
    }
}

/* The others have posted and wait, with as much on the way as the links take; the one only computes. */
static void silence(hearth_group *world, float *x)
{
    hearth_request *request = NULL;
    if (hearth_group_rank(world) == 1)
        sleep_ms(BURN_MS); /* its burners go on */
    if (check_ok(hearth_all_reduce_nb(world, x, x, COUNT, HEARTH_F32, HEARTH_OP_MAX, NULL, &request))) {
        check_ok(hearth_request_wait(request, -1));
        hearth_request_close(request);
    }
}

static void member(struct team *team, int rank, void *arg)
{
    pthread_t threads[BURNERS_MAX];
    set_number_env("HEARTH_PEER_TIMEOUT_MS", PEER_TIMEOUT_MS * slow_factor());
    hearth_node *node = member_open();
    if (!node)
        return;
    float *x = calloc(COUNT, sizeof *x);
    int count = burners_start(threads);
    if (check(x && count > 0, "no memory or no threads")) {
        rounds(hearth_node_world(node), &team->board->notes[rank], x);
        silence(hearth_node_world(node), x);
        check_ok(hearth_barrier(hearth_node_world(node), NULL));
    }
    atomic_store(&cold, true);
    for (int i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    hearth_node_close(node);
    free(x);
}

static void busy(const char *transport)
{
    struct team team;
    watchdog(120 * (unsigned)slow_factor(), "busy members");
    team_start(&team, MEMBERS, transport, member, NULL);
    team_join(&team, 100);
    print_message("%s: %d rounds of %u MB at full load\n", transport,
                  (int)atomic_load(&team.board->notes[0].rounds), COUNT * 4 >> 20);
    team_free(&team);
    checks_end();
}

TEST(test_tcp)
{
    busy("tcp");
}

TEST(test_shm)
{
    busy("shm");
}
