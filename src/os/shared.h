/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that several processes see. It has no name anywhere, so nothing is left behind however they end:
 * it is handed over as a descriptor. */
#pragma once

#include "core/types.h"

size_t shared_page(void); /* lengths are multiples of it */

/* New memory of this length, zero, that can never shrink: HEARTH_OK, HEARTH_NO_MEMORY or HEARTH_SYSTEM. */
int MUST_CHECK shared_make(size_t len, int *fd);
/* Maps all of it; writable or only to read. NULL: refused, or it is not of this length, or could shrink under
 * us. */
void *shared_map(int fd, size_t len, bool writable);
/* Maps len bytes from `offset` twice, one after the other, so that a ring has no seam. */
void *shared_map_ring(int fd, size_t offset, size_t len);
void shared_unmap(void *memory, size_t len); /* a ring: twice its length; NULL is allowed */
void shared_close(int fd);
