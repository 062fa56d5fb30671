/* SPDX-License-Identifier: Apache-2.0 */
/* Ties between processes, where the system has them: a child that ends with its parent, a parent that
 * inherits the children of its children. Elsewhere they do nothing, so nobody may rely on them alone. */
#pragma once

#include <stdbool.h>

/* In a child after fork: it is killed when `parent` (its process id, taken before the fork) ends. Outlives
 * exec. false: the parent has ended already. */
bool leash_tie(int parent);
/* The same by SIGTERM, which lets it say goodbye: for programs that heed it. */
bool leash_tie_gently(int parent);

/* Descendants whose parent ended become our children instead of the first process's. */
void leash_inherit(void);
