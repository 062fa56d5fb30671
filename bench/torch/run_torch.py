#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures the training step of a PyTorch model under DDP: gloo beside Hearth. README.md says how, and why so.

Needs a Python that has torch, which it finds but does not install, and root for the two hosts. torch_steps.py is what
runs in each process.
"""

import argparse
import contextlib
import json
import os
import select
import shlex
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "bench/peers"), str(ROOT / "tests/net")]

import children  # noqa: E402  (found by the line above)
import report  # noqa: E402
import run as peers  # noqa: E402
from lab import Lab, Unavailable, bits  # noqa: E402

PROGRAM = Path(__file__).resolve().parent / "torch_steps.py"
ALLOWED = Path("/proc/sys/net/ipv4/tcp_allowed_congestion_control")
PYTHONS = [sys.executable, "python3", "/usr/bin/python3"]
NETWORKS = ["loopback", "1g", "100m"]
CODECS = ["none", "bf16", "int8", "topk:0.01,values=int8", "randomk:0.01,values=bf16", "powersgd:4",
          "auto:bf16,int8,topk:0.01"]
# What a step, or the sum of one bucket, of gloo takes over what the way takes must be at least this.
TARGETS = {
    "loopback": {"hook.none": 1.2, "backend": 1.2, "sum.backend": 1.2},
    "1g": {"hook.none": 1.0, "backend": 1.0, "hook.int8": 2.5},
    "100m": {"hook.none": 1.0, "backend": 1.0, "hook.int8": 2.5, "hook.topk:0.01,values=int8": 8.0},
}
SMALL = ["--layers", "1", "--width", "64", "--bucket-mb", "1"]  # of --quick
SETUP_S = 120  # for all ways of a network to be made
STEP_S = 30  # the longest step that is waited for


class Missing(Exception):
    """Something that the measurement needs is not here. The text says what."""


# ---- What there is -------------------------------------------------------------------------------------------------

def python_with_torch():
    """A Python that can import torch with its distributed part, and the version of torch."""
    tried = []
    for python in dict.fromkeys(PYTHONS):
        line = ("import torch, torch.distributed as d; assert d.is_available(), 'no torch.distributed'; "
                "print(torch.__version__)")
        try:
            done = subprocess.run([python, "-c", line], capture_output=True, text=True, timeout=60,
                                  stdin=subprocess.DEVNULL)
        except (OSError, subprocess.TimeoutExpired) as problem:
            tried.append(f"{python}: {problem}")
            continue
        if done.returncode == 0:
            return python, done.stdout.strip()
        tried.append(f"{python}: {(done.stderr.strip().splitlines() or ['failed'])[-1]}")
    raise Missing("no Python with torch (Debian: python3-torch): " + "; ".join(tried))


def hearth_environment():
    """How a process finds the binding and the library of this tree."""
    paths = [str(ROOT / "bindings/python"), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {"PYTHONPATH": os.pathsep.join(paths), "HEARTH_LIBRARY": str(peers.BUILD / "libhearth.so"),
            "OMP_NUM_THREADS": "1"}


def missing_parts(python):
    """What of Hearth is not there, by the kind of way that needs it: {"hook": why}."""
    script = ("import json\n"
              "found = {}\n"
              "try:\n    import hearth.torch\n"
              "except Exception as e:\n    found['hook'] = found['backend'] = str(e)\n"
              "else:\n    try:\n        hearth.torch._backend.load()\n"
              "    except Exception as e:\n        found['backend'] = str(e)\n"
              "print(json.dumps(found))")
    done = subprocess.run([python, "-c", script], capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL,
                          env={**os.environ, **hearth_environment()})
    try:
        return json.loads(done.stdout)
    except ValueError:
        return dict.fromkeys(("hook", "backend"), (done.stderr.strip().splitlines() or ["failed"])[-1])


def congestions():
    """gloo runs under the system's congestion control and under cubic, if that is another and may be set here."""
    system = peers.system_congestion()
    allowed = ALLOWED.read_text().split() if ALLOWED.exists() else []  # in other network namespaces than the first
    return [system] if system == "cubic" or os.geteuid() or "cubic" not in allowed else [system, "cubic"]


def ways_of(network, without):
    gloo = [f"gloo.{congestion}" for congestion in congestions()]
    found = ["compute", *gloo, f"{gloo[-1]}.fp16", f"{gloo[-1]}.powersgd:4"]
    if "hook" not in without:
        found += [f"hook.{codec}" for codec in CODECS]
    if "backend" not in without:
        found += ["backend"]
    if network == "loopback":
        found += ["hook@tcp.none"] * ("hook" not in without) + ["backend@tcp"] * ("backend" not in without)
        found += [f"sum.{way}" for way in gloo]
        found += [f"sum.{way}{transport}" for way, kind in (("backend", "backend"), ("binding", "hook"))
                  for transport in ("", "@tcp") if kind not in without]
    return found


