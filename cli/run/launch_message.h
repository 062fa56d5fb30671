/* SPDX-License-Identifier: Apache-2.0 */
/* What a message of launch_stream.h says, checked. Both ends of a launch read messages by this: a host whose
 * agent was replaced must not reach further than its own rank. */
#ifndef CLI_LAUNCH_MESSAGE_H
#define CLI_LAUNCH_MESSAGE_H

#include "cli/run/launch_stream.h"

#define LAUNCH_REASON_MAX 512

struct launch_message {
    int kind;          /* enum launch_kind; LAUNCH_NONE: one that we do not know */
    const char *bytes; /* content of DIR, VAR, ARG (no 0 inside), SECRET, INPUT, OUT, ERR */
    size_t len;
    int number;                     /* GO, TAKEN: 0 or 1; SIGNAL: enum launch_signal; PID: above 1;
                                       FAILED (never 0), END: exit code */
    int signal;                     /* END: that killed it, 0: none */
    char reason[LAUNCH_REASON_MAX]; /* FAILED: printable */
};

/* false: the message breaks the protocol; whoever sent it is to be given up. */
bool launch_message_read(const struct launch_frame *frame, struct launch_message *out);

#endif
