/* SPDX-License-Identifier: Apache-2.0 */
/* Asks the node that runs here, under the same user and config folder, how things are. */
#include "cli/cluster/node_query.h"

#include <stdio.h>
#include <string.h>

#include "cli/shared/config_folder.h"
#include "cluster/control_socket.h"
#include "core/heap.h"
#include "os/clock.h"
#include "os/host.h"

#define WAIT_NS (3 * NS_PER_S)

/* The first of this user's nodes that answers. */
static int ask_all(struct heap *heap, const char *folder, char **text, struct error *error)
{
    char first[CONTROL_SOCKET_PLACE_MAX], path[CONTROL_SOCKET_PLACE_MAX + 8];
    int status = HEARTH_PEER_LOST;
    control_socket_place(folder, host_user(), first, sizeof first);
    for (int i = 1; i <= CONTROL_SOCKET_PATHS && status == HEARTH_PEER_LOST; i++) {
        char tail[8] = "";
        if (i > 1)
            snprintf(tail, sizeof tail, ".%d", i);
        snprintf(path, sizeof path, "%s%s", first, tail);
        status = control_socket_ask(heap, path, "status", clock_real() + WAIT_NS, text, error);
    }
    return status;
}

static int take_answer(const struct usage *usage, const char *text, json_t **answer)
{
    json_error_t wrong;
    *answer = json_loads(text, JSON_REJECT_DUPLICATES, &wrong);
    if (json_is_object(*answer))
        return ARGS_GO;
    fprintf(stderr, "hearth %s: the node that runs here gave an answer that is no JSON object%s%s\n",
            usage->name, *answer ? "" : ": ", *answer ? "" : wrong.text);
    json_decref(*answer);
    *answer = NULL;
    return EXIT_FAILED_CHECK;
}

int ask_node(const struct usage *usage, json_t **answer)
{
    char folder[HOME_PATH_MAX], *text = NULL;
    struct heap heap;
    struct error error;
    *answer = NULL;
    if (!home_folder(folder))
        return args_refuse(usage, "this user has no home, so there is no config folder by which the running "
                                  "node could be found; set HOME or XDG_CONFIG_HOME");
    heap_init(&heap, 0);
    error_clear(&error);
    int status = ask_all(&heap, folder, &text, &error), code = EXIT_NO_NODE;
    if (status == HEARTH_OK) {
        code = take_answer(usage, text, answer);
    } else if (status != HEARTH_PEER_LOST) {
        fprintf(stderr, "hearth %s: the node that runs here does not answer: %s\n", usage->name, error.text);
        code = EXIT_FAILED_CHECK;
    }
    heap_free(text);
    return code;
}

int ask_running_node(const struct usage *usage, json_t **answer)
{
    char folder[HOME_PATH_MAX], path[CONTROL_SOCKET_PLACE_MAX];
    int code = ask_node(usage, answer);
    if (code != EXIT_NO_NODE)
        return code;
    fprintf(stderr, "hearth %s: no node runs here: hearth up\n", usage->name);
    if (home_folder(folder)) {
        control_socket_place(folder, host_user(), path, sizeof path);
        fprintf(stderr, "(Asked were nodes of this user and of the config folder %s, at %s.)\n", folder,
                path);
    }
    return EXIT_NO_NODE;
}

int print_done(void)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return EXIT_GOOD;
    perror("hearth: cannot write the output");
    return EXIT_FAILED_CHECK;
}

int print_answer(const json_t *object)
{
    json_dumpf(object, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
    putchar('\n');
    return print_done();
}
