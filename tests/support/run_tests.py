# SPDX-License-Identifier: Apache-2.0
"""Runs the test cases of one file: run_tests.py FILE [CLASS.TEST...]. A file may import what stands beside it, in
tests/support and tests/net, and the Python package. If it raises unittest.SkipTest or needs an optional module that is
not installed, the exit status is 77."""

import importlib
import sys
import unittest
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
OPTIONAL = ("torch", "numpy")


def main(file, *names):
    sys.path[:0] = map(str, (file.parent, TESTS / "support", TESTS / "net", TESTS.parent / "bindings/python"))
    try:
        module = importlib.import_module(file.stem)
    except (ModuleNotFoundError, unittest.SkipTest) as reason:
        if getattr(reason, "name", "torch") not in OPTIONAL:
            raise
        print(f"SKIP: {reason}")
        sys.exit(77)
    unittest.main(module, argv=[file.name, *names], verbosity=2)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), *sys.argv[2:])
