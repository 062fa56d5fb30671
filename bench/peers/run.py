#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures all-reduce of Hearth, Open MPI, MPICH and Gloo side by side on this machine. README.md says how and why."""

import argparse
import datetime
import itertools
import json
import os
import platform
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import children
import report

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
BUILD = ROOT / "build"
PROGRAMS = BUILD / "peers"
DOCUMENT = ROOT / "docs/benchmarks.md"
MARKS = "<!-- bench-peers: begin -->", "<!-- bench-peers: end -->"

SIZES = [4, 1 << 10, 64 << 10, 1 << 20, 16 << 20, 100 << 20]
GLOO = ["new_ring", "new_bcube", "ring", "ring_chunked", "halving_doubling", "bcube"]
LIMIT_S = 90  # for one measurement
KEEP = 1.5  # a program this many times slower than its library's best in the first round is not run again
PACKAGES = {  # what shows that a package is there: a command or a file
    "openmpi-bin": "mpirun.openmpi", "libopenmpi-dev": "/usr/share/doc/libopenmpi-dev/copyright",
    "mpich": "mpirun.mpich", "libmpich-dev": "/usr/share/doc/libmpich-dev/copyright",
    "libgloo-dev": "/usr/include/gloo/allreduce.h", "g++": "g++", "libnng-dev": "/usr/include/nng/nng.h",
}


def say(text):
    print(text, file=sys.stderr, flush=True)


# ---- Packages and programs -----------------------------------------------------------------------------------------

def install():
    missing = [name for name, sign in PACKAGES.items() if not (shutil.which(sign) or Path(sign).is_file())]
    if not missing:
        return
    line = ["apt-get", "install", "-y", "--no-install-recommends", *missing]
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        sys.exit(f"bench-peers: missing here. This installs it:\n    sudo {shlex.join(line)}")
    say(f"bench-peers: installing {' '.join(missing)}")
    for command in (["apt-get", "update"], line):
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"})
        if done.returncode:
            sys.exit(f"{done.stdout}{done.stderr}bench-peers: installation failed")


def build(libraries, what="allreduce"):
    """The programs for all-reduces, messages or calls: the loop, once, and a program of each library around it."""
    PROGRAMS.mkdir(parents=True, exist_ok=True)
    flags = ["-O2", "-Wall", "-Wextra", f"-I{ROOT}"]
    c = ["-std=gnu17", "-D_GNU_SOURCE", *flags]
    loop = [PROGRAMS / f"{name}.o" for name in ["measure", "samples"] + ["message_loop"] * (what != "allreduce")]
    commands = [["cc", *c, "-c", HERE / f"{part.stem}.c", "-o", part] for part in loop]
    if "hearth" in libraries:
        commands.append(["cc", *c, f"-I{ROOT}/include", HERE / f"hearth_{what}.c", *loop, BUILD / "libhearth.so",
                         f"-Wl,-rpath,{BUILD}", "-lm", "-o", PROGRAMS / f"hearth_{what}"])
    for library in {"openmpi", "mpich"} & set(libraries):
        commands.append([f"mpicc.{library}", *c, HERE / f"mpi_{what}.c", *loop, "-lm",
                         "-o", PROGRAMS / f"{library}_{what}"])
    if "gloo" in libraries:
        commands.append(["g++", "-std=c++17", *flags, HERE / "gloo_allreduce.cc", *loop, "-lgloo", "-pthread",
                         "-o", PROGRAMS / "gloo_allreduce"])
    if "nng" in libraries:
        commands.append(["cc", *c, HERE / "nng_messages.c", *loop, "-lnng", "-lm", "-o", PROGRAMS / "nng_messages"])
    commands.append(["cc", *c, "-shared", "-fPIC", HERE / "cubic.c", "-ldl", "-o", PROGRAMS / "cubic.so"])
    for command in commands:
        if subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL).returncode:
            sys.exit(f"bench-peers: cannot build {command[-1]}")


# ---- What is measured ----------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class Variant:
    library: str
    algo: str = ""
    alloc: str = "private"
    congestion: str = ""  # "": the system's, or the library's own choice

    def __str__(self):
        words = [self.library + (f".{self.algo}" if self.algo else ""), self.congestion]
        return " ".join(filter(None, words + ["shared"] * (self.alloc == "shared")))


def system_congestion():
    return Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip()


def congestions():
    """Peers run under the system's congestion control and under cubic, if that is another and may be chosen."""
    if system_congestion() == "cubic":
        return [""]
    with socket.socket() as probe:
        try:
            probe.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"cubic")
        except OSError as error:
            say(f"bench-peers: peers run under {system_congestion()} only, cubic is refused: {error.strerror}")
            return [""]
    return ["", "cubic"]


def variants(transport, libraries):
    found = []
    if "hearth" in libraries:
        found += [Variant("hearth", alloc=alloc) for alloc in ("private", "shared")[:2 if transport == "shm" else 1]]
    for congestion in congestions() if transport == "tcp" else [""]:
        found += [Variant(library, congestion=congestion) for library in ("openmpi", "mpich") if library in libraries]
        if transport == "tcp" and "gloo" in libraries:
            found += [Variant("gloo", algo, congestion=congestion) for algo in GLOO]
    return found


