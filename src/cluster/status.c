/* SPDX-License-Identifier: Apache-2.0 */
/* The state as JSON and as metrics. docs/man/hearth.1 has the fields. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cluster/cluster_state.h"
#include "cluster/status_snapshot.h"
#include "os/host.h"

#define STRAGGLER_NS (5 * NS_PER_MS) /* later than this, and twice as late as any other */
#define MBIT_X10     12500.0         /* bytes a second of a tenth of Mbit/s */

/* ---- pieces ---- */

static void put_text(struct text_buf *p, const char *name, const char *text)
{
    text_buf_print(p, ", \"%s\": ", name);
    text_buf_quote(p, text);
}

static void put_id(struct text_buf *p, const struct identity *id)
{
    char text[NODE_ID_TEXT], brief[NODE_ID_SHORT];

    node_id_text(&id->node, text);
    node_id_short(&id->node, brief);
    text_buf_print(p, "\"id\": \"%s\", \"short\": \"%s\", \"instance\": \"%016" PRIx64 "\"", text, brief,
                   id->instance);
}

static void put_flags(struct text_buf *p, const char *name, uint32_t bits, const char *const *names)
{
    const char *comma = "";

    text_buf_print(p, ", \"%s\": [", name);
    for (int i = 0; names[i]; i++) {
        if (!(bits >> i & 1))
            continue;
        text_buf_print(p, "%s\"%s\"", comma, names[i]);
        comma = ", ";
    }
    text_buf_print(p, "]");
}

/* ---- this node ---- */

static void put_self(struct cluster *cluster, struct text_buf *p)
{
    const struct peer_info *self = peer_set_self(cluster->peer_set);
    struct sock_addr bound = peer_set_addr(cluster->peer_set);
    char space[NAMESPACE_TEXT];

    namespace_text(secret_namespace(credentials_secret(cluster->setup.credentials)), space);
    text_buf_print(p, "\"version\": \"%s\", \"cluster\": {\"namespace\": \"%s\"", hearth_version_string(),
                   space);
    put_text(p, "name", cluster->setup.cluster ? cluster->setup.cluster : "");
    text_buf_print(p, "}, \"self\": {");
    put_id(p, &self->id);
    put_text(p, "name", self->name);
    put_text(p, "transport", cluster->setup.transport ? cluster->setup.transport : "");
    text_buf_print(p, ", \"port\": %u, \"plain\": false}", sock_addr_port(&bound));
}

/* ---- the view ---- */

/* The member that slows down its group, and why. */
struct straggler {
    struct identity who;
    char why[CLUSTER_TEXT_MAX]; /* "": none */
};

/* The slow line of the members in groups. False: no table of this view yet. */
static bool slow_line(struct cluster *cluster, struct slow_line *slow, struct identity *who)
{
    const struct view *view = consensus_view(cluster->consensus);
    const struct identity *self = &peer_set_self(cluster->peer_set)->id;
    uint64_t changed, hosts[VIEW_MEMBERS_MAX];
    const struct topology *t = probes_links(cluster->probes, &changed);
    int members[VIEW_MEMBERS_MAX], count = 0;

    if (t->size != view->size || t->epoch != view->epoch)
        return false;
    for (int i = 0; i < view->size; i++) {
        const struct health *h = consensus_health(cluster->consensus, &view->members[i].id);
        if (!identity_equal(self, &view->members[i].id) && (!h || !h->works_with_us))
            continue;
        hosts[count] = view->members[i].host_id;
        members[count++] = i;
    }
    *slow = topology_slow_line(t, members, hosts, count);
    if (slow->place >= 0)
        *who = view->members[members[slow->place]].id;
    return true;
}

/* The node that is late, and much later than any other; NULL: none. */
static const struct peer_info *latest(const struct cluster *cluster)
{
    const struct peer_info *worst = NULL, *peer;
    uint64_t first = 0, second = 0;
    int place = 0;

    while ((peer = consensus_next_linked(cluster->consensus, &place))) {
        uint64_t late_ns = consensus_health(cluster->consensus, &peer->id)->late_ns;
        if (!worst || late_ns > first) {
            second = first;
            first = late_ns;
            worst = peer;
        } else if (late_ns > second) {
            second = late_ns;
        }
    }
    return first > STRAGGLER_NS && first > 2 * second ? worst : NULL;
}

