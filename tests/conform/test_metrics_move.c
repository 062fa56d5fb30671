/* SPDX-License-Identifier: Apache-2.0 */
/* The metrics of a node really move when that happens which they count. */
#include "conform/fixture.h"

#define COUNT 50000

/* The value of a line, with its labels; -1: there is none. */
static double value_of(hearth_node *node, const char *line)
{
    static _Thread_local char text[1 << 16];
    char wanted[128];
    double value = -1;
    check(hearth_node_metrics_text(node, text, sizeof text) < (int64_t)sizeof text, "the text is too long");
    snprintf(wanted, sizeof wanted, "\n%s ", line);
    const char *at = strstr(text, wanted);
    if (at)
        sscanf(at + strlen(wanted), "%lf", &value);
    check(at, "there is no metric %s", line);
    return value;
}

static void compress(struct fixture *c, int rank, void *arg)
{
    static const char *const times[] = {"hearth_compression_seconds_total",
                                        "hearth_decompression_seconds_total"};
    hearth_node *node = c->nodes[rank];
    double before[2] = {value_of(node, times[0]), value_of(node, times[1])};
    double plain = value_of(node, "hearth_compression_plain_bytes_total");
    double sent = value_of(node, "hearth_compression_sent_bytes_total");
    float *x = must_alloc(COUNT * sizeof *x);
    for (int i = 0; i < COUNT; i++)
        x[i] = (float)(i % 97) - 48;
    check_ok(
        hearth_all_reduce_compressed(c->world[rank], x, COUNT, HEARTH_F32, HEARTH_OP_SUM, arg, NULL, NULL));
    free(x);
    for (int i = 0; i < 2; i++)
        check(value_of(node, times[i]) > before[i], "%s: %s stands still", (const char *)arg, times[i]);
    double plain_now = value_of(node, "hearth_compression_plain_bytes_total") - plain;
    double sent_now = value_of(node, "hearth_compression_sent_bytes_total") - sent;
    check(plain_now == 2.0 * (c->size - 1) * COUNT * 4 / c->size, "%g plain bytes", plain_now);
    check(sent_now > 0 && sent_now < plain_now, "%g bytes sent instead of %g", sent_now, plain_now);
    check(value_of(node, "hearth_compression_ratio") > 1, "nothing was gained");
}

TEST(test_compression)
{
    static char codecs[][24] = {"int8", "topk:0.01", "randomk:0.05", "powersgd:2,rows=250"};
    struct fixture c;
    fixture_open(&c, 4, NULL);
    assert_true(value_of(c.nodes[0], "hearth_compression_ratio") == 1);
    for (size_t i = 0; i < sizeof codecs / sizeof *codecs; i++)
        fixture_run(&c, compress, codecs[i]);
    fixture_close(&c);
}

static void plain(struct fixture *c, int rank, void *arg)
{
    float x[100] = {0};
    check_ok(hearth_all_reduce(c->world[rank], x, x, 100, HEARTH_F32, HEARTH_OP_SUM, NULL));
    check_ok(hearth_barrier(c->world[rank], NULL));
}

TEST(test_operations_and_links)
{
    struct fixture c;
    float x = 0;
    fixture_open(&c, 3, NULL);
    double up = value_of(c.nodes[0], "hearth_uptime_seconds");
    fixture_run(&c, plain, NULL);
    assert_true(value_of(c.nodes[0], "hearth_operations_total{kind=\"all_reduce\"}") == 1);
    assert_true(value_of(c.nodes[0], "hearth_operations_total{kind=\"barrier\"}") == 1);
    assert_true(value_of(c.nodes[0], "hearth_operation_bytes_total{kind=\"all_reduce\"}") == 400);
    assert_true(value_of(c.nodes[0], "hearth_operation_duration_seconds_count{kind=\"all_reduce\"}") == 1);
    assert_true(value_of(c.nodes[0], "hearth_sent_bytes_total") > 400);
    uint64_t sent = 0, received = 0;
    assert_ok(hearth_group_traffic(c.world[0], &sent, &received));
    assert_true(sent > 400 && received > 400);
    assert_int_equal(hearth_group_traffic(c.world[0], &sent, NULL), HEARTH_INVALID);
    assert_true(value_of(c.nodes[0], "hearth_received_frames_total") >= 2);
    assert_true(value_of(c.nodes[0], "hearth_uptime_seconds") > up && up >= 0);
    hearth_node_close(c.nodes[2]);
    c.nodes[2] = NULL;
    int status = hearth_all_reduce(c.world[0], &x, &x, 1, HEARTH_F32, HEARTH_OP_SUM, NULL);
    assert_true(status == HEARTH_PEER_LOST || status == HEARTH_GROUP_BROKEN);
    assert_true(value_of(c.nodes[0], "hearth_connection_errors_total") == 0); /* it said goodbye */
    fixture_close(&c);
}
