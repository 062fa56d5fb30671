/* SPDX-License-Identifier: Apache-2.0 */
/* The map in its three forms. */
#include "cli/cluster/status_text.h"
#include "cli/shared/json.h"
#include "printed.h"
#include "support/suite.h"

TEST(test_text)
{
    json_t *status = sample_status();
    const char *text = page_of(topology_print, status);
    assert_has(text, "3 members, 2 sites\n");
    assert_has(text, "     0  desk    8 cores, 16 GiB, avx2 aes, Linux 6.1\n");
    assert_has(text, "     1  nas     1 core\n");
    assert_has(text, "               0    1   2\n"
                     "  0  desk      -  940  94\n"
                     "  1  nas     938    -   ?\n"
                     "  2  laptop    ?    ?   -\n");
    assert_has(text, "  0  desk       -  0.21  5.40\n"
                     "  1  nas     0.22     -     ?\n"
                     "  2  laptop     ?  5.60     -\n");
    assert_has(text, "ring  desk =94=> laptop =?=> nas =938=> desk\n"
                     "      slowest path: desk -> laptop, 94 Mbit/s\n");
    assert_has(text, "  0: desk, nas\n  1: laptop\n");
    json_decref(status);
}

TEST(test_dot)
{
    json_t *status = sample_status();
    json_object_set_new(json_object_get(status, "cluster"), "name", json_string("my \"lab\"\\"));
    const char *text = page_of(topology_dot, status);
    assert_has(text, "digraph hearth {\n  label=\"cluster my \\\"lab\\\"\\\\, epoch 3;");
    assert_has(text, "subgraph cluster_0 {\n    label=\"site 0\";\n    n0 [label=\"0 desk\\n8 cores");
    assert_has(text, "subgraph cluster_1 {\n    label=\"site 1\";\n    n2 ");
    assert_has(text, "n0 -> n1 [color=forestgreen, label=\"940 Mbit/s\\n210 us\", constraint=false];\n");
    assert_has(text, "n0 -> n2 [color=red, label=\"94 Mbit/s\\n5.40 ms\", penwidth=3];\n");
    assert_has(text, "n2 -> n1 [color=gray, label=\"not measured\\n5.60 ms\", penwidth=3, style=dashed];\n");
    assert_int_equal(strcmp(text + strlen(text) - 2, "}\n"), 0);
    json_decref(status);
}

TEST(test_part)
{
    json_t *status = sample_status(), *part = topology_part(status);
    const json_t *slow = json_object_get(part, "bottleneck");
    assert_int_equal(json_count_of(slow, "from"), 0);
    assert_int_equal(json_count_of(slow, "to"), 2);
    assert_true(json_real_of(slow, "mbit") == 94);
    assert_int_equal(json_array_size(json_object_get(json_object_get(part, "view"), "members")), 3);
    assert_int_equal(json_array_size(json_object_get(part, "links")), 4);
    assert_int_equal(json_array_size(json_object_get(part, "order")), 3);
    assert_int_equal(json_array_size(json_object_get(part, "sites")), 3);
    json_decref(part);
    json_decref(status);
}

/* Ranks that nobody has, an order with repetitions, no members at all. */
TEST(test_anything)
{
    static const char *const texts[] = {
        "{}",
        "{\"order\": [0, 1], \"sites\": [0, 9999, -1], \"links\": [{\"from\": 0, \"to\": 1, \"mbit\": 1}]}",
        "{\"view\": {\"members\": [{\"rank\": 0}]}, \"order\": [0, 0, -5, 99999999999, \"x\"], \"sites\": "
        "[70]}",
        "{\"view\": {\"members\": [{\"rank\": 0}, {\"rank\": 1}]}, \"order\": [1, 0, 1], \"sites\": [1, 0, "
        "5]}"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        json_t *status = json_loads(texts[i], 0, NULL), *part;
        assert_non_null(status);
        page_of(topology_dot, status);
        const char *text = page_of(topology_print, status);
        part = topology_part(status);
        assert_non_null(part);
        assert_true(json_is_null(json_object_get(part, "bottleneck")));
        if (i == 3)
            assert_has(text, "none of its paths is measured yet");
        json_decref(part);
        json_decref(status);
    }
}
