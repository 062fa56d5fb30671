/* SPDX-License-Identifier: Apache-2.0 */
/* hearth nodes: who is out there, of which cluster, and why a node that is seen is not a member. */
#include <stdio.h>
#include <unistd.h>

#include <hearth.h>

#include "cli/cluster/network_scan.h"
#include "cli/cluster/node_query.h"
#include "cli/cluster/status_text.h"
#include "cli/commands.h"
#include "cli/shared/args.h"
#include "cli/shared/config_folder.h"
#include "cli/shared/json.h"
#include "cli/shared/table.h"
#include "security/secret.h"

#define WAIT_DEFAULT_S 3
#define WAIT_MAX_S     3600

struct nodes {
    bool json;
    double wait_s;
    bool running;      /* a node runs here, and was asked */
    json_t *nodes;     /* as in docs/man/hearth.1, STATUS */
    json_t *discovery; /* the same */
};

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
        fprintf(stderr, "hearth nodes: %s\n", error.text);
    return secret;
}

static int look_ourselves(const struct usage *usage, struct nodes *nodes)
{
    struct hearth_config config;
    struct error error;
    hearth_config_init(&config);
    if (hearth_config_env(&config)) {
        fprintf(stderr, "hearth nodes: %s\n", hearth_error_text());
        return EXIT_USAGE;
    }
    struct secret *secret = own_secret(usage);
    struct look look = {.helper = config.mdns,
                        .seeds = config.seeds,
                        .bind = config.bind,
                        .space = secret ? secret_namespace(secret) : NULL,
                        .wait_s = nodes->wait_s,
                        .progress = !nodes->json && isatty(STDERR_FILENO)};
    int status = network_scan(&look, &error);
    secret_close(secret);
    if (status)
        return command_fail("nodes", "%s", error.text);
    nodes->nodes = look.nodes;
    nodes->discovery = json_object();
    row_bool(nodes->discovery, "mdns", look.works);
    row_text(nodes->discovery, "text", look.text);
    json_object_set_new(nodes->discovery, "seeds", look.seeded);
    return ARGS_GO;
}

static int find(const struct usage *usage, struct nodes *nodes)
{
    json_t *status;
    int code = ask_node(usage, &status);
    if (code == EXIT_NO_NODE)
        return look_ourselves(usage, nodes);
    if (code != ARGS_GO)
        return code;
    nodes->running = true;
    nodes->nodes = json_incref(json_object_get(status, "nodes"));
    nodes->discovery = json_incref(json_object_get(status, "discovery"));
    json_decref(status);
    return ARGS_GO;
}

static int show_json(const struct nodes *nodes)
{
    json_t *doc = json_object();
    row_bool(doc, "running", nodes->running);
    json_object_set(doc, "nodes", nodes->nodes);
    json_object_set(doc, "discovery", nodes->discovery);
    int code = print_answer(doc);
    json_decref(doc);
    return code;
}

static int show_text(const struct nodes *nodes)
{
    char text[TABLE_CELL_MAX];
    if (json_array_size(nodes->nodes) == 0)
        printf("No node was seen%s.\n", nodes->running ? " beside this one" : "");
    nodes_print(nodes->nodes, stdout);
    if (json_text_of(nodes->discovery, "text")[0])
        printf("\n%s\n", plain_text(json_text_of(nodes->discovery, "text"), text, sizeof text));
    size_t seeds = json_array_size(json_object_get(nodes->discovery, "seeds"));
    if (seeds > 0)
        printf("%zu seed%s\n", seeds, seeds == 1 ? "" : "s");
    if (!nodes->running)
        printf("No node runs here: `hearth up` joins this machine to its cluster.\n");
    if (json_array_size(nodes->nodes) == 0)
        printf("`hearth doctor` looks why nothing is seen.\n");
    return print_done();
}

int cmd_nodes(int argc, char **argv)
{
    struct nodes nodes = {.wait_s = WAIT_DEFAULT_S};
    int wait_s = WAIT_DEFAULT_S;
    const struct arg args[] = {
        {"wait", ARG_INT, &wait_s, .min = 0, .max = WAIT_MAX_S, .value_name = "S",
         .about = "if no node runs here: seconds to look for others"},
        {"json", ARG_FLAG, &nodes.json, .about = "print one JSON object"},
    };
    const struct usage usage = {
        "nodes",
        "Shows the nodes on the network: members, those that are seen and are not members, with the reason, "
        "and those of other clusters. Asks the node that runs here; if none does, it looks by itself.",
        "hearth nodes --wait 10", USAGE_ARGS(args)};
    int code = args_parse(&usage, argc, argv);
    nodes.wait_s = wait_s;
    if (code == ARGS_GO)
        code = find(&usage, &nodes);
    if (code == ARGS_GO)
        code = nodes.json ? show_json(&nodes) : show_text(&nodes);
    json_decref(nodes.nodes);
    json_decref(nodes.discovery);
    return code;
}
