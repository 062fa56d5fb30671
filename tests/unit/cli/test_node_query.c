/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes by what people call them. */
#include <unistd.h>

#include "cli/cluster/node_query.h"
#include "support/suite.h"

static const struct usage usage = {.name = "trust remove"};
static struct heap heap;
static struct trust_list *list;
static json_t *status;
static char path[64];

static struct node_id id_of(int number)
{
    struct node_id id = {{0}};
    memset(id.bytes, number, sizeof id.bytes);
    return id;
}

static void add_member(json_t *members, int number, const char *name)
{
    char text[NODE_ID_TEXT];
    struct node_id id = id_of(number);
    node_id_text(&id, text);
    json_array_append_new(members, json_pack("{ssss}", "id", text, "name", name));
}

static int begin(void **state)
{
    struct error error;
    struct trust_entry entry = {.id = id_of(1), .name = "desk"};
    heap_init(&heap, 0);
    snprintf(path, sizeof path, "/tmp/hearth-find-%d", (int)getpid());
    assert_int_equal(trust_list_open(&heap, path, &list, &error), HEARTH_OK);
    assert_int_equal(trust_list_set(list, &entry.id, &entry, &error), HEARTH_OK);
    json_t *members = json_array();
    add_member(members, 1, "desk.local"); /* the list calls it desk */
    add_member(members, 2, "shelf");
    add_member(members, 2, "shelf"); /* another node of that machine */
    add_member(members, 3, "twin");
    add_member(members, 4, "twin");
    json_array_append_new(members, json_pack("{ssss}", "id", "no id", "name", "broken"));
    status = json_pack("{s{so}}", "view", "members", members);
    return 0;
}

static int end(void **state)
{
    trust_list_close(list);
    json_decref(status);
    unlink(path);
    return heap.blocks == 0 ? 0 : -1;
}

static void assert_found(const char *text, const json_t *from, int number, const char *name)
{
    struct named_node found;
    struct node_id id = id_of(number);
    assert_int_equal(node_find(&usage, text, list, from, &found), ARGS_GO);
    assert_true(node_id_equal(&found.id, &id));
    assert_string_equal(found.name, name);
}

TEST_WITH(names_and_short_forms, begin, end)
{
    char brief[NODE_ID_SHORT], full[NODE_ID_TEXT];
    struct node_id two = id_of(2), nine = id_of(9);
    assert_found("desk", NULL, 1, "desk");
    assert_found("shelf", status, 2, "shelf");
    node_id_short(&two, brief);
    assert_found(brief, status, 2, "shelf");
    node_id_text(&two, full);
    assert_found(full, status, 2, "shelf");
    node_id_text(&nine, full); /* nobody has seen it yet */
    assert_found(full, status, 9, "");
}

TEST_WITH(wrong_ones_are_refused, begin, end)
{
    static const char *const wrong[] = {"twin", "", "broken", "no id", "sh", "shelf ", "nobody"};
    struct named_node found;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(node_find(&usage, wrong[i], list, status, &found), EXIT_USAGE);
    assert_int_equal(node_find(&usage, "shelf", list, NULL, &found), EXIT_USAGE);
}
