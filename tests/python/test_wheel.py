# SPDX-License-Identifier: Apache-2.0
"""pip install makes a package that works anywhere, without a network; what is missing or does not fit is said."""

import base64
import contextlib
import csv
import hashlib
import importlib.util
import io
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import unittest
import zipfile
from pathlib import Path
from unittest import mock

from places import BINARY, SOURCE

PACKAGE = SOURCE / "bindings/python"
SECONDS = 170  # against hanging
CC = os.environ.get("CC", "cc")

spec = importlib.util.spec_from_file_location("hearth_build", PACKAGE / "hearth_build.py")
hearth_build = importlib.util.module_from_spec(spec)
spec.loader.exec_module(hearth_build)


def clean(**more):
    """An environment that knows nothing of this tree; None takes a variable out."""
    environment = {name: value for name, value in os.environ.items() if not re.match("HEARTH_|PYTHON|PIP_", name)}
    environment.update(more)
    return {name: value for name, value in environment.items() if value is not None}


def run(*command, **more):
    more.setdefault("env", clean())
    return subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors="replace", timeout=SECONDS, **more)


class Scratch(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.scratch = Path(directory.name)

    def ok(self, *command, **more):
        done = run(*command, **more)
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout


def unavailable():
    """None, or what pip install needs and is not here."""
    for module in ("venv", "ensurepip"):
        if importlib.util.find_spec(module) is None:
            return f"{sys.executable} has no {module} (package python3-venv)"
    return None if shutil.which("cmake") else "cmake is missing"


@unittest.skipIf(unavailable(), unavailable())
class Install(Scratch):
    def files(self):
        return sorted(path for path in PACKAGE.rglob("*") if "__pycache__" not in path.parts)

    def test_install_and_use_elsewhere(self):
        before = self.files()
        self.ok(sys.executable, "-m", "venv", self.scratch / "venv")
        python = self.scratch / "venv/bin/python"
        told = self.ok(python, "-m", "pip", "--disable-pip-version-check", "install", "-v", "--no-index", PACKAGE,
                       cwd=self.scratch)
        self.assertRegex(told, r"building libhearth.* on \d+ processors")
        self.assertRegex(told, r"\[ *\d+(%|/\d+)\] ")  # how far it is
        said = self.ok(python, "-m", "hearth.selftest", cwd="/")
        self.assertIn(f"{self.scratch}/venv/lib/", said)
        program = ("import hearth\n"
                   "def total():\n"
                   "    with hearth.open() as node:\n"
                   "        return bytes(node.world.all_reduce(bytearray([node.rank] * 3)))\n"
                   "print(hearth.launch(total, 3, timeout=60), hearth.__version__)\n")
        self.assertEqual(self.ok(python, "-c", program, cwd="/"), f"{[bytes([3] * 3)] * 3} {hearth_build.version()}\n")
        listed = self.ok(python, "-m", "pip", "show", "--files", "hearth", cwd="/")
        self.assertIn(f"hearth/lib/{hearth_build.library_name()}", listed)
        if (BINARY / hearth_build.HELPER).exists():  # then it can be built
            (helper,) = (self.scratch / "venv").glob(f"lib/*/site-packages/hearth/lib/{hearth_build.HELPER}")
            self.assertEqual(self.ok(helper), f"ready hearth-mdns {hearth_build.version()}\n")
        self.assertEqual(before, self.files(), "the build left something in the source tree")


class Backend(Scratch):
    """The wheel itself, with a stand-in for CMake that takes the library from the build directory."""

    def setUp(self):
        super().setUp()
        library = BINARY / hearth_build.library_name()
        if not library.exists():
            self.skipTest(f"{library} is not built")
        patch = mock.patch.object(hearth_build, "cmake", self.stand_in)
        patch.start()
        self.addCleanup(patch.stop)
        self.torch_fails = False

    def stand_in(self, directory, torch):
        if torch and self.torch_fails:
            raise hearth_build.BuildError("there is no such torch")
        directory.mkdir()
        shutil.copy(BINARY / hearth_build.library_name(), directory)
        (directory / hearth_build.HELPER).write_bytes(b"helper")
        if torch:
            (directory / f"hearth_backend{sysconfig.get_config_var('EXT_SUFFIX')}").write_bytes(b"extension")

    def wheel(self, name="out", **settings):
        directory = self.scratch / name
        directory.mkdir()
        return directory / hearth_build.build_wheel(directory, settings)

    def test_contents(self):
        wheel = self.wheel(torch="off")
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        self.assertEqual(wheel.name, f"hearth-{hearth_build.version()}-py3-none-{platform}.whl")
        info = f"hearth-{hearth_build.version()}.dist-info"
        with zipfile.ZipFile(wheel) as archive:
            names = set(archive.namelist())
            modules = {path.relative_to(PACKAGE).as_posix() for path in (PACKAGE / "hearth").rglob("*")
                       if path.suffix in (".py", ".typed")}
            programs = {f"hearth/lib/{name}" for name in (hearth_build.library_name(), hearth_build.HELPER)}
            self.assertEqual(names, modules | programs |
                             {f"{info}/{name}" for name in ("METADATA", "WHEEL", "RECORD", "LICENSE",
                                                            "entry_points.txt")})
            self.assertEqual(archive.namelist()[-5:], sorted(names)[:5])  # what describes it stands last
            self.assertEqual(archive.read(f"{info}/entry_points.txt").decode().splitlines(),
                             ["[torch.distributed.backends]", "hearth = hearth.torch._backend:register"])
            metadata = archive.read(f"{info}/METADATA").decode()
            self.assertIn(f"Name: hearth\nVersion: {hearth_build.version()}\n", metadata)
            self.assertIn(f"Tag: py3-none-{platform}\n", archive.read(f"{info}/WHEEL").decode())
            self.check_record(archive, f"{info}/RECORD", names)
            for name in programs:
                self.assertEqual(archive.getinfo(name).external_attr >> 16, 0o100755)

    def check_record(self, archive, record, names):
        rows = list(csv.reader(archive.read(record).decode().splitlines()))
        self.assertEqual({row[0] for row in rows}, names)
        for name, digest, size in rows:
            if name == record:
                self.assertEqual((digest, size), ("", ""))
                continue
            data = archive.read(name)
            right = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            self.assertEqual((digest, size), (f"sha256={right}", str(len(data))), name)

    def test_the_same_bytes_again(self):
        with mock.patch.dict(os.environ, SOURCE_DATE_EPOCH="1700000000"):
            first, second = self.wheel("first", torch="off"), self.wheel("second", torch="off")
        self.assertEqual(first.read_bytes(), second.read_bytes())
        with zipfile.ZipFile(first) as archive:
            self.assertEqual({entry.date_time for entry in archive.infolist()}, {(2023, 11, 14, 22, 13, 20)})

    def test_with_torch(self):
        wheel = self.wheel(torch="on")
        python = f"cp{sys.version_info[0]}{sys.version_info[1]}"
        self.assertIn(f"-{python}-{python}-", wheel.name)
        with zipfile.ZipFile(wheel) as archive:
            self.assertIn(f"hearth/lib/hearth_backend{sysconfig.get_config_var('EXT_SUFFIX')}", archive.namelist())

    def test_output_is_shown_as_it_comes_and_kept_for_the_error(self):
        said = io.StringIO()
        with contextlib.redirect_stdout(said), self.assertRaisesRegex(hearth_build.BuildError, "status 3:\none\ntwo"):
            hearth_build.run("sh", "-c", "echo one; echo two >&2; exit 3")
        self.assertEqual(said.getvalue(), "one\ntwo\n")

    def test_a_torch_that_does_not_fit(self):
        """It is left out, unless it was asked for."""
        self.torch_fails = True
        said = io.StringIO()
        with mock.patch.object(hearth_build, "has_torch", return_value=True), contextlib.redirect_stderr(said):
            self.assertIn("-py3-none-", self.wheel("auto").name)
        self.assertEqual(said.getvalue(), "hearth: without the backend for torch.distributed: there is no such torch\n")
        with self.assertRaisesRegex(hearth_build.BuildError, "no such torch"):
            self.wheel("on", torch="on")
        with self.assertRaisesRegex(hearth_build.BuildError, "there are auto, on and off"):
            self.wheel("maybe", torch="maybe")

    def test_source_archive(self):
        """It holds all that the tree has for the library, CMake likes it, and the version is found there."""
        archive = hearth_build.build_sdist(self.scratch)
        with tarfile.open(self.scratch / archive) as packed:
            packed.extractall(self.scratch)
        top = self.scratch / archive[:-len(".tar.gz")]
        for part in ("src", "include", "helper", "cmake", "bindings/torch"):
            for path in (SOURCE / part).rglob("*"):
                if path.is_file():
                    self.assertEqual((top / "tree" / path.relative_to(SOURCE)).read_bytes(), path.read_bytes())
        self.ok("cmake", "-S", top / "tree", "-B", self.scratch / "tree", "-DHEARTH_CLI=OFF", "-DHEARTH_TESTS=OFF",
                "-DHEARTH_INSTALL=OFF")
        said = self.ok(sys.executable, "-B", "-c", "import hearth_build as b; print(b.TREE, b.version())", cwd=top)
        self.assertEqual(said, f"{top / 'tree'} {hearth_build.version()}\n")

    def test_editable(self):
        wheel = self.scratch / hearth_build.build_editable(self.scratch)
        with zipfile.ZipFile(wheel) as archive:
            self.assertEqual(archive.read("hearth.pth").decode().strip(), str(PACKAGE))

    def test_two_versions(self):
        (self.scratch / "hearth").mkdir()
        (self.scratch / "hearth/_library.py").write_text('__version__ = "9.9.9"\n')
        with mock.patch.object(hearth_build, "HERE", self.scratch):
            with self.assertRaisesRegex(hearth_build.BuildError, "is version .*, but hearth/_library.py says 9.9.9"):
                hearth_build.version()


class Failures(Scratch):
    """What pip shows when there is no tool, or it fails."""

    def build(self, **environment):
        program = f"import hearth_build; hearth_build.build_wheel({str(self.scratch)!r}, {{'torch': 'off'}})"
        done = run(sys.executable, "-B", "-c", program, cwd=PACKAGE, env=clean(**environment))
        self.assertEqual(done.returncode, 1, done.stdout)
        return done.stdout

    def test_no_cmake(self):
        self.assertIn("cmake is missing", self.build(PATH=str(self.scratch)))

    @unittest.skipIf(not shutil.which("cmake"), "cmake is missing")
    def test_a_compiler_that_fails(self):
        compiler = self.scratch / "no-compiler"
        compiler.write_text("#!/bin/sh\necho 'this compiler is out of order' >&2\nexit 1\n")
        compiler.chmod(0o755)
        self.assertIn("this compiler is out of order", self.build(CC=str(compiler)))


class Library(Scratch):
    """What `import hearth` says of a library that is not there, or is another."""

    def says(self, **environment):
        done = run(sys.executable, "-B", "-c", "import hearth", cwd="/",
                   env=clean(**{"PYTHONPATH": str(PACKAGE), **environment}))
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("\nImportError: ", done.stdout)
        return done.stdout.split("\nImportError: ")[1]

    def fake(self, code):
        if not shutil.which(CC):
            self.skipTest(f"{CC} is missing")
        (self.scratch / "fake.c").write_text(code)
        self.ok(CC, "-shared", "-fPIC", "-o", self.scratch / "libfake.so", self.scratch / "fake.c")
        return str(self.scratch / "libfake.so")

    def test_another_version(self):
        said = self.says(HEARTH_LIBRARY=self.fake("unsigned hearth_version(void) { return 9 << 16 | 8 << 8 | 7; }"))
        self.assertIn(f"libfake.so is libhearth 9.8.7, but this is hearth {hearth_build.version()} for Python", said)

    def test_another_build(self):
        number = " | ".join(f"{part} << {shift}" for part, shift in zip(hearth_build.version().split("."), (16, 8, 0)))
        said = self.says(HEARTH_LIBRARY=self.fake(f"unsigned hearth_version(void) {{ return {number}; }}"))
        self.assertRegex(said, r"libfake.so is another build of libhearth .*undefined symbol: hearth_")

    def test_not_a_library(self):
        (self.scratch / "text").write_text("not a library")
        for path in (self.scratch / "text", self.scratch / "nothing"):
            said = self.says(HEARTH_LIBRARY=str(path))
            self.assertRegex(said, rf"libhearth was not found(?s:.*)\n  {re.escape(str(path))}: ")
        said = self.says(HEARTH_LIBRARY=self.fake("int nothing_of_hearth;"))
        self.assertIn("undefined symbol: hearth_version", said)

    def test_nowhere(self):
        shutil.copytree(PACKAGE / "hearth", self.scratch / "hearth", ignore=shutil.ignore_patterns("__pycache__"))
        if run(sys.executable, "-B", "-c", "import hearth", cwd=self.scratch).returncode == 0:
            self.skipTest("libhearth is installed in the system")
        said = self.says(PYTHONPATH=str(self.scratch))
        self.assertIn("Build it with `make`, or name it in HEARTH_LIBRARY. Tried:\n", said)
