/* SPDX-License-Identifier: Apache-2.0 */
/* Groups of a home cluster: hearth_group_form, hearth_group_reform, and the other calls of a node that
 * discovers.
 *
 *   listen    on a port for this group, which the request tells the others
 *   request   the leader forms the group: all members get the same list, in one order (membership/jobs.h)
 *   join      from here on as in hearth_node_open: mesh, links, engine, first collective
 *
 * If a member is lost meanwhile, all start again, until the deadline. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/sized.h"
#include "node/call.h"
#include "node/cluster_groups.h"
#include "node/local.h"
#include "node/reconcile.h"
#include "node/secure.h"
#include "os/clock.h"

#define JOIN_NS     (20 * NS_PER_S) /* for one attempt to connect to all members */
#define JOIN_MIN_NS (10 * NS_PER_S) /* even after the deadline: giving up makes all others start again */
#define AGAIN_NS    (100 * NS_PER_MS)
#define MIN_LEFT_NS (50 * NS_PER_MS)

static int cluster_groups_of(hearth_node *node, const char *what, struct cluster_groups **out)
{
    if (!node)
        return error_set(error_last(), HEARTH_INVALID, RANK_NONE, "%s: node is NULL", what);
    if (node_forked(node))
        return error_set(error_last(), HEARTH_FORKED, RANK_NONE, "%s: %s", what,
                         hearth_status_text(HEARTH_FORKED));
    if (!node->cluster_groups)
        return error_set(error_last(), HEARTH_UNSUPPORTED, RANK_NONE,
                         "%s: this node belongs to no home cluster. On one machine: hearth init; on the "
                         "others: hearth join TOKEN; and open it with discover (HEARTH_DISCOVER=mdns) and "
                         "without peers, rendezvous or world_size",
                         what);
    *out = node->cluster_groups;
    return HEARTH_OK;
}

static uint64_t deadline_in(int64_t ms)
{
    uint64_t now = clock_real();
    return ms >= 0 && (uint64_t)ms < (NEVER_NS - now) / NS_PER_MS ? now + (uint64_t)ms * NS_PER_MS : NEVER_NS;
}

/* Of the options of a call that forms a group only the timeout counts. */
static int form_deadline(const char *what, const struct hearth_opts *given,
                         const struct hearth_config *config, uint64_t *deadline_ns)
{
    struct hearth_opts opts;
    int status = call_opts_read(what, given, &opts);
    if (status == HEARTH_OK)
        *deadline_ns = deadline_in(opts.timeout_ms >= 0 ? opts.timeout_ms : config->form_timeout_ms);
    return status;
}

int hearth_node_wait_for_peers(hearth_node *node, int min_peers, int64_t timeout_ms)
{
    struct cluster_groups *r;
    int status = cluster_groups_of(node, "wait_for_peers", &r);
    if (status != HEARTH_OK)
        return status;
    if (min_peers < 0 || min_peers >= VIEW_MEMBERS_MAX || timeout_ms < -1)
        return error_set(error_last(), HEARTH_INVALID, RANK_NONE,
                         "wait_for_peers: min_peers is %d (0 to %d), timeout_ms %" PRId64 " (-1 or more)",
                         min_peers, VIEW_MEMBERS_MAX - 1, timeout_ms);
    int64_t ms = timeout_ms < 0 ? node->config.peer_timeout_ms : timeout_ms;
    struct cluster_groups_call call;
    struct cluster_patience patience = {deadline_in(ms), &call.stop};
    cluster_groups_call_begin(r, &call);
    status = cluster_wait(r->cluster, min_peers, &patience, error_last());
    cluster_groups_call_end(r, &call);
    return status;
}

int hearth_node_interrupt(hearth_node *node)
{
    struct cluster_groups *r;
    struct list *item, *after;
    int status = cluster_groups_of(node, "interrupt", &r);
    if (status != HEARTH_OK)
        return status;
    mutex_lock(&r->lock);
    LIST_EACH (item, after, &r->calls) {
        struct cluster_groups_call *call = container_of(item, struct cluster_groups_call, item);
        atomic_store(&call->interrupted.asked, true);
        atomic_store(&call->stop.asked, true);
    }
    mutex_unlock(&r->lock);
    cluster_wake(r->cluster);
    return HEARTH_OK;
}

/* ---- forming ---- */

/* One attempt. */
struct attempt {
    struct cluster_groups *cluster_groups;
    hearth_group *from; /* the group before, or NULL */
    const char *job;
    int min;
    uint64_t done; /* operations completed in the group before */
    struct cluster_patience patience;
    struct cluster_groups_call call;
    struct group_spec *spec; /* formed; id 0: not */
};

