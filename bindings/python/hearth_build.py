# SPDX-License-Identifier: Apache-2.0
"""Builds wheels for pip (PEP 517, 660), with libhearth inside, from the source tree.

CMake builds the library, and the backend for torch.distributed if the building Python has a supported torch
(`--config-settings torch=on` insists on it, `torch=off` leaves it out). In a source archive the tree that CMake
needs is in the directory `tree`.
"""

import base64
import gzip
import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import time
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
TREE = HERE / "tree" if (HERE / "tree").exists() else HERE.parents[1]
TREE_FILES = ("CMakeLists.txt", "LICENSE", "cmake", "include", "src", "helper", "bindings/torch")
HELPER = "hearth-mdns"  # beside the library, which looks for it there; left out where avahi-core is missing
PACKAGE_FILES = ("pyproject.toml", "README.md", "hearth_build.py", "hearth")
ENTRY_POINTS = "[torch.distributed.backends]\nhearth = hearth.torch._backend:register\n"  # the newest torch looks there
SUFFIXES = {".py", ".toml", ".md", ".typed", ".c", ".cc", ".h", ".inc", ".cmake", ".in", ".txt", ""}  # of sources


class BuildError(Exception):
    """Names what is missing, or the command that failed."""


# ---- versions and names --------------------------------------------------------------------------------------------

def version():
    """That of include/hearth.h; the package must say the same."""
    header = (TREE / "include/hearth.h").read_text()
    number = ".".join(re.search(rf"#define HEARTH_VERSION_{part} +(\d+)", header)[1]
                      for part in ("MAJOR", "MINOR", "PATCH"))
    said = re.search(r'^__version__ = "(.*)"', (HERE / "hearth/_library.py").read_text(), re.M)[1]
    if said != number:
        raise BuildError(f"include/hearth.h is version {number}, but hearth/_library.py says {said}")
    return number


def metadata():
    return "\n".join([
        "Metadata-Version: 2.1", "Name: hearth", f"Version: {version()}",
        "Summary: Train one model on the machines you own", "License: Apache-2.0", "License-File: LICENSE",
        "Requires-Python: >=3.9", "Classifier: Programming Language :: Python :: 3",
        "Classifier: Programming Language :: C",
        "Classifier: License :: OSI Approved :: Apache Software License",
        "Classifier: Operating System :: POSIX",
        "Description-Content-Type: text/markdown", "", (HERE / "README.md").read_text()])


def info_directory():
    return f"hearth-{version()}.dist-info"


def tag(extension):
    """Without the extension any Python 3 can use the wheel; with it only the one that it is built for."""
    platform = re.sub(r"[-.]", "_", sysconfig.get_platform())
    python = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    return f"{python}-{python}-{platform}" if extension else f"py3-none-{platform}"


def library_name():
    major, minor, _ = version().split(".")
    return f"libhearth.{major}.{minor}.dylib" if sys.platform == "darwin" else f"libhearth.so.{major}.{minor}"


# ---- CMake ---------------------------------------------------------------------------------------------------------

