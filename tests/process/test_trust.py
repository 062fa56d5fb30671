# SPDX-License-Identifier: Apache-2.0
"""Who gets in and who does not, between real processes on one machine: docs/security.md, promise by promise. Whoever is
turned away is in the log with address and reason, and those who belong together join as if nobody had come."""

import os
import re
import stat
import sys
import time
import unittest

from cluster_fixture import PROGRAMS, SECONDS, Fixture, Secret, all_well, key_seed
from places import require, unbuilt
from ports import free_port

SHORT = 1500  # ms to open, for those who cannot
LONGER = 4000  # for those who meet somebody else on the way, and must have come so far
REVOKED_S = 40  # a key that is revoked has lost its links by then; on an idle machine after half a second

LOST = ("HEARTH_PEER_LOST", "HEARTH_GROUP_BROKEN")  # inside of a sum; between two of them
REFUSE = "484d0245"  # a message of the meeting, in the plain

require(None if sys.platform.startswith("linux") else "the programs of these tests are made for Linux")
require(unbuilt(*PROGRAMS))


class Place(unittest.TestCase):
    """A rendezvous on this machine, a secret, and who comes."""

    def setUp(self):
        self.fixture = Fixture()
        self.addCleanup(self.fixture.close)
        self.port = free_port()
        self.secret = Secret()
        self.secret_file = self.secret.store(self.fixture.file("secret"))
        self.other_file = Secret("other").store(self.fixture.file("other"))

    def member(self, rank, port=None, secret_file=None, **settings):
        if not {"HEARTH_SECRET", "HEARTH_SECRET_FD", "HEARTH_PLAIN"} & set(settings):
            settings["HEARTH_SECRET_FILE"] = secret_file or self.secret_file
        return self.fixture.member(rank, f"127.0.0.1:{port or self.port}", **settings)

    def waiting(self, rank=0, **settings):
        """A member that serves the rendezvous and listens by now."""
        member = self.member(rank, **settings)
        deadline = time.monotonic() + SECONDS
        while self.fixture.attack("flood", "127.0.0.1", self.port, 1, "close")[0]["connected"] == 0:
            self.assertLess(time.monotonic(), deadline, member.told())
            self.assertIsNone(member.child.poll(), member.told())
        return member

    def not_open(self, member, *words):
        """It could not open, and says why."""
        self.assertNotEqual(member.end(), 0, member.told())
        text = member.hear("not open")["text"]
        for word in words:
            self.assertRegex(text, word)
        return text

    def sent_away(self, member, reason):
        """The log says who it was and why."""
        line = member.hear_log(rf"HEARTH-STRANGER .*{reason}")
        self.assertRegex(line, r"127\.0\.0\.1:\d+")
        return line


class Secrets(Place):
    def test_right_one(self):
        members = [self.member(rank) for rank in range(2)]
        all_well(self, members)
        for member in members:
            self.assertNotIn(self.secret.token, "\n".join(member.log))
            self.assertNotIn(self.secret.code, str(member.lines))
            self.assertRegex(member.heard("open")["links"], "tls")

    def test_wrong_one(self):
        first = self.waiting()
        stranger = self.member(1, secret_file=self.other_file, HEARTH_OPEN_TIMEOUT_MS=SHORT)
        self.not_open(stranger, "secret")
        self.sent_away(first, "secret")
        all_well(self, [first, self.member(1)])

    def test_none(self):
        member = self.fixture.member(0, f"127.0.0.1:{self.port}")
        text = self.not_open(member, "hearth init", "hearth join TOKEN")
        self.assertRegex(text, "HEARTH_PLAIN")

    def test_ways_to_give_it(self):
        with open(self.secret_file, "rb") as file:
            members = [self.member(0, size=4, HEARTH_SECRET=self.secret.token),
                       self.member(1, size=4, HEARTH_SECRET=self.secret.bytes.hex()),
                       self.member(2, size=4, HEARTH_SECRET_FD=file.fileno(), pass_fds=[file.fileno()]),
                       self.member(3, size=4, secret_file=self.secret_file)]
            all_well(self, members)

    def test_stored_by_the_command(self):
        """init on one machine, join on the other: two homes."""
        homes = [self.fixture.folder / name for name in ("desk", "laptop")]
        for home in homes:
            home.mkdir()
        token = re.search(r"hearth1-\S+", self.fixture.hearth("init", "den", HOME=homes[0]))[0]
        self.fixture.hearth("join", token, HOME=homes[1])
        for home in homes:
            self.assertEqual(stat.S_IMODE((home / ".config/hearth/cluster").stat().st_mode), 0o600)
        members = [self.fixture.member(rank, f"127.0.0.1:{self.port}", HOME=homes[rank], HEARTH_KEY_FILE=None)
                   for rank in range(2)]
        all_well(self, members)
        for home in homes:
            self.assertEqual(stat.S_IMODE((home / ".config/hearth/node.key").stat().st_mode), 0o600)

    def test_two_clusters_never_mix(self):
        """On neighbouring ports, at the same time, with a member of each that went to the wrong address."""
        ports = [self.port, free_port()]
        files = [self.secret_file, self.other_file]
        firsts = [self.waiting(), self.member(0, ports[1], files[1], HEARTH_KEY_FILE=self.fixture.file("key-b0"))]
        lost = [self.member(1, ports[1 - i], files[i], HEARTH_KEY_FILE="fresh", HEARTH_OPEN_TIMEOUT_MS=SHORT)
                for i in range(2)]
        for member in lost:
            self.not_open(member, "secret")
        seconds = [self.member(1, ports[i], files[i], HEARTH_KEY_FILE="fresh") for i in range(2)]
        all_well(self, firsts + seconds)


