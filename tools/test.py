#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds presets, runs their tests, and ends with one line: N passed, M failed."""

import argparse
import os
import re
import subprocess
import sys
import time
import xml.etree.ElementTree as xml
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
    lean: bool = False  # builds no other tests than those; only for suites of C programs
    configure: list = field(default_factory=list)
    environment: dict = field(default_factory=dict)


SUITES = {
    "release": Suite("release", "gcc -O2, tests with assert", skip="^(net/|process/mix|torch/)"),
    "python": Suite("release", "the Python binding", only="^python/"),
    "torch": Suite("release", "PyTorch: hook and backend", only="^torch/", configure=["-DHEARTH_TORCH=ON"]),
    "net": Suite("release", "test hosts in network namespaces; the test of the switch itself is a part of soak",
                 only="^(net/|process/mix)", skip="^net/switch"),
    "asan": Suite("asan", "address and undefined behaviour sanitizers; without what only computes for long",
                  skip="^(conform/(convergence|soak)|unit/(cli/mlp|collective/(planners|select))|cli/(cli|home|run|up)$|"
                       "process/(compressed_|idle)|unit/home/fellows_(race|siege))"),
    "tsan": Suite("tsan", "thread sanitizer; without what has one thread, and what only takes longer",
                  skip="^(unit/(cli|collective|compress|core|discovery|home|kernel|membership|security|wire)/|cli/|sim/|torture/|"
                       "conform/(average|compressed$|convergence|error_growth|mismatch|nexar|order|reform|soak|special|"
                       "variants)|process/(busy|compressed_|idle|launchers|matrix|opening))"),
    "clang": Suite("clang", "clang, warnings are errors", only="^(unit/(core|kernel|wire)|sim)/"),
    "posix": Suite("posix", "only what every POSIX system has",
                   only="^(unit/(os|node|transport|bootstrap|security)/|process/(death|idle)|"
                        "conform/(close|collectives|concurrent|fork|home|requests|transports))", lean=True),
    "arm": Suite("arm", "64-bit ARM under qemu", only=ARM_TESTS, lean=True),
    "fuzz": Suite("fuzz", "libFuzzer over each corpus"),
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


def quiet(command):
    """Runs a command whose output matters only when it fails."""
    if sys.stdout.isatty():
        return run(command).returncode == 0
    done = run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    if done.returncode:
        print(done.stdout, end="")
    return done.returncode == 0


def targets(directory, suite):
    """What to build for the tests of a suite: `unit/core/hash` is the program test_unit_core_hash."""
    if not suite.lean:
        return ["tests"]
    listed = run(["ctest", "--test-dir", directory, "-N", "-R", suite.only, "-E", suite.skip], stdout=subprocess.PIPE,
                 text=True).stdout
    return ["test_" + name.replace("/", "_") for name in re.findall(r"^ +Test +#\d+: (\S+)", listed, re.M)]


def build(suite):
    """The build directory, or None."""
    directory = ROOT / "build" if suite.preset == "release" else ROOT / "build" / suite.preset
    ready = quiet(["cmake", "--preset", suite.preset, *suite.configure]) and \
        quiet(["cmake", "--build", directory]) and \
        quiet(["cmake", "--build", directory, "--target", *targets(directory, suite)])
    return directory if ready else None


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


def ctest(directory, suite, echo=True):
    """Runs the tests of a build directory: the count, and the `hash` lines they printed by (test, what)."""
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


def compare(there):
    """Hashes printed on the other machine must be the same here."""
    native = build(SUITES["release"]) if there else None
    if not native:
        print("failed: no test printed a hash, or there is no build for this machine to compare with")
        return Count(failed=1)
    tests = "^(" + "|".join(sorted({test for test, _ in there})) + ")$"
    here = ctest(native, Suite("release", "", only=tests), echo=False)[1]
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


def run_suite(name, seconds):
    suite = SUITES[name]
    print(f"\n== {name}: {suite.about}", flush=True)
    reason = NEEDS[name]() if name in NEEDS else None
    if reason:
        print(f"skipped: {name}: {reason}")
        return Count(skipped=1)
    if name == "fuzz":
        suite.configure.append(f"-DHEARTH_FUZZ_SECONDS={seconds}")
    directory = build(suite)
    if not directory:
        print(f"failed: {name}: does not build")
        return Count(failed=1)
    count, hashes = ctest(directory, suite)
    if name == "arm":
        count.add(compare(hashes))
    return count


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("suites", nargs="+", choices=SUITES, metavar="SUITE", help=", ".join(SUITES))
    parser.add_argument("--fuzz-seconds", type=int, default=3, help="how long each fuzzer runs (3)")
    args = parser.parse_args()
    total, lines = Count(), []
    for name in args.suites:
        start = time.monotonic()
        count = run_suite(name, args.fuzz_seconds)
        lines.append(f"{name:8} {count}  ({time.monotonic() - start:.0f} s)")
        total.add(count)
    print("\n" + "\n".join(lines))
    print(total, flush=True)
    return 1 if total.failed or not total.passed else 0


if __name__ == "__main__":
    sys.exit(main())
