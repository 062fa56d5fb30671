#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds presets, runs their tests, and ends with one line: N passed, M failed."""

import argparse
import os
import re
import subprocess
import sys
import threading
import time
import xml.etree.ElementTree as xml
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# Rooms whose tests mean the same on every machine: they run on ARM too, and print `hash NAME HEX` lines there as here.
ARM_TESTS = "^unit/(core|kernel|wire|compress|collective)/"


@dataclass
class Suite:
    preset: str
    about: str
    only: str = "."  # regular expression of the tests to run
    skip: str = "^$"  # and of those to leave out
    lean: bool = False  # builds nothing but those tests; only for suites of C programs that run no other program
    configure: list = field(default_factory=list)
    environment: dict = field(default_factory=dict)


SUITES = {
    "release": Suite("release", "gcc -O2, tests with assert", skip="^(net/|process/mix|torch/|house/tidy)"),
    "python": Suite("release", "the Python binding", only="^python/"),
    "torch": Suite("release", "PyTorch: hook and backend", only="^torch/", configure=["-DHEARTH_TORCH=ON"]),
    "net": Suite("release", "test hosts in network namespaces; the test of the switch itself is a part of soak",
                 only="^(net/|process/mix)", skip="^net/switch"),
    "asan": Suite("asan", "address and undefined behaviour sanitizers; without what only computes for long",
                  skip="^(conform/(convergence|soak)|unit/(cli/mlp|collective/(planners|select))|cli/(cli|cluster|run|up)$|"
                       "process/(compressed_|idle)|unit/cluster/peer_set_(race|siege))"),
    "tsan": Suite("tsan", "thread sanitizer; without what has one thread, and what only takes longer", lean=True,
                  skip="^(unit/(cli|collective|compress|core|discovery|cluster|kernel|membership|security|wire)/|"
                       "(cli|fuzz|sim|torture)/|"
                       "conform/(average|compressed$|convergence|error_growth|mismatch|nexar|order|reform|soak|special|"
                       "variants)|process/(busy|compressed_|crowd|idle|launchers|matrix|opening))"),
    "clang": Suite("clang", "clang, warnings are errors", only="^(unit/(core|kernel|wire)|sim)/"),
    "tidy": Suite("release", "clang-tidy over src and cli", only="^house/tidy$"),
    "posix": Suite("posix", "only what every POSIX system has",
                   only="^(unit/(os|node|transport|bootstrap|security)/|process/(death|idle)|"
                        "conform/(close|collectives|concurrent|fork|cluster|requests|transports))", lean=True),
    "arm": Suite("arm", "64-bit ARM under qemu", only=ARM_TESTS, lean=True, environment={"HEARTH_TEST_BRIEF": "1"}),
    "fuzz": Suite("fuzz", "libFuzzer over each corpus", lean=True),
    "soak": Suite("release", "full repeat counts", skip="^torch/", configure=["-DHEARTH_TEST_FACTOR=100"],
                  environment={"HEARTH_TEST_SOAK": "1"}),
}


@dataclass
class Count:
    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def add(self, other):
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped

    def __str__(self):
        text = f"{self.passed} passed, {self.failed} failed"
        return text + f", {self.skipped} skipped" if self.skipped else text


def run(command, **more):
    return subprocess.run([str(c) for c in command], cwd=ROOT, stdin=subprocess.DEVNULL, **more)


def quiet(command, live):
    """Runs a command whose output matters only when it fails, or to a person who waits: None, or that output."""
    if live:
        return "" if run(command).returncode else None
    done = run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    return done.stdout if done.returncode else None


def targets(directory, suite):
    """What to build for the tests of a suite: `unit/core/hash` is test_unit_core_hash, `fuzz/frame` is fuzz_frame."""
    if not suite.lean:
        return ["all", "tests"]
    listed = run(["ctest", "--test-dir", directory, "-N", "-R", suite.only, "-E", suite.skip], stdout=subprocess.PIPE,
                 text=True).stdout
    names = re.findall(r"^ +Test +#\d+: (\S+)", listed, re.M)
    return [("" if name.startswith("fuzz/") else "test_") + name.replace("/", "_") for name in names]


