# SPDX-License-Identifier: Apache-2.0
"""Training in home clusters whose machines are killed, frozen, cut off, healed and started again, by schedules of chance.
hearth-trainer checks each result against the weighted mean of those that took part; here all members are compared: the
same step has the same members and the same model everywhere, nobody takes a step twice or leaves one out, and all end with
one model. A machine that is lost right after a step may have been the only one that had its result: then the others make it
again without that machine, which is behind when it comes back. Several clusters run at once; one machine of each is away at a time.

20 schedules, 200 with HEARTH_TEST_SOAK."""

import itertools
import json
import os
import random
import signal
import subprocess
import time
import unittest

from cluster_hosts import PROGRAMS, Hosts, repeat_count
from lab import BINARY, Lab, unavailable
from places import require, unbuilt

TRAINER = BINARY / "hearth-trainer"
HOSTS_MAX = 30  # in one lab
FAULTS, PACE_MS = 3, 20
BEGIN_S, END_S = 120, 180  # against hanging
require(unavailable("switch") or unbuilt(*PROGRAMS, TRAINER))


def size_of(seed):
    """Machines of its cluster; all but one are enough."""
    return 3 + seed % 3


def waves(seeds):
    """Those that run at once."""
    wave = []
    for seed in seeds:
        if sum(map(size_of, wave)) + size_of(seed) > HOSTS_MAX:
            yield wave
            wave = []
        wave.append(seed)
    yield wave


class Cluster:
    """Trainers on some hosts of the lab, with a schedule."""

    def __init__(self, lab, hosts, seed):
        self.lab, self.seed, self.chance = lab, seed, random.Random(f"elastic {seed}")
        self.redo = seed % 4 == 0
        self.hosts = hosts
        self.home = Hosts(lab, self.hosts, f"c{seed}n")
        self.stop = os.path.join(lab.directory, f"stop{seed}")
        self.files, self.running, self.said = [], {}, []
        for host in self.hosts:
            self.start(host)

    def start(self, host):
        """A process, and the file with what it says."""
        path = os.path.join(self.lab.directory, f"said-{self.seed}-{len(self.files)}")
        self.files.append((host, path))
        command = [TRAINER, host - self.hosts[0], len(self.hosts) - 1, PACE_MS, self.stop] + ["redo"] * self.redo
        environment = self.home.environment(host, HEARTH_HEALTH="low-latency", HEARTH_TRANSPORT="tcp",
                                            HEARTH_FORM_TIMEOUT_MS=6000, HEARTH_LOG_LEVEL="info")
        with open(path, "w", encoding="utf-8") as out, open(path + ".log", "w", encoding="utf-8") as log:
            self.running[host] = self.lab.popen(host, command, stdin=subprocess.DEVNULL, stdout=out, stderr=log,
                                                env=environment)

    def lines(self, path):
        with open(path, encoding="utf-8") as file:
            return [json.loads(line) for line in file.read().split("\n")[:-1]]

    def steps(self):
        return sum(line["what"] == "step" for _, path in self.files for line in self.lines(path))

    # ---- what happens ----

    def kill(self, host):
        self.running[host].kill()
        self.running[host].wait()

    def schedule(self):
        """When to do what, from now on; at the end all are there."""
        at, events = 0.0, []
        for _ in range(FAULTS):
            host, fault = self.chance.choice(self.hosts), self.chance.choice(("kill", "freeze", "cut", "blink"))
            at += self.chance.uniform(0.2, 1.5)
            away = self.chance.uniform(0.05, 0.8) if fault == "blink" else self.chance.uniform(1.2, 3.5)
            events.append((at, f"{fault} {host - self.hosts[0]}", fault, host, True))
            events.append((at + away, "back", fault, host, False))
            at += away
        events.append((at + self.chance.uniform(0.5, 1.5), "stop", "stop", None, True))
        return events

    def do(self, event):
        _, text, fault, host, begins = event
        self.said.append(f"{time.monotonic():.2f} {text}")
        if fault == "kill":
            self.kill(host) if begins else self.start(host)
        elif fault == "cut":
            self.lab.switch(f"{'freeze' if begins else 'thaw'} {host}")
        elif fault == "stop":
            open(self.stop, "w", encoding="utf-8").close()
        else:  # freeze, blink
            self.running[host].send_signal(signal.SIGSTOP if begins else signal.SIGCONT)

    # ---- what must hold ----

    def told(self):
        texts = [f"cluster of seed {self.seed}{', redo' if self.redo else ''}", *self.said]
        for host, path in self.files:
            with open(path + ".log", encoding="utf-8", errors="replace") as log:
                texts += [f"--- host {host - self.hosts[0]}", *map(str, self.lines(path)[-8:]), *log.read().split("\n")[-25:]]
        return "\n".join(texts)

    def check(self, test):
        history, ends = {}, set()
        for host, path in self.files:
            lines, last = self.lines(path), None
            for i, line in enumerate(lines):
                what = line["what"]
                test.assertNotEqual(what, "error", f"host {host - self.hosts[0]}: {line}\n{self.told()}")
                if what == "end":
                    ends.add((line["step"], line["hash"]))
                elif what == "behind":
                    last = None  # it takes the model from others
                elif what == "step":
                    if last is not None and not self.redo:
                        test.assertEqual(line["step"], last + 1, f"a step twice, or left out: {line}\n{self.told()}")
                    elif last is not None:  # it may have taken over what another had committed
                        test.assertIn(line["step"], (last + 1, last + 2), f"a step twice: {line}\n{self.told()}")
                    last = line["step"]
                    after = lines[i + 1]["what"] if i + 1 < len(lines) else "killed"
                    if after not in ("behind", "left out", "killed"):
                        found = history.setdefault(line["step"], {})
                        found.setdefault((str(line["members"]), line["hash"]), []).append(host)
        for step, versions in history.items():
            test.assertEqual(len(versions), 1, f"step {step} differs: {versions}\n{self.told()}")
        test.assertEqual(len(ends), 1, f"members end with different models: {ends}\n{self.told()}")
        return len(history)

    def close(self):
        for host, child in self.running.items():
            if child.poll() is None:
                child.send_signal(signal.SIGCONT)
                child.kill()
                child.wait()


