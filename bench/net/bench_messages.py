#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What large messages do to small ones, how much of a line they fill, and what sends cost that nobody receives.

Two processes (hearth_beside.c) on loopback or on test hosts of 1 Gbit/s. Round trips and barriers without and with the
large message take turns in the same processes. Beside each number of a line is what a bare TCP connection and ping do
there, in the same run. Rows go to build/bench-messages-net.json.
"""

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import bench_net as net
from bench_net import Failed, bits, peers, report
from bench_secure import FORMS, SECRET
from lab import Lab, Unavailable

PROGRAM = peers.PROGRAMS / "hearth_beside"
MARKS = "<!-- bench-messages-net: begin -->", "<!-- bench-messages-net: end -->"
GB = 10**9
SINK_PORT = 52500
PILE_COUNT, PILE_MS = 10_000, 2000
EAGER_BYTES = 262_144  # the default of HEARTH_EAGER_BYTES: what a receiver may have to keep
PILE_SLACK = 8 << 20  # of a resident set: stacks, first use of libraries
REQUEST_BYTES = 2048  # the sender's own: a request that waits, without its message


@dataclass(frozen=True)
class Place:
    title: str
    rate: str = ""  # "": loopback
    round_trip_ms: float = 0

    def open(self):
        if not self.rate:
            return contextlib.nullcontext()
        if not self.round_trip_ms:
            return Lab(2, rate=self.rate, mode="veth")
        return Lab(2, rate=self.rate, delay=f"{round(self.round_trip_ms * 500)}us", commands=[f"set all queue {net.QUEUE}"])


LOOPBACK, SHORT, LONG = Place("loopback"), Place("1 Gbit/s", "1g"), Place("1 Gbit/s, 20 ms", "1g", 20)


@dataclass(frozen=True)
class Part:
    """`arguments` of hearth_beside; `limits` of a row's fields: at most, or with a minus at least."""
    key: str
    title: str
    place: Place
    arguments: tuple
    forms: tuple
    limits: tuple = ()


def parts(size, rounds):
    secure = ("tcp + TLS", "quic")
    return [
        Part("stalled", "beside a message that nobody receives", LOOPBACK, ("stalled", rounds, 200, size), secure,
             (("later_us", 1000),)),
        Part("stalled-hosts", "beside a message that nobody receives", SHORT, ("stalled", 1, 400, size), secure,
             (("later_us", 1000),)),
        Part("flowing", "beside a message that flows", SHORT, ("flowing", rounds, 2000, size), secure,
             (("later_us", 2000),)),
        Part("line", "one message at a time", LONG, ("line", rounds, size), secure, (("share", -0.92),)),
        Part("pile", f"{PILE_COUNT:,} sends, no receive", LOOPBACK, ("pile", PILE_COUNT, 4096, PILE_MS),
             ("plain tcp", *secure, "shm"), (("receiver_bytes", EAGER_BYTES + PILE_SLACK), ("sender_bytes", PILE_COUNT * REQUEST_BYTES + PILE_SLACK))),
    ]


# ---- One measurement -----------------------------------------------------------------------------------------------

def build():
    peers.PROGRAMS.mkdir(parents=True, exist_ok=True)
    line = ["cc", "-std=gnu17", "-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra", f"-I{peers.ROOT}", f"-I{peers.ROOT}/include",
            peers.ROOT / "bench/net/hearth_beside.c", peers.HERE / "samples.c", peers.BUILD / "libhearth.so",
            f"-Wl,-rpath,{peers.BUILD}", "-lm", "-o", PROGRAM]
    if subprocess.run([str(word) for word in line], stdin=subprocess.DEVNULL).returncode:
        sys.exit(f"bench-messages: cannot build {PROGRAM}")


def world_of(place, lab, form, scratch):
    own = {"HEARTH_TRANSPORT": "shm", "HEARTH_PLAIN": "1"} if form == "shm" else FORMS[form]
    world = {"HEARTH_WORLD_SIZE": "2", "HEARTH_SECRET": SECRET, "HEARTH_KEY_FILE": "fresh", **own}
    if not lab:
        return {**world, "HEARTH_BIND": "127.0.0.1",
                "HEARTH_RENDEZVOUS": f"unix:@hearth-bench-{os.getpid()}-{Path(scratch).name}"}
    return {**world, "HEARTH_RENDEZVOUS": f"{lab.address(0)}:{net.RENDEZVOUS_PORT}",
            "HEARTH_LINK_MBPS": f"{bits(place.rate) / 1e6:g}"}


def measure(part, lab, form, limit_s):
    """The rows that the two processes print."""
    wanted = 2 if part.arguments[0] in ("stalled", "flowing") else 1
    reader, writer = os.pipe()
    processes = []
    with tempfile.TemporaryDirectory(prefix="hearth-messages-") as scratch, tempfile.TemporaryFile() as errors:
        world = world_of(part.place, lab, form, scratch)
        try:
            for rank in (0, 1):
                more = {"env": {**os.environ, **world, "HEARTH_RANK": str(rank)}, "stdin": subprocess.DEVNULL,
                        "stdout": writer, "stderr": errors}
                line = [str(word) for word in (PROGRAM, *part.arguments)]
                processes.append(lab.popen(rank, line, **more) if lab else subprocess.Popen(line, **more))
            os.close(writer)
            writer = -1
            rows = net.read_rows(reader, processes, wanted, limit_s)
        finally:
            for process in processes:
                process.kill()
                process.wait()
            if lab:
                lab.clear()
            os.close(reader)
            if writer >= 0:
                os.close(writer)
        errors.seek(0)
        said = errors.read().decode(errors="replace").strip()
    if len(rows) != wanted:
        raise Failed(said[:300] or f"no result within {limit_s:.0f} s")
    return rows


