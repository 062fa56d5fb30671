/* SPDX-License-Identifier: Apache-2.0 */
/* What people see of a cluster: trouble first, everything once, and nothing breaks on what is missing. */
#include "cli/cluster/status_text.h"
#include "printed.h"
#include "support/suite.h"

TEST(test_status)
{
    json_t *status = sample_status();
    const char *text = page_of(status_print, status);
    assert_int_equal(strncmp(text, "! laptop is degraded\n", 21), 0);
    assert_has(text, "! laptop is slow: its line carries 94.0 Mbit/s, the next slowest 940.5 Mbit/s\n");
    assert_has(text, "! desk -> laptop loses 3.0 %\n");
    assert_has(text, "! attic at 192.168.1.5:52416 is no member: its key was revoked\n");
    assert_has(text,
               "cluster lab  this node: desk (k7f3-9qwe-2xyz), port 52416, transport auto, encrypted\n");
    assert_has(text, "epoch 3, term 2, leader desk; 3 of 3 heard, 2 needed\n");
    assert_has(text, "     0  desk    k7f3-9qwe-2xyz  self      leader, demo");
    assert_has(text, "210 us  120 us");
    assert_has(text, "192.168.1.3:52416, +1\n");
    assert_has(text, "desk    nas     940 Mbit/s      210 us         wire           5  10 s\n");
    /* Its rank is 2 in the job and 1 in the view. */
    assert_has(text, "train  nas   tcp+tls    192.168.1.3:52416  near\n");
    assert_has(text, "train         3        2        0\n");
    assert_has(text, "seeds      10.0.0.1:52415\n");
    assert_has(text, "traffic    1 MiB sent, 2 KiB received\n");
    assert_lacks(text, "neighbour"); /* another cluster is no trouble of ours */
    json_decref(status);
}

TEST(test_no_trouble)
{
    json_t *status = json_pack("{s{sisisisss[{sissss}{sissss}]}}", "view", "epoch", 1, "term", 1, "leader", 1,
                               "state", "member", "members", "rank", 0, "name", "a", "state", "self", "rank",
                               1, "name", "b", "state", "healthy");
    assert_non_null(status);
    const char *text = page_of(status_print, status);
    assert_int_equal(strncmp(text, "cluster ", 8), 0); /* trouble would stand before it */
    assert_has(text, "leader b; 2 of 2 heard, 2 needed, or 1 with the leader\n");
    assert_lacks(text, "links");
    assert_lacks(text, "jobs");
    json_decref(status);
}

/* A guest that has died is nobody's trouble, least of all the machine's whose name it has. */
TEST(test_guests_do_not_count)
{
    json_t *status = json_pack("{s{sisisisss[{sissss}{sisssss[s]}]}}", "view", "epoch", 1, "term", 1,
                               "leader", 0, "state", "member", "members", "rank", 0, "name", "a", "state",
                               "self", "rank", 1, "name", "a", "state", "dead", "flags", "guest");
    assert_non_null(status);
    const char *text = page_of(status_print, status);
    assert_int_equal(strncmp(text, "cluster ", 8), 0);
    assert_has(text, "leader a; 1 of 1 heard, 1 needed\n");
    json_decref(status);
}

TEST(test_stranded)
{
    json_t *status = sample_status(), *view = json_object_get(status, "view");
    json_object_set_new(view, "state", json_string("stranded"));
    json_object_set_new(view, "why", json_string("nas and laptop are silent"));
    json_object_set_new(view, "leader", json_integer(-1));
    json_object_set_new(json_object_get(status, "self"), "plain", json_true());
    json_object_set_new(json_object_get(status, "discovery"), "mdns", json_false());
    const char *text = page_of(status_print, status);
    assert_int_equal(strncmp(text, "! stranded: ", 12), 0);
    assert_has(text, "nothing is decided here: nas and laptop are silent\n");
    assert_has(text, "! nothing is encrypted here");
    assert_has(text, "! mdns works (helper 4711)\n");
    assert_has(text, "leader none;");
    json_object_set_new(json_object_get(status, "discovery"), "text", json_string("mdns is switched off"));
    text = page_of(status_print, status);
    assert_has(text, "discovery  mdns is switched off\n");
    assert_null(strstr(text, "! mdns")); /* no trouble: the user wants it so */
    json_decref(status);
}

/* Many links are counted only. */
TEST(test_many_links)
{
    json_t *status = sample_status(), *links = json_object_get(status, "links");
    while (json_array_size(links) < STATUS_LINKS_SHOWN + 7)
        json_array_append(links, json_array_get(links, 0));
    assert_has(page_of(status_print, status), "  and 7 more: hearth topology\n");
    json_decref(status);
}

/* Another version may leave out or change anything. */
TEST(test_anything)
{
    static const char *const texts[] = {
        "{}",
        "{\"view\": 7, \"links\": \"x\", \"nodes\": {}, \"peers\": [1, null], \"jobs\": [[]]}",
        "{\"view\": {\"members\": [1, {}, {\"rank\": \"x\", \"addresses\": [2, {}], \"cpu\": 1}]}}",
        "{\"links\": [{\"from\": -1, \"to\": 99999999999}], \"discovery\": [], \"traffic\": 1}",
        "{\"view\": {\"members\": [{\"rank\": 0, \"name\": \"\\u001b[2J\\u009b2J\"}]}}",
        "{\"view\": {\"members\": [{\"rank\": 0, \"name\": \"x\", \"state\": \"\\u0007\"}]}}",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        json_t *status = json_loads(texts[i], 0, NULL);
        assert_non_null(status);
        page_of(nodes_print, json_object_get(status, "nodes"));
        const char *text = page_of(status_print, status);
        assert_lacks(text, "\033");
        assert_lacks(text, "\x9b");
        assert_lacks(text, "\a");
        json_decref(status);
    }
}

TEST(test_nodes)
{
    json_t *status = sample_status();
    assert_string_equal(
        page_of(nodes_print, json_object_get(status, "nodes")),
        "name       id              address                           namespace  why\n"
        "nas        m3aa-bbbb-cccc  192.168.1.3:52416  member\n"
        "                           [fd00::3]:52416    member\n"
        "attic      q1dd-dddd-eeee  192.168.1.5:52416  not a member              its key was revoked\n"
        "neighbour  zzzz-dddd-eeee  192.168.1.9:52416  other cluster  ff112233\n");
    assert_string_equal(page_of(nodes_print, NULL), "");
    json_decref(status);
}
