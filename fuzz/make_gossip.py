#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Writes the seeds below fuzz/corpus/gossip, from docs/cluster_messages.md and not from the C code.
import struct

from make_corpus import CORPUS


def ipv4(last, port=52416):
    return struct.pack("<BH", 4, port) + bytes([10, 1, 0, last])


def ipv6(last, port=52416):
    return struct.pack("<BH", 6, port) + bytes([0xfd] + [0] * 14 + [last])


def node(number, *addresses, instance=None):
    return (bytes([number]) * 32 + struct.pack("<Q", number if instance is None else instance)
            + bytes([len(addresses)]) + b"".join(bytes([len(each)]) + each for each in addresses))


def peers(*nodes, count=None):
    return struct.pack("<H", len(nodes) if count is None else count) + b"".join(nodes)


def seeds():
    yield "nobody", peers()
    yield "one", peers(node(1, ipv4(1)))
    yield "three", peers(node(1, ipv4(1), ipv6(1)), node(2), node(3, ipv6(3)))
    yield "sixty_four", peers(*[node(number, ipv4(number)) for number in range(1, 65)])
    yield "eight_addresses", peers(node(1, *[ipv6(last) for last in range(8)]))
    yield "too_many", peers(*[node(number) for number in range(1, 66)])
    yield "nine_addresses", peers(node(1, *[ipv4(last) for last in range(9)]))
    yield "no_instance", peers(node(1, ipv4(1), instance=0))
    yield "twice", peers(node(1, ipv4(1)), node(1, ipv4(1)))
    yield "empty_address", peers(node(1, b""))
    yield "other_family", peers(node(1, b"\5" + ipv4(1)[1:]))
    yield "long_address", peers(node(1, ipv6(1) + b"\0"))
    yield "fewer", peers(node(1, ipv4(1)), count=2)
    yield "short", peers(node(1, ipv4(1)))[:-1]
    yield "long", peers(node(1, ipv4(1))) + b"\0"


if __name__ == "__main__":
    (CORPUS / "gossip").mkdir(parents=True, exist_ok=True)
    for name, data in seeds():
        (CORPUS / "gossip" / name).write_bytes(data)
