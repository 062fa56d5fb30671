/* SPDX-License-Identifier: Apache-2.0 */
/* The hearth command: a table of subcommands. */
#include <stdio.h>
#include <string.h>

#include <hearth.h>

#include "cli/commands.h"
#include "cli/shared/args.h"

static const struct subcommand commands[] = {
    {"run", cmd_run, "starts a program as the ranks of one job, here or on several hosts",
     "hearth run -n 4 -- ./train"},
    {"init", cmd_init, "creates a cluster: its secret, and the token by which other machines join",
     "hearth init home"},
    {"join", cmd_join, "joins this machine to a cluster; asks for the token", "hearth join"},
    {"id", cmd_id, "shows this node's id", "hearth id"},
    {"trust", cmd_trust, "which nodes may join, besides having the secret", "hearth trust list"},
    {"up", cmd_up, "keeps this machine in its cluster, shows the other members, runs a program with them",
     "hearth up"},
    {"status", cmd_status, "the cluster as this machine's node sees it: members, health, links",
     "hearth status"},
    {"nodes", cmd_nodes, "nodes on the network, and why a visible node is not a member", "hearth nodes"},
    {"topology", cmd_topology, "the measured map: speeds, round trips, ring, sites",
     "hearth topology --dot | dot -Tsvg -o cluster.svg"},
    {"job", cmd_job, "lists jobs that may still run on other machines, forgets one that does not",
     "hearth job list"},
    {"doctor", cmd_doctor, "checks this machine: network, ports, files, limits; says how to fix it",
     "hearth doctor"},
    {"demo", cmd_demo, "a race: four processes behind slow lines train one model, once with each codec",
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
