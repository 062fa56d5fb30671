/* SPDX-License-Identifier: Apache-2.0 */
/* Others' records. For each service we keep SRV, TXT and all addresses of its host, and tell the library of
 * an address when all three are known. avahi's own resolver would stop at the first address. */
#include <avahi-common/domain.h>
#include <avahi-common/error.h>
#include <avahi-common/malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/hash.h"
#include "core/prng.h"
#include "helper/mdns_net.h"

#define DOMAIN "local"

struct service_addr {
    AvahiAddress addr;
    uint64_t key; /* 0: this place is free */
    bool told;
};

enum { BROWSE_SRV, BROWSE_TXT, BROWSE_A, BROWSE_AAAA, BROWSERS };

struct service {
    struct service *next;
    struct net *net;
    AvahiProtocol protocol;
    char name[AVAHI_LABEL_MAX];
    AvahiSRecordBrowser *browsers[BROWSERS];
    char host[AVAHI_DOMAIN_NAME_MAX]; /* "": not known */
    uint16_t port;
    AvahiRecord *text; /* the TXT record that counts, or NULL */
    bool text_good;
    struct sighting facts;
    struct service_addr addrs[MDNS_ADDRESSES];
};

/* ---- telling ---- */

static void tell_lost(struct service *s, struct service_addr *a)
{
    char line[64];

    if (a->told)
        out_line(&s->net->mdns->out, line,
                 (size_t)snprintf(line, sizeof line, "lost %llx\n", (unsigned long long)a->key));
    a->told = false;
}

static void tell_found(struct service *s, struct service_addr *a)
{
    char line[MDNS_LINE_MAX + 1], text[AVAHI_ADDRESS_STR_MAX + MDNS_INTERFACE_MAX + 1];
    struct sighting sighting = s->facts;

    avahi_address_snprint(text, AVAHI_ADDRESS_STR_MAX, &a->addr);
    if (a->addr.proto == AVAHI_PROTO_INET6 && a->addr.data.ipv6.address[0] == 0xfe &&
        (a->addr.data.ipv6.address[1] & 0xc0) == 0x80)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%%%s", s->net->name);
    if (!mdns_addr_parse(text, s->port, &sighting.addr)) {
        out_warn(&s->net->mdns->out, s->name, "%s on %s has an address that cannot be dialled: %s", s->name,
                 s->net->name, text);
        return;
    }
    snprintf(sighting.key, sizeof sighting.key, "%llx", (unsigned long long)a->key);
    snprintf(sighting.interface, sizeof sighting.interface, "%s", s->net->name);
    size_t len = mdns_line_found(&sighting, line, sizeof line);
    if (len > 0)
        out_line(&s->net->mdns->out, line, len);
    a->told = len > 0;
}

/* After a change: of `facts` (then all are told anew), or of addresses. */
static void tell(struct service *s, bool changed)
{
    bool whole = s->host[0] != '\0' && s->port != 0 && s->text_good;

    for (int i = 0; i < MDNS_ADDRESSES; i++) {
        struct service_addr *a = &s->addrs[i];
        if (a->key == 0)
            continue;
        if (!whole)
            tell_lost(s, a);
        else if (changed || !a->told)
            tell_found(s, a);
    }
}

/* ---- records ---- */

static void unbrowse(struct service *s, int kind)
{
    if (s->browsers[kind])
        avahi_s_record_browser_free(s->browsers[kind]);
    s->browsers[kind] = NULL;
}

static void record_seen(AvahiSRecordBrowser *browser, AvahiIfIndex index, AvahiProtocol protocol,
                        AvahiBrowserEvent event, AvahiRecord *record, AvahiLookupResultFlags flags,
                        void *arg);

static void browse(struct service *s, int kind, const char *name, uint16_t type)
{
    AvahiKey *key = avahi_key_new(name, AVAHI_DNS_CLASS_IN, type);

    unbrowse(s, kind);
    if (!key)
        return;
    s->browsers[kind] = avahi_s_record_browser_new(s->net->mdns->server, s->net->index, s->protocol, key,
                                                   AVAHI_LOOKUP_USE_MULTICAST, record_seen, s);
    avahi_key_unref(key);
    if (!s->browsers[kind])
        out_warn(&s->net->mdns->out, s->name, "cannot ask for the records of %s: %s", s->name,
                 avahi_strerror(avahi_server_errno(s->net->mdns->server)));
}

