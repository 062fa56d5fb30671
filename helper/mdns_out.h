/* SPDX-License-Identifier: Apache-2.0 */
/* What the helper writes: lines, never waiting for the reader, and each warning once. */
#pragma once

#include <avahi-common/watch.h>

#include "discovery/mdns_line.h"

#define OUT_BYTES_MAX 1048576 /* that wait for a reader; beyond that we end */
#define OUT_WARNED    64      /* sources of rubbish that are named */

struct mdns_out {
    const AvahiPoll *poll;
    AvahiWatch *watch;
    int fd;
    char *bytes; /* [OUT_BYTES_MAX] */
    size_t len;
    bool broken; /* the reader is gone */
    uint64_t warned[OUT_WARNED];
    int warned_count;
};

bool out_init(struct mdns_out *out, const AvahiPoll *poll, int fd);
void out_fini(struct mdns_out *out);                               /* writes what goes at once */
void out_line(struct mdns_out *out, const char *line, size_t len); /* with its newline */
/* Once for each `source`. */
void out_warn(struct mdns_out *out, const char *source, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
