/* SPDX-License-Identifier: Apache-2.0 */
/* Records: published vectors, our two ends, GnuTLS at the other end, changes of keys, bytes that nobody
 * sealed. */
#include "core/prng.h"
#include "core/types.h"
#include "security/records.h"
#include "support/sealed.h"
#include "support/suite.h"

#define LEN_MAX (RECORD_DATA_MAX + RECORD_EXTRA + RECORD_UPDATE_LEN)

static void fill(uint8_t *bytes, size_t len, uint64_t seed)
{
    struct prng prng;
    prng_init(&prng, seed);
    for (size_t i = 0; i < len; i++)
        bytes[i] = (uint8_t)prng_u64(&prng);
}

static size_t seal(struct records *records, const void *bytes, size_t len, uint8_t *target)
{
    struct iovec piece = {(void *)(uintptr_t)bytes, len};
    return records_seal(records, &piece, 1, len, target);
}

/* ---- vectors: RFC 8448, chapter 3, the records after the handshake ---- */

static const struct records_start rfc_client = {
    .out_secret = {0x9e, 0x40, 0x64, 0x6c, 0xe7, 0x9a, 0x7f, 0x9d, 0xc0, 0x5a, 0xf8,
                   0x88, 0x9b, 0xce, 0x65, 0x52, 0x87, 0x5a, 0xfa, 0x0b, 0x06, 0xdf,
                   0x00, 0x87, 0xf7, 0x92, 0xeb, 0xb7, 0xc1, 0x75, 0x04, 0xa5},
    .in_secret = {0xa1, 0x1a, 0xf9, 0xf0, 0x55, 0x31, 0xf8, 0x56, 0xad, 0x47, 0x11,
                  0x6b, 0x45, 0xa9, 0x50, 0x32, 0x82, 0x04, 0xb4, 0xf4, 0x4b, 0xfb,
                  0x6b, 0x3a, 0x4b, 0x4f, 0x1f, 0x3f, 0xcb, 0x63, 0x16, 0x43},
    .in_sequence = 1, /* a ticket came before */
};

static const uint8_t rfc_client_data[72] = {
    0x17, 0x03, 0x03, 0x00, 0x43, 0xa2, 0x3f, 0x70, 0x54, 0xb6, 0x2c, 0x94, 0xd0, 0xaf, 0xfa,
    0xfe, 0x82, 0x28, 0xba, 0x55, 0xcb, 0xef, 0xac, 0xea, 0x42, 0xf9, 0x14, 0xaa, 0x66, 0xbc,
    0xab, 0x3f, 0x2b, 0x98, 0x19, 0xa8, 0xa5, 0xb4, 0x6b, 0x39, 0x5b, 0xd5, 0x4a, 0x9a, 0x20,
    0x44, 0x1e, 0x2b, 0x62, 0x97, 0x4e, 0x1f, 0x5a, 0x62, 0x92, 0xa2, 0x97, 0x70, 0x14, 0xbd,
    0x1e, 0x3d, 0xea, 0xe6, 0x3a, 0xee, 0xbb, 0x21, 0x69, 0x49, 0x15, 0xe4};
static const uint8_t rfc_server_data[72] = {
    0x17, 0x03, 0x03, 0x00, 0x43, 0x2e, 0x93, 0x7e, 0x11, 0xef, 0x4a, 0xc7, 0x40, 0xe5, 0x38,
    0xad, 0x36, 0x00, 0x5f, 0xc4, 0xa4, 0x69, 0x32, 0xfc, 0x32, 0x25, 0xd0, 0x5f, 0x82, 0xaa,
    0x1b, 0x36, 0xe3, 0x0e, 0xfa, 0xf9, 0x7d, 0x90, 0xe6, 0xdf, 0xfc, 0x60, 0x2d, 0xcb, 0x50,
    0x1a, 0x59, 0xa8, 0xfc, 0xc4, 0x9c, 0x4b, 0xf2, 0xe5, 0xf0, 0xa2, 0x1c, 0x00, 0x47, 0xc2,
    0xab, 0xf3, 0x32, 0x54, 0x0d, 0xd0, 0x32, 0xe1, 0x67, 0xc2, 0x95, 0x5d};
static const uint8_t rfc_client_bye[24] = {0x17, 0x03, 0x03, 0x00, 0x13, 0xc9, 0x87, 0x27,
                                           0x60, 0x65, 0x56, 0x66, 0xb7, 0x4d, 0x7f, 0xf1,
                                           0x15, 0x3e, 0xfd, 0x6d, 0xb6, 0xd0, 0xb0, 0xe3};
static const uint8_t rfc_server_bye[24] = {0x17, 0x03, 0x03, 0x00, 0x13, 0xb5, 0x8f, 0xd6,
                                           0x71, 0x66, 0xeb, 0xf5, 0x99, 0xd2, 0x47, 0x20,
                                           0xcf, 0xbe, 0x7e, 0xfa, 0x7a, 0x88, 0x64, 0xa9};

