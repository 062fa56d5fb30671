# SPDX-License-Identifier: Apache-2.0
"""Two hosts at 1 Gbit/s add without a pause, and a third floods their ports with strangers of every kind. Sums stay
right, nobody gets in, memory is bounded. How much speed is left is printed, and only looked at with HEARTH_TEST_SOAK.
And a home cluster, on whose network a stranger announces itself, is dialled, and spends what it hears at others."""

import os
import sys
import time
import unittest
from pathlib import Path

import cluster_hosts
from cluster_fixture import PROGRAMS, SOAK, Process, Fixture, Secret, all_well, memory_kb
from lab import DEVICE, Lab, sh, unavailable
from places import require, unbuilt

MEETING, DOOR = 5555, 5600
COUNT = 1 << 20  # of f32: 4 MiB, some 34 ms at 1 Gbit/s
STRANGERS = 10000 if SOAK else 1000  # of a siege, in all
DATAGRAMS = 50000 if SOAK else 5000
CALM_S = 10 if SOAK else 2
GROWTH_KB_MAX = 16 << 10
LOG_LINES_MAX = 200  # strangers must not fill the log either
BYTES_MAX = 4096  # that a stranger may see: one side of a handshake
SPEED_LEFT = 0.9
ATTACKER = 2
ATTACKER_RATE = "50m"  # it is the number that counts: nobody has a remedy against who fills his line
DONE_S = 300 if SOAK else 150

HARVESTER = Path(__file__).with_name("harvester.py")
HOME_PORT = 52416
ADDRESSES = 128  # of the stranger, in the /64 that all have
HARVEST = 2000 if SOAK else 40
ALERT_BYTES = 7

require(unavailable("veth") or unbuilt(*PROGRAMS, *cluster_hosts.PROGRAMS))


def rate(member, begin, end):
    """Sums a second between two times."""
    told = [line for line in member.lines if line["what"] == "sums" and begin <= line["at"] - line["seconds"]
            and line["at"] <= end]
    seconds = sum(line["seconds"] for line in told)
    return sum(line["rounds"] for line in told) / seconds if seconds else 0.0


