#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures Hearth's compressed all-reduce beside its plain one between hosts on an emulated network.

Hosts and networks are those of bench_net.py. Both are measured in turns in the same processes (hearth_codecs.c), so the
speed-up is that of one run. One tensor of 25 million f32, 6104 x 4096.
"""

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import bench_net as net
from bench_net import Failed, Network, bits, peers, report
from lab import Unavailable

PROGRAM = peers.PROGRAMS / "hearth_codecs"
BYTES = 6104 * 4096 * 4
# Speed-ups that the project wants, by codec and (rate, hosts).
NETWORKS = [("1g", 2), ("100m", 2), ("100m", 4)]
TARGETS = {
    "bf16": (1.9, 1.95, 1.95),
    "int8": (3.5, 3.8, 3.8),
    "topk:0.01,values=int8": (12, 75, 60),
    "randomk:0.01,values=bf16": (14, 85, 90),
    "powersgd:4": (7, 60, 60),
}


def build():
    peers.PROGRAMS.mkdir(parents=True, exist_ok=True)
    line = ["cc", "-std=gnu17", "-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra", f"-I{peers.ROOT}/include",
            peers.ROOT / "bench/net/hearth_codecs.c", peers.BUILD / "libhearth.so", f"-Wl,-rpath,{peers.BUILD}", "-lm",
            "-o", PROGRAM]
    if subprocess.run([str(word) for word in line], stdin=subprocess.DEVNULL).returncode:
        sys.exit(f"bench-codecs: cannot build {PROGRAM}")


def measure(network, options):
    """The rows of one network, one for each codec."""
    world = {"HEARTH_WORLD_SIZE": str(network.ranks), "HEARTH_PLAIN": "1", "HEARTH_TRUST_NETWORK": "1",
             "HEARTH_LINK_MBPS": f"{bits(network.rate) / 1e6:g}"}
    arguments = [options.rounds, options.bytes, *options.codecs]
    limit_s = 60 + 20 * (options.rounds + 2) * len(options.codecs) * (network.bound_s(options.bytes) + 1)
    reader, writer = os.pipe()
    with network.open() as lab, tempfile.TemporaryFile() as errors:
        world["HEARTH_RENDEZVOUS"] = f"{lab.address(0)}:{net.RENDEZVOUS_PORT}"
        try:
            streams = {"stdin": subprocess.DEVNULL, "stdout": writer, "stderr": errors}
            processes = [lab.popen(rank, [PROGRAM, *arguments], env={**os.environ, **world, "HEARTH_RANK": str(rank)},
                                   **streams) for rank in range(network.ranks)]
            os.close(writer)
            writer = -1
            rows = net.read_rows(reader, processes, len(options.codecs), limit_s)
        finally:
            lab.clear()
            os.close(reader)
            if writer >= 0:
                os.close(writer)
        if len(rows) != len(options.codecs):
            errors.seek(0)
            said = errors.read().decode(errors="replace").splitlines()
            raise Failed("; ".join(said[:3])[:300] or f"no result within {limit_s:.0f} s")
    return [{**row, "rate_bps": bits(network.rate), "round_trip_us": network.round_trip_ms * 1000} for row in rows]


def target_of(codec, network):
    """None where there is none: another codec, size or network."""
    where = (network.rate, network.ranks)
    return TARGETS[codec][NETWORKS.index(where)] if codec in TARGETS and where in NETWORKS else None


def cell(row, network):
    target = target_of(row["compress"], network) if row["bytes"] == BYTES else None
    beside = f" (≥ {target:g}{'' if row['speed_up'] >= target else ', missed'})" if target else ""
    return f"{row['speed_up']:.2f}{beside}: {report.time_text(row['median_us'])}, {row['bytes_sent'] / 1e6:.2f} MB"


def tables(found, options, markdown):
    lines = [["codec", *(str(network) for network, _ in found)]]
    plain = [f"{report.time_text(rows[0]['vs_median_us'])}, {rows[0]['vs_bytes_sent'] / 1e6:.1f} MB" for _, rows in found]
    lines.append(["plain", *plain])
    for index, codec in enumerate(options.codecs):
        lines.append([codec, *(cell(rows[index], network) for network, rows in found)])
    head = f"{options.bytes // 4:,} f32. Speed-up over our own plain all-reduce (target): median, bytes that a host sends."
    return f"{head}\n\n{(report.as_markdown if markdown else report.as_text)(lines)}\n"


def network_of(text):
    rate, _, ranks = text.partition(":")
    bits(rate)
    return rate, int(ranks)


def options_of(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--codecs", nargs="+", default=list(TARGETS), metavar="CODEC", help=f"default: {' '.join(TARGETS)}")
    parser.add_argument("--networks", type=network_of, nargs="+", default=NETWORKS, metavar="RATE:HOSTS",
                        help="default: 1g:2 100m:2 100m:4")
    parser.add_argument("--delay", type=float, default=0, help="round trip in ms; default: 0")
    parser.add_argument("--bytes", type=int, default=BYTES, help=f"a multiple of 16384; default: {BYTES}")
    parser.add_argument("--rounds", type=int, default=3, help="default: 3")
    parser.add_argument("--json", type=Path, default=peers.BUILD / "bench-codecs.json", metavar="FILE",
                        help="default: build/bench-codecs.json")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="writes the table as Markdown")
    return parser.parse_args(arguments)


def main():
    options, found, failures = options_of(sys.argv[1:]), [], []
    build()
    for rate, ranks in options.networks:
        network = Network(rate, options.delay, ranks)
        try:
            peers.say(f"bench-codecs: {network}")
            found.append((network, measure(network, options)))
        except Unavailable as reason:
            print(f"SKIP: {reason}")
            return 77
        except Failed as failure:
            failures.append(f"{network}: {failure}")
    if found:
        print(tables(found, options, markdown=False))
    if found and options.markdown:
        options.markdown.write_text(tables(found, options, markdown=True))
    rows = [row for _, rows in found for row in rows]
    about = {**peers.facts(["hearth"]), "command": shlex.join(["bench/net/bench_codecs.py", *sys.argv[1:]])}
    options.json.write_text(json.dumps({**about, "results": rows}, indent=2) + "\n")
    for failure in failures:
        peers.say(f"bench-codecs: failed: {failure}")
    wrong = sorted({row["compress"] for row in rows if not row["ok"]})
    if wrong:
        peers.say(f"bench-codecs: ranks hold different bits: {', '.join(wrong)}")
    return 1 if wrong or failures else 0


if __name__ == "__main__":
    sys.exit(main())
