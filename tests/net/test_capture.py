# SPDX-License-Identifier: Apache-2.0
"""Everything that two hosts send in a whole run, as tcpdump writes it down: nothing of the gradient, of the secret, of a
key or of a token is in it. The same run in the plain holds the gradient: so the eye that looks can see."""

import os
import shutil
import signal
import struct
import subprocess
import time
import unittest
from pathlib import Path

from cluster_fixture import PROGRAMS, Fixture, Secret, all_well, key_seed
from lab import DEVICE, Lab, unavailable
from places import require, unbuilt

MEETING = 5555
COUNT = 100_000  # of f32 a round
PIECE = 8  # bytes that would be no accident
ROUNDS_BYTES_MIN = COUNT * 4 // 2  # one round of two members, each way
START_S, END_S = 20, 20

require(unavailable("veth") or unbuilt(*PROGRAMS) or (None if shutil.which("tcpdump") else "tcpdump is missing"))


def make_marker():
    """64 bytes that are 16 numbers, each with an exponent of its own, so that sums are exact."""
    return b"".join(struct.pack("<f", (1 + int.from_bytes(os.urandom(2), "little") / 65536) * 2.0 ** (i - 8))
                    for i in range(16))


def doubled(marker):
    return b"".join(struct.pack("<f", 2 * x) for (x,) in struct.iter_unpack("<f", marker))


def swapped(marker):
    return b"".join(marker[i:i + 4][::-1] for i in range(0, len(marker), 4))


def pieces(text):
    """Every piece of it of 16 bytes, at whatever place it begins, holds one of these whole."""
    return [text[i:i + PIECE] for i in range(0, len(text) - PIECE + 1, PIECE)]


class Capture(unittest.TestCase):
    def setUp(self):
        self.lab = Lab(2, rate="100m", mode="veth")
        self.addCleanup(self.lab.close)
        self.fixture = Fixture(self.lab)
        self.addCleanup(self.fixture.close)
        self.secret = Secret("capture")
        self.secret.store(self.fixture.file("secret"))
        self.marker = make_marker()
        Path(self.fixture.file("marker")).write_bytes(self.marker)

    def run_captured(self, **settings):
        """The bytes that went through the first host's device, while members opened, added and closed."""
        path = self.fixture.file("capture")
        ear = self.lab.popen(0, ["tcpdump", "-i", DEVICE, "-s", 0, "-B", 32768, "-U", "-Z", "root", "-w", path],
                             stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.assertTrue(any("listening on" in line for line in ear.stderr), "tcpdump does not listen")
        members = [self.fixture.member(rank, f"{Lab.address(0)}:{MEETING}", host=rank, count=COUNT,
                                        marker=self.fixture.file("marker"), **settings) for rank in range(2)]
        all_well(self, members)
        time.sleep(0.3)  # what is under way
        ear.send_signal(signal.SIGINT)
        told = ear.communicate(timeout=END_S)[1]
        self.assertIn("0 packets dropped by kernel", told)
        capture = Path(path).read_bytes()
        print(f"  {len(capture)} bytes", flush=True)
        self.assertGreater(len(capture), 2 * ROUNDS_BYTES_MIN)
        return members, capture

    def found(self, capture, patterns):
        return [name for name, texts in patterns.items() if any(text in capture for text in texts)]

    def gradient(self):
        both = {"gradient": self.marker, "sum": doubled(self.marker)}
        both.update({f"{name}, swapped": swapped(text) for name, text in both.items()})
        return {name: pieces(text) for name, text in both.items()}

    def secrets(self, keys):
        texts = {"secret": self.secret.bytes, "token": self.secret.code.encode()}
        texts.update({f"derived key {i}": key for i, key in enumerate(self.secret.keys())})
        texts.update({f"key of rank {i}": key_seed(path) for i, path in enumerate(keys)})
        texts.update({f"{name}, hexadecimal": text.hex().encode() for name, text in texts.items() if name != "token"})
        texts.update({f"{name}, upper case": text.upper() for name, text in texts.items()
                      if name == "token" or "hexadecimal" in name})
        return {name: pieces(text) for name, text in texts.items()}

    def nothing_is_seen(self, link, **settings):
        keys = [self.fixture.file(f"key-{rank}") for rank in range(2)]
        members, capture = self.run_captured(HEARTH_SECRET_FILE=self.fixture.file("secret"), **settings)
        for member in members:
            self.assertIn(f"  {link}  ", member.heard("open")["links"])
        self.assertEqual(self.found(capture, self.gradient()), [])
        self.assertEqual(self.found(capture, self.secrets(keys)), [])
        return capture

    def test_plain_is_seen(self):
        members, capture = self.run_captured(HEARTH_PLAIN=1, HEARTH_TRUST_NETWORK=1)
        self.assertIn("gradient", self.found(capture, self.gradient()))
        for member in members:
            self.assertTrue(member.logged("HEARTH-PLAIN"), member.told())

    def test_tcp(self):
        capture = self.nothing_is_seen("tcp+tls")
        self.assertIn(self.secret.namespace.hex().encode(), capture)  # the knock, which everybody may hear

    def test_token_in_the_environment(self):
        _, capture = self.run_captured(HEARTH_SECRET=self.secret.token, HEARTH_KEY_FILE="fresh")
        self.assertEqual(self.found(capture, {**self.gradient(), **self.secrets([])}), [])

    def test_quic(self):
        reason = self.fixture.without("quic")
        if reason:
            self.skipTest(reason)
        self.nothing_is_seen("quic", HEARTH_TRANSPORT="quic")
