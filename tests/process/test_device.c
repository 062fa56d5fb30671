/* SPDX-License-Identifier: Apache-2.0 */
/* Every collective on device memory between real processes, each with a device of its own. */
#include "conform/on_device.h"
#include "process/team.h"
#include "support/watchdog.h"

#define JOIN_S 60

static void member(struct team *team, int rank, void *arg)
{
    struct fake_device device;
    uint64_t seed = 9;
    hearth_node *node = member_open();
    if (!node)
        return;
    hearth_group *world = hearth_node_world(node);
    fake_device_open(&device, DEVICE_LEN);
    check_ok(hearth_group_set_memory(world, &device.memory));
    for (int i = 0; i < 2 * KIND_COUNT; i++) {
        struct job job;
        job_init(&job, (enum kind)(i / 2), team->size, i / 2 == BARRIER ? 0 : 300001);
        job.seed = draw_below(&seed, 1u << 30);
        job.in_place = i & 1;
        job.root = (int)draw_below(&seed, (uint64_t)team->size);
        if (kind_is_vector(job.kind))
            job_draw_counts(&job);
        job.device = &device;
        job_prepare(&job);
        check_ok(job_call(&job, world, rank));
        check(reference_holds(&job, rank), "%s: rank %d has a wrong result", job_name(&job), rank);
        job_free(&job);
    }
    hearth_node_close(node);
    check(atomic_load(&device.wrong) == 0, "wrong addresses");
    fake_device_close(&device);
}

TEST(every_collective_on_device_memory)
{
    static const char *const transports[] = {"plain", "shm"};
    for (int i = 0; i < 2; i++) {
        struct team team;
        team_start(&team, 3, transports[i], member, NULL);
        team_join(&team, JOIN_S * (unsigned)slow_factor());
        team_free(&team);
        checks_end();
    }
}
