/* SPDX-License-Identifier: Apache-2.0 */
/* Our records. All names have the instance in them, 64 random bits, so that no other host has them and
 * there is no need to probe for 0.75 s before we speak; and there are no reverse records, which all nodes of
 * a host would have to share. */
#include <avahi-common/domain.h>
#include <avahi-common/error.h>
#include <avahi-common/malloc.h>
#include <avahi-common/timeval.h>
#include <stdio.h>
#include <string.h>

#include "helper/mdns_net.h"

#define TTL_S         120 /* a node that was killed is known for that long at most */
#define DOMAIN        "local"
#define NAME_LEN_MAX  64
#define COLLISION_MS  500u
#define COLLISION_MAX 6 /* doublings */

bool publish_name(const struct mdns *m, char *name, size_t size)
{
    if (m->self.port == 0)
        return false;
    if (m->collisions == 0)
        snprintf(name, size, "hearth-%016llx", (unsigned long long)m->self.id.instance);
    else
        snprintf(name, size, "hearth-%016llx-%u", (unsigned long long)m->self.id.instance, m->collisions);
    return true;
}

/* ---- names taken ---- */

static void publish_again(AvahiTimeout *timeout, void *arg)
{
    struct mdns *m = arg;

    m->poll->timeout_update(timeout, NULL);
    publish_all(m);
}

/* Another host claims our name, which is no accident: we take another one, after a pause that grows. */
static void group_changed(AvahiServer *server, AvahiSEntryGroup *group, AvahiEntryGroupState state, void *arg)
{
    struct net *net = arg;
    struct mdns *m = net->mdns;
    struct timeval when;

    (void)server, (void)group;
    if (state == AVAHI_ENTRY_GROUP_FAILURE)
        out_warn(&m->out, "publish", "cannot publish on %s", net->name);
    if (state != AVAHI_ENTRY_GROUP_COLLISION)
        return;
    out_warn(&m->out, "collision", "another host on %s claims the name of this node; taking another name",
             net->name);
    m->collisions++;
    unsigned doublings = m->collisions < COLLISION_MAX ? m->collisions : COLLISION_MAX;
    avahi_elapse_time(&when, COLLISION_MS << doublings, 0);
    if (!m->republish)
        m->republish = m->poll->timeout_new(m->poll, &when, publish_again, m);
    else
        m->poll->timeout_update(m->republish, &when);
}

/* ---- records ---- */

/* The record goes to avahi, whatever comes of it. */
static int add(struct net *net, AvahiSEntryGroup *group, AvahiRecord *record, AvahiPublishFlags flags)
{
    if (!record)
        return AVAHI_ERR_NO_MEMORY;
    int failed = avahi_server_add(net->mdns->server, group, net->index, AVAHI_PROTO_UNSPEC,
                                  flags | AVAHI_PUBLISH_NO_PROBE, record);
    avahi_record_unref(record);
    return failed;
}

static AvahiRecord *record_new(const char *name, uint16_t type)
{
    return avahi_record_new_full(name, AVAHI_DNS_CLASS_IN, type, TTL_S);
}

static int add_pointer(struct net *net, AvahiSEntryGroup *group, const char *name, const char *target)
{
    AvahiRecord *record = record_new(name, AVAHI_DNS_TYPE_PTR);

    if (record)
        record->data.ptr.name = avahi_normalize_name_strdup(target);
    return add(net, group, record, 0);
}

struct names {
    char service[AVAHI_DOMAIN_NAME_MAX], host[NAME_LEN_MAX + sizeof(DOMAIN) + 1];
};

static int add_service(struct net *net, AvahiSEntryGroup *group, const struct names *names)
{
    AvahiRecord *record = record_new(names->service, AVAHI_DNS_TYPE_SRV);

    if (record) {
        record->data.srv.port = net->mdns->self.port;
        record->data.srv.name = avahi_normalize_name_strdup(names->host);
    }
    int failed = add(net, group, record, AVAHI_PUBLISH_UNIQUE);
    if (failed >= 0)
        failed = add_pointer(net, group, MDNS_SERVICE "." DOMAIN, names->service);
    if (failed >= 0)
        failed = add_pointer(net, group, "_services._dns-sd._udp." DOMAIN, MDNS_SERVICE "." DOMAIN);
    return failed;
}

/* The old and the new one are there together for a moment. */
static int add_text(struct net *net, AvahiSEntryGroup *group, const struct names *names)
{
    char items[MDNS_TXT_ITEMS][MDNS_TXT_ITEM_MAX];
    AvahiRecord *record = record_new(names->service, AVAHI_DNS_TYPE_TXT);
    AvahiStringList *list = NULL;

    mdns_txt_write(&net->mdns->self, items);
    for (int i = MDNS_TXT_ITEMS - 1; i >= 0; i--) /* each goes before the last */
        list = avahi_string_list_add(list, items[i]);
    if (record)
        record->data.txt.string_list = list;
    else
        avahi_string_list_free(list);
    return add(net, group, record, AVAHI_PUBLISH_UNIQUE | AVAHI_PUBLISH_ALLOW_MULTIPLE);
}