/* Lateness spreads: members that wait for a slow line are late for others, all around a ring. So if one line
 * is far slower than all others, it is the cause, whichever member we wait for. Otherwise the straggler is
 * the member that is later than all others. */
static void find_straggler(struct cluster *cluster, struct straggler *found)
{
    const struct peer_info *late = latest(cluster);
    struct slow_line slow;

    *found = (struct straggler){.why = ""};
    if (!slow_line(cluster, &slow, &found->who))
        return;
    if (slow.place >= 0) {
        snprintf(found->why, sizeof found->why, "its line carries %.1f Mbit/s, the next slowest %.1f Mbit/s",
                 slow.mbit_x10 / 10.0, slow.next_mbit_x10 / 10.0);
    } else if (late) {
        found->who = late->id;
        snprintf(found->why, sizeof found->why, "its pieces come %.0f ms after the first",
                 (double)consensus_health(cluster->consensus, &late->id)->late_ns / (double)NS_PER_MS);
    }
}

static void put_addrs(struct text_buf *p, const struct peer_info *f)
{
    char text[SOCK_TEXT_MAX];

    text_buf_print(p, ", \"addresses\": [");
    for (int i = 0; i < f->addr_count; i++) {
        struct sock_addr addr = sock_addr_of(&f->addrs[i]);
        sock_addr_text(&addr, text, sizeof text);
        text_buf_print(p, "%s\"%s\"", i > 0 ? ", " : "", text);
    }
    text_buf_print(p, "]");
}

static void put_member(struct cluster *cluster, struct text_buf *p, int rank, const struct peer_info *f,
                       const struct straggler *straggler)
{
    static const char *const cpus[] = {"avx2", "avx512", "neon", "aes", NULL};
    static const char *const roles[] = {"demo", "bench", "guest", NULL};
    const struct health *h = consensus_health(cluster->consensus, &f->id);
    bool self = identity_equal(&f->id, &peer_set_self(cluster->peer_set)->id);
    bool slow = straggler->why[0] != '\0' && identity_equal(&f->id, &straggler->who);

    text_buf_print(p, "%s{\"rank\": %d, ", rank > 0 ? ", " : "", rank);
    put_id(p, &f->id);
    put_text(p, "name", f->name);
    put_text(p, "state", self ? "self" : h ? health_state_name(h->state) : "unknown");
    put_addrs(p, f);
    text_buf_print(p, ", \"latency_us\": %.1f, \"uptime\": %.4f, \"cores\": %u, \"memory_mib\": %u",
                   h ? (double)h->latency_ns / 1000 : 0, h ? health_uptime(h) : 1, f->cores, f->memory_mib);
    put_flags(p, "cpu", f->cpu, cpus);
    put_text(p, "system", f->platform);
    put_flags(p, "flags", f->features, roles);
    text_buf_print(p, ", \"late_us\": %.1f, \"straggler\": %s", h ? (double)h->late_ns / 1000 : 0,
                   slow ? "true" : "false");
    put_text(p, "slow_why", slow ? straggler->why : "");
    text_buf_print(p, "}");
}

static void put_view(struct cluster *cluster, struct text_buf *p)
{
    char why[CONSENSUS_TEXT_MAX] = "";
    struct straggler straggler;

    const struct view *view = consensus_view(cluster->consensus);
    enum consensus_state state = consensus_state(cluster->consensus);

    text_buf_print(p,
                   ", \"view\": {\"instance\": \"%016" PRIx64 "\", \"epoch\": %" PRIu64 ", \"term\": %" PRIu64
                   ", \"leader\": %d",
                   view->instance, view->epoch, view->term, view->leader);
    put_text(p, "state", consensus_state_name(state));
    if (state == CONSENSUS_STRANDED)
        consensus_why_stranded(cluster->consensus, why, sizeof why);
    put_text(p, "why", why);
    text_buf_print(p, ", \"members\": [");
    find_straggler(cluster, &straggler);
    for (int i = 0; i < view->size; i++)
        put_member(cluster, p, i, &view->members[i], &straggler);
    text_buf_print(p, "]}");
}

/* ---- paths ---- */

