/* SPDX-License-Identifier: Apache-2.0 */
/* hearth id: who this node is to others. */
#include <stdio.h>
#include <unistd.h>

#include "cli/commands.h"
#include "cli/shared/args.h"
#include "cli/shared/config_folder.h"
#include "cli/shared/listing.h"
#include "security/node_key.h"

int cmd_id(int argc, char **argv)
{
    const char *key_file = NULL;
    bool json = false;
    const struct arg args[] = {
        {"key-file", ARG_TEXT, &key_file, .value_name = "FILE",
         .about = "the key (default: HEARTH_KEY_FILE, else node.key in $XDG_CONFIG_HOME/hearth or "
                  "~/.config/hearth)"},
        {"json", ARG_FLAG, &json, .about = "print one JSON object"},
    };
    const struct usage usage = {
        "id",
        "Shows who this node is to others: its id is the hash of its public key. The key is made on first "
        "use. The id is no secret: the other machines' `hearth trust add` takes it. The key file is one: "
        "never copy it to another machine.",
        "hearth id", USAGE_ARGS(args)};
    char path[HOME_PATH_MAX], text[NODE_ID_TEXT], brief[NODE_ID_SHORT];
    struct node_key *key = NULL;
    struct error error;
    int code = args_parse(&usage, argc, argv);
    if (code == ARGS_GO)
        code = home_key_file(&usage, key_file, path);
    if (code != ARGS_GO)
        return code;
    bool new = access(path, F_OK) != 0;
    if (node_key_load(path, &key, &error))
        return command_fail("id", "%s", error.text);
    node_id_text(node_key_id(key), text);
    node_id_short(node_key_id(key), brief);
    node_key_close(key);
    if (json)
        return listing_one(argc, argv,
                           json_pack("{ss ss ss ss sb}", "name", "id", "short", brief, "node_id", text,
                                     "key_file", path, "new", new));
    printf("short form  %s\nnode id     %s\nkey file    %s%s\n", brief, text, path,
           new ? " (made just now)" : "");
    return print_done();
}
