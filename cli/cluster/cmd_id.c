/* SPDX-License-Identifier: Apache-2.0 */
/* hearth id: who this node is to others. */
#include <stdio.h>
#include <unistd.h>

#include "cli/commands.h"
#include "cli/shared/args.h"
#include "cli/shared/config_folder.h"
#include "cli/shared/json.h"
#include "security/node_key.h"

struct id {
    const char *key_file; /* as given */
    bool json;
    char path[HOME_PATH_MAX];
    bool new; /* there was no key before */
};

static bool print_json(const struct id *id, const struct node_id *node, int argc, char **argv)
{
    char text[NODE_ID_TEXT], brief[NODE_ID_SHORT];
    json_t *doc = doc_open(argc, argv), *row = doc ? doc_row(doc) : NULL;
    if (!doc)
        return false;
    node_id_text(node, text);
    node_id_short(node, brief);
    row_text(row, "name", "id");
    row_text(row, "short", brief);
    row_text(row, "node_id", text);
    row_text(row, "key_file", id->path);
    row_bool(row, "new", id->new);
    return doc_close(doc);
}

static bool print_text(const struct id *id, const struct node_id *node)
{
    char text[NODE_ID_TEXT], brief[NODE_ID_SHORT];
    node_id_text(node, text);
    node_id_short(node, brief);
    printf("short form  %s\n", brief);
    printf("node id     %s\n", text);
    printf("key file    %s%s\n", id->path, id->new ? " (made just now)" : "");
    return fflush(stdout) == 0;
}

int cmd_id(int argc, char **argv)
{
    struct id id = {.json = false};
    const struct arg args[] = {
        {"key-file", ARG_TEXT, &id.key_file, .value_name = "FILE",
         .about = "the key (default: HEARTH_KEY_FILE, else node.key in $XDG_CONFIG_HOME/hearth or "
                  "~/.config/hearth)"},
        {"json", ARG_FLAG, &id.json, .about = "print one JSON object"},
    };
    const struct usage usage = {
        "id",
        "Shows who this node is to others: its id is the hash of its public key. The key is made on first "
        "use. The id is no secret: the other machines' `hearth trust add` takes it. The key file is one: "
        "never copy it to another machine.",
        "hearth id", USAGE_ARGS(args)};
    struct node_key *key = NULL;
    struct error error;
    int code = args_parse(&usage, argc, argv);
    if (code == ARGS_GO)
        code = home_key_file(&usage, id.key_file, id.path);
    if (code != ARGS_GO)
        return code;
    id.new = access(id.path, F_OK) != 0;
    if (node_key_load(id.path, &key, &error))
        return command_fail("id", "%s", error.text);
    bool written =
        id.json ? print_json(&id, node_key_id(key), argc, argv) : print_text(&id, node_key_id(key));
    node_key_close(key);
    return written ? EXIT_GOOD : EXIT_FAILED_CHECK;
}
