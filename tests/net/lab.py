#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Hosts made of network namespaces, joined by hearth-switch or by veth and a bridge. A module, and a small command.

    with Lab(4, rate="1g", delay="10ms") as lab:
        process = lab.popen(0, ["program"])
        lab.switch("partition 0|1,2,3")

Host i is port i of the switch and has the addresses 10.77.0.(i+1) and fd77::(i+1). Everything is gone when the block
is left, however that happens; what a killed run left behind is removed by the next. Not for use by several threads.
"""

import argparse
import atexit
import contextlib
import ctypes
import itertools
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
BINARY = Path(os.environ.get("HEARTH_BINARY_DIR", HERE.parents[1] / "build"))
SWITCH = Path(os.environ.get("HEARTH_SWITCH", BINARY / "hearth-switch"))
PROBE = HERE / "probe.py"
PREFIX = "hearth"
DEVICE = "eth0"
HOSTS_MAX = 32
START_S, END_S, CONTROL_S = 30, 20, 30  # how long to wait for the switch, for processes to end, for an answer
TBF_LIMIT = 2_000_000  # bytes that wait in a host before it drops


class Unavailable(Exception):
    """This kernel or user cannot make such a network."""


def sh(*command, text=None):
    """Runs a command that must succeed."""
    done = subprocess.run([str(c) for c in command], input=text, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, command))}: {done.stdout.strip() or done.returncode}")
    return done.stdout


def bits(rate):
    """`100m` as bits per second, as the switch reads it."""
    match = re.fullmatch(r"(\d+(?:\.\d*)?)([kmg]?)(?:bit)?", str(rate))
    if not match:
        raise ValueError(f"rate {rate!r}: say it like 100m")
    return round(float(match[1]) * {"": 1, "k": 10**3, "m": 10**6, "g": 10**9}[match[2]])


def unavailable(mode="switch"):
    """None, or why there can be no lab here."""
    if not sys.platform.startswith("linux"):
        return "network namespaces are a thing of Linux"
    if os.geteuid():
        return "network namespaces need root"
    for tool in ("ip", "tc"):
        if not shutil.which(tool):
            return f"{tool} is missing: install iproute2"
    if mode == "switch" and not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        return "/dev/net/tun cannot be opened"
    if mode == "switch" and not os.access(SWITCH, os.X_OK):
        return f"{SWITCH} is not built"
    name = f"{PREFIX}-{os.getpid()}-try"
    done = subprocess.run(["ip", "netns", "add", name], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    subprocess.run(["ip", "netns", "del", name], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return f"ip netns add: {done.stdout.strip()}" if done.returncode else None


def sweep():
    """Removes namespaces of runs that are dead."""
    for name in os.listdir("/run/netns") if os.path.isdir("/run/netns") else ():
        match = re.fullmatch(PREFIX + r"-(\d+)-.*", name)
        if match and not os.path.exists(f"/proc/{match[1]}"):
            remove_space(name)


def kill_inside(name):
    """Ends what runs in a namespace."""
    pids = subprocess.run(["ip", "netns", "pids", name], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    for pid in pids.stdout.split():
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)


def remove_space(name):
    kill_inside(name)
    subprocess.run(["ip", "netns", "del", name], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def die_with_parent():
    """In a child: be killed when the parent thread ends, whatever ends it."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


LABS = []  # that are open
SERIAL = itertools.count()


def close_all():
    for lab in list(LABS):
        lab.close()


def on_signal(number, _frame):
    close_all()
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


