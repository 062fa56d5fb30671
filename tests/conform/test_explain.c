/* SPDX-License-Identifier: Apache-2.0 */
/* What hearth_compressor_explain says is sent, and what is: the same within 2 %, for every size of tensor and
 * group. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conform/fixture.h"
#include "wire/frame.h"

#define COUNT_MAX 1000000u
#define NEAR      0.02
#define TRIES     5

static const size_t counts[] = {1,    2,    7,    100,   255,    257,    1000,   4095,
                                4097, 8192, 9999, 40961, 131072, 300001, 700000, COUNT_MAX};
static const int sizes[] = {2, 3, 4, 7, 16};
static const char *const codecs[] = {
    "bf16",         "fp16",       "int8", "onebit", "topk:0.01", "topk:0.02,chunk=4096,values=int8",
    "randomk:0.01", "powersgd:2",
};

#define LEN(array) (sizeof(array) / sizeof *(array))

static float *gradient[MEMBERS_MAX];
static double sent[MEMBERS_MAX], left[MEMBERS_MAX], said;

/* "..., 530 kB; kernels" or "by plain: 2 us (530 kB)": the number before the unit. */
static double bytes_in(const char *text)
{
    static const struct {
        const char *unit;
        double factor;
    } units[] = {{" B", 1}, {" kB", 1e3}, {" MB", 1e6}};
    for (size_t i = 0; i < LEN(units); i++) {
        char end[8];
        for (int k = 0; k < 2; k++) {
            snprintf(end, sizeof end, "%s%c", units[i].unit, k == 0 ? ';' : ')');
            const char *at = strstr(text, end);
            if (!at)
                continue;
            while (at > text && strchr("0123456789.e+-", at[-1]))
                at--;
            return strtod(at, NULL) * units[i].factor;
        }
    }
    check(false, "no bytes in \"%s\"", text);
    return 0;
}

/* What frames have carried from this node so far, without their headers. */
static double carried(hearth_node *node)
{
    return (double)metric(node, "hearth_sent_bytes_total") -
           (double)metric(node, "hearth_sent_frames_total") * FRAME_HEADER_LEN;
}

struct task {
    const char *codec;
    size_t count;
};

/* Large values stand evenly, so that each owner of topk gets its share. */
static void gradient_fill(float *x, size_t count, size_t rank)
{
    for (size_t k = 0; k < count; k++)
        x[k] = (k + rank) % 100 == 0 ? 100.0f + (float)(k % 7) : 0.01f;
}

static void one_reduction(struct fixture *c, int rank, void *arg)
{
    const struct task *task = arg;
    struct hearth_compressor_config config;
    struct hearth_compressor_stats stats = {.size = sizeof stats};
    hearth_compressor *compressor;
    hearth_compressor_config_init(&config);
    config.codec = task->codec;
    config.min_count = 1;
    config.vectors = 1;
    if (!check_status(hearth_compressor_open(c->world[rank], &config, &compressor), HEARTH_OK))
        return;
    gradient_fill(gradient[rank], task->count, (size_t)rank);
    size_t columns = task->count % 1000 == 0 ? 1000 : 1;
    struct hearth_tensor tensor = {sizeof tensor, "x", gradient[rank],
                                   HEARTH_F32,    2,   (size_t[]){task->count / columns, columns}};
    double before = carried(c->nodes[rank]);
    fixture_meet(c);
    check_status(hearth_compressor_all_reduce(compressor, &tensor, HEARTH_OP_SUM, NULL), HEARTH_OK);
    fixture_meet(c);
    left[rank] = carried(c->nodes[rank]) - before;
    check_status(hearth_compressor_stats(compressor, "x", &stats), HEARTH_OK);
    sent[rank] = (double)stats.sent_bytes;
    if (rank == 0) {
        char text[512];
        check(hearth_compressor_explain(compressor, "x", text, sizeof text) > 0, "%s", hearth_error_text());
        said = bytes_in(text);
        if (strstr(text, "by plain"))
            said = 0; /* nothing of it is compressed */
    }
    hearth_compressor_close(compressor);
}

/* Bytes that all members counted, and bytes that left them. Signs of life between members that wait only add
 * to the latter, so the least of a few tries is taken. */
static void measure(struct fixture *c, struct task *task, double *counted, double *real)
{
    *real = INFINITY;
    for (int k = 0; k < TRIES && !(*real <= *counted * (1 + NEAR)); k++) {
        double all = 0;
        *counted = 0;
        fixture_run(c, one_reduction, task);
        for (int i = 0; i < c->size; i++) {
            *counted += sent[i];
            all += left[i];
        }
        *real = fmin(*real, all);
    }
}

static void compare(struct fixture *c, struct task *task)
{
    double total = 0, real;
    measure(c, task, &total, &real);
    if (said > 0)
        check(fabs(real - total) <=
                  NEAR * total + (double)FRAME_HEADER_LEN * c->size, /* a frame may just leave */
              "%s, %zu elements, %d members: %g bytes counted, %g sent", task->codec, task->count, c->size,
              total / c->size, real / c->size);
    if (said > 0)
        check(fabs(total / (said * c->size) - 1) <= NEAR,
              "%s, %zu elements, %d members: %g bytes sent, %g said", task->codec, task->count, c->size,
              total / c->size, said);
    checks_end();
}

TEST(test_what_is_said_is_sent)
{
    for (int i = 0; i < MEMBERS_MAX; i++)
        gradient[i] = must_alloc(COUNT_MAX * sizeof **gradient);
    for (size_t s = 0; s < LEN(sizes); s++) {
        struct fixture c;
        fixture_open(&c, sizes[s], NULL);
        for (size_t k = 0; k < LEN(codecs); k++)
            for (size_t n = 0; n < LEN(counts); n++)
                if (slow_factor() == 1 || (s + k + n) % 5 == 0)
                    compare(&c, &(struct task){codecs[k], counts[n]});
        fixture_close(&c);
    }
    for (int i = 0; i < MEMBERS_MAX; i++)
        free(gradient[i]);
}
