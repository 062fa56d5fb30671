/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a node's counters out of its metrics text. */
#ifndef CLI_COUNTER_H
#define CLI_COUNTER_H

#include <hearth.h>

/* The counter of this name, without labels; 0 if there is none. */
uint64_t counter_read(hearth_node *node, const char *name);

#endif
