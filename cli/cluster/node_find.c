/* SPDX-License-Identifier: Apache-2.0 */
/* A node by what people call it. */
#include "cli/cluster/node_find.h"

#include <stdio.h>
#include <string.h>

#include "cli/shared/json.h"
#include "cli/shared/table.h"

#define FOUND_MAX 8 /* that are listed where several have the name */

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
    json_array_foreach(json_object_get(json_object_get(status, "view"), "members"), i, member)
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
