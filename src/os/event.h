/* SPDX-License-Identifier: Apache-2.0 */
/* A descriptor that becomes readable: eventfd on Linux, a pair of sockets elsewhere. */
#pragma once

#include "core/types.h"

struct event {
    int read_fd, write_fd; /* equal with eventfd; -1 when closed. Close-on-exec, non-blocking */
};

int MUST_CHECK event_open(struct event *e); /* HEARTH_OK or HEARTH_SYSTEM */
/* Takes the end for writing of an event that another process made, for event_signal; also when it fails:
 * HEARTH_PROTOCOL, it is something else, which might stop or end whoever writes to it. */
int MUST_CHECK event_adopt(struct event *e, int fd);
void event_signal(struct event *e);
void event_clear(struct event *e); /* not readable any more */
void event_close(struct event *e); /* harmless when closed */