static void put_links(struct cluster *cluster, struct text_buf *p)
{
    uint64_t changed;
    const struct topology *t = probes_links(cluster->probes, &changed);
    const char *comma = "";

    text_buf_print(p, ", \"links\": [");
    for (int from = 0; from < t->size; from++) {
        for (int to = 0; to < t->size; to++) {
            const struct path_measure *w = &t->paths[from * VIEW_MEMBERS_MAX + to];
            if (from == to || (w->mbit_x10 == 0 && w->round_trip_us == 0))
                continue;
            text_buf_print(
                p,
                "%s{\"from\": %d, \"to\": %d, \"mbit\": %.1f, \"round_trip_us\": %u, \"loss\": %.6f, "
                "\"kind\": \"%s\", \"probes\": %u, \"age_s\": %u}",
                comma, from, to, w->mbit_x10 / 10.0, w->round_trip_us, w->loss_ppm / 1e6,
                path_kind_name((enum path_kind)w->kind), w->quality, w->age_s);
            comma = ", ";
        }
    }
    text_buf_print(p, "]");
}

/* The order and sites that a job of all members would get. */
static void put_order(struct cluster *cluster, struct text_buf *p)
{
    const struct view *view = consensus_view(cluster->consensus);
    uint64_t changed, hosts[VIEW_MEMBERS_MAX];
    const struct topology *t = probes_links(cluster->probes, &changed);
    int members[VIEW_MEMBERS_MAX], site[VIEW_MEMBERS_MAX];
    struct ring_order best;

    if (t->size != view->size || t->epoch != view->epoch)
        return;
    for (int i = 0; i < view->size; i++) {
        members[i] = i;
        hosts[i] = view->members[i].host_id;
    }
    topology_arrange(t, members, hosts, view->size, &best);
    text_buf_print(p, ", \"order\": [");
    for (int i = 0; i < best.size; i++)
        text_buf_print(p, "%s%d", i > 0 ? ", " : "", best.order[i]);
    for (int i = 0; i < best.size; i++)
        site[best.order[i]] = best.site[i];
    text_buf_print(p, "], \"sites\": ["); /* by index in the view */
    for (int i = 0; i < best.size; i++)
        text_buf_print(p, "%s%d", i > 0 ? ", " : "", site[i]);
    uint32_t slowest = topology_bottleneck(t, best.order, best.size);
    if (slowest == UINT32_MAX)
        text_buf_print(p, "], \"bottleneck_mbit\": null");
    else
        text_buf_print(p, "], \"bottleneck_mbit\": %.1f", slowest / 10.0);
}

/* ---- nodes ---- */

static const struct peer_set_state *state_of(const struct peer_set_state *list, int count,
                                             const struct identity *id)
{
    for (int i = 0; i < count; i++)
        if (identity_equal(&list[i].id, id))
            return &list[i];
    return NULL;
}

/* Why this node is not a member; "" if it is. */
static void node_why(struct cluster *cluster, const struct identity *id, const struct peer_set_state *state,
                     bool ours, char *why, size_t size)
{
    why[0] = '\0';
    if (!ours)
        snprintf(why, size, "it belongs to another cluster: its secret is another one");
    else if (view_find(consensus_view(cluster->consensus), id) >= 0)
        return;
    else if (state && state->linked)
        consensus_why_not(cluster->consensus, id, why, size);
    else if (state && state->why[0] != '\0')
        snprintf(why, size, "%.150s", state->why);
    else
        snprintf(why, size, "it was seen, and is being dialled");
}

struct node_line {
    const struct identity *id;
    const char *name;
    const struct sock_addr *addr;
    const uint8_t *space;
};

static void put_node(struct cluster *cluster, struct text_buf *p, const struct node_line *line,
                     const struct peer_set_state *state, const char *comma)
{
    const uint8_t *ours = secret_namespace(credentials_secret(cluster->setup.credentials));
    bool own = memcmp(line->space, ours, NAMESPACE_LEN) == 0;
    char addr[SOCK_TEXT_MAX], why[CLUSTER_TEXT_MAX], space[NAMESPACE_TEXT];

    sock_addr_text(line->addr, addr, sizeof addr);
    namespace_text(line->space, space);
    node_why(cluster, line->id, state, own, why, sizeof why);
    text_buf_print(p, "%s{", comma);
    put_id(p, line->id);
    put_text(p, "name", line->name);
    put_text(p, "address", addr);
    text_buf_print(p, ", \"cluster\": \"%s\", \"namespace\": \"%s\", \"member\": %s", own ? "ours" : "other",
                   space, own && why[0] == '\0' ? "true" : "false");
    put_text(p, "why", why);
    text_buf_print(p, "}");
}

