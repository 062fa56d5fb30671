/* SPDX-License-Identifier: Apache-2.0 */
/* hearth_node_open: from a config to a node that is connected to all others.
 *
 *   trust     key, secret, trust list (node/secure.h)
 *   listener  the listening port
 *   roster    all members agree on the member list (bootstrap/roster.h)
 *   mesh      every pair connects (bootstrap/mesh.h): shared memory inside a host, tcp between
 *   node      the engine takes the connections
 *   costs     a first collective: all are present, and all assume the same links */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/hash.h"
#include "membership/jobs.h"
#include "node/call.h"
#include "node/cluster_groups.h"
#include "node/links.h"
#include "node/path_costs.h"
#include "node/secure.h"
#include "os/host.h"
#include "os/random.h"
#include "transport/quic.h"

#define GREETING_NS (5 * NS_PER_S)
#define PORT_TRIES  64

/* Measured between two processes on one machine, by `hearth bench allreduce`. */
static const struct link_cost shm_cost = {
    .alpha_s = 0.5e-6,
    .bytes_per_s = 16e9,
    .gamma_s = 3e-11,
    .overhead_s = 0.3e-6,
};
/* ---- this node ---- */

static int draw(uint64_t *number, struct error *error)
{
    do {
        if (random_bytes(number, sizeof *number) != HEARTH_OK)
            return error_set(error, HEARTH_SYSTEM, RANK_NONE, "open: no random numbers from the system");
    } while (*number == 0);
    return HEARTH_OK;
}

int opening_describe(struct opening *o, struct error *error)
{
    struct peer_info *self = &o->self;
    int status = draw(&self->id.instance, error);
    if (status == HEARTH_OK && host_id(&self->host_id) != HEARTH_OK)
        status = error_set(error, HEARTH_SYSTEM, RANK_NONE, "open: cannot read the id of this machine");
    self->process = (uint32_t)process_id();
    self->features = (o->choice != MESH_ONLY_TCP ? PEER_SHM : 0) |
                     (o->quic_choice != QUIC_NEVER && quic_built() ? PEER_QUIC : 0);
    host_name(self->name, sizeof self->name);
    return status;
}

/* Whether all members are on this machine for sure: then no other machine needs the port. */
static bool only_here(const struct opening *o)
{
    return o->config->plain ? !o->config->trust_network : secure_meets_privately(o);
}

/* Opens the listening port. */
int opening_listen(struct opening *o, struct error *error)
{
    const struct hearth_config *c = o->config;
    struct sock_addr addrs[ROSTER_ADDRS_MAX];
    struct half_open_setup setup = {
        .heap = o->heap, .log = o->log, .port_tries = PORT_TRIES, .patience_ns = GREETING_NS};
    uint16_t port = c->port;
    int count = 0;
    if (o->peers && o->rank >= 0) {
        port = opening_peer_port(o->peers[o->rank], c->port);
        setup.port_tries = 0; /* the list gives the address */
    }
    if (o->choice != MESH_ONLY_SHM) {
        const char *bind = !c->bind && only_here(o) ? "127.0.0.1" : c->bind;
        const struct host_wanted wanted = {bind, c->advertise, port, o->deadline_ns};
        int status = host_choose(&wanted, &setup.listen, addrs, ROSTER_ADDRS_MAX, &count, error);
        if (status != HEARTH_OK)
            return status;
    }
    int status = listener_open(&setup, &o->listener, error);
    if (status != HEARTH_OK)
        return status;
    struct sock_addr bound = half_open_addr(o->listener->half_open);
    o->self.addr_count = 0;
    for (int i = 0; i < count; i++) {
        struct net_addr *addr = &o->self.addrs[o->self.addr_count];
        o->self.addr_count += sock_addr_to_net(&addrs[i], addr);
        if (addr->port == 0)
            addr->port = sock_addr_port(&bound);
    }
    return HEARTH_OK;
}

