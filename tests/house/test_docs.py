# SPDX-License-Identifier: Apache-2.0
"""The documents say what is so, where a script can see it: example, include table, limits, files that they name."""

import importlib.util
import re
import sys
import unittest

from house import public_constants, public_functions, public_structs, run
from places import SOURCE

spec = importlib.util.spec_from_file_location("check", SOURCE / "tools/check.py")
check = importlib.util.module_from_spec(spec)
spec.loader.exec_module(check)

README = (SOURCE / "README.md").read_text()
ARCHITECTURE = (SOURCE / "docs/architecture.md").read_text()
LIMITS_PAGE = (SOURCE / "docs/limits.md").read_text()
DOCUMENTS = [SOURCE / "README.md", SOURCE / "CONTRIBUTING.md", *sorted((SOURCE / "docs").glob("*.md"))]

# Row of the table of limits, where its number is defined, how.
LIMITS = (
    ("nodes of one process", "include/hearth.h", r"#define HEARTH_LOCAL_MAX (\d+)"),
    ("unauthenticated connections at listener or rendezvous", "src/connect/half_open.h",
     r"#define HALF_OPEN_PLACES +(\d+)"),
    ("refused connections at the rendezvous", "src/bootstrap/rendezvous.h", r"#define RENDEZVOUS_LEAVING +(\d+)"),
    ("costly handshakes at listener or rendezvous, per second", "src/security/admission.h",
     r"#define ADMISSION_PER_S +(\d+)"),
    ("the same, at once", "src/security/admission.h", r"#define ADMISSION_BURST +(\d+)"),
    ("more at once, for sources within their share", "src/security/admission.h",
     r"#define ADMISSION_RESERVE +(\d+)"),
    ("share of a source, per second", "src/security/admission.h", r"#define ADMISSION_SHARE_PER_S +(\d+)"),
    ("share of a source, at once", "src/security/admission.h", r"#define ADMISSION_SHARE_BURST +(\d+)"),
    ("unauthenticated sources in the log", "src/connect/admission_log.h", r"#define ADMISSION_LOG_SOURCES +(\d+)"),
    ("unauthenticated connections of a home cluster's listener", "src/connect/half_open.h",
     r"#define HALF_OPEN_PLACES +(\d+)"),
    ("connections of a node to others of its home cluster", "src/cluster/peer_set.h", r"#define PEER_SET_MAX +(\d+)"),
    ("addresses of possible nodes", "src/cluster/known_addrs.h", r"#define KNOWN_ADDRS_MAX +(\d+)"),
    ("dials at once to such addresses", "src/cluster/known_addrs.h", r"#define KNOWN_ADDR_DIALS_MAX +(\d+)"),
    ("messages of a connection read at once", "src/cluster/peer_set.c", r"#define MESSAGES_AT_ONCE +(\d+)"),
    ("connections for probes, per node", "src/cluster/peer_set.h", r"#define PEER_SET_PROBES_MAX +(\d+)"),
    ("sightings of a finder", "src/discovery/finder.h", r"#define SIGHTINGS_MAX +(\d+)"),
    ("seeds", "src/discovery/finder.h", r"#define FINDER_SEEDS_MAX +(\d+)"),
    ("interfaces that mDNS uses", "src/discovery/networks.h", r"#define NETWORKS_MAX +(\d+)"),
    ("services that the mDNS helper keeps", "helper/mdns_net.h", r"#define SERVICES_MAX +(\d+)"),
    ("addresses of a node on one interface", "src/discovery/mdns_line.h", r"#define MDNS_ADDRESSES +(\d+)"),
    ("warnings of the mDNS helper in the log", "src/discovery/helper.h", r"#define HELPER_TOLD_MAX +(\d+)"),
    ("tags per group", "src/collective/state.h", r"#define TAGS_MAX +(\d+)u"),
    ("tensors of a sync", "src/gradient/sync.h", r"#define SYNC_TENSORS_MAX +(\d+)u"),
    ("tensors of a compressor", "src/gradient/tensors.h", r"#define TENSORS_MAX +(\d+)"),
    ("rules of a compressor", "src/gradient/policy.h", r"#define POLICY_RULES_MAX +(\d+)"),
    ("codecs of an auto list", "src/compress/codec.h", r"#define CODEC_LIST_MAX +(\d+)"),
    ("rounds of an array in flight", "src/gradient/rounds.c", r"#define PLACES +(\d+)"),
    ("blocks of memory kept between compressed calls", "src/gradient/codec_pool.c", r"#define BLOCKS_KEPT +(\d+)"),
    ("threads that compress, per node", "src/os/workers.h", r"#define WORKERS_MAX +(\d+)"),
    ("members of a view", "src/membership/view.h", r"#define VIEW_MEMBERS_MAX +(\d+)"),
    ("nodes that a consensus monitors", "src/membership/consensus_state.h", r"#define PEERS_MAX +(\d+)"),
    ("addresses of a node in a view", "src/core/peer_info.h", r"#define PEER_ADDRS_MAX +(\d+)"),
    ("messages waiting to be sent", "src/membership/outbox.h", r"#define OUTBOX_MAX +(\d+)"),
    ("registrations of user codecs in a process", "src/compress/user_codec.h", r"#define USER_CODECS_MAX +(\d+)"),
    ("events kept of a cluster", "src/membership/event_log.h", r"#define EVENT_LOG_MAX +(\d+)"),
    ("votes that a member holds for others", "src/membership/consensus_state.h", r"#define PROXY_MAX +(\d+)"),
    ("earlier instances that a node remembers", "src/membership/consensus_state.h", r"#define PAST_MAX +(\d+)"),
    ("data frames queued per link", "src/transport/link.h", r"#define LINK_DATA_QUEUE +(\d+)"),
    ("control frames queued per link", "src/transport/link.h", r"#define LINK_CONTROL_QUEUE +(\d+)"),
    ("frames of a flow in flight", "src/collective/program.h", r"#define FLOW_WINDOW_MAX +(\d+)"),
    ("grants for operations not posted here, per peer", "src/collective/state.h", r"#define NOTES_MAX +(\d+)u"),
    ("ended calls remembered per group", "src/collective/state.h", r"#define ENDED_KEPT[\s\\]+(\d+)u"),
    ("retired operations per group", "src/collective/state.h", r"#define RETIRED_MAX +(\d+)u"),
    ("disputes open at an arbiter", "src/collective/state.h", r"#define DISPUTES_MAX +(\d+)u"),
)