def bare(lab, seconds):
    """Ping of an idle line, ping beside one bare TCP connection, and the rate of that."""
    idle = statistics.median(lab.ping(0, 1, 40, 0.02))
    probe = str(peers.ROOT / "tests/net/probe.py")
    with lab.popen(1, [sys.executable, "-B", probe, "sink", SINK_PORT, 1], stdout=subprocess.PIPE, text=True) as sink:
        source = lab.popen(0, [sys.executable, "-B", probe, "source", lab.address(1), SINK_PORT, seconds],
                           stdout=subprocess.DEVNULL)
        beside = lab.ping(0, 1, int((seconds - 1) / 0.05), 0.05)
        source.wait()
        (rate,) = json.loads(sink.stdout.read())
    return {"ping_us": idle * 1e3, "tcp_ping_us": statistics.median(beside) * 1e3, "tcp_bps": rate}


# ---- All of them ---------------------------------------------------------------------------------------------------

class Bench:
    def __init__(self, options):
        self.options = options
        self.rows = []
        self.failures = []

    def run(self):
        for part in self.options.parts:
            with part.place.open() as lab:
                line = bare(lab, self.options.bare_s) if lab else {}
                for form in part.forms:
                    self.run_form(part, lab, form, line)

    def run_form(self, part, lab, form, line):
        text = f"{part.place.title}, {part.title}, {form}"
        try:
            rows = measure(part, lab, form, self.options.limit_s)
        except Failed as failure:
            self.failures.append(f"{text}: {failure}")
            peers.say(f"{text}: failed: {failure}")
            return
        for row in rows:
            row.update(part=part.key, place=part.place.title, form=form, **line)
            if part.place.rate and row["mode"] == "line":
                row["rate_bps"] = bits(part.place.rate)
                row["bound_us"] = row["bytes"] * 8e6 / row["rate_bps"]
                row["share"] = row["bound_us"] / row["median_us"]
            row["holds"] = holds(part, row)
            self.rows.append(row)
            peers.say(f"{text}: {words(row)}")


def holds(part, row):
    within = all(row[field] >= -limit if limit < 0 else row[field] <= limit for field, limit in part.limits)
    if row["mode"] == "pile":
        within = within and row["late"] == row["named"] > 0 and row["sent"] + row["late"] == row["count"]
    return within


def words(row):
    if row["mode"] == "line":
        return (f"{report.time_text(row['median_us'])}, {row['share'] * 100:.1f}% of the line; "
                f"bare TCP {row['tcp_bps'] / row['rate_bps'] * 100:.1f}%")
    if row["mode"] == "pile":
        return (f"{row['sent']:,} sent, {row['late']:,} late, {row['named']:,} of them name the receiver; resident memory "
                f"+{row['sender_bytes'] / 2**20:.1f} MiB at the sender, +{row['receiver_bytes'] / 2**20:.1f} MiB at the "
                f"receiver; {row['start_us'] / row['count']:.2f} us to begin each; \"{row['text']}\"")
    line = f"; ping {report.time_text(row['ping_us'])}, beside bare TCP {report.time_text(row['tcp_ping_us'])}" \
        if "ping_us" in row else ""
    return (f"{row['probe']}: {report.time_text(row['vs_median_us'], row['vs_p99_us'])} without, "
            f"{report.time_text(row['median_us'], row['p99_us'])} with, {row['later_us']:.0f} us later{line}")


def whole(bench, markdown):
    show = report.as_markdown if markdown else report.as_text
    lines = [["where", "what", "form", "measured", "holds"]]
    for row in bench.rows:
        part = next(p for p in bench.options.parts if p.key == row["part"])
        lines.append([row["place"], part.title, row["form"], words(row), "yes" if row["holds"] else "NO"])
    return f"Median [99th percentile].\n\n{show(lines)}\n"


def options_of(arguments):
    keys = [part.key for part in parts(GB, 3)]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", type=peers.list_of(str, keys), default=keys, metavar="NAMES", help=f"default: {','.join(keys)}")
    parser.add_argument("--bytes", type=int, default=GB, help="of the large message; default: 1,000,000,000")
    parser.add_argument("--rounds", type=int, default=3, help="with and without; default: 3")
    parser.add_argument("--json", type=Path, default=peers.BUILD / "bench-messages-net.json", metavar="FILE",
                        help="default: build/bench-messages-net.json")
    parser.add_argument("--docs", action="store_true", help="puts the table into docs/benchmarks.md")
    options = parser.parse_args(arguments)
    if options.rounds < 1 or options.bytes < 1 << 20:
        parser.error("--rounds begins at 1, --bytes at 1048576")
    options.parts = [part for part in parts(options.bytes, options.rounds) if part.key in options.parts]
    options.bare_s = 5
    options.limit_s = 120 + options.rounds * options.bytes / 20e6
    return options


def main():
    options = options_of(sys.argv[1:])
    build()
    bench = Bench(options)
    try:
        bench.run()
    except Unavailable as reason:
        peers.say(f"bench-messages: no test hosts here: {reason}")
    print(whole(bench, markdown=False))
    options.json.write_text(json.dumps({**peers.facts(["hearth"]), "results": bench.rows}, indent=2) + "\n")
    if options.docs:
        peers.put_into_document(whole(bench, markdown=True), MARKS)
    for failure in bench.failures:
        peers.say(f"bench-messages: failed: {failure}")
    return 1 if bench.failures else 0


if __name__ == "__main__":
    sys.exit(main())
