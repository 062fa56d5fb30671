/* SPDX-License-Identifier: Apache-2.0 */
/* What a stranger may say to a listening channel, before anything of it is known: no bytes may do harm, take
 * more memory than a handshake has, or be proven. The corpus has hellos that know this secret. */
#include "fuzz/channel_feed.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    channel_feed(CHANNEL_LISTENS, bytes, len);
    return 0;
}
