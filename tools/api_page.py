#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints docs/api.md, which is made of include/hearth.h: python3 tools/api_page.py > docs/api.md"""

import re
import sys
import textwrap
from pathlib import Path

HEADER = Path(__file__).resolve().parent.parent / "include/hearth.h"

HEAD = """<!-- SPDX-License-Identifier: Apache-2.0 -->
<!-- Made by tools/api_page.py from include/hearth.h; a test compares the two. -->
# C interface

All public functions, types and constants of `libhearth`, in the order of [include/hearth.h](../include/hearth.h).
[training.md](training.md) shows how they work together.
"""

# One piece of the header: a comment at the margin, or a declaration with the comment behind it.
PIECE = re.compile(r"""
    (?P<comment>^/\*.*?\*/$)
  | (?P<block>^(?:enum|struct)\ \w+\ \{.*?^\};$)
  | (?P<inline>^static\ inline.*?^\}$)
  | (?P<plain>^(?:(?:HEARTH_API|typedef)[^;]*;(?:\ */\*.*?\*/)?|\#define\ HEARTH_\w+\ .*?)$)
  | (?P<gap>^\n)
""", re.M | re.S | re.X)


def words(comment):
    """The text of a comment without its marks, line by line."""
    return [re.sub(r"^ ?\*(?!/) ?|^/\* ?", "", line).removesuffix("*/").rstrip() for line in comment.split("\n")]


def escaped(text):
    """Text in which only backticks mean something to Markdown."""
    parts = text.split("`")
    return "`".join(p if i % 2 else re.sub(r"([*<|])", r"\\\1", p) for i, p in enumerate(parts))


def prose(lines):
    """Paragraphs, lists and drawings of a comment as Markdown."""
    out = []
    for line in lines:
        if re.match(r" +- ", line):
            out.append(["-", line.strip()[2:]])
        elif line.startswith("  ") and not (out and out[-1][0] == "-"):
            if not (out and out[-1][0] == "code"):
                out.append(["code"])
            out[-1].append("    " + line[2:])
        elif not line:
            out.append([""])
        elif out and out[-1][0] in ("-", "text"):
            out[-1].append(line.strip())
        else:
            out.append(["text", line])
    result, before = [], ""
    for kind, *rest in out:
        if kind != before or kind != "-":
            result.append("")
        if kind == "code":
            result += rest
        elif kind:
            result += textwrap.wrap(escaped(" ".join(rest)), 118, initial_indent="- " * (kind == "-"), break_long_words=False,
                                    subsequent_indent="  " * (kind == "-"), break_on_hyphens=False)
        before = kind
    return re.sub(r"\n\n+", "\n\n", "\n".join(result)).strip("\n")


def table(block):
    """Fields of a struct, or constants of an enum, one row each; a comment on its own line is a row of its own."""
    kind, name = re.match(r"(enum|struct) (\w+)", block).groups()
    rows = [f"### {kind} {name}", "", "| field | type | meaning |" if kind == "struct" else "| constant | value | meaning |",
            "|---|---|---|"]
    body, number = block.partition("{")[2].rpartition("}")[0], 0
    for match in re.finditer(r"^ +(/\*.*?\*/)$|^ +([^/]+?)[;,]?[ \n]*(/\*.*?\*/)?$", body, re.M | re.S):
        alone, declared, behind = match.groups()
        text = escaped(" ".join(" ".join(words(alone or behind or "")).split()))
        if alone:
            rows.append(f"| | | **{text}** |")
        elif kind == "struct":
            kinds, names = re.match(r"(.*?[ *])(\w+(?:\[\d+\])?(?:, \w+)*)$", " ".join(declared.split())).groups()
            rows.append(f"| `{names}` | `{kinds.strip()}` | {text} |")
        else:
            constant, _, value = (part.strip() for part in declared.partition("="))
            number = value or str(int(number) + 1)
            rows.append(f"| `{constant}` | {number} | {text} |")
    return "\n".join(rows).replace("|  |", "| |")


def page(header):
    """The whole page. A comment belongs to the declarations that follow it without an empty line."""
    header = header[header.index("/* ----"):header.rindex("#ifdef __cplusplus")]
    out, comment, code = [HEAD], [], []

    def flush():
        if code:
            names = [n for c in code for n in re.findall(r"\b(hearth_\w+)(?=\s*\()|^#define (\w+)|(hearth_\w+);", c)[:1]]
            if len(names) < 4:
                out.append("### " + ", ".join(next(filter(None, n)) for n in names))
            out.append("```c\n" + "\n".join(code) + "\n```")
        if comment:
            out.append(prose(comment))
        comment.clear()
        code.clear()

    for match in PIECE.finditer(header):
        if match["comment"]:
            flush()
            lines = words(match["comment"])
            banner = re.match(r"-+ (.*?) -+$", lines[0])
            if banner:
                out.append(f"## {banner[1]}")
                out.append(prose(lines[1:]))
            else:
                comment += lines
        elif match["block"]:
            text = prose(comment)
            comment.clear()
            flush()
            name, _, rows = table(match["block"]).partition("\n\n")
            out += [name, text, rows]
        elif match["plain"]:
            code.append(re.sub(r"^HEARTH_API |^ {11}(?= )", "", match["plain"].strip(), flags=re.M))
        elif match["inline"]:
            code.append(match["inline"].removeprefix("static inline ").partition("\n")[0] + ";")
        elif match["gap"]:
            flush()
    flush()
    return "\n\n".join(piece for piece in out if piece).replace(HEAD + "\n", HEAD) + "\n"


if __name__ == "__main__":
    sys.stdout.write(page(HEADER.read_text()))
