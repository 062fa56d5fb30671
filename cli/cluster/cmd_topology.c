/* SPDX-License-Identifier: Apache-2.0 */
/* hearth topology: the map of the cluster, as it was measured. */
#include <stdio.h>

#include "cli/cluster/node_query.h"
#include "cli/cluster/topology_text.h"
#include "cli/commands.h"
#include "cli/shared/args.h"

static int show(const json_t *status, bool dot, bool json)
{
    if (json) {
        json_t *part = topology_part(status);
        int code = part ? print_answer(part) : EXIT_FAILED_CHECK;
        json_decref(part);
        return code;
    }
    if (dot)
        topology_dot(status, stdout);
    else
        topology_print(status, stdout);
    return print_done();
}

int cmd_topology(int argc, char **argv)
{
    bool dot = false, json = false;
    const struct arg args[] = {
        {"dot", ARG_FLAG, &dot, .about = "print a graph for graphviz: sites, ways by speed, the ring thick"},
        {"json", ARG_FLAG, &json, .about = "print one JSON object"},
    };
    const struct usage usage = {
        "topology",
        "Draws the cluster as its members have measured it: bandwidth and round trip of every way, the order "
        "of the ring with its slowest way, and sites, which are members joined by fast ways. Asks the node "
        "that runs here; exits with 3 if none does (hearth up).",
        "hearth topology --dot | dot -Tsvg -o cluster.svg", USAGE_ARGS(args), .exit_codes = EXIT_CODES_NODE};
    json_t *status;
    int code = args_parse(&usage, argc, argv);
    if (code == ARGS_GO && dot && json)
        return args_refuse(&usage, "--dot and --json are two forms of the same: say one of them");
    if (code == ARGS_GO)
        code = ask_running_node(&usage, &status);
    if (code != ARGS_GO)
        return code;
    code = show(status, dot, json);
    json_decref(status);
    return code;
}
