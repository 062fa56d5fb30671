/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers as people read them, and colour where there is a terminal for it. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct text {
    char s[32];
};

struct text text_bytes(double bytes);       /* "4 B", "1.75 MiB" */
struct text text_time(double seconds);      /* "12.3 us", "1.68 s"; "-" if not finite */
struct text text_rate(double bytes_per_s);  /* "1 Gbit/s" */
struct text text_speed(double bytes_per_s); /* "8.4 GB/s" */
struct text text_count(uint64_t count);     /* "1,998,000" */
struct text text_ratio(double ratio);       /* "0.84", "12.7", "12,340" */
struct text text_share(double share);       /* "99.4 %" */

struct text text_exact(bool good); /* "yes", or "NO" in red */

enum paint { PAINT_NONE, PAINT_BOLD, PAINT_DIM, PAINT_GOOD, PAINT_BAD };
/* The escape sequence; "" when `file` is no terminal, NO_COLOR is set or the terminal is dumb. */
const char *paint(FILE *file, enum paint what);
/* A line of its own after an empty one, painted. */
void print_title(enum paint what, const char *format, ...) __attribute__((format(printf, 2, 3)));
