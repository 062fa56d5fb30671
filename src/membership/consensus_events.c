/* SPDX-License-Identifier: Apache-2.0 */
/* Events, reasons and counts for users and other rooms. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "membership/consensus_state.h"

struct hearth_event *event_add(struct consensus *a, enum hearth_event_kind kind, const struct peer_info *node)
{
    struct hearth_event *e = event_log_add(a->events, kind, node ? &node->id : NULL);
    e->epoch = a->view.epoch;
    e->term = a->view.term;
    e->members = a->view.size;
    if (node)
        snprintf(e->name, sizeof e->name, "%s", node->name);
    return e;
}

void event_text(struct hearth_event *event, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(event->text, sizeof event->text, format, args);
    va_end(args);
}

/* Why a member of the old view is not in the present one. */
static void tell_left(struct consensus *a, const struct view *old, int index)
{
    struct hearth_event *e = event_add(a, HEARTH_EVENT_LEFT, &old->members[index]);
    const struct voter *p = peer_find(a, &old->members[index].id);
    if (!view_votes(old, index))
        event_text(e, "its visit as a guest is over");
    else if (p && p->left)
        event_text(e, "it left");
    else if (old->instance != a->view.instance)
        event_text(e, "we are in another instance of the cluster now");
    else if (p && p->health.state == HEALTH_DEAD && p->health.silent)
        event_text(e, "nothing was heard from it for %.1f s", (double)a->preset->dead_ns / 1e9);
    else if (p && p->health.state == HEALTH_DEAD)
        event_text(e, "the connection to it broke and did not come back");
    else
        event_text(e, "%s, the leader, took it out", a->view.members[a->view.leader].name);
}

void event_view(struct consensus *a, const struct view *old)
{
    const struct view *now = &a->view;
    for (int i = 0; i < old->size; i++)
        if (view_find(now, &old->members[i].id) < 0)
            tell_left(a, old, i);
    for (int i = 0; i < now->size; i++)
        if (view_find(old, &now->members[i].id) < 0)
            event_text(event_add(a, HEARTH_EVENT_JOINED, &now->members[i]), "%s",
                       view_votes(now, i) ? "" : "as a guest");
    const struct peer_info *leader = &now->members[now->leader];
    if (old->size == 0 || old->instance != now->instance ||
        !identity_equal(&old->members[old->leader].id, &leader->id))
        event_add(a, HEARTH_EVENT_LEADER, leader);
    event_add(a, HEARTH_EVENT_VIEW, NULL);
    log_write(&a->log, HEARTH_LOG_INFO, "HEARTH-VIEW",
              "view %llu of instance %llx, term %llu: %d members, %s leads", (unsigned long long)now->epoch,
              (unsigned long long)now->instance, (unsigned long long)now->term, now->size, leader->name);
}

void consensus_why_stranded(const struct consensus *a, char *text, size_t size)
{
    char names[140] = "";
    int missing = 0, voters = 0;
    for (int i = 0; i < a->view.size; i++) {
        voters += view_votes(&a->view, i);
        if (!view_votes(&a->view, i) || member_present(a, i))
            continue;
        size_t len = strlen(names);
        snprintf(names + len, sizeof names - len, "%s%s", missing++ > 0 ? ", " : "", a->view.members[i].name);
    }
    if (voters == 0)
        snprintf(text, size,
                 "no machine of the cluster is up, and a guest decides nothing: run hearth up on one");
    else
        snprintf(text, size,
                 "%d of %d members are missing (%s): check their machines and the network; to go on without "
                 "them, restart this node",
                 missing, voters, names);
}

void event_quorum(struct consensus *a)
{
    struct hearth_event *e =
        event_add(a, a->has_quorum ? HEARTH_EVENT_QUORUM_BACK : HEARTH_EVENT_QUORUM_LOST, &a->self);
    if (!a->has_quorum)
        consensus_why_stranded(a, e->text, sizeof e->text);
    log_write(&a->log, HEARTH_LOG_WARN, a->has_quorum ? "HEARTH-QUORUM" : "HEARTH-LOST-QUORUM", "%s",
              a->has_quorum ? "enough members are there again" : e->text);
}

/* ---- one key on two machines ---- */

