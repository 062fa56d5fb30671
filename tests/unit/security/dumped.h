/* SPDX-License-Identifier: Apache-2.0 */
/* Looks through the memory of this process: what a core dump would hold, and what the system knows of a
 * page. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes that are looked for, each with all its bits turned over: so the search does not find itself. */
struct pattern {
    const char *name;
    uint8_t turned[128];
    size_t len;
};

void pattern_set(struct pattern *pattern, const char *name, const void *bytes, size_t len);
/* How often the pattern stands in memory that a core dump would hold. -1: this system does not tell. */
int dumped_count(const struct pattern *pattern);
/* Whether the page of this address has the two-letter flag of /proc/self/smaps. */
bool page_has_flag(const void *address, const char *flag);
