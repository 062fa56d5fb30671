/* SPDX-License-Identifier: Apache-2.0 */
/* What is so, as JSON and as metrics. docs/man/hearth.1 has the fields. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "home/inside.h"
#include "os/host_facts.h"

#define STRAGGLER_NS (5 * NS_PER_MS) /* later than this, and twice as late as any other */

/* ---- pieces ---- */

static void put_text(struct paper *p, const char *name, const char *text)
{
    paper_print(p, ", \"%s\": ", name);
    paper_quote(p, text);
}

static void put_id(struct paper *p, const struct identity *id)
{
    char text[NODE_ID_TEXT], brief[NODE_ID_SHORT];

    node_id_text(&id->node, text);
    node_id_short(&id->node, brief);
    paper_print(p, "\"id\": \"%s\", \"short\": \"%s\", \"instance\": \"%016" PRIx64 "\"", text, brief,
                id->instance);
}

static void put_flags(struct paper *p, const char *name, uint32_t bits, const char *const *names)
{
    const char *comma = "";

    paper_print(p, ", \"%s\": [", name);
    for (int i = 0; names[i]; i++) {
        if (!(bits >> i & 1))
            continue;
        paper_print(p, "%s\"%s\"", comma, names[i]);
        comma = ", ";
    }
    paper_print(p, "]");
}

/* ---- who we are ---- */

static void put_self(struct home *home, struct paper *p)
{
    const struct fellow *self = fellows_self(home->fellows);
    struct sock_addr bound = fellows_addr(home->fellows);
    char space[NAMESPACE_TEXT];

    namespace_text(secret_namespace(credentials_secret(home->setup.credentials)), space);
    paper_print(p, "\"version\": \"%s\", \"cluster\": {\"namespace\": \"%s\"", hearth_version_string(),
                space);
    put_text(p, "name", home->setup.cluster ? home->setup.cluster : "");
    paper_print(p, "}, \"self\": {");
    put_id(p, &self->id);
    put_text(p, "name", self->name);
    put_text(p, "transport", home->setup.transport ? home->setup.transport : "");
    paper_print(p, ", \"port\": %u, \"plain\": false}", sock_addr_port(&bound));
}

/* ---- the view ---- */

/* Who holds up those it works with, and why. */
struct straggler {
    struct identity who;
    char why[HOME_TEXT_MAX]; /* "": nobody does */
};

/* Of those that work together. False: they have no table of this view yet. */
static bool slow_line(struct home *home, struct slow_line *slow, struct identity *who)
{
    const struct census *census = assembly_census(home->assembly);
    const struct identity *self = &fellows_self(home->fellows)->id;
    uint64_t changed, hosts[CENSUS_MEMBERS_MAX];
    const struct topology *t = probes_links(home->probes, &changed);
    int members[CENSUS_MEMBERS_MAX], count = 0;

    if (t->size != census->size || t->epoch != census->epoch)
        return false;
    for (int i = 0; i < census->size; i++) {
        const struct home_linked *linked = home_find_linked(home, &census->members[i].id);
        if (!identity_equal(self, &census->members[i].id) && (!linked || !linked->works_with_us))
            continue;
        hosts[count] = census->members[i].host_id;
        members[count++] = i;
    }
    *slow = topology_slow_line(t, members, hosts, count);
    if (slow->place >= 0)
        *who = census->members[members[slow->place]].id;
    return true;
}

/* Who is late, and much later than anybody else; NULL: nobody. */
static const struct home_linked *latest(const struct home *home)
{
    const struct home_linked *worst = NULL;
    uint64_t second = 0;

    for (int i = 0; i < home->linked_count; i++) {
        const struct home_linked *l = &home->linked[i];
        if (!worst || l->late_ns > worst->late_ns) {
            second = worst ? worst->late_ns : 0;
            worst = l;
        } else if (l->late_ns > second) {
            second = l->late_ns;
        }
    }
    return worst && worst->late_ns > STRAGGLER_NS && worst->late_ns > 2 * second ? worst : NULL;
}

/* Lateness travels: members that wait for a slow line are late for others in turn, all round a ring. So if
 * one line carries far less than all others, it is that one, whoever it is that we wait for. Otherwise it is
 * the member that comes later than all others. */
