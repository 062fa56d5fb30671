/* SPDX-License-Identifier: Apache-2.0 */
/* How wrong a sum of int8 is, by the number of members. Owners round what each member gave once and the sum
 * once more: relative to the sum that stays what it is. A ring that rounds its partial sums at every hop,
  * with the same coder, gets worse with every member. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "compress/coder.h"
#include "conform/fixture.h"

#define FEW   2
#define MANY  16
#define COUNT ((size_t)1 << 16)

struct sums {
    int size;
    float *x[MANY];
    double *exact; /* their sum */
};

/* ---- numbers ---- */

static double draw_normal(uint64_t *seed)
{
    double sum = -6;
    for (int i = 0; i < 12; i++)
        sum += (double)(draw(seed) >> 11) * 0x1p-53;
    return sum;
}

/* As gradients are: most are near zero, some are thirty times as large. */
static double draw_heavy(uint64_t *seed)
{
    double x = draw_normal(seed);
    return x * exp(draw_normal(seed));
}

/* A common direction, which is what training follows, under noise. */
static double draw_shared(uint64_t *seed)
{
    return draw_normal(seed) + 0.5;
}

typedef double draw_fn(uint64_t *seed);

static void sums_open(struct sums *s, int size, draw_fn *fn)
{
    *s = (struct sums){.size = size, .exact = calloc(COUNT, sizeof *s->exact)};
    assert_non_null(s->exact);
    for (int r = 0; r < size; r++) {
        uint64_t seed = 77 + (uint64_t)r;
        s->x[r] = must_alloc(COUNT * sizeof *s->x[r]);
        for (size_t i = 0; i < COUNT; i++) {
            s->x[r][i] = (float)fn(&seed);
            s->exact[i] += (double)s->x[r][i];
        }
    }
}

static void sums_close(struct sums *s)
{
    for (int r = 0; r < s->size; r++)
        free(s->x[r]);
    free(s->exact);
}

/* Root of the squares of what is wrong, to that of what is right. */
static double relative_error(const struct sums *s, const float *got)
{
    double wrong = 0, right = 0;
    for (size_t i = 0; i < COUNT; i++) {
        double d = (double)got[i] - s->exact[i];
        wrong += d * d;
        right += s->exact[i] * s->exact[i];
    }
    return sqrt(wrong / right);
}

/* ---- two ways ---- */

static double error_of_owners(const struct sums *s)
{
    hearth_node *nodes[MANY];
    hearth_request *requests[MANY];
    float *x[MANY];
    struct hearth_opts opts = opts_default();
    opts.algo = HEARTH_ALGO_DIRECT;
    assert_int_equal(hearth_node_open_local(NULL, s->size, nodes), HEARTH_OK);
    for (int r = 0; r < s->size; r++) {
        x[r] = must_alloc(COUNT * sizeof *x[r]);
        memcpy(x[r], s->x[r], COUNT * sizeof *x[r]);
        assert_int_equal(hearth_all_reduce_compressed_nb(hearth_node_world(nodes[r]), x[r], COUNT, HEARTH_F32,
                                                         HEARTH_OP_SUM, "int8", NULL, &opts, &requests[r]),
                         HEARTH_OK);
    }
    for (int r = 0; r < s->size; r++) {
        assert_int_equal(hearth_request_wait(requests[r], -1), HEARTH_OK);
        hearth_request_close(requests[r]);
    }
    double error = relative_error(s, x[0]);
    for (int r = 0; r < s->size; r++) {
        assert_memory_equal(x[r], x[0], COUNT * sizeof *x[r]);
        hearth_node_close(nodes[r]);
    }
    for (int r = 0; r < s->size; r++)
        free(x[r]);
    return error;
}

/* What a hop does to the numbers that it carries. */
static void hop(const struct codec *codec, float *x, size_t first, size_t count)
{
    size_t len = coder_len(codec, count);
    uint8_t *payload = must_alloc(len);
    const uint8_t *bytes[] = {payload};
    struct payloads payloads = {.count = 1, .bytes = bytes};
    struct feed feed = {.dtype = HEARTH_F32, .x = x, .gain = 1};
    struct coder_out out = {.out = x, .dtype = HEARTH_F32, .divisor = 1};
    struct error error;
    assert_int_equal(coder_encode(codec, kernels_best(), &feed, first, count, payload), HEARTH_OK);
    assert_int_equal(coder_decode(codec, kernels_best(), &payloads, &out, count, &error), HEARTH_OK);
    free(payload);
}

/* Part p starts at member p and goes once around, growing; the full sum is rounded for its way to all. */
static double error_of_ring(const struct sums *s)
{
    struct codec_list list;
    struct error error;
    assert_int_equal(codec_parse("int8", &list, &error), HEARTH_OK);
    size_t part = COUNT / (size_t)s->size;
    float *got = must_alloc(COUNT * sizeof *got);
    for (int p = 0; p < s->size; p++) {
        size_t first = part * (size_t)p;
        memcpy(got + first, s->x[p] + first, part * sizeof *got);
        for (int h = 1; h < s->size; h++) {
            const float *own = s->x[(p + h) % s->size];
            hop(&list.codec[0], got + first, first, part);
            for (size_t i = first; i < first + part; i++)
                got[i] += own[i];
        }
        hop(&list.codec[0], got + first, first, part);
    }
    double wrong = relative_error(s, got);
    free(got);
    return wrong;
}

/* ---- tests ---- */

/* The ring's error is at least so many times that of owners. */
static void compare(const char *what, draw_fn *fn, double times)
{
    double owners[2], ring[2];
    for (int i = 0; i < 2; i++) {
        struct sums s;
        sums_open(&s, i == 0 ? FEW : MANY, fn);
        owners[i] = error_of_owners(&s);
        ring[i] = error_of_ring(&s);
        sums_close(&s);
    }
    print_message("%s: owners %.5f at %d, %.5f at %d (%.2f x); a ring %.5f, %.5f (%.2f x), %.2f x owners\n",
                  what, owners[0], FEW, owners[1], MANY, owners[1] / owners[0], ring[0], ring[1],
                  ring[1] / ring[0], ring[1] / owners[1]);
    assert_true(owners[0] > 0 && owners[1] <= 1.2 * owners[0]);
    assert_true(ring[1] >= times * owners[1]);
}

TEST(test_gaussian)
{
    compare("gaussian", draw_normal, 2);
}

/* A sum of many has thinner tails than what it is made of, so rounding it costs less: the ring gains by
 * that. */
TEST(test_heavy_tails)
{
    compare("heavy tails", draw_heavy, 1.5);
}

TEST(test_common_direction)
{
    compare("common direction", draw_shared, 2);
}
