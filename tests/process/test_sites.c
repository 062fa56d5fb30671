/* SPDX-License-Identifier: Apache-2.0 */
/* Members say at which site they are, and compressed all-reduces go two-level between sites: also on one
 * host, which is a site of its own only for those that name none. */
#include "process/team.h"
#include "support/watchdog.h"

#define COUNT 20000u

/* What each member names; NULL: nothing. */
struct sites {
    const char *name[TEAM_MAX];
    bool several; /* so that there are two levels */
};

static void member(struct team *team, int rank, void *arg)
{
    const struct sites *sites = arg;
    if (sites->name[rank])
        setenv("HEARTH_SITE", sites->name[rank], 1);
    hearth_node *node = member_open();
    if (!node)
        return;
    hearth_group *world = hearth_node_world(node), *half = NULL;
    float *x = must_alloc(COUNT * sizeof *x), *e = must_alloc(COUNT * sizeof *e);
    struct hearth_opts opts = opts_default();
    opts.algo = HEARTH_ALGO_HIERARCHICAL;
    memset(e, 0, COUNT * sizeof *e);
    for (size_t i = 0; i < COUNT; i++)
        x[i] = (float)((int)i % 7 - 3);
    int wanted = sites->several ? HEARTH_OK : HEARTH_UNSUPPORTED;
    check_status(hearth_all_reduce_compressed(world, x, COUNT, HEARTH_F32, HEARTH_OP_AVG, "int8", e, &opts),
                 wanted);
    check_ok(hearth_group_same(world, x, COUNT * sizeof *x, NULL, NULL));
    for (size_t i = 0; i < COUNT; i++)
        check(x[i] - (float)((int)i % 7 - 3) < 0.05f && (float)((int)i % 7 - 3) - x[i] < 0.05f,
              "element %zu is %g", i, (double)x[i]);
    /* Groups that are split off know it too: this one has members of both sites, two of one of them. */
    check_ok(hearth_group_split(world, rank == team->size - 1 ? -1 : 0, 0, NULL, &half));
    if (half)
        check_status(
            hearth_all_reduce_compressed(half, x, COUNT, HEARTH_F32, HEARTH_OP_AVG, "int8", e, &opts),
            wanted);
    hearth_group_close(half);
    hearth_node_close(node);
    free(e);
    free(x);
}

static void run(const char *transport, struct sites sites)
{
    struct team team;
    watchdog(60 * (unsigned)slow_factor(), "members at sites");
    team_start(&team, 4, transport, member, &sites);
    team_join(&team, 40);
    team_free(&team);
    watchdog(0, NULL);
    checks_end();
}

TEST(test_two_sites_on_one_host)
{
    run("shm", (struct sites){{"berlin", "oslo", "berlin", "oslo"}, true});
    run("tcp", (struct sites){{"berlin", "berlin", "oslo", "oslo"}, true});
}

TEST(test_who_names_none_is_at_its_host)
{
    run("shm", (struct sites){{NULL, NULL, "oslo", "oslo"}, true});
    run("shm", (struct sites){{NULL, NULL, NULL, NULL}, false});
    run("shm", (struct sites){{"oslo", "oslo", "oslo", "oslo"}, false});
}
