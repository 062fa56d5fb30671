# SPDX-License-Identifier: Apache-2.0
"""Members that have no time stay members: their processors are taken by threads that never rest, and their lines are
full of what they add. Two clusters side by side, one for each preset that is quick to give somebody up."""

import json
import subprocess
import unittest

from cluster_hosts import BINARY, PROGRAMS, SOAK, Hosts
from lab import Lab, unavailable
from places import require, unbuilt

TOILER = BINARY / "hearth-toiler"
PRESETS = ("default", "low-latency")  # dead after 3 s and 1 s
MEMBERS = 4 if SOAK else 2  # of each cluster
TOIL_S = 30 if SOAK else 2
PATIENCE_S = 120

require(unavailable("veth") or unbuilt(*PROGRAMS, TOILER))


class Busy(unittest.TestCase):
    def start(self, lab, cluster, preset):
        hosts = range(cluster * MEMBERS, (cluster + 1) * MEMBERS)
        home = Hosts(lab, hosts, f"busy{cluster}")
        return [lab.popen(host, [TOILER, MEMBERS, preset, TOIL_S], env=home.environment(host), text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE) for host in hosts]

    def test_nobody_is_given_up(self):
        with Lab(len(PRESETS) * MEMBERS, rate="100m", mode="veth") as lab:
            crews = {preset: self.start(lab, i, preset) for i, preset in enumerate(PRESETS)}
            for preset, crew in crews.items():
                for toiler in crew:
                    out, errors = toiler.communicate(timeout=PATIENCE_S)
                    self.assertEqual(toiler.returncode, 0, errors)
                    told = json.loads(out)
                    print(f"figure: busy preset={preset} {out.strip()}", flush=True)
                    self.assertEqual(told["size"], MEMBERS)
                    for bad in ("unhealthy", "dead", "left", "quorum_lost"):
                        self.assertEqual(told[bad], 0, f"{preset}: {bad}: {told}")
