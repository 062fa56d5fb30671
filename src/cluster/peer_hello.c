/* SPDX-License-Identifier: Apache-2.0 */
/* Encodes and decodes HELLO: layout as in docs/cluster_messages.md. */
#include "cluster/peer_hello.h"

#include <assert.h>

#define ANY MESSAGE_PAYLOAD_MAX

static const uint32_t len_max[MESSAGE_LINKS + 1 - MESSAGE_HELLO] = {
    MESSAGE_HELLO_MAX, ANY, ANY, ANY, ANY, ANY, ANY, ANY, ANY, ANY, ANY, ANY, ANY, ANY, ANY, ANY,
};
static const uint32_t load_max = LOAD_PAYLOAD_MAX;

const struct message_kinds cluster_kinds = {MESSAGE_HELLO, MESSAGE_LINKS, len_max};
const struct message_kinds hello_kinds = {MESSAGE_HELLO, MESSAGE_HELLO, len_max};
const struct message_kinds probe_kinds = {MESSAGE_LOAD, MESSAGE_LOAD, &load_max};

size_t message_hello_encode(const struct message_hello *hello, uint8_t *target)
{
    struct writer w = writer_of(target, MESSAGE_HELLO_MAX);

    put_u16(&w, hello->version_min);
    put_u16(&w, hello->version_max);
    put_u8(&w, hello->purpose);
    put_bytes(&w, (const uint8_t[3]){0}, 3);
    put_u32(&w, hello->serial);
    peer_put(&w, &hello->info);
    assert(!w.bad);
    return (size_t)(w.at - target);
}

int message_hello_decode(struct message_hello *hello, const void *source, size_t len, const char **what)
{
    struct reader r = reader_of(source, len);
    uint8_t rest[3];

    hello->version_min = get_u16(&r);
    hello->version_max = get_u16(&r);
    hello->purpose = get_u8(&r);
    get_bytes(&r, rest, sizeof rest);
    hello->serial = get_u32(&r);
    if (r.bad || !bytes_zero(rest, sizeof rest) || hello->version_min == 0 ||
        hello->version_min > hello->version_max)
        *what = "its hello is malformed";
    else if (hello->version_min > MESSAGE_VERSION)
        *what = "it speaks only newer versions of control messages: update this node";
    else if (hello->purpose != HELLO_MESSAGES && hello->purpose != HELLO_PROBE)
        *what = "its hello has an unknown purpose";
    else if (!peer_get(&r, &hello->info) || r.bad || reader_left(&r) > 0)
        *what = "its hello does not describe a node";
    else
        return HEARTH_OK;
    return HEARTH_PROTOCOL;
}