# ---- One network ---------------------------------------------------------------------------------------------------

class Place:
    """Where two processes meet: two hosts, or one whose loopback they share. Without root: this one."""

    def __init__(self, network):
        self.network, self.port = network, 29500
        self.lab = None
        if network != "loopback":
            self.lab = Lab(2, mode="veth")
        elif not os.geteuid():
            with contextlib.suppress(Unavailable):
                self.lab = Lab(1, mode="veth")
        if self.lab is None:
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                self.port = probe.getsockname()[1]

    def environment(self, rank):
        world = {"RANK": str(rank), "LOCAL_RANK": "0", "WORLD_SIZE": "2", "MASTER_PORT": str(self.port)}
        if self.network == "loopback":
            return {**world, "MASTER_ADDR": "127.0.0.1", "GLOO_SOCKET_IFNAME": "lo"}
        return {**world, "MASTER_ADDR": self.lab.address(0), "GLOO_SOCKET_IFNAME": "eth0", "HEARTH_PLAIN": "1",
                "HEARTH_TRUST_NETWORK": "1", "HEARTH_LINK_MBPS": f"{bits(self.network) / 1e6:g}"}

    def start(self, rank, command, **streams):
        env = {**os.environ, **hearth_environment(), **self.environment(rank)}
        line = [str(word) for word in command]
        if self.lab:
            return self.lab.popen(rank if self.network != "loopback" else 0, line, env=env, **streams)
        return subprocess.Popen(line, env=env, **streams)

    def slow_down(self):
        """Only now the links get their rate: what is made before is not measured, and would take minutes."""
        for host in range(2 if self.network != "loopback" else 0):
            self.lab.rate(host, self.network)

    def close(self):
        if self.lab:
            self.lab.close()


class Session:
    """Two processes that measure the ways of one network."""

    def __init__(self, place, python, ways, arguments):
        reader, writer = os.pipe()
        self.reader, self.errors, self.text = reader, tempfile.TemporaryFile(), b""
        self.place, self.left = place, set(ways)
        command = [python, "-B", PROGRAM, *arguments, *ways]
        streams = {"stdin": subprocess.PIPE, "stdout": writer, "stderr": self.errors}
        self.processes = [place.start(rank, command, **streams) for rank in range(2)]
        os.close(writer)

    def events(self, limit_s):
        """What the processes tell, one by one, until they have closed their output. Failed: nothing for too long."""
        limit = time.monotonic() + limit_s
        while True:
            while b"\n" in self.text:
                line, _, self.text = self.text.partition(b"\n")
                if line.startswith(b"{"):
                    event = json.loads(line)
                    limit = time.monotonic() + limit_s
                    yield event
            if not select.select([self.reader], [], [], max(0, limit - time.monotonic()))[0]:
                raise children.Failed(f"nothing was heard for {limit_s:.0f} s")
            piece = os.read(self.reader, 65536)
            if not piece:
                return
            self.text += piece

    def go(self):
        self.place.slow_down()
        for process in self.processes:
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(b"go\n")
                process.stdin.flush()

    def said(self):
        self.errors.seek(0)
        return self.errors.read().decode(errors="replace").strip().splitlines()[-3:]

    def close(self):
        children.end(self.processes)
        for process in self.processes:
            process.stdin.close()
        os.close(self.reader)
        self.errors.close()