TEST(records_are_those_of_the_rfc)
{
    struct heap heap;
    uint8_t bytes[50], record[72], opened[50];
    heap_init(&heap, 0);
    for (uint8_t i = 0; i < sizeof bytes; i++)
        bytes[i] = i;
    struct records *client = records_open_at(&heap, &rfc_client);
    assert_non_null(client);
    assert_int_equal(seal(client, bytes, sizeof bytes, record), sizeof record);
    assert_memory_equal(record, rfc_client_data, sizeof record);
    assert_int_equal(records_bye(client, record), sizeof rfc_client_bye);
    assert_memory_equal(record, rfc_client_bye, sizeof rfc_client_bye);
    memcpy(record, rfc_server_data, sizeof record);
    assert_int_equal(records_open_one(client, record, sizeof record, opened), 50);
    assert_memory_equal(opened, bytes, sizeof bytes);
    memcpy(record, rfc_server_bye, sizeof rfc_server_bye);
    assert_int_equal(records_open_one(client, record, sizeof rfc_server_bye, opened), HEARTH_PEER_LOST);
    records_close(client);
    assert_int_equal(heap.blocks, 0);
}

/* ---- our own two ends ---- */

struct world {
    struct heap heap;
    struct records *end[2];
    uint8_t plain[LEN_MAX], record[LEN_MAX + 1], opened[LEN_MAX];
};

static struct world world;

static struct world *world_open(bool chacha)
{
    heap_init(&world.heap, 0);
    sealed_pair(&world.heap, chacha, world.end);
    fill(world.plain, sizeof world.plain, 7);
    return &world;
}

static void world_close(struct world *w)
{
    records_close(w->end[0]);
    records_close(w->end[1]);
    assert_int_equal(w->heap.blocks, 0);
}

TEST(lengths_and_places)
{
    static const size_t lens[] = {1,  2,   15,  16,  17,   62,   63,    64,    65,    96,
                                  97, 127, 128, 352, 1000, 4096, 16383, 16384, 16320, 16321};
    for (int chacha = 0; chacha < 2; chacha++) {
        struct world *w = world_open(chacha);
        for (size_t i = 0; i < sizeof lens / sizeof *lens; i++) {
            for (int in_place = 0; in_place < 2; in_place++) {
                size_t len = lens[i];
                memset(w->record, 0xee, sizeof w->record);
                memset(w->opened, 0xee, sizeof w->opened);
                assert_int_equal(seal(w->end[0], w->plain, len, w->record), len + RECORD_EXTRA);
                assert_int_equal(w->record[len + RECORD_EXTRA], 0xee);
                assert_int_equal(records_length(w->record), len + RECORD_EXTRA);
                uint8_t *target = in_place ? w->record + RECORD_HEADER_LEN : w->opened;
                assert_int_equal(records_open_one(w->end[1], w->record, len + RECORD_EXTRA, target), len);
                assert_memory_equal(target, w->plain, len);
                assert_true(in_place || w->opened[len] == 0xee); /* the type has no room there */
            }
        }
        world_close(w);
    }
}

/* However the bytes are cut, the record is the same. */
TEST(pieces_give_the_same_record)
{
    static uint8_t whole[LEN_MAX];
    struct prng prng;
    prng_init(&prng, 3);
    for (int round = 0; round < 300; round++) {
        struct world *w = world_open(round % 2);
        struct iovec pieces[12];
        size_t len = 1 + prng_below(&prng, round < 200 ? 400 : RECORD_DATA_MAX), at = 0;
        int count = 1 + (int)prng_below(&prng, 11);
        assert_int_equal(seal(w->end[0], w->plain, len, whole), len + RECORD_EXTRA);
        world_close(w);
        w = world_open(round % 2);
        for (int i = 0; i < count; i++) {
            size_t piece = i == count - 1 ? len - at : prng_below(&prng, 1 + (len - at) / 2);
            pieces[i] = (struct iovec){w->plain + at, piece};
            at += piece;
        }
        pieces[count] = (struct iovec){w->plain, 100}; /* not of this record */
        assert_int_equal(records_seal(w->end[0], pieces, count + 1, len, w->record), len + RECORD_EXTRA);
        assert_memory_equal(w->record, whole, len + RECORD_EXTRA);
        world_close(w);
    }
}

TEST(each_record_differs)
{
    struct world *w = world_open(false);
    uint8_t other[64 + RECORD_EXTRA];
    seal(w->end[0], w->plain, 64, w->record);
    seal(w->end[0], w->plain, 64, other);
    assert_memory_not_equal(w->record + 5, other + 5, 64);
    world_close(w);
}

