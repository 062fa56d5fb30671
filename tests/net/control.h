/* SPDX-License-Identifier: Apache-2.0 */
/* Lines that steer a running switch; README.md has the list. */
#pragma once

#include "net/fabric.h"

#define LINE_LEN   1024
#define WORDS_MAX  48
#define LATER_MAX  256
#define ANSWER_LEN (512 * 1024)

struct later {
    uint64_t at_ns;
    char line[LINE_LEN];
};

struct control {
    struct fabric *fabric;
    struct later later[LATER_MAX]; /* by time */
    size_t later_count;
};

/* Carries a line out and writes one line, `ok`, `ok ...` or `error ...`, without a newline. */
void control_line(struct control *control, const char *line, uint64_t now, FILE *answer);

/* Carries out what is due. What fails then is said on stderr. */
void control_run(struct control *control, uint64_t now);

/* When control_run has something to do, UINT64_MAX for never. */
uint64_t control_next(const struct control *control);
