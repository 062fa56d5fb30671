/* SPDX-License-Identifier: Apache-2.0 */
/* Small files that belong to one user: keys, secrets, and lists that nobody else may change. They are read
 * only where nobody else can have written or seen them, and written whole or not at all. */
#pragma once

#include "core/error.h"

#define PRIVATE_PATH_MAX 4096 /* of a path, with the final 0 */

enum private_kind {
    PRIVATE_SECRET, /* nobody else may read it */
    PRIVATE_LIST,   /* others may read it, and not write */
};

/* Reads a file whole: *len is the room at `target` and becomes the length. It must be a regular file of the
 * effective user that lets others do no more than its kind allows, and not longer than the room: else
 * HEARTH_INVALID, with the fix in the text. `missing` says whether that was because there is no such file.
 * HEARTH_SYSTEM: the system does not let us read it. Never waits, whatever stands at the path. */
int MUST_CHECK private_file_read(const char *path, enum private_kind kind, void *target, size_t *len,
                                 bool *missing, struct error *error);
/* The first bytes of an open descriptor, whose place stays: as above, but without rules for its owner and
 * mode. */
int MUST_CHECK private_file_read_fd(int fd, void *target, size_t *len, struct error *error);
void private_file_close_fd(int fd);

/* Writes a file with mode 0600, missing parents with 0700. At `path` the whole file appears at once, or
 * nothing: HEARTH_SYSTEM. Without `replace` a file that is there stays as it is: HEARTH_INVALID, and `there`
 * is set. */
int MUST_CHECK private_file_write(const char *path, const void *bytes, size_t len, bool replace, bool *there,
                                  struct error *error);

/* Whoever reads a file to write it again holds this meanwhile: on a file of its own, PATH.lock, which stays.
 * HEARTH_TIMEOUT: another process holds it and does not let go. */
int MUST_CHECK private_file_lock(const char *path, int *lock, struct error *error);
void private_file_unlock(int lock);

/* Differs where the file may have changed; a file that is missing has one too. */
#define STAMP_FACTS 9
struct private_stamp {
    bool exists;
    uint64_t facts[STAMP_FACTS]; /* identity, length, mode, owner, times: times alone are coarse */
};
int MUST_CHECK private_file_stamp(const char *path, struct private_stamp *stamp, struct error *error);
bool private_stamp_equal(const struct private_stamp *a, const struct private_stamp *b);
