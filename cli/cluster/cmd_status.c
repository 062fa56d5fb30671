/* SPDX-License-Identifier: Apache-2.0 */
/* hearth status: what the node that runs here knows of its cluster. */
#include <stdio.h>

#include "cli/cluster/node_query.h"
#include "cli/cluster/status_text.h"
#include "cli/commands.h"
#include "cli/shared/args.h"

int cmd_status(int argc, char **argv)
{
    bool json = false;
    const struct arg args[] = {
        {"json", ARG_FLAG, &json, .about = "print what the node says as one JSON object"},
    };
    const struct usage usage = {
        "status",
        "Shows the cluster as the node that runs here sees it: trouble first, then who is in and who leads, "
        "their health, the links between them, which transport leads to whom and why, and jobs. Asks the "
        "node of this user and config folder; exits with 3 if none runs (hearth up).",
        "hearth status", USAGE_ARGS(args), .exit_codes = EXIT_CODES_NODE};
    json_t *status;
    int code = args_parse(&usage, argc, argv);
    if (code == ARGS_GO)
        code = ask_running_node(&usage, &status);
    if (code != ARGS_GO)
        return code;
    if (json) {
        code = print_answer(status);
    } else {
        status_print(status, stdout);
        code = print_done();
    }
    json_decref(status);
    return code;
}
