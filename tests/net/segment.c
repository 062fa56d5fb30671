/* SPDX-License-Identifier: Apache-2.0 */
/* Cuts large TCP frames. TCP checksums are left to the receiver's kernel; the virtio header tells it so. */
#include "net/segment.h"

#include <linux/virtio_net.h>
#include <string.h>

#include "net/shape.h"

#define ETHER_LEN   14
#define TCP_FLAGS   13
#define FLAG_FIN    0x01
#define FLAG_PSH    0x08
#define FLAG_CWR    0x80
#define CHECKSUM_AT 16 /* in the TCP header */

static uint32_t get16(const uint8_t *at)
{
    return (uint32_t)at[0] << 8 | at[1];
}

static void put16(uint8_t *at, uint32_t value)
{
    at[0] = (uint8_t)(value >> 8);
    at[1] = (uint8_t)value;
}

static uint32_t sum16(const uint8_t *at, size_t len, uint32_t sum)
{
    for (size_t i = 0; i + 1 < len; i += 2)
        sum += get16(at + i);
    return sum;
}

static uint32_t fold(uint32_t sum)
{
    while (sum >> 16)
        sum = (sum & 0xffff) + (sum >> 16);
    return sum;
}

bool segments_parse(struct segments *s, const uint8_t *data, size_t len)
{
    struct virtio_net_hdr head;
    *s = (struct segments){.data = data, .len = len, .count = 1};
    if (len < VNET_LEN + ETHER_LEN || len > FRAME_MAX)
        return false;
    memcpy(&head, data, sizeof head);
    int kind = head.gso_type & ~VIRTIO_NET_HDR_GSO_ECN;
    if (kind == VIRTIO_NET_HDR_GSO_NONE)
        return true;
    if ((kind != VIRTIO_NET_HDR_GSO_TCPV4 && kind != VIRTIO_NET_HDR_GSO_TCPV6) || head.gso_size == 0)
        return false;
    s->ip_at = VNET_LEN + ETHER_LEN;
    s->tcp_at = (size_t)VNET_LEN + head.csum_start;
    if (s->tcp_at < s->ip_at + 20 || len < s->tcp_at + 20)
        return false;
    s->payload_at = s->tcp_at + (size_t)(data[s->tcp_at + 12] >> 4) * 4;
    if (s->payload_at < s->tcp_at + 20 || s->payload_at >= len)
        return false;
    s->size = head.gso_size;
    s->count = (uint32_t)((len - s->payload_at + s->size - 1) / s->size);
    return true;
}

/* Payload of `count` segments from `first` on. */
static size_t payload_len(const struct segments *s, uint32_t first, uint32_t count)
{
    size_t rest = s->len - s->payload_at - first * s->size;
    return count * s->size < rest ? count * s->size : rest;
}

uint32_t segments_wire(const struct segments *s, uint32_t first, uint32_t count)
{
    if (s->count == 1) {
        size_t wire = s->len - VNET_LEN + WIRE_OVERHEAD;
        return wire < WIRE_MIN ? WIRE_MIN : (uint32_t)wire;
    }
    size_t each = s->payload_at - VNET_LEN + WIRE_OVERHEAD;
    return (uint32_t)(payload_len(s, first, count) + count * each);
}

size_t segments_len(const struct segments *s, uint32_t first, uint32_t count)
{
    return count == s->count ? s->len : s->payload_at + payload_len(s, first, count);
}

/* Length, number and checksum of the IP header; returns the sum of addresses and protocol for TCP's. */
static uint32_t fix_ip(const struct segments *s, uint8_t *out, uint32_t first, size_t len)
{
    uint8_t *ip = out + s->ip_at;
    size_t ip_len = s->tcp_at - s->ip_at;
    uint32_t protocol = 6;
    if (ip[0] >> 4 == 6) {
        put16(ip + 4, (uint32_t)(len - s->ip_at - 40));
        return sum16(ip + 8, 32, protocol);
    }
    put16(ip + 2, (uint32_t)(len - s->ip_at));
    put16(ip + 4, get16(ip + 4) + first);
    put16(ip + 10, 0);
    put16(ip + 10, ~fold(sum16(ip, ip_len, 0)));
    return sum16(ip + 12, 8, protocol);
}

static void fix_tcp(const struct segments *s, uint8_t *out, uint32_t first, uint32_t count)
{
    uint8_t *tcp = out + s->tcp_at;
    uint32_t sequence = (get16(tcp + 4) << 16 | get16(tcp + 6)) + (uint32_t)(first * s->size);
    put16(tcp + 4, sequence >> 16);
    put16(tcp + 6, sequence);
    if (first + count < s->count)
        tcp[TCP_FLAGS] &= (uint8_t) ~(FLAG_FIN | FLAG_PSH);
    if (first > 0)
        tcp[TCP_FLAGS] &= (uint8_t)~FLAG_CWR;
}

size_t segments_cut(const struct segments *s, uint32_t first, uint32_t count, uint8_t *out)
{
    if (count == s->count) {
        memcpy(out, s->data, s->len);
        return s->len;
    }
    size_t payload = payload_len(s, first, count), len = s->payload_at + payload;
    struct virtio_net_hdr head;
    memcpy(out, s->data, s->payload_at);
    memcpy(out + s->payload_at, s->data + s->payload_at + first * s->size, payload);
    uint32_t sum = fix_ip(s, out, first, len);
    fix_tcp(s, out, first, count);
    put16(out + s->tcp_at + CHECKSUM_AT, fold(sum + (uint32_t)(len - s->tcp_at)));
    memcpy(&head, out, sizeof head);
    if (payload <= s->size) {
        head.gso_type = VIRTIO_NET_HDR_GSO_NONE;
        head.gso_size = 0;
    }
    head.flags = VIRTIO_NET_HDR_F_NEEDS_CSUM;
    head.csum_start = (uint16_t)(s->tcp_at - VNET_LEN);
    head.csum_offset = CHECKSUM_AT;
    memcpy(out, &head, sizeof head);
    return len;
}
