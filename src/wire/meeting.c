/* SPDX-License-Identifier: Apache-2.0 */
/* Encodes and decodes the messages of the rendezvous: layouts as in docs/wire.md. */
#include "wire/meeting.h"

#include <assert.h>
#include <string.h>

#include "core/bytes.h"

static const uint32_t heard_by_rendezvous[] = {
    [MEETING_REGISTER - MEETING_REGISTER] = MEETING_SMALL_MAX,
    [MEETING_READY - MEETING_REGISTER] = MEETING_SMALL_MAX,
    [MEETING_REFUSE - MEETING_REGISTER] = MEETING_SMALL_MAX,
};
static const uint32_t heard_by_member[] = {
    [MEETING_WELCOME - MEETING_REGISTER] = MEETING_SMALL_MAX,
    [MEETING_ROSTER - MEETING_REGISTER] = MEETING_ROSTER_MAX,
    [MEETING_GO - MEETING_REGISTER] = MEETING_SMALL_MAX,
    [MEETING_REFUSE - MEETING_REGISTER] = MEETING_SMALL_MAX,
};

const struct message_kinds meeting_to_rendezvous = {MEETING_REGISTER, MEETING_REFUSE, heard_by_rendezvous};
const struct message_kinds meeting_to_member = {MEETING_REGISTER, MEETING_REFUSE, heard_by_member};

static size_t written(const struct writer *w, const void *target)
{
    return w->bad ? 0 : (size_t)(w->at - (const uint8_t *)target);
}

/* ---- texts -------------------------------------------------------------------------------------------- */

/* Texts from strangers end on a person's terminal. */
static bool printable(uint8_t c)
{
    return c >= 0x20 && c < 0x7f;
}

static void put_text(struct writer *w, const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++)
        put_u8(w, printable((uint8_t)text[i]) ? (uint8_t)text[i] : '?');
}

/* `size` counts the final 0. */
static void get_text(struct reader *in, char *text, size_t len, size_t size)
{
    if (len >= size) {
        in->bad = true;
        len = 0;
    }
    get_bytes(in, text, len);
    text[len] = '\0';
    for (size_t i = 0; i < len; i++)
        in->bad |= !printable((uint8_t)text[i]);
}

/* ---- member ------------------------------------------------------------------------------------------- */

static size_t member_len(const struct meeting_member *m)
{
    size_t len = MEETING_NODE_LEN + 8 + 8 + 4 + 4 + 1 + strnlen(m->name, MEETING_NAME_MAX - 1) + 1;
    for (size_t i = 0; i < m->addr_count; i++)
        len += 1u + m->addr_lens[i];
    return len;
}

static void put_member(struct writer *w, const struct meeting_member *m)
{
    size_t name_len = strnlen(m->name, MEETING_NAME_MAX - 1);

    assert(m->addr_count <= MEETING_ADDRS_MAX);
    put_bytes(w, m->node, MEETING_NODE_LEN);
    put_u64(w, m->instance);
    put_u64(w, m->host_id);
    put_u32(w, m->process);
    put_u32(w, m->features);
    put_u8(w, (uint8_t)name_len);
    put_text(w, m->name, name_len);
    put_u8(w, m->addr_count);
    for (size_t i = 0; i < m->addr_count; i++) {
        assert(m->addr_lens[i] > 0 && m->addr_lens[i] <= MEETING_ADDR_MAX);
        put_u8(w, m->addr_lens[i]);
        put_bytes(w, m->addrs[i], m->addr_lens[i]);
    }
}

static void get_member(struct reader *in, struct meeting_member *m)
{
    *m = (struct meeting_member){.addr_count = 0};
    get_bytes(in, m->node, MEETING_NODE_LEN);
    m->instance = get_u64(in);
    m->host_id = get_u64(in);
    m->process = get_u32(in);
    m->features = get_u32(in);
    size_t name_len = get_u8(in);
    get_text(in, m->name, name_len, sizeof m->name);
    m->addr_count = get_u8(in);
    if (m->addr_count > MEETING_ADDRS_MAX) {
        in->bad = true;
        m->addr_count = 0;
    }
    for (size_t i = 0; i < m->addr_count && !in->bad; i++) {
        uint8_t len = get_u8(in);
        if (len == 0 || len > MEETING_ADDR_MAX) {
            in->bad = true;
            return;
        }
        m->addr_lens[i] = len;
        get_bytes(in, m->addrs[i], len);
    }
}

/* ---- register and welcome ----------------------------------------------------------------------------- */

size_t meeting_register_encode(const struct meeting_register *r, void *target, size_t size)
{
    size_t job_len = strnlen(r->job, MEETING_JOB_MAX - 1);
    size_t text_len = strnlen(r->settings_text, MEETING_TEXT_MAX - 1);
    struct writer w = writer_of(target, size);

    put_u16(&w, r->version_min);
    put_u16(&w, r->version_max);
    put_u32(&w, (uint32_t)r->rank);
    put_u32(&w, r->size);
    put_u32(&w, r->patience_ms);
    put_u64(&w, r->settings);
    put_bytes(&w, r->space, MEETING_SPACE_LEN);
    put_u8(&w, (uint8_t)job_len);
    put_text(&w, r->job, job_len);
    put_u16(&w, (uint16_t)text_len);
    put_text(&w, r->settings_text, text_len);
    put_member(&w, &r->member);
    return written(&w, target);
}

