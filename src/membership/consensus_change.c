/* SPDX-License-Identifier: Apache-2.0 */
/* The next view: who is taken out, who is taken in, whose description is another one now. */
#include <stdlib.h>
#include <string.h>

#include "membership/consensus_state.h"

#define REACH 64 /* epochs */

static bool same_peer(const struct peer_info *a, const struct peer_info *b)
{
    uint8_t bytes[2][PEER_LEN_MAX];
    struct writer w[2] = {writer_of(bytes[0], PEER_LEN_MAX), writer_of(bytes[1], PEER_LEN_MAX)};
    peer_put(&w[0], a);
    peer_put(&w[1], b);
    size_t len = (size_t)(w[0].at - bytes[0]);
    return len == (size_t)(w[1].at - bytes[1]) && memcmp(bytes[0], bytes[1], len) == 0;
}

/* It is in our view, but left it since, and only a later one takes it in again. */
static bool comes_again(const struct consensus *a, const struct voter *p)
{
    return p->index >= 0 && p->beat.request_after >= a->view.epoch;
}

bool change_out_of_reach(const struct consensus *a, const struct voter *p)
{
    return p->beat.request_after >= a->view.epoch + REACH;
}

static bool asks(const struct consensus *a, const struct voter *p)
{
    return p->health.linked && p->health.state != HEALTH_DEAD && !p->left && p->told &&
           p->beat.request == a->view.instance && (p->index < 0 || comes_again(a, p)) &&
           !change_out_of_reach(a, p);
}

/* A key that is in already, on another machine. */
static bool key_taken(const struct view *view, const struct peer_info *info)
{
    for (int i = 0; i < view->size; i++)
        if (copied_key(&view->members[i], info))
            return true;
    return false;
}

bool change_admits(const struct consensus *a, const struct voter *p)
{
    return asks(a, p) && !key_taken(&a->view, &p->info);
}

/* A member as it is to stand in the next view. */
static const struct peer_info *described(const struct consensus *a, int index)
{
    const struct voter *p = a->member[index];
    if (index == a->me)
        return &a->self;
    return p && p->health.linked ? &p->info : &a->view.members[index];
}

bool change_wanted(const struct consensus *a)
{
    for (int i = 0; i < a->view.size; i++)
        if (member_gone(a, i) || !same_peer(described(a, i), &a->view.members[i]))
            return true;
    for (int i = 0; i < a->peer_count; i++)
        if (change_admits(a, a->peers[i]) && (a->view.size < VIEW_MEMBERS_MAX || a->peers[i]->index >= 0))
            return true;
    return false;
}

static int by_identity(const void *a, const void *b)
{
    const struct voter *const *p = a, *const *q = b;
    return identity_compare(&(*p)->info.id, &(*q)->info.id);
}

static void add_newcomers(struct consensus *a, struct view *next)
{
    struct voter *come[PEERS_MAX];
    size_t count = 0;
    for (int i = 0; i < a->peer_count; i++)
        if (asks(a, a->peers[i]))
            come[count++] = a->peers[i];
    if (count > 0)
        qsort(come, count, sizeof come[0], by_identity);
    for (size_t i = 0; i < count && next->size < VIEW_MEMBERS_MAX; i++)
        if (!key_taken(next, &come[i]->info))
            next->members[next->size++] = come[i]->info;
}

void change_build(struct consensus *a, uint64_t term)
{
    struct view *next = &a->proposal;
    next->instance = a->view.instance;
    next->epoch = a->view.epoch + 1;
    next->term = term;
    next->size = 0;
    next->leader = 0;
    for (int i = 0; i < a->view.size; i++) {
        const struct voter *p = a->member[i];
        if (i == a->me)
            next->leader = next->size;
        else if (member_gone(a, i) || (p && asks(a, p)))
            continue;
        next->members[next->size++] = *described(a, i);
    }
    if (a->request == 0)
        add_newcomers(a, next);
}