class Measurement:
    """The turns of all ways on one network. A way that fails is left out, and the others begin anew without it."""

    def __init__(self, network, python, options):
        self.network, self.python, self.options = network, python, options
        self.turns, self.processor, self.bits, self.about, self.failures = {}, {}, {}, {}, {}
        self.rounds = 1

    def run(self, ways):
        while ways:
            self.turns, self.processor, self.bits = {}, {}, {}
            failed = self.attempt(ways)
            if not failed:
                return
            way, text = failed
            self.failures[way] = text
            peers.say(f"bench-torch: {self.network}: {way} failed: {text}")
            ways = [other for other in ways if other != way] if way in ways else []

    def attempt(self, ways):
        """None, or (way, why) of what failed."""
        place, session, way = Place(self.network), None, "start"
        try:
            session = Session(place, self.python, ways, self.arguments())
            for event in session.events(SETUP_S):
                way = event.get("way", way)
                if event["event"] == "failed":
                    return way, event["text"].splitlines()[0]
                self.hear(event, session)
            missing = [way for way in ways if len(self.turns.get(way, ())) < self.rounds]
            return (missing[0], "; ".join(session.said()) or "ended early") if missing else None
        except children.Failed as failure:
            return way, str(failure)
        finally:
            if session:
                session.close()
            place.close()

    def arguments(self):
        small = SMALL if self.options.quick else []
        given = ["--rounds", self.options.rounds, "--seconds", self.options.seconds, "--length", self.options.length]
        return [*given, *small]

    def hear(self, event, session):
        kind = event["event"]
        if kind == "ready":
            self.about = {key: event[key] for key in ("parameters", "tensors", "buckets")}
            session.go()
        elif kind == "turn":
            self.turns.setdefault(event["way"], []).append(event["seconds"])
            self.processor.setdefault(event["way"], []).append(event["processor"])
            peers.say(f"{self.network}, round {event['round'] + 1}/{self.rounds}: {event['way']}: "
                      f"{report.time_text(statistics.median(event['seconds']) * 1e6)}")
        elif kind == "rounds":
            self.rounds = event["rounds"]
        elif kind == "bits":
            self.bits[event["way"]] = event["same"]
        else:
            peers.say(f"{self.network}: {event['way']}: {event['event']}")


# ---- What it says --------------------------------------------------------------------------------------------------

def rows_of(measurement):
    """One for each way: the median of its rounds, and how many times faster than gloo of the same round it is."""
    medians = {way: [statistics.median(turn) for turn in turns] for way, turns in measurement.turns.items()}
    targets = TARGETS.get(measurement.network, {}) if not measurement.options.quick else {}
    rows = []
    for way, rounds in medians.items():
        base = baseline(way, medians)
        ratio = statistics.median(x / y for x, y in zip(medians[base], rounds)) if base else None
        rows.append({"network": measurement.network, "way": way, "median_us": statistics.median(rounds) * 1e6,
                     "processor_us": statistics.median(measurement.processor[way]) * 1e6,
                     "spread": spread(rounds), "vs": base, "ratio": ratio,
                     "target": targets.get(way), "rounds": len(rounds), "same_bits": measurement.bits.get(way, True),
                     "steps": sum(map(len, measurement.turns[way]))})
    return rows


def spread(rounds):
    """How far the middle half of the rounds lies apart, as a share of their median."""
    if len(rounds) < 4:
        return (max(rounds) - min(rounds)) / statistics.median(rounds)
    low, middle, high = statistics.quantiles(rounds, n=4)
    return (high - low) / middle


def baseline(way, medians):
    """Plain gloo, of its two congestion controls the faster."""
    if way == "compute":
        return None
    head = "sum.gloo." if way.startswith("sum.") else "gloo."
    plain = [name for name in medians if name.startswith(head) and name.count(".") == head.count(".")]
    return min(plain, key=lambda name: statistics.median(medians[name]), default=None)


def bound_us(network, parameters):
    """What the bytes of a plain all-reduce between two take at the line's rate."""
    return parameters * 4 * 8 / bits(network) * 1e6 if network != "loopback" else None


def lines_of(rows):
    lines = [["", "median ± spread", "processor", "gloo / this", "at least", "holds"]]
    for row in rows:
        ratio, target = row["ratio"], row["target"]
        lines.append([row["way"], f"{report.time_text(row['median_us'])} ±{row['spread'] * 100:.0f}%",
                      report.time_text(row["processor_us"]),
                      f"{ratio:.2f}" if ratio else "-", f"{target:g}" if target else "-",
                      ("yes" if round(ratio, 2) >= target else "NO") if ratio and target else "-"])
        if not row["same_bits"]:
            lines[-1][0] += " *"
    return lines


def text_of(measurements, facts, markdown):
    show = report.as_markdown if markdown else report.as_text
    title = (lambda text: f"### {text}") if markdown else (lambda text: text)
    parts = ["\n".join(report.about(facts)),
             "Time of a step: median of the rounds ± how far the middle half of them lies apart; processor: time that a\n"
             "process computes for it, all its threads together; gloo / this: how many times faster than plain DDP on\n"
             "gloo. sum: one bucket of 25 MiB, all-reduced. An asterisk: replicas differ."]
    for found in measurements:
        rows = rows_of(found)
        if not rows:
            continue
        parameters = found.about["parameters"]
        bound = bound_us(found.network, parameters)
        beside = f"; plain gradients take {report.time_text(bound)} on the wire" if bound else ""
        parts += [title(f"{found.network}, 2 processes"),
                  f"{parameters:,} parameters in {found.about['tensors']} tensors, {found.about['buckets']} buckets"
                  f"{beside}.",
                  show(lines_of(rows))]
        parts += [f"{way} failed: {why}" for way, why in found.failures.items()]
    return "\n\n".join(parts) + "\n"


