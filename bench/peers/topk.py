#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The largest 1 % of a tensor: Hearth's chunked topk beside std::nth_element, std::sort and, where python3-torch is
there, torch.topk; one thread each, rounds in turns. README.md says more."""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
BUILD = HERE.parent.parent / "build"
PROGRAM = BUILD / "peers" / "select"
TARGETS = {"std::nth_element": 10, "torch.topk": 30, "std::sort": 100}
ROW = "topk_chunk.encode_feedback"


def say(text):
    print(text, file=sys.stderr, flush=True)


def build():
    PROGRAM.parent.mkdir(parents=True, exist_ok=True)
    line = ["g++", "-std=c++17", "-O3", "-march=native", "-Wall", "-Wextra", HERE / "select.cc", "-o", PROGRAM]
    if subprocess.run([str(word) for word in line], stdin=subprocess.DEVNULL).returncode:
        sys.exit("bench-peers: cannot build select.cc")


def output(line):
    done = subprocess.run([str(word) for word in line], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          env={**os.environ, "OMP_NUM_THREADS": "1"})
    if done.returncode:
        sys.exit(f"{done.stderr}bench-peers: {line[0]} failed")
    return done.stdout


def hearth(count, _):
    """Seconds for an element; the row reads a residual and writes the new one and the payload as well."""
    document = json.loads(output([BUILD / "bench/bench_kernels", "--match", ROW, "--bytes", 4 * count, "--json"]))
    (row,) = document["results"]
    return {"hearth": row["median_us"] * 1e-6 / count}


def cxx(count, seed):
    # Sorting takes long, and a 16th of the tensor favours it.
    rows = [json.loads(output([PROGRAM, share, 1, seed]).splitlines()[place])
            for place, share in enumerate((count, count // 16))]
    return {row["name"]: row["median_s"] / row["elements"] for row in rows}


def torch_topk(count, seed):
    try:
        import torch
    except ImportError:
        return {}
    torch.set_num_threads(1)
    x = torch.randn(count, generator=torch.Generator().manual_seed(seed))
    start = time.monotonic()
    _, index = torch.topk(x.abs(), max(1, count // 100), sorted=False)
    x[index]  # the values with their signs
    return {"torch.topk": (time.monotonic() - start) / count}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1 << 26, help="elements; default: 2^26")
    parser.add_argument("--rounds", type=int, default=5, help="each with other numbers; default: 5")
    parser.add_argument("--json", type=Path, default=BUILD / "bench-topk.json", metavar="FILE")
    options = parser.parse_args()
    if options.count < 4096 or options.count % 4096 or options.rounds < 1:
        parser.error("--count is a multiple of 4096, --rounds begins at 1")
    build()
    found = {}
    for index in range(options.rounds):
        say(f"bench-peers: topk, round {index + 1}/{options.rounds}")
        for measure in (hearth, cxx, torch_topk):
            for name, seconds in measure(options.count, index + 1).items():
                found.setdefault(name, []).append(seconds)
    medians = {name: statistics.median(times) for name, times in found.items()}
    print(f"\nthe largest 1 % of {options.count:,} floats, one thread, median of {options.rounds} rounds")
    print(f"(Hearth: {ROW}, 64 of each 4096, residual and coding included)\n")
    print(f"  {'':18} {'an element':>12} {'Hearth is':>14}   target")
    rows = []
    for name, seconds in medians.items():
        faster = seconds / medians["hearth"]
        beside = f"{faster:10.1f} x {TARGETS[name]:8} x" if name in TARGETS else ""
        print(f"  {name:18} {seconds * 1e9:9.2f} ns {beside}")
        rows.append({"name": name, "count": options.count, "element_ns": seconds * 1e9, "speed_up": faster,
                     "target_speed_up": TARGETS.get(name)})
    if "torch.topk" not in medians:
        print("  torch.topk         not measured: python3-torch is not installed")
    options.json.write_text(json.dumps({"results": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