static void put_nodes(struct cluster *cluster, struct text_buf *p)
{
    struct peer_set_state list[PEER_SET_MAX];
    const uint8_t *ours = secret_namespace(credentials_secret(cluster->setup.credentials));
    int known = peer_set_list(cluster->peer_set, list, PEER_SET_MAX), count;
    uint64_t changed;
    const struct sighting *found = finder_sightings(cluster->finder, &count, &changed);
    const char *comma = "";

    text_buf_print(p, ", \"nodes\": [");
    for (int i = 0; i < count; i++) {
        struct node_line line = {&found[i].id, found[i].name, &found[i].addr, found[i].space};
        if (peer_set_has_left(cluster->peer_set, &found[i].id))
            continue;
        put_node(cluster, p, &line, state_of(list, known, &found[i].id), comma);
        comma = ", ";
    }
    for (int i = 0; i < known; i++) {
        bool sighted = false;
        for (int k = 0; k < count && !sighted; k++)
            sighted = identity_equal(&found[k].id, &list[i].id);
        if (sighted)
            continue;
        const struct peer_info *peer = consensus_peer(cluster->consensus, &list[i].id);
        struct node_line line = {&list[i].id, peer ? peer->name : "", &list[i].addr, ours};
        put_node(cluster, p, &line, &list[i], comma);
        comma = ", ";
    }
    text_buf_print(p, "]");
}

static void put_jobs(struct cluster *cluster, struct text_buf *p)
{
    struct job_line lines[BOARD_MAX];
    int count = jobs_board(cluster->jobs, lines);

    text_buf_print(p, ", \"jobs\": [");
    for (int i = 0; i < count; i++) {
        text_buf_print(p, "%s{\"min\": %d, \"waiting\": %d, \"running\": %d", i > 0 ? ", " : "", lines[i].min,
                       lines[i].waiting, lines[i].running);
        put_text(p, "job", lines[i].job);
        text_buf_print(p, "}");
    }
    text_buf_print(p, "]");
}

static void put_discovery(struct cluster *cluster, struct text_buf *p)
{
    char text[CLUSTER_TEXT_MAX], addr[SOCK_TEXT_MAX];
    bool works = finder_text(cluster->finder, text, sizeof text);
    int count;
    const struct sock_addr *seeds = finder_seeds(cluster->finder, &count);

    text_buf_print(p, ", \"discovery\": {\"mdns\": %s", works ? "true" : "false");
    put_text(p, "text", text);
    text_buf_print(p, ", \"seeds\": [");
    for (int i = 0; i < count; i++) {
        sock_addr_text(&seeds[i], addr, sizeof addr);
        text_buf_print(p, "%s\"%s\"", i > 0 ? ", " : "", addr);
    }
    text_buf_print(p, "]}");
}

void cluster_write_json(struct cluster *cluster, struct text_buf *p)
{
    struct peer_set_traffic messages = peer_set_traffic(cluster->peer_set);

    text_buf_print(p, "{");
    put_self(cluster, p);
    put_view(cluster, p);
    put_links(cluster, p);
    put_order(cluster, p);
    put_nodes(cluster, p);
    put_jobs(cluster, p);
    put_discovery(cluster, p);
    text_buf_print(p, ", \"traffic\": {\"sent\": %" PRIu64 ", \"received\": %" PRIu64 "}",
                   messages.sent + cluster->groups_sent, messages.received + cluster->groups_received);
    if (cluster->setup.extra)
        cluster->setup.extra(cluster->setup.arg, p);
    text_buf_print(p, "}\n");
}

/* ---- for this process ---- */

static void fill_member(struct cluster *cluster, const struct peer_info *f, struct cluster_member *m)
{
    const struct health *h = consensus_health(cluster->consensus, &f->id);

    m->self = identity_equal(&f->id, &peer_set_self(cluster->peer_set)->id);
    node_id_text(&f->id.node, m->id);
    node_id_short(&f->id.node, m->short_id);
    snprintf(m->name, sizeof m->name, "%s", f->name);
    snprintf(m->state, sizeof m->state, "%s", m->self ? "self" : h ? health_state_name(h->state) : "unknown");
    m->latency_us = h ? (double)h->latency_ns / 1000 : -1;
    m->roles = f->features;
}

