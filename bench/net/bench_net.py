#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures all-reduce of Hearth, Open MPI (tcp) and Gloo between hosts on an emulated network, side by side.

Hosts are network namespaces (tests/net/lab.py). Without delay they are joined by veth, a bridge and tbf, else by
hearth-switch. The programs and what makes the comparison fair are those of bench/peers/. The bound is the time that the
bytes of an all-reduce take at the line's rate, 2(N-1)/N * bytes / rate; headers cap the share of it near 94 %.
"""

import argparse
import contextlib
import json
import os
import select
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "bench/peers"), str(ROOT / "tests/net")]

import report  # noqa: E402  (found by the line above)
import run as peers  # noqa: E402
from lab import Lab, Unavailable, bits  # noqa: E402

LIBRARIES = ["hearth", "openmpi", "gloo"]
GLOO = ["new_ring", "ring_chunked", "halving_doubling"]  # the other three are left out to save time
RENDEZVOUS_PORT = 52415
NEAR = 1.15  # a form this many times slower than its library's fastest, or more, is not run again
QUEUE = "2m"  # of a downlink, as in tbf's limit
LINGER_S = 3  # for a clean end after the last row
AGENT = """#!/bin/sh
# In place of ssh: the first argument is a host's address, the rest a command for it.
host=${{1##*.}}; shift
exec ip netns exec {stem}$((host - 1)) unshare --uts sh -c 'hostname "host$0"; exec sh -c "$1"' "$host" "$*"
"""


@dataclass(frozen=True)
class Network:
    rate: str
    round_trip_ms: float
    ranks: int

    def bound_s(self, count):
        return 2 * (self.ranks - 1) / self.ranks * count * 8 / bits(self.rate)

    def __str__(self):
        delay = f"{self.round_trip_ms:g} ms round trip" if self.round_trip_ms else "no added delay"
        return f"{bits(self.rate) / 1e6:g} Mbit/s, {delay}, {self.ranks} hosts"

    def open(self):
        """Its lab, with one more host than ranks: there mpirun runs, for one of its own is not a rank's."""
        if not self.round_trip_ms:
            return Lab(self.ranks + 1, rate=self.rate, mode="veth")
        delay = f"{round(self.round_trip_ms * 500)}us"
        return Lab(self.ranks + 1, rate=self.rate, delay=delay, commands=[f"set all queue {QUEUE}"])


# ---- One measurement -----------------------------------------------------------------------------------------------

class Failed(Exception):
    """A measurement that gave no rows. The text says why."""


def start_openmpi(lab, network, hook, arguments, streams):
    agent = Path(lab.directory) / "agent"
    agent.write_text(AGENT.format(stem=lab.spaces[0].removesuffix("0")))
    agent.chmod(0o755)
    hosts = ",".join(f"{lab.address(i)}:1" for i in range(network.ranks))
    line = ["mpirun.openmpi", "--allow-run-as-root", "--host", hosts, "-n", network.ranks, "--mca", "plm_rsh_agent", agent,
            "--mca", "oob_tcp_if_include", "eth0", "--mca", "pml", "ob1", "--mca", "btl", "tcp,self",
            "--mca", "btl_tcp_if_include", "eth0", "--mca", "mpi_yield_when_idle", "1"]
    for key, value in hook.items():
        line += ["-x", f"{key}={value}"]
    return [lab.popen(network.ranks, [*line, peers.PROGRAMS / "openmpi_allreduce", *arguments],
                      env={**os.environ, "TMPDIR": lab.directory}, **streams)]


def start_gloo(lab, network, algo, hook, arguments, streams):
    store = tempfile.mkdtemp(dir=lab.directory)
    return [lab.popen(rank, [peers.PROGRAMS / "gloo_allreduce", "--algo", algo, "--rank", rank, "--ranks", network.ranks,
                             "--store", store, "--host", lab.address(rank), *arguments], env={**os.environ, **hook},
                      **streams) for rank in range(network.ranks)]


def start_hearth(lab, network, arguments, streams):
    world = {"HEARTH_WORLD_SIZE": str(network.ranks), "HEARTH_RENDEZVOUS": f"{lab.address(0)}:{RENDEZVOUS_PORT}",
             "HEARTH_PLAIN": "1", "HEARTH_TRUST_NETWORK": "1",  # as the peers; bench_secure.py has the price
             "HEARTH_LINK_MBPS": f"{bits(network.rate) / 1e6:g}"}
    return [lab.popen(rank, [peers.PROGRAMS / "hearth_allreduce", *arguments],
                      env={**os.environ, **world, "HEARTH_RANK": str(rank)}, **streams) for rank in range(network.ranks)]


def read_rows(descriptor, processes, wanted, limit_s):
    """Lines until all processes have closed their output, the time is over, or one has failed."""
    text, limit = b"", time.monotonic() + limit_s
    while (left := limit - time.monotonic()) > 0:
        ready, _, _ = select.select([descriptor], [], [], min(left, 0.5))
        if ready:
            piece = os.read(descriptor, 65536)
            if not piece:
                break
            text += piece
            if text.count(b"\n") >= wanted:
                limit = min(limit, time.monotonic() + LINGER_S)
        elif any(process.poll() for process in processes):
            break
    return [json.loads(line) for line in text.splitlines() if line.startswith(b"{")]


def measure(lab, network, variant, sizes, seconds):
    """The rows of one program, one for each size."""
    hook = {"LD_PRELOAD": str(peers.PROGRAMS / "cubic.so")} if variant.congestion else {}
    arguments = ["--seconds", seconds, *sizes]
    limit_s = 60 + sum(40 * network.bound_s(size) + 2 * seconds for size in sizes)
    reader, writer = os.pipe()
    with tempfile.TemporaryFile() as errors:
        try:
            streams = {"stdin": subprocess.DEVNULL, "stdout": writer, "stderr": errors}
            if variant.library == "openmpi":
                processes = start_openmpi(lab, network, hook, arguments, streams)
            elif variant.library == "gloo":
                processes = start_gloo(lab, network, variant.algo, hook, arguments, streams)
            else:
                processes = start_hearth(lab, network, arguments, streams)
            os.close(writer)
            writer = -1
            rows = read_rows(reader, processes, len(sizes), limit_s)
        finally:
            lab.clear()
            os.close(reader)
            if writer >= 0:
                os.close(writer)
        if len(rows) == len(sizes):
            return rows
        errors.seek(0)
        said = [line for line in errors.read().decode(errors="replace").splitlines() if line.strip(" -")]
        raise Failed("; ".join(said[:3])[:300] or f"no result within {limit_s:.0f} s")


# ---- All of them ---------------------------------------------------------------------------------------------------

def variants(libraries):
    found = [peers.Variant("hearth")] if "hearth" in libraries else []
    for congestion in peers.congestions():
        found += [peers.Variant("openmpi", congestion=congestion)] if "openmpi" in libraries else []
        found += [peers.Variant("gloo", algo, congestion=congestion) for algo in GLOO if "gloo" in libraries]
    return found


class Bench:
    def __init__(self, options):
        self.options = options
        self.rows = {}  # (network, variant, bytes): rows of the rounds
        self.pings = {}  # network: round trips in ms
        self.failures = []

    def run(self):
        for rate in self.options.rates:
            for delay in self.options.delays:
                for ranks in self.options.ranks:
                    self.run_network(Network(rate, delay, ranks))

    def run_network(self, network):
        found = self.known(network) or variants(self.options.only)
        rounds = self.options.rounds if bits(network.rate) >= 10**9 else self.options.slow_rounds
        with network.open() as lab:
            for index in range(rounds):
                self.pings.setdefault(network, []).extend(lab.ping(0, 1, 10, 0.05))
                for variant in found[index % len(found):] + found[:index % len(found)]:
                    self.run_variant(lab, network, variant, f"{network}, round {index + 1}/{rounds}: {variant}")
                found = self.winners(network, found)

    def known(self, network):
        """At lower rates calls take long: only forms that were the fastest of their library at a higher one."""
        for other in self.pings:
            if (other.round_trip_ms, other.ranks) == (network.round_trip_ms, network.ranks):
                return self.winners(other, variants(self.options.only))
        return None

    def winners(self, network, found):
        """For each size the forms of a library near its fastest in the first round; if none has rows, its first form."""
        kept = set()
        for size in self.options.sizes:
            for library in self.options.only:
                first = {v: self.rows[network, v, size][0]["median_us"] for v in found
                         if v.library == library and (network, v, size) in self.rows}
                near = [v for v, median in first.items() if median <= NEAR * min(first.values())]
                kept.update(near or [next(v for v in found if v.library == library)])
        return [v for v in found if v in kept]

    def run_variant(self, lab, network, variant, text):
        try:
            rows = measure(lab, network, variant, self.options.sizes, self.options.seconds)
        except Failed as failure:
            self.failures.append(f"{variant}, {network}: {failure}")
            peers.say(f"{text}: failed: {failure}")
            return
        for row in rows:
            self.rows.setdefault((network, variant, row["bytes"]), []).append(row)
        peers.say(f"{text}: " + ", ".join(report.time_text(row["median_us"]) + ("" if row["ok"] else " WRONG")
                                          for row in rows))

    def results(self):
        """One row for each program and case, as in bench-peers.json, with the network and the bound."""
        found, default = [], peers.system_congestion()
        for (network, variant, size), rounds in self.rows.items():
            own = variant.library == "hearth"
            row = report.summary("tcp", "own" if own else variant.congestion or default, rounds)
            bound_us = network.bound_s(size) * 1e6
            row.update(rate_bps=bits(network.rate), round_trip_us=network.round_trip_ms * 1e3,
                       ping_us=statistics.median(self.pings[network]) * 1e3, bound_us=bound_us,
                       share=bound_us / row["median_us"])
            found.append((network, row))
        for network, row in found:
            best = fastest(found, network, row["bytes"], ["openmpi", "gloo"])
            if row["name"] == "hearth" and best:
                row.update(vs=best["name"], vs_median_us=best["median_us"], ratio=row["median_us"] / best["median_us"])
        return found


def fastest(found, network, size, libraries):
    """Of the forms that ran in all rounds: the others left because they were slower, or failed."""
    rows = [row for where, row in found if where == network and row["bytes"] == size and row["ok"]
            and report.library_of(row) in libraries]
    most = max((row["rounds"] for row in rows), default=0)
    rows = [row for row in rows if row["rounds"] == most]
    return min(rows, key=lambda row: row["median_us"], default=None)


# ---- Showing -------------------------------------------------------------------------------------------------------

def cell(row):
    if not row:
        return "-"
    text = report.time_text(row["median_us"], row["p99_us"])
    if row["rounds"] > 1:
        text += f" ±{row['spread'] * 100:.0f}%"
    if row["bytes"] >= report.MIB:
        text += f", {row['share'] * 100:.1f}%"
    return text + f" {row['algo']}" * (report.library_of(row) == "gloo")


def table(found, network, libraries, ping_ms):
    sizes = sorted({row["bytes"] for where, row in found if where == network})
    lines = [["size", "bound", *(report.LIBRARIES[name] for name in libraries), "best peer / Hearth"]]
    for size in sizes:
        own, best = (fastest(found, network, size, names) for names in (["hearth"], ["openmpi", "gloo"]))
        lines.append([report.size_text(size), report.time_text(network.bound_s(size) * 1e6),
                      *(cell(fastest(found, network, size, [name])) for name in libraries),
                      f"{best['median_us'] / own['median_us']:.2f}" if own and best else "-"])
    return f"{network}; ping {ping_ms:.2f} ms", lines


def whole(bench, markdown):
    found = bench.results()
    parts = ["Median [99th percentile] ± how far rounds lie apart, if there are several; share of the bound. Gloo: its best form."]
    for network in bench.pings:
        title, lines = table(found, network, bench.options.only, statistics.median(bench.pings[network]))
        parts += [f"### {title}" if markdown else title, (report.as_markdown if markdown else report.as_text)(lines)]
    return "\n\n".join(parts) + "\n"


def options_of(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = peers.list_of(str, LIBRARIES)
    parser.add_argument("--only", type=names, default=LIBRARIES, metavar="NAMES", help="default: hearth,openmpi,gloo")
    parser.add_argument("--rates", type=peers.list_of(str), default=["1g", "100m"], help="default: 1g,100m")
    parser.add_argument("--delays", type=peers.list_of(float), default=[0, 1, 20], help="round trips in ms; default: 0,1,20")
    parser.add_argument("--ranks", type=peers.list_of(int, range(2, 31)), default=[2, 4], help="default: 2,4")
    parser.add_argument("--sizes", type=peers.list_of(peers.size), default=[4, 1 << 20, 100 << 20], help="default: 4,1M,100M")
    parser.add_argument("--rounds", type=int, default=3, help="of at least 5 timed calls each; default: 3")
    parser.add_argument("--slow-rounds", type=int, default=1, help="below 1 Gbit/s; default: 1")
    parser.add_argument("--seconds", type=float, default=0.5, help="of timed calls, if that makes more; default: 0.5")
    parser.add_argument("--quick", action="store_true", help="1 Gbit/s, up to 16 MiB, one round")
    parser.add_argument("--json", type=Path, default=peers.BUILD / "bench-net.json", metavar="FILE",
                        help="default: build/bench-net.json")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="writes the tables as Markdown")
    options = parser.parse_args(arguments)
    if options.quick:
        options.rates, options.rounds, options.sizes, options.seconds = ["1g"], 1, [4, 1 << 20, 16 << 20], 0.1
    if options.rounds < 1 or options.slow_rounds < 1 or not 0 < options.seconds <= 600 or min(options.delays) < 0:
        parser.error("rounds begin at 1, --seconds is above 0, delays are not negative")
    try:
        options.rates.sort(key=bits, reverse=True)
    except ValueError as problem:
        parser.error(str(problem))
    return options


def main():
    options = options_of(sys.argv[1:])
    peers.install()
    peers.build(options.only)
    bench, stopped = Bench(options), False
    try:
        with contextlib.suppress(KeyboardInterrupt):
            stopped = True
            bench.run()
            stopped = False
    except Unavailable as reason:
        print(f"SKIP: {reason}")
        return 77
    print(whole(bench, markdown=False))
    about = {**peers.facts(options.only), "command": shlex.join(["bench/net/bench_net.py", *sys.argv[1:]])}
    rows = [row for _, row in bench.results()]
    options.json.write_text(json.dumps({**about, "results": rows}, indent=2) + "\n")
    if options.markdown:
        options.markdown.write_text(whole(bench, markdown=True))
    for failure in bench.failures:
        peers.say(f"bench-net: failed: {failure}")
    wrong = sorted({row["name"] for row in rows if not row["ok"]})
    if wrong:
        peers.say(f"bench-net: wrong results: {', '.join(wrong)}")
    return 130 if stopped else 1 if wrong or any(f.startswith("hearth") for f in bench.failures) else 0


if __name__ == "__main__":
    sys.exit(main())
