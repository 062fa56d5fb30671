/* SPDX-License-Identifier: Apache-2.0 */
/* An ring order that is accepted has every member once and encodes to the bytes it came from. The first byte
 * is the size of the group. */
#include <stdlib.h>
#include <string.h>

#include "membership/topology.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    struct ring_order a;
    uint8_t again[RING_ORDER_LEN];
    uint64_t seen = 0;

    if (len != 1 + RING_ORDER_LEN || ring_order_decode(&a, bytes + 1, bytes[0] % 65))
        return 0;
    for (int i = 0; i < a.size; i++)
        seen |= UINT64_C(1) << a.order[i];
    if (a.size != 0 && (a.size != bytes[0] % 65 || seen != UINT64_MAX >> (64 - a.size)))
        abort();
    ring_order_encode(&a, again);
    if (memcmp(again, bytes + 1, sizeof again) != 0)
        abort();
    return 0;
}
