/* SPDX-License-Identifier: Apache-2.0 */
/* How many handshakes a listener makes. Each costs a signature and an exchange of keys, and is made for every
 * peer with a right knock, even a recorded one. All are counted, to bound the load, and those of each source,
 * so that one source does not use up what others need. Pure: time is an argument. */
#pragma once

#include "core/types.h"

/* A full mesh of 64 members with 9 connections each comes to 567 at rank 0. */
#define ADMISSION_PER_S   64
#define ADMISSION_BURST   512
#define ADMISSION_RESERVE 128 /* beyond that burst, for sources that have not used up their share */
/* The share of one source: all that it gets with knocks that may have been heard elsewhere or long ago. */
#define ADMISSION_SHARE_PER_S 8
#define ADMISSION_SHARE_BURST 64
#define ADMISSION_SOURCES     64 /* that are remembered; the one that owes least is forgotten */

struct admission {
    uint64_t more;   /* at once than usual */
    uint64_t due_ns; /* when the last one that was let in is paid for */
    struct admission_source {
        uint64_t source;
        uint64_t due_ns;
    } sources[ADMISSION_SOURCES];
};

/* `more` handshakes at once than usual, of all and of each source. */
void admission_init(struct admission *admission, int more);
/* Whether one more may be made, and if so counts it. `source`: sock_addr_network; `weak`: KNOCK_WEAK. */
bool admission_take(struct admission *admission, uint64_t source, bool weak, uint64_t now_ns);
