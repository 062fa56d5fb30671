#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the rules of CONTRIBUTING.md that a script can see. Prints file:line: rule: text; exits 1 if there is any."""

import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(os.environ.get("HEARTH_CHECK_ROOT", Path(__file__).resolve().parent.parent))  # tests check other trees

# ---- The tables. A new edge or exception is a change here, so it is seen in review. --------------------------------

# Who may include whom: rooms, or single headers of a room. Every room may include itself and <hearth.h>.
FACES = ["core", "os", "kernel", "compress", "gradient/price.h", "collective/plan.h", "collective/select.h",
         "collective/dryrun.h", "node/environment.h", "node/local.h", "security/node_key.h", "security/secret.h",
         "security/trust_list.h", "security/vault.h", "connect/dial_driver.h", "discovery", "cluster/control_socket.h",
         "cluster/job_store.h", "cluster/status_snapshot.h",
         "membership/job_record.h", "membership/topology.h", "membership/health.h"]
INCLUDES = {
    "core": [],
    "os": ["core"],
    "kernel": ["core"],
    "wire": ["core"],
    "metrics": ["core"],
    "security": ["core", "os"],
    "transport": ["core", "os", "wire", "metrics", "security"],
    "connect": ["core", "os", "wire", "security"],
    "bootstrap": ["core", "os", "wire", "security", "connect"],
    "discovery": ["core", "os", "security/node_key.h", "security/secret.h"],
    "membership": ["core", "wire/peer_codec.h", "security/digest.h", "security/node_key.h"],
    "cluster": ["core", "os", "wire", "metrics", "security", "connect", "bootstrap", "discovery",
                "membership"],
    "message": ["core", "wire", "transport/link.h"],
    "collective": ["core", "os", "wire", "kernel", "metrics", "transport/link.h", "message/messages.h"],
    "node": ["core", "os", "wire", "kernel", "metrics", "transport", "connect", "bootstrap",
             "message", "collective", "compress", "security", "cluster", "membership"],
    "compress": ["core", "kernel"],
    "gradient": ["core", "os", "kernel", "compress", "collective/select.h", "node"],
    "remote": ["core", "os", "message/messages.h", "collective/engine.h", "node"],
    "api.c": ["core", "node", "collective"],
    "cli": FACES,
    "bench": FACES + ["transport", "security", "cli/shared"],
    "helper": ["core", "os", "discovery"],
    "examples": [],
    "bindings": [],
}

# System headers. os, cli, bench, examples and bindings may include any; other rooms only the C library and these.
C_LIBRARY = set("assert ctype errno fenv float inttypes limits math stdalign stdarg stdatomic stdbool stddef stdint "
                "stdio stdlib string".split())
SYSTEM = {
    "kernel": {"arm_neon.h", "cpuid.h", "immintrin.h", "sys/auxv.h"},
    "connect": {"sys/uio.h"},
    "bootstrap": {"sys/uio.h"},
    "security": {"sys/types.h", "sys/uio.h", "gnutls/abstract.h", "gnutls/crypto.h", "gnutls/gnutls.h", "gnutls/x509.h",
                 "nettle/ecdsa.h", "nettle/eddsa.h", "nettle/sha3.h"},
    "transport": {"sys/types.h", "sys/uio.h", "gnutls/gnutls.h", "ngtcp2/ngtcp2.h", "ngtcp2/ngtcp2_crypto.h",
                  "ngtcp2/ngtcp2_crypto_gnutls.h"},
}
SYSTEM_ANY = ("os", "cli", "bench", "helper", "examples", "bindings")

