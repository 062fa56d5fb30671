# SPDX-License-Identifier: Apache-2.0
"""What happens to a cluster when machines crash, freeze, are cut off, get another address or have a full disk. Times are
printed as figures; limits are only there against hanging."""

import contextlib
import subprocess
import time
import unittest

from cluster_hosts import PROGRAMS, Figures, Hosts, replayable, seeds
from lab import BINARY, DEVICE, Lab, sh, unavailable
from places import require, unbuilt

HOSTS = 4
STRANDED_S = 15
DISK_S = 10
GLOO = f", gloo by {DEVICE}"  # the network's interface, told to the program
WORKER = BINARY / "hearth-worker"

require(unavailable("switch") or unbuilt(*PROGRAMS, WORKER))
FIGURES = Figures()


class Faults(unittest.TestCase):
    def begin(self, count, hosts=None, **lines):
        """A lab, and a cluster in it that agrees."""
        self.lab = Lab(count, **lines)
        self.addCleanup(self.lab.close)
        self.home = Hosts(self.lab, hosts)
        self.addCleanup(self.home.end)
        self.home.up_all()
        return self.home.wait_view()

    def repeat(self, usual, soak, once):
        """Does it again and again with the same cluster; each leaves it whole."""
        for seed in seeds(usual, soak):
            with replayable(self, seed) as chance:
                time.sleep(chance.uniform(0, 1))
                once(chance)
        FIGURES.show()

    def timed(self, name, since, hosts=None, **more):
        view = self.home.wait_view(hosts, **more)
        FIGURES.add(name, time.monotonic() - since)
        return view

    def others(self, host):
        return [h for h in self.home.hosts if h != host]

    # ---- crashes ----

    def test_leader_is_killed(self):
        self.begin(HOSTS)

        def once(_chance):
            before = self.home.wait_view()
            lost, since = before.leader, time.monotonic()
            self.home.kill(lost)
            after = self.timed("leader_killed", since, self.others(lost))
            self.assertEqual(after.instance, before.instance)
            self.assertGreater(after.term, before.term)
            self.assertEqual(after.leader, next(h for h in before.order if h != lost), "the most senior one leads")
            since = time.monotonic()
            self.home.up(lost)
            again = self.timed("restarted", since)
            self.assertEqual(again.leader, after.leader)
            self.assertEqual(again.ids[lost][0], before.ids[lost][0], "the same key")
            self.assertNotEqual(again.ids[lost][1], before.ids[lost][1], "another process")
        self.repeat(3, 20, once)

    def guests(self, host):
        status = self.home.status(host)
        return [m for m in status["view"]["members"] if "guest" in m["flags"]] if status else []

    def test_leader_and_guest_are_killed(self):
        """A command that measures joins as a guest: whether it ends or not, two of three machines go on."""
        self.begin(3)

        def once(chance):
            before = self.home.wait_view()
            lost = before.leader
            host = chance.choice(self.others(lost))
            with self.lab.popen(host, self.home.line(host, "bench", "cluster", "--sizes", "256M", "--repeat", 1000),
                                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                env=self.home.environment(host)) as guest:
                try:
                    for other in self.home.hosts:
                        self.home.wait_for("the guest is in the view", lambda: self.guests(other))
                    self.home.wait_for("the job runs", lambda: any(
                        job["running"] for job in self.home.status(lost)["jobs"]))
                finally:
                    since = time.monotonic()
                    self.home.kill(lost)
                    guest.kill()
            after = self.timed("leader_and_guest_killed", since, self.others(lost))
            self.assertEqual(after.instance, before.instance)
            for other in self.others(lost):
                self.assertIsNone(self.home.logged(other, f"(dead|unhealthy) {self.home.host_name(host)} ", since))
            self.home.up(lost)
            self.home.wait_view()
        self.repeat(1, 10, once)

    def test_program_goes_on_without_a_lost_machine(self):
        self.begin(HOSTS)
        self.home.end()

        def once(chance):
            begun, lost = time.monotonic(), chance.choice(self.home.hosts)
            for host in self.home.hosts:  # the largest number that anybody asks for counts
                self.home.up(host, "--min", 4 if host == lost else 3, "--job", "work", "--", "sh", "-c",
                             "echo with $HEARTH_WORLD_SIZE, gloo by $GLOO_SOCKET_IFNAME; exec sleep 600")
            FIGURES.add("program_begins", self.started(4, self.home.hosts, begun, GLOO) - begun)
            since = time.monotonic()
            self.home.kill(lost)
            FIGURES.add("program_again", self.started(3, self.others(lost), since, GLOO) - since)
            self.home.wait_for("nothing is left on a machine whose node was killed",
                               lambda: not sh("ip", "netns", "pids", self.lab.spaces[lost]))
            self.home.end()
        self.repeat(1, 20, once)

    def started(self, size, hosts, since, then=""):
        """When the last of these hosts had started the program with so many machines, and whatever it says then."""
        return max(self.home.wait_for(f"{host} starts with {size}", lambda: self.home.logged(
            host, f"with {size}{then}$", since)) for host in hosts)

    # ---- jobs ----

    def work(self, hosts, there, least=2, **environment):
        for host in hosts:
            self.home.start(host, WORKER, there, least, **environment)

    def test_two_that_restart_do_not_begin_beside_the_others(self):
        """Nor does anybody wait for ever after a power cut."""
        self.begin(5)
        self.home.end()

        def once(chance):
            lost, since = chance.sample(self.home.hosts, 2), time.monotonic()
            rest = [h for h in self.home.hosts if h not in lost]
            self.work(self.home.hosts, 5)
            self.started(5, self.home.hosts, since)
            since = time.monotonic()
            for host in lost:
                self.home.kill(host)
            self.lab.switch("partition " + "|".join(",".join(map(str, side)) for side in (lost, rest)))
            self.started(3, rest, since)
            again = time.monotonic()
            self.work(lost, 2)
            for host in lost:
                self.home.wait_for(f"{host} waits for the others", lambda: self.home.logged(
                    host, "it ran with 5 members, and may run without this side", again))
            time.sleep(2)
            for host in lost:
                self.assertIsNone(self.home.logged(host, "with 2$", again), self.home.told())
            since = time.monotonic()
            self.lab.switch("heal")
            FIGURES.add("taken_in_again", self.started(5, self.home.hosts, since) - since)
            since = time.monotonic()
            for host in self.home.hosts:
                self.home.kill(host)
            self.work(rest, 3)
            FIGURES.add("begun_after_power_cut", self.started(3, rest, since) - since)
            for host in rest:
                self.home.kill(host)
            for host in self.home.hosts:
                self.assertIn("Forgotten: work", self.home.command(host, "job", "forget", "work"))
        self.repeat(1, 20, once)

    def test_one_pair_without_a_way(self):
        """One of the two is left out, and is told why; the others work."""
        self.begin(HOSTS)
        self.home.end()
        one, two, since = 2, 3, time.monotonic()
        for host, other in ((one, two), (two, one)):
            for address in (self.lab.address(other), self.lab.address6(other)):
                sh("ip", "-n", self.lab.spaces[host], "neigh", "replace", address, "lladdr", "02:00:0a:4d:ff:ff", "nud",
                   "permanent", "dev", DEVICE)
        for hosts in ((0, 1), (one, two)):  # who leads must reach all
            self.work(hosts, HOSTS, HEARTH_CONNECT_TIMEOUT_MS=300, HEARTH_CONNECT_RETRIES=0)
            self.home.wait_view()
        FIGURES.add("begun_without_one", self.started(3, (0, 1), since) - since)
        out = self.home.wait_for("one is left out", lambda: next((h for h in (one, two) if self.home.logged(
            h, "it runs with 3 members, without home[23], which could not be joined with home[23]", since)), None))
        self.started(3, [h for h in (one, two) if h != out], since)
        FIGURES.show()

    def test_transport_of_a_long_path_is_kept(self):
        """What was measured for a group holds for the next one: a reform does not race tcp against quic again."""
        self.begin(3, rate="100m", delay="20ms")
        self.home.end()
        since = time.monotonic()
        self.work(self.home.hosts, 3, HEARTH_FORM_TIMEOUT_MS=30000)
        self.started(3, self.home.hosts, since)
        before, since = self.raced(0, since), time.monotonic()
        self.assertEqual(len(before), 2, self.home.told())
        self.home.kill(2)
        FIGURES.add("formed_again_at_40_ms", self.started(2, (0, 1), since) - since)
        after = self.raced(0, since)
        self.assertEqual(len(after), 1, self.home.told())
        self.assertLessEqual(set(after), set(before))
        FIGURES.show()

    def raced(self, host, since):
        """What was measured of the paths of a host's group, as it told it since then."""
        return [line.split("measured", 1)[1] for at, line in self.home.logs[host] if at >= since and "measured in both" in line]

    # ---- silence ----

    def stranded(self, host):
        status = self.home.status(host)
        return status["view"] if status["view"]["state"] == "stranded" else None

    def wait_stranded(self, host, since):
        """It says so, and whom it misses."""
        view = self.home.wait_for(f"{host} is stranded", lambda: self.stranded(host), STRANDED_S)
        self.assertRegex(view["why"], r"\d of \d members are missing \(")
        self.home.wait_for(f"{host} says whom it misses",
                           lambda: self.home.logged(host, r"quorum lost .*: \d of \d members are missing \(", since), STRANDED_S)

    def away_and_back(self, count, names, leaves, returns, stranded=True):
        """A machine cannot be heard for a while: the others go on, and take in the same process again. Of two the leader's
        side goes on; the other one cannot know, and stops. `names`: of the two figures."""
        self.begin(count)

        def once(chance):
            before = self.home.wait_view()
            lost = chance.choice(self.home.hosts) if count > 2 else 1 - before.leader
            role, since = "leader" if lost == before.leader else "member", time.monotonic()
            leaves(lost)
            after = self.timed(names[0].format(role), since, self.others(lost))
            self.assertEqual(after.instance, before.instance)
            if lost != before.leader:
                self.assertEqual(after.leader, before.leader)
            if stranded:
                self.wait_stranded(lost, since)
            if count > 2:  # one of two begins anew after a while, and its cluster may be the one that both go on with
                time.sleep(chance.uniform(0, 2))
            since = time.monotonic()
            returns(lost)
            again = self.timed(names[1], since)
            if count > 2:
                self.assertEqual(again.instance, before.instance, "the majority's cluster is the one that goes on")
            self.assertEqual(again.ids, before.ids, "the same processes")
        self.repeat(1, 20, once)

    def test_frozen_and_thawed(self):
        self.away_and_back(HOSTS, ("{}_frozen", "thawed"), lambda host: self.home.freeze(host),
                           lambda host: self.home.thaw(host), stranded=False)

    def test_cut_off_and_restored(self):
        self.away_and_back(HOSTS, ("{}_cut_off", "restored"), lambda host: self.home.cut(host),
                           lambda host: self.home.restore(host))

    def test_two_machines(self):
        self.away_and_back(2, ("one_of_two_cut_off", "one_of_two_restored"), lambda host: self.home.cut(host),
                           lambda host: self.home.restore(host))

    def test_cable_is_pulled(self):
        """The host notices: its device is down."""
        self.away_and_back(HOSTS, ("unplugged", "plugged_in"), lambda host: self.home.pull(host),
                           lambda host: self.home.plug(host))

    def test_halves(self):
        """Of two halves the one with the leader goes on."""
        self.begin(HOSTS)

        def once(chance):
            before = self.home.wait_view()
            away = chance.sample(self.others(before.leader), 2)
            left, since = [h for h in self.home.hosts if h not in away], time.monotonic()
            self.lab.switch("partition " + "|".join(",".join(map(str, half)) for half in (left, away)))
            after = self.timed("halved", since, left)
            self.assertEqual(after.instance, before.instance)
            for host in away:
                self.wait_stranded(host, since)
            since = time.monotonic()
            self.lab.switch("heal")
            again = self.timed("healed", since)
            self.assertEqual(again.ids, before.ids)  # in a cluster that never worked the other half may have begun anew
        self.repeat(1, 20, once)

    # ---- addresses ----

    def addresses(self, host):
        """Of this host, as all others have them in their view."""
        found = set()
        for other in self.others(host):
            members = self.home.status(other)["view"]["members"]
            found.add(tuple(next((m["addresses"] for m in members if m["name"] == self.home.host_name(host)), ())))
        return found.pop() if len(found) == 1 else None

    def test_address_changes(self):
        self.begin(3)
        self.number = 100

        def once(chance):
            before = self.home.wait_view()
            host, since = chance.choice(self.home.hosts), time.monotonic()
            old = next(a for a in self.addresses(host) if a.startswith("10.")).rsplit(":", 1)[0]
            self.number += 1
            new = f"10.77.0.{self.number}"
            self.home.change_address(host, old, new)

            def moved():
                told = self.addresses(host)
                return told and any(a.startswith(new + ":") for a in told) and \
                    not any(a.startswith(old + ":") for a in told)
            self.home.wait_for("the view has the new address", moved)
            FIGURES.add("address_changed", time.monotonic() - since)
            after = self.home.wait_view()
            self.assertEqual(after.ids, before.ids, "the same members")
            gone = [h for h in self.others(host) if self.home.logged(h, f" left {self.home.host_name(host)}", since)]
            self.assertEqual(gone, [], f"it was taken out meanwhile\n{self.home.told()}")
        self.repeat(2, 20, once)

    # ---- a full disk ----

    @contextlib.contextmanager
    def small_disk(self, host):
        """The host's config folder is on a disk of its own, of a few blocks."""
        folder = self.home.config(host)
        folder.mkdir(exist_ok=True)
        sh("mount", "-t", "tmpfs", "-o", "size=64k,mode=700", "hearth-test", folder)
        try:
            yield folder
        finally:
            self.home.end_one(host)
            sh("umount", folder)

    @staticmethod
    def fill(folder):
        ballast = folder / "ballast"
        with open(ballast, "wb", buffering=0) as file, contextlib.suppress(OSError):
            while file.write(bytes(4096)):
                pass
        return ballast

    def refused(self, host, *args):
        """The command fails, and says that the disk is full and where."""
        code, _, errors = self.home.try_command(host, *args, timeout=DISK_S)
        self.assertEqual(code, 1, errors)
        self.assertIn("No space left", errors)
        self.assertIn(str(self.home.config(host)), errors)

    def test_disk_is_full(self):
        self.begin(4, hosts=(0, 1, 2))
        for seed in seeds(1, 20):
            with replayable(self, seed):
                self.fill_disk(3)
        FIGURES.show()

    def fill_disk(self, host):
        before = self.home.wait_view()
        with self.small_disk(host) as folder:
            ballast = self.fill(folder)
            self.refused(host, "join", self.home.token)
            ballast.unlink()
            self.home.join(host)
            ballast = self.fill(folder)
            self.refused(host, "up")  # it has no key yet, and no room for one
            self.assertEqual(self.home.wait_view(), before, "others did not notice")
            ballast.unlink()
            self.home.command(host, "id")  # it makes one
            self.fill(folder)
            since = time.monotonic()
            self.home.up(host)
            with_it = self.timed("joined_with_full_disk", since)
            self.assertEqual({h: i for h, i in with_it.ids.items() if h != host}, before.ids)
            self.assertEqual(self.home.leave(host), 0)
            self.home.wait_view()
