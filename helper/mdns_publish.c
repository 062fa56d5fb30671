/* SPDX-License-Identifier: Apache-2.0 */
/* Our records. All names have the instance in them, 64 random bits, so that nobody else can have them and
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
#define COLLISION_MS  500
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

/* Somebody else says that our name is his: an accident is out of the question. Another name, after a pause
 * that grows. */
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
    out_warn(&m->out, "collision", "somebody on %s claims the name of this node; taking another", net->name);
    m->collisions++;
    unsigned doublings = m->collisions < COLLISION_MAX ? m->collisions : COLLISION_MAX;
    avahi_elapse_time(&when, COLLISION_MS << doublings, 0);
    if (m->republish == NULL)
        m->republish = m->poll->timeout_new(m->poll, &when, publish_again, m);
    else
        m->poll->timeout_update(m->republish, &when);
}

/* ---- records ---- */

/* The record goes to avahi, whatever comes of it. */
static int add(struct net *net, AvahiRecord *record, AvahiPublishFlags flags)
{
    if (record == NULL)
        return AVAHI_ERR_NO_MEMORY;
    int failed = avahi_server_add(net->mdns->server, net->group, net->index, AVAHI_PROTO_UNSPEC,
                                  flags | AVAHI_PUBLISH_NO_PROBE, record);
    avahi_record_unref(record);
    return failed;
}

static AvahiRecord *record_new(const char *name, uint16_t type)
{
    return avahi_record_new_full(name, AVAHI_DNS_CLASS_IN, type, TTL_S);
}

static int add_pointer(struct net *net, const char *name, const char *target)
{
    AvahiRecord *record = record_new(name, AVAHI_DNS_TYPE_PTR);

    if (record != NULL)
        record->data.ptr.name = avahi_normalize_name_strdup(target);
    return add(net, record, 0);
}

static int add_server(struct net *net, const char *name, const char *host)
{
    AvahiRecord *record = record_new(name, AVAHI_DNS_TYPE_SRV);

    if (record != NULL) {
        record->data.srv.port = net->mdns->self.port;
        record->data.srv.name = avahi_normalize_name_strdup(host);
    }
    return add(net, record, AVAHI_PUBLISH_UNIQUE);
}

static int add_text(struct net *net, const char *name)
{
    char items[MDNS_TXT_ITEMS][MDNS_TXT_ITEM_MAX];
    AvahiRecord *record = record_new(name, AVAHI_DNS_TYPE_TXT);
    AvahiStringList *list = NULL;

    mdns_txt_write(&net->mdns->self, items);
    for (int i = MDNS_TXT_ITEMS - 1; i >= 0; i--) /* each goes before the last */
        list = avahi_string_list_add(list, items[i]);
    if (record != NULL)
        record->data.txt.string_list = list;
    else
        avahi_string_list_free(list);
    return add(net, record, AVAHI_PUBLISH_UNIQUE);
}

static int add_address(struct net *net, const char *host, const struct sock_addr *addr)
{
    char text[SOCK_TEXT_MAX];
    AvahiAddress a;

    mdns_addr_text(addr, text, sizeof(text));
    text[strcspn(text, "%")] = '\0';
    if (avahi_address_parse(text, AVAHI_PROTO_UNSPEC, &a) == NULL)
        return AVAHI_ERR_INVALID_ADDRESS;
    AvahiRecord *record =
        record_new(host, a.proto == AVAHI_PROTO_INET ? AVAHI_DNS_TYPE_A : AVAHI_DNS_TYPE_AAAA);
    if (record != NULL && a.proto == AVAHI_PROTO_INET)
        record->data.a.address = a.data.ipv4;
    else if (record != NULL)
        record->data.aaaa.address = a.data.ipv6;
    return add(net, record, AVAHI_PUBLISH_UNIQUE);
}

static int add_all(struct net *net)
{
    char label[NAME_LEN_MAX], name[AVAHI_DOMAIN_NAME_MAX], host[NAME_LEN_MAX + sizeof(DOMAIN) + 1];

    if (!publish_name(net->mdns, label, sizeof(label)))
        return AVAHI_OK;
    snprintf(host, sizeof(host), "%s.%s", label, DOMAIN);
    int failed = avahi_service_name_join(name, sizeof(name), label, MDNS_SERVICE, DOMAIN);
    for (int i = 0; i < net->count && failed >= 0; i++)
        failed = add_address(net, host, &net->addrs[i]);
    if (failed >= 0)
        failed = add_server(net, name, host);
    if (failed >= 0)
        failed = add_text(net, name);
    if (failed >= 0)
        failed = add_pointer(net, MDNS_SERVICE "." DOMAIN, name);
    if (failed >= 0)
        failed = add_pointer(net, "_services._dns-sd._udp." DOMAIN, MDNS_SERVICE "." DOMAIN);
    return failed < 0 ? failed : avahi_s_entry_group_commit(net->group);
}

void publish_net(struct net *net)
{
    struct mdns *m = net->mdns;

    if (net->group == NULL)
        net->group = avahi_s_entry_group_new(m->server, group_changed, net);
    if (net->group == NULL) {
        out_warn(&m->out, "publish", "cannot publish: %s", avahi_strerror(avahi_server_errno(m->server)));
        return;
    }
    avahi_s_entry_group_reset(net->group);
    int failed = add_all(net);
    if (failed < 0)
        out_warn(&m->out, "publish", "cannot publish on %s: %s", net->name, avahi_strerror(failed));
}

void publish_all(struct mdns *m)
{
    for (int i = 0; i < NETS_MAX; i++)
        if (m->nets[i].index > 0)
            publish_net(&m->nets[i]);
}

void unpublish_net(struct net *net)
{
    if (net->group != NULL)
        avahi_s_entry_group_free(net->group);
    net->group = NULL;
}
