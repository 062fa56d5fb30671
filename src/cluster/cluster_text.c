/* SPDX-License-Identifier: Apache-2.0 */
/* The description of this node, and its updates when addresses change. */
#include <stdio.h>
#include <string.h>

#include "cluster/cluster_state.h"
#include "os/clock.h"
#include "os/host.h"

#define LOOK_NS NS_PER_S /* short enough to reconnect from a new address before the others call us dead */

static void put_addrs(struct peer_info *self, const struct sock_addr *addrs, int count)
{
    self->addr_count = 0;
    for (int i = 0; i < count && self->addr_count < PEER_ADDRS_MAX; i++)
        self->addr_count += sock_addr_to_net(&addrs[i], &self->addrs[self->addr_count]);
}

int cluster_describe_self(struct cluster *cluster, struct sock_addr *listen, struct peer_info *self,
                          struct error *error)
{
    const struct cluster_setup *setup = &cluster->setup;
    struct sock_addr addrs[PEER_ADDRS_MAX];
    struct host_facts facts;
    int count = 0;

    host_facts(&facts);
    *self = (struct peer_info){
        .id = *credentials_self(setup->credentials),
        .machine = facts.machine,
        .features = setup->flags,
        .process = (uint32_t)process_id(),
        .memory_mib = facts.memory_mib,
        .cores = facts.cores,
        .cpu = facts.cpu,
    };
    host_name(self->name, sizeof self->name);
    snprintf(self->platform, sizeof self->platform, "%s", facts.platform);
    if (host_id(&self->host_id))
        return error_set(error, HEARTH_SYSTEM, RANK_NONE, "home cluster: cannot read the id of this machine");
    const struct host_wanted wanted = {setup->bind, setup->advertise, setup->port, setup->deadline_ns};
    int status = host_choose(&wanted, listen, addrs, PEER_ADDRS_MAX, &count, error);
    if (!status)
        put_addrs(self, addrs, count);
    return status;
}

void cluster_announce(struct cluster *cluster, uint64_t now_ns)
{
    const struct peer_info *self = peer_set_self(cluster->peer_set);
    struct sock_addr bound = peer_set_addr(cluster->peer_set);
    struct sighting announcement = {
        .id = self->id,
        .port = sock_addr_port(&bound),
        .flags = self->features,
    };

    memcpy(announcement.space, secret_namespace(credentials_secret(cluster->setup.credentials)),
           NAMESPACE_LEN);
    snprintf(announcement.name, sizeof announcement.name, "%s", self->name);
    finder_announce(cluster->finder, &announcement, now_ns);
}

/* The current addresses with the bound port; false: unknown. */
static bool addrs_now(struct cluster *cluster, struct peer_info *self)
{
    struct interface list[INTERFACES_MAX];
    struct sock_addr addrs[PEER_ADDRS_MAX], bound = peer_set_addr(cluster->peer_set);
    int count = 0;

    if (host_interfaces(list, &count))
        return false;
    count = host_best(list, count, sock_addr_family(&bound) == SOCK_IPV4, addrs, PEER_ADDRS_MAX);
    for (int i = 0; i < count; i++)
        sock_addr_set_port(&addrs[i], sock_addr_port(&bound));
    put_addrs(self, addrs, count);
    return true;
}

static bool same_addrs(const struct peer_info *a, const struct peer_info *b)
{
    return a->addr_count == b->addr_count &&
           memcmp(a->addrs, b->addrs, (size_t)a->addr_count * sizeof a->addrs[0]) == 0;
}

/* After sleep, all connections are tried at once instead of failing one by one. */
static bool woke_up(struct cluster *cluster)
{
    uint64_t asleep = clock_asleep();
    bool woke = asleep > cluster->slept_ns + NS_PER_S;

    cluster->slept_ns = asleep;
    return woke;
}

void cluster_scan_network(struct cluster *cluster, uint64_t now_ns)
{
    struct peer_info self = *peer_set_self(cluster->peer_set);

    if (now_ns < cluster->look_ns)
        return;
    bool woke = cluster->look_ns > 0 && woke_up(cluster);
    cluster->look_ns = now_ns + LOOK_NS;
    bool fixed = cluster->setup.bind || cluster->setup.advertise; /* the user chose them */
    bool moved = !fixed && addrs_now(cluster, &self) && !same_addrs(&self, peer_set_self(cluster->peer_set));
    if (moved) {
        log_write(&cluster->log, HEARTH_LOG_INFO, "HEARTH-ADDRESS", "this machine's addresses have changed");
        peer_set_describe(cluster->peer_set, &self);
        consensus_describe(cluster->consensus, &self, now_ns);
        cluster_announce(cluster, now_ns);
    }
    if (moved || woke)
        peer_set_hurry(cluster->peer_set, now_ns);
}
