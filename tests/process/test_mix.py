# SPDX-License-Identifier: Apache-2.0
"""Members on two hosts made of network namespaces: shared memory inside a host, tcp between, and what cuts them."""

import os
import re
import subprocess
import time
import unittest

from lab import Lab, unavailable
from places import BINARY, require, unbuilt

PROGRAM = BINARY / "tests/process/test_matrix"
RENDEZVOUS = 5555
SECONDS = 120  # against hanging

require(unavailable("veth") or unbuilt(PROGRAM))


def start(lab, hosts, mode, address=Lab.address(0), **more):
    """Rank i on hosts[i]; the processes."""
    ranks = []
    for rank, host in enumerate(hosts):
        environment = {k: v for k, v in os.environ.items() if not re.match("HEARTH_(?!TEST_)", k)}
        environment.update(HEARTH_RANK=str(rank), HEARTH_WORLD_SIZE=str(len(hosts)), HEARTH_SECRET="5e" * 32,
                           HEARTH_KEY_FILE="fresh", HEARTH_RENDEZVOUS=f"{address}:{RENDEZVOUS}", HEARTH_LOG_LEVEL="debug",
                           HEARTH_OPEN_TIMEOUT_MS="30000", HEARTH_OP_TIMEOUT_MS="60000")
        environment.update(more)
        ranks.append(lab.popen(host, [PROGRAM, mode], env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True, errors="replace"))
    return ranks


def ends(ranks):
    """Exit status, output and log of each."""
    told = [rank.communicate(timeout=SECONDS) for rank in ranks]
    return [(rank.returncode, out, log) for rank, (out, log) in zip(ranks, told)]


class Mix(unittest.TestCase):
    def setUp(self):
        self.lab = Lab(2, mode="veth")

    def tearDown(self):
        self.lab.close()

    def matrix(self, hosts, kind="tcp+tls", **more):
        """All collectives are right, links are what they should be, and a large sum goes through the hosts."""
        for rank, (status, out, log) in enumerate(ends(start(self.lab, hosts, "member", **more))):
            self.assertEqual(status, 0, f"rank {rank}:\n{out}\n{log[-4000:]}")
            self.assertIn("matrix is right", out)
            self.assertIn("large sum is right", out)
            for peer, host in enumerate(hosts):
                line = re.search(rf"^rank {peer} .*$", out, re.M)[0]
                self.assertIn("this one" if peer == rank else "shm" if host == hosts[rank] else kind, line)
            self.assertRegex(log, r"HEARTH-PLAN all_reduce of 4194304 elements by hierarchical")

    def test_two_and_two(self):
        self.matrix([0, 0, 1, 1])

    def test_ranks_in_turn(self):
        self.matrix([0, 1, 0, 1])

    def test_three_and_one_by_ipv6(self):
        self.matrix([0, 0, 1, 0], address=f"[{Lab.address6(0)}]")

    def test_several_connections(self):
        self.matrix([0, 1, 1, 0], HEARTH_CONNECTIONS="3", HEARTH_CHUNK_BYTES="32K")

    def test_quic(self):
        """Asked for, it takes the place of shared memory too."""
        for rank, (status, out, log) in enumerate(ends(start(self.lab, [0, 1, 0, 1], "member", HEARTH_TRANSPORT="quic"))):
            self.assertEqual(status, 0, f"rank {rank}:\n{out}\n{log[-4000:]}")
            self.assertIn("matrix is right", out)
            self.assertEqual(len(re.findall(r"^rank \d .*  quic  ", out, re.M)), 3)

    def test_plain(self):
        self.matrix([0, 0, 1, 1], kind="plain tcp", HEARTH_PLAIN="1", HEARTH_TRUST_NETWORK="1")

    def test_plain_without_a_word_of_trust(self):
        told = ends(start(self.lab, [0, 1], "member", HEARTH_PLAIN="1", HEARTH_OPEN_TIMEOUT_MS="3000"))
        for (status, out, log), words in zip(told, ("missing: rank 1", "TRUST_NETWORK")):
            self.assertNotEqual(status, 0, out)
            self.assertIn(words, log)

    def test_the_cable_is_pulled(self):
        """Nobody hears a close then: silence tells, on both sides, and each names one of the other side."""
        hosts = [0, 0, 1, 1]
        ranks = start(self.lab, hosts, "forever", HEARTH_PEER_TIMEOUT_MS="2000")
        for rank in ranks:
            self.assertTrue(rank.stdout.readline().startswith("computing"), "it did not come so far")
        time.sleep(0.5)
        begin = time.monotonic()
        subprocess.run(self.lab.inside(1, ["ip", "link", "set", "eth0", "down"]), check=True)
        for rank, (status, out, log) in enumerate(ends(ranks)):
            self.assertEqual(status, 0, log[-4000:])
            named = [int(r) for r in re.findall(r"rank (\d)(?! of)", re.search(r"^failed: (.*)$", out, re.M)[1])]
            self.assertTrue(any(hosts[r] != hosts[rank] for r in named), f"rank {rank}: {out}")
        print(f"all knew after {time.monotonic() - begin:.1f} s", flush=True)

    def test_killed_on_the_other_host(self):
        ranks = start(self.lab, [0, 0, 1, 1], "forever")
        for rank in ranks:
            self.assertTrue(rank.stdout.readline().startswith("computing"), "it did not come so far")
        ranks[3].kill()
        for rank, (status, out, log) in enumerate(ends(ranks)[:3]):
            self.assertEqual(status, 0, log[-4000:])
            self.assertRegex(out, r"failed: .*rank 3 is lost", f"rank {rank}")
