/* SPDX-License-Identifier: Apache-2.0 */
/* Which nodes may join, beside having the secret: a file of node ids that are allowed or revoked. With no
 * allowed ids every node that has the secret may; with one or more, only they. A revoked id never may. The
 * file belongs to a stored secret and lies beside it. Each line is `allow ID name`, `revoke ID name`, blank,
 * or a comment that begins with '#'. ID is a node id of 64 hexadecimal digits; the name is for people and may
 * be missing. */
#pragma once

#include "core/heap.h"
#include "security/node_key.h"

#define TRUST_ENTRIES_MAX 4096
#define TRUST_NAME_MAX    64 /* of an entry, for people, with the final 0; may be empty */

enum trust_verdict {
    TRUST_YES,
    TRUST_REVOKED,  /* its id was removed */
    TRUST_UNLISTED, /* there is a list of allowed ids, and it is not on it */
};

struct trust_entry {
    struct node_id id;
    bool revoked;
    char name[TRUST_NAME_MAX];
};

struct trust_list;

/* A file that is not there is an empty list; it is looked for again by trust_list_refresh. NULL path: empty
 * for good. */
int MUST_CHECK trust_list_open(struct heap *heap, const char *path, struct trust_list **out,
                               struct error *error);
/* A list of the same file with the entries that `from` has now, also if the file is not there at the moment.
 * Any thread may do this while the owner of `from` refreshes it. */
int MUST_CHECK trust_list_copy(struct trust_list *from, struct heap *heap, struct trust_list **out,
                               struct error *error);
const char *trust_list_path(const struct trust_list *list); /* NULL: none */
void trust_list_close(struct trust_list *list);             /* NULL is allowed */
/* Looks whether the file has changed (a stat, no more) and reads it again. HEARTH_OK: changed, and read.
 * HEARTH_PENDING: as before. Else the list stays what it was, and the error says why, once: also if a file
 * that was read is missing now. Nothing but a file that says less lifts a revocation. */
int MUST_CHECK trust_list_refresh(struct trust_list *list, struct error *error);
enum trust_verdict trust_list_judge(const struct trust_list *list, const struct node_id *id);
const char *trust_verdict_text(enum trust_verdict verdict); /* "its key was revoked (hearth trust)" */

int trust_list_count(const struct trust_list *list);
const struct trust_entry *trust_list_entry(const struct trust_list *list, int index);
/* Changes one entry and writes the file, whole or not at all; concurrent changes all take effect.
 * `entry` NULL: forgets the id. */
int MUST_CHECK trust_list_set(struct trust_list *list, const struct node_id *id,
                              const struct trust_entry *entry, struct error *error);

/* ---- the text of the file, without I/O ---- */

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
