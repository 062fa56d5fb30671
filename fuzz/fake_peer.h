/* SPDX-License-Identifier: Apache-2.0 */
/* A connection whose other end says what a fuzzer gives it, and hears nothing. */
#pragma once

#include <stdlib.h>
#include <string.h>

#include "transport/link.h"

static inline void must(bool condition)
{
    if (!condition)
        abort();
}

struct fake {
    struct conn conn;
    uint8_t in[1 << 14];
    size_t in_at, in_len;
    size_t piece; /* bytes a call moves at most */
    bool full, gone;
    uint64_t sequence;
};

static inline ssize_t fake_send(struct conn *conn, const struct iovec *pieces, int count)
{
    struct fake *fake = (struct fake *)conn;
    size_t len = 0;
    for (int i = 0; i < count; i++)
        len += pieces[i].iov_len;
    if (fake->gone)
        return HEARTH_PEER_LOST;
    return fake->full ? 0 : (ssize_t)(len < fake->piece ? len : fake->piece);
}

static inline ssize_t fake_recv(struct conn *conn, void *target, size_t len_max)
{
    struct fake *fake = (struct fake *)conn;
    size_t len = fake->in_len - fake->in_at;
    len = len < len_max ? len : len_max;
    len = len < fake->piece ? len : fake->piece;
    memcpy(target, fake->in + fake->in_at, len);
    fake->in_at += len;
    return len == 0 && fake->gone ? HEARTH_PEER_LOST : (ssize_t)len;
}

static inline void fake_close(struct conn *conn)
{
    ((struct fake *)conn)->gone = true;
}

static inline int fake_descriptor(const struct conn *conn)
{
    (void)conn;
    return -1;
}

static inline void fake_attend(struct conn *conn)
{
    (void)conn;
}

static inline void fake_doze(struct conn *conn, bool asleep, bool want_room)
{
    (void)conn;
    (void)asleep;
    (void)want_room;
}

static const struct transport fake_transport = {
    .scheme = "fake",
    .send = fake_send,
    .recv = fake_recv,
    .close = fake_close,
    .descriptor = fake_descriptor,
    .attend = fake_attend,
    .doze = fake_doze,
};

static inline void fake_put(struct fake *fake, const void *bytes, size_t len)
{
    if (fake->in_at == fake->in_len)
        fake->in_at = fake->in_len = 0;
    if (len > sizeof fake->in - fake->in_len)
        return;
    if (len > 0)
        memcpy(fake->in + fake->in_len, bytes, len);
    fake->in_len += len;
}