static int request_for(struct attempt *a, struct opening *o, struct error *error)
{
    struct job_request request = {.min = a->min};
    snprintf(request.job, sizeof request.job, "%s", a->job);
    opening_settings(o, request.settings);
    struct writer w = writer_of(request.place, sizeof request.place);
    peer_put(&w, &o->self);
    request.place_len = (size_t)(w.at - request.place);
    if (w.bad)
        return error_set(error, HEARTH_LIMIT, RANK_NONE, "form: this node's addresses do not fit a message");
    return cluster_form(a->cluster_groups->cluster, &request, a->done, &a->patience, a->spec, error);
}

/* All addresses are tried, the first a little earlier: the one with the highest measured rate. */
static void best_first(struct peer_info *member, const struct sock_addr *best)
{
    for (int i = 1; i < member->addr_count; i++) {
        struct net_addr found = member->addrs[i];
        struct sock_addr addr = sock_addr_of(&found);
        if (!sock_addr_same_host(&addr, best))
            continue;
        memmove(&member->addrs[1], &member->addrs[0], (size_t)i * sizeof found);
        member->addrs[0] = found;
        return;
    }
}

/* The same list at every member; each entry must match its identity. */
static int read_roster(struct cluster *cluster, const struct group_spec *f, struct opening *o,
                       struct error *error)
{
    struct sock_addr best;
    o->spec = f;
    o->size = o->roster.size = f->size;
    o->rank = o->roster.rank = f->rank;
    o->roster.cluster = f->id;
    o->roster.members = heap_alloc(o->heap, (size_t)f->size, sizeof *o->roster.members);
    if (!o->roster.members)
        return error_set(error, HEARTH_NO_MEMORY, RANK_NONE, "form: no memory for %d members", f->size);
    for (int i = 0; i < f->size; i++) {
        struct peer_info *m = &o->roster.members[i];
        struct reader place = reader_of(f->place[i], f->place_len[i]);
        if (!peer_get(&place, m) || reader_left(&place) > 0 ||
            !node_id_equal(&m->id.node, &f->members[i].node))
            return error_set(error, HEARTH_PROTOCOL, i, "form: rank %d sent a malformed address list", i);
        if (i != f->rank && cluster_best_addr(cluster, &f->members[i], &best))
            best_first(m, &best);
    }
    return HEARTH_OK;
}

static int join_formed(struct attempt *a, struct opening *o, hearth_node **inner, struct error *error)
{
    uint64_t now = clock_real(), least = now + JOIN_MIN_NS;
    o->deadline_ns = a->patience.deadline_ns < now + JOIN_NS ? a->patience.deadline_ns : now + JOIN_NS;
    if (o->deadline_ns < least)
        o->deadline_ns = least;
    if (a->spec->size == 1) {
        int status = opening_alone(o, error);
        o->spec = a->spec;
        o->roster.cluster = a->spec->id;
        return status == HEARTH_OK ? opening_join(o, inner, error) : status;
    }
    int status = read_roster(a->cluster_groups->cluster, a->spec, o, error);
    return status == HEARTH_OK ? opening_join(o, inner, error) : status;
}

static void joining_ended(void *arg, uint64_t lost, const char *who, const char *text)
{
    struct stop *stop = arg;
    (void)lost;
    (void)who;
    (void)text;
    atomic_store(&stop->asked, true);
}

/* Stops waiting for a lost member. Once all are connected the links do that; a member that has finished and
 * left must not end our part. */
static int join_while_it_lasts(struct attempt *a, struct opening *o, hearth_node **inner, struct error *error)
{
    struct cluster_watch watch = {.spec = a->spec->id, .ended = joining_ended, .arg = &a->call.stop};
    cluster_watch(a->cluster_groups->cluster, &watch);
    int status = join_formed(a, o, inner, error);
    cluster_unwatch(a->cluster_groups->cluster, &watch);
    return status;
}

/* Members without a connection to this node: the next formation must not have both. */
static void tell_unjoined(const struct attempt *a, const bool *unjoined)
{
    for (int i = 0; i < a->spec->size; i++)
        if (unjoined[i])
            cluster_unreached(a->cluster_groups->cluster, &a->spec->members[i]);
}