class Siege(unittest.TestCase):
    def setUp(self):
        self.lab = Lab(3, rate="1g", mode="veth")
        self.addCleanup(self.lab.close)
        self.lab.rate(ATTACKER, ATTACKER_RATE)
        self.fixture = Fixture(self.lab)
        self.addCleanup(self.fixture.close)
        self.secret = Secret().store(self.fixture.file("secret"))
        self.heard = self.fixture.file("heard")
        self.fixture.attack("knock", self.secret, self.heard)

    def member(self, rank, transport="tcp"):
        return self.fixture.member(rank, f"{Lab.address(0)}:{MEETING}", host=rank, count=COUNT, HEARTH_PORT=DOOR,
                                    HEARTH_SECRET_FILE=self.secret, HEARTH_LOG_LEVEL="warn",
                                    HEARTH_TRANSPORT=transport)

    def flood(self, host, port, number, mode="all", origin=ATTACKER):
        return self.fixture.stranger("flood", Lab.address(host), port, number, mode, self.heard, host=origin)

    def nobody_got_in(self, floods, members):
        for flood in floods:
            self.assertEqual(flood.end(DONE_S), 0, flood.told())
            saw = flood.heard("flood")
            print(f"  {saw}", flush=True)
            self.assertEqual(saw["begun"], saw["connected"] + saw["refused"])
            self.assertEqual(saw["stayed"], 0, "a stranger was not sent away")
            self.assertLess(saw["bytes_most"], BYTES_MAX, "a stranger heard more than a handshake")
        for member in members:
            self.assertLess(len(member.log), LOG_LINES_MAX, member.told())

    def memory_is_bounded(self, member, most):
        grown = memory_kb(member.child.pid)[1] - most
        print(f"  {grown} KiB more at the most", flush=True)
        self.assertLess(grown, GROWTH_KB_MAX)

    def rain(self, host):
        return self.fixture.stranger("garbage-udp", Lab.address(host), DOOR, DATAGRAMS, host=ATTACKER)

    def rain_is_not_answered(self, clouds):
        for cloud in clouds:
            self.assertEqual(cloud.end(DONE_S), 0, cloud.told())
            saw = cloud.heard("garbage-udp")
            print(f"  {saw}", flush=True)
            self.assertLessEqual(saw["answer_bytes"], saw["sent_bytes"])

    def quic(self):
        reason = self.fixture.without("quic")
        if reason:
            self.skipTest(reason)
        return "quic"

    def computing(self, transport):
        members = [self.member(rank, transport) for rank in range(2)]
        for member in members:
            member.hear("open")
            member.hear("sums")
        time.sleep(CALM_S)
        before = [memory_kb(member.child.pid)[1] for member in members]
        begin = time.monotonic()
        floods = [self.flood(host, DOOR, STRANGERS // 2) for host in range(2)]
        clouds = [self.rain(host) for host in range(2)]
        self.nobody_got_in(floods, members)
        self.rain_is_not_answered(clouds)
        end = time.monotonic()
        time.sleep(CALM_S)
        for member, most in zip(members, before):
            self.memory_is_bounded(member, most)
        calm = (rate(members[0], begin - CALM_S, begin) + rate(members[0], end, end + CALM_S)) / 2
        stormy = rate(members[0], begin, end)
        print(f"  all-reduce of {COUNT * 4 >> 20} MiB by {transport}: {calm:.1f} a second before and after, {stormy:.1f} in "
              f"{end - begin:.1f} s of siege by {STRANGERS} strangers: {stormy / calm:.3f}", flush=True)
        self.assertGreater(stormy, 0)
        if SOAK:
            self.assertGreaterEqual(stormy / calm, SPEED_LEFT)
        all_well(self, members)

    def test_while_members_compute(self):
        self.computing("tcp")

    def test_while_members_compute_by_quic(self):
        self.computing(self.quic())

    def waiting(self, transport="tcp"):
        """The first member, which serves the rendezvous and listens by now."""
        first = self.member(0, transport)
        deadline = time.monotonic() + DONE_S
        for port in (MEETING, DOOR):
            while self.fixture.attack("flood", Lab.address(0), port, 1, "close", host=ATTACKER)[0]["connected"] == 0:
                self.assertLess(time.monotonic(), deadline, first.told())
        return first

    def opening(self, transport):
        """Strangers stand at the rendezvous and at the door, before the last member comes and while it comes."""
        first = self.waiting(transport)
        most = memory_kb(first.child.pid)[1]
        door = self.flood(0, DOOR, STRANGERS // 4)  # who stands there waits in the system's queue till all have met
        self.nobody_got_in([self.flood(0, MEETING, STRANGERS // 4)], [first])
        self.memory_is_bounded(first, most)
        # Some stand where the member stands, so that those who push out strangers push out the member, too.
        floods = [door] + [self.flood(0, port, STRANGERS // 8, origin=origin) for port in (MEETING, DOOR)
                           for origin in (1, ATTACKER)]
        clouds = [self.rain(0)]
        time.sleep(0.2)
        second = self.member(1, transport)
        for member in (first, second):
            member.hear("open")
        self.nobody_got_in(floods, [first, second])
        self.rain_is_not_answered(clouds)
        all_well(self, [first, second])

    def test_while_one_is_missing(self):
        self.opening("tcp")

    def test_while_one_is_missing_by_quic(self):
        self.opening(self.quic())

    def test_repeated_knocks_lock_nobody_out(self):
        """Who has heard a member knock can repeat it without end; that must not use up what members may use."""
        first = self.waiting()
        floods = [self.flood(0, port, 10 ** 6, "heard-knock") for port in (MEETING, MEETING, DOOR)]
        first.hear_log("HEARTH-STRANGER .*repeats a knock")
        time.sleep(1)  # so many are more than members may be in a minute
        second = self.member(1)
        for member in (first, second):
            member.hear("open")
        for flood in floods:
            self.assertIsNone(flood.child.poll(), "the flood was over before the member came")
            flood.kill()
        all_well(self, [first, second])


class Harvest(unittest.TestCase):
    """Hosts 0 to 2 are a home cluster, host 3 is a stranger in the same network."""

    def setUp(self):
        self.lab = Lab(4, rate="100m", mode="veth")
        self.addCleanup(self.lab.close)
        self.home = cluster_hosts.Hosts(self.lab, hosts=(0, 1, 2))
        self.addCleanup(self.home.end)

    def harvest(self, host=3):
        sixes = [f"fd77::1:{i:x}" for i in range(1, ADDRESSES + 1)] if os.path.exists("/proc/net/if_inet6") else []
        sh("ip", "-n", self.lab.spaces[host], "-batch", "-",
           text="".join(f"addr add {six}/64 dev {DEVICE} nodad\n" for six in sixes))
        targets = [f"{Lab.address(i)}/{HOME_PORT}/{Lab.address6(i)}" for i in range(2)]
        stranger = Process([sys.executable, "-B", HARVESTER, Lab.address(host),
                            Secret.of(self.home.token).namespace.hex(), *targets, *sixes], self.lab, host)
        self.addCleanup(stranger.kill)
        return stranger, bool(sixes)

    @staticmethod
    def heard(stranger, what):
        return [line["bytes"] for line in list(stranger.lines) if line["what"] == what]

    def test_what_a_stranger_hears_is_worth_nothing_elsewhere(self):
        for host in (0, 1):
            self.home.up(host)
        self.home.wait_view()
        most = [memory_kb(self.home.running[host].pid)[1] for host in (0, 1)]
        stranger, floods = self.harvest()
        stranger.wait_for(lambda: len(self.heard(stranger, "spent")) >= HARVEST, f"{HARVEST} knocks", 60)
        if floods:
            stranger.wait_for(lambda: len(self.heard(stranger, "flood")) >= ADDRESSES, "flood", 60)
        self.home.up(2)  # while it goes on
        self.home.wait_view(hosts=(0, 1, 2))
        spent, flood = self.heard(stranger, "spent"), self.heard(stranger, "flood")
        print(f"  {len(spent)} knocks were spent, {len(flood)} came from {ADDRESSES} addresses", flush=True)
        self.assertIn(ALERT_BYTES, spent)
        self.assertLessEqual(max(spent), ALERT_BYTES, "a knock that was meant for another has begun a handshake")
        self.assertLessEqual(max(flood, default=0), ALERT_BYTES)
        for host, before in zip((0, 1), most):
            grown = memory_kb(self.home.running[host].pid)[1] - before
            print(f"  {grown} KiB more at the most", flush=True)
            self.assertLess(grown, GROWTH_KB_MAX)
            named = [line for _, line in self.home.logs[host] if "is sent away" in line]
            self.assertLessEqual(len(named), 4, named)  # its IPv4 address and the /64, not each of them
