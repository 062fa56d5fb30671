#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the Python to use for the binding's tests: of `python3` and Debian's own, the one that has the modules asked for.

    tools/pick_python.py torch numpy           the one that has most of them, those named first counting most
    tools/pick_python.py --need torch numpy    exit status 1, and why on standard error, if none has them all
"""

import shutil
import subprocess
import sys

CANDIDATES = ["python3", "/usr/bin/python3"]
LOOK = """
import importlib.util, sys
print(sys.executable, *(int(importlib.util.find_spec(name) is not None) for name in sys.argv[1:]))
"""


def look(python, modules):
    """Its own path, and for each module whether it is there; None: there is no such Python."""
    if not shutil.which(python):
        return None
    done = subprocess.run([python, "-c", LOOK, *modules], capture_output=True, text=True, timeout=60)
    if done.returncode:
        return None
    path, *found = done.stdout.split()
    return path, [int(one) for one in found]


def main():
    modules = sys.argv[1:]
    need = modules[:1] == ["--need"]
    if need:
        del modules[0]
    known = [one for one in (look(python, modules) for python in CANDIDATES) if one]
    if not known:
        sys.exit("there is no python3")
    path, found = max(known, key=lambda one: one[1])  # the first of equals
    if need and not all(found):
        missing = " and ".join(name for name, there in zip(modules, found) if not there)
        sys.exit(f"{path} has no {missing}: run ./setup --all")
    print(path)


if __name__ == "__main__":
    main()
