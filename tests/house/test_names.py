# SPDX-License-Identifier: Apache-2.0
"""What the documents name exists: make targets, commands with their options, variables, files and functions."""

import functools
import re
import unittest

from house import public_structs, run
from places import BINARY, SOURCE

COMMAND = BINARY / "hearth"
PAGES = [SOURCE / "README.md", SOURCE / "CONTRIBUTING.md", SOURCE / "SECURITY.md", SOURCE / "docs/man/hearth.1",
         *sorted((SOURCE / "docs").glob("*.md"))]
TREE = ("src", "cli", "include", "helper", "bindings", "tests", "fuzz", "bench", "examples", "tools", "cmake")
# Names of other projects, placeholders, and labels of the wire protocol that look like commands.
OF_OTHERS = {"no_new_privs", "process_vm_readv", "tcp_rmem", "tcp_wmem", "batch_isend_irecv"}
PLACEHOLDERS = {"hearth_noun_verb", "noun_verb", "program.py"}
LABELS = {"knock", "namespace", "proof"}


def code_of(page):
    """The parts of a page that are code: spans, blocks, and all lines of the manual in bold or as examples."""
    text = page.read_text()
    if page.suffix == ".1":
        text = text.replace("\\-", "-")
        return re.findall(r'^\.[BI][IR]* "?(hearth .*?)"?$', text, re.M) + re.findall(r"^hearth .*$", text, re.M)
    blocks = [line for block in re.findall(r"^```\w*\n(.*?)^```", text, re.M | re.S) for line in block.splitlines()]
    text = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
    return blocks + re.findall(r"^    (?! *[-*] )(.+)$", text, re.M) + re.findall(r"`([^`]+)`", text)


@functools.lru_cache(None)
def words_of_the_tree():
    """Every identifier of the sources."""
    words = set()
    for top in TREE:
        for path in (SOURCE / top).rglob("*"):
            if path.suffix in (".c", ".h", ".inc", ".cc", ".py", ".sh", ".cmake"):
                words.update(re.findall(r"[A-Za-z_]\w+", path.read_text(errors="replace")))
    return words


@functools.lru_cache(None)
def flags_of(*command):
    return set(re.findall(r"--[a-z][a-z-]*|-n\b", run(COMMAND, *command, "--help")))


def named(pattern):
    """All that a pattern finds in the code of each page, with the page."""
    return sorted({(page.name, found) for page in PAGES for code in code_of(page) for found in re.findall(pattern, code)})


class Names(unittest.TestCase):
    def exist(self, names, exists):
        self.assertGreater(len(names), 5)
        self.assertEqual([f"{page}: {name}" for page, name in names if not exists(name)], [])

    def test_make_targets(self):
        rules = re.findall(r"^([a-z][a-z -]*):", (SOURCE / "Makefile").read_text(), re.M)
        targets = {target for rule in rules for target in rule.split()}
        self.exist(named(r"^make ([a-z][a-z-]*)"), lambda target: target in targets)

    def test_commands_and_options(self):
        commands = set(re.findall(r"^  ([a-z]+) ", run(COMMAND, "--help"), re.M)) | {"help"} | LABELS

        def exists(line):
            words = re.split(r"\s--(?:\s|$)|[#|\"]", line)[0].split()
            if words[0] not in commands:
                return False
            several = words[0] in ("bench", "job", "trust") and len(words) > 1
            options = {word.partition("=")[0] for word in words if word.startswith("--")}
            return options <= (flags_of(*words[:2 if several else 1]) if options else set())

        self.exist(named(r"(?:^|\$ |/)hearth ([a-z].*)"), exists)

    def test_variables_and_constants(self):
        structs = public_structs()
        fields = {re.search(r"(\w+);$", field)[1] for name in ("hearth_config", "hearth_tuning") for field in structs[name]}
        known = words_of_the_tree() | {f"HEARTH_{field.upper()}" for field in fields}
        names = [(page.name, name) for page in PAGES for name in re.findall(r"\bHEARTH_[A-Z_]*[A-Z]\b", page.read_text())]
        self.exist(names, lambda name: name in known)

    def test_files(self):
        files = {str(path.relative_to(SOURCE)) for top in TREE for path in (SOURCE / top).rglob("*")}
        names = {file.rpartition("/")[2] for file in files}

        def exists(file):
            if "/" not in file:
                return file in names | PLACEHOLDERS
            return (SOURCE / file).exists() or any(f"{top}/{file}" in files for top in TREE)

        self.exist(named(r"(?<![\w./-])((?:[a-z_]+/)*[a-z][a-z0-9_]*\.(?:c|h|cc|inc|py|sh|cmake))(?![\w.])"), exists)

    def test_functions(self):
        known = words_of_the_tree() | OF_OTHERS | PLACEHOLDERS
        self.exist(named(r"(?<![\w./$-])([a-z][a-z0-9]*(?:_[a-z0-9]+)+)(?![\w./*-])"), lambda name: name in known)
