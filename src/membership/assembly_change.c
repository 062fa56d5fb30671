/* SPDX-License-Identifier: Apache-2.0 */
/* The next census: who is taken out, who is taken in, whose description is another one now. */
#include <stdlib.h>
#include <string.h>

#include "membership/assembly_state.h"

#define REACH 64 /* epochs */

static bool same_fellow(const struct fellow *a, const struct fellow *b)
{
    uint8_t bytes[2][FELLOW_LEN_MAX];
    struct writer w[2] = {writer_of(bytes[0], FELLOW_LEN_MAX), writer_of(bytes[1], FELLOW_LEN_MAX)};
    fellow_put(&w[0], a);
    fellow_put(&w[1], b);
    size_t len = (size_t)(w[0].at - bytes[0]);
    return len == (size_t)(w[1].at - bytes[1]) && memcmp(bytes[0], bytes[1], len) == 0;
}

/* It is in our census, but left it since, and only a later one takes it in again. */
static bool comes_again(const struct assembly *a, const struct peer *p)
{
    return p->index >= 0 && p->beat.wish_after >= a->census.epoch;
}

bool change_out_of_reach(const struct assembly *a, const struct peer *p)
{
    return p->beat.wish_after >= a->census.epoch + REACH;
}

static bool asks(const struct assembly *a, const struct peer *p)
{
    return p->health.linked && p->health.state != HEALTH_DEAD && !p->left && p->told &&
           p->beat.wish == a->census.instance && (p->index < 0 || comes_again(a, p)) &&
           !change_out_of_reach(a, p);
}

/* A key that is in already, on another machine. */
static bool key_taken(const struct census *census, const struct fellow *fellow)
{
    for (int i = 0; i < census->size; i++)
        if (copied_key(&census->members[i], fellow))
            return true;
    return false;
}

bool change_admits(const struct assembly *a, const struct peer *p)
{
    return asks(a, p) && !key_taken(&a->census, &p->fellow);
}

/* A member as it is to stand in the next census. */
static const struct fellow *described(const struct assembly *a, int index)
{
    const struct peer *p = a->member[index];
    if (index == a->me)
        return &a->self;
    return p != NULL && p->health.linked ? &p->fellow : &a->census.members[index];
}

bool change_wanted(const struct assembly *a)
{
    for (int i = 0; i < a->census.size; i++)
        if (member_gone(a, i) || !same_fellow(described(a, i), &a->census.members[i]))
            return true;
    for (int i = 0; i < a->peer_count; i++)
        if (change_admits(a, a->peers[i]) && (a->census.size < CENSUS_MEMBERS_MAX || a->peers[i]->index >= 0))
            return true;
    return false;
}

static int by_identity(const void *a, const void *b)
{
    const struct peer *const *p = a, *const *q = b;
    return identity_compare(&(*p)->fellow.id, &(*q)->fellow.id);
}

static void add_newcomers(struct assembly *a, struct census *next)
{
    struct peer *come[PEERS_MAX];
    size_t count = 0;
    for (int i = 0; i < a->peer_count; i++)
        if (asks(a, a->peers[i]))
            come[count++] = a->peers[i];
    if (count > 0)
        qsort(come, count, sizeof(come[0]), by_identity);
    for (size_t i = 0; i < count && next->size < CENSUS_MEMBERS_MAX; i++)
        if (!key_taken(next, &come[i]->fellow))
            next->members[next->size++] = come[i]->fellow;
}

void change_build(struct assembly *a, uint64_t term)
{
    struct census *next = &a->proposal;
    next->instance = a->census.instance;
    next->epoch = a->census.epoch + 1;
    next->term = term;
    next->size = 0;
    next->leader = 0;
    for (int i = 0; i < a->census.size; i++) {
        const struct peer *p = a->member[i];
        if (i == a->me)
            next->leader = next->size;
        else if (member_gone(a, i) || (p != NULL && asks(a, p)))
            continue;
        next->members[next->size++] = *described(a, i);
    }
    if (a->wish == 0)
        add_newcomers(a, next);
}