bool copied_key(const struct peer_info *a, const struct peer_info *b)
{
    return a->machine != b->machine && node_id_equal(&a->id.node, &b->id.node);
}

static void copied_key_tell(struct consensus *a, struct voter *p, const struct peer_info *other)
{
    char id[NODE_ID_SHORT];
    node_id_short(&p->info.id.node, id);
    p->copied = true;
    struct hearth_event *e = event_add(a, HEARTH_EVENT_TROUBLE, &p->info);
    event_text(e,
               "%s and %s are two machines with one key (%s): delete the key file on one of them, "
               "it makes its own",
               other->name, p->info.name, id);
    log_write(&a->log, HEARTH_LOG_WARN, "HEARTH-COPIED-KEY", "%s", e->text);
}

void copied_key_check(struct consensus *a, struct voter *p)
{
    if (p->copied)
        return;
    if (copied_key(&a->self, &p->info)) {
        copied_key_tell(a, p, &a->self);
        return;
    }
    for (int i = 0; i < a->peer_count; i++) {
        struct voter *q = a->peers[i];
        if (q != p && q->health.linked && copied_key(&q->info, &p->info)) {
            copied_key_tell(a, p, &q->info);
            return;
        }
    }
}

/* ---- reasons ---- */

static const char *why_not_asking(const struct consensus *a, const struct voter *p)
{
    if ((p->info.features & PEER_GUEST) && p->beat.size == 1)
        return "it is a guest, and waits for a machine that is up";
    if (!(p->beat.flags & BEAT_LEADS))
        return "it is in another instance of the cluster, whose leader decides: the two will merge";
    if ((p->beat.flags & BEAT_BUSY) && a->busy)
        return "it is in another instance of the cluster, and jobs run in both: they merge when one has "
               "ended";
    if (a->request == p->beat.instance)
        return "we are about to join its instance of the cluster";
    if (instance_better(a, p))
        return "its instance of the cluster is the larger one: ours will join it";
    return "it is in another instance of the cluster, and has not asked to join ours yet";
}

static const char *why_not(const struct consensus *a, const struct voter *p)
{
    if (!p || !p->health.linked)
        return "there is no connection to it";
    if (p->left)
        return "it has left";
    if (p->health.state == HEALTH_DEAD)
        return "it is connected but silent: is it stopped, or very busy?";
    if (p->copied)
        return "its key is on two machines: delete the key file on one of them";
    if (!p->told)
        return "it has just been connected";
    if (p->beat.request == a->view.instance && change_out_of_reach(a, p))
        return "it was told of later views of this instance than there are: restart it";
    if (p->beat.request == a->view.instance && a->view.size == VIEW_MEMBERS_MAX)
        return "the cluster is full (64 members)";
    if (p->beat.request == a->view.instance)
        return "it has asked to join, and the leader is about to take it in";
    if (p->beat.request != 0)
        return "it is joining another instance of the cluster";
    if (p->beat.instance == a->view.instance)
        return "it was taken out, and will ask to join again";
    return why_not_asking(a, p);
}

void consensus_why_not(const struct consensus *a, const struct identity *peer, char *text, size_t size)
{
    if (view_find(&a->view, peer) >= 0)
        snprintf(text, size, "%s", "");
    else
        snprintf(text, size, "%s", why_not(a, peer_find(a, peer)));
}

/* ---- counts ---- */

void consensus_count(const struct consensus *a, struct consensus_counts *counts)
{
    *counts = a->counts;
    for (int i = 0; i < a->peer_count; i++)
        counts->linked += a->peers[i]->health.linked;
    for (int i = 0; i < a->view.size; i++) {
        if (!a->member[i])
            continue;
        switch (a->member[i]->health.state) {
        case HEALTH_HEALTHY:
            counts->healthy++;
            break;
        case HEALTH_DEGRADED:
            counts->degraded++;
            break;
        case HEALTH_DEAD:
            counts->dead++;
            break;
        default:
            counts->unhealthy++;
            break;
        }
    }
}

const char *consensus_state_name(enum consensus_state state)
{
    static const char *const names[] = {"joining", "member", "stranded", "gone"};
    return (size_t)state < sizeof names / sizeof names[0] ? names[state] : "unknown";
}
