/* SPDX-License-Identifier: Apache-2.0 */
/* Packets of multicast DNS: no bytes may do harm, and what is good is good without what stands behind it. */
#include <stdlib.h>
#include <string.h>

#include "discovery/mdns_packet.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    uint8_t *copy = malloc(len + 1); /* of that length, so that reading beyond it is seen */

    if (!copy)
        return 0;
    memcpy(copy, bytes, len);
    copy[len] = 0xc0;
    if (mdns_packet_good(bytes, len) && !mdns_packet_good(copy, len + 1))
        abort();
    free(copy);
    return 0;
}
