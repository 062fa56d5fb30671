/* SPDX-License-Identifier: Apache-2.0 */
/* What stands in front of requests (first byte even) and replies (odd) of remote calls. What is accepted must
 * encode to the same again; no bytes may do harm. */
#include <stdlib.h>
#include <string.h>

#include "remote/rpc.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

static void check_request(const uint8_t *bytes, size_t len)
{
    struct rpc_head head;
    uint8_t again[RPC_HEAD_MAX];
    size_t body = 0;
    if (rpc_head_decode(&head, bytes, len, &body) != HEARTH_OK)
        return;
    if (body > len || body % 16 != 0 || !rpc_name_good(head.name))
        abort();
    if (rpc_head_encode(&head, again) != body || memcmp(again, bytes, body) != 0)
        abort();
}

static void check_reply(const uint8_t *bytes, size_t len)
{
    struct rpc_outcome outcome;
    uint8_t again[RPC_REPLY_HEAD];
    if (rpc_outcome_decode(&outcome, bytes, len) != HEARTH_OK || len == 0)
        return;
    rpc_outcome_encode(&outcome, again);
    if (memcmp(again, bytes, RPC_REPLY_HEAD) != 0)
        abort();
    size_t text_len = strlen(outcome.text);
    if (outcome.status != HEARTH_OK &&
        (text_len != len - RPC_REPLY_HEAD || memcmp(outcome.text, bytes + RPC_REPLY_HEAD, text_len) != 0))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    if (len < 1)
        return 0;
    if (bytes[0] % 2 == 0)
        check_request(bytes + 1, len - 1);
    else
        check_reply(bytes + 1, len - 1);
    return 0;
}
