/* SPDX-License-Identifier: Apache-2.0 */
/* A line that is as slow as the user wants: all that a node sends goes through it, first come, first served.
 * A piece begins when the line is free and may leave when its last bit would have. So nothing leaves early,
 * and a late wake-up loses no time: the next piece begins where the last one ended. The holder of the baton
 * says what time it is. */
#pragma once

#include "core/types.h"

struct throttle {
    uint64_t rate;    /* bits a second; 0: no limit, and nothing here is asked */
    uint64_t now_ns;  /* as last said */
    uint64_t free_ns; /* when all that was let out has left */
    uint64_t rest;    /* what that lacks of a nanosecond, in bits / 10^9 of a second: never rounded away */
    uint64_t due_ns; /* the soonest time at which something that was held back may leave; NEVER_NS: nothing */
};

/* Where one link stands in the queue for the line; zero at first. */
struct throttle_place {
    size_t len;      /* bytes that it has asked for and not sent */
    uint64_t due_ns; /* when the line will have sent them */
};

void throttle_init(struct throttle *throttle, uint64_t rate);
void throttle_tick(struct throttle *throttle, uint64_t now_ns);
/* Before all that waits asks again. */
void throttle_ask_again(struct throttle *throttle);
/* Whether the link's next bytes, which have been there since then, may leave now. If not, it has a place in
 * the queue for them and asks again. True: they count as sent. */
bool throttle_pass(struct throttle *throttle, struct throttle_place *place, size_t len, uint64_t since_ns);
/* These bytes leave, whether the line is free or not: what comes after them waits longer. */
void throttle_push(struct throttle *throttle, size_t len);
/* How much is best let out at once where a long payload may leave in pieces. */
size_t throttle_piece(const struct throttle *throttle);
