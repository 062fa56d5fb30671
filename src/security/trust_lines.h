/* SPDX-License-Identifier: Apache-2.0 */
/* What stands in a trust file, as pure functions over its text. Each line is `allow ID name`, `revoke ID
 * name`, blank, or a comment that begins with '#'. ID is a node id of 64 hexadecimal digits; the name is for
 * people and may be missing. */
#pragma once

#include "security/trust_list.h"

#define TRUST_LINE_MAX 160 /* of a line that we write, with its new line and a final 0 */

/* Reads all lines: fills up to `room` entries and counts them all. NULL, or what is wrong with the line whose
 * number (from 1) is in *line then. */
const char *trust_lines_parse(const char *text, size_t len, struct trust_entry *entries, int room, int *count,
                              int *line);

/* Copies a text that trust_lines_parse takes, with the entry of this id in place of all that it has of it,
 * else at its end; NULL: without. Comments stay. `target` has room for len + TRUST_LINE_MAX bytes; gives the
 * new length. */
size_t trust_lines_edit(const char *text, size_t len, const struct node_id *id,
                        const struct trust_entry *entry, char *target);