def directory_of(suite):
    return ROOT / "build" if suite.preset == "release" else ROOT / "build" / suite.preset


BUSY = defaultdict(threading.Lock)  # directories that are built, or whose tests run: never both


def build(suite, live=False):
    """None, or what went wrong. Builds give way to tests, which run meanwhile and have deadlines."""
    directory = directory_of(suite)
    with BUSY[directory]:
        wrong = quiet(["cmake", "--preset", suite.preset, *suite.configure], live)
        if wrong is None:
            wrong = quiet(["nice", "-n", 19, "cmake", "--build", directory, "--target", *targets(directory, suite)], live)
        return wrong


CASES = {
    "cmocka": re.compile(r"^\[ RUN      \] (?P<name>\S+)\n(?:(?!\[ RUN ).*\n)*?\[ +(?P<status>OK|FAILED|ERROR|SKIPPED) +\]",
                         re.M),
    "unittest": re.compile(r"^(?P<name>\w+) \([\w.]+\)(?:\n.*)? \.\.\. (?P<status>ok|FAIL|ERROR|skipped .*)$", re.M),
}


def cases(program, output, failed):
    """Counts the cases of a cmocka or unittest program; any other program is one case."""
    count = Count()
    for case in (c for pattern in CASES.values() for c in pattern.finditer(output)):
        status = case["status"]
        count.passed += status.upper() == "OK"
        count.failed += status in ("FAIL", "FAILED", "ERROR")
        if status.upper().startswith("SKIPPED"):
            count.skipped += 1
            reason = status[8:] or ", ".join(re.findall(r"^skipped: (.*)$", case[0], re.M)) or "no reason given"
            print(f"skipped: {program}: {case['name']}: {reason}")
    if failed:
        count.failed = max(count.failed, 1)  # it may have died between two cases
    elif not count.passed and not count.skipped:
        count.passed = 1
    return count


def ctest(suite, echo=True):
    """Runs the tests of a suite that is built: the count, and the `hash` lines they printed by (test, what)."""
    directory = directory_of(suite)
    with BUSY[directory]:
        return ctest_in(directory, suite, echo)


def ctest_in(directory, suite, echo):
    report = directory / "tests.xml"
    report.unlink(missing_ok=True)
    command = ["ctest", "--test-dir", directory, "-j", os.cpu_count() or 1, "--output-on-failure", "--no-tests=error",
               "--output-junit", report, "--test-output-size-passed", 1 << 22, "--test-output-size-failed", 1 << 22]
    command += ["-R", suite.only, "-E", suite.skip]
    bits = Path("/proc/sys/vm/mmap_rnd_bits")
    if directory.name == "tsan" and bits.exists() and int(bits.read_text()) > 28:
        command = ["setarch", "-R", *command]  # gcc 12's runtime does not know such wide random addresses
    with subprocess.Popen([str(c) for c in command], cwd=ROOT, env={**os.environ, **suite.environment}, text=True,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, errors="replace") as process:
        for line in process.stdout:
            if echo and not re.match(r"\s+Start +\d+: |Internal ctest|Test project|Errors while", line):
                print(line, end="", flush=True)
    if not report.exists():
        return Count(failed=1), {}

    count, hashes = Count(), {}
    for test in xml.parse(report).getroot().iter("testcase"):
        name, output = test.get("name"), test.findtext("system-out") or ""
        if test.get("status") == "notrun" and test.find("skipped") is not None:
            print(f"skipped: {name}: {output.strip().splitlines()[-1] if output.strip() else 'no reason given'}")
            count.skipped += 1
        else:
            count.add(cases(name, output, test.get("status") != "run"))
        hashes.update({(name, what): value for what, value in re.findall(r"^hash (\S+) ([0-9a-f]+)$", output, re.M)})
    if process.returncode and not count.failed:
        count.failed = 1
    return count, hashes


