/* SPDX-License-Identifier: Apache-2.0 */
/* Control messages in pieces. Bits of the first byte: 0 the checksums are made right, which a fuzzer would
 * never manage; 1 and 2 who reads; all of it draws the sizes of the pieces. Payloads that are accepted must
 * encode to the same again; no bytes may do harm. */
#include <stdlib.h>
#include <string.h>

#include "cluster/peer_hello.h"
#include "core/prng.h"
#include "wire/meeting.h"
#include "wire/record.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

#define MEMBERS_MAX 16
#define INPUT_MAX   (1u << 20)

static const struct message_kinds *const tables[] = {&cluster_kinds, &meeting_to_rendezvous,
                                                     &meeting_to_member, &probe_kinds};

/* Whatever stands behind the known fields is not kept, so the second encoding is the one to compare. */
static void check_hello(const uint8_t *payload, size_t len)
{
    uint8_t once[MESSAGE_HELLO_MAX], twice[MESSAGE_HELLO_MAX];
    struct message_hello hello, again;
    const char *what = NULL;

    if (message_hello_decode(&hello, payload, len, &what)) {
        if (!what)
            abort();
        return;
    }
    size_t once_len = message_hello_encode(&hello, once);
    if (once_len > len || message_hello_decode(&again, once, once_len, &what))
        abort();
    if (message_hello_encode(&again, twice) != once_len || memcmp(once, twice, once_len) != 0)
        abort();
}

/* The payload after decoding and encoding, 0 if it was refused. */
static size_t round_trip(uint8_t kind, const uint8_t *payload, size_t len, uint8_t *target, size_t size)
{
    static struct meeting_register reg;
    static struct peer_info members[MEMBERS_MAX];
    struct writer w;
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
        w = writer_of(target, size);
        w.at += meeting_place_encode(&place, target, size);
        for (uint32_t i = 0; i < place.size; i++)
            peer_put(&w, &members[i]);
        return w.bad ? 0 : (size_t)(w.at - target);
    case MEETING_REFUSE:
        return error_decode(&error, payload, len) ? 0 : error_encode(&error, target, size);
    default:
        return meeting_cluster_decode(&cluster, payload, len) ? 0
                                                              : meeting_cluster_encode(cluster, target, size);
    }
}

/* Registrations and rosters have peers in them, and a peer may have fields of a later version. */
static void check_meeting(uint8_t kind, const uint8_t *payload, size_t len)
{
    static uint8_t once[MEETING_ROSTER_MAX], twice[MEETING_ROSTER_MAX];
    size_t once_len = round_trip(kind, payload, len, once, sizeof once);
    bool longer = (kind == MEETING_REGISTER || kind == MEETING_ROSTER) && once_len < len;

    if (once_len == 0)
        return;
    if (!longer && (once_len != len || memcmp(once, payload, len) != 0))
        abort();
    if (round_trip(kind, once, once_len, twice, sizeof twice) != once_len ||
        memcmp(once, twice, once_len) != 0)
        abort();
}

/* False: the connection ends. */
static bool take(struct message_reader *r, size_t len)
{
    const char *what = NULL;
    int status = message_reader_got(r, len, &what);

    if (status == HEARTH_PENDING)
        return true;
    if (status != HEARTH_OK) {
        if (!what)
            abort();
        return false;
    }
    if (!message_intact(&r->header, r->payload))
        abort();
    if (r->header.kind == MESSAGE_HELLO)
        check_hello(r->payload, r->header.len);
    if (r->header.kind >= MEETING_REGISTER)
        check_meeting(r->header.kind, r->payload, r->header.len);
    message_reader_next(r);
    return true;
}

static void make_right(uint8_t *bytes, size_t len)
{
    if (len < MESSAGE_HEADER_LEN)
        return;
    size_t payload = load_u32(bytes + 4);
    if (bytes[2] == MESSAGE_VERSION && payload <= len - MESSAGE_HEADER_LEN)
        message_seal(bytes[3], bytes + MESSAGE_HEADER_LEN, payload, NULL, 0, bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    static uint8_t stream[INPUT_MAX];
    struct heap heap;
    struct message_reader reader;
    struct prng prng;
    bool open = true;

    if (len < 1 || len > sizeof stream)
        return 0;
    memcpy(stream, bytes, len);
    heap_init(&heap, 0);
    message_reader_init(&reader, &heap, tables[bytes[0] >> 1 & 3]);
    prng_init(&prng, bytes[0]);
    for (size_t at = 1; at < len && open;) {
        uint8_t *target;
        if (reader.got == 0 && (bytes[0] & 1))
            make_right(stream + at, len - at);
        size_t wants = message_reader_wants(&reader, &target);
        size_t piece = 1 + (bytes[0] < 128 ? prng_below(&prng, 64) : prng_below(&prng, 20000));
        piece = piece < wants ? piece : wants;
        piece = piece < len - at ? piece : len - at;
        memcpy(target, stream + at, piece);
        at += piece;
        open = take(&reader, piece);
    }
    message_reader_fini(&reader);
    if (heap.blocks != 0)
        abort();
    return 0;
}
