#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Small senders and receivers that tests run inside hosts. Each prints one line of JSON.

ping ADDRESS COUNT INTERVAL       round trips in ms of ICMP echoes that came back
sink PORT COUNT                   takes COUNT TCP connections; bits per second of each once it is under way
source ADDRESS PORT SECONDS       sends over TCP for that long
hear PORT SECONDS                 numbers of the UDP datagrams that came, until none has come for that long
say ADDRESS PORT COUNT BYTES INTERVAL   sends numbered datagrams
"""

import json
import selectors
import socket
import struct
import sys
import time

SO_TIMESTAMPNS = 35
WARM_S = 1.0  # of a connection, not counted: slow start
WAIT_S = 30


def checksum(data):
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    total = (total & 0xffff) + (total >> 16)
    return ~(total + (total >> 16)) & 0xffff


def ping(address, count, interval):
    """Like ping(8): the kernel notes when an answer came in, so that our own wake-up does not count."""
    count, interval = int(count), float(interval)
    sock = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
    sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    mark, times = struct.pack("!Q", time.monotonic_ns()), {}
    for number in range(count):
        head = struct.pack("!BBHHH", 8, 0, 0, 77, number)
        packet = head[:2] + struct.pack("!H", checksum(head + mark)) + head[4:] + mark
        start, end = time.time(), time.monotonic() + (interval if number < count - 1 else 1)
        sock.sendto(packet, (address, 0))
        while (left := end - time.monotonic()) > 0:
            sock.settimeout(left)
            try:
                data, extra, _, _ = sock.recvmsg(256, 256)
            except socket.timeout:
                break
            if data[20] == 0 and data[28:36] == mark and struct.unpack("!H", data[26:28])[0] == number:
                seconds, nanoseconds = struct.unpack("qq", extra[0][2][:16])
                times[number] = ((seconds - int(start)) + nanoseconds / 1e9 - start % 1) * 1e3
                if number == count - 1:
                    break
    return list(times.values())


def sink(port, count):
    listener = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("::", int(port)))
    listener.listen()
    listener.settimeout(WAIT_S)
    chooser, buffer, rates = selectors.DefaultSelector(), memoryview(bytearray(1 << 20)), []
    state = {}
    for _ in range(int(count)):
        sock, _ = listener.accept()
        chooser.register(sock, selectors.EVENT_READ)
        state[sock] = [time.monotonic(), None, 0, None]
    while state:
        for key, _ in chooser.select(WAIT_S) or [(None, None)]:
            if key is None:
                return rates
            sock = key.fileobj
            got, now, own = sock.recv_into(buffer), time.monotonic(), state[sock]
            if got == 0:
                rates.append(own[2] * 8 / (own[3] - own[1]) if own[1] and own[3] > own[1] else 0)
                chooser.unregister(sock)
                del state[sock]
            elif own[1]:
                own[2], own[3] = own[2] + got, now
            elif now - own[0] > WARM_S:
                own[1] = own[3] = now
    return rates


def source(address, port, seconds):
    sock = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"cubic")
    for _ in range(100):  # until the sink listens
        try:
            sock.connect((address, int(port)))
            break
        except ConnectionRefusedError:
            time.sleep(0.05)
    buffer, end = bytes(1 << 18), time.monotonic() + float(seconds)
    while time.monotonic() < end:
        sock.sendall(buffer)
    return None


def hear(port, seconds):
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
    sock.bind(("", int(port)))
    print("listening", flush=True)
    numbers = []
    sock.settimeout(WAIT_S)
    while True:
        try:
            numbers.append(struct.unpack("!I", sock.recv(2048)[:4])[0])
        except socket.timeout:
            return numbers
        sock.settimeout(float(seconds))


def say(address, port, count, size, interval):
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.connect((address, int(port)))
    padding, interval, start = bytes(int(size) - 4), float(interval), time.monotonic()
    for number in range(int(count)):
        while interval and time.monotonic() < start + number * interval:
            time.sleep(max(0.0, start + number * interval - time.monotonic()))
        try:
            sock.send(struct.pack("!I", number) + padding)
        except ConnectionRefusedError:
            pass
    return None


if __name__ == "__main__":
    print(json.dumps({"ping": ping, "sink": sink, "source": source, "hear": hear, "say": say}[sys.argv[1]](*sys.argv[2:])))