def mpirun_line(transport, ranks, hook):
    """How Open MPI is started, up to the program."""
    line = ["mpirun.openmpi", "-n", ranks]
    line += ["--oversubscribe"] if ranks > os.cpu_count() else []
    line += ["--allow-run-as-root"] if os.geteuid() == 0 else []
    if transport == "tcp":
        line += ["--mca", "pml", "ob1", "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "lo"]
    return [*line, *itertools.chain.from_iterable(("-x", f"{key}={value}") for key, value in hook.items())]


def hearth_world(transport, ranks, scratch):
    world = {"HEARTH_WORLD_SIZE": str(ranks), "HEARTH_TRANSPORT": transport, "HEARTH_PLAIN": "1",  # as the peers
             "HEARTH_RENDEZVOUS": f"unix:@hearth-bench-{os.getpid()}-{Path(scratch).name}"}
    return {**world, "HEARTH_BIND": "127.0.0.1"} if transport == "tcp" else world


def hook_of(variant):
    return {"LD_PRELOAD": str(PROGRAMS / "cubic.so")} if variant.congestion else {}


def launch(variant, transport, ranks, arguments, scratch):
    """The processes to start: (argument list, environment) each."""
    hook = hook_of(variant)
    program = PROGRAMS / f"{variant.library}_allreduce"
    if variant.library == "openmpi":
        return [([*mpirun_line(transport, ranks, hook), program, *arguments], {})]
    if variant.library == "mpich":
        tcp = {"UCX_TLS": "tcp,self", "UCX_NET_DEVICES": "lo"} if transport == "tcp" else {}
        settings = itertools.chain.from_iterable(("-genv", key, value) for key, value in {**tcp, **hook}.items())
        return [(["mpirun.mpich", "-n", ranks, *settings, program, *arguments], {})]
    if variant.library == "gloo":
        return [([program, "--algo", variant.algo, "--rank", rank, "--ranks", ranks, "--store", scratch, *arguments],
                 hook) for rank in range(ranks)]
    world = hearth_world(transport, ranks, scratch)
    return [([program, "--alloc", variant.alloc, *arguments], {**world, "HEARTH_RANK": str(rank)})
            for rank in range(ranks)]


class Rounds:
    """Runs every variant of every case in turns; keeps what they printed."""

    def __init__(self, options):
        self.options = options
        self.rows = {}  # (case, variant): the rows of the rounds
        self.failures = []
        self.cases = [(transport, ranks, count) for transport in options.transport for ranks in options.ranks
                      for count in options.sizes]

    def run(self):
        for index in range(self.options.rounds):
            for case in self.cases:
                turn = self.turn(case, index)
                for place, variant in enumerate(turn, 1):
                    self.progress(f"round {index + 1}/{self.options.rounds}  {self.label(case)}  "
                                  f"{place}/{len(turn)} {variant}")
                    self.measure(case, variant)

    def label(self, case):
        return f"{case[0]} N={case[1]} {report.size_text(case[2])}"

    def variants(self, case):
        return variants(case[0], self.options.only)

    def commands(self, case, variant, scratch):
        transport, ranks, count = case
        return launch(variant, transport, ranks, ["--seconds", self.options.seconds, count], scratch)

    def turn(self, case, index):
        """Who runs, in which order: each round another begins; slow forms of a library leave after the first."""
        found = self.variants(case)
        if index == 0:
            return found
        first = {v: self.rows[case, v][0]["median_us"] for v in found if (case, v) in self.rows}
        best = {}
        for variant, median in first.items():
            best[variant.library] = min(median, best.get(variant.library, median))
        kept = [v for v in first if v.library == "hearth" or first[v] <= KEEP * best[v.library]]
        shift = index * len(kept) // self.options.rounds
        return kept[shift:] + kept[:shift]

    def measure(self, case, variant):
        with tempfile.TemporaryDirectory(prefix="hearth-peers-") as scratch:
            try:
                (row,) = children.run(self.commands(case, variant, scratch), 1, LIMIT_S)
            except children.Failed as failure:
                self.failures.append(f"{variant}, {self.label(case)}: {failure}")
                say(f"  failed: {self.failures[-1]}")
                return
        self.rows.setdefault((case, variant), []).append(row)
        self.progress(f"  {report.time_text(row['median_us'], row['p99_us'])}{'' if row['ok'] else ' WRONG'}", True)

    @staticmethod
    def progress(text, more=False):
        """On a terminal one line that changes, else a line each."""
        if sys.stderr.isatty():
            print(text if more else f"\r\033[K{text}", end="", file=sys.stderr, flush=True)
        else:
            print(text, end="\n" if more else "", file=sys.stderr, flush=True)

    def results(self):
        default = system_congestion()
        return report.Results([report.summary(case[0], self.congestion(case, variant, default), rows)
                               for (case, variant), rows in self.rows.items()])

    @staticmethod
    def congestion(case, variant, default):
        if case[0] != "tcp":
            return "none"
        return "own" if variant.library == "hearth" else variant.congestion or default


# ---- What was measured on ------------------------------------------------------------------------------------------

def first_line(command):
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    return (done.stdout.splitlines() or ["unknown"])[0]


def facts(libraries):
    cpu = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.M)
    packages = {"openmpi": ["openmpi-bin"], "mpich": ["mpich", "libucx0"], "gloo": ["libgloo-dev"],
                "nng": ["libnng-dev"]}
    versions = {"hearth": first_line([BUILD / "hearth", "--version"]).split()[-1]} if "hearth" in libraries else {}
    for library in libraries:
        for package in packages.get(library, []):
            versions[package] = first_line(["dpkg-query", "-W", "-f", "${Version}", package])
    return {
        "command": shlex.join([os.path.relpath(sys.argv[0], ROOT), *sys.argv[1:]]),
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"),
        "machine": {"cpu": cpu.group(1) if cpu else platform.machine(), "cores": os.cpu_count(),
                    "memory_bytes": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
                    "kernel": f"{platform.system()} {platform.release()}", "arch": platform.machine(),
                    "compiler": "gcc " + first_line(["cc", "-dumpfullversion"])},
        "versions": versions,
        "congestion": system_congestion(),
    }


