# SPDX-License-Identifier: Apache-2.0
"""Members as processes, with secrets and keys of their own, and strangers who attack them. For tests."""

import hashlib
import hmac
import json
import os
import re
import shutil
import subprocess
import tempfile
import threading
import time
from pathlib import Path

from lab import BINARY, die_with_parent
from places import HEARTH

PROGRAMS = HEARTH, MEMBER, STRANGER = HEARTH, BINARY / "hearth-member", BINARY / "hearth-stranger"
SECONDS = 60  # against hanging
SOAK = "HEARTH_TEST_SOAK" in os.environ
BASE32 = "0123456789abcdefghjkmnpqrstvwxyz"


# ---- secrets, as docs/wire.md and src/security/secret.c have them ----

class Secret:
    """A cluster's secret, made here so that tests know every form of it."""

    def __init__(self, name="test"):
        self.name, self.bytes = name, os.urandom(32)
        check = hashlib.sha3_256(b"hearth token 1" + name.encode() + b"\0" + self.bytes).digest()[:4]
        bits = "".join(f"{byte:08b}" for byte in self.bytes + check)
        bits += "0" * (-len(bits) % 5)
        self.code = "".join(BASE32[int(bits[i:i + 5], 2)] for i in range(0, len(bits), 5))
        self.token = f"hearth1-{name}-{self.code}"
        self.namespace = hashlib.sha3_256(b"hearth namespace 1" + self.bytes).digest()[:16]

    @classmethod
    def of(cls, token):
        """Of a token that was made elsewhere."""
        name, code = token.removeprefix("hearth1-").rsplit("-", 1)
        bits = "".join(f"{BASE32.index(c):05b}" for c in code)[:36 * 8]
        secret = cls(name)
        secret.bytes = int(bits, 2).to_bytes(36, "big")[:32]
        secret.namespace = hashlib.sha3_256(b"hearth namespace 1" + secret.bytes).digest()[:16]
        return secret

    def keys(self):
        """What is derived from it and never sent."""
        extract = hmac.digest(b"hearth 1", self.bytes, "sha256")
        return [hmac.digest(extract, info + b"\1", "sha256") for info in (b"knock", b"dialler", b"listener")]

    def store(self, path):
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
            file.write(self.token + "\n")
        return str(path)


def key_seed(path):
    """The private part of a node's key."""
    return bytes.fromhex(Path(path).read_text(encoding="ascii").split()[2])


# ---- processes ----

