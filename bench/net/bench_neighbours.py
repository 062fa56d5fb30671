#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whether a home cluster is slowed by a neighbour: another one, with another secret, on the same bridge.

Our cluster adds across its hosts (`hearth bench cluster`): alone; beside one that is up and does nothing; beside one
whose members come and go, so that it looks for nodes and measures its ways all the time; and beside one that adds as
well. These take turns in every round; ratios are of medians, alone / beside: 1 is no difference, less is slower. The
clusters have no line in common, but here they have the processors.
"""

import argparse
import json
import os
import statistics
import sys
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/net"))
from household import Household, missing  # noqa: E402
from lab import Lab, Unavailable  # noqa: E402

HOSTS = 3  # of each cluster
SITUATIONS = ALONE, STILL, RESTLESS, BUSY = ("alone", "beside a still one", "beside a restless one", "beside a busy one")
STAY_S = 1.0  # of a member that comes and goes
SIZES = {"4K": (4096, 3000), "16M": (16 << 20, 10)}  # bytes, and calls in a round
WAYS_S = 60  # until all ways of our cluster are measured


class Neighbour(threading.Thread):
    """Keeps the other cluster up, and its last member or its lines moving, until the block is left."""

    def __init__(self, home, situation):
        super().__init__(daemon=True)
        self.home, self.situation, self.over, self.turns = home, situation, threading.Event(), 0

    def __enter__(self):
        self.home.up_all()
        self.home.wait_view()
        if self.situation == STILL:
            wait_for_ways(self.home)
        self.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.join()
        self.home.end()

    def run(self):
        last = self.home.hosts[-1]
        while self.situation != STILL and not self.over.is_set():
            if self.situation == BUSY:
                self.home.try_command(self.home.hosts[0], "bench", "cluster", "--sizes", "16M", "--repeat", 20)
            else:
                self.over.wait(STAY_S)
                self.home.leave(last)
                self.home.up(last)
            self.turns += 1


def measure(home):
    """Of each size: microseconds, the median of the calls."""
    times = {}
    for name, (_, calls) in SIZES.items():
        told = home.command(home.hosts[0], "bench", "cluster", "--json", "--sizes", name, "--repeat", calls)
        (row,) = json.loads(told)["results"]
        if not row["ok"]:
            raise RuntimeError(f"a sum was wrong: {row}")
        times[name] = row["median_us"]
    return times


def wait_for_ways(home):
    """Until a cluster has measured itself for the first time."""
    deadline = time.monotonic() + WAYS_S
    while time.monotonic() < deadline:
        links = home.status(home.hosts[0])["links"]
        if len(links) == HOSTS * (HOSTS - 1) and all(link["mbit"] > 0 for link in links):
            return
        time.sleep(0.1)
    raise RuntimeError("the ways of the cluster were not measured in time")


def one_round(ours, theirs, order):
    """Of each situation: the times by size."""
    times = {}
    for situation in order:
        if situation == ALONE:
            times[situation] = measure(ours)
            continue
        with Neighbour(theirs, situation) as neighbour:
            times[situation] = measure(ours)
        if situation != STILL and neighbour.turns == 0:
            raise RuntimeError(f"{situation}: it did nothing")
    return times


def summary(rate, rounds):
    rows = []
    for name, (size, _) in SIZES.items():
        alone = statistics.median(r[ALONE][name] for r in rounds)
        for situation in SITUATIONS:
            values = [r[situation][name] for r in rounds]
            median = statistics.median(values)
            rows.append({"name": "neighbours", "rate": rate, "bytes": size, "situation": situation, "rounds": len(values),
                         "median_us": median, "spread": (max(values) - min(values)) / median, "ratio": alone / median})
            print(f"{rate:>5}  {name:>4}  {situation:<22} {median / 1e3:9.3f} ms ± {rows[-1]['spread']:4.0%}   "
                  f"alone / this {alone / median:.3f}", flush=True)
    return rows


def bench(rate, count):
    with Lab(2 * HOSTS, rate=rate, mode="veth") as lab:
        ours, theirs = Household(lab, range(HOSTS), "ours"), Household(lab, range(HOSTS, 2 * HOSTS), "theirs")
        ours.up_all()
        ours.wait_view()
        wait_for_ways(ours)
        rounds = []
        for number in range(count):
            shift = number % len(SITUATIONS)  # nobody is always first
            rounds.append(one_round(ours, theirs, SITUATIONS[shift:] + SITUATIONS[:shift]))
            print(f"{rate}, round {number + 1}: " + "; ".join(
                f"{s} {rounds[-1][s]['16M'] / 1e3:.1f} ms" for s in SITUATIONS), flush=True)
        ours.end()
    return summary(rate, rounds)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rates", default="1g", help="of each host's line, like 100m,1g (1g)")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", default=str(ROOT / "build/bench-neighbours.json"))
    args = parser.parse_args()
    if missing():
        print(f"bench_neighbours: {missing()}", file=sys.stderr)
        return 1
    try:
        rows = [row for rate in args.rates.split(",") for row in bench(rate, args.rounds)]
    except Unavailable as reason:
        print(f"SKIP: {reason}")
        return 77
    os.makedirs(os.path.dirname(args.json), exist_ok=True)
    with open(args.json, "w", encoding="utf-8") as file:
        json.dump(rows, file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
