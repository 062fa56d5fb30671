# SPDX-License-Identifier: Apache-2.0
"""What the docstrings show is true, and help() shows it."""

import doctest
import importlib
import inspect
import io
import pkgutil
import pydoc

from members import Watched

import hearth


class Examples(Watched):
    def test_docstrings(self):
        tried = 0
        for module in pkgutil.iter_modules(hearth.__path__, "hearth."):
            if module.ispkg or not module.name.startswith("hearth._"):
                continue  # hearth.torch has tests of its own; hearth.selftest is a program
            told = io.StringIO()
            runner = doctest.DocTestRunner()
            here = importlib.import_module(module.name)
            for test in doctest.DocTestFinder().find(here, extraglobs={"hearth": hearth}):
                runner.run(test, out=told.write)
            self.assertEqual(runner.failures, 0, told.getvalue())
            tried += runner.tries
        self.assertEqual(doctest.testmod(hearth).failed, 0)
        self.assertGreater(tried, 30)

    def test_help(self):
        text = pydoc.render_doc(hearth, renderer=pydoc.plaintext)
        for words in ("train one model", "node.world.all_reduce(gradient", "class Compressor", "open(**config"):
            self.assertIn(words, text)
        text = pydoc.render_doc(hearth.Group, renderer=pydoc.plaintext)
        for words in ("all_reduce(", "scatterv_nb(", "-> hearth._futures.Future", "timeout     seconds"):
            self.assertIn(words, text)
        self.assertEqual(str(inspect.signature(hearth.Group.all_reduce)).replace("typing.", ""),
                         "(self, source: Any, target: Any = None, op: str = 'sum', **options: Any) -> Any")

    def test_everything_public_has_a_docstring_and_types(self):
        for name in hearth.__all__:
            thing = getattr(hearth, name)
            if inspect.isclass(thing) and thing.__module__.startswith("hearth._") and not issubclass(thing, tuple):
                for label, method in vars(thing).items():
                    if not label.startswith("_") and inspect.isfunction(method):
                        self.assertTrue(method.__doc__, f"{name}.{label}")
                        self.assertIn("return", method.__annotations__, f"{name}.{label}")
