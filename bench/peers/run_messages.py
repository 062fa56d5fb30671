#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures messages of Hearth, Open MPI and nng side by side on this machine. README.md says how and why."""

import argparse
import json
import signal
import socket
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path

import children
import report
import run as peers

MARKS = "<!-- bench-messages: begin -->", "<!-- bench-messages: end -->"
LIBRARIES = {"hearth": "Hearth", "openmpi": "Open MPI", "nng": "nng"}
KIB, MIB = report.KIB, report.MIB
PING, WAY, CALLS = "ping_pong", "one_way", "calls"


@dataclass(frozen=True)
class Case:
    """`window` transfers are under way at the same time; of calls, that many callers."""
    course: str
    transport: str
    bytes: int
    window: int = 0
    peers: bool = True

    def __str__(self):
        words = {PING: "ping-pong", WAY: "one way", CALLS: f"call and answer, {self.window} in flight"}
        return f"{self.transport}, {words[self.course]}, {report.size_text(self.bytes)}"


CASES = [
    Case(PING, "tcp", 4), Case(PING, "shm", 4), Case(PING, "tcp", 64, peers=False),
    Case(WAY, "tcp", 64 * KIB, 16), Case(WAY, "tcp", MIB, 8), Case(WAY, "tcp", 100 * MIB, 2),
    Case(WAY, "shm", 64 * KIB, 16), Case(WAY, "shm", MIB, 8), Case(WAY, "shm", 100 * MIB, 2),
    Case(CALLS, "tcp", 64, 1, peers=False), Case(CALLS, "tcp", 64, 64, peers=False),
]


@dataclass(frozen=True)
class Target:
    """`against` / Hearth must be at least `factor`; `against` is a library, or another case and form of Hearth's."""
    case: Case
    factor: float
    against: object
    form: str = "plain"


TARGETS = [
    Target(CASES[0], 1.0, "openmpi"), Target(CASES[0], 1.5, "nng"), Target(CASES[1], 1 / 1.5, "openmpi"),
    Target(CASES[3], 1.0, "openmpi"), Target(CASES[4], 1.1, "openmpi"), Target(CASES[5], 1.2, "openmpi"),
    Target(CASES[8], 1.5, "openmpi"),
    Target(CASES[9], 0.5 / 1.6, (CASES[2], "plain"), form="tls"),  # a call is a round trip, a ping-pong's time is half of one
]
CALLS_A_SECOND = 100_000  # of 64 B over TLS, 64 in flight


# ---- Who runs ------------------------------------------------------------------------------------------------------

def forms(case):
    """Hearth's: plain and encrypted, or with the buffers of both processes in shared memory."""
    if case.transport == "tcp":
        return [peers.Variant("hearth", "plain"), peers.Variant("hearth", "tls")]
    return [peers.Variant("hearth", "plain"), peers.Variant("hearth", "plain", alloc="shared")]


def variants(case, libraries):
    found = forms(case) if "hearth" in libraries else []
    if not case.peers:
        return found
    for congestion in peers.congestions() if case.transport == "tcp" else [""]:
        if "openmpi" in libraries:
            found.append(peers.Variant("openmpi", congestion=congestion))
        if "nng" in libraries and case.course == PING and case.transport == "tcp":
            found += [peers.Variant("nng", algo, congestion=congestion) for algo in ("copy", "message")]
    if "openmpi" in libraries and case.transport == "shm":
        found.append(peers.Variant("openmpi", "two_copies"))
    return found


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def commands(case, variant, seconds, scratch):
    """The processes to start: (argument list, environment) each."""
    program = peers.PROGRAMS / f"{variant.library}_{'calls' if case.course == CALLS else 'messages'}"
    arguments = ["--seconds", seconds, "--window", case.window]
    hook = peers.hook_of(variant)
    if variant.library == "openmpi":
        line = peers.mpirun_line(case.transport, 2, hook)
        if variant.algo == "two_copies":  # through shared memory, instead of process_vm_readv
            line += ["--mca", "btl_vader_single_copy_mechanism", "none"]
        return [([*line, program, *arguments, case.bytes], {})]
    if variant.library == "nng":
        arguments += ["--algo", variant.algo, "--url", f"tcp://127.0.0.1:{free_port()}"]
        return [([program, *arguments, "--rank", rank, case.bytes], hook) for rank in (1, 0)]
    world = peers.hearth_world(case.transport, 2, scratch)
    if variant.algo == "tls":
        del world["HEARTH_PLAIN"]
    if case.course != CALLS:
        arguments += ["--alloc", variant.alloc]
    return [([program, *arguments, case.bytes], {**world, "HEARTH_RANK": str(rank)}) for rank in (0, 1)]


