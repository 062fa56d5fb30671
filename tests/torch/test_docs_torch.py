# SPDX-License-Identifier: Apache-2.0
"""What docs/pytorch.md says of options and codecs is so, as far as a script can see it."""

import ast
import inspect
import re
import unittest

import hearth
import hearth.torch
from places import SOURCE

PAGE = (SOURCE / "docs/pytorch.md").read_text()


class Page(unittest.TestCase):
    def test_options_of_a_state(self):
        (table,) = re.findall(r"\| option \| default \| \|\n\|---\|---\|---\|\n((?:\|.*\|\n)+)", PAGE)
        rows = re.findall(r"^\| `(\w+)` \| `([^`]+)` \|", table, re.M)
        told = {name: ast.literal_eval(value) for name, value in rows}
        options = inspect.signature(hearth.torch.State).parameters
        self.assertEqual(told, {name: option.default for name, option in options.items()})

    def test_blocks_are_python(self):
        blocks = re.findall(r"```python\n(.*?)```", PAGE, re.S)
        self.assertGreaterEqual(len(blocks), 6)
        for block in blocks:
            ast.parse(block)

    def test_codecs_exist(self):
        kinds = "none|fp16|bf16|int8|onebit|topk|randomk|powersgd|auto"
        named = set(re.findall(rf"[`\"]((?:{kinds})(?::[\w.:,=]*\w)?)[`\"]", PAGE)) - {"auto"}
        self.assertGreater(len(named), 8)
        for codec in named:
            with self.subTest(codec):
                hearth.codec_check(codec)

    def test_variables_exist(self):
        known = "".join((SOURCE / file).read_text() for file in ("src/node/config.c",
                                                                 "bindings/python/hearth/torch/_backend.py"))
        names = set(re.findall(r'"(HEARTH_[A-Z_]+)"', known))  # numbers have the names of their fields
        names |= {f"HEARTH_{field.upper()}" for field in re.findall(r"FIELD\(\w+, (\w+)\)", known)}
        for name in set(re.findall(r"`(HEARTH_[A-Z_]*[A-Z])\b", PAGE)):
            with self.subTest(name):
                self.assertIn(name, names)
