# SPDX-License-Identifier: Apache-2.0
"""What tests of the Python package share: members as threads and as processes, each with a limit of time."""

import faulthandler
import os
import subprocess
import sys
import threading
import unittest

from places import BINARY, SOURCE

os.environ.setdefault("HEARTH_LIBRARY", str(BINARY / "libhearth.so.0.1"))
for name in [name for name in os.environ if name.startswith("HEARTH_")]:
    if name not in ("HEARTH_LIBRARY", "HEARTH_BINARY_DIR") and not name.startswith("HEARTH_TEST_"):
        del os.environ[name]  # settings of whoever runs the tests are not theirs

os.environ["HEARTH_PORT"] = "0"  # any: others on this machine may have all of the usual ones

SECONDS = 60  # against hanging: nothing here takes so long

try:
    import numpy
except ImportError:
    numpy = None

try:
    import torch
    torch.Tensor
except ImportError:
    torch = None
except AttributeError:  # a directory of that name
    del sys.modules["torch"]
    torch = None

needs_numpy = unittest.skipIf(numpy is None, "numpy is not installed")
needs_torch = unittest.skipIf(torch is None, "torch is not installed")


class Watched(unittest.TestCase):
    """A test that hangs is ended, with the stacks of all threads."""

    def setUp(self):
        faulthandler.dump_traceback_later(SECONDS, exit=True)

    def tearDown(self):
        faulthandler.cancel_dump_traceback_later()


def together(function, count=3, **config):
    """function(group) on threads of their own; results by rank. The first error is raised when all have ended."""
    import hearth
    nodes = hearth.open_local(count, op_timeout=20.0, **config)
    results, errors = [None] * count, []

    def work(rank):
        try:
            results[rank] = function(nodes[rank].world)
        except BaseException as error:
            errors.append(error)
            nodes[rank].close()  # the others hear of it

    threads = [threading.Thread(target=work, args=(rank,), daemon=True) for rank in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
    alive = [thread.name for thread in threads if thread.is_alive()]
    for node in nodes:
        node.close()
    if errors:
        raise errors[0]
    if alive:
        raise AssertionError(f"members still at work: {alive}")
    return results


class Script:
    """Python code in a process of its own."""

    def __init__(self, code, *arguments, **variables):
        paths = SOURCE / "bindings/python", SOURCE / "tests/python", SOURCE / "tests/support"
        environment = {**os.environ, "PYTHONPATH": ":".join(map(str, paths)),
                       "PYTHONDONTWRITEBYTECODE": "1", "PYTHONFAULTHANDLER": "1", **variables}
        self.process = subprocess.Popen([sys.executable, "-W", "ignore::DeprecationWarning", "-c", code,
                                         *map(str, arguments)], env=environment, text=True,
                                        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def line(self):
        """The next line that it prints."""
        return self.process.stdout.readline().strip()

    def end(self, seconds=SECONDS):
        """(exit status, output, errors); it is killed if it takes too long."""
        try:
            out, errors = self.process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            out, errors = self.process.communicate()
            raise AssertionError(f"a process hung; it said:\n{out}\n{errors}") from None
        return self.process.returncode, out, errors

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()
