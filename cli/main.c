/* SPDX-License-Identifier: Apache-2.0 */
/* The hearth command: a table of subcommands and the way into it. */
#include <stdio.h>
#include <string.h>

#include <hearth.h>

#include "cli/commands.h"
#include "cli/shared/args.h"

static const struct subcommand commands[] = {
    {"run", cmd_run, "starts a program as the ranks of one job, here or on several hosts",
     "hearth run -n 4 -- ./train"},
    {"init", cmd_init, "makes the secret of a cluster, and the token by which other machines join",
     "hearth init home"},
    {"join", cmd_join, "joins this machine to a cluster; asks for the token", "hearth join"},
    {"id", cmd_id, "who this node is to others", "hearth id"},
    {"trust", cmd_trust, "which nodes may come, beside having the secret", "hearth trust list"},
    {"up", cmd_up,
     "holds this machine's place in the home cluster, shows the others, runs a program with them",
     "hearth up"},
    {"status", cmd_status, "the cluster as the node that runs here sees it: members, health, links",
     "hearth status"},
    {"nodes", cmd_nodes, "who is out there, and why a node that is seen is not a member", "hearth nodes"},
    {"topology", cmd_topology, "the measured map: speeds, round trips, ring, sites",
     "hearth topology --dot | dot -Tsvg -o cluster.svg"},
    {"job", cmd_job, "which jobs may still run on other machines, and forgetting one that does not",
     "hearth job list"},
    {"doctor", cmd_doctor, "checks this machine: network, ports, files, limits; says what to mend",
     "hearth doctor"},
    {"demo", cmd_demo, "a race: four processes behind slow lines train one model with each codec",
     "hearth demo"},
    {"plan", cmd_plan, "what each rank does in a collective, and what it costs",
     "hearth plan --kind all_reduce --algo ring --ranks 8"},
    {"sim", cmd_sim, "a collective of many ranks on a network you describe, on virtual time",
     "hearth sim --ranks 1000 --bytes 100M --rate 1gbit --rtt 200us --algo all"},
    {"bench", cmd_bench, "how fast collectives are, here and across the cluster",
     "hearth bench allreduce --transport mem --ranks 4"},
};

int main(int argc, char **argv)
{
    char about[128];
    const struct subcommand_list all = {"", "command", about, commands, sizeof commands / sizeof *commands};
    if (argc == 2 && (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "version") == 0))
        return printf("hearth %s\n", hearth_version_string()) < 0;
    snprintf(about, sizeof about, "Hearth %s: train one model on the machines you own.",
             hearth_version_string());
    return subcommand_run(&all, argc, argv);
}
