/* SPDX-License-Identifier: Apache-2.0 */
/* Whole messages of the rendezvous: what is accepted must encode to the bytes it came from. */
#include <stdlib.h>
#include <string.h>

#include "wire/meeting.h"
#include "wire/record.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

#define MEMBERS_MAX 16

/* The payload after decoding and encoding, 0 if it was refused. */
static size_t round_trip(uint8_t kind, const uint8_t *payload, size_t len, uint8_t *target, size_t size)
{
    static struct meeting_register reg;
    static struct meeting_member members[MEMBERS_MAX];
    struct meeting_welcome welcome;
    struct meeting_place place;
    struct error error;
    uint64_t cluster;

    switch (kind) {
    case MEETING_REGISTER:
        return meeting_register_decode(&reg, payload, len) ? 0 : meeting_register_encode(&reg, target, size);
    case MEETING_WELCOME:
        return meeting_welcome_decode(&welcome, payload, len)
                   ? 0
                   : meeting_welcome_encode(&welcome, target, size);
    case MEETING_ROSTER:
        if (meeting_roster_decode(&place, members, MEMBERS_MAX, payload, len))
            return 0;
        return meeting_place_encode(&place, target, size) + meeting_members_encode(members, place.size,
                                                                                   target + MEETING_PLACE_LEN,
                                                                                   size - MEETING_PLACE_LEN);
    case MEETING_REFUSE:
        return error_decode(&error, payload, len) ? 0 : error_encode(&error, target, size);
    default:
        return meeting_cluster_decode(&cluster, payload, len) ? 0
                                                              : meeting_cluster_encode(cluster, target, size);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    static uint8_t again[MEETING_ROSTER_MAX];
    struct meeting_header header;
    const char *what;

    if (len < MEETING_HEADER_LEN || meeting_header_decode(&header, bytes, &what) != HEARTH_OK)
        return 0;
    if (header.length != len - MEETING_HEADER_LEN)
        return 0;
    (void)meeting_intact(&header, bytes + MEETING_HEADER_LEN); /* a fuzzer would never pass it */
    size_t again_len =
        round_trip(header.kind, bytes + MEETING_HEADER_LEN, header.length, again, sizeof again);
    if (again_len == 0)
        return 0;
    bool longer = header.kind == MEETING_REGISTER && again_len < header.length; /* a later version's */
    if ((again_len != header.length && !longer) || memcmp(again, bytes + MEETING_HEADER_LEN, again_len) != 0)
        abort();
    return 0;
}
