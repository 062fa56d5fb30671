/* SPDX-License-Identifier: Apache-2.0 */
/* Censuses: who is in, how many are enough to decide, and the bytes of both. */
#include "membership/census.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define ADDR_LEN_V4 7
#define ADDR_LEN_V6 19
#define NUMBER_MAX  (UINT64_MAX / 2) /* of epochs and terms: there is always a next one */

bool identity_equal(const struct identity *a, const struct identity *b)
{
    return a->instance == b->instance && memcmp(a->node.bytes, b->node.bytes, NODE_ID_LEN) == 0;
}

int identity_compare(const struct identity *a, const struct identity *b)
{
    int order = memcmp(a->node.bytes, b->node.bytes, NODE_ID_LEN);
    if (order != 0)
        return order;
    return a->instance < b->instance ? -1 : a->instance > b->instance;
}

void identity_text(const struct identity *id, char *text, size_t size)
{
    char node[NODE_ID_SHORT];
    node_id_short(&id->node, node);
    snprintf(text, size, "%s/%04" PRIx64, node, id->instance & 0xffff);
}

int census_find(const struct census *census, const struct identity *id)
{
    for (int i = 0; i < census->size; i++)
        if (identity_equal(&census->members[i].id, id))
            return i;
    return -1;
}

bool census_votes(const struct census *census, int index)
{
    return (census->members[index].flags & FELLOW_GUEST) == 0;
}

bool census_quorum(const struct census *census, const bool *present)
{
    int count = 0, voters = 0;
    for (int i = 0; i < census->size; i++) {
        voters += census_votes(census, i);
        count += census_votes(census, i) && present[i];
    }
    bool leader = census_votes(census, census->leader) && present[census->leader];
    return 2 * count > voters || (2 * count == voters && leader);
}

/* ---- bytes ---- */

static void text_put(struct writer *w, const char *text, size_t size)
{
    const char *end = memchr(text, '\0', size);
    size_t len = end != NULL ? (size_t)(end - text) : size - 1;
    put_u8(w, (uint8_t)len);
    put_bytes(w, text, len);
}

/* `size` with the final 0, which is not on the wire. */
static bool text_get(struct reader *r, char *text, size_t size)
{
    size_t len = get_u8(r);
    if (len >= size)
        return false;
    get_bytes(r, text, len);
    text[len] = '\0';
    for (size_t i = 0; i < len; i++)
        if (text[i] < 0x20 || text[i] > 0x7e)
            return false;
    return !r->bad;
}

void fellow_put(struct writer *w, const struct fellow *fellow)
{
    uint8_t bytes[FELLOW_LEN_MAX];
    struct writer inside = writer_of(bytes, sizeof(bytes) - 2);

    put_bytes(&inside, fellow->id.node.bytes, NODE_ID_LEN);
    put_u64(&inside, fellow->id.instance);
    put_u64(&inside, fellow->machine);
    put_u64(&inside, fellow->host_id);
    put_u32(&inside, fellow->flags);
    put_u32(&inside, fellow->process);
    put_u32(&inside, fellow->memory_mib);
    put_u16(&inside, fellow->cores);
    put_u16(&inside, fellow->cpu);
    text_put(&inside, fellow->name, sizeof(fellow->name));
    text_put(&inside, fellow->platform, sizeof(fellow->platform));
    put_u8(&inside, fellow->addr_count);
    for (int i = 0; i < fellow->addr_count; i++) {
        put_u8(&inside, fellow->addr_lens[i]);
        put_bytes(&inside, fellow->addrs[i], fellow->addr_lens[i]);
    }
    size_t len = (size_t)(inside.at - bytes);
    put_u16(w, (uint16_t)len);
    put_bytes(w, bytes, len);
    w->bad = w->bad || inside.bad;
}

static bool addrs_get(struct reader *r, struct fellow *fellow)
{
    fellow->addr_count = get_u8(r);
    if (fellow->addr_count > FELLOW_ADDRS_MAX)
        return false;
    for (int i = 0; i < fellow->addr_count; i++) {
        uint8_t len = get_u8(r);
        if (len != ADDR_LEN_V4 && len != ADDR_LEN_V6)
            return false;
        fellow->addr_lens[i] = len;
        get_bytes(r, fellow->addrs[i], len);
        if (fellow->addrs[i][0] != (len == ADDR_LEN_V4 ? 4 : 6))
            return false;
    }
    return !r->bad;
}

static bool fellow_inside(struct reader *r, struct fellow *fellow)
{
    memset(fellow, 0, sizeof(*fellow));
    get_bytes(r, fellow->id.node.bytes, NODE_ID_LEN);
    fellow->id.instance = get_u64(r);
    fellow->machine = get_u64(r);
    fellow->host_id = get_u64(r);
    fellow->flags = get_u32(r);
    fellow->process = get_u32(r);
    fellow->memory_mib = get_u32(r);
    fellow->cores = get_u16(r);
    fellow->cpu = get_u16(r);
    return fellow->id.instance != 0 && text_get(r, fellow->name, sizeof(fellow->name)) &&
           text_get(r, fellow->platform, sizeof(fellow->platform)) && addrs_get(r, fellow);
}

bool fellow_get(struct reader *r, struct fellow *fellow)
{
    size_t len = get_u16(r);
    if (len > reader_left(r) || len > FELLOW_LEN_MAX - 2) {
        r->bad = true;
        return false;
    }
    struct reader inside = reader_of(r->at, len);
    r->at += len;
    if (!fellow_inside(&inside, fellow))
        r->bad = true;
    return !r->bad;
}

void census_put(struct writer *w, const struct census *census)
{
    put_u64(w, census->instance);
    put_u64(w, census->epoch);
    put_u64(w, census->term);
    put_u16(w, (uint16_t)census->leader);
    put_u16(w, (uint16_t)census->size);
    put_u32(w, 0);
    for (int i = 0; i < census->size; i++)
        fellow_put(w, &census->members[i]);
}

static bool census_inside(struct reader *r, struct census *census)
{
    census->instance = get_u64(r);
    census->epoch = get_u64(r);
    census->term = get_u64(r);
    census->leader = get_u16(r);
    census->size = get_u16(r);
    (void)get_u32(r); /* for later versions */
    if (r->bad || census->instance == 0 || census->epoch == 0 || census->epoch > NUMBER_MAX ||
        census->term == 0 || census->term > NUMBER_MAX || census->size == 0 ||
        census->size > CENSUS_MEMBERS_MAX || census->leader >= census->size)
        return false;
    int size = census->size;
    for (census->size = 0; census->size < size; census->size++) {
        struct fellow *next = &census->members[census->size];
        if (!fellow_get(r, next) || census_find(census, &next->id) >= 0)
            return false;
    }
    return size == 1 || census_votes(census, census->leader);
}

bool census_get(struct reader *r, struct census *census)
{
    if (!census_inside(r, census))
        r->bad = true;
    return !r->bad;
}