void opening_settings(const struct opening *o, char text[static SETTINGS_TEXT_MAX])
{
    const struct hearth_config *c = o->config;
    snprintf(text, SETTINGS_TEXT_MAX,
             "chunk_bytes=%zu window_bytes=%zu eager_bytes=%zu algo=%s link_mbps=%" PRIu32
             " transport=%s plain=%d",
             tuning_of(c)->chunk_bytes, tuning_of(c)->window_bytes, tuning_of(c)->eager_bytes,
             hearth_algo_name(tuning_of(c)->algo), c->link_mbps, c->transport, c->plain != 0);
}

/* Uses the earlier measures of the home cluster: while all connect at once, queues add to round trips. */
static bool known_near(const struct opening *o)
{
    const struct group_spec *f = o->spec;
    uint32_t longest_us = !f ? 0 : f->inside_us > f->across_us ? f->inside_us : f->across_us;
    return longest_us > 0 && longest_us * NS_PER_US < MESH_FAR_NS;
}

static int channels_for(const struct opening *o)
{
    if (o->quic_choice == QUIC_ALWAYS)
        return 1;
    if (tuning_of(o->config)->connections > 0)
        return (int)tuning_of(o->config)->connections + 1;
    return known_near(o) ? MESH_CHANNELS_NEAR : 0;
}

static int agree_on_roster(struct opening *o, struct error *error)
{
    const struct hearth_config *c = o->config;
    char settings[SETTINGS_TEXT_MAX];
    opening_settings(o, settings);
    struct roster_setup setup = {
        .heap = o->heap,
        .log = o->log,
        .rendezvous = o->peers ? o->peers[0] : c->rendezvous,
        .peers = o->peers,
        .job = c->job,
        .rank = o->rank,
        .size = o->size,
        .settings = hash128(settings, strlen(settings)).low,
        .settings_text = settings,
        .self = o->self,
        .credentials = o->credentials,
        .offer = o->secret ? secret_bytes(o->secret) : NULL,
        .channels = channels_for(o) > 0 ? channels_for(o) : MESH_CHANNELS_NEAR,
        .listener = o->peers ? half_open_fd(o->listener->half_open) : -1,
        .deadline_ns = o->deadline_ns,
        .connect_timeout_ns = (uint64_t)tuning_of(c)->connect_timeout_ms * NS_PER_MS,
        .connect_retries = tuning_of(c)->connect_retries,
    };
    int status = roster_agree(&setup, &o->roster, error);
    if (status != HEARTH_OK)
        return status;
    for (int i = 0; i < o->roster.size && c->plain && !c->trust_network; i++) {
        const struct peer_info *m = &o->roster.members[i];
        if (m->host_id != o->self.host_id)
            return error_set(
                error, HEARTH_INVALID, i,
                "open: rank %d is on another machine or of another user (%s), and plain "
                "connections are not encrypted: leave plain away, or, if you trust this network, "
                "say so at every member: trust_network, HEARTH_TRUST_NETWORK=1 or "
                "--i-trust-this-network",
                i, m->name);
    }
    return HEARTH_OK;
}

/* ---- connections ---- */

static int join(struct opening *o, struct error *error)
{
    const struct hearth_config *c = o->config;
    size_t size = (size_t)o->roster.size;
    o->mesh = heap_alloc(o->heap, size, sizeof *o->mesh);
    o->conns = heap_alloc(o->heap, size, sizeof *o->conns);
    o->host = heap_alloc(o->heap, size, sizeof *o->host);
    if (!o->mesh || !o->conns || !o->host)
        return error_set(error, HEARTH_NO_MEMORY, RANK_NONE, "open: no memory for %zu members", size);
    struct mesh_setup setup = {
        .heap = o->heap,
        .log = o->log,
        .roster = &o->roster,
        .listener = o->listener,
        .choice = o->choice,
        .channels = channels_for(o),
        .rate_bytes_per_s = (double)c->link_mbps * 1e6 / 8,
        .credentials = o->credentials,
        .trust_network = c->trust_network,
        .deadline_ns = o->deadline_ns,
        .stop = o->stop,
        .connect_timeout_ns = (uint64_t)tuning_of(c)->connect_timeout_ms * NS_PER_MS,
        .connect_retries = tuning_of(c)->connect_retries,
        .unjoined = o->unjoined,
    };
    int status = mesh_join(&setup, o->mesh, error);
    if (status != HEARTH_OK) {
        heap_free(o->mesh);
        o->mesh = NULL;
    }
    return status;
}