static void find_straggler(struct home *home, struct straggler *found)
{
    const struct home_linked *late = latest(home);
    struct slow_line slow;

    *found = (struct straggler){.why = ""};
    if (!slow_line(home, &slow, &found->who))
        return;
    if (slow.place >= 0) {
        snprintf(found->why, sizeof(found->why), "its line carries %.1f Mbit/s, the next slowest %.1f Mbit/s",
                 slow.mbit_x10 / 10.0, slow.next_mbit_x10 / 10.0);
    } else if (late) {
        found->who = late->fellow.id;
        snprintf(found->why, sizeof(found->why), "its pieces come %.0f ms after the first",
                 (double)late->late_ns / (double)NS_PER_MS);
    }
}

static void put_addrs(struct paper *p, const struct fellow *f)
{
    struct sock_addr addr;
    char text[SOCK_TEXT_MAX];

    paper_print(p, ", \"addresses\": [");
    for (int i = 0; i < f->addr_count; i++) {
        if (sock_addr_decode(&addr, f->addrs[i], f->addr_lens[i]) == 0)
            continue;
        sock_addr_text(&addr, text, sizeof(text));
        paper_print(p, "%s\"%s\"", i > 0 ? ", " : "", text);
    }
    paper_print(p, "]");
}

static void put_member(struct home *home, struct paper *p, int rank, const struct fellow *f,
                       const struct straggler *straggler)
{
    static const char *const cpus[] = {"avx2", "avx512", "neon", "aes", NULL};
    static const char *const roles[] = {"demo", "bench", "guest", NULL};
    const struct home_linked *linked = home_find_linked(home, &f->id);
    const struct health *h = assembly_health(home->assembly, &f->id);
    bool self = identity_equal(&f->id, &fellows_self(home->fellows)->id);
    bool slow = straggler->why[0] != '\0' && identity_equal(&f->id, &straggler->who);

    paper_print(p, "%s{\"rank\": %d, ", rank > 0 ? ", " : "", rank);
    put_id(p, &f->id);
    put_text(p, "name", f->name);
    put_text(p, "state", self ? "self" : h ? health_state_name(h->state) : "unknown");
    put_addrs(p, f);
    paper_print(p, ", \"latency_us\": %.1f, \"uptime\": %.4f, \"cores\": %u, \"memory_mib\": %u",
                h ? (double)h->latency_ns / 1000 : 0, h ? health_uptime(h) : 1, f->cores, f->memory_mib);
    put_flags(p, "cpu", f->cpu, cpus);
    put_text(p, "system", f->platform);
    put_flags(p, "flags", f->flags, roles);
    paper_print(p, ", \"late_us\": %.1f, \"straggler\": %s", linked ? (double)linked->late_ns / 1000 : 0,
                slow ? "true" : "false");
    put_text(p, "slow_why", slow ? straggler->why : "");
    paper_print(p, "}");
}

static void put_view(struct home *home, struct paper *p)
{
    char why[ASSEMBLY_TEXT_MAX] = "";
    struct straggler straggler;

    const struct census *census = assembly_census(home->assembly);
    enum assembly_state state = assembly_state(home->assembly);

    paper_print(p,
                ", \"view\": {\"instance\": \"%016" PRIx64 "\", \"epoch\": %" PRIu64 ", \"term\": %" PRIu64
                ", \"leader\": %d",
                census->instance, census->epoch, census->term, census->leader);
    put_text(p, "state", assembly_state_name(state));
    if (state == ASSEMBLY_STRANDED)
        assembly_why_stranded(home->assembly, why, sizeof(why));
    put_text(p, "why", why);
    paper_print(p, ", \"members\": [");
    find_straggler(home, &straggler);
    for (int i = 0; i < census->size; i++)
        put_member(home, p, i, &census->members[i], &straggler);
    paper_print(p, "]}");
}

/* ---- ways ---- */

static void put_links(struct home *home, struct paper *p)
{
    uint64_t changed;
    const struct topology *t = probes_links(home->probes, &changed);
    const char *comma = "";

    paper_print(p, ", \"links\": [");
    for (int from = 0; from < t->size; from++) {
        for (int to = 0; to < t->size; to++) {
            const struct way_measure *w = &t->ways[from * CENSUS_MEMBERS_MAX + to];
            if (from == to || (w->mbit_x10 == 0 && w->round_trip_us == 0))
                continue;
            paper_print(p,
                        "%s{\"from\": %d, \"to\": %d, \"mbit\": %.1f, \"round_trip_us\": %u, \"loss\": %.6f, "
                        "\"kind\": \"%s\", \"probes\": %u, \"age_s\": %u}",
                        comma, from, to, w->mbit_x10 / 10.0, w->round_trip_us, w->loss_ppm / 1e6,
                        way_kind_name((enum way_kind)w->kind), w->quality, w->age_s);
            comma = ", ";
        }
    }
    paper_print(p, "]");
}

