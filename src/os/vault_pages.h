/* SPDX-License-Identifier: Apache-2.0 */
/* Pages for keys and secrets, as private as the system makes them. security/vault.h hands them out. */
#pragma once

#include <stddef.h>

size_t vault_page(void); /* lengths are multiples of it */
/* Zero. On Linux: left out of core dumps, and zero again in a forked child. Kept from swap where the limit of
 * the user allows it, everywhere. NULL: the system has none. */
void *vault_pages_map(size_t len);
void vault_pages_unmap(void *pages, size_t len);