def overview(measurements):
    """One table for all networks, without sums: how long a step takes, and how many times faster than gloo that is."""
    found = {m.network: {row["way"]: row for row in rows_of(m)} for m in measurements if m.turns}
    ways = dict.fromkeys(way for rows in found.values() for way in rows if not way.startswith("sum."))
    lines = [["", *(name if name == "loopback" else f"{bits(name) / 1e6:,.0f} Mbit/s" for name in found)]]
    for way in ways:
        cells = [rows.get(way) for rows in found.values()]
        lines.append([way, *("-" if row is None else report.time_text(row["median_us"]) +
                             (f" ({row['ratio']:.2f})" if row["ratio"] else "") for row in cells)])
    return report.as_markdown(lines) + "\n"


def put_into(document, text):
    """Between the marks that the document has for it."""
    begin, end = "<!-- bench-torch: begin -->", "<!-- bench-torch: end -->"
    before, found, rest = document.read_text().partition(begin)
    _, closed, after = rest.partition(end)
    if not (found and closed):
        sys.exit(f"bench-torch: {document} has no {begin} ... {end}")
    document.write_text(f"{before}{begin}\n{text}{end}{after}")


# ---- The command ---------------------------------------------------------------------------------------------------

def options_of(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", nargs="+", default=NETWORKS, metavar="RATE", help="default: loopback 1g 100m")
    parser.add_argument("--seconds", type=float, default=90, help="of timed rounds on each network, at least three; "
                        "default: 90")
    parser.add_argument("--rounds", type=int, default=0, help="so many instead")
    parser.add_argument("--length", type=int, default=2, help="of the text that a step trains on; default: 2")
    parser.add_argument("--only", metavar="TEXT", help="only ways whose names contain it, beside gloo and compute")
    parser.add_argument("--quick", action="store_true",
                        help="a tiny model, one round: shows that it runs, measures nothing")
    parser.add_argument("--json", type=Path, default=peers.BUILD / "bench-torch.json", metavar="FILE",
                        help="default: build/bench-torch.json")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="writes the tables as Markdown")
    parser.add_argument("--docs", action="store_true", help="puts them into docs/benchmarks.md and docs/pytorch.md")
    options = parser.parse_args(arguments)
    for network in options.networks:
        if network != "loopback":
            bits(network)
    if options.quick:
        options.rounds = 1
    if options.rounds < 0 or options.length < 1 or not 0 < options.seconds <= 3600:
        parser.error("--rounds begins at 0, --length at 1, --seconds above 0")
    return options


def chosen(ways, only):
    plain = {"compute", *(f"{head}gloo.{c}" for c in congestions() for head in ("", "sum."))}
    return [way for way in ways if not only or way in plain or only in way]


def main():
    options = options_of(sys.argv[1:])
    try:
        python, version = python_with_torch()
    except Missing as reason:
        print(f"SKIP: {reason}")
        return 77
    without = missing_parts(python)
    for part, why in without.items():
        peers.say(f"bench-torch: no Hearth {part}: {why}")
    children.adopt_orphans()
    measurements = []
    for network in options.networks:
        found = Measurement(network, python, options)
        try:
            found.run(chosen(ways_of(network, without), options.only))
        except Unavailable as reason:
            peers.say(f"bench-torch: {network} is left out: {reason}")
            continue
        measurements.append(found)
    facts = {**peers.facts(["hearth"]), "command": shlex.join(["bench/torch/run_torch.py", *sys.argv[1:]])}
    facts["versions"]["torch"] = version
    return conclude(measurements, facts, options)


def conclude(measurements, facts, options):
    print(text_of(measurements, facts, markdown=False))
    if options.quick:
        print("--quick: a tiny model and one round. These numbers measure nothing.")
    if options.markdown:
        options.markdown.write_text(text_of(measurements, facts, markdown=True))
    if options.docs and not options.quick:
        put_into(ROOT / "docs/benchmarks.md", text_of(measurements, facts, markdown=True))
        put_into(ROOT / "docs/pytorch.md", overview(measurements))
    rows = [row for found in measurements for row in rows_of(found)]
    options.json.write_text(json.dumps({**facts, "results": rows}, indent=2) + "\n")
    wrong = [f"{row['network']} {row['way']}" for row in rows if not row["same_bits"]]
    if wrong:
        peers.say(f"bench-torch: replicas hold different bits: {', '.join(wrong)}")
    return 1 if wrong or any(found.failures for found in measurements) else 0


if __name__ == "__main__":
    sys.exit(main())