static int add_address(struct net *net, AvahiSEntryGroup *group, const struct names *names,
                       const struct sock_addr *addr)
{
    char text[SOCK_TEXT_MAX];
    AvahiAddress a;

    mdns_addr_text(addr, text, sizeof text);
    text[strcspn(text, "%")] = '\0';
    if (!avahi_address_parse(text, AVAHI_PROTO_UNSPEC, &a))
        return AVAHI_ERR_INVALID_ADDRESS;
    AvahiRecord *record =
        record_new(names->host, a.proto == AVAHI_PROTO_INET ? AVAHI_DNS_TYPE_A : AVAHI_DNS_TYPE_AAAA);
    if (record && a.proto == AVAHI_PROTO_INET)
        record->data.a.address = a.data.ipv4;
    else if (record)
        record->data.aaaa.address = a.data.ipv6;
    return add(net, group, record, AVAHI_PUBLISH_UNIQUE | AVAHI_PUBLISH_ALLOW_MULTIPLE);
}

/* ---- groups ---- */

static AvahiSEntryGroup *group_new(struct net *net)
{
    AvahiSEntryGroup *group = avahi_s_entry_group_new(net->mdns->server, group_changed, net);

    if (!group)
        out_warn(&net->mdns->out, "publish", "cannot publish on %s: %s", net->name,
                 avahi_strerror(avahi_server_errno(net->mdns->server)));
    return group;
}

/* Published, or gone. */
static AvahiSEntryGroup *group_commit(struct net *net, AvahiSEntryGroup *group, int failed)
{
    if (failed >= 0)
        failed = avahi_s_entry_group_commit(group);
    if (failed >= 0)
        return group;
    out_warn(&net->mdns->out, "publish", "cannot publish on %s: %s", net->name, avahi_strerror(failed));
    avahi_s_entry_group_free(group);
    return NULL;
}

static void group_free(AvahiSEntryGroup **group)
{
    if (*group)
        avahi_s_entry_group_free(*group);
    *group = NULL;
}

static void publish_text(struct net *net, const struct names *names)
{
    AvahiSEntryGroup *before = net->text, *group = group_new(net);

    if (!group)
        return;
    net->text = group_commit(net, group, add_text(net, group, names));
    group_free(&before);
}

static bool listed(const struct net *net, const struct sock_addr *addr)
{
    for (int i = 0; i < net->count; i++)
        if (sock_addr_equal(&net->addrs[i], addr))
            return true;
    return false;
}

static void publish_address(struct net *net, const struct names *names, const struct sock_addr *addr)
{
    struct net_address *place = NULL;

    for (int i = 0; i < MDNS_ADDRESSES; i++) {
        struct net_address *a = &net->addresses[i];
        if (!a->group)
            place = a;
        else if (sock_addr_equal(&a->addr, addr))
            return;
    }
    AvahiSEntryGroup *group = place ? group_new(net) : NULL;
    if (!group)
        return;
    place->addr = *addr;
    place->group = group_commit(net, group, add_address(net, group, names, addr));
}

static void publish_addresses(struct net *net, const struct names *names)
{
    for (int i = 0; i < MDNS_ADDRESSES; i++)
        if (net->addresses[i].group && !listed(net, &net->addresses[i].addr))
            group_free(&net->addresses[i].group);
    for (int i = 0; i < net->count; i++)
        publish_address(net, names, &net->addrs[i]);
}

/* Another name or port: nothing of what is out is true any more. */
static bool same_service(const struct net *net)
{
    const struct sighting *now = &net->mdns->self, *then = &net->told;

    return now->port == then->port && now->id.instance == then->id.instance &&
           net->told_collisions == net->mdns->collisions && net->service;
}

void publish_net(struct net *net)
{
    struct mdns *m = net->mdns;
    char label[NAME_LEN_MAX];
    struct names names;

    if (!same_service(net))
        unpublish_net(net);
    if (!publish_name(m, label, sizeof label) ||
        avahi_service_name_join(names.service, sizeof names.service, label, MDNS_SERVICE, DOMAIN) < 0)
        return;
    snprintf(names.host, sizeof names.host, "%s.%s", label, DOMAIN);
    publish_addresses(net, &names);
    if (!net->text || memcmp(&net->told, &m->self, sizeof m->self) != 0)
        publish_text(net, &names);
    if (!net->service) {
        AvahiSEntryGroup *group = group_new(net);
        if (group)
            net->service = group_commit(net, group, add_service(net, group, &names));
    }
    net->told = m->self;
    net->told_collisions = m->collisions;
}

void publish_all(struct mdns *m)
{
    for (int i = 0; i < NETS_MAX; i++)
        if (m->nets[i].index > 0)
            publish_net(&m->nets[i]);
}

void unpublish_net(struct net *net)
{
    group_free(&net->service);
    group_free(&net->text);
    for (int i = 0; i < MDNS_ADDRESSES; i++)
        group_free(&net->addresses[i].group);
    net->told.port = 0;
}
