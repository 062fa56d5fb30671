/* SPDX-License-Identifier: Apache-2.0 */
/* Encodes and decodes PEERS; decoding reads twice, first to check. */
#include "cluster/gossip.h"

#include "wire/peer_codec.h"

size_t gossip_encode(const struct peer_info *const *peer_set, int count, void *target, size_t size)
{
    struct writer w = writer_of(target, size);

    count = count < GOSSIP_MAX ? count : GOSSIP_MAX;
    put_u16(&w, (uint16_t)count);
    for (int i = 0; i < count; i++) {
        const struct peer_info *f = peer_set[i];
        identity_put(&w, &f->id);
        peer_addrs_put(&w, f);
    }
    return w.bad ? 0 : (size_t)(w.at - (uint8_t *)target);
}

static void read_node(struct reader *r, gossip_fn *fn, void *arg)
{
    struct peer_info peer;

    (void)identity_get(r, &peer.id);
    (void)peer_addrs_get(r, &peer);
    for (int i = 0; fn && i < peer.addr_count; i++) {
        struct sock_addr addr = sock_addr_of(&peer.addrs[i]);
        fn(arg, &peer.id, &addr);
    }
}

static bool read_all(const void *source, size_t len, gossip_fn *fn, void *arg)
{
    struct reader r = reader_of(source, len);
    int count = get_u16(&r);

    if (count > GOSSIP_MAX)
        return false;
    for (int i = 0; i < count && !r.bad; i++)
        read_node(&r, fn, arg);
    return !r.bad && reader_left(&r) == 0;
}

int gossip_decode(const void *source, size_t len, gossip_fn *fn, void *arg)
{
    if (!read_all(source, len, NULL, NULL))
        return HEARTH_PROTOCOL;
    (void)read_all(source, len, fn, arg);
    return HEARTH_OK;
}
