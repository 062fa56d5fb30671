/* SPDX-License-Identifier: Apache-2.0 */
/* How far a long command is: a bar on a terminal, a few plain lines elsewhere; always on standard error. */
#include "cli/shared/progress.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/shared/text.h"
#include "core/types.h"
#include "os/clock.h"

#define BAR_WIDTH 30
#define QUIET_NS  (300 * NS_PER_MS) /* no bar before this */
#define PLAIN_NS  (2 * NS_PER_S)    /* no plain line before this */
#define REDRAW_NS (100 * NS_PER_MS)

void progress_start(struct progress *p, const char *format, ...)
{
    va_list args;
    const char *term = getenv("TERM");
    *p = (struct progress){.terminal = isatty(STDERR_FILENO) && term && strcmp(term, "dumb") != 0};
    p->start_ns = clock_real();
    p->next_ns = p->start_ns + (p->terminal ? QUIET_NS : PLAIN_NS);
    va_start(args, format);
    vsnprintf(p->label, sizeof p->label, format, args);
    va_end(args);
}

static void draw(struct progress *p, double share, double elapsed_s)
{
    char bar[BAR_WIDTH + 1], left[48] = "";
    int full = (int)(share * BAR_WIDTH);
    for (int i = 0; i < BAR_WIDTH; i++)
        bar[i] = i < full ? '#' : '.';
    bar[BAR_WIDTH] = 0;
    if (share > 0.02)
        snprintf(left, sizeof left, "%s left", text_time(elapsed_s / share * (1 - share)).s);
    fprintf(stderr, "\r%-20s [%s] %3d %%  %s\033[K", p->label, bar, (int)(share * 100), left);
    fflush(stderr);
    p->drawn = true;
}

void progress_show(struct progress *p, double share)
{
    uint64_t now = clock_real();
    if (now < p->next_ns)
        return;
    double elapsed_s = (double)(now - p->start_ns) / (double)NS_PER_S;
    share = share < 0 ? 0 : share > 1 ? 1 : share;
    if (p->terminal) {
        draw(p, share, elapsed_s);
        p->next_ns = now + REDRAW_NS;
    } else if ((int)(share * 4) > p->quarter && share < 1) {
        p->quarter = (int)(share * 4);
        fprintf(stderr, "%s: %d %% after %s\n", p->label, p->quarter * 25, text_time(elapsed_s).s);
    }
}

void progress_hide(struct progress *p)
{
    if (!p->drawn)
        return;
    fprintf(stderr, "\r\033[K");
    fflush(stderr);
    p->drawn = false;
}
