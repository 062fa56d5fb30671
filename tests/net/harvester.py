#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A stranger that has itself dialled, for tests: harvester.py ADDRESS NAMESPACE TARGET ... [ADDRESS6 ...]

Announces nodes of the namespace by multicast DNS that are all itself, takes the hellos of members that dial them, and
says each to a target at once, as it is. From each ADDRESS6 it says the same with a wrong end to the first target by IPv6,
again and again. A target is ADDRESS/PORT/ADDRESS6. Prints what came of it, one line of JSON each."""

import json
import os
import selectors
import socket
import sys
import time

from noise import GROUP, PORT, facts, response, service, voice

GHOSTS = 60
AGAIN_S = 0.5  # between two announcements
ANSWER_S = 3
FLOOD_S = 0.02  # between two from the many addresses
HELLO_MAX = 4096
MAC_END = b".hearth"


class Harvester:
    def __init__(self, address, space, targets, sixes):
        self.address, self.space, self.targets, self.sixes = address, space, targets, sixes
        self.wait, self.spent, self.turn, self.wrong = selectors.DefaultSelector(), [], 0, None
        self.voice = voice(address)
        self.ports = []
        for _ in range(GHOSTS):
            listener = socket.create_server((address, 0), backlog=16)
            listener.setblocking(False)
            self.wait.register(listener, selectors.EVENT_READ, self.accept)
            self.ports.append(listener.getsockname()[1])

    def announce(self):
        for i, port in enumerate(self.ports):
            text = facts(0xBAD0000 + i, self.space, os.urandom(32).hex() if i % 2 else f"{i:064x}")
            packet = response(*service(f"ghost{i}", port, self.address, text))
            self.voice.sendto(packet, (GROUP, PORT))

    def accept(self, listener):
        guest, _ = listener.accept()
        guest.setblocking(False)
        self.wait.register(guest, selectors.EVENT_READ, self.hear)

    def hear(self, guest):
        """A hello comes in one piece: it is spent at the next target, whoever said it."""
        self.wait.unregister(guest)
        with guest:
            hello = guest.recv(HELLO_MAX)
        if MAC_END not in hello:
            return
        self.spend(hello, self.targets[self.turn % len(self.targets)])
        self.turn += 1
        if self.wrong is None:
            at = hello.index(MAC_END) - 1
            self.wrong = hello[:at] + (b"1" if hello[at:at + 1] == b"0" else b"0") + hello[at + 1:]

    def spend(self, hello, target, source=None):
        family = socket.AF_INET6 if ":" in target[0] else socket.AF_INET
        shop = socket.socket(family, socket.SOCK_STREAM)
        try:
            if source:
                shop.bind((source, 0))
            shop.settimeout(1)
            shop.connect(target[:2])
            shop.send(hello)
        except OSError:
            shop.close()
            return
        shop.setblocking(False)
        self.spent.append((shop, time.monotonic() + ANSWER_S, source is not None))

    def look(self):
        """What the targets have said."""
        for item in list(self.spent):
            shop, deadline, flood = item
            try:
                answer = shop.recv(HELLO_MAX)
            except BlockingIOError:
                if time.monotonic() < deadline:
                    continue
                answer = b""
            except OSError:
                answer = b""
            shop.close()
            self.spent.remove(item)
            print(json.dumps({"what": "flood" if flood else "spent", "bytes": len(answer)}), flush=True)

    def run(self):
        announced = flooded = 0.0
        turn = 0
        while True:
            now = time.monotonic()
            if now >= announced + AGAIN_S:
                self.announce()
                announced = now
            if self.wrong and self.sixes and now >= flooded + FLOOD_S and len(self.spent) < 200:
                self.spend(self.wrong, (self.targets[0][2], self.targets[0][1]), self.sixes[turn % len(self.sixes)])
                flooded, turn = now, turn + 1
            for key, _ in self.wait.select(0.01):
                key.data(key.fileobj)
            self.look()


def main():
    address, space, *rest = sys.argv[1:]
    places = [place.split("/") for place in rest if "/" in place]  # ADDRESS/PORT/ADDRESS6
    targets = [(v4, int(port), v6) for v4, port, v6 in places]
    Harvester(address, space, targets, [item for item in rest if "/" not in item]).run()


if __name__ == "__main__":
    main()
