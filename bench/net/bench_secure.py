#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What encryption costs: all-reduce plain, over TLS and over QUIC, side by side.

On loopback beside Open MPI and Gloo, which encrypt nothing; between test hosts of 1 Gbit/s beside the time that the
line needs; and over a long and lossy line. All forms take turns in every round; the ratios are of medians.
"""

import argparse
import json
import os
import secrets
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "bench/peers"), str(ROOT / "tests/net")]
import children  # noqa: E402
import report  # noqa: E402
import run as peers  # noqa: E402
from bench_net import QUEUE, RENDEZVOUS_PORT, Failed, read_rows  # noqa: E402
from lab import Lab, Unavailable, bits  # noqa: E402

MARKS = "<!-- bench-secure: begin -->", "<!-- bench-secure: end -->"
SECRET = secrets.token_hex(32)
FORMS = {
    "plain tcp": {"HEARTH_TRANSPORT": "tcp", "HEARTH_PLAIN": "1", "HEARTH_TRUST_NETWORK": "1"},
    "tcp + TLS": {"HEARTH_TRANSPORT": "tcp"},
    "quic": {"HEARTH_TRANSPORT": "quic"},
    "quic, 1452 bytes": {"HEARTH_TRANSPORT": "quic", "HEARTH_DATAGRAM_BYTES": "1452"},
    "auto": {"HEARTH_TRANSPORT": "auto"},
}
PROGRAM = peers.PROGRAMS / "hearth_allreduce"


@dataclass(frozen=True)
class Place:
    """A network, who is measured on it, and what a form must reach: (form, what it is compared with): ratio."""
    title: str
    ranks: int
    forms: tuple
    peers: tuple = ()
    rate: str = ""  # "": loopback
    round_trip_ms: float = 0
    loss: str = ""
    sizes: tuple = (4, 1 << 20, 100 << 20)
    targets: tuple = ()

    def bound_us(self, count):
        return 2 * (self.ranks - 1) / self.ranks * count * 8e6 / bits(self.rate) if self.rate else None

    def open(self, scratch):
        if not self.rate:
            return None
        if not self.round_trip_ms:
            return Lab(self.ranks, rate=self.rate, mode="veth")
        lines = [f"set all queue {QUEUE}"] + [f"set all loss {self.loss}"] * bool(self.loss)
        return Lab(self.ranks, rate=self.rate, delay=f"{round(self.round_trip_ms * 500)}us", commands=lines)


PLACES = [
    Place("loopback, 2 processes", 2, ("plain tcp", "tcp + TLS", "quic", "quic, 1452 bytes"), ("openmpi", "gloo"),
          targets=(("tcp + TLS", "plain tcp", 0.33), ("tcp + TLS", "best peer", 0.5), ("quic", "plain tcp", 0.25),
                   ("quic, 1452 bytes", "plain tcp", 0.15))),
    Place("1 Gbit/s, 2 hosts", 2, ("plain tcp", "tcp + TLS", "quic", "auto"), rate="1g",
          targets=(("tcp + TLS", "line", 0.92), ("quic", "line", 0.88))),
    Place("1 Gbit/s, 4 hosts", 4, ("plain tcp", "tcp + TLS", "quic"), rate="1g"),
    Place("100 Mbit/s, 20 ms round trip, 0.5 % loss, 2 hosts", 2, ("tcp + TLS", "quic", "auto"), rate="100m",
          round_trip_ms=20, loss="0.5%", sizes=(4, 1 << 20, 8 << 20), targets=(("auto", "best form", 0.95),)),
]


# ---- One measurement -----------------------------------------------------------------------------------------------

def on_hosts(lab, place, form, arguments, limit_s):
    world = {"HEARTH_WORLD_SIZE": str(place.ranks), "HEARTH_RENDEZVOUS": f"{lab.address(0)}:{RENDEZVOUS_PORT}",
             "HEARTH_LINK_MBPS": f"{bits(place.rate) / 1e6:g}", "HEARTH_SECRET": SECRET, "HEARTH_KEY_FILE": "fresh",
             **FORMS[form]}
    reader, writer = os.pipe()
    with tempfile.TemporaryFile() as errors:
        try:
            streams = {"stdin": subprocess.DEVNULL, "stdout": writer, "stderr": errors}
            processes = [lab.popen(rank, [PROGRAM, *arguments], env={**os.environ, **world, "HEARTH_RANK": str(rank)},
                                   **streams) for rank in range(place.ranks)]
            os.close(writer)
            writer = -1
            rows = read_rows(reader, processes, len(place.sizes), limit_s)
        finally:
            lab.clear()
            os.close(reader)
            if writer >= 0:
                os.close(writer)
        errors.seek(0)
        said = errors.read().decode(errors="replace").strip()
    if len(rows) != len(place.sizes):
        raise Failed(said[:300] or f"no result within {limit_s:.0f} s")
    return rows


def on_loopback(place, form, arguments, scratch, limit_s):
    if form in FORMS:
        world = {"HEARTH_WORLD_SIZE": str(place.ranks), "HEARTH_BIND": "127.0.0.1", **FORMS[form],
                 "HEARTH_RENDEZVOUS": f"unix:@hearth-bench-{os.getpid()}-{Path(scratch).name}"}
        started = [([PROGRAM, *arguments], {**world, "HEARTH_RANK": str(rank)}) for rank in range(place.ranks)]
    else:
        library, _, algo = form.partition(".")
        congestion = "cubic" if len(peers.congestions()) > 1 else ""
        started = peers.launch(peers.Variant(library, algo, congestion=congestion), "tcp", place.ranks, arguments, scratch)
    try:
        return children.run(started, len(place.sizes), limit_s)
    except children.Failed as failure:
        raise Failed(str(failure)) from None


class Bench:
    def __init__(self, options):
        self.options = options
        self.rows = {}  # (place, form, bytes): medians of the rounds in us
        self.failures = []

    def forms(self, place):
        found = list(place.forms)
        found += ["openmpi"] if "openmpi" in place.peers else []
        found += ["gloo.new_ring", "gloo.halving_doubling"] if "gloo" in place.peers else []
        return found

    def run(self):
        for place in self.options.places:
            with tempfile.TemporaryDirectory(prefix="hearth-secure-") as scratch:
                lab = place.open(scratch)
                try:
                    self.rounds(place, lab)
                finally:
                    if lab:
                        lab.close()

    def rounds(self, place, lab):
        forms = self.forms(place)
        for index in range(self.options.rounds):
            for form in forms[index % len(forms):] + forms[:index % len(forms)]:
                self.measure(place, lab, form, f"{place.title}, round {index + 1}/{self.options.rounds}: {form}")

    def measure(self, place, lab, form, text):
        arguments = ["--seconds", self.options.seconds, *place.sizes]
        limit_s = 120 + (40 * place.bound_us(max(place.sizes)) / 1e6 if place.rate else 0)
        try:
            if lab:
                rows = on_hosts(lab, place, form, arguments, limit_s)
            else:
                with tempfile.TemporaryDirectory(prefix="hearth-secure-") as scratch:
                    rows = on_loopback(place, form, arguments, scratch, limit_s)
        except Failed as failure:
            self.failures.append(f"{text}: {failure}")
            peers.say(f"{text}: failed: {failure}")
            return
        for row in rows:
            if not row["ok"]:
                self.failures.append(f"{text}: wrong result at {row['bytes']} bytes")
            self.rows.setdefault((place, form, row["bytes"]), []).append(row["median_us"])
        peers.say(f"{text}: " + ", ".join(report.time_text(row["median_us"]) for row in rows))

    def median(self, place, form, count):
        found = self.rows.get((place, form, count))
        return statistics.median(found) if found else None

    def reference(self, place, name, count):
        """The time that a form is compared with."""
        if name == "line":
            return place.bound_us(count)
        others = {"best peer": [f for f in self.forms(place) if f not in FORMS],
                  "best form": [f for f in place.forms if f != "auto"]}.get(name, [name])
        return min((t for f in others if (t := self.median(place, f, count))), default=None)


# ---- Showing -------------------------------------------------------------------------------------------------------

def cell(bench, place, form, count):
    times = bench.rows.get((place, form, count))
    if not times:
        return "-"
    median = statistics.median(times)
    spread = f" ±{(max(times) - min(times)) / median * 100:.0f}%" if len(times) > 1 else ""
    plain = bench.median(place, "plain tcp", count)
    share = place.bound_us(count)
    words = [f"{plain / median:.2f} x plain"] if plain and form != "plain tcp" else []
    words += [f"{share / median * 100:.1f}% of the line"] if share and count >= report.MIB else []
    return report.time_text(median) + spread + "".join(f", {word}" for word in words)


def table(bench, place):
    head = ["", *(report.size_text(count) for count in place.sizes)]
    lines = [[form, *(cell(bench, place, form, count) for count in place.sizes)] for form in bench.forms(place)]
    return [head, *lines]


def target_lines(bench):
    """What was asked for, at the largest size, and what was measured."""
    lines = [["where", "form", "against", "target", "measured"]]
    for place in bench.options.places:
        for form, against, least in place.targets:
            count = max(place.sizes)
            own, other = bench.median(place, form, count), bench.reference(place, against, count)
            lines.append([place.title, form, against, f"{least:.2f}", f"{other / own:.2f}" if own and other else "-"])
    return lines if len(lines) > 1 else []


def whole(bench, markdown):
    show = report.as_markdown if markdown else report.as_text
    parts = ["Median of the rounds ± how far they lie apart. Larger ratios are better."]
    for place in bench.options.places:
        parts += [f"### {place.title}" if markdown else place.title, show(table(bench, place))]
    if lines := target_lines(bench):
        parts += ["### Targets" if markdown else "Targets", show(lines)]
    return "\n\n".join(parts) + "\n"


def options_of(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="default: 5")
    parser.add_argument("--seconds", type=float, default=0.5, help="of timed calls in each; default: 0.5")
    parser.add_argument("--places", type=peers.list_of(int, range(1, len(PLACES) + 1)), metavar="N,N",
                        default=list(range(1, len(PLACES) + 1)),
                        help="; ".join(f"{i}: {place.title}" for i, place in enumerate(PLACES, 1)).replace("%", "%%"))
    parser.add_argument("--json", type=Path, default=peers.BUILD / "bench-secure.json", metavar="FILE",
                        help="default: build/bench-secure.json")
    parser.add_argument("--docs", action="store_true", help="puts the tables into docs/benchmarks.md")
    options = parser.parse_args(arguments)
    if options.rounds < 1 or not 0 < options.seconds <= 600:
        parser.error("--rounds begins at 1, --seconds is above 0, at most 600")
    options.places = [PLACES[i - 1] for i in options.places]
    return options


def main():
    options = options_of(sys.argv[1:])
    peers.install()
    peers.build(["hearth", "openmpi", "gloo"])
    children.adopt_orphans()
    bench = Bench(options)
    try:
        bench.run()
    except Unavailable as reason:
        peers.say(f"bench-secure: no test hosts here: {reason}")
    print(whole(bench, markdown=False))
    rows = [{"place": place.title, "form": form, "bytes": count, "median_us": statistics.median(times), "rounds_us": times}
            for (place, form, count), times in bench.rows.items()]
    options.json.write_text(json.dumps({**peers.facts(["hearth", "openmpi", "gloo"]), "results": rows}, indent=2) + "\n")
    if options.docs:
        peers.put_into_document(whole(bench, markdown=True), MARKS)
    for failure in bench.failures:
        peers.say(f"bench-secure: failed: {failure}")
    return 1 if bench.failures else 0


if __name__ == "__main__":
    sys.exit(main())
