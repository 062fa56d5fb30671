/* SPDX-License-Identifier: Apache-2.0 */
/* The bounded reader and writer. */
#include "core/bytes.h"

#include <string.h>

struct reader reader_of(const void *bytes, size_t len)
{
    const uint8_t *at = bytes;
    return (struct reader){.at = at, .end = len > 0 ? at + len : at};
}

struct writer writer_of(void *bytes, size_t len)
{
    uint8_t *at = bytes;
    return (struct writer){.at = at, .end = len > 0 ? at + len : at, .start = at};
}

size_t reader_left(const struct reader *r)
{
    return r->bad ? 0 : (size_t)(r->end - r->at);
}

/* The next len bytes, or NULL. */
static const uint8_t *reader_take(struct reader *r, size_t len)
{
    if (len > reader_left(r)) {
        r->bad = true;
        return NULL;
    }
    const uint8_t *bytes = r->at;
    r->at += len;
    return bytes;
}

uint8_t get_u8(struct reader *r)
{
    const uint8_t *bytes = reader_take(r, 1);
    return bytes ? *bytes : 0;
}

uint16_t get_u16(struct reader *r)
{
    const uint8_t *bytes = reader_take(r, 2);
    return bytes ? load_u16(bytes) : 0;
}

uint32_t get_u32(struct reader *r)
{
    const uint8_t *bytes = reader_take(r, 4);
    return bytes ? load_u32(bytes) : 0;
}

uint64_t get_u64(struct reader *r)
{
    const uint8_t *bytes = reader_take(r, 8);
    return bytes ? load_u64(bytes) : 0;
}

double get_f64(struct reader *r)
{
    const uint8_t *bytes = reader_take(r, 8);
    return bytes ? load_f64(bytes) : 0;
}

void get_bytes(struct reader *r, void *target, size_t len)
{
    if (len == 0)
        return;
    const uint8_t *bytes = reader_take(r, len);
    if (bytes)
        memcpy(target, bytes, len);
    else
        memset(target, 0, len);
}

/* Room for len more bytes, or NULL. */
static uint8_t *writer_take(struct writer *w, size_t len)
{
    if (w->bad || len > (size_t)(w->end - w->at)) {
        w->bad = true;
        return NULL;
    }
    uint8_t *bytes = w->at;
    w->at += len;
    return bytes;
}

void put_u8(struct writer *w, uint8_t v)
{
    uint8_t *bytes = writer_take(w, 1);
    if (bytes)
        *bytes = v;
}

void put_u16(struct writer *w, uint16_t v)
{
    uint8_t *bytes = writer_take(w, 2);
    if (bytes)
        store_u16(bytes, v);
}

void put_u32(struct writer *w, uint32_t v)
{
    uint8_t *bytes = writer_take(w, 4);
    if (bytes)
        store_u32(bytes, v);
}

void put_u64(struct writer *w, uint64_t v)
{
    uint8_t *bytes = writer_take(w, 8);
    if (bytes)
        store_u64(bytes, v);
}

void put_f64(struct writer *w, double v)
{
    uint8_t *bytes = writer_take(w, 8);
    if (bytes)
        store_f64(bytes, v);
}

void put_bytes(struct writer *w, const void *source, size_t len)
{
    if (len == 0)
        return;
    uint8_t *bytes = writer_take(w, len);
    if (bytes)
        memcpy(bytes, source, len);
}

size_t writer_len(const struct writer *w)
{
    return w->bad ? 0 : (size_t)(w->at - w->start);
}