class Process:
    """A process whose lines are read as they come: JSON from its output, the log from its standard error."""

    def __init__(self, command, lab=None, host=None, **more):
        self.name = " ".join(str(c) for c in command)
        more.update(stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace")
        command = [str(c) for c in command]
        self.child = lab.popen(host, command, **more) if host is not None else \
            subprocess.Popen(command, preexec_fn=die_with_parent, **more)
        self.lines, self.log, self.news = [], [], threading.Condition()
        self.threads = [threading.Thread(target=self._read, args=(self.child.stdout, self.lines, json.loads)),
                        threading.Thread(target=self._read, args=(self.child.stderr, self.log, str.rstrip))]
        for thread in self.threads:
            thread.start()

    def _read(self, file, target, parse):
        for line in file:
            with self.news:
                target.append(parse(line))
                self.news.notify_all()
        with self.news:
            self.news.notify_all()

    def wait_for(self, found, what, seconds=SECONDS):
        """Waits until `found` gives something true, or the process ends."""
        deadline = time.monotonic() + seconds
        with self.news:
            while not found():
                ended = self.child.poll() is not None and not any(t.is_alive() for t in self.threads)
                if ended or time.monotonic() > deadline:
                    raise AssertionError(f"{self.name}: no {what}\n{self.told()}")
                self.news.wait(0.1)
            return found()

    def heard(self, what, after=0):
        """The first line of that kind, from a place on; None: there is none."""
        return next((line for line in self.lines[after:] if line["what"] == what), None)

    def hear(self, what, after=0, seconds=SECONDS):
        return self.wait_for(lambda: self.heard(what, after), what, seconds)

    def logged(self, pattern):
        return next((line for line in self.log if re.search(pattern, line)), None)

    def hear_log(self, pattern, seconds=SECONDS):
        return self.wait_for(lambda: self.logged(pattern), f"line of the log like {pattern}", seconds)

    def told(self):
        return "\n".join([*map(str, self.lines[-5:]), *self.log[-30:]])

    def stop(self):
        """Tells a member to stop."""
        if not self.child.stdin.closed:
            self.child.stdin.close()

    def end(self, seconds=SECONDS):
        """Its exit status, when it has ended by itself."""
        status = self.child.wait(seconds)
        for thread in self.threads:
            thread.join(seconds)
        return status

    def kill(self):
        self.stop()
        if self.child.poll() is None:
            self.child.kill()
        self.end()
        self.child.stdout.close()
        self.child.stderr.close()


class Fixture:
    """Members and strangers of one test, with a folder for their files; all are gone when it is closed."""

    def __init__(self, lab=None):
        self.lab, self.processes = lab, []
        self.folder = Path(tempfile.mkdtemp(prefix="hearth-cluster-"))
        (self.folder / "home").mkdir(mode=0o700)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        for process in self.processes:
            process.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def file(self, name):
        return str(self.folder / name)

    def environment(self, **more):
        """Nothing of the user who runs the test: no HEARTH_ variable, no home with keys in it."""
        environment = {k: v for k, v in os.environ.items() if not re.match("HEARTH_(?!TEST_)|XDG_", k)}
        environment.update(HOME=str(self.folder / "home"), HEARTH_LOG_LEVEL="debug", HEARTH_TRANSPORT="tcp",
                           HEARTH_OPEN_TIMEOUT_MS="30000", HEARTH_OP_TIMEOUT_MS="30000")
        if self.lab is None:
            environment.update(HEARTH_PORT="0")  # any: others on this machine may have all of the usual ones
        environment.update({k: str(v) for k, v in more.items() if v is not None})
        return environment

    def start(self, command, host=None, pass_fds=(), **environment):
        more = {"pass_fds": pass_fds} if pass_fds else {}
        process = Process(command, self.lab, host, env=self.environment(**environment), **more)
        self.processes.append(process)
        return process

    def member(self, rank, rendezvous, size=2, host=None, count=1000, marker=None, pass_fds=(), **settings):
        """A member, with a key of its own unless HEARTH_KEY_FILE says another."""
        settings.setdefault("HEARTH_KEY_FILE", self.file(f"key-{rank}"))
        command = [MEMBER, count] + ([marker] if marker else [])
        return self.start(command, host, pass_fds, HEARTH_RANK=rank, HEARTH_WORLD_SIZE=size,
                          HEARTH_RENDEZVOUS=rendezvous, **settings)

    def without(self, transport):
        """None, or why members cannot use this transport."""
        alone = self.member(0, None, size=1, HEARTH_TRANSPORT=transport)
        alone.stop()
        return None if alone.end() == 0 else f"there is no {transport}: {alone.told()}"

    def stranger(self, *arguments, host=None):
        # A crowd's own machines would not take time from the members'. A single one must come in time himself.
        crowd = ["nice", "-n", "19"] if arguments[0] in ("flood", "garbage-udp") else []
        return self.start([*crowd, STRANGER, *arguments], host)

    def attack(self, *arguments, host=None, seconds=SECONDS):
        """What a stranger saw who goes home by himself."""
        stranger = self.stranger(*arguments, host=host)
        if stranger.end(seconds) != 0:
            raise AssertionError(f"{stranger.name} could not attack\n{stranger.told()}")
        return stranger.lines

    def hearth(self, *arguments, status=0, **environment):
        """The output of the command."""
        done = subprocess.run([str(HEARTH), *map(str, arguments)], env=self.environment(**environment), text=True,
                              stdin=subprocess.DEVNULL, capture_output=True, timeout=SECONDS)
        if done.returncode != status:
            raise AssertionError(f"hearth {arguments[0]}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout

    def node_id(self, key_file):
        return json.loads(self.hearth("id", "--json", "--key-file", key_file))["results"][0]["node_id"]


def all_well(test, members):
    """All are open, have added, and end as told."""
    for member in members:
        member.hear("open")
        member.hear("sums")
    for member in members:
        member.stop()
    for member in members:
        test.assertEqual(member.end(), 0, member.told())
        test.assertIsNone(member.heard("failed"), member.told())
        test.assertIsNotNone(member.heard("done"), member.told())


def memory_kb(pid):
    """Resident memory now, and the most it ever was."""
    text = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return tuple(int(re.search(rf"^{name}:\s+(\d+) kB", text, re.M)[1]) for name in ("VmRSS", "VmHWM"))