static int attempt_once(struct attempt *a, hearth_node **inner, struct error *error)
{
    struct cluster_groups *r = a->cluster_groups;
    struct opening o;
    bool unjoined[VIEW_MEMBERS_MAX] = {false};
    a->spec->id = 0;
    int status = opening_init(&o, &r->config, r->node->heap, error);
    o.deadline_ns = a->patience.deadline_ns;
    o.outer = r->node;
    o.stop = &a->call.stop;
    o.interrupted = &a->call.interrupted;
    o.choices = &r->choices;
    o.unjoined = unjoined;
    if (status == HEARTH_OK)
        status = opening_describe(&o, error);
    o.self.id.node = credentials_self(r->credentials)->node;
    if (status == HEARTH_OK)
        status = credentials_copy(r->credentials, o.heap, o.self.id.instance, &o.credentials, error);
    if (status == HEARTH_OK)
        status = opening_listen(&o, error);
    if (status == HEARTH_OK)
        status = request_for(a, &o, error);
    if (status == HEARTH_OK)
        status = join_while_it_lasts(a, &o, inner, error);
    opening_fini(&o);
    if (status == HEARTH_OK) {
        status = cluster_begun(r->cluster, a->spec, error);
        if (status != HEARTH_OK)
            hearth_node_close(*inner);
    }
    if (a->spec->id != 0)
        tell_unjoined(a, unjoined);
    return status;
}

/* Whether another attempt may succeed: a member was lost meanwhile. */
static bool passing(int status)
{
    return status == HEARTH_VIEW_CHANGED || status == HEARTH_PEER_LOST || status == HEARTH_TIMEOUT ||
           status == HEARTH_ABORTED || status == HEARTH_GROUP_BROKEN;
}

/* The call was interrupted, or another member ended the group: the rest forms again. */
static int stopped_joining(struct attempt *a, struct error *error)
{
    const struct error why = *error;
    if (!cluster_groups_call_again(a->cluster_groups, &a->call))
        return error_set(error, HEARTH_TIMEOUT, RANK_NONE,
                         "form \"%s\": a member of the group ended it before all were connected", a->job);
    int others = a->spec->size - 1;
    return error_set(error, HEARTH_CANCELLED, why.rank,
                     "form \"%s\": interrupted while connecting to %d other%s: %s", a->job, others,
                     others == 1 ? "" : "s", why.text);
}

/* The cluster calls it under its lock. */
static void group_ended(void *arg, uint64_t lost, const char *who, const char *text)
{
    const struct cluster_group *f = arg;
    char why[256];
    snprintf(why, sizeof why, "%s%s%s", who, who[0] != '\0' ? ": " : "", text);
    node_members_lost(f->inner, lost, why);
}

static int form_again(struct attempt *a, struct cluster_group **out, struct error *error)
{
    struct cluster_groups *r = a->cluster_groups;
    struct cluster_group *f = heap_alloc(r->node->heap, 1, sizeof *f);
    if (!f)
        return error_set(error, HEARTH_NO_MEMORY, RANK_NONE, "form: no memory");
    a->spec = &f->spec;
    int status;
    for (;;) {
        status = attempt_once(a, &f->inner, error);
        bool cluster_group = f->spec.id != 0;
        if (status != HEARTH_OK && cluster_group)
            cluster_end(r->cluster, &f->spec, false);
        if (cluster_group && stop_asked(&a->call.stop) && (passing(status) || status == HEARTH_CANCELLED))
            status = stopped_joining(a, error);
        if (status == HEARTH_OK || !cluster_group || !passing(status) ||
            clock_real() + MIN_LEFT_NS >= a->patience.deadline_ns)
            break;
        struct log log = node_log(r->node);
        log_write(&log, HEARTH_LOG_INFO, "HEARTH-FORM-AGAIN", "form \"%s\": %s; trying again", a->job,
                  error->text);
        sock_wait(NULL, 0, clock_real() + AGAIN_NS);
    }
    if (status != HEARTH_OK) {
        heap_free(f);
        return status;
    }
    f->cluster_groups = r;
    f->min = a->min;
    f->inner->cluster_group = f;
    group_spec_ring_order(&f->spec, &f->arranged);
    f->watch = (struct cluster_watch){.spec = f->spec.id, .ended = group_ended, .arg = f};
    mutex_lock(&r->lock);
    list_push(&r->cluster_group, &f->item);
    mutex_unlock(&r->lock);
    cluster_watch(r->cluster, &f->watch);
    *out = f;
    return HEARTH_OK;
}

/* Attachments of the group before move to this one, or the group is left. */
static int go_on(struct attempt *a, struct cluster_group *f, struct error *error)
{
    int status = node_move_attachments(a->from, &f->inner->world, &a->call.interrupted, error);
    if (status < 0)
        cluster_groups_leave(f, false);
    return status;
}

