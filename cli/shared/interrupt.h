/* SPDX-License-Identifier: Apache-2.0 */
/* A command that waits for other machines is left by Ctrl-C in good order: it says goodbye to the cluster. */
#ifndef CLI_INTERRUPT_H
#define CLI_INTERRUPT_H

#include <stdatomic.h>

#include <hearth.h>

#include "os/thread.h"

struct interrupt {
    hearth_node *node;
    int heard;
    struct thread thread;
    _Atomic(bool) over;
    _Atomic(int) number; /* of the signal that came; 0: none */
};

/* From now on SIGINT, SIGTERM and SIGHUP interrupt what waits at the node. False: no thread or descriptor. */
bool interrupt_begin(struct interrupt *interrupt, hearth_node *node);
bool interrupt_asked(struct interrupt *interrupt); /* one has come */
/* From now on they end the process again. The signal that came; 0: none. */
int interrupt_end(struct interrupt *interrupt);

#endif