/* The order and sites that a job of all members would get. */
static void put_order(struct home *home, struct paper *p)
{
    const struct census *census = assembly_census(home->assembly);
    uint64_t changed, hosts[CENSUS_MEMBERS_MAX];
    const struct topology *t = probes_links(home->probes, &changed);
    int members[CENSUS_MEMBERS_MAX], site[CENSUS_MEMBERS_MAX];
    struct arrangement best;

    if (t->size != census->size || t->epoch != census->epoch)
        return;
    for (int i = 0; i < census->size; i++) {
        members[i] = i;
        hosts[i] = census->members[i].host_id;
    }
    topology_arrange(t, members, hosts, census->size, &best);
    paper_print(p, ", \"order\": [");
    for (int i = 0; i < best.size; i++)
        paper_print(p, "%s%d", i > 0 ? ", " : "", best.order[i]);
    for (int i = 0; i < best.size; i++)
        site[best.order[i]] = best.site[i];
    paper_print(p, "], \"sites\": ["); /* of each member, as the view counts them */
    for (int i = 0; i < best.size; i++)
        paper_print(p, "%s%d", i > 0 ? ", " : "", site[i]);
    paper_print(p, "], \"bottleneck_mbit\": %.1f", topology_bottleneck(t, best.order, best.size) / 10.0);
}

/* ---- who is out there ---- */

static const struct fellows_state *state_of(const struct fellows_state *list, int count,
                                            const struct identity *id)
{
    for (int i = 0; i < count; i++)
        if (identity_equal(&list[i].id, id))
            return &list[i];
    return NULL;
}

