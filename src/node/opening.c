/* SPDX-License-Identifier: Apache-2.0 */
/* The first step of hearth_node_open: copies and checks the config of the cluster. */
#include "node/opening.h"

#include <string.h>

#include "node/environment.h"
#include "node/secure.h"
#include "os/host.h"
#include "os/resolve.h"
#include "transport/quic.h"

#define PEERS_PORT      52416
#define RENDEZVOUS_PORT 52415
#define TEXT_MAX        65536u

static char *copy_text(struct heap *heap, const char *text, size_t len)
{
    char *copy = heap_alloc_raw(heap, 1, len + 1);
    if (!copy)
        return NULL;
    memcpy(copy, text, len);
    copy[len] = '\0';
    return copy;
}

/* ---- strings ---- */

static const char **string_field(struct hearth_config *c, int i)
{
    const char **fields[] = {&c->peers,     &c->rendezvous,  &c->job,      &c->bind,     &c->advertise,
                             &c->transport, &c->secret_file, &c->key_file, &c->discover, &c->seeds,
                             &c->mdns,      &c->health,      &c->site};
    return i < (int)(sizeof fields / sizeof *fields) ? fields[i] : NULL;
}

static int copy_strings(struct opening *o, const struct hearth_config *config, struct error *error)
{
    struct hearth_config given = *config;
    o->own = *config;
    for (int i = 0; string_field(&o->own, i); i++)
        *string_field(&o->own, i) = NULL;
    for (int i = 0; string_field(&given, i); i++) {
        const char *text = *string_field(&given, i);
        if (!text)
            continue;
        size_t len = strnlen(text, TEXT_MAX);
        if (len == TEXT_MAX)
            return error_set(error, HEARTH_INVALID, RANK_NONE,
                             "open: a text of the config is longer than %u bytes", TEXT_MAX - 1);
        *string_field(&o->own, i) = copy_text(o->heap, text, len);
        if (!*string_field(&o->own, i))
            return error_set(error, HEARTH_NO_MEMORY, RANK_NONE, "open: no memory");
    }
    o->config = &o->own;
    return HEARTH_OK;
}

/* ---- peers ---- */

static int split_peers(struct opening *o, struct error *error)
{
    const char *text = o->own.peers;
    int count = 1;
    for (const char *c = text; *c != '\0'; c++)
        count += *c == ',';
    if (count > ROSTER_MEMBERS_MAX)
        return error_set(error, HEARTH_INVALID, RANK_NONE,
                         "open: peers lists %d members; at most %d are allowed", count, ROSTER_MEMBERS_MAX);
    o->peers = heap_alloc(o->heap, (size_t)count, sizeof *o->peers);
    o->size = 0; /* places that are filled */
    if (!o->peers)
        return error_set(error, HEARTH_NO_MEMORY, RANK_NONE, "open: no memory");
    for (int i = 0; i < count; i++) {
        while (*text == ' ')
            text++;
        size_t len = strcspn(text, ",");
        size_t next = len;
        while (len > 0 && text[len - 1] == ' ')
            len--;
        o->peers[i] = copy_text(o->heap, text, len);
        if (!o->peers[i])
            return error_set(error, HEARTH_NO_MEMORY, RANK_NONE, "open: no memory");
        struct error why;
        o->size = i + 1;
        if (resolve_check(o->peers[i], &why) != HEARTH_OK)
            return error_set(error, HEARTH_INVALID, i, "open: peers: rank %d: %s", i, why.text);
        for (int k = 0; k < i; k++)
            if (strcmp(o->peers[k], o->peers[i]) == 0)
                return error_set(error, HEARTH_INVALID, i,
                                 "open: peers: rank %d and rank %d are both %s; each needs an address of its "
                                 "own",
                                 k, i, o->peers[i]);
        text += next + (text[next] == ',');
    }
    return HEARTH_OK;
}

uint16_t opening_peer_port(const char *peer, uint16_t default_port)
{
    const char *colon = strrchr(peer, ':');
    unsigned port = 0;
    if (!colon || colon[1] < '0' || colon[1] > '9' || (strchr(peer, ':') != colon && colon[-1] != ']'))
        return default_port;
    for (const char *c = colon + 1; *c >= '0' && *c <= '9' && port <= UINT16_MAX; c++)
        port = port * 10 + (unsigned)(*c - '0');
    return port <= UINT16_MAX ? (uint16_t)port : default_port;
}