/* ---- what is not to be opened ---- */

TEST(any_changed_bit_is_noticed)
{
    const size_t len = 40 + RECORD_EXTRA;
    for (int chacha = 0; chacha < 2; chacha++) {
        for (size_t bit = 0; bit < len * 8; bit++) {
            struct world *w = world_open(chacha);
            seal(w->end[0], w->plain, 40, w->record);
            w->record[bit / 8] ^= (uint8_t)(1u << bit % 8);
            assert_int_equal(records_open_one(w->end[1], w->record, len, w->opened), HEARTH_PROTOCOL);
            seal(w->end[0], w->plain, 40, w->record); /* good, but too late */
            assert_int_equal(records_open_one(w->end[1], w->record, len, w->opened), HEARTH_PROTOCOL);
            world_close(w);
        }
    }
}

TEST(replayed_dropped_and_reflected_records_are_noticed)
{
    enum { LEN = 100 + RECORD_EXTRA };
    uint8_t first[LEN], second[LEN], copy[LEN];
    for (int way = 0; way < 3; way++) {
        struct world *w = world_open(false);
        seal(w->end[0], w->plain, 100, first);
        seal(w->end[0], w->plain, 100, second);
        memcpy(copy, first, LEN);
        if (way == 0) {
            assert_int_equal(records_open_one(w->end[1], first, LEN, w->opened), 100);
            assert_int_equal(records_open_one(w->end[1], copy, LEN, w->opened), HEARTH_PROTOCOL);
        } else if (way == 1) {
            assert_int_equal(records_open_one(w->end[1], second, LEN, w->opened), HEARTH_PROTOCOL);
        } else {
            assert_int_equal(records_open_one(w->end[0], first, LEN, w->opened), HEARTH_PROTOCOL);
        }
        world_close(w);
    }
}

TEST(headers_that_are_none)
{
    static const struct {
        uint8_t header[RECORD_HEADER_LEN];
        size_t len;
    } cases[] = {
        {{0x17, 3, 3, 0, 17}, 22},  {{0x17, 3, 3, 0, 16}, 0},      {{0x17, 3, 3, 0x41, 0}, RECORD_MAX},
        {{0x17, 3, 3, 0x41, 1}, 0}, {{0x17, 3, 3, 0xff, 0xff}, 0}, {{0x16, 3, 3, 1, 0}, 0},
        {{0x14, 3, 3, 1, 0}, 0},    {{0x15, 3, 3, 1, 0}, 0},       {{0x17, 3, 1, 1, 0}, 0},
        {{0x17, 2, 3, 1, 0}, 0},
    };
    struct world *w = world_open(false);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(records_length(cases[i].header), cases[i].len);
    seal(w->end[0], w->plain, 10, w->record);
    assert_int_equal(records_open_one(w->end[1], w->record, 9 + RECORD_EXTRA, w->opened), HEARTH_PROTOCOL);
    world_close(w);
}

TEST(without_memory_there_are_no_records)
{
    struct heap heap;
    heap_init(&heap, 0);
    atomic_store(&heap.fail_after, 0);
    assert_null(records_open_at(&heap, &rfc_client));
    records_close(NULL);
}

/* ---- changes of keys ---- */

/* So many records under one key, and the next one has a change before it, which the other end follows. */
TEST(keys_change_in_time)
{
    const uint64_t limit = UINT64_C(1) << 23;
    struct heap heap;
    uint8_t record[LEN_MAX], opened[100];
    heap_init(&heap, 0);
    for (int chacha = 0; chacha < 2; chacha++) {
        struct records_start a = {
            .chacha = chacha, .out_secret = {1}, .in_secret = {2}, .out_sequence = limit - 1};
        struct records_start b = {
            .chacha = chacha, .out_secret = {2}, .in_secret = {1}, .in_sequence = limit - 1};
        struct records *out = records_open_at(&heap, &a), *in = records_open_at(&heap, &b);
        assert_int_equal(seal(out, "last", 4, record), 4 + RECORD_EXTRA);
        assert_int_equal(records_open_one(in, record, 4 + RECORD_EXTRA, opened), 4);
        size_t len = seal(out, "first", 5, record), update = records_length(record);
        assert_int_equal(len, update + 5 + RECORD_EXTRA);
        assert_true(update <= RECORD_UPDATE_LEN);
        assert_int_equal(records_open_one(in, record, update, opened), 0);
        assert_int_equal(records_open_one(in, record + update, len - update, opened), 5);
        assert_memory_equal(opened, "first", 5);
        assert_int_equal(seal(out, "second", 6, record), 6 + RECORD_EXTRA);
        assert_int_equal(records_open_one(in, record, 6 + RECORD_EXTRA, opened), 6);
        records_close(out);
        records_close(in);
    }
    assert_int_equal(heap.blocks, 0);
}