static void fill_links(const struct topology *t, struct cluster_status *status)
{
    for (int from = 0; from < t->size; from++) {
        for (int to = 0; to < t->size; to++) {
            const struct path_measure *w = &t->paths[from * VIEW_MEMBERS_MAX + to];
            status->rate[from][to] = from == to ? 0 : w->mbit_x10 * MBIT_X10;
            status->inside[from][to] = from != to && w->kind == PATH_SAME_HOST;
        }
    }
}

static void fill_jobs(const struct cluster *cluster, struct cluster_status *status)
{
    struct job_line lines[BOARD_MAX];

    status->job_count = jobs_board(cluster->jobs, lines);
    for (int i = 0; i < status->job_count; i++) {
        status->jobs[i] = (struct cluster_job){
            .min = lines[i].min, .waiting = lines[i].waiting, .running = lines[i].running};
        memcpy(status->jobs[i].name, lines[i].job, JOB_NAME_MAX);
    }
}
_Static_assert(BOARD_MAX <= CLUSTER_JOBS_MAX, "all jobs of the board fit");

void cluster_snapshot(struct cluster *cluster, struct cluster_status *status)
{
    uint64_t changed;

    mutex_lock(&cluster->lock);
    const struct view *view = consensus_view(cluster->consensus);
    const struct topology *t = probes_links(cluster->probes, &changed);
    *status = (struct cluster_status){.epoch = view->epoch, .term = view->term, .count = view->size};
    snprintf(status->state, sizeof status->state, "%s",
             consensus_state_name(consensus_state(cluster->consensus)));
    for (int i = 0; i < view->size; i++) {
        fill_member(cluster, &view->members[i], &status->members[i]);
        status->members[i].leads = i == view->leader;
    }
    if (t->size == view->size && t->epoch == view->epoch)
        fill_links(t, status);
    fill_jobs(cluster, status);
    mutex_unlock(&cluster->lock);
}

/* ---- metrics ---- */

static void put_metric(struct text_buf *p, const char *name, const char *type, double value)
{
    text_buf_print(p, "# TYPE hearth_%s %s\nhearth_%s %.17g\n", name, type, name, value);
}

void cluster_write_metrics(struct cluster *cluster, struct text_buf *p)
{
    const struct view *view = consensus_view(cluster->consensus);
    struct consensus_counts counts;
    struct peer_set_traffic messages = peer_set_traffic(cluster->peer_set);
    const struct peer_info *peer;
    int place = 0;

    consensus_count(cluster->consensus, &counts);
    put_metric(p, "connected_peers", "gauge", counts.linked);
    put_metric(p, "healthy_peers", "gauge", counts.healthy);
    put_metric(p, "degraded_peers", "gauge", counts.degraded);
    put_metric(p, "unhealthy_peers", "gauge", counts.unhealthy);
    put_metric(p, "dead_peers", "gauge", counts.dead);
    put_metric(p, "connections_total", "counter", (double)cluster->links_made);
    put_metric(p, "disconnections_total", "counter", (double)cluster->links_lost);
    put_metric(p, "reconnections_total", "counter", (double)cluster->links_again);
    put_metric(p, "elections_started_total", "counter", (double)counts.elections_started);
    put_metric(p, "elections_completed_total", "counter", (double)counts.elections_won);
    put_metric(p, "election_timeouts_total", "counter", (double)counts.elections_timed_out);
    put_metric(p, "time_as_leader_seconds_total", "counter", (double)counts.leading_ns * 1e-9);
    put_metric(p, "time_as_follower_seconds_total", "counter", (double)counts.following_ns * 1e-9);
    put_metric(p, "views_total", "counter", (double)counts.views);
    put_metric(p, "view_epoch", "gauge", (double)view->epoch);
    put_metric(p, "view_term", "gauge", (double)view->term);
    put_metric(p, "view_members", "gauge", view->size);
    put_metric(p, "message_bytes_sent_total", "counter", (double)messages.sent);
    put_metric(p, "message_bytes_received_total", "counter", (double)messages.received);
    put_metric(p, "messages_dropped_total", "counter", (double)messages.dropped);
    while ((peer = consensus_next_linked(cluster->consensus, &place))) {
        char who[NODE_ID_SHORT];
        node_id_short(&peer->id.node, who);
        text_buf_print(p, "hearth_member_late_seconds{member=\"%s\"} %.9f\n", who,
                       (double)consensus_health(cluster->consensus, &peer->id)->late_ns * 1e-9);
    }
}