/* Why this one is no member; "" if it is. */
static void node_why(struct home *home, const struct identity *id, const struct fellows_state *state,
                     bool ours, char *why, size_t size)
{
    why[0] = '\0';
    if (!ours)
        snprintf(why, size, "it belongs to another cluster: its secret is another one");
    else if (census_find(assembly_census(home->assembly), id) >= 0)
        return;
    else if (state && state->linked)
        assembly_why_not(home->assembly, id, why, size);
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

static void put_node(struct home *home, struct paper *p, const struct node_line *line,
                     const struct fellows_state *state, const char *comma)
{
    const uint8_t *ours = secret_namespace(credentials_secret(home->setup.credentials));
    bool own = memcmp(line->space, ours, NAMESPACE_LEN) == 0;
    char addr[SOCK_TEXT_MAX], why[HOME_TEXT_MAX], space[NAMESPACE_TEXT];

    sock_addr_text(line->addr, addr, sizeof(addr));
    namespace_text(line->space, space);
    node_why(home, line->id, state, own, why, sizeof(why));
    paper_print(p, "%s{", comma);
    put_id(p, line->id);
    put_text(p, "name", line->name);
    put_text(p, "address", addr);
    paper_print(p, ", \"cluster\": \"%s\", \"namespace\": \"%s\", \"member\": %s", own ? "ours" : "other",
                space, own && why[0] == '\0' ? "true" : "false");
    put_text(p, "why", why);
    paper_print(p, "}");
}

static void put_nodes(struct home *home, struct paper *p)
{
    struct fellows_state list[FELLOWS_MAX];
    const uint8_t *ours = secret_namespace(credentials_secret(home->setup.credentials));
    int known = fellows_list(home->fellows, list, FELLOWS_MAX), count;
    uint64_t changed;
    const struct sighting *found = finder_sightings(home->finder, &count, &changed);
    const char *comma = "";

    paper_print(p, ", \"nodes\": [");
    for (int i = 0; i < count; i++) {
        struct node_line line = {&found[i].id, found[i].name, &found[i].addr, found[i].space};
        if (fellows_has_left(home->fellows, &found[i].id))
            continue;
        put_node(home, p, &line, state_of(list, known, &found[i].id), comma);
        comma = ", ";
    }
    for (int i = 0; i < known; i++) {
        bool sighted = false;
        for (int k = 0; k < count && !sighted; k++)
            sighted = identity_equal(&found[k].id, &list[i].id);
        if (sighted)
            continue;
        const struct home_linked *linked = home_find_linked(home, &list[i].id);
        struct node_line line = {&list[i].id, linked ? linked->fellow.name : "", &list[i].addr, ours};
        put_node(home, p, &line, &list[i], comma);
        comma = ", ";
    }
    paper_print(p, "]");
}

static void put_jobs(struct home *home, struct paper *p)
{
    struct job_line lines[BOARD_MAX];
    int count = jobs_board(home->jobs, lines);

    paper_print(p, ", \"jobs\": [");
    for (int i = 0; i < count; i++) {
        paper_print(p, "%s{\"min\": %d, \"wishing\": %d, \"running\": %d", i > 0 ? ", " : "", lines[i].min,
                    lines[i].wishing, lines[i].running);
        put_text(p, "job", lines[i].job);
        paper_print(p, "}");
    }
    paper_print(p, "]");
}

static void put_discovery(struct home *home, struct paper *p)
{
    char text[HOME_TEXT_MAX], addr[SOCK_TEXT_MAX];
    bool works = finder_text(home->finder, text, sizeof(text));
    int count;
    const struct sock_addr *seeds = finder_seeds(home->finder, &count);

    paper_print(p, ", \"discovery\": {\"mdns\": %s", works ? "true" : "false");
    put_text(p, "text", text);
    paper_print(p, ", \"seeds\": [");
    for (int i = 0; i < count; i++) {
        sock_addr_text(&seeds[i], addr, sizeof(addr));
        paper_print(p, "%s\"%s\"", i > 0 ? ", " : "", addr);
    }
    paper_print(p, "]}");
}

void home_write_json(struct home *home, struct paper *p)
{
    struct fellows_traffic letters = fellows_traffic(home->fellows);

    paper_print(p, "{");
    put_self(home, p);
    put_view(home, p);
    put_links(home, p);
    put_order(home, p);
    put_nodes(home, p);
    put_jobs(home, p);
    put_discovery(home, p);
    paper_print(p, ", \"traffic\": {\"sent\": %" PRIu64 ", \"received\": %" PRIu64 "}",
                letters.sent + home->groups_sent, letters.received + home->groups_received);
    if (home->setup.extra)
        home->setup.extra(home->setup.arg, p);
    paper_print(p, "}\n");
}

/* ---- metrics ---- */

static void put_metric(struct paper *p, const char *name, const char *type, double value)
{
    paper_print(p, "# TYPE hearth_%s %s\nhearth_%s %.17g\n", name, type, name, value);
}

void home_write_metrics(struct home *home, struct paper *p)
{
    const struct census *census = assembly_census(home->assembly);
    struct assembly_counts counts;
    struct fellows_traffic letters = fellows_traffic(home->fellows);

    assembly_count(home->assembly, &counts);
    put_metric(p, "connected_peers", "gauge", home->linked_count);
    put_metric(p, "healthy_peers", "gauge", counts.healthy);
    put_metric(p, "degraded_peers", "gauge", counts.degraded);
    put_metric(p, "unhealthy_peers", "gauge", counts.unhealthy);
    put_metric(p, "dead_peers", "gauge", counts.dead);
    put_metric(p, "connections_total", "counter", (double)home->links_made);
    put_metric(p, "disconnections_total", "counter", (double)home->links_lost);
    put_metric(p, "reconnections_total", "counter", (double)home->links_again);
    put_metric(p, "elections_started_total", "counter", (double)counts.elections_started);
    put_metric(p, "elections_completed_total", "counter", (double)counts.elections_won);
    put_metric(p, "election_timeouts_total", "counter", (double)counts.elections_timed_out);
    put_metric(p, "time_as_leader_seconds_total", "counter", (double)counts.leading_ns * 1e-9);
    put_metric(p, "time_as_follower_seconds_total", "counter", (double)counts.following_ns * 1e-9);
    put_metric(p, "views_total", "counter", (double)counts.censuses);
    put_metric(p, "view_epoch", "gauge", (double)census->epoch);
    put_metric(p, "view_term", "gauge", (double)census->term);
    put_metric(p, "view_members", "gauge", census->size);
    put_metric(p, "letter_bytes_sent_total", "counter", (double)letters.sent);
    put_metric(p, "letter_bytes_received_total", "counter", (double)letters.received);
    put_metric(p, "letters_dropped_total", "counter", (double)letters.dropped);
    for (int i = 0; i < home->linked_count; i++) {
        char who[NODE_ID_SHORT];
        node_id_short(&home->linked[i].fellow.id.node, who);
        paper_print(p, "hearth_member_late_seconds{member=\"%s\"} %.9f\n", who,
                    (double)home->linked[i].late_ns * 1e-9);
    }
}