/* ---- checks ---- */

/* Without encryption an address of another machine needs the user's consent. */
static int check_trust(const struct opening *o, const char *text, uint16_t port, struct error *error)
{
    struct sock_addr addrs[RESOLVE_MAX];
    int count = 0;
    if (!o->own.plain || o->own.trust_network)
        return HEARTH_OK;
    int status = resolve(text, port, o->deadline_ns, addrs, &count, error);
    for (int i = 0; status == HEARTH_OK && i < count; i++)
        if (!sock_addr_loopback(&addrs[i]) && !host_owns(&addrs[i]))
            status =
                error_set(error, HEARTH_INVALID, RANK_NONE,
                          "open: %s is another machine, and plain connections are not encrypted: leave plain "
                          "away, or, if you trust this network, say so: trust_network, "
                          "HEARTH_TRUST_NETWORK=1 or --i-trust-this-network",
                          text);
    return status;
}

static int check_members(struct opening *o, struct error *error)
{
    const struct hearth_config *c = &o->own;
    if (c->world_size < 0)
        return error_set(error, HEARTH_INVALID, RANK_NONE, "open: world_size is %d; it must be from 1 to %d",
                         c->world_size, ROSTER_MEMBERS_MAX);
    if (c->rank < -1)
        return error_set(error, HEARTH_INVALID, RANK_NONE, "open: rank is %d; -1 leaves it open", c->rank);
    if (c->peers && c->rendezvous)
        return error_set(error, HEARTH_INVALID, RANK_NONE,
                         "open: peers and rendezvous are both given; one is enough");
    if (c->peers && c->world_size > 0 && c->world_size != o->size)
        return error_set(error, HEARTH_INVALID, RANK_NONE,
                         "open: peers lists %d members, but world_size is %d", o->size, c->world_size);
    if (c->rendezvous && c->world_size == 0)
        return error_set(
            error, HEARTH_INVALID, RANK_NONE,
            "open: a rendezvous needs world_size (HEARTH_WORLD_SIZE): how many members there are");
    if (!c->peers && !c->rendezvous && c->world_size > 1)
        return error_set(error, HEARTH_INVALID, RANK_NONE,
                         "open: world_size is %d, but nothing says where the members meet: give peers "
                         "(HEARTH_PEERS) or rendezvous (HEARTH_RENDEZVOUS)",
                         c->world_size);
    if (o->size > ROSTER_MEMBERS_MAX)
        return error_set(error, HEARTH_INVALID, RANK_NONE, "open: world_size is %d; it must be from 1 to %d",
                         o->size, ROSTER_MEMBERS_MAX);
    if (o->rank >= o->size)
        return error_set(error, HEARTH_INVALID, RANK_NONE, "open: rank is %d, but there are only %d members",
                         o->rank, o->size);
    return HEARTH_OK;
}

bool opening_transport(const char *name, enum mesh_choice *choice)
{
    if (strcmp(name, "auto") == 0)
        *choice = MESH_AUTO;
    else if (strcmp(name, "tcp") == 0)
        *choice = MESH_ONLY_TCP;
    else if (strcmp(name, "quic") == 0)
        *choice = MESH_ONLY_TCP; /* members find and trust each other by tcp; then quic replaces it */
    else if (strcmp(name, "shm") == 0)
        *choice = MESH_ONLY_SHM;
    else
        return false;
    return true;
}

static int check_transport(struct opening *o, struct error *error)
{
    const char *name = o->own.transport;
    if (!opening_transport(name ? name : "auto", &o->choice))
        return error_set(error, HEARTH_INVALID, RANK_NONE,
                         "open: transport is \"%s\"; it takes auto, tcp, quic or shm", name);
    if (name && strcmp(name, "quic") == 0)
        o->quic_choice = QUIC_ALWAYS;
    else if (o->choice == MESH_AUTO && !o->own.plain)
        o->quic_choice = QUIC_IF_FASTER;
    if (o->quic_choice == QUIC_ALWAYS && o->own.plain)
        return error_set(error, HEARTH_INVALID, RANK_NONE,
                         "open: quic is always encrypted: transport quic cannot be plain");
    if (o->choice == MESH_ONLY_SHM && o->peers)
        return error_set(error, HEARTH_INVALID, RANK_NONE,
                         "open: peers are addresses of tcp; with transport shm use rendezvous");
    return HEARTH_OK;
}

