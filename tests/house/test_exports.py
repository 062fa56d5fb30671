# SPDX-License-Identifier: Apache-2.0
"""What the built libraries show to others and what they need: hearth_* alone, and hardly anything."""

import platform
import re
import unittest

from house import public_functions, run, version
from places import BINARY

ALLOWED = {"libc", "libm", "libpthread", "libgnutls", "libnettle", "libhogweed", "libngtcp2",
           "libngtcp2_crypto_gnutls", "libgcc_s", "ld-linux-x86-64", "ld-linux-aarch64"}

# Variables that the whole process shares, each with a reason. (Those of a thread are in .tbss.)
SHARED_STATE = {
    "lookups_running",  # os/resolve.c: threads that the system's look-up has not let go yet; a limit for all
    "marks", "once",  # os/fork.c: descriptors that a forked child closes; a child has those of all nodes
    "page",  # os/thread.c: the id of the process, in a page that a forked child finds empty
    "kept",  # security/secret.c: what the launcher's descriptor held, which is closed once it is read
    "environments",  # node/environment.c: what hearth_config_env found, for configs, which have no end
    "registered",  # compress/user_codec.c: names of codecs belong to the process, as their functions do
    "best",  # kernel: what this processor can do; the same answer whoever asks first
}


def symbols(*command):
    """Names and types that nm prints."""
    return {name: kind for kind, name in re.findall(r"^[0-9a-f]+ (\w) (\S+)$", run(*command), re.M)}


@unittest.skipUnless(platform.system() == "Linux", "reads ELF")
class Exports(unittest.TestCase):
    shared = BINARY / "libhearth.so"
    static = BINARY / "libhearth.a"

    def test_header_declares_something(self):
        self.assertIn("hearth_all_reduce", public_functions())

    def test_shared_exports_exactly_the_header(self):
        self.assertEqual(sorted(symbols("nm", "-D", "--defined-only", self.shared)), public_functions())

    def test_static_exports_exactly_the_header(self):
        self.assertEqual(sorted(symbols("nm", "-g", "--defined-only", self.static)), public_functions())

    def test_no_shared_state(self):
        variables = re.findall(r" O \.(?:bss|data(?!\.rel\.ro))\S*\s+[0-9a-f]+\s+(?:\.hidden )?(\w+)",
                               run("objdump", "-t", self.static))
        self.assertLessEqual(set(variables), SHARED_STATE)

    def test_needed(self):
        needed = re.findall(r"\(NEEDED\).*\[(.*?)\.so", run("readelf", "-d", self.shared))
        self.assertTrue(needed)
        self.assertLessEqual(set(needed), ALLOWED)

    def test_soname(self):
        major, minor, _ = version().split(".")
        name = f"libhearth.so.0.{minor}" if major == "0" else f"libhearth.so.{major}"
        self.assertIn(f"[{name}]", run("readelf", "-d", self.shared))
        self.assertEqual(self.shared.resolve().name, f"libhearth.so.{version()}")

    def test_no_executable_stack_and_read_only_relocations(self):
        segments = run("readelf", "-lW", self.shared)
        self.assertRegex(segments, r"GNU_STACK.* RW +0x")
        self.assertIn("GNU_RELRO", segments)
        self.assertIn("BIND_NOW", run("readelf", "-d", self.shared))