# Names that may not be used: pattern, where, except in, why.
CALL = r"(?<![\w.>])(?:%s)\s*\("
SEARCH = CALL % r"(?:str(?:n?case)?(?:str|cmp)|str(?:ncmp|r?chr|pbrk|r?spn|tol|toul)|v?sscanf|mem(?:mem|cmp|chr)|regexec)"
ERROR_TEXT = (r"(?:\b(?:\w+(?:\.|->))*(?:\w*error|\w*failure|why|said|cause|heard|told|refusal|objection|reason|last|bye|verdict|"
              r"theirs|ours)(?:\(\))?(?:\.|->)text\b|\bhearth_error_text\s*\(|\bhearth_request_error\s*\(|"
              r"\bwhy\b(?!\s*(?:\.|->))|\bwhat\(\))")
BANNED = [
    (CALL % "strcpy|strcat|sprintf|vsprintf|gets|alloca", ("",), (), "writes without a limit"),
    (CALL % "strtok|atoi|atol|atoll|atof|rand|srand", ("",), (), "hides state or errors"),
    (CALL % "system", ("src", "cli", "include"), (), "runs a shell"),
    (CALL % "malloc|calloc|realloc|free|aligned_alloc|posix_memalign|strdup|strndup", ("src",), ("src/core/heap.c",),
     "memory goes through core/heap.h"),
    (CALL % "getenv|secure_getenv|setenv|putenv|unsetenv", ("src",),
     ("src/node/config.c", "src/os/sock_unix.c"),  # the latter: where the session keeps its sockets
     "only hearth_config_env reads the environment"),
    (CALL % "printf|vprintf|puts|putchar|perror|fprintf|vfprintf|fputs|fputc", ("src",), ("src/node/config.c",),
     "the library never prints"),
    (CALL % "exit|_exit|_Exit|abort|quick_exit|raise", ("src",), (), "the library never ends the process"),
    (CALL % "kill", ("src",), ("src/os/spawn.c",), "only os/spawn.c ends a process, one that it started"),
    (CALL % "signal|sigaction", ("src",), (), "the library has no signal handlers"),
    (CALL % "clock_gettime|gettimeofday|time|clock", ("src",), ("src/os/",), "only os/ reads the clock"),
    (CALL % "sock_dial", ("src", "cli"), ("src/os/", "src/connect/dial_driver.c"), "only the dialer's driver connects"),
    (CALL % "clock_now|clock_real", ("src/gradient/",), (), "time is an argument there, or the node's: node_now"),
    (r"\bpthread_\w+", ("src",), ("src/os/",), "threads and locks belong to os/"),
    (SEARCH + r"(?:[^();{}]|\([^()]*\))*?" + ERROR_TEXT, ("src", "cli", "bindings"),
     ("src/discovery/helper.c",),  # says the same thing once
     "act on an error's status, reason, rank or origin: its text is for people"),
    (ERROR_TEXT + r"\)?\s*\.\s*(?:find|rfind|compare|substr)\s*\(", ("bindings",), (),
     "act on an error's status, reason, rank or origin: its text is for people"),
]

# Words that the field has a better one for: no identifier of src/ and cli/ is made of them (docs/architecture.md, "Words").
RETIRED = set("applicant arrangement assembly candidate candidates census chair crew desk door doors fellow fellows footing "
              "formation garrison household keeper keepers letter letters lobby office outlook paper partwise passage pen "
              "residence scene secrecy tie tour town tunnel village ward way ways wish wishes workshop".split())
NOT_RETIRED = {"under_way", "one_way", "leash_tie", "leash_tie_gently", "INTERFACE_TUNNEL", "PATH_TUNNEL", "ARP_TUNNEL"}  # what these are called

# The same for Python: line pattern, where, except in, why.
PYTHON_BANNED = [
    (r"\b(?:CDLL|PyDLL|LoadLibrary)\b", ("bindings",), ("bindings/python/hearth/_library.py",),
     "only _library.py loads and declares"),
    (r"^(?:import|from) (?:torch|numpy)\b", ("bindings/python/hearth",), ("bindings/python/hearth/torch/",),
     "import it where it is used: a user may not have it"),
    (r"^\s*except\s*:", ("bindings",), (), "catches Ctrl-C too"),
    (r"\bin str\((?:e|err|error|exc\w*)\)|\bstr\((?:e|err|error|exc\w*)\)\.(?:find|startswith|endswith|index)",
     ("bindings",), (), "act on an error's class, reason or peer: its text is for people"),
]