class Keys(Place):
    def test_one_key_for_all(self):
        key = self.fixture.file("shared")
        members = [self.member(rank, size=3, HEARTH_KEY_FILE=key) for rank in range(3)]  # all make it at once
        all_well(self, members)
        self.assertEqual(len(key_seed(key)), 32)
        self.assertEqual(stat.S_IMODE(os.stat(key).st_mode), 0o600)
        self.assertEqual([name for name in os.listdir(self.fixture.folder) if name.startswith("shared")], ["shared"])

    def test_fresh(self):
        before = set(os.listdir(self.fixture.folder))
        all_well(self, [self.member(rank, HEARTH_KEY_FILE="fresh") for rank in range(2)])
        self.assertEqual(set(os.listdir(self.fixture.folder)), before)
        self.assertFalse((self.fixture.folder / "home/.config").exists())

    def test_readable_by_others(self):
        key = self.fixture.file("open-key")
        self.fixture.node_id(key)
        os.chmod(key, 0o644)
        self.not_open(self.member(0, HEARTH_KEY_FILE=key), "chmod", re.escape(key))

    def test_revoked_before(self):
        key = self.fixture.file("key-1")
        node = self.fixture.node_id(key)
        self.fixture.hearth("trust", "remove", node, "--secret-file", self.secret_file)
        # The list is the machine's: the revoked one has another, or it would not trust itself.
        secret = self.secret.store(self.fixture.file("secret-1"))
        first = self.waiting()
        self.not_open(self.member(1, secret_file=secret, HEARTH_OPEN_TIMEOUT_MS=SHORT), "revoked")
        self.sent_away(first, "revoked")
        all_well(self, [first, self.member(1, secret_file=secret, HEARTH_KEY_FILE="fresh")])

    def test_revoked_whatever_the_secret_came_from(self):
        """HEARTH_SECRET and HEARTH_SECRET_FD are bound by the list in the config folder too."""
        home = self.fixture.folder / "listed"
        (home / ".config/hearth").mkdir(parents=True)
        trust = home / ".config/hearth/cluster.trust"
        trust.write_text(f"revoke {self.fixture.node_id(self.fixture.file('key-1'))}\n")
        trust.chmod(0o600)
        with open(self.secret_file, "rb") as file:
            for way in (dict(HEARTH_SECRET=self.secret.token),
                        dict(HEARTH_SECRET_FD=file.fileno(), pass_fds=[file.fileno()])):
                self.port = free_port()
                first = self.waiting(HOME=home, **way)
                self.not_open(self.member(1, HEARTH_OPEN_TIMEOUT_MS=SHORT), "revoked")
                self.sent_away(first, "revoked")
                all_well(self, [first, self.member(1, HEARTH_KEY_FILE="fresh")])
            Secret("other").store(home / ".config/hearth/cluster")  # then it is the list of another cluster
            self.port = free_port()
            all_well(self, [self.member(0, HOME=home, HEARTH_SECRET=self.secret.token), self.member(1)])

    def test_list_of_who_may_come(self):
        keys = [self.fixture.file(f"key-{rank}") for rank in range(2)]
        for key in keys:
            self.fixture.hearth("trust", "add", self.fixture.node_id(key), "--secret-file", self.secret_file)
        secret = self.secret.store(self.fixture.file("secret-1"))
        first = self.waiting()
        self.not_open(self.member(1, secret_file=secret, HEARTH_KEY_FILE="fresh", HEARTH_OPEN_TIMEOUT_MS=SHORT), "list")
        self.sent_away(first, "list")
        all_well(self, [first, self.member(1, secret_file=secret)])

    def test_revoked_while_it_runs(self):
        secret = self.secret.store(self.fixture.file("secret-2"))
        members = [self.member(rank, size=3) for rank in range(2)] + [self.member(2, size=3, secret_file=secret)]
        for member in members:
            member.hear("sums")
        node = self.fixture.node_id(self.fixture.file("key-2"))
        begin = time.monotonic()
        self.fixture.hearth("trust", "remove", node, "--secret-file", self.secret_file)
        for member in members[:2]:
            failed = member.hear("failed", seconds=REVOKED_S)
            self.assertIn(failed["status"], LOST, failed)
            self.assertRegex(failed["text"], r"rank 2 .*lost")
            print(f"  rank {member.heard('open')['rank']} knew after {failed['at'] - begin:.2f} s", flush=True)
        put_out = members[2].hear("failed", seconds=REVOKED_S)
        for member in members:
            member.end()  # so that all of its log is here
        # One that hears it from the other first, as a loss, may have closed before it looked for itself.
        self.assertTrue(any("revoked" in member.heard("failed")["text"] for member in members[:2]))
        self.assertTrue(any(member.logged(r"HEARTH-EXPELLED rank 2 .*revoked") for member in members[:2]))
        self.assertIn(put_out["status"], LOST)
        self.assertRegex(put_out["text"], r"rank 2 .*lost.*revoked")


