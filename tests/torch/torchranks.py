# SPDX-License-Identifier: Apache-2.0
"""Starts the ranks of a torch job on this machine, each a process that runs scenes and tells what came of them.

A scene is a function (rank, size) -> what JSON can hold. Run as a program, this file is one rank.
"""

import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import traceback
import unittest
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(SOURCE / "tests/support"))  # for a rank, which runs this file
from ports import free_port  # noqa: E402

SECONDS = 150  # against hanging


def environment(rank, size, port, **more):
    """As torchrun sets it, and where the package is."""
    own = {k: v for k, v in os.environ.items() if not re.match("HEARTH_(?!LIBRARY|TORCH_BACKEND|FASHION|TEST_)", k)}
    own.update(RANK=str(rank), WORLD_SIZE=str(size), LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(size),
               MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), OMP_NUM_THREADS="1", HEARTH_OP_TIMEOUT_MS="60000",
               PYTHONPATH=os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(SOURCE / "bindings/python")])))
    own.update(more)
    return own


class Rank:
    """How one process ended: status (None: it hung and was killed), results by scene, what it wrote, and when."""

    def __init__(self, process, results, log):
        self.process, self.results_path, self.log_path = process, results, log
        self.status, self.results, self.log, self.ended = None, {}, "", None

    def look(self):
        """True while it runs."""
        if self.status is None and self.process.poll() is not None:
            self.status, self.ended = self.process.returncode, time.monotonic()
        return self.status is None

    def collect(self):
        self.log = Path(self.log_path).read_text(errors="replace")
        lines = Path(self.results_path).read_text().splitlines() if os.path.exists(self.results_path) else []
        self.results = dict(json.loads(line) for line in lines)


def run(file, scenes, size, seconds=SECONDS, **more):
    """Runs the scenes of a file one after the other on `size` ranks; nothing is left running."""
    with tempfile.TemporaryDirectory() as place:
        ranks, port = [], free_port()
        try:
            for rank in range(size):
                results, log = (os.path.join(place, f"{rank}.{end}") for end in ("json", "log"))
                with open(log, "w") as output:
                    process = subprocess.Popen(
                        [sys.executable, "-B", __file__, str(file), results, *scenes], stdin=subprocess.DEVNULL,
                        stdout=output, stderr=output, env=environment(rank, size, port, **more))
                ranks.append(Rank(process, results, log))
            deadline = time.monotonic() + seconds
            while any([rank.look() for rank in ranks]) and time.monotonic() < deadline:
                time.sleep(0.02)
        finally:
            for rank in ranks:
                if rank.process.poll() is None:
                    rank.process.kill()
                    rank.process.wait()
                rank.collect()
        return ranks


class Scenes(unittest.TestCase):
    """Runs its scenes once, on `size` ranks; each test looks at one of them."""

    file, size, names = None, 2, ()

    @classmethod
    def setUpClass(cls):
        cls.ranks = run(cls.file, cls.names, cls.size)

    def of(self, scene):
        """What each rank told."""
        for number, rank in enumerate(self.ranks):
            if scene not in rank.results:
                self.fail(f"rank {number} ({rank.status}) did not get through '{scene}':\n{rank.log[-6000:]}")
        return [rank.results[scene] for rank in self.ranks]


def main(file, results, *scenes):
    """One rank. A scene that fails ends it: the others could not go on with the next one."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    sys.path.insert(0, str(Path(file).parent))
    spec = importlib.util.spec_from_file_location(Path(file).stem, file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with open(results, "w", buffering=1) as told:
        for scene in scenes:
            try:
                result = getattr(module, scene)(dist.get_rank(), dist.get_world_size())
            except BaseException:
                traceback.print_exc()
                sys.exit(1)
            told.write(json.dumps([scene, result]) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
