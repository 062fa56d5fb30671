/* SPDX-License-Identifier: Apache-2.0 */
/* The line that is slow on purpose. */
#include "transport/throttle.h"

#include <assert.h>

#define LATE_NS   (20 * NS_PER_MS) /* who wakes up later than this does not catch up with all of it */
#define PIECE_NS  NS_PER_MS        /* of the line's time: short bursts, and not too many of them */
#define PIECE_MIN 4096u
#define PIECE_MAX (1u << 20)
#define LEN_MAX   (1u << 30) /* bits times 10^9 stay within 64 bits */

void throttle_init(struct throttle *throttle, uint64_t rate)
{
    *throttle = (struct throttle){.rate = rate, .due_ns = NEVER_NS};
}

void throttle_tick(struct throttle *throttle, uint64_t now_ns)
{
    throttle->now_ns = now_ns;
}

void throttle_ask_again(struct throttle *throttle)
{
    throttle->due_ns = NEVER_NS;
}

/* The line has nothing to do before `start_ns`. */
static void idle_until(struct throttle *throttle, uint64_t start_ns)
{
    if (throttle->free_ns >= start_ns)
        return;
    throttle->free_ns = start_ns;
    throttle->rest = 0;
}

static uint64_t before(uint64_t now_ns, uint64_t span_ns)
{
    return now_ns > span_ns ? now_ns - span_ns : 0;
}

static void add(struct throttle *throttle, size_t len)
{
    assert(len <= LEN_MAX);
    uint64_t work = (uint64_t)len * 8 * NS_PER_S + throttle->rest;
    throttle->free_ns += work / throttle->rate;
    throttle->rest = work % throttle->rate;
}

bool throttle_pass(struct throttle *throttle, struct throttle_place *place, size_t len, uint64_t since_ns)
{
    if (place->len < len) {
        idle_until(throttle, since_ns);
        idle_until(throttle, before(throttle->now_ns, LATE_NS));
        add(throttle, len - place->len);
        *place = (struct throttle_place){.len = len, .due_ns = throttle->free_ns};
    }
    if (place->due_ns > throttle->now_ns) {
        throttle->due_ns = place->due_ns < throttle->due_ns ? place->due_ns : throttle->due_ns;
        return false;
    }
    place->len -= len;
    return true;
}

void throttle_push(struct throttle *throttle, size_t len)
{
    idle_until(throttle, before(throttle->now_ns, LATE_NS));
    add(throttle, len);
}

size_t throttle_piece(const struct throttle *throttle)
{
    uint64_t len = throttle->rate / 8 * PIECE_NS / NS_PER_S;
    return len < PIECE_MIN ? PIECE_MIN : len > PIECE_MAX ? PIECE_MAX : len;
}
