/* SPDX-License-Identifier: Apache-2.0 */
/* A thread that hears signals while another one waits in the library. */
#include "cli/shared/interrupt.h"

#include <poll.h>
#include <signal.h>

#include "cli/shared/signals.h"

#define LOOK_MS 20

static const int heard[] = {SIGINT, SIGTERM, SIGHUP};

static void listen_main(void *arg)
{
    struct interrupt *l = arg;
    while (!atomic_load(&l->over)) {
        struct pollfd item = {.fd = l->heard, .events = POLLIN};
        (void)poll(&item, 1, LOOK_MS);
        int number = signals_next();
        if (number)
            atomic_store(&l->number, number);
        if (atomic_load(&l->number))
            hearth_interrupt(l->node); /* again and again: the other thread may not wait yet */
    }
}

bool interrupt_begin(struct interrupt *l, hearth_node *node)
{
    *l = (struct interrupt){.node = node};
    l->heard = signals_open(heard, sizeof heard / sizeof *heard);
    if (l->heard >= 0 && thread_start(&l->thread, "hearth-leave", listen_main, l) == HEARTH_OK)
        return true;
    signals_close(heard, sizeof heard / sizeof *heard);
    return false;
}

bool interrupt_asked(struct interrupt *l)
{
    return atomic_load(&l->number) != 0;
}

int interrupt_end(struct interrupt *l)
{
    atomic_store(&l->over, true);
    thread_join(&l->thread);
    signals_close(heard, sizeof heard / sizeof *heard);
    int late = signals_next(); /* came while the thread ended */
    return late ? late : atomic_load(&l->number);
}
