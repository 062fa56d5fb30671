/* SPDX-License-Identifier: Apache-2.0 */
/* Operations on device memory. A staged operation has a stand-in, which runs on host memory; the user's
 * request is another one, which ends when the results are on the device:
 *
 *   staging_open   gives host memory; staging_in and staging_out say what is copied where
 *   the caller     starts the stand-in on that memory, with staging_ended and the staging as its callback
 *   staging_go     the copier copies in, and `offer` hears how far it is; the stand-in ends; the copier
 *                  copies out; the user's request ends
 *
 * The stand-in takes its number when the user calls, so that operations keep their order; it waits for its
 * input itself (struct call: held). Cancelling and closing end the stand-in, and with it the rest. */
#pragma once

#include "node/copier.h"

/* So many bytes of the input are in place, from its beginning; SIZE_MAX: all. Called by the copier. */
typedef void staging_offer_fn(hearth_request *stand_in, size_t len);

struct staging_setup {
    hearth_group *group;
    const struct hearth_memory *memory;
    const char *name;     /* of the call, for texts; static */
    uint64_t tag;         /* under which the others are told if it cannot begin */
    size_t len;           /* host memory */
    size_t ranges;        /* of staging_in and of staging_out at most */
    hearth_done_fn *done; /* the user's */
    void *done_arg;
    staging_offer_fn *offer;
};

struct staging;

/* The host memory is aligned to HEAP_ALIGN. HEARTH_NO_MEMORY or HEARTH_CLOSED, with a text; the other members
 * are told. */
int MUST_CHECK staging_open(const struct staging_setup *setup, struct staging **out, void **host,
                            struct error *error);
void staging_in(struct staging *staging, const void *device, void *host, size_t len);
void staging_out(struct staging *staging, void *device, const void *host, size_t len);
/* The stand-in's callback; its argument is the staging. */
void staging_ended(void *staging, int status);
/* The stand-in has started; the staging frees itself in the end. *request is the user's. */
void staging_go(struct staging *staging, hearth_request *stand_in, hearth_request **request);
void staging_drop(struct staging *staging); /* instead: the stand-in did not start */

/* A range of user memory. */
struct call_region {
    const uint8_t *at;
    size_t len;
};

/* The source of a call in host memory, in pieces in their order, and where in device memory they come from;
 * `out`: and where they go in the end. It is copied. */
struct staged_ranges {
    const struct hearth_memory *memory;
    const struct copy_range *ranges;
    size_t count;
    bool out;
};

/* Starts a checked collective on host memory that the caller has; its source comes from device memory. */
int MUST_CHECK staging_start_ranges(hearth_group *group, const struct call *call,
                                    const struct staged_ranges *staged, hearth_request **request);
/* Starts a checked collective whose buffers are device memory. */
int MUST_CHECK staging_start(hearth_group *group, const struct call *call, const struct hearth_memory *memory,
                             const struct call_region *source, const struct call_region *target,
                             hearth_request **request);
