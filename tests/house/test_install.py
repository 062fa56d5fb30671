# SPDX-License-Identifier: Apache-2.0
"""Installs into a scratch prefix and builds examples/ against it, in each of the ways that users have."""

import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

from house import CC, run, version
from places import BINARY, SOURCE

NEED_A_CLUSTER = ("at_home", "elastic")  # alone they say what to do
EXAMPLES = sorted((SOURCE / "examples").glob("*.c"))
ALONE = next(e for e in EXAMPLES if e.stem not in NEED_A_CLUSTER)

# %s: how the project gets hearth::hearth.
PROJECT = """cmake_minimum_required(VERSION 3.21)
project(user C)
%s
foreach(name ${EXAMPLES})
  add_executable(${name} ${DIR}/${name}.c)
  target_link_libraries(${name} PRIVATE hearth::${KIND} m)
endforeach()
"""


class Install(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.dir = Path(tempfile.mkdtemp())
        cls.addClassCleanup(shutil.rmtree, cls.dir)
        cls.prefix = cls.dir / "prefix"
        run("cmake", "--install", BINARY, "--prefix", cls.prefix)
        cls.lib = next(cls.prefix.glob("**/libhearth.so")).parent

    def build_project(self, name, get, *options, kind="hearth"):
        source, binary = self.dir / name, self.dir / name / "build"
        source.mkdir()
        (source / "CMakeLists.txt").write_text(PROJECT % get)
        run("cmake", "-S", source, "-B", binary, "-G", "Ninja", f"-DCMAKE_C_COMPILER={CC}", "-DCMAKE_BUILD_TYPE=Debug",
            f"-DEXAMPLES={';'.join(e.stem for e in EXAMPLES)}", f"-DDIR={SOURCE / 'examples'}", f"-DKIND={kind}",
            *options)
        run("cmake", "--build", binary)
        return binary

    def test_there_are_examples(self):
        self.assertTrue(EXAMPLES)

    def test_files(self):
        for pattern in ("include/hearth.h", "bin/hearth", "share/man/man1/hearth.1", "share/doc/hearth/LICENSE",
                        "share/doc/hearth/README.md", "**/libhearth.a", f"**/libhearth.so.{version()}",
                        "**/pkgconfig/hearth.pc", "**/cmake/hearth/hearth-config.cmake",
                        "**/cmake/hearth/hearth-config-version.cmake"):
            with self.subTest(pattern):
                self.assertTrue(list(self.prefix.glob(pattern)))

    def test_helper(self):
        """It is installed where it was built, and the library looks for it there."""
        if not (BINARY / "hearth-mdns").exists():
            self.skipTest("avahi-core is missing: hearth-mdns is not built")
        (helper,) = self.prefix.glob("libexec/hearth/hearth-mdns")
        self.assertTrue(os.access(helper, os.X_OK))
        done = run(helper, timeout=60)
        self.assertEqual(done, f"ready hearth-mdns {version()}\n")
        library = (self.lib / "libhearth.so").read_bytes()
        self.assertIn(os.path.relpath(helper, self.lib).encode(), library)

    def test_command(self):
        self.assertIn(version(), run(self.prefix / "bin/hearth", "--version"))

    def test_pkg_config(self):
        environment = {**os.environ, "PKG_CONFIG_PATH": str(self.lib / "pkgconfig")}
        environment.pop("LD_LIBRARY_PATH", None)  # the flags say where the library is
        self.assertEqual(run("pkg-config", "--modversion", "hearth", env=environment).strip(), version())
        flags = run("pkg-config", "--cflags", "--libs", "hearth", env=environment).split()
        for example in EXAMPLES:
            with self.subTest(example.name):
                program = self.dir / example.stem
                run(CC, "-Wall", "-Wextra", example, "-o", program, *flags, "-lm")
                if example.stem in NEED_A_CLUSTER:
                    alone = subprocess.run([program], env={**environment, "XDG_CONFIG_HOME": str(self.dir)}, timeout=60,
                                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
                    self.assertNotEqual(alone.returncode, 0)
                    self.assertIn("hearth init", alone.stdout)
                else:
                    run(program, env=environment, timeout=60)

    def test_pkg_config_static(self):
        environment = {**os.environ, "PKG_CONFIG_PATH": str(self.lib / "pkgconfig")}
        flags = run("pkg-config", "--static", "--cflags", "--libs", "hearth", env=environment).split()
        for example in EXAMPLES:
            with self.subTest(example.name):
                flags = [str(self.lib / "libhearth.a") if f == "-lhearth" else f for f in flags]
                run(CC, example, "-o", self.dir / f"{example.stem}-static", *flags)

    def test_find_package(self):
        major, minor, _ = version().split(".")
        get = f"find_package(hearth {major}.{minor} REQUIRED)"
        binary = self.build_project("package", get, f"-DCMAKE_PREFIX_PATH={self.prefix}")
        run(binary / ALONE.stem, timeout=60)

    def test_find_package_static(self):
        self.build_project("package-static", "find_package(hearth REQUIRED)", f"-DCMAKE_PREFIX_PATH={self.prefix}",
                           kind="static")

    def test_add_subdirectory(self):
        binary = self.build_project("subdirectory", f"add_subdirectory({SOURCE} hearth)")
        self.assertFalse((binary / "hearth" / "hearth").exists(), "a subproject builds no command")
        run(binary / ALONE.stem, timeout=60)
