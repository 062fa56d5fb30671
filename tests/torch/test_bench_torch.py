# SPDX-License-Identifier: Apache-2.0
"""bench/torch runs, on one host and on two, and reckons its rows right. What it prints here measures nothing."""

import importlib.util
import json
import subprocess
import sys
import tempfile
import types
import unittest
from pathlib import Path

from lab import unavailable
from places import SOURCE

PROGRAM = SOURCE / "bench/torch/run_torch.py"
SECONDS = 120
TORCH = importlib.util.find_spec("torch")

spec = importlib.util.spec_from_file_location("run_torch", PROGRAM)
run_torch = importlib.util.module_from_spec(spec)
spec.loader.exec_module(run_torch)


class Arithmetic(unittest.TestCase):
    """No process, no network: turns that are made up."""

    def rows(self, turns):
        found = types.SimpleNamespace(network="1g", turns=turns, bits={"hook.int8": False},
                                      processor={way: [0.5] for way in turns},
                                      options=types.SimpleNamespace(quick=False))
        return {row["way"]: row for row in run_torch.rows_of(found)}

    def test_ratio_is_over_the_faster_gloo_of_the_same_round(self):
        rows = self.rows({"gloo.bbr": [[9.0], [9.0], [9.0]], "gloo.cubic": [[4.0], [2.0], [2.0, 2.0, 8.0]],
                          "gloo.cubic.fp16": [[1.0], [1.0], [1.0]], "hook.int8": [[2.0], [0.5], [1.0]]})
        self.assertEqual(rows["hook.int8"]["vs"], "gloo.cubic")
        self.assertEqual(rows["hook.int8"]["ratio"], 2.0)  # of 2, 4 and 2
        self.assertEqual(rows["gloo.bbr"]["vs"], "gloo.cubic")
        self.assertEqual(rows["gloo.cubic"]["steps"], 5)
        self.assertEqual(rows["hook.int8"]["median_us"], 1e6)
        self.assertEqual(rows["hook.int8"]["target"], 2.5)
        self.assertFalse(rows["hook.int8"]["same_bits"])
        self.assertEqual(run_torch.lines_of([rows["hook.int8"]])[1][-3:], ["2.00", "2.5", "NO"])

    def test_sums_are_compared_with_sums(self):
        rows = self.rows({"gloo.cubic": [[9.0]], "sum.gloo.cubic": [[3.0]], "sum.backend": [[1.0]], "compute": [[1.0]]})
        self.assertEqual((rows["sum.backend"]["vs"], rows["sum.backend"]["ratio"]), ("sum.gloo.cubic", 3.0))
        self.assertIsNone(rows["compute"]["ratio"])

    def test_bound(self):
        self.assertEqual(run_torch.bound_us("100m", 25_000_000), 8e6)
        self.assertIsNone(run_torch.bound_us("loopback", 25_000_000))


@unittest.skipIf(TORCH is None, "no torch here (Debian: python3-torch)")
class Quick(unittest.TestCase):
    def run_it(self, *arguments):
        with tempfile.TemporaryDirectory() as scratch:
            rows, table = Path(scratch, "rows.json"), Path(scratch, "table.md")
            line = [sys.executable, "-B", PROGRAM, "--quick", "--json", rows, "--markdown", table, *arguments]
            done = subprocess.run([str(word) for word in line], stdin=subprocess.DEVNULL, capture_output=True,
                                  text=True, timeout=SECONDS)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertIn("measure nothing", done.stdout)
            self.assertIn("| compute |", table.read_text())
            return json.loads(rows.read_text())["results"]

    def test_loopback(self):
        rows = self.run_it("--networks", "loopback")
        ways = {row["way"] for row in rows}
        self.assertTrue({"compute", "hook.none", "hook.int8", "hook@tcp.none"} <= ways, ways)
        self.assertTrue(any(way.startswith("gloo.") and way.endswith(".powersgd:4") for way in ways), ways)
        self.assertTrue(all(row["same_bits"] for row in rows))

    @unittest.skipIf(unavailable("veth"), unavailable("veth"))
    def test_two_hosts(self):
        rows = self.run_it("--networks", "100m", "--only", "hook.topk")
        self.assertEqual({row["network"] for row in rows}, {"100m"})
        self.assertIn("hook.topk:0.01,values=int8", {row["way"] for row in rows})
