/* SPDX-License-Identifier: Apache-2.0 */
/* Ties between processes by prctl of Linux; the portable twin ties nothing. */
#include "os/leash.h"

#include <unistd.h>

#if defined(__linux__) && !defined(HEARTH_POSIX)

#include <signal.h>
#include <sys/prctl.h>

bool leash_tie(int parent)
{
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    return getppid() == parent; /* it may have ended before we asked */
}

bool leash_tie_gently(int parent)
{
    (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
    return getppid() == parent;
}

void leash_inherit(void)
{
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1);
}

#else

bool leash_tie(int parent)
{
    return getppid() == parent;
}

bool leash_tie_gently(int parent)
{
    return getppid() == parent;
}

void leash_inherit(void)
{
}

#endif