class Plain(Place):
    def test_against_secure(self):
        first = self.waiting()
        self.not_open(self.member(1, HEARTH_PLAIN=1, HEARTH_OPEN_TIMEOUT_MS=SHORT), "plain|encrypt|secure")
        self.sent_away(first, "TLS|plain")
        all_well(self, [first, self.member(1)])

    def test_secure_against_plain(self):
        first = self.waiting(HEARTH_PLAIN=1)
        self.not_open(self.member(1, HEARTH_OPEN_TIMEOUT_MS=SHORT), "plain|TLS")
        all_well(self, [first, self.member(1, HEARTH_PLAIN=1)])
        self.assertTrue(first.logged("HEARTH-PLAIN"))


class Attacks(Place):
    def refused_politely(self, saw):
        """A record of refusal inside of TLS, or nothing: never a proof, never more."""
        self.assertIn((saw["answer_kind"], saw["answer"] > 64), {(2, False), (-1, False)}, saw)

    def test_man_in_the_middle(self):
        first = self.waiting()
        port = free_port()
        middle = self.fixture.stranger("mitm", port, "127.0.0.1", self.port)
        self.not_open(self.member(1, port, HEARTH_OPEN_TIMEOUT_MS=LONGER))
        saw = middle.hear("mitm")
        print(f"  {saw}", flush=True)
        # He has come as far as he can: both ends speak TLS with him, and the proof that he passed on was wrong.
        self.assertTrue(saw["knock"])
        self.assertEqual((saw["dialler"], saw["listener"]), ("open", "open"))
        self.assertEqual((saw["up"], saw["answer_kind"], saw["reason"]), (64, 2, 1), saw)
        self.assertIn(saw["down"], (0, 64))
        self.sent_away(first, "proof")
        all_well(self, [first, self.member(1)])

    def redirected(self, doors, advertised):
        """Two members that meet as they should, but dial each other where somebody else listens: they do not join."""
        members = [self.member(rank, HEARTH_PORT=doors[rank], HEARTH_ADVERTISE=f"127.0.0.1:{advertised[rank]}",
                               HEARTH_OPEN_TIMEOUT_MS=LONGER) for rank in range(2)]
        return members, [self.not_open(member) for member in members]

    def test_man_in_the_middle_at_the_door(self):
        closed, middle, *doors = range(free_port(4), 65536)[:4]
        man = self.fixture.stranger("mitm", middle, "127.0.0.1", doors[1])
        members, _ = self.redirected(doors, [closed, middle])
        saw = man.hear("mitm")
        print(f"  {saw}", flush=True)
        self.assertEqual((saw["dialler"], saw["listener"], saw["up"]), ("open", "open", 64), saw)
        self.assertEqual((saw["answer_kind"], saw["reason"]), (2, 1), saw)
        self.sent_away(members[1], "proof")

    def test_led_to_oneself(self):
        """Rank 0 finds its own door where rank 1 should be: it has the secret, and is the wrong one."""
        closed, middle, *doors = range(free_port(4), 65536)[:4]
        self.fixture.stranger("record", middle, "127.0.0.1", doors[0], self.fixture.file("recorded")).hear("record")
        _, texts = self.redirected(doors, [closed, middle])
        self.assertRegex(texts[0], "another node listens there")

    def test_replayed(self):
        recorded = self.fixture.file("recorded")
        wire_port = free_port()
        wire = self.fixture.stranger("record", wire_port, "127.0.0.1", self.port, recorded)
        wire.hear("record")
        all_well(self, [self.waiting(), self.member(1, wire_port)])  # a wire that only listens disturbs nobody
        self.assertGreater(os.path.getsize(recorded), 500)
        first = self.waiting()
        (saw,) = self.fixture.attack("replay", "127.0.0.1", self.port, recorded)
        print(f"  {saw}", flush=True)
        self.assertTrue(saw["closed"] or saw["reset"], saw)
        self.assertLess(saw["bytes"], 4096)
        self.sent_away(first, ".")
        all_well(self, [first, self.member(1)])

    def test_others_at_the_rendezvous(self):
        """An old version of TLS, no TLS at all, a heard knock with a guessed proof, one who says to be another."""
        heard = [self.fixture.file(name) for name in ("heard", "heard too")]
        for knock in heard:
            self.fixture.attack("knock", self.secret_file, knock)
        first = self.waiting()
        for knock in ([], heard[:1]):
            (saw,) = self.fixture.attack("tls12", "127.0.0.1", self.port, *knock)
            self.assertFalse(saw["handshake"], saw)
        for saw in self.fixture.attack("plain", "127.0.0.1", self.port):
            self.assertTrue(saw["closed"] or saw["reset"], saw)
            self.assertTrue(saw["bytes"] == 0 or saw["head"].startswith(REFUSE), saw)
        (saw,) = self.fixture.attack("guess", "127.0.0.1", self.port, heard[1])
        self.assertTrue(saw["handshake"], saw)
        self.refused_politely(saw)
        (saw,) = self.fixture.attack("guess", "127.0.0.1", self.port, heard[1])  # and that was that
        self.assertFalse(saw["handshake"], saw)
        (saw,) = self.fixture.attack("claim", self.secret_file, "127.0.0.1", self.port)
        self.assertTrue(saw["proven"], saw)
        self.assertIn(saw["answer_kind"], (69, -1), f"it was welcome: {saw}")
        for reason in ("TLS", "proof", "handshake has proven", "repeats a knock"):
            self.sent_away(first, reason)
        self.assertIsNone(first.child.poll(), first.told())
        all_well(self, [first, self.member(1)])


