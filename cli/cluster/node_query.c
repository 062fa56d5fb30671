/* SPDX-License-Identifier: Apache-2.0 */
/* Asks the node that runs here how things are, and finds nodes by their names. */
#include "cli/cluster/node_query.h"

#include <stdio.h>
#include <string.h>

#include "cli/cluster/status_text.h"
#include "cli/shared/config_folder.h"
#include "cli/shared/json.h"
#include "cli/shared/table.h"
#include "cluster/control_socket.h"
#include "core/heap.h"
#include "os/clock.h"
#include "os/host.h"

#define WAIT_NS   (3 * NS_PER_S)
#define FOUND_MAX 8 /* that are listed where several have the name */

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
    command_fail(usage->name, "the node that runs here gave an answer that is no JSON object%s%s",
                 *answer ? "" : ": ", *answer ? "" : wrong.text);
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
    if (status == HEARTH_OK)
        code = take_answer(usage, text, answer);
    else if (status != HEARTH_PEER_LOST)
        code = command_fail(usage->name, "the node that runs here does not answer: %s", error.text);
    heap_free(text);
    return code;
}

int ask_running_node(const struct usage *usage, json_t **answer)
{
    char folder[HOME_PATH_MAX], path[CONTROL_SOCKET_PLACE_MAX];
    int code = ask_node(usage, answer);
    if (code != EXIT_NO_NODE || !home_folder(folder))
        return code;
    control_socket_place(folder, host_user(), path, sizeof path);
    command_fail(
        usage->name,
        "no node runs here: hearth up\n(Asked were nodes of this user and of the config folder %s, at "
        "%s.)",
        folder, path);
    return EXIT_NO_NODE;
}

/* ---- by name ---- */

struct search {
    const char *text;
    struct named_node found[FOUND_MAX];
    int count;
};

/* The first that tells of a node gives it its name. */
static void look_at(struct search *s, const struct node_id *id, const char *name)
{
    char brief[NODE_ID_SHORT], full[NODE_ID_TEXT];
    node_id_short(id, brief);
    node_id_text(id, full);
    if (s->text[0] == 0)
        return; /* nodes without a name have one all the same */
    if (strcmp(s->text, brief) != 0 && strcmp(s->text, full) != 0 && strcmp(s->text, name) != 0)
        return;
    for (int i = 0; i < s->count; i++) {
        if (node_id_equal(&s->found[i].id, id))
            return;
    }
    if (s->count == FOUND_MAX)
        return;
    struct named_node *node = &s->found[s->count++];
    node->id = *id;
    snprintf(node->name, sizeof node->name, "%s", name);
}

static void look_at_list(struct search *s, const struct trust_list *list)
{
    for (int i = 0; list && i < trust_list_count(list); i++)
        look_at(s, &trust_list_entry(list, i)->id, trust_list_entry(list, i)->name);
}

static void look_at_members(struct search *s, const json_t *status)
{
    size_t i;
    json_t *member;
    json_array_foreach(members_of(status), i, member)
    {
        struct node_id id;
        char name[64];
        if (node_id_parse(json_text_of(member, "id"), &id) == HEARTH_OK)
            look_at(s, &id, plain_text(json_text_of(member, "name"), name, sizeof name));
    }
}

static int refuse_several(const struct usage *usage, const struct search *s)
{
    fprintf(stderr, "hearth %s: several nodes are called '%.64s':\n", usage->name, s->text);
    for (int i = 0; i < s->count; i++) {
        char brief[NODE_ID_SHORT], full[NODE_ID_TEXT];
        node_id_short(&s->found[i].id, brief);
        node_id_text(&s->found[i].id, full);
        fprintf(stderr, "  %s  %s  %s\n", brief, full, s->found[i].name);
    }
    return args_refuse(usage, "say which, by its id or the short form");
}

int node_find(const struct usage *usage, const char *text, const struct trust_list *list,
              const json_t *status, struct named_node *found)
{
    struct search s = {.text = text};
    look_at_list(&s, list);
    look_at_members(&s, status);
    *found = s.found[0];
    if (s.count == 1 || (s.count == 0 && node_id_parse(text, &found->id) == HEARTH_OK))
        return ARGS_GO;
    if (s.count > 1)
        return refuse_several(usage, &s);
    return args_refuse(usage,
                       "'%.80s' is neither on the list nor %s; a node id has 64 hexadecimal digits, as "
                       "`hearth id` shows on that node",
                       text, status ? "a member now" : "known here, where no node runs (hearth up)");
}
