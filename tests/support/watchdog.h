/* SPDX-License-Identifier: Apache-2.0 */
/* Ends a test program that hangs, with a word about where, so that no suite waits for its time limit. */
#pragma once

/* From now on `what` (static memory) may take this long; 0 calls the dog off. Be generous. */
void watchdog(unsigned seconds, const char *what);

/* How often a test repeats its random part: `usual`, or what HEARTH_TEST_REPEAT says. */
unsigned long repeat_count(unsigned long usual);
/* Where its seeds begin: 1, or what HEARTH_TEST_SEED says. */
unsigned long first_seed(void);
