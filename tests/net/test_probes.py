#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What probes say of lines whose rate is set: veth with tbf, and the switch, with and without delay. Within 15 %."""

import json
import subprocess
import sys
import unittest

from lab import BINARY, Lab, bits, unavailable

PROBER = BINARY / "hearth-prober"
PORT = 5000
PROBES = 4
WITHIN = 0.15
BURST_MS, BURST_TRIPS = 200, 12  # as src/home/probes.c

REASON = unavailable("switch") or unavailable("veth") or (None if PROBER.exists() else f"{PROBER} is not built")


@unittest.skipIf(REASON, REASON)
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
        for result, error in zip(results, errors):
            self.assertLess(abs(error), WITHIN, result)

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


if __name__ == "__main__":
    if REASON:
        print(f"SKIP: {REASON}")
        sys.exit(77)
    unittest.main(verbosity=2)
