# SPDX-License-Identifier: Apache-2.0
"""What probes say of lines whose rate is set: veth with tbf, and the switch, with and without delay. Within 15 %. And
whole nodes, on two LANs with a slow trunk between them."""

import json
import statistics
import subprocess
import unittest

from lab import BINARY, Lab, bits, unavailable
from two_lans import two_lans
from places import require, unbuilt

PROBER, SURVEY = BINARY / "hearth-prober", BINARY / "hearth-survey"
PORT = 5000
PROBES = 5
ATTEMPTS = 3  # all hosts share this machine: when it is busy a line looks slow, but not again and again
WITHIN = 0.15
BURST_MS, BURST_TRIPS = 200, 12  # as src/cluster/probes.c

require(unavailable("switch") or unavailable("veth") or unbuilt(PROBER, SURVEY))


class Probes(unittest.TestCase):
    def measure(self, mode, rate, trip_ms=0, probes=PROBES, **more):
        """Probes from the first host to the second, each in tenths of Mbit/s."""
        with Lab(2, rate=rate, mode=mode, **more) as lab:
            where = f"{lab.address(1)}:{PORT}"
            listener = lab.popen(1, [PROBER, "listen", where], stdout=subprocess.PIPE, text=True)
            self.addCleanup(listener.stdout.close)
            self.assertEqual(listener.stdout.readline(), "ready\n")
            lines = lab.run(0, [PROBER, "dial", where, probes, max(BURST_MS, BURST_TRIPS * trip_ms)]).splitlines()
        results = [json.loads(line) for line in lines]
        self.assertEqual([r["status"] for r in results], ["HEARTH_OK"] * probes, results)
        return results

    def within(self, mode, rate, trip_ms=0, **more):
        results = self.measure(mode, rate, trip_ms, **more)
        wanted = bits(rate) / 1e6
        errors = [r["mbit"] / wanted - 1 for r in results]
        print(f"{mode} {rate} round trip {trip_ms} ms: " + " ".join(f"{e:+.1%}" for e in errors))
        self.assertLess(abs(statistics.median(errors)), WITHIN, results)

    def test_veth(self):
        for rate in ("10m", "100m", "1g"):
            self.within("veth", rate)

    def test_switch(self):
        for rate in ("10m", "100m", "1g"):
            self.within("switch", rate)

    def test_delay(self):
        self.within("switch", "100m", 10, delay="5ms")
        self.within("switch", "100m", 40, delay="20ms")
        self.within("switch", "1g", 2, delay="1ms")

    def test_slow_line_is_not_given_up(self):
        """256 KiB take 3 seconds: the receiver tells what it has before patience ends."""
        for result in self.measure("veth", "700k", probes=2):
            self.assertIn(result["mbit"], (0.6, 0.7, 0.8), result)

    @staticmethod
    def as_expected(ways, expected):
        """Whether all are as `expected` says."""
        errors = {(w["from"], w["to"]): w["mbit"] / (bits(expected(w["from"], w["to"])) / 1e6) - 1 for w in ways}
        print(f"{len(errors)} ways: " + " ".join(f"{e:+.1%}" for e in errors.values()))
        return all(abs(error) < WITHIN for error in errors.values())

    def survey(self, lab):
        """The table as each host knows it, when it is complete."""
        nodes = [lab.popen(i, [SURVEY, i, *map(lab.address, range(lab.count))], stdin=subprocess.PIPE,
                           stdout=subprocess.PIPE, text=True) for i in range(lab.count)]
        for node in nodes:
            self.addCleanup(node.stdout.close)
            self.addCleanup(node.stdin.close)
        tables = [json.loads(node.stdout.readline() or "null") for node in nodes]
        for node in nodes:
            node.stdin.close()
        self.assertEqual([node.wait(10) for node in nodes], [0] * lab.count)
        return tables

    def repeat(self, lab, expected):
        """Surveys until one is as expected; the table of the first host."""
        for _ in range(ATTEMPTS):
            tables = self.survey(lab)
            for table in tables:
                self.assertEqual(len(table), lab.count * (lab.count - 1))
            if self.as_expected(tables[0], expected):
                return tables[0]
        self.fail(tables[0])

    def test_two_lans(self):
        """Three hosts of 1 Gbit/s on each of two bridges, joined by a trunk of 100 Mbit/s."""
        with Lab(6, rate="1g", mode="veth") as lab:
            two_lans(lab, (3, 4, 5), "100m")
            table = self.repeat(lab, lambda a, b: "1g" if a // 3 == b // 3 else "100m")
        self.assertEqual({w["kind"] for w in table}, {"wire"})

    def test_switch_of_unlike_lines(self):
        up, down = ["1g", "1g", "100m", "300m"], ["1g", "1g", "100m", "30m"]
        with Lab(4, rate="1g") as lab:
            lab.rate(2, "100m")
            lab.rate(3, "300m", "30m")
            self.repeat(lab, lambda a, b: min(up[a], down[b], key=bits))
