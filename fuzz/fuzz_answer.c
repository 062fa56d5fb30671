/* SPDX-License-Identifier: Apache-2.0 */
/* What a stranger may answer to a dialling channel: as fuzz_hello. */
#include "fuzz/channel_feed.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    channel_feed(CHANNEL_DIALS, bytes, len);
    return 0;
}