static void forget_addresses(struct service *s)
{
    unbrowse(s, BROWSE_A);
    unbrowse(s, BROWSE_AAAA);
    for (int i = 0; i < MDNS_ADDRESSES; i++) {
        tell_lost(s, &s->addrs[i]);
        s->addrs[i].key = 0;
    }
    s->host[0] = '\0';
}

static void server_seen(struct service *s, const AvahiRecord *record, bool gone)
{
    const char *host = record->data.srv.name;
    bool same = strcmp(s->host, host) == 0;

    if (gone) {
        if (same && s->port == record->data.srv.port)
            forget_addresses(s);
        return;
    }
    bool changed = s->port != record->data.srv.port;
    s->port = record->data.srv.port;
    if (!same) {
        forget_addresses(s);
        snprintf(s->host, sizeof s->host, "%s", host);
        browse(s, BROWSE_A, host, AVAHI_DNS_TYPE_A);
        browse(s, BROWSE_AAAA, host, AVAHI_DNS_TYPE_AAAA);
    } else if (changed) {
        tell(s, true);
    }
}

static bool text_parse(struct service *s, const AvahiRecord *record)
{
    const char *what = "it lacks one of v, ns, id, in";
    unsigned seen = 0;
    bool good = true;

    memset(&s->facts, 0, sizeof s->facts);
    for (AvahiStringList *item = record->data.txt.string_list; item && good; item = item->next)
        good = mdns_txt_read(&s->facts, &seen, item->text, item->size, &what) == HEARTH_OK;
    good = good && mdns_txt_whole(seen);
    if (!good)
        out_warn(&s->net->mdns->out, s->name, "the TXT record of %s on %s is wrong: %s", s->name,
                 s->net->name, what);
    return good;
}

static void text_seen(struct service *s, AvahiRecord *record, bool gone)
{
    if (gone) {
        if (!s->text || !avahi_record_equal_no_ttl(s->text, record))
            return;
        avahi_record_unref(s->text);
        s->text = NULL;
        s->text_good = false;
    } else {
        if (s->text)
            avahi_record_unref(s->text);
        s->text = avahi_record_ref(record);
        s->text_good = text_parse(s, record);
    }
    tell(s, true);
}

static void address_seen(struct service *s, const AvahiRecord *record, bool gone)
{
    struct service_addr *free_place = NULL;
    AvahiAddress addr;

    memset(&addr, 0, sizeof addr);
    if (record->key->type == AVAHI_DNS_TYPE_A) {
        addr.proto = AVAHI_PROTO_INET;
        addr.data.ipv4 = record->data.a.address;
    } else {
        addr.proto = AVAHI_PROTO_INET6;
        addr.data.ipv6 = record->data.aaaa.address;
    }
    for (int i = 0; i < MDNS_ADDRESSES; i++) {
        struct service_addr *a = &s->addrs[i];
        if (a->key == 0) {
            free_place = free_place ? free_place : a;
        } else if (avahi_address_cmp(&a->addr, &addr) == 0) {
            if (gone) {
                tell_lost(s, a);
                a->key = 0;
            }
            return;
        }
    }
    if (gone || !free_place)
        return;
    *free_place = (struct service_addr){.addr = addr, .key = ++s->net->mdns->serial};
    tell(s, false);
}

static void record_seen(AvahiSRecordBrowser *browser, AvahiIfIndex index, AvahiProtocol protocol,
                        AvahiBrowserEvent event, AvahiRecord *record, AvahiLookupResultFlags flags, void *arg)
{
    struct service *s = arg;
    bool gone = event == AVAHI_BROWSER_REMOVE;

    (void)browser, (void)index, (void)protocol, (void)flags;
    if (!record || (event != AVAHI_BROWSER_NEW && !gone))
        return;
    switch (record->key->type) {
    case AVAHI_DNS_TYPE_SRV:
        server_seen(s, record, gone);
        return;
    case AVAHI_DNS_TYPE_TXT:
        text_seen(s, record, gone);
        return;
    case AVAHI_DNS_TYPE_A:
    case AVAHI_DNS_TYPE_AAAA:
        address_seen(s, record, gone);
        return;
    default: /* a CNAME, which we do not follow */
        return;
    }
}

