# SPDX-License-Identifier: Apache-2.0
"""Hosts on which `hearth up` runs, each with its own name, key and config folder. For tests.

    with Lab(4) as lab:
        home = Hosts(lab)
        home.up_all()
        view = home.wait_view()
        home.kill(view.leader)
"""

import collections
import contextlib
import json
import os
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from lab import BINARY, DEVICE, sh
from places import HEARTH

PROGRAMS = HEARTH, BINARY / "hearth-mdns"
DATA = Path("/usr/share/datasets/fashion-mnist")
VIEW_S = 60  # for an agreed view: a safety net, the figures are what counts
POLL_S = 0.05
COMMAND_S = 120
END_S = 30
SOAK = "HEARTH_TEST_SOAK" in os.environ
LOG_TAIL = 40  # lines that are shown of each host when something failed


def repeat_count(usual, soak):
    """How often: HEARTH_TEST_REPEAT, or the full count in a soak, or the usual one."""
    return int(os.environ.get("HEARTH_TEST_REPEAT", soak if SOAK else usual))


def seeds(usual, soak):
    """The seeds of a repeated test; HEARTH_TEST_SEED is the first."""
    first = int(os.environ.get("HEARTH_TEST_SEED", 1))
    return range(first, first + repeat_count(usual, soak))


@contextlib.contextmanager
def replayable(test, seed):
    """A source of chance for this seed; when the test fails, it tells how to run it again."""
    try:
        yield random.Random(f"{test.id()} {seed}")
    except BaseException:
        print(f"replay: HEARTH_TEST_SEED={seed} HEARTH_TEST_REPEAT=1 python3 {' '.join(sys.argv[:2])} "
              f"{test.id().partition('.')[2]}", flush=True)
        raise


class Figures:
    """Seconds of many runs, printed as one line for each name at the end."""

    def __init__(self):
        self.lists = collections.defaultdict(list)

    def add(self, name, seconds):
        self.lists[name].append(seconds)

    def show(self):
        for name, values in self.lists.items():
            print(f"figure: {name} median={statistics.median(values):.2f} s max={max(values):.2f} s n={len(values)}",
                  flush=True)
        self.lists.clear()


@dataclass
class View:
    """What all hosts agree on. Hosts are numbers of the lab."""
    instance: str
    epoch: int
    term: int
    leader: int
    order: list
    ids: dict  # of each host: node id, and the instance of the process