/* ---- the node ---- */

/* Members of one host get the number of its lowest rank. Returns how many are on this host. */
static int number_hosts(struct opening *o)
{
    int here = 0;
    const struct peer_info *members = o->roster.members;
    for (int i = 0; i < o->roster.size; i++) {
        int first = 0;
        while (members[first].host_id != members[i].host_id)
            first++;
        o->host[i] = first;
        here += members[i].host_id == o->self.host_id;
    }
    return here;
}

static int fullest_host(const struct opening *o)
{
    int most = 0;
    for (int i = 0; i < o->roster.size; i++) {
        int count = 0;
        for (int k = 0; k < o->roster.size; k++)
            count += o->host[k] == o->host[i];
        most = count > most ? count : most;
    }
    return most;
}

/* One member's values for the links; all use the greatest. */
struct worst {
    double choice_s; /* latency between two machines, one direction */
    double remote;   /* 1: there are several machines */
    double crowded;  /* 1: some host has more members than processors */
    double byte_s;   /* time of the slowest member to send a byte, by its `rate`; 0: no member has one */
};

static struct worst worst_here(const struct opening *o)
{
    struct worst worst = {.crowded = o->crowded};
    if (o->config->rate > 0)
        worst.byte_s = 8 / (double)o->config->rate;
    for (int i = 0; i < o->roster.size; i++) {
        double choice_s = (double)o->mesh[i].round_trip_ns * 1e-9 / 2;
        if (o->roster.members[i].host_id == o->self.host_id)
            continue;
        worst.remote = 1;
        worst.choice_s = choice_s > worst.choice_s ? choice_s : worst.choice_s;
    }
    return worst;
}

static void lay_path_costs(const struct opening *o, hearth_node *node, const struct worst *worst)
{
    struct path_costs *f = &node->costs;
    f->inside = o->choice == MESH_ONLY_TCP ? loopback_cost : shm_cost;
    f->across = loopback_cost;
    f->byte_s = worst->byte_s;
    f->crowded = worst->crowded > 0;
    if (worst->remote > 0) {
        f->across.alpha_s = worst->choice_s > CHOICE_MIN_S ? worst->choice_s : CHOICE_MIN_S;
        f->across.bytes_per_s = (double)o->config->link_mbps * 1e6 / 8 * LINE_YIELD;
    }
}

static int64_t opening_left_ms(const struct opening *o)
{
    uint64_t now = clock_real();
    return now < o->deadline_ns ? (int64_t)((o->deadline_ns - now) / NS_PER_MS) + 1 : 1;
}

/* All members take part. */
static int agree_on_costs(struct opening *o, hearth_node *node, struct error *error)
{
    struct worst worst = worst_here(o);
    struct hearth_opts opts;
    hearth_opts_init(&opts);
    opts.timeout_ms = opening_left_ms(o);
    struct call call = {
        .kind = PLAN_ALL_REDUCE,
        .source = &worst,
        .target = &worst,
        .count = sizeof worst / sizeof(double),
        .dtype = HEARTH_F64,
        .op = HEARTH_OP_MAX,
    };
    int status = call_run_unless(&node->world, &call, &opts, o->interrupted);
    if (status != HEARTH_OK) {
        struct error *last = error_last();
        return error_wrap(error, last, "open: the first collective failed: %s", last->text);
    }
    lay_path_costs(o, node, &worst);
    return HEARTH_OK;
}

