/* SPDX-License-Identifier: Apache-2.0 */
/* The ratio of topk and randomk: read from text and written as text, the same in every locale, and taken of a
 * count as the decimal number that people wrote: 0.07 of 100 is 7, though the nearest double is more than
 * 0.07. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RATIO_MIN      1e-20
#define RATIO_TEXT_MAX 32 /* with its final 0 */

/* "0.01", "1e-3", "1": the double nearest to it. False: not such a number, not in RATIO_MIN..1, or of more
 * than 18 digits. */
bool ratio_parse(const char *text, size_t len, double *ratio);
/* The shortest number that ratio_parse reads as this ratio. */
void ratio_text(double ratio, char text[RATIO_TEXT_MAX]);
/* ceil(count * ratio), exactly, of the number that ratio_text writes. At most count. */
size_t ratio_of(double ratio, size_t count);
