/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of the system. Shared memory and memory files have no name anywhere, so nothing is left behind
 * however processes end: they are handed over as descriptors. */
#pragma once

#include "core/types.h"

size_t memory_page(void); /* lengths of shared memory and private pages are multiples of it */

/* New memory of this length, zero, that can never shrink: HEARTH_OK, HEARTH_NO_MEMORY or HEARTH_SYSTEM. */
int MUST_CHECK shared_make(size_t len, int *fd);
/* Maps all of it; writable or only to read. NULL: refused, or it is not of this length, or could shrink under
 * us. */
void *shared_map(int fd, size_t len, bool writable);
/* Maps len bytes from `offset` twice, one after the other, so that a ring has no seam. */
void *shared_map_ring(int fd, size_t offset, size_t len);
void shared_unmap(void *memory, size_t len); /* a ring: twice its length; NULL is allowed */
void shared_close(int fd);

/* A file with a few bytes for a child process: unlike arguments and environment they are seen only by holders
 * of the descriptor. That is above the standard ones, at the beginning of the bytes, and closed by exec until
 * it is handed on. HEARTH_OK or HEARTH_SYSTEM. Where the system allows it, the bytes cannot be changed. */
int MUST_CHECK memory_file_make(const void *bytes, size_t len, int *fd);
/* From now on exec leaves it open. Safe between fork and exec. */
int MUST_CHECK memory_file_hand_on(int fd);

/* Pages for keys and secrets (security/vault.h), zero. On Linux: left out of core dumps, and zero again in a
 * forked child. Everywhere: kept from swap where the user's limit allows it. NULL: the system has none. */
void *private_pages_map(size_t len);
void private_pages_unmap(void *pages, size_t len);
