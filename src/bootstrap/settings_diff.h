/* SPDX-License-Identifier: Apache-2.0 */
/* Texts about what members do not share: settings that differ, ranks that are missing. */
#pragma once

#include <stddef.h>

/* Of two lists of "name=value" with single spaces, in one order: "name=1 instead of name=2, ...". Always
 * terminated, cut with "..." where it does not fit. */
void settings_diff_text(const char *theirs, const char *ours, char *text, size_t size);
/* The places that are negative: "1, 3-5". */
void missing_text(const int *places, int count, char *text, size_t size);
