# SPDX-License-Identifier: Apache-2.0
"""examples/pipeline.py trains to the loss of one process; examples/train.py learns, the same whichever way it is started: torchrun, hearth run, by itself; typed as
docs/pytorch.md has it, in the virtual environment that it tells to make."""

import importlib.util
import os
import re
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from places import BINARY, SOURCE, require

EXAMPLES = SOURCE / "examples"
DATA = Path("/usr/share/datasets/fashion-mnist")
SECONDS = 100
STEPS = 30
LAST = re.compile(r"accuracy ([\d.]+)%, (\d) replicas of the same bits; sent ([\d.]+) MB instead of ([\d.]+) MB")

require(None if importlib.util.find_spec("torch") else "no torch here (Debian: python3-torch)")
require(None if DATA.is_dir() else f"no {DATA} (Debian: dataset-fashion-mnist)")


def section(title):
    """A part of docs/pytorch.md."""
    text = (SOURCE / "docs/pytorch.md").read_text()
    return re.search(rf"^## {title}\n(.*?)^## ", text, re.M | re.S)[1]


def lines_of(text):
    """What there is to type in it."""
    return re.findall(r"^    (\S.*)$", text, re.M)


class Environment:
    """The virtual environment of the page, with the package in it but no other way to find it: what a line runs there
    is what a user gets who has typed `pip install`."""

    def __init__(self):
        self.place = tempfile.TemporaryDirectory()
        home = Path(self.place.name)
        subprocess.run([sys.executable, "-m", "venv", "--system-site-packages", "--without-pip", home], check=True,
                       timeout=SECONDS)
        (packages,) = home.glob("lib/python3*/site-packages")
        (packages / "hearth.pth").write_text(f"{SOURCE / 'bindings/python'}\n")
        self.variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        self.variables.update(PATH=os.pathsep.join([str(home / "bin"), str(BINARY), os.environ["PATH"]]),
                              OMP_NUM_THREADS="1",
                              HEARTH_LIBRARY=os.environ.get("HEARTH_LIBRARY", str(BINARY / "libhearth.so")))

    def start(self, line):
        return subprocess.Popen(["sh", "-c", f"exec {line}"], cwd=SOURCE, env=self.variables, stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)

    def run(self, *lines):
        """The output of lines that are typed at once. Each has a process group of its own, which is gone afterwards."""
        processes, told = [self.start(line) for line in lines], []
        try:
            told = [process.communicate(timeout=SECONDS)[0] for process in processes]
        finally:
            for process in processes:
                try:
                    os.killpg(process.pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
                process.wait()
        for line, process, out in zip(lines, processes, told):
            if process.returncode:
                raise AssertionError(f"{line}: exit status {process.returncode}\n{out}")
        return "".join(told)


class Train(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.environment = Environment()
        cls.addClassCleanup(cls.environment.place.cleanup)
        cls.lines = [line for line in lines_of(section("Starting")) if "examples/train.py" in line]

    def train(self, *lines, processes=2):
        """Last loss and accuracy; replicas were alike and fewer bytes were sent, or it would have failed."""
        out = self.environment.run(*[f"{line} --steps {STEPS} --batch 16 --codec int8" for line in lines])
        last = LAST.search(out)
        self.assertIsNotNone(last, out)
        accuracy, replicas, sent, plain = (float(text) for text in last.groups())
        self.assertEqual(replicas, processes)
        self.assertGreater(plain, 3 * sent)
        self.assertGreater(accuracy, 20, out)  # 10 is chance
        return re.search(rf"step {STEPS}/{STEPS}: loss (\S+)", out)[1], accuracy

    def test_started_as_the_page_says(self):
        torchrun, hearth_run, local = self.lines
        self.assertIn("torch.distributed.run", torchrun)
        self.assertIn("hearth run", hearth_run)
        self.assertEqual(self.train(torchrun), self.train(local))
        self.assertEqual(self.lines, lines_of((EXAMPLES / "train.py").read_text().split('"""')[1]))

    def test_torchrun_on_two_machines(self):
        """Both are this one."""
        (line,) = [line for line in lines_of(section("Starting")) if "--node_rank 0" in line]
        line = line.replace("desk", "127.0.0.1").replace(" train.py", " examples/train.py")
        line += " --steps 3"
        out = self.environment.run(line, line.replace("--node_rank 0", "--node_rank 1"))
        self.assertIn("2 replicas of the same bits", out)

    def test_four_processes_and_topk(self):
        rest = "--steps 5 --codec topk:0.01,values=int8"
        outs = [self.environment.run(f"{line} {rest}") for line in (self.lines[1], "python3 examples/train.py --local 4")]
        for out in outs:
            self.assertIn("4 replicas of the same bits", out)
        self.assertEqual(*[re.search(r"step 5/5: loss (\S+)", out)[1] for out in outs])

    def test_is_short(self):
        for name in ("train.py", "pipeline.py"):
            self.assertLess(len((EXAMPLES / name).read_text().splitlines()), 80)

    def test_notebook(self):
        self.assertIn("all replicas hold the same bits", self.environment.run("python3 examples/notebook.py"))


class Pipeline(unittest.TestCase):
    def test_two_stages_train_to_the_loss_of_one_process(self):
        environment = Environment()
        self.addCleanup(environment.place.cleanup)

        def loss(processes, codec):
            line = f"hearth run -n {processes} -- python3 examples/pipeline.py --steps 100 --codec {codec}"
            return float(re.search(r"loss ([\d.]+)$", environment.run(line), re.M)[1])
        one, two, half = loss(1, "none"), loss(2, "none"), loss(2, "bf16")
        self.assertLess(one, 1.8)  # 2.3 at first
        self.assertAlmostEqual(two, one, delta=1e-6 * one)
        self.assertNotEqual(half, one)
        self.assertAlmostEqual(half, one, delta=0.01 * one)
