/* SPDX-License-Identifier: Apache-2.0 */
/* Encodes and decodes greetings and their answers: layout as in docs/wire.md. */
#include "wire/greeting.h"

#include <assert.h>

static const uint32_t len_max[] = {GREETING_PAYLOAD_LEN, GREETING_PAYLOAD_LEN, GREETING_PAYLOAD_LEN,
                                   GREETING_PAYLOAD_LEN};
static const struct message_kinds kinds = {GREETING_GREET, GREETING_CONFIRM, len_max};

static const char *const reason_texts[GREETING_REASON_MAX + 1] = {
    [GREETING_TAKEN] = "another connection is already used for this channel",
    [GREETING_JOINED] = "it is already joined to all members",
    [GREETING_BUSY] = "it is busy with other connections",
};

const char *greeting_reason_text(uint8_t reason)
{
    return reason >= 1 && reason <= GREETING_REASON_MAX ? reason_texts[reason] : "?";
}

/* Whether the number of channels must be there: the lower rank decides it, so whatever the lower rank says
 * after the greeting has it. */
static bool channels_due(const struct greeting *g)
{
    return g->kind == GREETING_CONFIRM || (g->kind == GREETING_WELCOME && g->from < g->to);
}

/* What is wrong between the fields, or NULL. */
static const char *fields_fault(const struct greeting *g)
{
    bool refusal = g->kind == GREETING_REFUSE;

    if (refusal ? g->reason < 1 || g->reason > GREETING_REASON_MAX : g->reason != 0)
        return "reason: unknown, or in a message that is no refusal";
    if (g->channels > GREETING_CHANNELS_MAX || g->channel >= (g->channels ? g->channels : 1))
        return "channel: not one of this pair's";
    if (g->channels == 0 && channels_due(g))
        return "channels: the lower rank must say how many";
    if (g->cluster == 0)
        return "cluster: 0 is none";
    if (g->from > INT32_MAX || g->to > INT32_MAX || g->from == g->to)
        return "rank: out of range, or both the same";
    if (g->kind == GREETING_CONFIRM && g->from > g->to)
        return "rank: only the lower rank confirms";
    return NULL;
}

void greeting_encode(const struct greeting *g, uint8_t target[static GREETING_LEN])
{
    uint8_t *payload = target + MESSAGE_HEADER_LEN;
    struct writer w = writer_of(payload, GREETING_PAYLOAD_LEN);

    assert(g->kind >= GREETING_GREET && g->kind <= GREETING_CONFIRM && !fields_fault(g));
    put_u8(&w, g->channel);
    put_u8(&w, g->channels);
    put_u8(&w, g->reason);
    put_u8(&w, 0);
    put_u64(&w, g->cluster);
    put_u64(&w, g->from_instance);
    put_u64(&w, g->to_instance);
    put_u32(&w, g->from);
    put_u32(&w, g->to);
    put_u64(&w, g->round_trip_ns);
    assert(!w.bad && w.at == w.end);
    message_seal(g->kind, payload, GREETING_PAYLOAD_LEN, NULL, 0, target);
}

int greeting_decode(struct greeting *g, const uint8_t source[static GREETING_LEN], const char **what)
{
    const uint8_t *payload = source + MESSAGE_HEADER_LEN;
    struct reader r = reader_of(payload, GREETING_PAYLOAD_LEN);
    struct message_header header;
    struct greeting greeting;

    if (message_header_decode(&header, source, &kinds, what))
        return HEARTH_PROTOCOL;
    greeting.kind = header.kind;
    greeting.channel = get_u8(&r);
    greeting.channels = get_u8(&r);
    greeting.reason = get_u8(&r);
    uint8_t reserved = get_u8(&r);
    greeting.cluster = get_u64(&r);
    greeting.from_instance = get_u64(&r);
    greeting.to_instance = get_u64(&r);
    greeting.from = get_u32(&r);
    greeting.to = get_u32(&r);
    greeting.round_trip_ns = get_u64(&r);
    const char *fault = NULL;
    if (header.len != GREETING_PAYLOAD_LEN)
        fault = "length: not that of a greeting";
    else if (!message_intact(&header, payload))
        fault = "crc: the greeting was damaged on its way";
    else
        fault = reserved != 0 ? "reserved: not zero" : fields_fault(&greeting);
    if (fault) {
        *what = fault;
        return HEARTH_PROTOCOL;
    }
    *g = greeting;
    return HEARTH_OK;
}
