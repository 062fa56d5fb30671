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

/* ---- register and welcome ----------------------------------------------------------------------------- */

size_t meeting_register_encode(const struct meeting_register *r, void *target, size_t size)
{
    struct writer w = writer_of(target, size);

    put_u16(&w, r->version_min);
    put_u16(&w, r->version_max);
    put_u32(&w, (uint32_t)r->rank);
    put_u32(&w, r->size);
    put_u32(&w, r->patience_ms);
    put_u64(&w, r->settings);
    put_bytes(&w, r->space, MEETING_SPACE_LEN);
    text_put(&w, r->job, sizeof r->job);
    long_text_put(&w, r->settings_text, sizeof r->settings_text);
    peer_put(&w, &r->member);
    return writer_len(&w);
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
    text_get(&in, reg.job, sizeof reg.job);
    long_text_get(&in, reg.settings_text, sizeof reg.settings_text);
    if (!peer_get(&in, &reg.member) || reg.version_min == 0 || reg.version_min > reg.version_max)
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
    return writer_len(&w);
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
    return writer_len(&w);
}

int meeting_roster_decode(struct meeting_place *p, struct peer_info *members, size_t max, const void *source,
                          size_t len)
{
    struct reader in = reader_of(source, len);
    struct meeting_place place;

    place.cluster = get_u64(&in);
    place.rank = get_u32(&in);
    place.size = get_u32(&in);
    if (in.bad || place.cluster == 0 || place.size > max || place.rank >= place.size)
        return HEARTH_PROTOCOL;
    for (uint32_t i = 0; i < place.size && !in.bad; i++)
        peer_get(&in, &members[i]);
    if (in.bad || reader_left(&in) > 0)
        return HEARTH_PROTOCOL;
    *p = place;
    return HEARTH_OK;
}

size_t meeting_cluster_encode(uint64_t cluster, void *target, size_t size)
{
    struct writer w = writer_of(target, size);

    put_u64(&w, cluster);
    return writer_len(&w);
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