/* What stands behind the member comes from a later version and is left unread, so that such a member can be
 * told about versions. */
int meeting_register_decode(struct meeting_register *r, const void *source, size_t len)
{
    struct reader in = reader_of(source, len);
    struct meeting_register reg;

    reg.version_min = get_u16(&in);
    reg.version_max = get_u16(&in);
    reg.rank = (int32_t)get_u32(&in);
    reg.size = get_u32(&in);
    reg.patience_ms = get_u32(&in);
    reg.settings = get_u64(&in);
    get_bytes(&in, reg.space, MEETING_SPACE_LEN);
    get_text(&in, reg.job, get_u8(&in), sizeof reg.job);
    get_text(&in, reg.settings_text, get_u16(&in), sizeof reg.settings_text);
    get_member(&in, &reg.member);
    if (in.bad || reg.version_min == 0 || reg.version_min > reg.version_max)
        return HEARTH_PROTOCOL;
    if (reg.size == 0 || reg.size > MEETING_MEMBERS_MAX)
        return HEARTH_PROTOCOL;
    if (reg.rank < RANK_NONE || (reg.rank >= 0 && (uint32_t)reg.rank >= reg.size))
        return HEARTH_PROTOCOL;
    *r = reg;
    return HEARTH_OK;
}

size_t meeting_welcome_encode(const struct meeting_welcome *r, void *target, size_t size)
{
    struct writer w = writer_of(target, size);

    put_u32(&w, r->present);
    put_u32(&w, r->size);
    if (r->has_secret)
        put_bytes(&w, r->secret, MEETING_SECRET_LEN);
    return written(&w, target);
}

/* Straight to its target: no copy of the secret stays behind. */
int meeting_welcome_decode(struct meeting_welcome *r, const void *source, size_t len)
{
    struct reader in = reader_of(source, len);

    r->present = get_u32(&in);
    r->size = get_u32(&in);
    r->has_secret = reader_left(&in) > 0;
    if (r->has_secret)
        get_bytes(&in, r->secret, MEETING_SECRET_LEN);
    if (in.bad || reader_left(&in) > 0 || r->size > MEETING_MEMBERS_MAX)
        return HEARTH_PROTOCOL;
    return r->present > 0 && r->present <= r->size ? HEARTH_OK : HEARTH_PROTOCOL;
}

/* ---- roster, ready, go -------------------------------------------------------------------------------- */

size_t meeting_place_encode(const struct meeting_place *p, void *target, size_t size)
{
    struct writer w = writer_of(target, size);

    put_u64(&w, p->cluster);
    put_u32(&w, p->rank);
    put_u32(&w, p->size);
    return written(&w, target);
}

size_t meeting_members_encode(const struct meeting_member *members, size_t count, void *target, size_t size)
{
    struct writer w = writer_of(target, size);

    for (size_t i = 0; i < count; i++)
        put_member(&w, &members[i]);
    return written(&w, target);
}

size_t meeting_members_len(const struct meeting_member *members, size_t count)
{
    size_t len = 0;

    for (size_t i = 0; i < count; i++)
        len += member_len(&members[i]);
    return len;
}

int meeting_roster_decode(struct meeting_place *p, struct meeting_member *members, size_t max,
                          const void *source, size_t len)
{
    struct reader in = reader_of(source, len);
    struct meeting_place place;

    place.cluster = get_u64(&in);
    place.rank = get_u32(&in);
    place.size = get_u32(&in);
    if (in.bad || place.cluster == 0 || place.size > max || place.rank >= place.size)
        return HEARTH_PROTOCOL;
    for (uint32_t i = 0; i < place.size && !in.bad; i++)
        get_member(&in, &members[i]);
    if (in.bad || reader_left(&in) > 0)
        return HEARTH_PROTOCOL;
    *p = place;
    return HEARTH_OK;
}

int meeting_member_decode(struct meeting_member *member, const void *source, size_t len)
{
    struct reader in = reader_of(source, len);

    get_member(&in, member);
    return in.bad || reader_left(&in) > 0 ? HEARTH_PROTOCOL : HEARTH_OK;
}

size_t meeting_cluster_encode(uint64_t cluster, void *target, size_t size)
{
    struct writer w = writer_of(target, size);

    put_u64(&w, cluster);
    return written(&w, target);
}

int meeting_cluster_decode(uint64_t *cluster, const void *source, size_t len)
{
    struct reader in = reader_of(source, len);
    uint64_t value = get_u64(&in);

    if (in.bad || reader_left(&in) > 0 || value == 0)
        return HEARTH_PROTOCOL;
    *cluster = value;
    return HEARTH_OK;
}
