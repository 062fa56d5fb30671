/* SPDX-License-Identifier: Apache-2.0 */
/* The interfaces in use, by name as the library says them and by number as avahi wants them. */
#include "helper/mdns_net.h"

#include <net/if.h>
#include <stdio.h>
#include <string.h>

static struct net *find(struct mdns *m, const char *name)
{
    for (int i = 0; i < NETS_MAX; i++)
        if (strcmp(m->nets[i].name, name) == 0)
            return &m->nets[i];
    return NULL;
}

static void leave(struct net *net)
{
    unpublish_net(net);
    unbrowse_net(net);
    net->index = 0;
}

static void enter(struct net *net)
{
    net->index = (AvahiIfIndex)if_nametoindex(net->name);
    if (net->index <= 0)
        return;
    publish_net(net);
    browse_net(net);
}

void net_set(struct mdns *m, const char *name, const struct sock_addr *addrs, int count)
{
    struct net *net = find(m, name);

    if (count == 0) {
        if (net) {
            leave(net);
            net->name[0] = '\0';
        }
        return;
    }
    if (!net)
        net = find(m, "");
    if (!net) {
        out_warn(&m->out, name, "more than %d interfaces: %s is left out", NETS_MAX, name);
        return;
    }
    memcpy(net->addrs, addrs, (size_t)count * sizeof addrs[0]);
    net->count = count;
    if (net->name[0] == '\0') {
        net->mdns = m;
        snprintf(net->name, sizeof net->name, "%s", name);
        enter(net);
    } else if (net->index > 0) {
        publish_net(net);
    }
}

void net_check(struct mdns *m)
{
    for (int i = 0; i < NETS_MAX; i++) {
        struct net *net = &m->nets[i];
        if (net->name[0] != '\0' && net->index != (AvahiIfIndex)if_nametoindex(net->name)) {
            leave(net);
            enter(net);
        }
    }
}

void net_close_all(struct mdns *m)
{
    for (int i = 0; i < NETS_MAX; i++)
        if (m->nets[i].name[0] != '\0')
            leave(&m->nets[i]);
}
