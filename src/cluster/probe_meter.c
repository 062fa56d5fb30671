/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the part of a burst in which the line runs at its own rate.
 *
 *     bytes            ,-'  <- end: the last mark but one. Before the last mark the line may have been idle.
 *       |           ,-'
 *       |        ,-'
 *       |     ,-'      <- first quarter: TCP starts slowly, a full token bucket runs ahead
 *       |  ,'
 *       +--------------- time
 *
 * The rest is cut into slices of equal bytes; the rate is their median: in some slices the line has not
 * settled yet, or TCP waits for a retransmission while a bucket fills up, but not in most. */
#include "cluster/probe_meter.h"

/* The wire carries more bytes than the payload: with an MTU of 1500, 1448 of 1514 bytes (or 1538, with
 * preamble and gap) are payload, and a record of 16 KiB has 22 more. Users know the rate of the line, so that
 * is reported. */
#define WIRE_PER_BYTE 1.055
#define BYTES_MIN     (64u * 1024) /* for a valid rate */
#define SLICES        9
#define MBIT_X10      1e-5 /* of a bit per second */

void meter_mark(struct meter *m, uint64_t bytes, uint64_t now_ns)
{
    uint64_t before = m->count > 0 ? m->marks[m->count - 1].bytes : 0;

    if (m->count < METER_MARKS_MAX && (m->count == 0 || bytes >= before + METER_STEP))
        m->marks[m->count++] = (struct meter_mark){now_ns, bytes};
}

struct slice {
    double bytes_per_s, bytes;
};

/* The first mark with at least so many bytes. */
static uint32_t reached(const struct meter *m, uint64_t bytes)
{
    uint32_t i = 0;
    while (i + 1 < m->count && m->marks[i].bytes < bytes)
        i++;
    return i;
}

/* Slices between two marks, the slowest first; returns their number, fewer where marks are rare. */
static int cut(const struct meter *m, uint32_t begin, uint32_t end, struct slice slices[static SLICES])
{
    uint64_t bytes = m->marks[end].bytes - m->marks[begin].bytes;
    uint32_t from = begin;
    int count = 0;

    for (int i = 1; i <= SLICES; i++) {
        uint32_t to = reached(m, m->marks[begin].bytes + bytes * (uint64_t)i / SLICES);
        uint64_t time_ns = m->marks[to].time_ns - m->marks[from].time_ns;
        if (to == from || time_ns == 0)
            continue;
        struct slice slice = {.bytes = (double)(m->marks[to].bytes - m->marks[from].bytes)};
        slice.bytes_per_s = slice.bytes * 1e9 / (double)time_ns;
        int at = count++;
        for (; at > 0 && slices[at - 1].bytes_per_s > slice.bytes_per_s; at--)
            slices[at] = slices[at - 1];
        slices[at] = slice;
        from = to;
    }
    return count;
}

/* The median: half of the bytes are in slices that are not faster; 0: no slices. */
static double median(const struct slice *slices, int count)
{
    double all = 0, below = 0;
    int i = 0;

    for (int k = 0; k < count; k++)
        all += slices[k].bytes;
    for (; i + 1 < count && below + slices[i].bytes < all / 2; i++)
        below += slices[i].bytes;
    return count > 0 ? slices[i].bytes_per_s : 0;
}

void meter_result(const struct meter *m, struct probe_result *result)
{
    struct slice slices[SLICES];

    *result = (struct probe_result){0};
    if (m->count < 2)
        return;
    uint32_t end = m->count - 1;
    if (m->count > 2 && m->marks[end - 1].bytes * 2 >= m->marks[end].bytes)
        end--; /* unless there are no marks in the second half */
    uint32_t begin = m->count > 2 ? reached(m, m->marks[end].bytes / 4) : 0;
    if (begin == end)
        begin--;
    result->bytes = m->marks[end].bytes - m->marks[begin].bytes;
    result->time_ns = m->marks[end].time_ns - m->marks[begin].time_ns;
    double bytes_per_s = median(slices, cut(m, begin, end, slices));
    if (result->bytes < BYTES_MIN || bytes_per_s <= 0)
        return;
    result->mbit_x10 = meter_mbit_x10(bytes_per_s);
}

uint32_t meter_mbit_x10(double bytes_per_s)
{
    double told = bytes_per_s * 8 * WIRE_PER_BYTE * MBIT_X10;
    return told >= UINT32_MAX ? UINT32_MAX : told < 1 ? 1 : (uint32_t)(told + 0.5);
}
