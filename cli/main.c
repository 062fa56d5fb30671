/* SPDX-License-Identifier: Apache-2.0 */
/* The hearth command: a table of subcommands and the way into it. */
#include <stdio.h>
#include <string.h>

#include <hearth.h>

#include "cli/commands.h"
#include "cli/shared/args.h"
#include "cli/shared/text.h"

struct command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *about;
    const char *example;
};

static const struct command commands[] = {
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
#define COMMAND_COUNT (sizeof commands / sizeof *commands)

static int print_overview(FILE *file)
{
    const char *bold = paint(file, PAINT_BOLD), *none = paint(file, PAINT_NONE);
    fprintf(file, "Hearth %s: train one model on the machines you own.\n\n", hearth_version_string());
    fprintf(file, "%susage:%s hearth COMMAND [options]\n\n", bold, none);
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        fprintf(file, "  %s%-8s%s %s\n           %s\n", bold, commands[i].name, none, commands[i].about,
                commands[i].example);
    fprintf(file, "  %s%-8s%s what a command takes: hearth help COMMAND, or hearth COMMAND --help\n", bold,
            "help", none);
    fprintf(file, "\n  hearth --version\n");
    return file == stdout ? EXIT_GOOD : EXIT_USAGE;
}

static const struct command *find_command(const char *name)
{
    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        if (strcmp(commands[i].name, name) == 0)
            return &commands[i];
    }
    return NULL;
}

static int refuse_command(const char *name)
{
    if (name[0] == '-') {
        fprintf(stderr, "hearth: there is no flag %s here; a command comes first\nTry: hearth help\n", name);
        return EXIT_USAGE;
    }
    const char *names[COMMAND_COUNT + 2] = {"help", "--version"};
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        names[i + 2] = commands[i].name;
    const char *near = args_nearest(name, names, COMMAND_COUNT + 2);
    if (near)
        fprintf(stderr, "hearth: there is no command '%s'; did you mean '%s'?\nTry: hearth help\n", name,
                near);
    else
        fprintf(stderr, "hearth: there is no command '%s'\nTry: hearth help\n", name);
    return EXIT_USAGE;
}

int main(int argc, char **argv)
{
    char help[] = "--help", *helped[] = {NULL, help, NULL};
    char *word = argc > 1 ? argv[1] : NULL;
    if (!word)
        return print_overview(stderr);
    if (strcmp(word, "--version") == 0 || strcmp(word, "version") == 0)
        return printf("hearth %s\n", hearth_version_string()) < 0;
    bool wants_help = strcmp(word, "help") == 0 || strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0;
    if (wants_help && argc == 2)
        return print_overview(stdout);
    const struct command *command = find_command(wants_help ? argv[2] : word);
    if (!command)
        return refuse_command(wants_help ? argv[2] : word);
    helped[0] = argv[wants_help ? 2 : 1];
    return wants_help ? command->run(2, helped) : command->run(argc - 1, argv + 1);
}
