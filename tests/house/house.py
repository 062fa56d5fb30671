# SPDX-License-Identifier: Apache-2.0
"""What the tests of this directory share: where things are, how to run a command, what the header declares."""

import os
import re
import subprocess

from places import SOURCE

CC = os.environ.get("CC", "cc")
CXX = os.environ.get("CXX", "c++")
HEADER = (SOURCE / "include/hearth.h").read_text()


def run(*command, **more):
    """The output of a command that must succeed."""
    done = subprocess.run([str(c) for c in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, **more)
    if done.returncode:
        raise AssertionError(f"{' '.join(map(str, command))}\nexit status {done.returncode}\n{done.stdout}")
    return done.stdout


def without_comments(text):
    return re.sub(r"/\*.*?\*/", " ", text, flags=re.S)


def public_functions():
    text = re.sub(r"^#.*", "", without_comments(HEADER), flags=re.M)
    return sorted(re.findall(r"\bHEARTH_API\b[^;(]*?\b(\w+)\s*\(", text))


def public_constants():
    """Every enumerator and every macro with a value."""
    text = without_comments(HEADER)
    names = re.findall(r"^#define (HEARTH_\w+) +[\w(]", text, re.M)
    for body in re.findall(r"\benum \w+ \{(.*?)\}", text, re.S):
        names += re.findall(r"\b(HEARTH_\w+)\b(?=\s*[=,}]|\s*$)", body + "\n", re.M)
    return sorted(set(names) - {"HEARTH_API"})


def public_structs():
    """Every public struct: its name, and the declarations of its fields."""
    found = re.findall(r"^struct (hearth_\w+) \{(.*?)^\};", without_comments(HEADER), re.M | re.S)
    return {name: [field.strip() + ";" for field in body.split(";") if field.strip()] for name, body in found}


def version():
    return ".".join(re.search(rf"#define HEARTH_VERSION_{part} +(\d+)", HEADER).group(1)
                    for part in ("MAJOR", "MINOR", "PATCH"))
