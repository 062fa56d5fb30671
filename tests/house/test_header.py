# SPDX-License-Identifier: Apache-2.0
"""The public header in every language it promises, and a program that uses all that it declares."""

import re
import shutil
import tempfile
import unittest
from pathlib import Path

from house import CC, CXX, HEADER, public_constants, public_functions, public_structs, run, version, without_comments
from places import BINARY, SOURCE

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


# A program that uses every struct of the interface, each with guard bytes behind it. Compiled against headers with
# fewer and with more fields than the library has.
CLIENT = """#include <hearth.h>
#include <stdio.h>
#include <string.h>
#define GUARDED(type, name) struct { struct type it; unsigned char guard[512]; } name; memset(&name, 0xa5, sizeof name)
#define CHECK(what) do { if (!(what)) { printf("%%s: %%s\\n", #what, hearth_error_text()); return 1; } } while (0)
static int intact(const unsigned char *guard)
{
    for (int i = 0; i < 512; i++)
        if (guard[i] != 0xa5)
            return 0;
    return 1;
}
int main(void)
{
    GUARDED(hearth_config, config);
    GUARDED(hearth_opts, opts);
    GUARDED(hearth_compressor_config, compressing);
    GUARDED(hearth_compressor_stats, stats);
    GUARDED(hearth_member, member);
    GUARDED(hearth_tensor, tensor);
    hearth_node *node;
    hearth_compressor *compressor;
    float x = 3;
    hearth_config_init(&config.it);
    hearth_opts_init(&opts.it);
    hearth_compressor_config_init(&compressing.it);
    hearth_tensor_init(&tensor.it);
    CHECK(config.it.size == sizeof config.it && opts.it.size == sizeof opts.it);
    CHECK(compressing.it.size == sizeof compressing.it && tensor.it.size == sizeof tensor.it);
    CHECK(hearth_config_env(&config.it) == HEARTH_OK);
    CHECK(hearth_node_open_local(&config.it, 1, &node) == HEARTH_OK);
    hearth_group *group = hearth_node_world(node);
    opts.it.timeout_ms = 5000;
    CHECK(hearth_all_reduce(group, &x, &x, 1, HEARTH_F32, HEARTH_OP_SUM, &opts.it) == HEARTH_OK && x == 3);
    CHECK(hearth_compressor_open(group, &compressing.it, &compressor) == HEARTH_OK);
    tensor.it.name = "x";
    tensor.it.data = &x;
    CHECK(hearth_compressor_all_reduce(compressor, &tensor.it, HEARTH_OP_SUM, &opts.it) == HEARTH_OK && x == 3);
    stats.it.size = sizeof stats.it;
    CHECK(hearth_compressor_stats(compressor, NULL, &stats.it) == HEARTH_OK && stats.it.size == sizeof stats.it);
    CHECK(stats.it.tensors == 1);
    member.it.size = sizeof member.it;
    CHECK(hearth_group_member(group, 0, &member.it) == HEARTH_OK && member.it.size == sizeof member.it);
    CHECK(member.it.rank == 0);
    CHECK(intact(config.guard) && intact(opts.guard) && intact(compressing.guard) && intact(tensor.guard));
    CHECK(intact(stats.guard) && intact(member.guard));
%s
    hearth_node_close(node);
    puts("understood");
    return 0;
}
"""

# What it checks besides where it has more fields than the library: those are zero, and cannot be asked for.
NEWER = """    CHECK(config.it.added == 0 && opts.it.added == 0 && compressing.it.added == 0 && tensor.it.added == 0);
    CHECK(stats.it.added == 0 && member.it.added == 0);
    opts.it.added = 1;
    CHECK(hearth_barrier(group, &opts.it) == HEARTH_UNSUPPORTED);
    config.it.added = 1;
    CHECK(hearth_node_open_local(&config.it, 1, &node) == HEARTH_UNSUPPORTED);
    tensor.it.added = 1;
    CHECK(hearth_compressor_all_reduce(compressor, &tensor.it, HEARTH_OP_SUM, NULL) == HEARTH_UNSUPPORTED);
    compressing.it.added = 1;
    CHECK(hearth_compressor_open(group, &compressing.it, &compressor) == HEARTH_UNSUPPORTED);
"""


def other_header(change):
    """The header with other fields: `change` gets a struct's declarations and gives those that it has there."""
    text = without_comments(HEADER)
    for name, fields in public_structs().items():
        body = " ".join(change(fields))
        text = re.sub(rf"^struct {name} \{{.*?^\}};", f"struct {name} {{ {body} }};", text, flags=re.M | re.S)
    return text


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

    def client(self, header, more=""):
        """What a program says that was compiled against this header and runs on the library as it is."""
        (self.dir / "hearth.h").write_text(header)
        source, program = self.dir / "client.c", self.dir / "client"
        source.write_text(CLIENT % more)
        run(CC, "-std=gnu17", "-Wall", "-Werror", "-I", self.dir, source, "-o", program, "-L", BINARY, "-lhearth",
            f"-Wl,-rpath,{BINARY}")
        return run(program).strip()

    def test_a_client_with_fewer_fields(self):
        for cut in (1, 2, 3, 5, 8, 13, 21, 34):
            with self.subTest(cut=cut):  # size and the next field always stay, of a tensor name and data too
                header = other_header(lambda fields: fields[:max(len(fields) - cut, 3)])
                self.assertEqual(self.client(header), "understood")

    def test_a_client_with_more_fields(self):
        header = other_header(lambda fields: fields + ["uint64_t added;"])
        self.assertEqual(self.client(header, NEWER), "understood")

    def test_structs_begin_with_their_size_and_end_without_padding(self):
        lines = []
        for name, fields in public_structs().items():
            if name == "hearth_iovec":
                continue  # an element of arrays, as struct iovec: it cannot grow
            self.assertEqual(fields[0], "size_t size;", name)
            last = re.search(r"(\w+)(\[\d+\])?;$", fields[-1])[1]
            lines.append(f"_Static_assert(offsetof(struct {name}, {last}) + sizeof(((struct {name} *)0)->{last}) == "
                         f'sizeof(struct {name}), "a field added to {name} would stand in former padding");')
        source = self.dir / "padding.c"
        source.write_text("#include <hearth.h>\n" + "\n".join(lines))
        run(CC, "-std=c11", "-fsyntax-only", "-I", SOURCE / "include", source)