class Hosts:
    """The machines of one cluster. `hosts`: which of the lab's are in it."""

    def __init__(self, lab, hosts=None, name="home"):
        self.lab, self.name = lab, name
        self.hosts = list(range(lab.count) if hosts is None else hosts)
        self.running, self.logs, self.readers = {}, {h: [] for h in self.hosts}, []
        for host in self.hosts:  # what an earlier hosts left
            shutil.rmtree(self.config(host), ignore_errors=True)
        text = self.command(self.hosts[0], "init", name)
        self.token = re.search(r"hearth1-[A-Za-z0-9._-]+-[0-9a-z]+", text)[0]
        for host in self.hosts[1:]:
            self.join(host)

    def join(self, host):
        """Gives a host the token."""
        if host not in self.hosts:
            self.hosts.append(host)
        self.logs.setdefault(host, [])
        self.command(host, "join", self.token)

    # ---- commands ----

    def host_name(self, host):
        return f"{self.name}{host}"

    def config(self, host):
        return Path(self.lab.directory) / self.host_name(host)

    def environment(self, host, **more):
        mine = {key: value for key, value in os.environ.items() if not key.startswith("HEARTH_")}
        return {**mine, "XDG_CONFIG_HOME": str(self.config(host)), "HOME": self.lab.directory,
                "HEARTH_LOG_LEVEL": "info", **{key: str(value) for key, value in more.items()}}

    def line(self, host, *args, program=HEARTH):
        """The command of a host: as root of it, and with its own name."""
        return ["unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', self.host_name(host), program, *args]

    def try_command(self, host, *args, timeout=COMMAND_S, **environment):
        """Exit code, output and errors of a hearth command."""
        with self.lab.popen(host, self.line(host, *args), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True, env=self.environment(host, **environment)) as child:
            try:
                out, errors = child.communicate(timeout=timeout)
            except BaseException:
                child.kill()
                raise
        return child.returncode, out, errors

    def command(self, host, *args, **more):
        """The output of a hearth command that must succeed."""
        code, out, errors = self.try_command(host, *args, **more)
        if code:
            raise AssertionError(f"{self.host_name(host)}: hearth {' '.join(map(str, args))}: exit code {code}\n{out}"
                                 f"{errors}\n{self.told()}")
        return out

    # ---- hearth up ----

    def _read(self, host, file):
        with file:
            for line in file:
                self.logs[host].append((time.monotonic(), line.rstrip("\n")))

    def up(self, host, *args, **environment):
        """Starts `hearth up`; its lines are kept."""
        return self.start(host, HEARTH, "up", *args, **environment)

    def start(self, host, program, *args, **environment):
        """Starts a program that is the host's member, instead of `hearth up`."""
        child = self.lab.popen(host, self.line(host, *args, program=program), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True, errors="replace",
                               env=self.environment(host, **environment))
        thread = threading.Thread(target=self._read, args=(host, child.stdout), daemon=True)
        thread.start()
        self.readers.append(thread)
        self.running[host] = child
        return child

    def up_all(self, *args, chance=None, pause_s=1.0, **environment):
        """Starts it on all hosts, in the order and with the pauses of chance; when the last was started."""
        order = list(self.hosts)
        if chance:
            chance.shuffle(order)
        for i, host in enumerate(order):
            if chance and i:
                time.sleep(chance.uniform(0, pause_s))
            self.up(host, *args, **environment)
        return time.monotonic()

    def leave(self, host):
        """As Ctrl-C; the exit code."""
        child = self.running.pop(host)
        child.send_signal(signal.SIGINT)
        return child.wait(END_S)

    def kill(self, host):
        child = self.running.pop(host)
        child.kill()
        child.wait(END_S)

    def freeze(self, host):
        self.running[host].send_signal(signal.SIGSTOP)

    def thaw(self, host):
        self.running[host].send_signal(signal.SIGCONT)

    def cut(self, host):
        """Nothing goes in or out; the host does not notice."""
        self.lab.switch(f"freeze {host}")

    def restore(self, host):
        self.lab.switch(f"thaw {host}")

    def pull(self, host):
        """Its device goes down, and loses what goes with that: global IPv6 addresses."""
        sh("ip", "-n", self.lab.spaces[host], "link", "set", DEVICE, "down")

    def plug(self, host):
        self.lab.address_all(host)

    def change_address(self, host, old, new):
        sh("ip", "-n", self.lab.spaces[host], "-batch", "-",
           text=f"addr del {old}/24 dev {DEVICE}\naddr add {new}/24 dev {DEVICE}\n")

    def end_one(self, host):
        """Ends it, if it runs."""
        if host in self.running:
            self.kill(host)

    def end(self):
        """Ends all; they say goodbye."""
        for host in list(self.running):
            self.running[host].send_signal(signal.SIGCONT)
            self.running[host].send_signal(signal.SIGINT)
        for host in list(self.running):
            child = self.running.pop(host)
            try:
                child.wait(END_S)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
        for thread in self.readers:
            thread.join(END_S)
        self.readers = []

    # ---- what is so ----

    def status(self, host):
        """What `hearth status --json` says; None: no node runs there, or none answers yet."""
        code, out, _ = self.try_command(host, "status", "--json")
        return json.loads(out) if code == 0 else None

    def told(self):
        """The last lines of all hosts."""
        texts = []
        for host in self.hosts:
            texts += [f"--- {self.host_name(host)}"] + [f"{at:.2f} {line}" for at, line in self.logs[host][-LOG_TAIL:]]
        return "\n".join(texts)

    def host_of(self, name):
        return next((h for h in self.hosts if self.host_name(h) == name), None)

    def view_of(self, status):
        """A host's view, or None while it has none."""
        view = status and status["view"]
        if not view or view["state"] != "member":
            return None
        members = view["members"]
        return View(view["instance"], view["epoch"], view["term"], self.host_of(members[view["leader"]]["name"]),
                    [self.host_of(m["name"]) for m in members],
                    {self.host_of(m["name"]): (m["id"], m["instance"]) for m in members})

    def wait_view(self, hosts=None, timeout=VIEW_S, differs=None):
        """Waits until all these are members of one view that has exactly them (and is not `differs`); the view."""
        hosts = sorted(self.running if hosts is None else hosts)
        deadline, last = time.monotonic() + timeout, {}
        while True:
            agreed = None
            for host in hosts:
                last[host] = self.status(host)
                view = self.view_of(last[host])
                if not view or sorted(view.order, key=str) != sorted(hosts, key=str) or view == differs or \
                        (agreed and view != agreed):
                    break
                agreed = view
            else:
                return agreed
            if time.monotonic() > deadline:
                brief = {h: s and {k: v for k, v in s["view"].items() if k != "members"} |
                         {"members": [m["name"] for m in s["view"]["members"]]} for h, s in last.items()}
                raise AssertionError(f"{hosts}: no agreed view in {timeout} s: {brief}\n{self.told()}")
            time.sleep(POLL_S)

    def wait_for(self, what, condition, timeout=VIEW_S):
        """Waits until the condition gives something."""
        deadline = time.monotonic() + timeout
        while not (result := condition()):
            if time.monotonic() > deadline:
                raise AssertionError(f"{what}: not within {timeout} s\n{self.told()}")
            time.sleep(POLL_S)
        return result

    def logged(self, host, words, since=0.0):
        """When the host first said so, after that time; None: it did not."""
        return next((at for at, line in list(self.logs[host]) if at >= since and re.search(words, line)), None)
