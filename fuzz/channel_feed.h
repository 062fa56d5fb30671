/* SPDX-License-Identifier: Apache-2.0 */
/* Feeds a fuzzer's bytes to a new channel, for the fuzzers of both ends. */
#pragma once

#include <stdlib.h>
#include <string.h>

#include "security/channel.h"

#define FEED_SECRET     1    /* the byte that the secret consists of */
#define FEED_MEMORY_MAX 8192 /* of a channel that is not proven */

static struct heap feed_heap;

/* One node for all runs: its key is drawn, so that a recorded second flight never fits; the first does. */
static const struct credentials *feed_node(void)
{
    static struct credentials *node;
    struct credentials_setup setup = {.heap = &feed_heap, .instance = 1};
    uint8_t bytes[SECRET_LEN];
    struct error error;

    if (node)
        return node;
    heap_init(&feed_heap, 0);
    memset(bytes, FEED_SECRET, sizeof bytes);
    if (node_key_fresh(&setup.key, &error) || secret_from_bytes(bytes, "fuzz", &setup.secret, &error) ||
        credentials_open(&setup, &node, &error))
        abort();
    return node;
}

static inline void channel_feed(enum channel_role role, const uint8_t *bytes, size_t len)
{
    struct session_setup setup = {.heap = &feed_heap, .credentials = feed_node(), .role = role};
    uint64_t before = feed_heap.bytes, blocks = feed_heap.blocks;
    struct channel *channel;
    struct error error;
    int status = HEARTH_PENDING;
    size_t given = 0;

    if (channel_open(&setup, &channel, &error))
        abort();
    while (given < len && status == HEARTH_PENDING) {
        size_t take = channel_wants(channel);

        if (take == 0)
            abort();
        if (take > len - given)
            take = len - given;
        error.text[0] = '\0';
        status = channel_input(channel, bytes + given, take, &error);
        given += take;
        if (feed_heap.bytes - before > FEED_MEMORY_MAX || given > CHANNEL_HANDSHAKE_MAX + take)
            abort();
        channel_sent(channel, channel_output(channel).iov_len);
    }
    if (channel_ready(channel) || (status != HEARTH_PENDING && error.text[0] == '\0'))
        abort();
    channel_close(channel);
    if (feed_heap.blocks != blocks)
        abort();
}
