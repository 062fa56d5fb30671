/* SPDX-License-Identifier: Apache-2.0 */
/* What stands in front of requests and replies: docs/payloads.md, "Remote calls". */
#include <string.h>

#include "core/bytes.h"
#include "remote/rpc.h"

#define RPC_VERSION 1
#define HEAD_FIXED  8u /* version, length of the name, zeros, time left */

static bool printable(char c)
{
    return c >= ' ' && c <= '~';
}

bool rpc_name_good(const char *name)
{
    size_t len = 0;
    while (len <= RPC_NAME_MAX && printable(name[len]))
        len++;
    return len > 0 && len <= RPC_NAME_MAX && name[len] == '\0';
}

void rpc_text_copy(char target[static RPC_TEXT_MAX + 1], const char *text)
{
    size_t len = strnlen(text, RPC_TEXT_MAX);
    for (size_t i = 0; i < len; i++)
        target[i] = printable(text[i]) ? text[i] : '?';
    target[len] = '\0';
}

static size_t head_len(size_t name_len)
{
    return (HEAD_FIXED + name_len + 15) / 16 * 16;
}

size_t rpc_head_encode(const struct rpc_head *head, uint8_t target[static RPC_HEAD_MAX])
{
    size_t name_len = strlen(head->name), len = head_len(name_len);
    memset(target, 0, len);
    target[0] = RPC_VERSION;
    target[1] = (uint8_t)name_len;
    store_u32(target + 4, head->left_ms);
    memcpy(target + HEAD_FIXED, head->name, name_len);
    return len;
}

int rpc_head_decode(struct rpc_head *head, const void *bytes, size_t len, size_t *body)
{
    const uint8_t *at = bytes;
    struct rpc_head out = {0};
    if (len < HEAD_FIXED || at[0] == 0)
        return HEARTH_PROTOCOL;
    if (at[0] != RPC_VERSION)
        return HEARTH_UNSUPPORTED;
    size_t name_len = at[1], head_bytes = head_len(name_len);
    if (name_len == 0 || name_len > RPC_NAME_MAX || len < head_bytes || (at[2] | at[3]) != 0 ||
        !bytes_zero(at + HEAD_FIXED + name_len, head_bytes - HEAD_FIXED - name_len))
        return HEARTH_PROTOCOL;
    out.left_ms = load_u32(at + 4);
    memcpy(out.name, at + HEAD_FIXED, name_len);
    if (strlen(out.name) != name_len || !rpc_name_good(out.name))
        return HEARTH_PROTOCOL;
    *head = out;
    *body = head_bytes;
    return HEARTH_OK;
}

void rpc_outcome_encode(const struct rpc_outcome *outcome, uint8_t target[static RPC_REPLY_HEAD])
{
    memset(target, 0, RPC_REPLY_HEAD);
    store_u32(target, (uint32_t)outcome->status);
    target[4] = (uint8_t)outcome->fate;
}

/* The statuses that a callee may give, each with the fates that make sense. */
static bool outcome_good(const struct rpc_outcome *o)
{
    switch (o->status) {
    case HEARTH_OK:
        return o->fate == HEARTH_FATE_NONE;
    case HEARTH_CALL_FAILED:
        return o->fate == HEARTH_FATE_DELIVERED;
    case HEARTH_TOO_LONG:
        return o->fate == HEARTH_FATE_DELIVERED || o->fate == HEARTH_FATE_NOT_DELIVERED;
    case HEARTH_NO_MEMORY:
        return o->fate == HEARTH_FATE_DELIVERED || o->fate == HEARTH_FATE_NOT_DELIVERED;
    case HEARTH_NO_SUCH_CALL:
    case HEARTH_BUSY:
    case HEARTH_TIMEOUT:
    case HEARTH_PROTOCOL:
    case HEARTH_UNSUPPORTED:
    case HEARTH_PEER_LOST:
        return o->fate == HEARTH_FATE_NOT_DELIVERED;
    default:
        return false;
    }
}

int rpc_outcome_decode(struct rpc_outcome *outcome, const void *bytes, size_t len)
{
    const uint8_t *at = bytes;
    struct rpc_outcome out = {.status = HEARTH_NO_SUCH_CALL, .fate = HEARTH_FATE_NOT_DELIVERED};
    if (len == 0) {
        *outcome = out;
        return HEARTH_OK;
    }
    if (len < RPC_REPLY_HEAD || !bytes_zero(at + 5, RPC_REPLY_HEAD - 5))
        return HEARTH_PROTOCOL;
    out.status = (int32_t)load_u32(at);
    out.fate = (enum hearth_fate)at[4];
    if (!outcome_good(&out))
        return HEARTH_PROTOCOL;
    size_t text_len = out.status == HEARTH_OK ? 0 : len - RPC_REPLY_HEAD;
    if (text_len > RPC_TEXT_MAX)
        return HEARTH_PROTOCOL;
    memcpy(out.text, at + RPC_REPLY_HEAD, text_len);
    for (size_t i = 0; i < text_len; i++)
        if (!printable(out.text[i]))
            return HEARTH_PROTOCOL;
    *outcome = out;
    return HEARTH_OK;
}