static int agree_on_sites(struct opening *o, hearth_node *node, struct error *error)
{
    size_t size = (size_t)o->roster.size;
    const char *name = o->config->site;
    uint64_t *named = heap_alloc(node->heap, size, sizeof *named), own = 0, any = 0;
    if (name)
        own = hash64(1, name, strlen(name)) | 1; /* 0: none */
    int status = named ? HEARTH_OK : HEARTH_NO_MEMORY;
    struct call call = {
        .kind = PLAN_ALL_GATHER, .source = &own, .target = named, .count = 1, .dtype = HEARTH_U64};
    struct hearth_opts opts;
    hearth_opts_init(&opts);
    opts.timeout_ms = opening_left_ms(o);
    if (status == HEARTH_OK)
        status = call_run_unless(&node->world, &call, &opts, o->interrupted);
    for (size_t i = 0; status == HEARTH_OK && i < size; i++)
        any |= named[i];
    if (any != 0)
        node->costs.named = named;
    else
        heap_free(named);
    return status == HEARTH_OK
               ? status
               : error_set(error, status, RANK_NONE, "open: exchange of site names failed: %s",
                           hearth_status_text(status));
}

/* Uses the ring order of the home cluster's leader, if there is one. */
static void take_path_costs(const struct opening *o, hearth_node *node)
{
    struct ring_order as_formed;
    path_costs_begin(node);
    if (!o->spec)
        return;
    group_spec_ring_order(o->spec, &as_formed);
    bool adopted = path_costs_adopt(&node->world, &as_formed);
    assert(adopted); /* no other thread has the node yet */
    (void)adopted;
}

/* The opening frees them. */
static void node_forget_strings(hearth_node *node)
{
    struct hearth_config *c = &node->config;
    c->peers = c->rendezvous = c->job = c->bind = c->advertise = c->transport = c->site = NULL;
    c->secret = c->secret_file = c->key_file = NULL;
    c->discover = c->seeds = c->mdns = c->health = NULL;
}

/* The identities of the members, for the life of the node. */
static int name_members(struct opening *o, struct error *error)
{
    if (!o->credentials)
        return HEARTH_OK;
    o->identities = heap_alloc(o->heap, (size_t)o->roster.size, sizeof *o->identities);
    if (!o->identities)
        return error_set(error, HEARTH_NO_MEMORY, RANK_NONE, "open: no memory");
    for (int i = 0; i < o->roster.size; i++)
        o->identities[i] = o->roster.members[i].id;
    return HEARTH_OK;
}

static int open_node(struct opening *o, hearth_node **out, struct error *error)
{
    o->crowded = number_hosts(o) > cpu_count();
    struct group_view world = {
        .group = o->roster.cluster,
        .epoch = 1,
        .size = o->roster.size,
        .host = o->host,
        .inside = loopback_cost,
        .across = loopback_cost,
        .port_sharers = fullest_host(o),
    };
    struct node_setup setup = {
        .config = o->config,
        .heap = o->heap_lent ? NULL : o->heap,
        .lent_heap = o->heap_lent ? o->heap : NULL,
        .loss = o->spec ? HEARTH_VIEW_CHANGED : HEARTH_PEER_LOST,
        .outer = o->outer,
        .rank = o->roster.rank,
        .world = &world,
        .instance = o->self.id.instance,
        .conns = o->conns,
        .event = o->event,
        .listener = o->listener,
        .regions = o->regions,
        .quic = o->quic,
        .credentials = o->credentials,
        .members = o->identities,
        .crowded = o->crowded,
        .opening_ns = o->deadline_ns,
    };
    hearth_node *node;
    o->event = (struct event){-1, -1}; /* from here on the node owns it and the conns, or they are closed */
    int status = node_open(&setup, &node, error);
    heap_free(o->conns);
    o->conns = NULL;
    if (status != HEARTH_OK)
        return status;
    node->roll = o->roll;
    o->roll = NULL;
    o->listener = NULL;
    o->regions = NULL;
    o->quic = NULL;
    o->credentials = NULL;
    o->identities = NULL;
    node->links = o->links;
    o->links = NULL;
    status = agree_on_costs(o, node, error);
    if (status == HEARTH_OK)
        status = agree_on_sites(o, node, error);
    if (status == HEARTH_OK)
        take_path_costs(o, node);
    if (status == HEARTH_OK && o->discover == DISCOVER)
        status = cluster_groups_open(o, node, error);
    node_forget_strings(node);
    if (!o->heap_lent)
        o->heap = NULL;
    opening_fini(o); /* the rest is on the node's heap */
    if (status == HEARTH_OK)
        *out = node;
    else
        hearth_node_close(node);
    return status;
}

/* ---- all of it ---- */