/* Whether the config names the members. */
static bool members_given(const struct hearth_config *c)
{
    return c->peers || c->rendezvous || c->world_size > 0;
}

static int check_discover(struct opening *o, const struct hearth_config *given, struct error *error)
{
    const char *discover = given->discover;
    if (!discover)
        o->discover = members_given(given) || given->plain ? DISCOVER_NOT : DISCOVER_IF_SECRET;
    else
        o->discover = strcmp(discover, "mdns") == 0 ? DISCOVER : DISCOVER_NOT;
    if (o->discover == DISCOVER && members_given(given))
        return error_set(
            error, HEARTH_INVALID, RANK_NONE,
            "open: a node that discovers its peers (discover) cannot be given them: leave peers, "
            "rendezvous and world_size (HEARTH_WORLD_SIZE) away");
    if (o->discover == DISCOVER && given->plain)
        return error_set(error, HEARTH_INVALID, RANK_NONE,
                         "open: nodes find each other by their secret: discover cannot be plain");
    return HEARTH_OK;
}

int opening_init(struct opening *o, const struct hearth_config *config, struct heap *lent,
                 struct error *error)
{
    memset(o, 0, sizeof *o);
    o->event = (struct event){-1, -1};
    o->heap_lent = lent;
    o->heap = lent ? lent : heap_open(config->memory_max);
    if (!o->heap)
        return error_set(error, HEARTH_NO_MEMORY, RANK_NONE, "open: no memory");
    o->log = (struct log){.sink = config->log, .arg = config->log_arg, .level = config->log_level};
    o->deadline_ns = clock_real() + (uint64_t)config->open_timeout_ms * NS_PER_MS;
    o->rank = config->rank;
    o->size = config->world_size > 0 ? config->world_size : 1;
    struct hearth_config given = *config;
    const struct hearth_environment *found = environment_of(config);
    if (!given.peers && !given.rendezvous && given.world_size > 0 && found->rendezvous[0] != '\0')
        given.rendezvous = found->rendezvous;
    int status = copy_strings(o, &given, error);
    if (status == HEARTH_OK && o->own.peers)
        status = split_peers(o, error);
    if (status == HEARTH_OK)
        status = check_members(o, error);
    if (status == HEARTH_OK)
        status = check_discover(o, config, error);
    if (status == HEARTH_OK)
        status = check_transport(o, error);
    if (status == HEARTH_OK && o->own.rendezvous && o->size > 1)
        status = check_trust(o, o->own.rendezvous, RENDEZVOUS_PORT, error);
    for (int i = 0; status == HEARTH_OK && o->peers && i < o->size; i++)
        status = check_trust(o, o->peers[i], PEERS_PORT, error);
    return status;
}

void opening_fini(struct opening *o)
{
    for (int i = 0; o->conns && i < o->roster.size; i++)
        for (int p = 0; p < o->conns[i].count; p++)
            o->conns[i].conns[p]->transport->close(o->conns[i].conns[p]);
    heap_free(o->conns);
    if (o->mesh)
        mesh_close(o->mesh, o->roster.size);
    heap_free(o->mesh);
    heap_free(o->host);
    roster_fini(&o->roster);
    if (o->listener)
        listener_close(o->listener);
    quic_close(o->quic);
    shm_regions_close(o->regions);
    heap_free(o->identities);
    heap_free(o->links);
    heap_free(o->roll);
    secure_fini(o);
    event_close(&o->event);
    for (int i = 0; o->peers && i < o->size; i++)
        heap_free((void *)(uintptr_t)o->peers[i]);
    heap_free(o->peers);
    for (int i = 0; string_field(&o->own, i); i++)
        heap_free((void *)(uintptr_t)*string_field(&o->own, i));
    if (!o->heap_lent)
        heap_close(o->heap);
    memset(o, 0, sizeof *o);
    o->event = (struct event){-1, -1};
}
