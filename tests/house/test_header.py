# SPDX-License-Identifier: Apache-2.0
"""The public header in every language it promises, and a program that uses all that it declares."""

import shutil
import tempfile
import unittest
from pathlib import Path

from house import BINARY, CC, CXX, SOURCE, public_constants, public_functions, run, version

STRICT = ["-Wall", "-Wextra", "-pedantic", "-Werror", "-I", SOURCE / "include"]

PROGRAM = """#include <hearth.h>
#include <stdio.h>
typedef void any_function(void);
static any_function *const functions[] = {%s};
static const long long constants[] = {%s};
int main(void)
{
    size_t found = 0;
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++)
        found += functions[i] != NULL;
    struct hearth_config config;
    struct hearth_opts opts;
    hearth_config_init(&config);
    hearth_opts_init(&opts);
    if (config.size != sizeof config || opts.size != sizeof opts)
        return 1;
    if (hearth_version() != (HEARTH_VERSION_MAJOR << 16 | HEARTH_VERSION_MINOR << 8 | HEARTH_VERSION_PATCH))
        return 2;
    printf("%%s %%zu %%zu\\n", hearth_version_string(), found, sizeof constants / sizeof constants[0]);
    return 0;
}
"""


class Header(unittest.TestCase):
    def setUp(self):
        self.dir = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.dir)

    def compiles(self, compiler, language, standard):
        source = self.dir / "only.c"
        source.write_text("#include <hearth.h>\n")
        run(compiler, "-x", language, f"-std={standard}", "-fsyntax-only", *STRICT, source)

    def test_c(self):
        for standard in ("c99", "c11", "c17"):
            with self.subTest(standard):
                self.compiles(CC, "c", standard)

    @unittest.skipUnless(shutil.which(CXX), "no C++ compiler")
    def test_cxx(self):
        for standard in ("c++11", "c++17", "c++20"):
            with self.subTest(standard):
                self.compiles(CXX, "c++", standard)

    def test_everything_declared_is_there(self):
        functions, constants = public_functions(), public_constants()
        source, program = self.dir / "all.c", self.dir / "all"
        source.write_text(PROGRAM % (", ".join(f"(any_function *){f}" for f in functions), ", ".join(constants)))
        run(CC, "-std=gnu17", "-Wall", "-Werror", "-I", SOURCE / "include", source, "-o", program, "-L", BINARY,
            "-lhearth", f"-Wl,-rpath,{BINARY}")
        self.assertEqual(run(program).split(), [version(), str(len(functions)), str(len(constants))])


if __name__ == "__main__":
    unittest.main(verbosity=2)
