/* SPDX-License-Identifier: Apache-2.0 */
/* Members without a connection to each other: a group needs a path between any two, so one of each such pair
 * is left out. As few as possible are left out; of equal choices the one that came later. */
#include <stdio.h>
#include <string.h>

#include "membership/jobs_state.h"

#define EXACT_MAX 8 /* found exactly up to this number; beyond, the member with most such pairs goes first */

/* Bit k of with[i]: the i-th and the k-th requesting member have no connection. */
struct apart {
    int count;
    uint64_t with[VIEW_MEMBERS_MAX];
};

static bool names(const struct told_request *request, const struct identity *id)
{
    for (int i = 0; i < request->unreached; i++)
        if (identity_equal(&request->unreached_id[i], id))
            return true;
    return false;
}

static void find_pairs(const struct jobs *jobs, const char *job, const int *members, int count,
                       struct apart *apart)
{
    *apart = (struct apart){.count = count};
    for (int i = 0; i < count; i++) {
        const struct told_request *request = led_request(jobs, members[i], job);
        for (int k = 0; k < count; k++)
            if (k != i && names(request, &jobs->view.members[members[k]].id)) {
                apart->with[i] |= UINT64_C(1) << k;
                apart->with[k] |= UINT64_C(1) << i;
            }
    }
}

/* The first pair of which neither is out; false: none. */
static bool next_pair(const struct apart *apart, uint64_t out, int *senior, int *junior)
{
    for (int i = 0; i < apart->count; i++) {
        uint64_t with = out >> i & 1 ? 0 : apart->with[i] & ~out;
        if (with == 0)
            continue;
        *senior = i;
        *junior = __builtin_ctzll(with);
        return true;
    }
    return false;
}

/* Whether leaving out `more` members is enough; then *out has them. */
static bool leave_out(const struct apart *apart, int more, uint64_t *out)
{
    const uint64_t before = *out;
    int senior, junior;

    if (!next_pair(apart, before, &senior, &junior))
        return true;
    if (more == 0)
        return false;
    *out = before | UINT64_C(1) << junior;
    if (leave_out(apart, more - 1, out))
        return true;
    *out = before | UINT64_C(1) << senior;
    if (leave_out(apart, more - 1, out))
        return true;
    *out = before;
    return false;
}

static uint64_t leave_out_greedily(const struct apart *apart)
{
    uint64_t out = 0;
    int senior, junior;

    while (next_pair(apart, out, &senior, &junior)) {
        int worst = junior, most = 0;
        for (int i = 0; i < apart->count; i++) {
            int pairs = out >> i & 1 ? 0 : __builtin_popcountll(apart->with[i] & ~out);
            if (pairs > 0 && pairs >= most) {
                most = pairs;
                worst = i;
            }
        }
        out |= UINT64_C(1) << worst;
    }
    return out;
}

static uint64_t fewest_out(const struct apart *apart)
{
    uint64_t out = 0;

    for (int more = 0; more <= EXACT_MAX; more++)
        if (leave_out(apart, more, &out))
            return out;
    return leave_out_greedily(apart);
}

/* "without dora, which could not be joined with anna": the first of them and why. */
static void tell_out(const struct jobs *jobs, const int *members, const struct apart *apart, uint64_t out,
                     char *text, size_t size)
{
    int first = __builtin_ctzll(out), other = __builtin_ctzll(apart->with[first]);
    int others = __builtin_popcountll(out) - 1;
    char left[PEER_NAME_MAX], peer[PEER_NAME_MAX], more[32] = "";

    job_name_of(&jobs->view, &jobs->view.members[members[first]].id, left, sizeof left);
    job_name_of(&jobs->view, &jobs->view.members[members[other]].id, peer, sizeof peer);
    if (others > 0)
        snprintf(more, sizeof more, " (and %d more likewise)", others);
    snprintf(text, size, "without %.40s, which could not be joined with %.40s%s", left, peer, more);
}

int job_leader_together(const struct jobs *jobs, const char *job, int *members, int count, uint64_t now_ns,
                        struct left_out *left)
{
    struct apart apart;
    int together = 0;

    *left = (struct left_out){.since_ns = now_ns};
    find_pairs(jobs, job, members, count, &apart);
    uint64_t out = fewest_out(&apart);
    if (out == 0)
        return count;
    tell_out(jobs, members, &apart, out, left->text, sizeof left->text);
    for (int i = 0; i < count; i++) {
        if (!(out >> i & 1))
            members[together++] = members[i];
        else if (left->count < JOBS_LEFT_MAX)
            left->id[left->count++] = jobs->view.members[members[i]].id;
    }
    return together;
}

bool job_leader_left_out(const struct left_out *left, const struct identity *id, uint64_t now_ns)
{
    for (int i = 0; i < left->count; i++)
        if (identity_equal(&left->id[i], id))
            return now_ns < left->since_ns + JOBS_LEFT_NS;
    return false;
}
