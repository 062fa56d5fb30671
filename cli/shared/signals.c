/* SPDX-License-Identifier: Apache-2.0 */
/* Signals as bytes of a pipe, so that a loop around poll hears them like anything else. */
#include "cli/shared/signals.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#define SIGNALS_LAST 31 /* the plain ones; those for real time are not used here */

static int ends[2] = {-1, -1}; /* a handler gets no argument */

static void hear(int number)
{
    int saved = errno;
    unsigned char byte = (unsigned char)number;
    ssize_t written = write(ends[1], &byte, 1); /* full: there is enough to wake up for */
    (void)written;
    errno = saved;
}

static void set_all(const int *list, size_t count, void (*handler)(int))
{
    struct sigaction action = {.sa_handler = handler},
                     old; /* no SA_RESTART: a blocked write must come back */
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < count; i++) {
        bool kept = (list[i] == SIGINT || list[i] == SIGHUP) && sigaction(list[i], NULL, &old) == 0 &&
                    old.sa_handler == SIG_IGN;
        if (!kept)
            sigaction(list[i], &action, NULL);
    }
}

bool pipe_open(int both[2])
{
    if (pipe(both) != 0)
        return false;
    fcntl(both[0], F_SETFD, FD_CLOEXEC);
    fcntl(both[1], F_SETFD, FD_CLOEXEC);
    return true;
}

int signals_open(const int *list, size_t count)
{
    if (ends[0] >= 0) {
        close(ends[0]);
        close(ends[1]);
        ends[0] = ends[1] = -1;
    }
    if (!pipe_open(ends))
        return -1;
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    fcntl(ends[1], F_SETFL, O_NONBLOCK);
    set_all(list, count, hear);
    return ends[0];
}

int signals_next(void)
{
    unsigned char byte;
    return read(ends[0], &byte, 1) == 1 ? byte : 0;
}

void signals_close(const int *list, size_t count)
{
    set_all(list, count, SIG_DFL);
}

void signals_reset(void)
{
    struct sigaction action = {.sa_handler = SIG_DFL};
    sigset_t none;
    sigemptyset(&none);
    sigemptyset(&action.sa_mask);
    for (int number = 1; number <= SIGNALS_LAST; number++)
        sigaction(number, &action, NULL); /* KILL and STOP refuse, which is right */
    sigprocmask(SIG_SETMASK, &none, NULL);
}
