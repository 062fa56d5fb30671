/* SPDX-License-Identifier: Apache-2.0 */
/* PEERS: only whole messages tell anything, never more than fits, and each address can travel on. */
#include <stdlib.h>
#include <string.h>

#include "cluster/gossip.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

/* What was told, as the message that the same nodes would make. */
struct echo {
    int told, count;
    struct peer_info peer_set[GOSSIP_MAX];
};

static void tell(void *arg, const struct identity *id, const struct sock_addr *addr)
{
    struct echo *echo = arg;
    struct net_addr net;
    char text[SOCK_TEXT_MAX];

    sock_addr_text(addr, text, sizeof text);
    if (id->instance == 0 || !sock_addr_to_net(addr, &net) || text[0] == '\0' ||
        ++echo->told > GOSSIP_MAX * PEER_ADDRS_MAX)
        abort();
    struct peer_info *last = echo->count > 0 ? &echo->peer_set[echo->count - 1] : NULL;
    if (!last || memcmp(&last->id, id, sizeof *id) != 0 || last->addr_count == PEER_ADDRS_MAX) {
        if (echo->count == GOSSIP_MAX)
            abort();
        last = &echo->peer_set[echo->count++];
        *last = (struct peer_info){.id = *id};
    }
    last->addrs[last->addr_count++] = net;
}

static void count_told(void *arg, const struct identity *id, const struct sock_addr *addr)
{
    (void)id;
    (void)addr;
    ++*(int *)arg;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    static struct echo echo;
    static uint8_t again[GOSSIP_LEN_MAX];
    const struct peer_info *peer_set[GOSSIP_MAX];
    int told = 0;

    echo.told = echo.count = 0;
    if (gossip_decode(bytes, len, tell, &echo) != HEARTH_OK) {
        if (echo.told > 0)
            abort();
        return 0;
    }
    for (int i = 0; i < echo.count; i++)
        peer_set[i] = &echo.peer_set[i];
    size_t made = gossip_encode(peer_set, echo.count, again, sizeof again);
    if (made == 0 || made > len || gossip_decode(again, made, count_told, &told) != HEARTH_OK ||
        told != echo.told)
        abort();
    return 0;
}
