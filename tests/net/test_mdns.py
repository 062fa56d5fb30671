# SPDX-License-Identifier: Apache-2.0
"""Nodes find each other by mDNS, on hosts made of namespaces: on one host, on several, through changes of interfaces and
addresses, beside avahi-daemon, and whatever strangers say."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import unittest
from pathlib import Path

from lab import BINARY, DEVICE, Lab, sh, unavailable
from places import require, unbuilt

SEEKER, HELPER, NOISE = BINARY / "hearth-seeker", BINARY / "hearth-mdns", Path(__file__).with_name("noise.py")
PATIENCE_S = 30  # against hangs; nothing is measured
STRANGER = 2  # the host that noise comes from
MEMORY_MAX = 256 << 20
LOG_MAX = 150  # lines, whatever happens

require(unbuilt(SEEKER, HELPER) or unavailable("veth"))


def avahi_daemon():
    return shutil.which("avahi-daemon", path=os.environ.get("PATH", "") + ":/usr/sbin")


class Seeker:
    """A finder in a host; a thread reads what it tells."""

    def __init__(self, lab, host, node, space="a", helper="", seeds="", bind=""):
        self.node, self.changed = node * 2, threading.Condition()
        self.found, self.state, self.states, self.log, self.seeds = [], {}, [], [], []
        self.process = lab.popen(host, [SEEKER, helper, space, node, 5000 + int(node, 16), f"node-{node}", seeds, bind],
                                 stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.threads = [threading.Thread(target=self._read), threading.Thread(target=self._read_log)]
        for thread in self.threads:
            thread.start()

    def _read(self):
        for line in self.process.stdout:
            told = json.loads(line)
            with self.changed:
                if told["what"] == "sightings":
                    self.found = told["list"]
                elif told["what"] == "state":
                    self.state = told
                    self.states.append(told["text"])
                elif told["what"] == "seeds":
                    self.seeds = told["list"]
                self.changed.notify_all()
        with self.changed:
            self.changed.notify_all()

    def _read_log(self):
        for line in self.process.stderr:
            self.log.append(line)

    def nodes(self, space="aa"):
        return {s["node"] for s in self.found if s["space"] == space}

    def addresses(self, node):
        return {s["address"] for s in self.found if s["node"] == node * 2}

    def helper(self):
        match = re.search(r"mdns works \(helper (\d+)", self.state.get("text", ""))
        return int(match[1]) if match else None

    def wait(self, condition, what):
        with self.changed:
            if not self.changed.wait_for(condition, PATIENCE_S):
                raise AssertionError(f"node {self.node}: {what}; it sees {self.found}, {self.state}, "
                                     f"log {''.join(self.log[-5:])}")

    def sees(self, *nodes):
        """Waits until exactly these nodes of its namespace are seen."""
        expected = {n * 2 for n in nodes}
        self.wait(lambda: self.nodes() == expected, f"expected {sorted(expected)}")

    def works(self):
        self.wait(lambda: self.state.get("works"), "mdns does not work")

    def end(self, kill=False):
        if kill:
            self.process.kill()
        self.process.stdin.close()
        status = self.process.wait(PATIENCE_S)
        for thread in self.threads:
            thread.join()
        self.process.stdout.close()
        self.process.stderr.close()
        return status


class Mdns(unittest.TestCase):
    def setUp(self):
        self.lab = Lab(3, mode="veth")
        self.addCleanup(self.lab.close)

    def seeker(self, host, node, **more):
        seeker = Seeker(self.lab, host, node, **more)
        self.addCleanup(lambda: seeker.process.poll() is None and seeker.end(kill=True))
        return seeker

    def link(self, host, *command):
        sh("ip", "-n", self.lab.spaces[host], *command)

    def noise(self, kind, *more):
        return int(self.lab.run(STRANGER, [sys.executable, "-B", NOISE, self.lab.address(STRANGER), kind, *more]))

    # ---- finding ----

    def test_two_hosts(self):
        a, b = self.seeker(0, "1"), self.seeker(1, "2")
        a.sees("2")
        b.sees("1")
        expected = {"10.77.0.2:5002", "[fd77::2]:5002"}
        a.wait(lambda: a.addresses("2") == expected, f"expected {expected}")
        self.assertEqual({s["interface"] for s in a.found}, {DEVICE})
        b.process.stdin.write("name somebody else\n")
        b.process.stdin.flush()
        a.wait(lambda: all(s["name_length"] == len("somebody else") for s in a.found), "expected another name")
        self.assertEqual(b.end(), 0)
        a.sees()  # it said goodbye
        self.assertEqual(a.end(), 0)

    def test_three_on_a_host_and_one_elsewhere(self):
        seekers = {n: self.seeker(0, n) for n in "123"}
        seekers["4"] = self.seeker(1, "4")
        for node, seeker in seekers.items():
            seeker.sees(*(set("1234") - {node}))
        outside, inside = {"10.77.0.1:5001", "[fd77::1]:5001"}, {"127.0.0.1:5001", "[::1]:5001"}
        seekers["4"].wait(lambda: seekers["4"].addresses("1") == outside, f"expected {outside}")
        seekers["2"].wait(lambda: seekers["2"].addresses("1") == outside | inside, f"expected {outside | inside}")

    def test_a_host_without_a_network(self):
        self.link(0, "link", "set", DEVICE, "down")
        seekers = {n: self.seeker(0, n) for n in "123"}
        for node, seeker in seekers.items():
            seeker.sees(*(set("123") - {node}))
        self.assertEqual({s["interface"] for s in seekers["1"].found}, {"lo"})

    def test_other_namespaces_are_seen_as_such(self):
        a = self.seeker(0, "1")
        self.seeker(1, "2", space="b")
        a.wait(lambda: a.nodes("bb") == {"22"}, "expected a node of another cluster")
        self.assertEqual(a.nodes(), set())

    def test_bound_to_an_interface(self):
        a = self.seeker(0, "1", bind=self.lab.address(0))
        b = self.seeker(0, "2", bind="lo")
        c = self.seeker(1, "3")
        a.sees("3")
        c.sees("1")
        c.wait(lambda: c.addresses("1") == {"10.77.0.1:5001"}, "expected one address")
        self.assertEqual(b.nodes(), set())

    def test_without_a_helper(self):
        a = self.seeker(0, "1", helper="/nowhere/hearth-mdns", seeds="10.77.0.9,10.77.0.10:7")
        a.wait(lambda: "does not work" in a.state.get("text", ""), "expected that it does not work")
        self.assertIn("/nowhere/hearth-mdns", a.state["text"])
        a.wait(lambda: a.seeds == ["10.77.0.9:52416", "10.77.0.10:7"], "expected seeds")
        self.assertEqual(a.end(), 0)

    # ---- changes ----

    def test_interface_down_and_up(self):
        a, b = self.seeker(0, "1"), self.seeker(1, "2")
        a.sees("2")
        self.link(1, "link", "set", DEVICE, "down")
        b.wait(lambda: "1 interface)" in b.state["text"], "expected loopback alone")
        c = self.seeker(1, "3")  # made while there is no network
        c.sees("2")
        self.link(1, "link", "set", DEVICE, "up")
        self.link(1, "addr", "replace", f"{self.lab.address6(1)}/64", "dev", DEVICE, "nodad")
        a.sees("2", "3")
        b.sees("1", "3")
        c.sees("1", "2")

    def test_address_change(self):
        a, b = self.seeker(0, "1"), self.seeker(1, "2")
        a.sees("2")
        self.link(1, "addr", "add", "10.77.0.200/24", "dev", DEVICE)
        a.wait(lambda: "10.77.0.200:5002" in a.addresses("2"), "expected a second address")
        self.link(1, "addr", "del", f"{self.lab.address(1)}/24", "dev", DEVICE)
        self.link(1, "addr", "replace", "10.77.0.200/24", "dev", DEVICE)
        expected = {"10.77.0.200:5002", "[fd77::2]:5002"}
        a.wait(lambda: a.addresses("2") == expected, f"expected {expected}")
        b.sees("1")

    def test_interface_that_comes_back_as_another(self):
        a, b = self.seeker(0, "1"), self.seeker(1, "2")
        a.sees("2")
        sh("ip", "-n", self.lab.centre, "link", "del", "p1")
        b.wait(lambda: "1 interface)" in b.state["text"], "expected loopback alone")
        sh("ip", "-n", self.lab.centre, "link", "add", "p1", "type", "veth", "peer", "name", DEVICE, "netns",
           self.lab.spaces[1])
        sh("ip", "-n", self.lab.centre, "-batch", "-", text="link set p1 master br0\nlink set p1 up\n")
        self.lab.address_all(1)
        c = self.seeker(1, "3")
        a.sees("2", "3")
        b.sees("1", "3")
        c.sees("1", "2")

    # ---- ends ----

    @unittest.skipUnless(os.uname().machine in ("x86_64", "aarch64"), "there is no filter for this processor")
    def test_helper_has_given_up_its_rights(self):
        a, b = self.seeker(0, "1"), self.seeker(1, "2")
        a.sees("2")
        b.sees("1")
        for seeker in (a, b):
            status = Path(f"/proc/{seeker.helper()}/status").read_text(encoding="ascii")
            self.assertRegex(status, r"NoNewPrivs:\s+1\n")
            self.assertRegex(status, r"Seccomp:\s+2\n")
            self.assertEqual([line for line in seeker.log if "sandbox" in line and "Landlock" not in line], [])

    def test_helper_killed_comes_back(self):
        a, b = self.seeker(0, "1"), self.seeker(1, "2")
        a.sees("2")
        b.sees("1")
        first = b.helper()
        os.kill(first, signal.SIGKILL)
        b.wait(lambda: b.helper() not in (None, first), "expected another helper")
        c = self.seeker(0, "3")
        b.sees("1", "3")  # and it has forgotten nobody
        c.sees("1", "2")
        a.sees("2", "3")
        self.assertTrue(any("signal 9" in line for line in b.log))

    def test_helper_ends_with_its_library(self):
        a, b = self.seeker(0, "1"), self.seeker(1, "2")
        a.sees("2")
        b.works()
        helper = b.helper()
        b.end(kill=True)
        a.sees()  # it said goodbye all the same
        for _ in range(PATIENCE_S * 20):
            if not os.path.exists(f"/proc/{helper}"):
                break
            time.sleep(0.05)
        self.assertFalse(os.path.exists(f"/proc/{helper}"))

    # ---- others ----

    @unittest.skipUnless(avahi_daemon(), "avahi-daemon is not installed")
    def test_beside_avahi_daemon(self):
        settings = Path(self.lab.directory) / "avahi.conf"
        settings.write_text("[server]\nenable-dbus=no\nhost-name=other\n[publish]\npublish-workstation=no\n")
        daemon = self.lab.popen(0, [avahi_daemon(), "--no-drop-root", "--no-chroot", "--no-rlimits", "-f", settings],
                                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        lines = []
        for line in daemon.stderr:
            lines.append(line)
            if "Server startup complete" in line:
                break
        self.addCleanup(daemon.stderr.close)
        if not lines or "complete" not in lines[-1]:
            self.skipTest(f"avahi-daemon does not start: {''.join(lines).strip()}")
        a, b, c = self.seeker(0, "1"), self.seeker(0, "2"), self.seeker(1, "3")
        a.sees("2", "3")
        b.sees("1", "3")
        c.sees("1", "2")
        self.assertIsNone(daemon.poll())
        daemon.kill()
        d = self.seeker(0, "4")
        d.sees("1", "2", "3")

    def check_bounds(self, *seekers):
        peak = 0
        for seeker in seekers:
            seeker.works()
            status = Path(f"/proc/{seeker.helper()}/status").read_text()
            peak = max(peak, int(re.search(r"VmHWM:\s+(\d+)", status)[1]) << 10)
            self.assertLess(peak, MEMORY_MAX)
            self.assertLess(len(seeker.log), LOG_MAX)
            self.assertLessEqual(len(seeker.found), 1024)
        ended = sum("mdns-ended" in line for line in seekers[0].log)
        print(f"  helper: {peak >> 20} MiB, ended {ended} times; log: {len(seekers[0].log)} lines; "
              f"{len(seekers[0].found)} sightings", flush=True)

    def survive(self, *kinds):
        """Noise while two nodes run: they go on seeing each other, and find a third."""
        a, b = self.seeker(0, "1"), self.seeker(1, "2")
        a.sees("2")
        b.sees("1")
        for kind in kinds:
            self.assertGreater(self.noise(*kind.split()), 0)
            self.assertIn("22", a.nodes())
            self.assertIn("11", b.nodes())
        c = self.seeker(1, "3")
        a.sees("2", "3")
        b.sees("1", "3")
        c.sees("1", "2")
        self.check_bounds(a, b, c)
        return a, b

    def test_random_bytes(self):
        self.survive("random")

    def test_cut_packets_and_loops(self):
        """Among them are some that end avahi 0.8, where they reach it."""
        for seeker in self.survive("cut", "loops"):
            self.assertFalse([line for line in seeker.log if "mdns-ended" in line])

    def test_giants_and_wrong_texts(self):
        a, _ = self.survive("giants", "texts")
        self.assertTrue(any("TXT" in line for line in a.log), a.log)

    def test_a_thousand_services(self):
        a, _ = self.survive("services")
        self.assertFalse(any(s["address"].startswith(("127.", "224.")) and s["interface"] == DEVICE for s in a.found))
        self.assertGreater(len(a.nodes("99")), 0)

    def test_forged_answers(self):
        a, b = self.seeker(0, "1"), self.seeker(1, "2")
        a.sees("2")
        (instance,) = {s["instance"] for s in a.found}
        self.assertGreater(self.noise("forged", f"hearth-{int(instance, 16):016x}"), 0)
        a.wait(lambda: "10.77.0.2:5002" in a.addresses("2"), "expected the true address")
        c = self.seeker(0, "3")
        c.sees("1", "2")
        b.sees("1", "3")