/* ---- services ---- */

static void service_free(struct mdns *m, struct service **link)
{
    struct service *s = *link;

    forget_addresses(s);
    unbrowse(s, BROWSE_SRV);
    unbrowse(s, BROWSE_TXT);
    if (s->text)
        avahi_record_unref(s->text);
    *link = s->next;
    m->service_count--;
    free(s);
}

static struct service **service_find(struct mdns *m, const struct net *net, AvahiProtocol protocol,
                                     const char *name)
{
    struct service **link = &m->services;

    while (*link &&
           ((*link)->net != net || (*link)->protocol != protocol || strcmp((*link)->name, name) != 0))
        link = &(*link)->next;
    return link;
}

/* Room for one more: the oldest that is not known whole goes; if all are, any one. */
static void make_room(struct mdns *m)
{
    struct service **oldest = NULL, **link = &m->services;
    struct prng prng;

    out_warn(&m->out, "services", "more than %d services: some are left out", SERVICES_MAX);
    prng_init(&prng, ++m->serial);
    uint64_t any = prng_below(&prng, (uint64_t)m->service_count);
    struct service **chosen = link;
    for (uint64_t i = 0; *link; link = &(*link)->next, i++) {
        if (i == any)
            chosen = link;
        if (!(*link)->text_good || (*link)->host[0] == '\0')
            oldest = link;
    }
    service_free(m, oldest ? oldest : chosen);
}

static void service_new(struct net *net, AvahiProtocol protocol, const char *name)
{
    struct mdns *m = net->mdns;
    char full[AVAHI_DOMAIN_NAME_MAX], own[AVAHI_LABEL_MAX];

    if (publish_name(m, own, sizeof own) && strcmp(own, name) == 0)
        return;
    if (strlen(name) >= AVAHI_LABEL_MAX ||
        avahi_service_name_join(full, sizeof full, name, MDNS_SERVICE, DOMAIN) < 0)
        return;
    if (m->service_count == SERVICES_MAX)
        make_room(m);
    struct service *s = calloc(1, sizeof *s);
    if (!s)
        return;
    s->net = net;
    s->protocol = protocol;
    snprintf(s->name, sizeof s->name, "%s", name);
    s->next = m->services;
    m->services = s;
    m->service_count++;
    browse(s, BROWSE_SRV, full, AVAHI_DNS_TYPE_SRV);
    browse(s, BROWSE_TXT, full, AVAHI_DNS_TYPE_TXT);
}

static void service_seen(AvahiSServiceBrowser *browser, AvahiIfIndex index, AvahiProtocol protocol,
                         AvahiBrowserEvent event, const char *name, const char *type, const char *domain,
                         AvahiLookupResultFlags flags, void *arg)
{
    struct net *net = arg;

    (void)browser, (void)index, (void)type, (void)domain, (void)flags;
    if (event == AVAHI_BROWSER_FAILURE)
        out_warn(&net->mdns->out, "browse", "cannot look for nodes on %s: %s", net->name,
                 avahi_strerror(avahi_server_errno(net->mdns->server)));
    if (!name)
        return;
    struct service **link = service_find(net->mdns, net, protocol, name);
    if (event == AVAHI_BROWSER_NEW && !*link)
        service_new(net, protocol, name);
    else if (event == AVAHI_BROWSER_REMOVE && *link)
        service_free(net->mdns, link);
}

void browse_net(struct net *net)
{
    struct mdns *m = net->mdns;

    net->browser = avahi_s_service_browser_new(m->server, net->index, AVAHI_PROTO_UNSPEC, MDNS_SERVICE,
                                               DOMAIN, AVAHI_LOOKUP_USE_MULTICAST, service_seen, net);
    if (!net->browser)
        out_warn(&m->out, "browse", "cannot look for nodes on %s: %s", net->name,
                 avahi_strerror(avahi_server_errno(m->server)));
}

void unbrowse_net(struct net *net)
{
    struct service **link = &net->mdns->services;

    if (net->browser)
        avahi_s_service_browser_free(net->browser);
    net->browser = NULL;
    while (*link) {
        if ((*link)->net == net)
            service_free(net->mdns, link);
        else
            link = &(*link)->next;
    }
}