static int form(struct attempt *a, struct cluster_group **out, struct error *error)
{
    int status;
    bool again;
    cluster_groups_call_begin(a->cluster_groups, &a->call);
    a->patience.stop = &a->call.stop;
    do {
        (void)cluster_groups_call_again(a->cluster_groups, &a->call);
        status = form_again(a, out, error);
        again = status == HEARTH_OK;
        if (status == HEARTH_OK)
            status = go_on(a, *out, error);
    } while (again && passing(status) && clock_real() + MIN_LEFT_NS < a->patience.deadline_ns);
    cluster_groups_call_end(a->cluster_groups, &a->call);
    return status;
}

static int form_check(const char *job, int min_members, hearth_group **group)
{
    struct error *error = error_last();
    if (!group || !job)
        return error_set(error, HEARTH_INVALID, RANK_NONE, "form: %s is NULL", group ? "job" : "group");
    size_t len = strlen(job), printable = 0;
    while (job[printable] >= ' ' && job[printable] <= '~')
        printable++;
    if (len == 0 || len >= JOB_NAME_MAX)
        return error_set(error, HEARTH_INVALID, RANK_NONE,
                         "form: job has %zu characters; it takes 1 to %d: \"%.32s%s\"", len, JOB_NAME_MAX - 1,
                         job, len > 32 ? "..." : "");
    if (printable < len)
        return error_set(error, HEARTH_INVALID, RANK_NONE,
                         "form: job: byte %zu is 0x%02x, which is not printable ASCII", printable,
                         (unsigned)(uint8_t)job[printable]);
    if (min_members < 1 || min_members > VIEW_MEMBERS_MAX)
        return error_set(error, HEARTH_INVALID, RANK_NONE, "form: min_members is %d; it must be from 1 to %d",
                         min_members, VIEW_MEMBERS_MAX);
    return HEARTH_OK;
}

int hearth_group_form(hearth_node *node, const char *job, int min_members, const struct hearth_opts *opts,
                      hearth_group **group)
{
    struct cluster_groups *r;
    struct cluster_group *f;
    struct error why;
    int status = cluster_groups_of(node, "form", &r);
    if (status == HEARTH_OK)
        status = form_check(job, min_members, group);
    if (status != HEARTH_OK)
        return status;
    struct attempt attempt = {
        .cluster_groups = r,
        .job = job,
        .min = min_members,
    };
    status = form_deadline("form", opts, &node->config, &attempt.patience.deadline_ns);
    if (status != HEARTH_OK)
        return status;
    status = form(&attempt, &f, &why); /* never behind: there is no group before */
    if (status == HEARTH_OK)
        *group = &f->inner->world;
    else
        *error_last() = why;
    return status;
}

static uint64_t operations_done(const hearth_node *node)
{
    uint64_t all = 0;
    for (int i = 0; i < METRICS_KINDS; i++)
        all += atomic_load(&node->metrics.kind[i].operations) - atomic_load(&node->metrics.kind[i].failures);
    return all;
}

/* The completed operations of each member; the program must repair a difference. */
static void log_reformed(const struct cluster_groups *r, const struct group_spec *f)
{
    char text[512];
    struct text_buf buf = text_buf_of(text, sizeof text);
    struct log log = node_log(r->node);
    for (int i = 0; i < f->size; i++)
        text_buf_print(&buf, "%srank %d: %" PRIu64, i > 0 ? ", " : "", i, f->done[i]);
    log_write(&log, HEARTH_LOG_INFO, "HEARTH-REFORMED",
              "\"%s\" goes on with %d members; operations each had completed before: %s", f->job, f->size,
              text);
}

int hearth_group_reform(hearth_group **group, const struct hearth_opts *opts)
{
    struct error *error = error_last();
    struct error why;
    struct cluster_group *old, *next;
    if (!group || !*group)
        return error_set(error, HEARTH_INVALID, RANK_NONE, "reform: group is NULL");
    if (node_forked((*group)->node))
        return error_set(error, HEARTH_FORKED, RANK_NONE, "reform: %s", hearth_status_text(HEARTH_FORKED));
    old = (*group)->node->cluster_group;
    if (!old || *group != &old->inner->world)
        return error_set(error, HEARTH_UNSUPPORTED, RANK_NONE,
                         "reform: this group was not made by hearth_group_form");
    struct cluster_groups *r = old->cluster_groups;
    uint64_t deadline_ns;
    int status = form_deadline("reform", opts, &r->config, &deadline_ns);
    if (status != HEARTH_OK)
        return status;
    node_part(old->inner, "this member forms the group again");
    cluster_end(r->cluster, &old->spec, false);
    struct attempt attempt = {
        .cluster_groups = r,
        .from = &old->inner->world,
        .job = old->spec.job,
        .min = old->min,
        .done = operations_done(old->inner),
        .patience = {.deadline_ns = deadline_ns},
    };
    status = form(&attempt, &next, &why);
    if (status < 0) {
        *error = why;
        return status;
    }
    log_reformed(r, &next->spec);
    next->inner->world.memory = (*group)->memory;
    cluster_groups_leave(old, false);
    *group = &next->inner->world;
    return status;
}

