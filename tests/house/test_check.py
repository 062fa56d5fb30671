# SPDX-License-Identifier: Apache-2.0
"""tools/check.py finds what it is there to find, and nothing in a clean tree."""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from places import SOURCE

HEAD = "/* SPDX-License-Identifier: Apache-2.0 */\n/* A file made for this test. */\n"
PYTHON = '# SPDX-License-Identifier: Apache-2.0\n"""A module made for this test."""\n'
LONG_BODY = "int f(void);\nint f(void)\n{\n" + "    (void)0;\n" * 71 + "    return 0;\n}\n"

# File, its text, the rule that it breaks.
CASES = (
    ("src/core/a.c", "int x;\n", "spdx"),
    ("src/core/a.c", "/* SPDX-License-Identifier: Apache-2.0 */\nint x;\n", "purpose"),
    ("src/core/a.c", HEAD + '#include "os/clock.h"\n', "include"),
    ("src/core/a.c", HEAD + "#include <sys/socket.h>\n", "include"),
    ("src/wire/a.c", HEAD + '#include "os/clock.h"\n', "include"),
    ("src/os/a.c", HEAD + '#include "clock.h"\n', "include"),
    ("examples/a.c", HEAD + '#include "os/clock.h"\n', "include"),
    ("src/core/a.c", HEAD + "void *f(void) { return malloc(1); }\n", "banned"),
    ("src/core/a.c", HEAD + "void f(void) { printf(0); }\n", "banned"),
    ("src/core/a.c", HEAD + "long f(void) { return time(0); }\n", "banned"),
    ("src/core/a.c", HEAD + "pthread_mutex_t m;\n", "banned"),
    ("cli/a.c", HEAD + "void f(char *a, char *b) { strcpy(a, b); }\n", "banned"),
    ("src/core/a.c", HEAD + 'int f(struct error *error) { return strstr(error->text, "lost") != 0; }\n', "banned"),
    ("src/core/a.c", HEAD + 'int f(struct x *x) { return !strcmp(x->peer.failure.text + 3, "lost"); }\n', "banned"),
    ("src/core/a.c", HEAD + 'int f(const char *why) { return strncmp(why, "it is busy", 10) == 0; }\n', "banned"),
    ("src/core/a.c", HEAD + 'int f(int *n) { return sscanf(said.text,\n" on rank %d", n); }\n', "banned"),
    ("cli/a.c", HEAD + 'int f(void) { return strstr(hearth_error_text(), "secret") != 0; }\n', "banned"),
    ("cli/a.c", HEAD + 'int f(hearth_request *r) { return strcasestr(hearth_request_error(r), "lost") != 0; }\n',
     "banned"),
    ("bindings/a/b.cpp", HEAD + 'bool f() { return failure.text.find("lost") != 0; }\n', "banned"),
    ("bindings/a/b.cpp", HEAD + 'bool f() { return strstr(error.what(), "lost"); }\n', "banned"),
    ("src/core/a.c", HEAD + "#ifdef __linux__\n#endif\n", "conditional"),
    ("src/core/a.c", HEAD + LONG_BODY, "function length"),
    ("src/core/a.c", HEAD + "int f(int a, int b, int c, int d, int e, int g, int h)\n{\n}\n", "parameters"),
    ("src/core/a.c", HEAD + "\n" * 700, "file length"),
    ("src/core/a.c", HEAD + "/* " + "x" * 110 + " */\n", "line length"),
    ("src/core/a.c", HEAD + "\tint x;\n", "tab"),
    ("src/core/a.c", HEAD + "int x; \n", "space"),
    ("src/core/a.c", HEAD + "/* TO" "DO: later */\n", "loose end"),
    ("src/core/a.h", HEAD + "size_t x;\n", "header alone"),
    ("src/core/a.h", HEAD + "extern int x;\n", "include guard"),
    ("src/wire/clock.h", HEAD, "file name"),
    ("src/core/a.c", HEAD + "struct a { int x; };\nvoid f(void) { struct a { int y; } z; }\n", "struct tag"),
    ("src/core/a.c", HEAD + "int home_desk;\n", "retired word"),
    ("cli/a.c", HEAD + "int LETTER_MAX;\n", "retired word"),
    ("src/core/a.c", HEAD + "int f(void *p) { return p == NULL; }\n", "dialect"),
    ("tests/a.c", HEAD + "int f(int *p) { return (int)sizeof(*p); }\n", "dialect"),
    ("bindings/a/b.cpp", HEAD + '#include "core/heap.h"\n', "include"),
    ("bindings/a/b.cpp", HEAD + "void f(char *a, char *b) { strcpy(a, b); }\n", "banned"),
    ("bindings/a/b.cpp", HEAD + "/* " + "x" * 110 + " */\n", "line length"),
    ("bindings/a/b.cpp", "int x;\n", "spdx"),
    ("bindings/python/hearth/a.py", PYTHON + "x = ctypes.CDLL('libhearth.so')\n", "banned"),
    ("bindings/python/hearth/a.py", PYTHON + "import torch\n", "banned"),
    ("bindings/python/hearth/a.py", PYTHON + "from numpy import array\n", "banned"),
    ("bindings/python/hearth/a.py", PYTHON + "try:\n    f()\nexcept:\n    pass\n", "banned"),
    ("bindings/python/hearth/a.py", PYTHON + "def f(error):\n    return 'lost' in str(error)\n", "banned"),
    ("bindings/python/hearth/a.py", PYTHON + "#" * 121 + "\n", "line length"),
    ("tests/net/_library.py", PYTHON, "file name"),
    ("bindings/python/torch/other.cc", HEAD, "package"),
    ("docs/a.md", "[there](nowhere.md)\n", "link"),
    ("docs/a.md", "# Here\n\n[there](#there)\n", "link"),
)

