/* SPDX-License-Identifier: Apache-2.0 */
/* Walks over the questions and records of a packet; RFC 1035 and 6762. */
#include "discovery/mdns_packet.h"

#define HEADER_LEN 12
#define NAME_MAX_2 255 /* bytes of a name, its labels' lengths and the last 0 included */

enum {
    TYPE_A = 1,
    TYPE_NS = 2,
    TYPE_CNAME = 5,
    TYPE_PTR = 12,
    TYPE_TXT = 16,
    TYPE_AAAA = 28,
    TYPE_SRV = 33,
    TYPE_DNAME = 39
};

struct packet {
    const uint8_t *bytes;
    size_t len, at;
};

static unsigned big_endian(const uint8_t *b)
{
    return (unsigned)b[0] << 8 | b[1];
}

/* Moves behind the name, which must end before `end`; what it points at may be anywhere before it. */
static bool name_skip(struct packet *p, size_t end)
{
    size_t at = p->at, length = 1, limit = p->at; /* pointers go below the limit, and so come to an end */
    bool jumped = false;

    for (;;) {
        if (at >= (jumped ? p->len : end))
            return false;
        unsigned label = p->bytes[at];
        if (label == 0)
            break;
        if (label >= 0xc0) {
            if (at + 2 > (jumped ? p->len : end))
                return false;
            size_t target = big_endian(p->bytes + at) & 0x3fff;
            if (target >= limit || target < HEADER_LEN)
                return false;
            if (!jumped)
                p->at = at + 2;
            jumped = true;
            at = limit = target;
            continue;
        }
        length += label + 1;
        if (label > 63 || length > NAME_MAX_2)
            return false;
        at += label + 1;
    }
    if (!jumped)
        p->at = at + 1;
    return true;
}

/* Strings with their lengths, to the last byte. */
static bool strings_good(const uint8_t *bytes, size_t len)
{
    size_t at = 0;

    while (at < len)
        at += 1 + (size_t)bytes[at];
    return at == len;
}

static bool data_good(struct packet *p, unsigned type, size_t len)
{
    size_t end = p->at + len;

    switch (type) {
    case TYPE_A:
        return len == 4;
    case TYPE_AAAA:
        return len == 16;
    case TYPE_TXT:
        return strings_good(p->bytes + p->at, len);
    case TYPE_SRV:
        p->at += 6;
        return len > 6 && name_skip(p, end) && p->at == end;
    case TYPE_NS:
    case TYPE_PTR:
        return name_skip(p, end) && p->at == end;
    case TYPE_CNAME:
    case TYPE_DNAME:
        return false;
    default:
        return true;
    }
}

static bool question_skip(struct packet *p)
{
    if (!name_skip(p, p->len) || p->len - p->at < 4)
        return false;
    p->at += 4;
    return true;
}

static bool record_skip(struct packet *p)
{
    if (!name_skip(p, p->len) || p->len - p->at < 10)
        return false;
    unsigned type = big_endian(p->bytes + p->at);
    size_t len = big_endian(p->bytes + p->at + 8);
    p->at += 10;
    if (p->len - p->at < len)
        return false;
    size_t end = p->at + len;
    if (!data_good(p, type, len))
        return false;
    p->at = end;
    return true;
}

bool mdns_packet_good(const uint8_t *bytes, size_t len)
{
    struct packet p = {bytes, len, HEADER_LEN};

    if (len < HEADER_LEN)
        return false;
    unsigned questions = big_endian(bytes + 4);
    unsigned records = big_endian(bytes + 6) + big_endian(bytes + 8) + big_endian(bytes + 10);
    for (unsigned i = 0; i < questions; i++)
        if (!question_skip(&p))
            return false;
    for (unsigned i = 0; i < records; i++)
        if (!record_skip(&p))
            return false;
    return true;
}