LINES_OF_FILE, LINES_OF_FUNCTION, COLUMNS, PYTHON_COLUMNS, PARAMETERS = 700, 70, 110, 120, 6
MANY_PARAMETERS = ("src/kernel/", "src/transport/quic_engine.c")  # ngtcp2 gives the types of its callbacks
LONGER_FILES = {"include/hearth.h": 1250, "docs/api.md": 1900, "docs/architecture.md": 800, "docs/wire.md": 800}  # one page each
SKIP_DIRS = {".git", "build", "corpus", "golden", "__pycache__"}
SAME_NAME = {"__init__.py", "__main__.py"}  # Python wants them in every package
SPDX = "SPDX-License-Identifier: Apache-2.0"
CODE, CXX, SCRIPT = {".c", ".h", ".inc"}, {".cc", ".cpp", ".hpp"}, {".py", ".sh", ".cmake", ".yml", ".toml"}

problems = []


def problem(path, line, rule, text):
    problems.append((str(path.relative_to(ROOT)), line, rule, text))


# ---- Reading -------------------------------------------------------------------------------------------------------

def files():
    for directory, names, leaves in os.walk(ROOT):
        names[:] = sorted(n for n in names if n not in SKIP_DIRS and not n.startswith("build-"))
        for leaf in sorted(leaves):
            yield Path(directory) / leaf


def is_script(path):
    if path.suffix in SCRIPT or path.name in ("Makefile", "CMakeLists.txt"):
        return True
    return not path.suffix and path.read_bytes()[:2] == b"#!"


def strip(text):
    """C without comments and the insides of strings; lines stay where they are."""
    pattern = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)

    def blank(match):
        piece = match.group()
        if piece[0] == "/":
            return " " + "\n" * piece.count("\n")
        return piece[0] * 2
    return pattern.sub(blank, text)


def room_of(path):
    parts = path.relative_to(ROOT).parts
    if parts[0] == "src":
        return parts[1]
    return parts[0]


def line_at(text, offset):
    return text.count("\n", 0, offset) + 1


# ---- Rules for every text ------------------------------------------------------------------------------------------

def check_head(path, lines):
    """Licence on the first line, purpose on the second; a script's #! stands before both."""
    first = 1 if lines and lines[0].startswith("#!") else 0
    if len(lines) <= first or SPDX not in lines[first]:
        problem(path, first + 1, "spdx", f"the first line must say {SPDX}")
    elif len(lines) <= first + 1 or not re.match(r'(/\*|#|""")\s*\S+(\s+\S+){2}', lines[first + 1]):
        problem(path, first + 2, "purpose", "the second line must say what the file is for")


def check_lines(path, lines):
    columns = COLUMNS if path.suffix in CODE | CXX else 1000
    if path.suffix == ".py" and room_of(path) in ("bindings", "examples"):
        columns = PYTHON_COLUMNS
    most = LONGER_FILES.get(str(path.relative_to(ROOT)), LINES_OF_FILE)
    if len(lines) > most:
        problem(path, len(lines), "file length", f"{len(lines)} lines, {most} are allowed")
    for number, line in enumerate(lines, 1):
        if "\t" in line and path.name != "Makefile":
            problem(path, number, "tab", "use spaces")
        if line != line.rstrip():
            problem(path, number, "space", "at the end of the line")
        if len(line) > columns:
            problem(path, number, "line length", f"{len(line)} columns, {columns} are allowed")
        if re.search(r"\b(TODO|FIXME|XXX)\b(?!\([^)]+\))", line) and path.name != "check.py":
            problem(path, number, "loose end", "say why, as in TODO(reason), or do it")


