/* SPDX-License-Identifier: Apache-2.0 */
/* Encodes and decodes greetings and their answers: offsets as in docs/wire.md. */
#include "wire/greeting.h"

#include <assert.h>
#include <string.h>

#include "core/bytes.h"
#include "core/crc32c.h"

enum greeting_offset {
    AT_MAGIC = 0,
    AT_VERSION = 2,
    AT_KIND = 3,
    AT_CHANNEL = 4,
    AT_CHANNELS = 5,
    AT_REASON = 6,
    AT_RESERVED = 7,
    AT_CLUSTER = 8,
    AT_FROM_INSTANCE = 16,
    AT_TO_INSTANCE = 24,
    AT_FROM = 32,
    AT_TO = 36,
    AT_ROUND_TRIP = 40,
    AT_RESERVED_TOO = 48,
    AT_CRC = 60
};

static_assert(AT_CRC + 4 == GREETING_LEN, "the checksum ends the greeting");

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

    if (g->kind < GREETING_GREET || g->kind > GREETING_KIND_MAX)
        return "kind: unknown";
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
    assert(!fields_fault(g));

    memset(target, 0, GREETING_LEN);
    store_u16(target + AT_MAGIC, GREETING_MAGIC);
    target[AT_VERSION] = GREETING_VERSION;
    target[AT_KIND] = g->kind;
    target[AT_CHANNEL] = g->channel;
    target[AT_CHANNELS] = g->channels;
    target[AT_REASON] = g->reason;
    store_u64(target + AT_CLUSTER, g->cluster);
    store_u64(target + AT_FROM_INSTANCE, g->from_instance);
    store_u64(target + AT_TO_INSTANCE, g->to_instance);
    store_u32(target + AT_FROM, g->from);
    store_u32(target + AT_TO, g->to);
    store_u64(target + AT_ROUND_TRIP, g->round_trip_ns);
    store_u32(target + AT_CRC, crc32c(0, target, AT_CRC));
}

/* What is wrong with the bytes themselves, or NULL. The checksum comes before all that it protects. */
static const char *bytes_fault(const uint8_t source[static GREETING_LEN])
{
    if (load_u16(source + AT_MAGIC) != GREETING_MAGIC)
        return "magic: this is not a Hearth greeting";
    if (source[AT_VERSION] != GREETING_VERSION)
        return "version: not one that this node speaks";
    if (load_u32(source + AT_CRC) != crc32c(0, source, AT_CRC))
        return "crc: the greeting was damaged on its way";
    if (source[AT_RESERVED] != 0)
        return "reserved: not zero";
    for (size_t at = AT_RESERVED_TOO; at < AT_CRC; at++)
        if (source[at] != 0)
            return "reserved: not zero";
    return NULL;
}

int greeting_decode(struct greeting *g, const uint8_t source[static GREETING_LEN], const char **what)
{
    const char *fault = bytes_fault(source);
    struct greeting greeting = {
        .kind = source[AT_KIND],
        .reason = source[AT_REASON],
        .channel = source[AT_CHANNEL],
        .channels = source[AT_CHANNELS],
        .from = load_u32(source + AT_FROM),
        .to = load_u32(source + AT_TO),
        .cluster = load_u64(source + AT_CLUSTER),
        .from_instance = load_u64(source + AT_FROM_INSTANCE),
        .to_instance = load_u64(source + AT_TO_INSTANCE),
        .round_trip_ns = load_u64(source + AT_ROUND_TRIP),
    };

    if (!fault)
        fault = fields_fault(&greeting);
    if (fault) {
        *what = fault;
        return HEARTH_PROTOCOL;
    }
    *g = greeting;
    return HEARTH_OK;
}
