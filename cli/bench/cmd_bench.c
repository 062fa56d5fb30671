/* SPDX-License-Identifier: Apache-2.0 */
/* hearth bench: the table of benchmarks. */
#include <stdio.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/shared/args.h"
#include "cli/shared/text.h"

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *about;
    const char *example;
} benches[] = {
    {"allreduce", bench_allreduce, "all_reduce among nodes of this process, against memcpy",
     "hearth bench allreduce --transport mem --ranks 4 --bytes 4,1K,64K,1M,16M,100M"},
    {"cluster", bench_cluster, "all_reduce across the machines where `hearth up` runs, verified",
     "hearth bench cluster --sizes 1M,16M"},
};
#define BENCH_COUNT (sizeof benches / sizeof *benches)

static void print_overview(FILE *file)
{
    const char *bold = paint(file, PAINT_BOLD), *none = paint(file, PAINT_NONE);
    fprintf(file, "%susage:%s hearth bench WHAT [options]\n\n", bold, none);
    fprintf(file, "How fast collectives are. On this machine each is measured side by side with a\n"
                  "memcpy of the same bytes in the same run; every result is verified. Exit code 1 if it is "
                  "wrong.\n\n");
    for (size_t i = 0; i < BENCH_COUNT; i++)
        fprintf(file, "  %s%-10s%s %s\n", bold, benches[i].name, none, benches[i].about);
    fprintf(file, "\n%sexamples:%s\n", bold, none);
    for (size_t i = 0; i < BENCH_COUNT; i++)
        fprintf(file, "  %s\n", benches[i].example);
    fprintf(file, "\nTry: hearth bench allreduce --help\n");
}

int cmd_bench(int argc, char **argv)
{
    const char *names[BENCH_COUNT];
    if (argc < 2) {
        print_overview(stderr);
        return EXIT_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        print_overview(stdout);
        return EXIT_GOOD;
    }
    for (size_t i = 0; i < BENCH_COUNT; i++) {
        if (strcmp(argv[1], benches[i].name) == 0)
            return benches[i].run(argc, argv);
        names[i] = benches[i].name;
    }
    const char *near = args_nearest(argv[1], names, BENCH_COUNT);
    fprintf(stderr, "hearth bench: there is no benchmark '%s'; %s%s\nTry: hearth bench --help\n", argv[1],
            near ? "try " : "there are allreduce and cluster", near ? near : "");
    return EXIT_USAGE;
}