# ---- Rules for C ---------------------------------------------------------------------------------------------------

def check_includes(path, text):
    room = room_of(path)
    if room not in INCLUDES:
        return
    allowed = INCLUDES[room] + [room]
    for match in re.finditer(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', text, re.M):
        kind, name = match.groups()
        line = line_at(text, match.start())
        if kind == "<":
            known = name == "hearth.h" or name.removesuffix(".h") in C_LIBRARY or name in SYSTEM.get(room, ())
            if not known and room not in SYSTEM_ANY:
                problem(path, line, "include", f"<{name}>: system headers belong to os/")
        elif name.split("/")[0] == room and (ROOT / name).exists():
            continue
        elif name.startswith("cli/") and (ROOT / name).exists() and {name, name.rpartition("/")[0]} & set(allowed):
            continue
        elif room == "bindings" and (path.parent / name).exists():
            continue
        elif not (ROOT / "src" / name).exists():
            problem(path, line, "include", f'"{name}": write "room/file.h"')
        elif name.split("/")[0] not in allowed and name not in allowed:
            problem(path, line, "include", f'"{name}": {room} may include {" ".join(INCLUDES[room]) or "nothing else"}')


def check_banned(path, code):
    name = str(path.relative_to(ROOT))
    for pattern, where, exceptions, why in BANNED:
        if not name.startswith(where) or name.startswith(exceptions):
            continue
        for match in re.finditer(pattern, code):
            problem(path, line_at(code, match.start()), "banned", f"{match.group().rstrip(' (')}: {why}")


def check_conditionals(path, code):
    """#if is for os/, kernel/, the public header, and for bindings, which follow the versions of others; elsewhere
    files chosen by the build take its place."""
    room = room_of(path)
    if room in ("os", "kernel", "tests", "fuzz", "bindings") or path.name == "hearth.h":
        return
    for match in re.finditer(r"^[ \t]*#[ \t]*(if\w*)\b", code, re.M):
        problem(path, line_at(code, match.start()), "conditional", f"#{match.group(1)} belongs to os/ and kernel/")


def check_once(path, code):
    """One guard for every header, with no name to keep unique; the public one stays within the standard."""
    if path.suffix == ".h" and path.name != "hearth.h" and not re.search(r"^#pragma once$", code, re.M):
        problem(path, 1, "include guard", "write #pragma once")


def check_words(path, code):
    if room_of(path) == "tests" or path.relative_to(ROOT).parts[0] not in ("src", "cli"):
        return
    for match in re.finditer(r"[A-Za-z_]\w*", code):
        if RETIRED & set(match.group().lower().split("_")) and match.group() not in NOT_RETIRED:
            problem(path, line_at(code, match.start()), "retired word", match.group())


def check_dialect(path, code):
    """One way to write what C lets one write in two."""
    if path.suffix not in CODE or path.name == "hearth.h":
        return
    for match in re.finditer(r"[!=]= NULL\b", code):
        problem(path, line_at(code, match.start()), "dialect", f"{match.group()}: write p or !p")
    for match in re.finditer(r"^(?!\s*#).*?\bsizeof\((\*?\w+(?:(?:->|\.)\w+|\[\w*\])+|\*\w+)\)(?!\s*[{[.])", code, re.M):
        problem(path, line_at(code, match.start()), "dialect", f"sizeof({match.group(1)}): write sizeof {match.group(1)}")


def check_tags(path, code, seen):
    if path.relative_to(ROOT).parts[0] not in ("src", "cli"):
        return
    for match in re.finditer(r"\b(?:struct|enum|union)\s+(\w+)\s*\{", code):
        place = f"{path.relative_to(ROOT)}:{line_at(code, match.start())}"
        other = seen.setdefault(match.group(1), place)
        if other != place:
            problem(path, line_at(code, match.start()), "struct tag", f"{match.group(1)} is defined in {other} too")


def check_functions(path, code):
    """Bodies are the braces at depth 0 that follow a parenthesis."""
    code = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", lambda m: "\n" * m.group().count("\n"), code, flags=re.M)
    depth, start, before = 0, 0, ""
    for match in re.finditer(r"[{};]|[^{};]+", code):
        piece = match.group()
        if piece == "{":
            if depth == 0 and re.search(r'extern\s+""\s*$', before):
                continue
            if depth == 0:
                start = match.start() if re.search(r"\)\s*$", before) else -1
            depth += 1
        elif piece == "}":
            depth = max(depth - 1, 0)
            if depth == 0 and start >= 0:
                body = code.count("\n", start, match.start()) - 1
                if body > LINES_OF_FUNCTION:
                    problem(path, line_at(code, start), "function length",
                            f"{body} lines, {LINES_OF_FUNCTION} are allowed")
        before = piece


def check_parameters(path, code):
    """Public calls have what users need, kernels what loops need, and callbacks the type that a library gives them."""
    name = str(path.relative_to(ROOT))
    if not name.startswith(("src/", "cli/")) or name.startswith(MANY_PARAMETERS):
        return
    for match in re.finditer(r"^\w[\w \t*]*?\b(\w+)\(([^;{}]*)\)\s*\{", code, re.M):
        count = re.sub(r"\([^()]*\)", "", match.group(2)).count(",") + 1
        if count > PARAMETERS and not match.group(1).startswith("hearth_"):
            problem(path, line_at(code, match.start()), "parameters", f"{match.group(1)} has {count}, {PARAMETERS} are allowed")


def check_header_alone(path):
    command = [os.environ.get("CC", "cc"), "-std=gnu17", "-fsyntax-only", "-Wall", "-Wextra", "-Werror",
               f"-I{ROOT}/include", f"-I{ROOT}/src", "-x", "c", "-include", str(path), os.devnull]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        problem(path, 1, "header alone", done.stderr.strip().splitlines()[0] if done.stderr else "does not compile")


def check_unique(paths):
    seen = {}
    for path in (p for p in paths if p.name not in SAME_NAME):
        other = seen.setdefault(path.name, path)
        if other is not path:
            problem(path, 1, "file name", f"{other.relative_to(ROOT)} has the same name")


# ---- Rules for Python ----------------------------------------------------------------------------------------------

def check_import_path(path):
    """bindings/python stands on the import path of tests: each directory there is a package for all."""
    parts = path.relative_to(ROOT).parts
    if parts[:2] == ("bindings", "python") and len(parts) > 3 and parts[2] != "hearth":
        problem(path, 1, "package", f"`import {parts[2]}` would find this directory")


def check_python(path, lines):
    name = str(path.relative_to(ROOT))
    for pattern, where, exceptions, why in PYTHON_BANNED:
        if not name.startswith(where) or name.startswith(exceptions):
            continue
        for number, line in enumerate(lines, 1):
            if re.search(pattern, line):
                problem(path, number, "banned", f"{line.strip()}: {why}")


# ---- Rules for documents -------------------------------------------------------------------------------------------

def anchors(path):
    """Headings as GitHub turns them into anchors."""
    heads = re.findall(r"^#+\s+(.*?)\s*$", path.read_text(), re.M)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def check_links(path, text):
    text = re.sub(r"```.*?```", lambda m: "\n" * m.group().count("\n"), text, flags=re.S)
    for match in re.finditer(r"\[[^\]]*\]\(([^)\s]+)\)", text):
        target, _, anchor = match.group(1).partition("#")
        if re.match(r"[a-z]+:", target):
            continue
        there = (path.parent / target).resolve() if target else path
        if not there.exists():
            problem(path, line_at(text, match.start()), "link", f"{target} does not exist")
        elif anchor and there.suffix == ".md" and anchor not in anchors(there):
            problem(path, line_at(text, match.start()), "link", f"{target} has no heading #{anchor}")


# ---- The whole -----------------------------------------------------------------------------------------------------

def check_all():
    c_files, cxx_files, python_files = [], [], []
    lists = {**dict.fromkeys(CODE, c_files), **dict.fromkeys(CXX, cxx_files), ".py": python_files}
    for path in files():
        lists.get(path.suffix, []).append(path)
        if path.suffix == ".md":
            check_links(path, path.read_text())
        elif path.suffix not in lists and not is_script(path):
            continue
        lines = path.read_text().splitlines()
        check_import_path(path)
        check_lines(path, lines)
        if path.suffix != ".md":
            check_head(path, lines)
        if path.suffix == ".py":
            check_python(path, lines)
    tags = {}
    for path in c_files + [p for p in cxx_files if room_of(p) == "bindings"]:
        text = path.read_text()
        code = strip(text)
        check_includes(path, text)
        check_banned(path, code)
        check_conditionals(path, code)
        check_once(path, code)
        check_functions(path, code)
        check_parameters(path, code)
        check_words(path, code)
        check_dialect(path, code)
        check_tags(path, code, tags)
    check_unique([p for p in c_files + cxx_files if room_of(p) != "tests"])
    check_unique(python_files)
    headers = [p for p in c_files if p.suffix == ".h" and p.relative_to(ROOT).parts[0] in ("src", "include")]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(check_header_alone, headers))
    for path, line, rule, text in sorted(problems):
        print(f"{path}:{line}: {rule}: {text}")
    print(f"{len(c_files)} C files, {len(problems)} problems")
    return 1 if problems else 0