CLEAN = (
    ("src/os/clock.h", HEAD + "#pragma once\n\n#include <time.h>\n"),
    ("src/os/clock.c", HEAD + '#include "os/clock.h"\n#ifdef __linux__\n#endif\n'),
    ("src/core/heap.c", HEAD + "#include <stdlib.h>\nvoid f(void *p) { free(p); } /* not strcpy(a, b) */\n"),
    ("src/core/names.c", HEAD + "int f(struct error *e, char *s) { g(strcmp(s, 0), error->text); }\n"),
    ("bindings/python/hearth/_library.py", PYTHON + "lib = ctypes.CDLL('libhearth.so')\n"),
    ("bindings/python/hearth/__init__.py", PYTHON + "def f():\n    import torch\n"),
    ("bindings/python/hearth/torch/__init__.py", PYTHON + "import torch\n"),
    ("bindings/torch/part.hpp", HEAD + "#include <hearth.h>\n#include <torch/extension.h>\n"),
    ("bindings/torch/part.cpp", HEAD + '#include "part.hpp"\n'),
    ("docs/b.md", "# A heading\n\n[there](#a-heading), [code](../src/os/clock.c)\n\n```\n[not](a-link.md)\n```\n"),
)


class Check(unittest.TestCase):
    def setUp(self):
        self.dir = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.dir)
        for name, text in CLEAN:
            self.write(name, text)

    def write(self, name, text):
        (self.dir / name).parent.mkdir(parents=True, exist_ok=True)
        (self.dir / name).write_text(text)

    def check(self):
        return subprocess.run([sys.executable, "-B", SOURCE / "tools/check.py"], capture_output=True, text=True,
                              env={**os.environ, "HEARTH_CHECK_ROOT": str(self.dir)})

    def test_clean_tree(self):
        done = self.check()
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_each_rule(self):
        for name, text, rule in CASES:
            with self.subTest(rule, text=text[-60:]):
                self.write(name, text)
                done = self.check()
                self.assertEqual(done.returncode, 1)
                self.assertRegex(done.stdout, rf"(?m)^{name}:\d+: {rule}: ")
                (self.dir / name).unlink()
