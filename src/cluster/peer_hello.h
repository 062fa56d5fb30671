/* SPDX-License-Identifier: Apache-2.0 */
/* HELLO, the first message of each connection between nodes of a cluster, and the kinds of messages that such
 * connections accept. docs/cluster_messages.md specifies it. */
#pragma once

#include "membership/outbox.h"
#include "membership/view.h"
#include "wire/message.h"

enum hello_purpose { HELLO_MESSAGES = 1, HELLO_PROBE = 2 };
#define MESSAGE_HELLO_MAX (12u + PEER_LEN_MAX)
#define LOAD_PAYLOAD_MAX  (16384u - MESSAGE_HEADER_LEN) /* one record with its header */

struct message_hello {
    uint16_t version_min, version_max;
    uint8_t purpose;
    uint32_t serial; /* number of the hello in this process */
    struct peer_info info;
};
/* Bytes; `target` has MESSAGE_HELLO_MAX. */
size_t message_hello_encode(const struct message_hello *hello, uint8_t *target);
int MUST_CHECK message_hello_decode(struct message_hello *hello, const void *source, size_t len,
                                    const char **what);

extern const struct message_kinds cluster_kinds; /* between members */
extern const struct message_kinds hello_kinds;   /* only HELLO */
extern const struct message_kinds probe_kinds;   /* LOAD, after HELLO, on a probe connection */
