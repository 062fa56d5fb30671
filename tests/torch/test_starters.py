# SPDX-License-Identifier: Apache-2.0
"""A plain script of torch.distributed runs under `hearth run` as it does under torchrun, and so does hearth.launch."""

import importlib.util
import os
import re
import subprocess
import sys
import unittest
from datetime import timedelta

from places import HEARTH, SOURCE, require

SCRIPT = SOURCE / "tests/torch/plain_script.py"
SECONDS = 120  # against hanging
# Without -r and -t the torchrun of torch 1.13 fails under Python 3.11.
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "-r", "9:1", "-t", "9:1", "--standalone", "--nproc_per_node"]

require(None if importlib.util.find_spec("torch") else f"{sys.executable} has no torch")


class Starters(unittest.TestCase):
    def lines(self, *command):
        """What the ranks said, in their order."""
        environment = {name: value for name, value in os.environ.items()
                       if not re.match("(MASTER_|OMP_|.*RANK$|.*WORLD_SIZE$)", name)}
        done = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=SECONDS, env=environment)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return sorted(re.findall(r"^rank .*$", done.stdout, re.M))

    def right(self, ranks):
        total = [ranks * (ranks + 1) / 2.0] * 3
        return [f"rank {rank} of {ranks}, here {rank}: {total}, 1 threads" for rank in range(ranks)]

    @unittest.skipIf(not HEARTH.exists(), f"{HEARTH} is not built")
    def test_hearth_run(self):
        for ranks in (2, 3):
            with self.subTest(ranks=ranks):
                self.assertEqual(self.lines(HEARTH, "run", "--no-prefix", "-n", ranks, "--", sys.executable, "-B", SCRIPT),
                                 self.right(ranks))

    def test_torchrun(self):
        self.assertEqual(self.lines(*TORCHRUN, 2, SCRIPT), self.right(2))

    def test_launch(self):
        """Forked after torch has started its threads here: their work must not be waited for there."""
        import torch
        import torch.distributed as dist

        import hearth

        def work():
            dist.init_process_group("gloo", timeout=timedelta(seconds=SECONDS))
            product = torch.ones(400, 400) @ torch.ones(400, 400)
            dist.all_reduce(product)
            dist.destroy_process_group()
            return float(product.relu().sum()), torch.get_num_threads()

        torch.set_num_threads(4)
        torch.ones(4000, 400) @ torch.ones(400, 400)
        self.assertEqual(hearth.launch(work, 2, timeout=SECONDS), [(400 * 400 * 400 * 2.0, 1)] * 2)
        self.assertEqual(torch.get_num_threads(), 4)