def compare(there, environment):
    """Hashes printed on the other machine must be the same here."""
    tests = "^(" + "|".join(sorted({test for test, _ in there})) + ")$"
    native = Suite("release", "", only=tests, lean=True, environment=environment)
    wrong = build(native) if there else "no test printed a hash\n"
    if wrong is not None:
        print(f"{wrong}failed: there is nothing to compare with this machine")
        return Count(failed=1)
    here = ctest(native, echo=False)[1]
    count = Count()
    for key in sorted(here.keys() | there.keys()):
        if here.get(key) == there.get(key):
            count.passed += 1
        else:
            count.failed += 1
            print(f"failed: hash of {' '.join(key)}: {here.get(key)} here, {there.get(key)} there")
    print(f"{count.passed} hashes are the same as on this machine")
    return count


def arm():
    """None, or why ARM tests cannot run here."""
    for tool in ("aarch64-linux-gnu-gcc", "qemu-aarch64"):
        if run(["sh", "-c", f"command -v {tool}"], stdout=subprocess.DEVNULL).returncode:
            return f"{tool} is missing: run ./setup --all"
    done = run(["tools/arm-sysroot"], stdout=subprocess.PIPE, text=True)
    return done.stdout.strip() or "no cmocka for ARM" if done.returncode else None


def torch():
    """None, or why tests of PyTorch cannot run here."""
    done = run(["tools/pick_python.py", "--need", "torch", "numpy"], capture_output=True, text=True)
    if done.returncode:
        return done.stderr.strip()
    for header in ("torch/csrc/api/include/torch/torch.h", "pybind11/pybind11.h"):
        if not (Path("/usr/include") / header).exists():
            return f"{header} is missing, and so the backend cannot be built: run ./setup --all"
    return None


NEEDS = {"arm": arm, "torch": torch}  # suites that some machines cannot run


def prepare(name, live):
    """Builds a suite: why it cannot run here, or None, and what went wrong, or None."""
    reason = NEEDS[name]() if name in NEEDS else None
    return reason, None if reason else build(SUITES[name], live)


def run_suite(name, prepared):
    """Runs the tests of a suite as soon as it is built."""
    suite = SUITES[name]
    print(f"\n== {name}: {suite.about}", flush=True)
    reason, wrong = prepared.result()
    if reason:
        print(f"skipped: {name}: {reason}")
        return Count(skipped=1)
    if wrong is not None:
        print(f"{wrong}failed: {name}: does not build")
        return Count(failed=1)
    count, hashes = ctest(suite)
    if name == "arm":
        count.add(compare(hashes, suite.environment))
    return count


def run_suites(names):
    """Runs suites in turn. While the tests of one run, and many only wait, the next ones are built: those that measure
    should come last."""
    total, lines = Count(), []
    live = sys.stdout.isatty() and len(names) == 1
    builder = ThreadPoolExecutor(1)
    try:
        prepared = [builder.submit(prepare, name, live) for name in names]
        for name, ready in zip(names, prepared):
            start = time.monotonic()
            count = run_suite(name, ready)
            lines.append(f"{name:8} {count}  ({time.monotonic() - start:.0f} s)")
            total.add(count)
    finally:
        builder.shutdown(cancel_futures=True)
    print("\n" + "\n".join(lines))
    return total


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("suites", nargs="+", choices=SUITES, metavar="SUITE", help=", ".join(SUITES))
    parser.add_argument("--fuzz-seconds", type=int, default=2, help="how long each fuzzer runs (2)")
    args = parser.parse_args()
    SUITES["fuzz"].configure.append(f"-DHEARTH_FUZZ_SECONDS={args.fuzz_seconds}")
    total = run_suites(args.suites)
    print(total, flush=True)
    return 1 if total.failed or not total.passed else 0


if __name__ == "__main__":
    sys.exit(main())