class Lab:
    def __init__(self, count, rate=None, delay=None, mode="switch", seed=1, commands=(), options=()):
        """Hosts of one rate (`1g`), one-way delay (`10ms`); commands are lines for the switch, options its own.
        With mode `veth` there is no switch: veth, a bridge, tbf at both ends of each link, and no delay."""
        if not 1 <= count <= HOSTS_MAX:
            raise ValueError(f"{count} hosts: 1 to {HOSTS_MAX} are possible")
        if mode not in ("switch", "veth") or (mode == "veth" and (delay or commands or options)):
            raise ValueError("mode is switch, or veth without delay, commands and options")
        reason = unavailable(mode)
        if reason:
            raise Unavailable(reason)
        self.count, self.mode = count, mode
        stem = f"{PREFIX}-{os.getpid()}-{next(SERIAL)}"
        self.spaces = [f"{stem}-{i}" for i in range(count)]
        self.centre = f"{stem}-sw"
        self.directory = None
        self.children, self.engine, self.channel = [], None, None
        if not LABS:
            atexit.register(close_all)
            for number in (signal.SIGTERM, signal.SIGHUP):  # SIGINT is an exception in Python and leaves the block
                if signal.getsignal(number) == signal.SIG_DFL:
                    signal.signal(number, on_signal)
        LABS.append(self)
        try:
            sweep()
            self.directory = tempfile.mkdtemp(prefix=f"{PREFIX}-lab-")
            for space in self.spaces:
                sh("ip", "netns", "add", space)
            if mode == "switch":
                self._start_switch(rate, delay, seed, commands, options)
            else:
                self._make_veth(rate)
            for i in range(count):
                self.address_all(i)
            if rate and mode == "switch":
                for i in range(count):
                    self._press(i, bits(rate))
        except BaseException:
            self.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    # ---- making ----

    def _start_switch(self, rate, delay, seed, commands, options):
        self.path = os.path.join(self.directory, "switch")
        command = [SWITCH, "-s", self.path, "-S", seed, "-d", DEVICE, *options]
        first = (f" rate {rate}" if rate else "") + (f" delay {delay}" if delay else "")
        for line in ([f"set all{first}"] if first else []) + list(commands):
            command += ["-c", line]
        self.engine = subprocess.Popen([str(c) for c in [*command, *self.spaces]], stdin=subprocess.DEVNULL,
                                       stdout=subprocess.PIPE, text=True, preexec_fn=die_with_parent)
        if self.engine.stdout.readline() != "ready\n":
            raise RuntimeError("hearth-switch did not start")
        self.channel = socket.socket(socket.AF_UNIX)
        self.channel.settimeout(CONTROL_S)
        self.channel.connect(self.path)
        self.answers = self.channel.makefile("r")

    def _make_veth(self, rate):
        sh("ip", "netns", "add", self.centre)
        sh("ip", "-n", self.centre, "-batch", "-", text="link add br0 type bridge\nlink set br0 up\n")
        for i, space in enumerate(self.spaces):
            sh("ip", "-n", self.centre, "link", "add", f"p{i}", "type", "veth", "peer", "name", DEVICE, "netns", space)
            sh("ip", "-n", self.centre, "-batch", "-", text=f"link set p{i} master br0\nlink set p{i} up\n")
            if rate:
                self._shape_veth(i, rate, rate)

    def _shape_veth(self, host, up, down):
        for where, device, rate in ((self.spaces[host], DEVICE, up), (self.centre, f"p{host}", down)):
            sh("tc", "-n", where, "qdisc", "replace", "dev", device, "root", "tbf", "rate", f"{bits(rate)}bit",
               "burst", 131072, "limit", TBF_LIMIT)

    @staticmethod
    def mac(host):
        return f"02:00:0a:4d:00:{host + 1:02x}"

    def address_all(self, host):
        """Addresses, and the neighbours' by table: a lost ARP reply would be a second's wait that no test is about."""
        lines = [f"link set lo up", f"link set {DEVICE} address {self.mac(host)} addrgenmode none",
                 f"link set {DEVICE} up", f"addr replace {self.address(host)}/24 dev {DEVICE}"]
        six = os.path.exists("/proc/net/if_inet6")
        if six:
            lines.append(f"addr replace {self.address6(host)}/64 dev {DEVICE} nodad")
        for other in (i for i in range(self.count) if i != host):
            for address in [self.address(other)] + [self.address6(other)] * six:
                lines.append(f"neigh replace {address} lladdr {self.mac(other)} nud permanent dev {DEVICE}")
        sh("ip", "-n", self.spaces[host], "-batch", "-", text="\n".join(lines) + "\n")

    def _press(self, host, rate):
        """TAP devices take whatever the host sends, so its TCP would queue without end and never notice. A tbf of the
        same rate (per 1514 bytes the wire carries 1538) makes it wait as before a real card."""
        if rate == 0:
            subprocess.run(["tc", "-n", self.spaces[host], "qdisc", "del", "dev", DEVICE, "root"],
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            return
        burst = max(131072, rate // 8 // 2000)
        sh("tc", "-n", self.spaces[host], "qdisc", "replace", "dev", DEVICE, "root", "tbf", "rate",
           f"{rate * 1514 // 1538}bit", "burst", burst, "limit", TBF_LIMIT)

    # ---- using ----

    @staticmethod
    def address(host):
        return f"10.77.0.{host + 1}"

    @staticmethod
    def address6(host):
        return f"fd77::{host + 1:x}"

    def inside(self, host, command):
        """The command that runs a command in a host."""
        return ["ip", "netns", "exec", self.spaces[host], *map(str, command)]

    def popen(self, host, command, **more):
        """subprocess.Popen in a host; killed with the lab."""
        child = subprocess.Popen(self.inside(host, command), preexec_fn=die_with_parent, **more)
        self.children = [c for c in self.children if c.poll() is None] + [child]
        return child

    def run(self, host, command, timeout=60):
        """The output of a command that must succeed."""
        with self.popen(host, command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                        text=True) as child:
            try:
                out, errors = child.communicate(timeout=timeout)
            except BaseException:
                child.kill()
                raise
        if child.returncode:
            raise RuntimeError(f"host {host}: {' '.join(map(str, command))}: exit status {child.returncode}\n{errors}")
        return out

    def switch(self, line):
        """Sends a control line; what follows `ok`. An error is raised."""
        self.channel.sendall(line.encode() + b"\n")
        answer = self.answers.readline().rstrip("\n")
        if not re.match(r"ok( |$)", answer):
            raise RuntimeError(f"switch: {line}: {answer or 'no answer'}")
        return answer[3:]

    def stats(self):
        """The counters of the switch."""
        return json.loads(self.switch("stats"))

    def rate(self, host, up, down=None):
        """Sets the rates of a host (`100m`; with the switch also `none`), on the way and in the host."""
        if self.mode == "veth":
            self._shape_veth(host, up, down or up)
            return
        self.switch(f"set {host} up {up} down {down or up}")
        self._press(host, 0 if up == "none" else bits(up))

    def ping(self, source, target, count=20, interval_s=0.05):
        """Round trips in ms, as the kernel's ICMP answers them; those that were lost are missing."""
        return json.loads(self.run(source, [sys.executable, "-B", PROBE, "ping", self.address(target), count, interval_s]))

    def clear(self):
        """Ends all that runs in the hosts; the network stays."""
        for space in self.spaces:
            kill_inside(space)
        for child in self.children:
            child.kill()
            child.wait()
        self.children = []

    def close(self):
        """Removes all of it. May be called again."""
        if self in LABS:
            LABS.remove(self)
        for child in self.children:
            with contextlib.suppress(OSError):
                child.kill()
        if self.engine:
            self.engine.terminate()
            try:
                self.engine.wait(END_S)
            except subprocess.TimeoutExpired:
                self.engine.kill()
                self.engine.wait()
            self.engine.stdout.close()
        if self.channel:
            self.channel.close()
        for child in self.children:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(END_S)
        for space in [*self.spaces, self.centre]:
            if os.path.exists(f"/run/netns/{space}"):
                remove_space(space)
        if self.directory:
            shutil.rmtree(self.directory, ignore_errors=True)
        self.children, self.engine, self.channel, self.directory = [], None, None, None


def main():
    parser = argparse.ArgumentParser(description="Runs a command in each of N hosts joined by a network.",
                                     epilog="Each command finds its host's number in LAB_HOST, their count in LAB_HOSTS.")
    parser.add_argument("-n", "--hosts", type=int, default=2, help="how many (2)")
    parser.add_argument("-r", "--rate", help="of each host's link, as in 1g")
    parser.add_argument("-d", "--delay", help="one way, as in 10ms")
    parser.add_argument("-m", "--mode", choices=("switch", "veth"), default="switch")
    parser.add_argument("-s", "--seed", type=int, default=1)
    parser.add_argument("-c", "--command", action="append", default=[], help="a control line of the switch")
    parser.add_argument("program", nargs=argparse.REMAINDER, help="-- program and its arguments")
    args = parser.parse_args()
    program = args.program[1:] if args.program[:1] == ["--"] else args.program
    if not program:
        parser.error("say what to run, after --")
    try:
        with Lab(args.hosts, args.rate, args.delay, args.mode, args.seed, args.command) as lab:
            children = [lab.popen(i, program, env={**os.environ, "LAB_HOST": str(i), "LAB_HOSTS": str(args.hosts)})
                        for i in range(args.hosts)]
            return max(child.wait() & 255 for child in children)
    except Unavailable as reason:
        print(f"SKIP: {reason}")
        return 77
    except (ValueError, RuntimeError) as problem:
        print(f"lab: {problem}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
