/* SPDX-License-Identifier: Apache-2.0 */
/* Hosts hand over up to 64 KiB of TCP as one frame; this says what it is on the wire and cuts it. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What read() of a TAP device with IFF_VNET_HDR gives: a struct virtio_net_hdr, then an Ethernet frame. */
#define VNET_LEN  10
#define FRAME_MAX (VNET_LEN + 65536 + 256)

struct segments {
    const uint8_t *data; /* with the virtio header */
    size_t len;
    size_t ip_at, tcp_at, payload_at; /* offsets; unset where count is 1 */
    size_t size;                      /* payload bytes of a full segment */
    uint32_t count;
};

/* Looks at a frame. False: not a frame that a host of ours could have sent. */
bool segments_parse(struct segments *s, const uint8_t *data, size_t len);

/* Bytes on the wire of `count` segments from `first` on. */
uint32_t segments_wire(const struct segments *s, uint32_t first, uint32_t count);

/* Writes segments as one frame to out, which has room for s->len bytes; returns its length. */
size_t segments_cut(const struct segments *s, uint32_t first, uint32_t count, uint8_t *out);

/* Length that segments_cut will return. */
size_t segments_len(const struct segments *s, uint32_t first, uint32_t count);