# The same for sentences of wire.md.
STATE = "src/collective/state.h"
WIRE = (
    ("A frame **costs** its length and {} bytes more", "src/transport/link.h", r"#define LINK_EAGER_COST +(\d+)"),
    ("has not posted yet | {} per link |", STATE, r"#define NOTES_MAX +(\d+)u"),
    ("A member remembers {} retired operations per group", STATE, r"#define RETIRED_MAX +(\d+)u"),
    ("(the last {} operations of the group)", STATE, r"#define ENDED_KEPT[\s\\]+(\d+)u"),
    ("Frames of the {} groups that it closed last are dropped", STATE, r"#define CLOSED_KEPT +(\d+)u"),
    ("It has at most {} cases open", STATE, r"#define DISPUTES_MAX +(\d+)u"),
    ("the first {} indices of the flow", "src/collective/program.h", r"#define FLOW_WINDOW_MAX +(\d+)"),
)


def number_in(file, pattern):
    return f"{int(re.search(pattern, (SOURCE / file).read_text()).group(1)):,}"


class Docs(unittest.TestCase):
    def test_c_code_is_that_of_the_examples(self):
        """Every block of C stands in the example that a link names last before it."""
        for page, most in (("README.md", 1), ("docs/training.md", 4), ("docs/compression.md", 2)):
            text = (SOURCE / page).read_text()
            blocks = list(re.finditer(r"```c\n(.*?)```", text, re.S))
            self.assertEqual(len(blocks), most, page)
            for block in blocks:
                example = re.findall(r"\]\((?:\.\./)?(examples/\w+\.c)\)", text[:block.start()])[-1]
                with self.subTest(f"{page}: {example}"):
                    self.assertIn(block[1], (SOURCE / example).read_text())

    def test_api_page(self):
        made = run(sys.executable, "-B", SOURCE / "tools/api_page.py")
        self.assertTrue(made == (SOURCE / "docs/api.md").read_text(), "run tools/api_page.py > docs/api.md")
        for name in public_functions() + public_constants():
            self.assertIn(name, made)

    def test_examples_are_short(self):
        for example in sorted((SOURCE / "examples").glob("*.c")):
            with self.subTest(example.name):
                self.assertLess(len(example.read_text().splitlines()), 60 if example.stem == "allreduce" else 80)

    def test_include_table(self):
        (table,) = re.findall(r"\| room \| may include \|\n\|---\|---\|\n((?:\|.*\|\n)+)", ARCHITECTURE)
        rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
        self.assertEqual({room: included.split() for room, included in rows}, check.INCLUDES)

    def test_limits(self):
        for what, file, pattern in LIMITS:
            with self.subTest(what):
                row = f"| {what} | {number_in(file, pattern)} |"
                self.assertTrue(row in LIMITS_PAGE, row)

    def test_numbers_of_the_wire(self):
        text = " ".join((SOURCE / "docs/wire.md").read_text().split())
        for sentence, file, pattern in WIRE:
            with self.subTest(sentence):
                sentence = sentence.format(number_in(file, pattern))
                self.assertTrue(sentence in text, sentence)

    def test_every_setting_has_a_line_and_a_test(self):
        """A setting without either is a constant."""
        manual = (SOURCE / "docs/man/hearth.1").read_text()
        pages = "".join(document.read_text() for document in DOCUMENTS)
        tests = "".join(path.read_text(errors="replace") for path in (SOURCE / "tests").rglob("*")
                        if path.suffix in (".c", ".h", ".py", ".sh"))
        structs = public_structs()
        for declaration in structs["hearth_config"] + structs["hearth_tuning"]:
            name = re.search(r"(\w+);$", declaration)[1]
            if name in ("size", "environment", "tuning", "log_arg"):  # of the struct, or of another field
                continue
            variable = f"HEARTH_{name.upper()}"
            with self.subTest(name):
                told = f"`{name}`" in pages if name in ("log", "roles") else re.search(rf"\b{variable}\b", manual)
                self.assertTrue(told, "no document says what it is for")
                self.assertTrue(re.search(rf"(\.|->){name}\b|\b{variable}\b", tests), "no test sets it")

    def test_files_that_are_named(self):
        for document in DOCUMENTS:
            for name in re.findall(r"`((?:src|include|docs|tests|tools|examples|cli|fuzz|bindings|bench)/[\w./]*)`",
                                   document.read_text()):
                if re.search(r"[A-Z]", name):  # a pattern such as src/ROOM/NAME.c
                    continue
                with self.subTest(f"{document.name}: {name}"):
                    self.assertTrue((SOURCE / name).exists())
