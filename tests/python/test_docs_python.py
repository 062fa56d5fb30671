# SPDX-License-Identifier: Apache-2.0
"""What docs/python.md, training.md and compression.md show is so: examples behind >>> are run, others are at least Python, and every name exists."""

import ast
import doctest
import re

from members import Watched
from places import SOURCE

import hearth

PAGE = (SOURCE / "docs/python.md").read_text()
TRAINING = (SOURCE / "docs/training.md").read_text()
COMPRESSION = (SOURCE / "docs/compression.md").read_text()


class Page(Watched):
    def test_examples(self):
        runner, said = doctest.DocTestRunner(), []
        for name, page in (("python.md", PAGE), ("training.md", TRAINING), ("compression.md", COMPRESSION)):
            runner.run(doctest.DocTestParser().get_doctest(page, {}, name, f"docs/{name}", 0), out=said.append)
        failed, tried = runner.summarize(verbose=False)
        self.assertEqual(failed, 0, "".join(said))
        self.assertGreater(tried, 15)

    def test_blocks_are_python(self):
        blocks = re.findall(r"```python\n(.*?)```", PAGE + TRAINING, re.S)
        self.assertGreaterEqual(len(blocks), 2)
        for block in blocks:
            ast.parse(block)

    def test_exceptions(self):
        for group, members in re.findall(r"^\| `(\w+)` \|[^|]*\| (`.*`) \|$", PAGE, re.M):
            for name in re.findall(r"`(\w+)`", members):
                with self.subTest(name):
                    self.assertTrue(issubclass(getattr(hearth, name), getattr(hearth, group)))

    def test_collectives(self):
        rows = re.findall(r"^\| `(\w+)\(([^)]*)\)`", PAGE, re.M)
        self.assertGreaterEqual(len(rows), 12)
        for name, arguments in rows:
            with self.subTest(name):
                method = getattr(hearth.Group, name)
                for argument in re.findall(r"(\w+)(?:=|,|$)", arguments):
                    if argument not in ("None", "0"):
                        self.assertIn(argument.strip('"'), (*method.__code__.co_varnames, "sum"))

    def test_anything_else_that_is_called(self):
        for name in set(re.findall(r"`hearth\.(\w+)", PAGE)) - {"selftest", "torch"}:
            with self.subTest(name):
                self.assertTrue(hasattr(hearth, name), name)
