/* SPDX-License-Identifier: Apache-2.0 */
/* A descriptor that becomes readable: eventfd on Linux, a pair of sockets elsewhere. */
#pragma once

#include "core/types.h"

struct event {
    int read_fd, write_fd; /* equal with eventfd; -1 when closed. Close-on-exec, non-blocking */
};

int MUST_CHECK event_open(struct event *e); /* HEARTH_OK or HEARTH_SYSTEM */
/* Takes over the writing end of an event that another process made, for event_signal; also on failure:
 * HEARTH_PROTOCOL, the descriptor is something else, which might block or kill its writer. */
int MUST_CHECK event_adopt(struct event *e, int fd);
void event_signal(struct event *e);
void event_clear(struct event *e); /* not readable any more */
void event_close(struct event *e); /* harmless when closed */
