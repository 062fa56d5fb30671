/* SPDX-License-Identifier: Apache-2.0 */
/* Censuses: who is in, how many are enough to decide, and the bytes of both. */
#include "membership/view.h"

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

int view_find(const struct view *view, const struct identity *id)
{
    for (int i = 0; i < view->size; i++)
        if (identity_equal(&view->members[i].id, id))
            return i;
    return -1;
}

bool view_votes(const struct view *view, int index)
{
    return (view->members[index].flags & PEER_GUEST) == 0;
}

bool view_quorum(const struct view *view, const bool *present)
{
    int count = 0, voters = 0;
    for (int i = 0; i < view->size; i++) {
        voters += view_votes(view, i);
        count += view_votes(view, i) && present[i];
    }
    bool leader = view_votes(view, view->leader) && present[view->leader];
    return 2 * count > voters || (2 * count == voters && leader);
}

/* ---- bytes ---- */

static void text_put(struct writer *w, const char *text, size_t size)
{
    const char *end = memchr(text, '\0', size);
    size_t len = end ? (size_t)(end - text) : size - 1;
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

void peer_info_put(struct writer *w, const struct peer_info *info)
{
    uint8_t bytes[PEER_INFO_LEN_MAX];
    struct writer inside = writer_of(bytes, sizeof bytes - 2);

    put_bytes(&inside, info->id.node.bytes, NODE_ID_LEN);
    put_u64(&inside, info->id.instance);
    put_u64(&inside, info->machine);
    put_u64(&inside, info->host_id);
    put_u32(&inside, info->flags);
    put_u32(&inside, info->process);
    put_u32(&inside, info->memory_mib);
    put_u16(&inside, info->cores);
    put_u16(&inside, info->cpu);
    text_put(&inside, info->name, sizeof info->name);
    text_put(&inside, info->platform, sizeof info->platform);
    put_u8(&inside, info->addr_count);
    for (int i = 0; i < info->addr_count; i++) {
        put_u8(&inside, info->addr_lens[i]);
        put_bytes(&inside, info->addrs[i], info->addr_lens[i]);
    }
    size_t len = (size_t)(inside.at - bytes);
    put_u16(w, (uint16_t)len);
    put_bytes(w, bytes, len);
    w->bad = w->bad || inside.bad;
}

static bool addrs_get(struct reader *r, struct peer_info *info)
{
    info->addr_count = get_u8(r);
    if (info->addr_count > PEER_ADDRS_MAX)
        return false;
    for (int i = 0; i < info->addr_count; i++) {
        uint8_t len = get_u8(r);
        if (len != ADDR_LEN_V4 && len != ADDR_LEN_V6)
            return false;
        info->addr_lens[i] = len;
        get_bytes(r, info->addrs[i], len);
        if (info->addrs[i][0] != (len == ADDR_LEN_V4 ? 4 : 6))
            return false;
    }
    return !r->bad;
}

static bool peer_info_inside(struct reader *r, struct peer_info *info)
{
    memset(info, 0, sizeof *info);
    get_bytes(r, info->id.node.bytes, NODE_ID_LEN);
    info->id.instance = get_u64(r);
    info->machine = get_u64(r);
    info->host_id = get_u64(r);
    info->flags = get_u32(r);
    info->process = get_u32(r);
    info->memory_mib = get_u32(r);
    info->cores = get_u16(r);
    info->cpu = get_u16(r);
    return info->id.instance != 0 && text_get(r, info->name, sizeof info->name) &&
           text_get(r, info->platform, sizeof info->platform) && addrs_get(r, info);
}

bool peer_info_get(struct reader *r, struct peer_info *info)
{
    size_t len = get_u16(r);
    if (len > reader_left(r) || len > PEER_INFO_LEN_MAX - 2) {
        r->bad = true;
        return false;
    }
    struct reader inside = reader_of(r->at, len);
    r->at += len;
    if (!peer_info_inside(&inside, info))
        r->bad = true;
    return !r->bad;
}

void view_put(struct writer *w, const struct view *view)
{
    put_u64(w, view->instance);
    put_u64(w, view->epoch);
    put_u64(w, view->term);
    put_u16(w, (uint16_t)view->leader);
    put_u16(w, (uint16_t)view->size);
    put_u32(w, 0);
    for (int i = 0; i < view->size; i++)
        peer_info_put(w, &view->members[i]);
}

static bool view_inside(struct reader *r, struct view *view)
{
    view->instance = get_u64(r);
    view->epoch = get_u64(r);
    view->term = get_u64(r);
    view->leader = get_u16(r);
    view->size = get_u16(r);
    (void)get_u32(r); /* for later versions */
    if (r->bad || view->instance == 0 || view->epoch == 0 || view->epoch > NUMBER_MAX || view->term == 0 ||
        view->term > NUMBER_MAX || view->size == 0 || view->size > VIEW_MEMBERS_MAX ||
        view->leader >= view->size)
        return false;
    int size = view->size;
    for (view->size = 0; view->size < size; view->size++) {
        struct peer_info *next = &view->members[view->size];
        if (!peer_info_get(r, next) || view_find(view, &next->id) >= 0)
            return false;
    }
    return size == 1 || view_votes(view, view->leader);
}

bool view_get(struct reader *r, struct view *view)
{
    if (!view_inside(r, view))
        r->bad = true;
    return !r->bad;
}
