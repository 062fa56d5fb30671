/* SPDX-License-Identifier: Apache-2.0 */
/* hearth status, nodes and topology: what the node that runs here knows of its cluster. */
#include <stdio.h>
#include <unistd.h>

#include <hearth.h>

#include "cli/cluster/network_scan.h"
#include "cli/cluster/node_query.h"
#include "cli/cluster/status_text.h"
#include "cli/commands.h"
#include "cli/shared/args.h"
#include "cli/shared/config_folder.h"
#include "cli/shared/listing.h"
#include "security/secret.h"

#define WAIT_DEFAULT_S 3
#define WAIT_MAX_S     3600

/* Frees the object. */
static int show(json_t *object, bool json, void (*print)(const json_t *object, FILE *file))
{
    if (!json)
        print(object, stdout);
    int code = json ? print_answer(object) : print_done();
    json_decref(object);
    return code;
}

int cmd_status(int argc, char **argv)
{
    bool json = false;
    const struct arg args[] = {
        {"json", ARG_FLAG, &json, .about = "print what the node says as one JSON object"},
    };
    const struct usage usage = {
        "status",
        "Shows the cluster as the node that runs here sees it: trouble first, then members and their leader, "
        "their health, the links between them, the transport to each peer and why, and jobs. Asks the node "
        "of this user and config folder; exits with 3 if none runs (hearth up).",
        "hearth status", USAGE_ARGS(args), .exit_codes = EXIT_CODES_NODE};
    json_t *status;
    int code = args_parse(&usage, argc, argv);
    if (code == ARGS_GO)
        code = ask_running_node(&usage, &status);
    return code == ARGS_GO ? show(status, json, status_print) : code;
}

int cmd_topology(int argc, char **argv)
{
    bool dot = false, json = false;
    const struct arg args[] = {
        {"dot", ARG_FLAG, &dot, .about = "print a graph for graphviz: sites, paths by speed, the ring thick"},
        {"json", ARG_FLAG, &json, .about = "print one JSON object"},
    };
    const struct usage usage = {
        "topology",
        "Draws the cluster as its members have measured it: bandwidth and round trip of every path, the "
        "order "
        "of the ring with its slowest path, and sites: members joined by fast paths. Asks the node "
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
    if (json) {
        json_t *part = topology_part(status);
        json_decref(status);
        return part ? show(part, true, NULL) : EXIT_FAILED_CHECK;
    }
    return show(status, false, dot ? topology_dot : topology_print);
}

/* ---- nodes ---- */

/* Ours, to tell our cluster from others; NULL without a word: none is stored. */
static struct secret *own_secret(const struct usage *usage)
{
    char path[HOME_PATH_MAX];
    struct secret *secret = NULL;
    struct error error;
    bool missing = false;
    if (home_secret_file(usage, NULL, path) != ARGS_GO)
        return NULL;
    if (secret_load(path, &secret, &missing, &error) && !missing)
        command_fail("nodes", "%s", error.text);
    return secret;
}

static int look_ourselves(const struct usage *usage, double wait_s, bool progress, json_t **found)
{
    struct hearth_config config;
    struct error error;
    hearth_config_init(&config);
    if (hearth_config_env(&config)) {
        command_fail("nodes", "%s", hearth_error_text());
        return EXIT_USAGE;
    }
    struct secret *secret = own_secret(usage);
    const struct look look = {.helper = config.mdns,
                              .seeds = config.seeds,
                              .bind = config.bind,
                              .space = secret ? secret_namespace(secret) : NULL,
                              .wait_s = wait_s,
                              .progress = progress};
    int status = network_scan(&look, found, &error);
    secret_close(secret);
    if (status == HEARTH_INVALID)
        return args_refuse(usage, "HEARTH_SEEDS or HEARTH_BIND: %s", error.text);
    return status ? command_fail("nodes", "%s", error.text) : ARGS_GO;
}

static void found_print(const json_t *found, FILE *file)
{
    const json_t *nodes = json_object_get(found, "nodes"), *discovery = json_object_get(found, "discovery");
    size_t count = json_array_size(nodes), seeds = json_array_size(json_object_get(discovery, "seeds"));
    bool running = json_flag_of(found, "running");
    char text[TABLE_CELL_MAX];
    if (count == 0)
        fprintf(file, "No node was seen%s.\n", running ? " beside this one" : "");
    nodes_print(nodes, file);
    if (json_text_of(discovery, "text")[0])
        fprintf(file, "\n%s\n", plain_text(json_text_of(discovery, "text"), text, sizeof text));
    if (seeds > 0)
        fprintf(file, "%zu seed%s\n", seeds, seeds == 1 ? "" : "s");
    if (!running)
        fprintf(file, "No node runs here: `hearth up` joins this machine to its cluster.\n");
    if (count == 0)
        fprintf(file, "`hearth doctor` looks why nothing is seen.\n");
}

int cmd_nodes(int argc, char **argv)
{
    int wait_s = WAIT_DEFAULT_S;
    bool json = false;
    const struct arg args[] = {
        {"wait", ARG_INT, &wait_s, .min = 0, .max = WAIT_MAX_S, .value_name = "S",
         .about = "if no node runs here: seconds to look for others (default 3)"},
        {"json", ARG_FLAG, &json, .about = "print one JSON object"},
    };
    const struct usage usage = {
        "nodes",
        "Shows the nodes on the network: members, those that are seen and are not members, with the reason, "
        "and those of other clusters. Asks the node that runs here; if none does, it looks by itself.",
        "hearth nodes --wait 10", USAGE_ARGS(args)};
    json_t *status, *found = NULL;
    int code = args_parse(&usage, argc, argv);
    if (code == ARGS_GO)
        code = ask_node(&usage, &status);
    else
        return code;
    if (code == ARGS_GO) {
        found = json_pack("{sb sO* sO*}", "running", 1, "nodes", json_object_get(status, "nodes"),
                          "discovery", json_object_get(status, "discovery"));
        json_decref(status);
    } else if (code == EXIT_NO_NODE) {
        code = look_ourselves(&usage, wait_s, !json && isatty(STDERR_FILENO), &found);
    }
    return code == ARGS_GO ? show(found, json, found_print) : code;
}
