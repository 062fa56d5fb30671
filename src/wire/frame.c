/* SPDX-License-Identifier: Apache-2.0 */
/* Encodes and decodes the frame header: offsets as in docs/wire.md. */
#include "wire/frame.h"

#include <assert.h>
#include <float.h>

#include "core/bytes.h"
#include "core/crc32c.h"

enum offset {
    AT_MAGIC = 0,
    AT_VERSION = 2,
    AT_KIND = 3,
    AT_LENGTH = 4,
    AT_GROUP = 8,
    AT_TAG = 16,
    AT_SEQUENCE = 24,
    AT_FINGERPRINT = 32,
    AT_EPOCH = 40,
    AT_LANE = 44,
    AT_STEP = 48,
    AT_CREDIT = 52,
    AT_TOTAL = 56,
    AT_WEIGHT = 64,
    AT_LINK_SEQUENCE = 72,
    AT_ACK = 80,
    AT_FLAGS = 88,
    AT_RESERVED = 90,
    AT_CRC = 92
};

static_assert(AT_CRC + 4 == FRAME_HEADER_LEN, "the checksum ends the header");

static bool kind_known(uint8_t kind)
{
    return kind >= FRAME_HELLO && kind <= FRAME_KIND_MAX;
}

bool frame_is_bulk(uint8_t kind)
{
    return kind == FRAME_DATA || kind == FRAME_MESSAGE || kind == FRAME_PIECE;
}

bool frame_is_message(uint8_t kind)
{
    return kind >= FRAME_MESSAGE;
}

static uint32_t length_max(uint8_t kind)
{
    return frame_is_bulk(kind) ? FRAME_LENGTH_MAX : FRAME_CONTROL_MAX;
}

static uint16_t flags_allowed(uint8_t kind)
{
    uint16_t eager = kind == FRAME_DATA || kind == FRAME_MESSAGE ? FRAME_EAGER : 0;
    uint16_t reference = kind == FRAME_DATA || kind == FRAME_PIECE ? FRAME_REFERENCE : 0;
    return eager | reference;
}

/* Finite, not negative, and not NaN. */
static bool weight_good(double weight)
{
    return weight >= 0 && weight <= DBL_MAX;
}

void frame_encode(const struct frame *f, uint8_t target[static FRAME_HEADER_LEN])
{
    assert(kind_known(f->kind) && f->length <= length_max(f->kind));
    assert((f->flags & ~flags_allowed(f->kind)) == 0 && weight_good(f->weight));

    store_u16(target + AT_MAGIC, FRAME_MAGIC);
    target[AT_VERSION] = FRAME_VERSION;
    target[AT_KIND] = f->kind;
    store_u32(target + AT_LENGTH, f->length);
    store_u64(target + AT_GROUP, f->group);
    store_u64(target + AT_TAG, f->tag);
    store_u64(target + AT_SEQUENCE, f->sequence);
    store_u64(target + AT_FINGERPRINT, f->fingerprint);
    store_u32(target + AT_EPOCH, f->epoch);
    store_u32(target + AT_LANE, f->lane);
    store_u32(target + AT_STEP, f->step);
    store_u32(target + AT_CREDIT, f->credit);
    store_u64(target + AT_TOTAL, f->total);
    store_f64(target + AT_WEIGHT, f->weight);
    store_u64(target + AT_LINK_SEQUENCE, f->link_sequence);
    store_u64(target + AT_ACK, f->ack);
    store_u16(target + AT_FLAGS, f->flags);
    store_u16(target + AT_RESERVED, 0);
    store_u32(target + AT_CRC, crc32c(0, target, AT_CRC));
}

/* What is wrong with the header, or NULL. The fields that do not depend on the version come first, and the
 * checksum before all that it protects. */
static const char *header_fault(const uint8_t source[static FRAME_HEADER_LEN])
{
    uint8_t kind = source[AT_KIND];

    if (load_u16(source + AT_MAGIC) != FRAME_MAGIC)
        return "magic: this is not a Hearth frame";
    if (source[AT_VERSION] != FRAME_VERSION)
        return "version: not one that this node speaks";
    if (load_u32(source + AT_CRC) != crc32c(0, source, AT_CRC))
        return "crc: the header was damaged on its way";
    if (!kind_known(kind))
        return "kind: unknown";
    if (load_u16(source + AT_FLAGS) & ~flags_allowed(kind))
        return "flags: unknown, or not for this kind";
    if (load_u16(source + AT_RESERVED) != 0)
        return "reserved: not zero";
    if (load_u32(source + AT_LENGTH) > length_max(kind))
        return "length: more than this kind may carry";
    if (!weight_good(load_f64(source + AT_WEIGHT)))
        return "weight: negative or not finite";
    return NULL;
}

int frame_decode(struct frame *f, const uint8_t source[static FRAME_HEADER_LEN], const char **what)
{
    const char *fault = header_fault(source);

    if (fault) {
        *what = fault;
        return HEARTH_PROTOCOL;
    }
    *f = (struct frame){
        .kind = source[AT_KIND],
        .flags = load_u16(source + AT_FLAGS),
        .length = load_u32(source + AT_LENGTH),
        .group = load_u64(source + AT_GROUP),
        .epoch = load_u32(source + AT_EPOCH),
        .tag = load_u64(source + AT_TAG),
        .sequence = load_u64(source + AT_SEQUENCE),
        .fingerprint = load_u64(source + AT_FINGERPRINT),
        .lane = load_u32(source + AT_LANE),
        .step = load_u32(source + AT_STEP),
        .total = load_u64(source + AT_TOTAL),
        .weight = load_f64(source + AT_WEIGHT),
        .link_sequence = load_u64(source + AT_LINK_SEQUENCE),
        .ack = load_u64(source + AT_ACK),
        .credit = load_u32(source + AT_CREDIT),
    };
    return HEARTH_OK;
}