# ---- what a core dump would hold ----

def dumped(pid):
    """Memory that a core dump takes: name and bytes of each mapping. Those that are left out are in the second list."""
    taken, left = [], []
    with open(f"/proc/{pid}/smaps", encoding="utf-8") as smaps, open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for line in smaps:
            head = re.match(r"([0-9a-f]+)-([0-9a-f]+) (\S+) \S+ \S+ \S+ *(.*)", line)
            if head:
                begin, end, mode, name = int(head[1], 16), int(head[2], 16), head[3], head[4]
            elif line.startswith("VmFlags:") and "r" in mode and not name.startswith("[v"):
                memory.seek(begin)
                (left if "dd" in line.split() else taken).append((name, memory.read(end - begin)))
    return taken, left


class Memory(Place):
    def test_core_dump(self):
        members = [self.member(rank) for rank in range(2)]
        for member in members:
            member.hear("sums")
        texts = {"secret": self.secret.bytes, "secret, hexadecimal": self.secret.bytes.hex().encode(),
                 "token": self.secret.code.encode()}
        texts.update({f"derived key {i}": key for i, key in enumerate(self.secret.keys())})
        for rank, member in enumerate(members):
            seed = key_seed(self.fixture.file(f"key-{rank}"))
            taken, left = dumped(member.heard("open")["pid"])
            for what, text in {**texts, "key": seed, "key, hexadecimal": seed.hex().encode()}.items():
                for piece in (text[:16], text[-16:]):
                    where = [name or "anonymous" for name, memory in taken if piece in memory]
                    self.assertEqual(where, [], f"rank {rank}: {what}")
            # The eye that looks can see: what is no secret is found, and the secret where it may be.
            self.assertTrue(any(self.secret_file.encode() in memory for _, memory in taken))
            self.assertTrue(any(self.secret.bytes in memory for _, memory in left))
            self.assertTrue(any(seed in memory for _, memory in left))
        all_well(self, members)