class Rounds(peers.Rounds):
    def __init__(self, options):
        self.options = options
        self.rows = {}
        self.failures = []
        self.cases = options.cases

    def label(self, case):
        return str(case)

    def variants(self, case):
        return variants(case, self.options.only)

    def commands(self, case, variant, scratch):
        return commands(case, variant, self.options.seconds, scratch)

    def turn(self, case, index):
        """All, in every round: a form has fast and slow rounds, as the places of its buffers fall."""
        found = self.variants(case)
        shift = index * len(found) // self.options.rounds
        return found[shift:] + found[:shift]

    def results(self):
        return Results([summary(case, variant, rows) for (case, variant), rows in self.rows.items()])


# ---- What they say -------------------------------------------------------------------------------------------------

def summary(case, variant, rounds):
    """One row out of the rows that a program printed, one per round."""
    medians = [r["median_us"] for r in rounds]
    median = statistics.median(medians)
    congestion = "own" if variant.library == "hearth" else variant.congestion or peers.system_congestion()
    return {
        "name": variant.library, "course": case.course, "transport": case.transport, "secure": variant.algo == "tls",
        "algo": variant.algo or "default", "alloc": variant.alloc, "ranks": 2, "bytes": case.bytes,
        "congestion": congestion if case.transport == "tcp" else "none", "window": case.window, "rounds": len(rounds),
        "calls": sum(r["calls"] for r in rounds), "median_us": median,
        "p99_us": statistics.median(r["p99_us"] for r in rounds), "min_us": min(r["min_us"] for r in rounds),
        "spread": (max(medians) - min(medians)) / median, "bytes_per_s": case.bytes / median * 1e6,
        "rounds_us": medians, "ok": all(r["ok"] for r in rounds),
    }


def is_of(row, case):
    return (row["course"], row["transport"], row["bytes"], row["window"]) == \
        (case.course, case.transport, case.bytes, case.window)


class Results:
    def __init__(self, rows):
        self.rows = rows
        for row in rows:
            peer = self.best(next(c for c in CASES if is_of(row, c)), "openmpi")
            if row["name"] == "hearth" and peer:
                row.update(vs="openmpi", vs_median_us=peer["median_us"], ratio=row["median_us"] / peer["median_us"])

    def best(self, case, library):
        """The fastest form of a library, whatever it had to be told for it."""
        found = [r for r in self.rows if is_of(r, case) and r["name"] == library and r["ok"]]
        return min(found, key=lambda r: r["median_us"], default=None)

    def hearth(self, case, form="plain", alloc="private"):
        return next((r for r in self.rows if is_of(r, case) and r["name"] == "hearth" and r["algo"] == form
                     and r["alloc"] == alloc), None)

    def cases(self):
        return [case for case in CASES if any(is_of(row, case) for row in self.rows)]


# ---- Tables --------------------------------------------------------------------------------------------------------

def cell(row):
    if not row:
        return "-"
    speed = f", {report.number(row['bytes_per_s'] / 1e9)} GB/s" if row["course"] == WAY else ""
    speed = f", {1e6 / row['median_us']:,.0f} a second" if row["course"] == CALLS else speed
    text = report.time_text(row["median_us"]) + speed + f" ±{row['spread'] * 100:.0f}%"
    return text + ("" if row["ok"] else " WRONG")


def times_table(results):
    lines = [["case", "Hearth", "Hearth, TLS", "Hearth, shared", "Open MPI", "nng", "Open MPI / Hearth"]]
    for case in results.cases():
        own, peer = results.hearth(case), results.best(case, "openmpi")
        lines.append([str(case), cell(own), cell(results.hearth(case, "tls")),
                      cell(results.hearth(case, alloc="shared")), cell(peer), cell(results.best(case, "nng")),
                      f"{peer['median_us'] / own['median_us']:.2f}" if own and peer else "-"])
    return lines


