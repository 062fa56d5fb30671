/* SPDX-License-Identifier: Apache-2.0 */
/* How many handshakes a member has under way at once. Members that all dial at once make each other slow: a
 * handshake that takes too long is closed by the other end, and its work was in vain. So a member begins with
 * a few, takes more as long as they go well, and half as many when they do not. Pure: time is an argument. */
#ifndef BOOTSTRAP_DIAL_WINDOW_H
#define BOOTSTRAP_DIAL_WINDOW_H

#include "core/types.h"

#define DIAL_WINDOW_FIRST 16
#define DIAL_WINDOW_MIN   4
#define DIAL_SLOW_NS      (1500 * NS_PER_MS) /* longer, round trips aside: somebody is overloaded */
#define DIAL_ROUND_TRIPS  8                  /* more than connect, handshake and greeting need */

struct dial_window {
    int size, max;
    bool careful;       /* it was too large once: it grows by one when all of it went well */
    int good;           /* since it last changed, while it is careful */
    uint64_t shrunk_ns; /* when */
};

void dial_window_init(struct dial_window *window, int max);
/* A dial that began then has led to a channel, or was cut by the other end. */
void dial_window_kept(struct dial_window *window, uint64_t began_ns, uint64_t now_ns, uint64_t round_trip_ns);
void dial_window_cut(struct dial_window *window, uint64_t began_ns, uint64_t now_ns);

#endif
