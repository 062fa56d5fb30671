/* SPDX-License-Identifier: Apache-2.0 */
/* Encodes and decodes peers: layout as in docs/wire.md. */
#include "wire/peer_codec.h"

/* Texts from strangers end on a person's terminal. */
static bool printable(uint8_t c)
{
    return c >= 0x20 && c < 0x7f;
}

void characters_put(struct writer *w, const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++)
        put_u8(w, printable((uint8_t)text[i]) ? (uint8_t)text[i] : '?');
}

bool characters_get(struct reader *r, char *text, size_t len, size_t size)
{
    if (len >= size) {
        r->bad = true;
        len = 0;
    }
    get_bytes(r, text, len);
    text[len] = '\0';
    for (size_t i = 0; i < len; i++)
        r->bad |= !printable((uint8_t)text[i]);
    return !r->bad;
}

void text_put(struct writer *w, const char *text, size_t size)
{
    size_t len = strnlen(text, size - 1);

    put_u8(w, (uint8_t)len);
    characters_put(w, text, len);
}

bool text_get(struct reader *r, char *text, size_t size)
{
    return characters_get(r, text, get_u8(r), size);
}

void long_text_put(struct writer *w, const char *text, size_t size)
{
    size_t len = strnlen(text, size - 1);

    put_u16(w, (uint16_t)len);
    characters_put(w, text, len);
}

bool long_text_get(struct reader *r, char *text, size_t size)
{
    return characters_get(r, text, get_u16(r), size);
}

void identity_put(struct writer *w, const struct identity *id)
{
    put_bytes(w, id->node.bytes, NODE_ID_LEN);
    put_u64(w, id->instance);
}

bool identity_get(struct reader *r, struct identity *id)
{
    get_bytes(r, id->node.bytes, NODE_ID_LEN);
    id->instance = get_u64(r);
    r->bad |= id->instance == 0;
    return !r->bad;
}

void peer_addrs_put(struct writer *w, const struct peer_info *peer)
{
    put_u8(w, (uint8_t)peer->addr_count);
    for (int i = 0; i < peer->addr_count; i++) {
        put_u8(w, (uint8_t)net_addr_len(&peer->addrs[i]));
        net_addr_put(w, &peer->addrs[i]);
    }
}

bool peer_addrs_get(struct reader *r, struct peer_info *peer)
{
    int count = get_u8(r);

    r->bad |= count > PEER_ADDRS_MAX;
    peer->addr_count = r->bad ? 0 : count;
    for (int i = 0; i < peer->addr_count && !r->bad; i++) {
        size_t len = get_u8(r);
        r->bad |= net_addr_get(r, &peer->addrs[i]) && len != net_addr_len(&peer->addrs[i]);
    }
    return !r->bad;
}

void peer_put(struct writer *w, const struct peer_info *peer)
{
    uint8_t bytes[PEER_LEN_MAX];
    struct writer inside = writer_of(bytes, sizeof bytes - 2);

    identity_put(&inside, &peer->id);
    put_u64(&inside, peer->machine);
    put_u64(&inside, peer->host_id);
    put_u32(&inside, peer->features);
    put_u32(&inside, peer->process);
    put_u32(&inside, peer->memory_mib);
    put_u16(&inside, peer->cores);
    put_u16(&inside, peer->cpu);
    text_put(&inside, peer->name, sizeof peer->name);
    text_put(&inside, peer->platform, sizeof peer->platform);
    peer_addrs_put(&inside, peer);
    size_t len = (size_t)(inside.at - bytes);
    put_u16(w, (uint16_t)len);
    put_bytes(w, bytes, len);
    w->bad = w->bad || inside.bad;
}

static bool inside_get(struct reader *r, struct peer_info *peer)
{
    memset(peer, 0, sizeof *peer);
    (void)identity_get(r, &peer->id);
    peer->machine = get_u64(r);
    peer->host_id = get_u64(r);
    peer->features = get_u32(r);
    peer->process = get_u32(r);
    peer->memory_mib = get_u32(r);
    peer->cores = get_u16(r);
    peer->cpu = get_u16(r);
    return text_get(r, peer->name, sizeof peer->name) && text_get(r, peer->platform, sizeof peer->platform) &&
           peer_addrs_get(r, peer);
}

bool peer_get(struct reader *r, struct peer_info *peer)
{
    size_t len = get_u16(r);

    if (r->bad || len > reader_left(r) || len > PEER_LEN_MAX - 2) {
        r->bad = true;
        return false;
    }
    struct reader inside = reader_of(r->at, len);
    r->at += len;
    if (!inside_get(&inside, peer))
        r->bad = true;
    return !r->bad;
}
