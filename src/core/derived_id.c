/* SPDX-License-Identifier: Apache-2.0 */
/* Labels come first in the running hash, so that ids of two kinds never share a beginning. */
#include "core/derived_id.h"

#include "core/hash.h"

uint64_t derived_id(enum id_label label, uint64_t parent, uint64_t first, uint64_t second)
{
    return hash_mix(hash_mix(hash_mix((uint64_t)label, parent), first), second);
}
