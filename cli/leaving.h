/* SPDX-License-Identifier: Apache-2.0 */
/* A command that waits for other machines is left by Ctrl-C in good order: it says goodbye to the cluster. */
#ifndef CLI_LEAVING_H
#define CLI_LEAVING_H

#include <stdatomic.h>

#include <hearth.h>

#include "os/thread.h"

struct leaving {
    hearth_node *node;
    int heard;
    struct thread thread;
    _Atomic(bool) over;
    _Atomic(int) number; /* of the signal that came; 0: none */
};

/* From now on SIGINT, SIGTERM and SIGHUP interrupt what waits at the node. False: no thread or descriptor. */
bool leaving_begin(struct leaving *leaving, hearth_node *node);
bool leaving_asked(struct leaving *leaving); /* one has come */
/* From now on they end the process again. The signal that came; 0: none. */
int leaving_end(struct leaving *leaving);

#endif