/* ---- members ---- */

static struct hearth_member member_of(const hearth_group *group, int rank)
{
    const struct node_link *links = group->node->roll;
    int place = group_member(group->group, rank);
    struct hearth_member member = {.rank = rank};
    if (!links)
        return member;
    member = links[place].to;
    member.rank = rank;
    if (group->node->cluster_group)
        member.completed = group->node->cluster_group->spec.done[place];
    return member;
}

int hearth_group_member(hearth_group *group, int rank, struct hearth_member *given)
{
    struct error *error = error_last();
    if (!group)
        return error_set(error, HEARTH_INVALID, RANK_NONE, "group_member: group is NULL");
    if (rank < 0 || rank >= hearth_group_size(group))
        return error_set(error, HEARTH_INVALID, RANK_NONE,
                         "group_member: rank is %d; it must be from 0 to %d", rank,
                         hearth_group_size(group) - 1);
    int status = sized_check(given, "group_member", "member", error);
    if (status != HEARTH_OK)
        return status;
    if (node_forked(group->node))
        return error_set(error, HEARTH_FORKED, RANK_NONE, "group_member: %s",
                         hearth_status_text(HEARTH_FORKED));
    struct hearth_member member = member_of(group, rank);
    sized_write(given, given->size, &member, sizeof member);
    return HEARTH_OK;
}

/* ---- events ---- */

/* HEARTH_PENDING: another thread took it, or there is none. */
static int take_event(struct cluster_groups *r, struct hearth_event *given,
                      const struct cluster_patience *patience)
{
    struct hearth_event event;
    mutex_lock(&r->lock);
    uint64_t place = r->event_place;
    mutex_unlock(&r->lock);
    cluster_wait_event(r->cluster, place, patience);
    bool some = cluster_next_event(r->cluster, &place, &event);
    mutex_lock(&r->lock);
    bool mine = some && place > r->event_place;
    if (mine)
        r->event_place = place;
    mutex_unlock(&r->lock);
    if (!mine)
        return HEARTH_PENDING;
    sized_write(given, given->size, &event, sizeof event);
    return HEARTH_OK;
}

int hearth_node_next_event(hearth_node *node, struct hearth_event *event, int64_t timeout_ms)
{
    struct cluster_groups *r;
    int status = cluster_groups_of(node, "next_event", &r);
    if (status == HEARTH_OK)
        status = sized_check(event, "next_event", "event", error_last());
    if (status != HEARTH_OK)
        return status;
    if (timeout_ms < -1)
        return error_set(error_last(), HEARTH_INVALID, RANK_NONE,
                         "next_event: timeout_ms is %" PRId64 "; it takes -1 or more", timeout_ms);
    struct cluster_groups_call call;
    struct cluster_patience patience = {deadline_in(timeout_ms), &call.stop};
    cluster_groups_call_begin(r, &call);
    do
        status = take_event(r, event, &patience);
    while (status == HEARTH_PENDING && clock_real() < patience.deadline_ns && !stop_asked(&call.stop));
    cluster_groups_call_end(r, &call);
    if (status == HEARTH_PENDING && stop_asked(&call.stop))
        status = error_set(error_last(), HEARTH_CANCELLED, RANK_NONE, "next_event: interrupted");
    return status;
}

int hearth_node_on_event(hearth_node *node, hearth_event_fn *fn, void *arg)
{
    struct cluster_groups *r;
    int status = cluster_groups_of(node, "on_event", &r);
    if (status != HEARTH_OK)
        return status;
    cluster_on_event(r->cluster, fn, arg);
    return HEARTH_OK;
}

int node_cluster_status(hearth_node *node, struct cluster_status *status)
{
    struct cluster_groups *r;
    int code = cluster_groups_of(node, "status", &r);
    if (code == HEARTH_OK)
        cluster_snapshot(r->cluster, status);
    return code;
}

int64_t hearth_node_status_json(hearth_node *node, char *buffer, size_t size)
{
    struct cluster_groups *r;
    int status = cluster_groups_of(node, "status_json", &r);
    if (status == HEARTH_OK && !buffer && size > 0)
        status = error_set(error_last(), HEARTH_INVALID, RANK_NONE, "status_json: buffer is NULL");
    return status == HEARTH_OK ? cluster_json(r->cluster, buffer, size) : status;
}
