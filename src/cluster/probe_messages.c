/* SPDX-License-Identifier: Apache-2.0 */
/* Encodes and decodes PROBE, MEASURED and LOAD. */
#include "cluster/probe_messages.h"

#define LOSS_MAX 1000000u

static size_t written(const struct writer *w, const void *target)
{
    return w->bad ? 0 : (size_t)(w->at - (const uint8_t *)target);
}

static bool bad(const char **what, const char *why)
{
    *what = why;
    return false;
}

/* ---- probe ---- */

size_t probe_order_encode(const struct probe_order *order, void *target, size_t size)
{
    struct writer w = writer_of(target, size);
    struct net_addr addr;
    bool known = order->addr.len > 0 && sock_addr_to_net(&order->addr, &addr);

    put_u32(&w, order->number);
    identity_put(&w, &order->to);
    put_u8(&w, known ? (uint8_t)net_addr_len(&addr) : 0);
    if (known)
        net_addr_put(&w, &addr);
    return written(&w, target);
}

bool probe_order_decode(struct probe_order *order, const void *source, size_t len, const char **what)
{
    struct reader r = reader_of(source, len);
    struct net_addr addr;

    *order = (struct probe_order){.number = get_u32(&r)};
    (void)identity_get(&r, &order->to);
    uint8_t addr_len = get_u8(&r);
    if (r.bad || reader_left(&r) != addr_len)
        return bad(what, "probe: wrong length");
    if (order->number == 0)
        return bad(what, "probe: no number");
    if (addr_len == 0)
        return true;
    if (!net_addr_get(&r, &addr) || reader_left(&r) > 0)
        return bad(what, "probe: invalid address");
    order->addr = sock_addr_of(&addr);
    return true;
}

/* ---- measured ---- */

size_t measured_encode(const struct measured *m, void *target, size_t size)
{
    struct writer w = writer_of(target, size);

    put_u32(&w, m->number);
    put_u8(&w, m->outcome);
    put_u8(&w, (uint8_t)m->count);
    put_u16(&w, 0);
    for (int i = 0; i < m->count; i++) {
        identity_put(&w, &m->paths[i].to);
        put_u32(&w, m->paths[i].mbit_x10);
        put_u32(&w, m->paths[i].round_trip_us);
        put_u32(&w, m->paths[i].loss_ppm);
        put_u8(&w, m->paths[i].kind);
        put_u8(&w, m->paths[i].how);
        put_u16(&w, 0);
    }
    return written(&w, target);
}

static bool path_get(struct reader *r, struct measured_path *path, const char **what)
{
    (void)identity_get(r, &path->to);
    path->mbit_x10 = get_u32(r);
    path->round_trip_us = get_u32(r);
    path->loss_ppm = get_u32(r);
    path->kind = get_u8(r);
    path->how = get_u8(r);
    if (get_u16(r) != 0 || r->bad || path->loss_ppm > LOSS_MAX || path->kind > PATH_OTHER ||
        path->how > MEASURED_TRAFFIC)
        return bad(what, "measured: field of a path out of range");
    if ((path->how == MEASURED_NOT) != (path->mbit_x10 == 0))
        return bad(what, "measured: a rate without its source, or a source without a rate");
    return true;
}

bool measured_decode(struct measured *m, const void *source, size_t len, const char **what)
{
    struct reader r = reader_of(source, len);

    m->number = get_u32(&r);
    m->outcome = get_u8(&r);
    m->count = get_u8(&r);
    uint16_t zero = get_u16(&r);
    if (r.bad || m->count > MEASURED_PATHS_MAX || reader_left(&r) != (size_t)m->count * 56)
        return bad(what, "measured: wrong length");
    if (zero != 0 || m->outcome > PROBE_NOT_NOW || (m->number == 0 && m->outcome != PROBE_DONE))
        return bad(what, "measured: field out of range");
    for (int i = 0; i < m->count; i++)
        if (!path_get(&r, &m->paths[i], what))
            return false;
    return true;
}

/* ---- load ---- */

void probe_result_encode(const struct probe_result *result, uint8_t target[static RESULT_LEN])
{
    struct writer w = writer_of(target, RESULT_LEN);

    put_u32(&w, LOAD_RESULT);
    put_u32(&w, result->mbit_x10);
    put_u64(&w, result->bytes);
    put_u64(&w, result->time_ns);
}

bool probe_result_decode(struct probe_result *result, const void *source, size_t len)
{
    struct reader r = reader_of(source, len);

    uint32_t what = get_u32(&r);
    result->mbit_x10 = get_u32(&r);
    result->bytes = get_u64(&r);
    result->time_ns = get_u64(&r);
    return !r.bad && reader_left(&r) == 0 && what == LOAD_RESULT;
}
