# SPDX-License-Identifier: Apache-2.0
"""examples/train.py learns, the same whichever way it is started: torchrun, hearth run, by itself."""

import importlib.util
import os
import re
import signal
import subprocess
import sys
import unittest
from pathlib import Path

SOURCE = Path(os.environ.get("HEARTH_SOURCE_DIR", Path(__file__).resolve().parents[2]))
BINARY = Path(os.environ.get("HEARTH_BINARY_DIR", SOURCE / "build"))
EXAMPLES = SOURCE / "examples"
COMMAND = BINARY / "hearth"
DATA = Path("/usr/share/datasets/fashion-mnist")
SECONDS = 100
STEPS = 30
LAST = re.compile(r"accuracy ([\d.]+)%, (\d) replicas of the same bits; sent ([\d.]+) MB instead of ([\d.]+) MB")

# Without -r and -t the torchrun of torch 1.13 fails under Python 3.11.
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "-r", "9:1", "-t", "9:1")

MISSING = next((reason for there, reason in (
    (importlib.util.find_spec("torch"), "no torch here (Debian: python3-torch)"),
    (DATA.is_dir(), f"no {DATA} (Debian: dataset-fashion-mnist)"),
) if not there), None)


def run(*command):
    """Its output. It has a process group of its own, which is gone when this returns."""
    env = {**os.environ, "PYTHONPATH": str(SOURCE / "bindings/python"), "OMP_NUM_THREADS": "1",
           "HEARTH_LIBRARY": os.environ.get("HEARTH_LIBRARY", str(BINARY / "libhearth.so"))}
    with subprocess.Popen([str(word) for word in command], env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, start_new_session=True) as process:
        try:
            out, _ = process.communicate(timeout=SECONDS)
        finally:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
    if process.returncode:
        raise AssertionError(f"{command}: exit status {process.returncode}\n{out}")
    return out


@unittest.skipIf(MISSING, MISSING)
class Train(unittest.TestCase):
    def train(self, *command, processes=2):
        """Last loss and accuracy; replicas were alike and fewer bytes were sent, or it would have failed."""
        out = run(*command, "--steps", STEPS, "--batch", 16, "--codec", "int8")
        last = LAST.search(out)
        self.assertIsNotNone(last, out)
        accuracy, replicas, sent, plain = (float(text) for text in last.groups())
        self.assertEqual(replicas, processes)
        self.assertGreater(plain, 3 * sent)
        self.assertGreater(accuracy, 20, out)  # 10 is chance
        return re.search(rf"step {STEPS}/{STEPS}: loss (\S+)", out)[1], accuracy

    def test_started_in_three_ways(self):
        script = EXAMPLES / "train.py"
        found = {
            "torchrun": self.train(*TORCHRUN, "--standalone", "--nproc_per_node", 2, script),
            "hearth run": self.train(COMMAND, "run", "-n", 2, "--", sys.executable, script),
            "itself": self.train(sys.executable, script, "--local", 2),
        }
        self.assertEqual(len(set(found.values())), 1, found)

    def test_four_processes_and_topk(self):
        out = run(sys.executable, EXAMPLES / "train.py", "--local", 4, "--steps", 5)
        self.assertIn("4 replicas of the same bits", out)

    def test_is_short(self):
        self.assertLess(len((EXAMPLES / "train.py").read_text().splitlines()), 80)

    def test_notebook(self):
        self.assertIn("all replicas hold the same bits", run(sys.executable, EXAMPLES / "notebook.py"))


if __name__ == "__main__":
    if MISSING:
        print(f"skipped: {MISSING}")
    unittest.main(verbosity=2)
