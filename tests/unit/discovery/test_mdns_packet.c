/* SPDX-License-Identifier: Apache-2.0 */
/* Packets that are let through, and those that are not: cut, looping, too long, of kinds that do harm. */
#include "core/prng.h"
#include "discovery/mdns_packet.h"
#include "support/suite.h"

#define A     1
#define CNAME 5
#define PTR   12
#define TXT   16
#define AAAA  28
#define SRV   33
#define DNAME 39
#define NSEC  47

struct bytes {
    uint8_t at[4096];
    size_t len;
};

static void put(struct bytes *b, const void *source, size_t len)
{
    assert_true(len <= sizeof b->at - b->len);
    memcpy(b->at + b->len, source, len);
    b->len += len;
}

static void put_16(struct bytes *b, unsigned value)
{
    put(b, (const uint8_t[]){(uint8_t)(value >> 8), (uint8_t)value}, 2);
}

/* A response with so many answers to come. */
static struct bytes response(unsigned answers)
{
    struct bytes b = {.len = 0};

    put(&b, "\0\0\x84\0\0\0", 6);
    put_16(&b, answers);
    put(&b, "\0\0\0\0", 4);
    return b;
}

static void put_record(struct bytes *b, const char *name, size_t name_len, unsigned type, const void *data,
                       size_t data_len)
{
    put(b, name, name_len);
    put_16(b, type);
    put(b, "\x80\x01\0\0\0\x78", 6);
    put_16(b, (unsigned)data_len);
    put(b, data, data_len);
}

static bool record_good(const char *name, size_t name_len, unsigned type, const void *data, size_t data_len)
{
    struct bytes b = response(1);

    put_record(&b, name, name_len, type, data, data_len);
    return mdns_packet_good(b.at, b.len);
}

#define GOOD(name, type, data) assert_true(record_good(name, sizeof(name) - 1, type, data, sizeof(data) - 1))
#define REFUSED(name, type, data)                                                                            \
    assert_false(record_good(name, sizeof name - 1, type, data, sizeof data - 1))

#define HOST "\4host\5local\0"

TEST(good_records)
{
    GOOD(HOST, A, "\x0a\0\0\1");
    GOOD(HOST, AAAA, "0123456789abcdef");
    GOOD(HOST, PTR, "\5other\xc0\x0c");
    GOOD(HOST, PTR, "\0");
    GOOD(HOST, SRV, "\0\0\0\0\x14\x56\xc0\x11");
    GOOD(HOST, TXT, "\3v=1\0\4fl=0");
    GOOD(HOST, TXT, "");
    GOOD(HOST, NSEC, "\xc0\x0c\0\4\x40\0\0\0");
    GOOD(HOST, 999, "whatever");
    GOOD("\0", 41, ""); /* OPT */
}

TEST(wrong_data)
{
    REFUSED(HOST, A, "\x0a\0\0");
    REFUSED(HOST, A, "\x0a\0\0\1\1");
    REFUSED(HOST, AAAA, "\x0a\0\0\1");
    REFUSED(HOST, PTR, "");
    REFUSED(HOST, PTR, "\5other");         /* no end */
    REFUSED(HOST, PTR, "\5other\xc0");     /* half a pointer */
    REFUSED(HOST, PTR, "\5other\0\0");     /* more behind it */
    REFUSED(HOST, PTR, "\xc0\x22");        /* itself */
    REFUSED(HOST, PTR, "\5other\xc0\x22"); /* a loop */
    REFUSED(HOST, SRV, "\0\0\0\0\x14\x56");
    REFUSED(HOST, SRV, "\0\0\0");
    REFUSED(HOST, TXT, "\4v=1");
    REFUSED(HOST, CNAME, "\xc0\x0c");
    REFUSED(HOST, CNAME, HOST);
    REFUSED(HOST, DNAME, HOST);
}

TEST(wrong_names)
{
    REFUSED("\xc0\x0c", A, "\x0a\0\0\1"); /* itself */
    REFUSED("\xc0\x0e", A, "\x0a\0\0\1"); /* forwards */
    REFUSED("\1a\xc0\x0c", A, "\x0a\0\0\1");
    REFUSED("\xc0\0", A, "\x0a\0\0\1"); /* the header is no name */
    REFUSED("\xff\xff", A, "\x0a\0\0\1");
    REFUSED("\x40", A, "\x0a\0\0\1");
    REFUSED("\x80\0", A, "\x0a\0\0\1");
    REFUSED("\x3fshort", A, "\x0a\0\0\1");
}

/* 255 bytes are allowed, however they are written. */
TEST(long_names)
{
    struct bytes name = {.len = 0};
    char label[64];

    memset(label, 'x', sizeof label);
    label[0] = 63;
    for (int i = 0; i < 3; i++)
        put(&name, label, 64);
    label[0] = 61;
    put(&name, label, 62);
    put(&name, "", 1);
    assert_int_equal(name.len, 255);
    assert_true(record_good((const char *)name.at, name.len, A, "1234", 4));
    struct bytes b = response(2);
    put_record(&b, (const char *)name.at, name.len, A, "1234", 4);
    put_record(&b, "\1a\xc0\x0c", 4, A, "1234", 4); /* 257 with what it points at */
    assert_false(mdns_packet_good(b.at, b.len));
}

TEST(counts_and_ends)
{
    struct bytes b = response(1);

    assert_false(mdns_packet_good(b.at, 0));
    assert_false(mdns_packet_good(b.at, 11));
    assert_false(mdns_packet_good(b.at, 12)); /* one was promised */
    put_record(&b, HOST, sizeof(HOST) - 1, A, "1234", 4);
    for (size_t len = 0; len < b.len; len++)
        assert_false(mdns_packet_good(b.at, len));
    assert_true(mdns_packet_good(b.at, b.len));
    b = response(0);
    b.at[5] = 1; /* a question */
    put(&b, HOST, sizeof(HOST) - 1);
    put(&b, "\0\x0c\0\1", 4);
    assert_true(mdns_packet_good(b.at, b.len));
    assert_false(mdns_packet_good(b.at, b.len - 1));
}

/* Random bytes of every length: a sanitizer watches. */
TEST(random_packets)
{
    uint8_t bytes[600];
    struct prng prng;
    int good = 0;

    prng_init(&prng, 1);
    for (int i = 0; i < 20000; i++) {
        size_t len = (size_t)prng_below(&prng, sizeof bytes);
        for (size_t k = 0; k < len; k++)
            bytes[k] = (uint8_t)prng_below(&prng, k < 12 ? 2 : 256);
        good += mdns_packet_good(bytes, len);
    }
    assert_true(good < 20000);
}