/* A single member: no rendezvous, no connections. */
int opening_alone(struct opening *o, struct error *error)
{
    o->roster.size = 1;
    o->roster.members = heap_alloc(o->heap, 1, sizeof *o->roster.members);
    o->mesh = heap_alloc(o->heap, 1, sizeof *o->mesh);
    o->conns = heap_alloc(o->heap, 1, sizeof *o->conns);
    o->host = heap_alloc(o->heap, 1, sizeof *o->host);
    if (!o->roster.members || !o->mesh || !o->conns || !o->host)
        return error_set(error, HEARTH_NO_MEMORY, RANK_NONE, "open: no memory");
    for (int i = 0; i < MESH_CHANNELS_MAX; i++)
        o->mesh->fds[i] = -1;
    o->roster.members[0] = o->self;
    return draw(&o->roster.cluster, error);
}

static int meet(struct opening *o, struct error *error)
{
    if (o->config->plain)
        log_write(&o->log, HEARTH_LOG_WARN, "HEARTH-PLAIN",
                  "no encryption and no authentication: plain was requested");
    int status = secure_before_meeting(o, error);
    if (status == HEARTH_OK)
        status = opening_listen(o, error);
    if (status == HEARTH_OK)
        status = agree_on_roster(o, error);
    return status == HEARTH_OK ? secure_after_meeting(o, error) : status;
}

int opening_join(struct opening *o, hearth_node **out, struct error *error)
{
    int status = o->roster.size > 1 ? join(o, error) : HEARTH_OK;
    if (status == HEARTH_OK && event_open(&o->event) != HEARTH_OK)
        status = error_set(error, HEARTH_SYSTEM, RANK_NONE, "open: no descriptor for the node");
    if (status == HEARTH_OK && o->roster.size > 1)
        status = links_take(o, error);
    else if (status == HEARTH_OK)
        links_roll(o, NULL);
    if (status == HEARTH_OK)
        status = name_members(o, error);
    return status == HEARTH_OK ? open_node(o, out, error) : status;
}

static int open_steps(struct opening *o, hearth_node **out, struct error *error)
{
    int status = opening_describe(o, error);
    if (status == HEARTH_OK)
        status = secure_find(o, error);
    if (status == HEARTH_OK && o->size == 1)
        status = opening_alone(o, error);
    else if (status == HEARTH_OK)
        status = meet(o, error);
    return status == HEARTH_OK ? opening_join(o, out, error) : status;
}

int hearth_node_open(const struct hearth_config *config, hearth_node **node)
{
    struct error *error = error_last();
    struct hearth_config own, whole;
    struct hearth_tuning tuning;
    struct opening o;
    if (!node)
        return error_set(error, HEARTH_INVALID, RANK_NONE, "open: node is NULL");
    int status = HEARTH_OK;
    if (!config) {
        hearth_config_init(&own);
        status = hearth_config_env(&own);
        config = &own;
    }
    if (status == HEARTH_OK)
        status = config_read(&whole, &tuning, config, error);
    if (status != HEARTH_OK)
        return status;
    struct error why; /* the error must survive the calls of the cleanup */
    status = config_check(&whole, &why);
    if (status == HEARTH_OK) {
        status = opening_init(&o, &whole, NULL, &why);
        if (status == HEARTH_OK)
            status = open_steps(&o, node, &why);
        opening_fini(&o);
    }
    if (status != HEARTH_OK)
        *error = why;
    return status;
}

int64_t hearth_node_links_text(hearth_node *node, char *buffer, size_t size)
{
    if (!node || (!buffer && size > 0))
        return error_set(error_last(), HEARTH_INVALID, RANK_NONE, "links_text: node or buffer is NULL");
    if (node_forked(node))
        return error_set(error_last(), HEARTH_FORKED, RANK_NONE, "links_text: %s",
                         hearth_status_text(HEARTH_FORKED));
    struct text_buf text = text_buf_of(buffer, size);
    text_buf_print(&text, "%s", node->links ? node->links : "");
    if (node->cluster_groups)
        cluster_groups_links(node->cluster_groups, &text);
    return (int64_t)text.len;
}