class Elastic(unittest.TestCase):
    def wait(self, what, clusters, condition, seconds):
        deadline = time.monotonic() + seconds
        while not all(condition(c) for c in clusters):
            for c in clusters:
                if time.monotonic() > deadline and not condition(c):
                    self.fail(f"{what}: not within {seconds} s\n{c.told()}")
            time.sleep(0.1)

    def run_wave(self, seeds):
        """Clusters with these seeds at once; the steps that were compared."""
        with Lab(sum(map(size_of, seeds))) as lab:
            clusters, hosts = [], iter(range(lab.count))
            try:
                for seed in seeds:
                    clusters.append(Cluster(lab, list(itertools.islice(hosts, size_of(seed))), seed))
                self.wait("the first steps", clusters, lambda c: c.steps() >= 2 * len(c.hosts), BEGIN_S)
                begun = time.monotonic()
                plan = sorted(((event, c) for c in clusters for event in c.schedule()), key=lambda e: e[0][0])
                for event, c in plan:
                    time.sleep(max(0.0, begun + event[0] - time.monotonic()))
                    c.do(event)
                self.wait("the end", clusters, lambda c: all(p.poll() is not None for p in c.running.values()), END_S)
                return sum(c.check(self) for c in clusters)
            finally:
                for c in clusters:
                    c.close()

    def test_schedules(self):
        first = int(os.environ.get("HEARTH_TEST_SEED", 1))
        seeds, steps = range(first, first + repeat_count(20, 200)), 0
        for wave in waves(seeds):
            begun = time.monotonic()
            steps += self.run_wave(wave)
            print(f"seeds {wave[0]} to {wave[-1]}: {time.monotonic() - begun:.1f} s", flush=True)
        print(f"figure: {len(seeds)} schedules, {steps} steps compared", flush=True)