def environment():
    """Without what pip sets to hide installed packages from this module: CMake asks Python for torch."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


def say(text):
    """For `pip install -v`, line by line as it comes; without -v pip keeps it to itself, but for what fails."""
    print(text, flush=True)


def run(*command):
    """Its output is shown as it comes, and is part of the error if it fails."""
    text = []
    with subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors="replace", env=environment()) as process:
        for line in process.stdout:
            say(line.rstrip("\n"))
            text.append(line)
    if process.returncode:
        raise BuildError(f"{' '.join(map(str, command))}\nended with exit status {process.returncode}:\n"
                         f"{''.join(text)}")


def has_torch():
    look = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)"
    return subprocess.run([sys.executable, "-c", look], env=environment()).returncode == 0


def cmake(directory, torch):
    """Builds into the directory."""
    if not shutil.which("cmake"):
        raise BuildError("cmake is missing; hearth is built with CMake 3.21 or newer and a C compiler")
    generator = ["-G", "Ninja"] if shutil.which("ninja") else []
    off = [f"-DHEARTH_{part}=OFF" for part in ("CLI", "TESTS", "EXAMPLES", "INSTALL")]
    backend = ["-DHEARTH_TORCH=ON", f"-DHEARTH_TORCH_PYTHON={sys.executable}"] if torch else ["-DHEARTH_TORCH=OFF"]
    say(f"hearth: building libhearth{' and the backend for torch.distributed' * torch} on {os.cpu_count() or 1} "
        "processors; this takes a minute or two")
    run("cmake", "-S", TREE, "-B", directory, *generator, "-DCMAKE_BUILD_TYPE=Release",
        "-DCMAKE_BUILD_WITH_INSTALL_RPATH=ON", *off, *backend)
    targets = ["hearth", "hearth_helpers"] + ["hearth_backend"] * torch
    run("cmake", "--build", directory, "--parallel", os.cpu_count() or 1, "--target", *targets)


def build(directory, torch):
    """The library, its helper and, if it is wanted and can be had, the extension: {name in hearth/lib/: file}."""
    files = {}
    if torch == "on" or (torch == "auto" and has_torch()):
        try:
            cmake(directory / "torch", True)
            extension = "hearth_backend" + sysconfig.get_config_var("EXT_SUFFIX")
            files[extension] = directory / "torch" / extension
            if not files[extension].exists():
                raise BuildError(f"CMake made no {extension}: it found another Python than {sys.executable}")
        except BuildError as error:
            if torch == "on":
                raise
            print(f"hearth: without the backend for torch.distributed: {error}", file=sys.stderr)
            files.clear()
    if not files:
        cmake(directory / "plain", False)
    built = directory / ("torch" if files else "plain")
    files[library_name()] = (built / library_name()).resolve()
    if (built / HELPER).exists():
        files[HELPER] = built / HELPER
    return files


# ---- wheels and archives -------------------------------------------------------------------------------------------

def moment():
    """Seconds; the same sources make the same bytes."""
    return int(os.environ.get("SOURCE_DATE_EPOCH", 315532800))  # 1980, where zip's calendar begins


def sources(*tops):
    """Files below them: (path, name relative to the first's parent)."""
    for top in tops:
        found = [top] if top.is_file() else sorted(path for path in top.rglob("*") if path.is_file())
        for path in found:
            if path.suffix in SUFFIXES and "__pycache__" not in path.parts:
                yield path


def write_wheel(wheel_directory, name_tag, members):
    """members: {name: bytes}. Its name."""
    info = info_directory()
    members = {**members, f"{info}/METADATA": metadata().encode(), f"{info}/LICENSE": (TREE / "LICENSE").read_bytes(),
               f"{info}/entry_points.txt": ENTRY_POINTS.encode(),
               f"{info}/WHEEL": (f"Wheel-Version: 1.0\nGenerator: hearth_build\nRoot-Is-Purelib: false\n"
                                 f"Tag: {name_tag}\n").encode()}
    record = ""
    for name, data in sorted(members.items()):
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record += f"{name},sha256={digest},{len(data)}\n"
    members[f"{info}/RECORD"] = (record + f"{info}/RECORD,,\n").encode()
    wheel = f"hearth-{version()}-{name_tag}.whl"
    date = time.gmtime(max(moment(), 315532800))[:6]
    with zipfile.ZipFile(Path(wheel_directory) / wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in sorted(members.items(), key=lambda member: (member[0].startswith(info), member[0])):
            entry = zipfile.ZipInfo(name, date)
            entry.compress_type = zipfile.ZIP_DEFLATED
            runs = ".so" in name or name.endswith((".dylib", f"/{HELPER}"))
            entry.external_attr = (0o100755 if runs else 0o100644) << 16
            archive.writestr(entry, data)
    return wheel


def setting(config_settings):
    torch = (config_settings or {}).get("torch", "auto")
    if torch not in ("auto", "on", "off"):
        raise BuildError(f"the setting torch is {torch!r}; there are auto, on and off")
    return torch


# ---- what pip calls ------------------------------------------------------------------------------------------------

def get_requires_for_build_wheel(config_settings=None):
    return []


get_requires_for_build_sdist = get_requires_for_build_editable = get_requires_for_build_wheel


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    info = Path(metadata_directory) / info_directory()
    info.mkdir()
    (info / "METADATA").write_text(metadata())
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    return info.name


prepare_metadata_for_build_editable = prepare_metadata_for_build_wheel


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """The package, with the library, its helper and perhaps the extension in hearth/lib/."""
    torch = setting(config_settings)
    members = {path.relative_to(HERE).as_posix(): path.read_bytes() for path in sources(HERE / "hearth")}
    with tempfile.TemporaryDirectory(prefix="hearth-build-") as directory:
        files = build(Path(directory), torch)
        for name, path in files.items():
            members[f"hearth/lib/{name}"] = path.read_bytes()
    extension = any(name.startswith("hearth_backend") for name in files)
    return write_wheel(wheel_directory, tag(extension), members)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    """A path to this directory; the library is the one that `make` built in the tree."""
    if not (TREE / "build" / library_name()).exists():
        raise BuildError(f"{TREE / 'build' / library_name()} is missing: run make first")
    return write_wheel(wheel_directory, "py3-none-any", {"hearth.pth": f"{HERE}\n".encode()})


def build_sdist(sdist_directory, config_settings=None):
    """What build_wheel needs, and nothing else."""
    base = f"hearth-{version()}"
    members = {"PKG-INFO": metadata().encode()}
    for path in sources(*(HERE / name for name in PACKAGE_FILES)):
        members[path.relative_to(HERE).as_posix()] = path.read_bytes()
    for path in sources(*(TREE / name for name in TREE_FILES)):
        members["tree/" + path.relative_to(TREE).as_posix()] = path.read_bytes()
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, data in sorted(members.items()):
            entry = tarfile.TarInfo(f"{base}/{name}")
            entry.size, entry.mtime, entry.mode = len(data), moment(), 0o644
            archive.addfile(entry, io.BytesIO(data))
    with open(Path(sdist_directory) / f"{base}.tar.gz", "wb") as file:
        with gzip.GzipFile("", "wb", fileobj=file, mtime=moment()) as zipped:
            zipped.write(packed.getvalue())
    return f"{base}.tar.gz"