def clang_tool(name):
    """clang-format or clang-tidy 14, or None: other versions format and judge in other ways."""
    for tool in (f"{name}-14", name):
        try:
            version = subprocess.run([tool, "--version"], capture_output=True, text=True).stdout
        except FileNotFoundError:
            continue
        if "version 14." in version:
            return tool
    print(f"skipped: {name} 14 is missing: run ./setup --all")
    return None


def run_format(reformat):
    tool = clang_tool("clang-format")
    if not tool:
        return 77
    paths = [p for p in files() if p.suffix in CODE | CXX]
    if reformat:
        return subprocess.run([tool, "-i", *paths]).returncode

    done = subprocess.run([tool, "--dry-run", "-Werror", *paths], stderr=subprocess.PIPE, text=True)
    bad = sorted(set(re.findall(r"^(.+?):\d+:\d+: error: ", done.stderr, re.M)))
    for path in bad:
        print(f"{Path(path).relative_to(ROOT)}:1: format: run make format")
    if done.returncode and not bad:
        print(done.stderr, end="")
    return 1 if done.returncode else 0


def run_tidy():
    """clang-tidy over src and cli with the checks of .clang-tidy, as the build compiles each file."""
    tool, commands = clang_tool("clang-tidy"), ROOT / "build/compile_commands.json"
    if not tool:
        return 77
    paths = sorted({entry["file"] for entry in json.loads(commands.read_text())})
    paths = [p for p in paths if p.startswith((f"{ROOT}/src/", f"{ROOT}/cli/"))]

    def tidy(path):
        return subprocess.run([tool, "--quiet", "-p", commands.parent, path], capture_output=True, text=True)

    failed = 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for done in pool.map(tidy, paths):
            if done.returncode:
                failed += 1
                print(done.stdout or done.stderr, end="")
    print(f"{len(paths)} C files, {failed} with findings of {tool}")
    return 1 if failed or not paths else 0


if __name__ == "__main__":
    if sys.argv[1:] == ["--tidy"]:
        sys.exit(run_tidy())
    if sys.argv[1:] in (["--format"], ["--reformat"]):
        sys.exit(run_format(sys.argv[1] == "--reformat"))
    if sys.argv[1:]:
        sys.exit(f"usage: {sys.argv[0]} [--format | --reformat | --tidy]")
    sys.exit(check_all())
