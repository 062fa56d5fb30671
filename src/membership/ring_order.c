/* SPDX-License-Identifier: Apache-2.0 */
/* A ring order as bytes, for the members of a group that adopt it. */
#include <string.h>

#include "core/bytes.h"
#include "membership/topology.h"

#define MAGIC UINT32_C(0x50414448) /* "HDAP" */

void ring_order_encode(const struct ring_order *a, uint8_t target[static RING_ORDER_LEN])
{
    struct writer w = writer_of(target, RING_ORDER_LEN);

    put_u32(&w, MAGIC);
    put_u8(&w, (uint8_t)a->size);
    put_u8(&w, (uint8_t)a->sites);
    put_u16(&w, 0);
    put_u32(&w, a->inside_mbit_x10);
    put_u32(&w, a->across_mbit_x10);
    put_u32(&w, a->inside_us);
    put_u32(&w, a->across_us);
    for (int i = 0; i < VIEW_MEMBERS_MAX; i++)
        put_u8(&w, i < a->size ? (uint8_t)a->order[i] : 0);
    for (int i = 0; i < VIEW_MEMBERS_MAX; i++)
        put_u8(&w, i < a->size ? (uint8_t)a->site[i] : 0);
}

/* Each member once; sites 0, 1, ... in this order. */
static bool places_good(const struct ring_order *a)
{
    bool seen[VIEW_MEMBERS_MAX] = {false};

    for (int i = 0; i < a->size; i++) {
        int step = a->site[i] - (i > 0 ? a->site[i - 1] : 0);
        if (a->order[i] >= a->size || seen[a->order[i]] || step < 0 || step > (i > 0))
            return false;
        seen[a->order[i]] = true;
    }
    return a->sites == (a->size > 0 ? a->site[a->size - 1] + 1 : 0);
}

static bool rest_is_zero(const struct ring_order *a)
{
    int sum = 0;

    for (int i = a->size; i < VIEW_MEMBERS_MAX; i++)
        sum += a->order[i] + a->site[i];
    return sum == 0;
}

int ring_order_decode(struct ring_order *a, const uint8_t source[static RING_ORDER_LEN], int size)
{
    struct reader r = reader_of(source, RING_ORDER_LEN);

    memset(a, 0, sizeof *a);
    bool ours = get_u32(&r) == MAGIC;
    a->size = get_u8(&r);
    a->sites = get_u8(&r);
    bool reserved = get_u16(&r) != 0;
    a->inside_mbit_x10 = get_u32(&r);
    a->across_mbit_x10 = get_u32(&r);
    a->inside_us = get_u32(&r);
    a->across_us = get_u32(&r);
    for (int i = 0; i < VIEW_MEMBERS_MAX; i++)
        a->order[i] = get_u8(&r);
    for (int i = 0; i < VIEW_MEMBERS_MAX; i++)
        a->site[i] = get_u8(&r);
    if (!ours || reserved || a->size > VIEW_MEMBERS_MAX || (a->size != size && a->size != 0))
        return HEARTH_PROTOCOL;
    return places_good(a) && rest_is_zero(a) ? HEARTH_OK : HEARTH_PROTOCOL;
}
