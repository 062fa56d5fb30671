/* SPDX-License-Identifier: Apache-2.0 */
/* The interfaces that the library told us to use: on each we publish our records and look for others'. */
#pragma once

#include <avahi-core/core.h>
#include <avahi-core/lookup.h>
#include <avahi-core/publish.h>

#include "helper/mdns_out.h"

#define NETS_MAX     64
#define SERVICES_MAX 2048

struct service;

/* An address that is published, in a group of its own: others stay as they are when it goes. */
struct net_address {
    struct sock_addr addr;
    AvahiSEntryGroup *group; /* NULL: this place is free */
};

struct net {
    struct mdns *mdns;
    char name[MDNS_INTERFACE_MAX]; /* "": this place is free */
    AvahiIfIndex index;            /* 0: there is no such interface now */
    struct sock_addr addrs[MDNS_ADDRESSES];
    int count;
    struct sighting told; /* what is published; port 0: nothing */
    unsigned told_collisions;
    AvahiSEntryGroup *service, *text;
    struct net_address addresses[MDNS_ADDRESSES];
    AvahiSServiceBrowser *browser;
};

struct mdns {
    const AvahiPoll *poll;
    AvahiServer *server;
    struct mdns_out out;
    struct sighting self; /* port 0: nothing is published */
    unsigned collisions;  /* another host claims our name: we take the next */
    AvahiTimeout *republish;
    struct net nets[NETS_MAX];
    struct service *services; /* all of them, newest first */
    int service_count;
    uint64_t serial; /* of keys */
};

/* As the library said. */
void net_set(struct mdns *mdns, const char *name, const struct sock_addr *addrs, int count);
void net_check(struct mdns *mdns); /* interfaces may have come back as others */
void net_close_all(struct mdns *mdns);

/* ---- publishing: mdns_publish.c ---- */

void publish_net(struct net *net);   /* anew, as self and the addresses are now */
void publish_all(struct mdns *mdns); /* on all */
void unpublish_net(struct net *net); /* says goodbye */
bool publish_name(const struct mdns *mdns, char *name, size_t size); /* of our service; false: we have none */

/* ---- looking: mdns_browse.c ---- */

void browse_net(struct net *net);
void unbrowse_net(struct net *net);
