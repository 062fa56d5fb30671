/* SPDX-License-Identifier: Apache-2.0 */
/* How far a long command is: a bar on a terminal, a few plain lines elsewhere; always on standard error. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* One thread at a time. */
struct progress {
    char label[48];
    bool terminal;
    bool drawn;  /* something stands in the terminal's last line */
    int quarter; /* last plain line said, in quarters */
    uint64_t start_ns, next_ns;
};

void progress_start(struct progress *p, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* share: 0..1. Cheap to call often. Nothing is shown in the first moments, so that short work stays quiet. */
void progress_show(struct progress *p, double share);
/* Takes the bar away, so that ordinary output can follow. The bar may be shown again. */
void progress_hide(struct progress *p);
