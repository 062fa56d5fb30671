#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Says bad things by multicast DNS, for tests: noise.py ADDRESS KIND [SEED], from an interface with that address.

Kinds: random bytes, cut packets, loops of compressed names, giant records, services that do not exist, wrong TXT
records, and forged answers for a name (forged NAME)."""

import random
import socket
import struct
import sys
import time

GROUP, PORT = "224.0.0.251", 5353
SERVICE = "_hearth._tcp.local"
PTR, TXT, A, AAAA, SRV, IN, FLUSH = 12, 16, 1, 28, 33, 1, 0x8001
SPACE, NODE = "99" * 16, "77" * 32


def name(text):
    out = b""
    for label in text.split("."):
        out += bytes([len(label)]) + label.encode("latin-1")
    return out + b"\0"


def record(owner, kind, data, ttl=4500, clazz=FLUSH):
    owner = owner if isinstance(owner, bytes) else name(owner)
    return owner + struct.pack(">HHIH", kind, clazz, ttl, len(data)) + data


def response(*records, count=None, flags=0x8400):
    return struct.pack(">HHHHHH", 0, flags, 0, len(records) if count is None else count, 0, 0) + b"".join(records)


def txt(*items):
    return b"".join(bytes([len(i)]) + i for i in (x if isinstance(x, bytes) else x.encode() for x in items))


def facts(number, space=SPACE, node=NODE):
    return txt("v=1", f"ns={space}", f"id={node}", f"in={number:016x}", "fl=0", "name=ghost")


def service(label, port, address, text, ttl=4500):
    """A whole service: what a node says of itself."""
    full, host = f"{label}.{SERVICE}", f"{label}.local"
    return [record(SERVICE, PTR, name(full), ttl, IN), record(full, SRV, struct.pack(">HHH", 0, 0, port) + name(host), ttl),
            record(full, TXT, text, ttl), record(host, A, socket.inet_aton(address), ttl)]


def voice(address):
    """A socket that speaks as responders do, from the interface with this address."""
    out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    out.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    out.bind(("", PORT))
    out.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(address))
    out.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 255)
    return out


def random_bytes(rng):
    for _ in range(1500):
        yield rng.randbytes(rng.randrange(0, 600))
    for _ in range(500):
        yield response(count=rng.randrange(5), flags=0x8400) + rng.randbytes(rng.randrange(200))


def cut_packets(rng):
    """Every beginning of a good packet, and good ones with wrong bytes in them."""
    whole = response(*service("cut", 1234, "10.77.0.77", facts(5)))
    for end in range(len(whole)):
        yield whole[:end]
    for _ in range(1500):
        spoiled = bytearray(whole)
        for _ in range(rng.randrange(1, 8)):
            spoiled[rng.randrange(len(spoiled))] = rng.randrange(256)
        yield bytes(spoiled)


def loops(_rng):
    for owner in (b"\xc0\x0c", b"\xc0\x0e\xc0\x0c", b"\x01a\xc0\x0c", b"\xff\xff", b"\xc0", b"\x3f" + b"x" * 10,
                  b"\x40" * 64, b"\x80abc\0", (b"\x3f" + b"y" * 63) * 8 + b"\0", b"\x05a.b\\\0\0"):
        for kind in (PTR, SRV, TXT, A, AAAA, 13, 5, 41, 47, 255):
            for data in (owner, b"", b"\0" * 6 + owner, b"\xc0\x0c", b"\0" * 3):
                yield response(record(owner, kind, data))
                yield response(record(SERVICE, kind, data))
                yield response(record(owner, kind, data), flags=0)


def giants(rng):
    """Records as big as a datagram may be; strings and labels as long as they may be."""
    for i in range(40):
        label = f"giant{i}"
        big = txt(*[rng.randbytes(255) for _ in range(33)])
        yield response(record(f"{label}.{SERVICE}", TXT, big), *service(label, 1, "10.77.0.77", big[:2048]))
        yield response(record(SERVICE, PTR, name(f"{'g' * 63}.{SERVICE}"), 4500, IN),
                       record(f"{'g' * 63}.{SERVICE}", TXT, facts(i + 1) + txt("name=" + "n" * 200)))
        yield response(*[record(f"giant{i}.local", A, rng.randbytes(4)) for _ in range(200)])


def services(rng, count=1000):
    """Whole services that do not exist, some of them at other people's addresses."""
    for i in range(count):
        address = ("10.77.0.1", "10.77.0.2", "127.0.0.1", "224.0.0.1", f"10.77.{rng.randrange(256)}.{i % 256}")[i % 5]
        yield response(*service(f"ghost{i}", 1 + i, address, facts(1000 + i)))


def wrong_texts(rng):
    for i, text in enumerate((txt("v=1"), txt(""), b"", txt("v=x"), txt("v=1", "v=1"), facts(0), facts(7, space="zz" * 16),
                              facts(8, node="77" * 31), txt("id=" + NODE), txt(b"\xff\xfe=\x00"), txt("name=\x1b[2J"))):
        yield response(*service(f"wrong{i}", 99, "10.77.0.77", text))
    for i in range(300):
        yield response(*service(f"rubbish{i}", 99, "10.77.0.77", txt(rng.randbytes(rng.randrange(60)))))


def forged(_rng, label):
    """Somebody says that the name is his: other data under the records of another."""
    for _ in range(5):
        yield response(*service(label, 6666, "10.77.0.66", facts(6)))
        yield response(*service(label, 6666, "10.77.0.66", facts(6), ttl=0))
        time.sleep(0.3)


KINDS = {"random": random_bytes, "cut": cut_packets, "loops": loops, "giants": giants, "services": services,
         "texts": wrong_texts, "forged": forged}


def main():
    address, kind, *more = sys.argv[1:]
    rng = random.Random(1)
    out = voice(address)
    count = 0
    for packet in KINDS[kind](rng, *more):
        out.sendto(packet, (GROUP, PORT))
        count += 1
        time.sleep(0.0003)  # so that none is lost on the way
    print(count)


if __name__ == "__main__":
    main()
