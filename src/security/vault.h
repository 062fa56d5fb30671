/* SPDX-License-Identifier: Apache-2.0 */
/* Memory for keys and secrets: left out of core dumps, not handed to forked children, kept from swap where
 * the system lets us, and wiped when it is given back. One or more pages each: for a few small things. */
#pragma once

#include <stddef.h>

void *vault_alloc(size_t len); /* zero; NULL: the system has none */
void vault_free(void *memory); /* wiped first; NULL is allowed */
/* Wipes memory that goes on living: a buffer on the stack, a text that was read. Is never left out by the
 * compiler. */
void wipe(void *memory, size_t len);
/* Wipes the part of the stack that functions called before this one have left: libraries compute with keys
 * there and do not clean up. To be called from where they were called. */
void wipe_stack(void);
