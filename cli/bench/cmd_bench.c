/* SPDX-License-Identifier: Apache-2.0 */
/* hearth bench: the table of benchmarks. */
#include "cli/commands.h"
#include "cli/shared/args.h"

int cmd_bench(int argc, char **argv)
{
    static const struct subcommand benches[] = {
        {"allreduce", bench_allreduce, "all_reduce among nodes of this process, against memcpy",
         "hearth bench allreduce --transport mem --ranks 4 --bytes 4,1K,64K,1M,16M,100M"},
        {"cluster", bench_cluster, "all_reduce across the machines where `hearth up` runs, verified",
         "hearth bench cluster --sizes 1M,16M"},
    };
    static const struct subcommand_list all = {
        " bench", "benchmark",
        "How fast collectives are. On this machine each is measured side by side with a memcpy of the same\n"
        "bytes in the same run; every result is verified. Exit code 1 if it is wrong.",
        benches, sizeof benches / sizeof *benches};
    return subcommand_run(&all, argc, argv);
}