# ---- The command ---------------------------------------------------------------------------------------------------

def size(text):
    match = re.fullmatch(r"(\d+)([KM]?)", text.upper())
    count = int(match[1]) << {"": 0, "K": 10, "M": 20}[match[2]] if match else 0
    if count < 4 or count % 4:
        raise argparse.ArgumentTypeError(f"{text}: a multiple of 4 bytes, as in 4, 64K, 100M")
    return count


def list_of(kind, allowed=None):
    def parse(text):
        items = [kind(item) for item in text.split(",")]
        for item in items:
            if allowed and item not in allowed:
                raise argparse.ArgumentTypeError(f"{item}: one of {', '.join(map(str, allowed))}")
        return items
    return parse


def options_of(arguments):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="default: 3")
    parser.add_argument("--seconds", type=float, default=0.5, help="of timed calls in each round; default: 0.5")
    parser.add_argument("--quick", action="store_true", help="one round of 0.1 s")
    parser.add_argument("--only", type=list_of(str, list(report.LIBRARIES)), default=list(report.LIBRARIES),
                        metavar="NAMES", help="default: hearth,openmpi,mpich,gloo")
    parser.add_argument("--transport", type=list_of(str, ["shm", "tcp"]), default=["shm", "tcp"], metavar="NAMES",
                        help="default: shm,tcp")
    parser.add_argument("--ranks", type=list_of(int, range(2, 65)), default=[2, 4], metavar="N,N", help="default: 2,4")
    parser.add_argument("--sizes", type=list_of(size), default=SIZES, help="default: 4,1K,64K,1M,16M,100M")
    parser.add_argument("--json", type=Path, default=BUILD / "bench-peers.json", metavar="FILE",
                        help="default: build/bench-peers.json")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="writes the tables as Markdown")
    parser.add_argument("--docs", action="store_true", help="puts them into docs/benchmarks.md")
    options = parser.parse_args(arguments)
    if options.quick:
        options.rounds, options.seconds = 1, 0.1
    if options.rounds < 1 or not 0 < options.seconds <= 600:
        parser.error("--rounds begins at 1, --seconds is above 0, at most 600")
    return options


def put_into_document(text, marks=MARKS):
    before, begin, rest = DOCUMENT.read_text().partition(marks[0])
    _, end, after = rest.partition(marks[1])
    if not (begin and end):
        sys.exit(f"bench-peers: {DOCUMENT} has no {marks[0]} ... {marks[1]}")
    DOCUMENT.write_text(f"{before}{begin}\n{text}{end}{after}")


def main():
    options = options_of(sys.argv[1:])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("bench-peers: ended by a signal"))
    install()
    build(options.only)
    children.adopt_orphans()
    rounds = Rounds(options)
    stopped = False
    try:
        rounds.run()
    except KeyboardInterrupt:
        stopped = True
    rounds.progress("" if sys.stderr.isatty() else "\n")
    about, results = facts(options.only), rounds.results()
    print(report.whole(results, about, markdown=False))
    options.json.write_text(json.dumps({**about, "results": results.rows}, indent=2) + "\n")
    markdown = report.whole(results, about, markdown=True)
    if options.markdown:
        options.markdown.write_text(markdown)
    if options.docs:
        put_into_document(markdown)
    for failure in rounds.failures:
        say(f"bench-peers: failed: {failure}")
    wrong = [row["name"] for row in results.rows
             if not row["ok"] or row["name"] == "hearth" and not row["same_bits"]]
    if wrong:
        say(f"bench-peers: wrong results: {', '.join(sorted(set(wrong)))}")
    own = any(failure.startswith("hearth") for failure in rounds.failures)
    sys.exit(130 if stopped else 1 if wrong or own else 0)


if __name__ == "__main__":
    main()