def target_line(results, target):
    own = results.hearth(target.case, target.form)
    if isinstance(target.against, str):
        other, who = results.best(target.case, target.against), LIBRARIES[target.against]
    else:
        other, who = results.hearth(*target.against), f"Hearth, {target.against[0]}"
    form = ", TLS" if target.form == "tls" else ""
    ratio = other["median_us"] / own["median_us"] if own and other and own["ok"] else None
    return [f"{target.case}{form}", f"{who} {report.time_text(other['median_us'])}" if other else who,
            f"{target.factor:.3g} x", f"{ratio:.2f} x" if ratio else "-",
            "-" if ratio is None else "yes" if ratio >= target.factor else "NO"]


def targets_table(results):
    lines = [["case", "against", "at least", "measured", "holds"]]
    lines += [target_line(results, t) for t in TARGETS if t.case in results.cases()]
    many = CASES[-1]
    if own := results.hearth(many, "tls"):
        rate = 1e6 / own["median_us"]
        lines.append([f"{many}, TLS", "", f"{CALLS_A_SECOND:,} a second", f"{rate:,.0f} a second",
                      "yes" if rate >= CALLS_A_SECOND else "NO"])
    return lines


def whole(results, about, markdown):
    show = report.as_markdown if markdown else report.as_text
    title = (lambda text: f"### {text}") if markdown else (lambda text: text)
    return "\n\n".join([
        "\n".join(report.about(about)),
        "Half a round trip; time of a message, one way; time of a call. Median of the rounds' medians ± how far the "
        "rounds lie apart.",
        title("Messages between two processes"), show(times_table(results)),
        title("Targets of messages"), show(targets_table(results))]) + "\n"


# ---- The command ---------------------------------------------------------------------------------------------------

def options_of(arguments):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7, help="default: 7")
    parser.add_argument("--seconds", type=float, default=0.3, help="of timed calls in each round; default: 0.3")
    parser.add_argument("--quick", action="store_true", help="one round of 0.1 s")
    parser.add_argument("--only", type=peers.list_of(str, list(LIBRARIES)), default=list(LIBRARIES), metavar="NAMES",
                        help="default: hearth,openmpi,nng")
    parser.add_argument("--cases", type=peers.list_of(int, range(1, len(CASES) + 1)), metavar="N,N",
                        default=list(range(1, len(CASES) + 1)),
                        help="; ".join(f"{i}: {case}" for i, case in enumerate(CASES, 1)))
    parser.add_argument("--json", type=Path, default=peers.BUILD / "bench-messages.json", metavar="FILE",
                        help="default: build/bench-messages.json")
    parser.add_argument("--docs", action="store_true", help="puts the tables into docs/benchmarks.md")
    options = parser.parse_args(arguments)
    if options.quick:
        options.rounds, options.seconds = 1, 0.1
    if options.rounds < 1 or not 0 < options.seconds <= 600:
        parser.error("--rounds begins at 1, --seconds is above 0, at most 600")
    options.cases = [CASES[i - 1] for i in options.cases]
    return options


def main():
    options = options_of(sys.argv[1:])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("bench-messages: ended by a signal"))
    peers.install()
    peers.build(options.only, "messages")
    if any(case.course == CALLS for case in options.cases):
        peers.build({"hearth"} & set(options.only), "calls")
    children.adopt_orphans()
    rounds = Rounds(options)
    stopped = False
    try:
        rounds.run()
    except KeyboardInterrupt:
        stopped = True
    rounds.progress("" if sys.stderr.isatty() else "\n")
    about, results = peers.facts(options.only), rounds.results()
    print(whole(results, about, markdown=False))
    options.json.write_text(json.dumps({**about, "results": results.rows}, indent=2) + "\n")
    if options.docs:
        peers.put_into_document(whole(results, about, markdown=True), MARKS)
    for failure in rounds.failures:
        peers.say(f"bench-messages: failed: {failure}")
    wrong = sorted({row["name"] for row in results.rows if not row["ok"]})
    if wrong:
        peers.say(f"bench-messages: wrong results: {', '.join(wrong)}")
    own = any(failure.startswith("hearth") for failure in rounds.failures)
    sys.exit(130 if stopped else 1 if wrong or own else 0)


if __name__ == "__main__":
    main()
