/* SPDX-License-Identifier: Apache-2.0 */
/* A codec of one's own: a sign or 0 for each element, in two bits, and one magnitude for all.
 * Run: hearth run -n 3 -- ./ternary; alone it is a world of one. */
#include <hearth.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { COUNT = 1000, STEPS = 200 };

static size_t ternary_bound(void *arg, const struct hearth_codec_call *call)
{
    (void)arg;
    return sizeof(float) + (call->count + 3) / 4;
}

/* Elements above the mean magnitude are sent, all as twice the mean. */
static int ternary_encode(void *arg, const struct hearth_codec_call *call, const float *values, void *bytes,
                          size_t size, size_t *len)
{
    uint8_t *codes = (uint8_t *)bytes + sizeof(float);
    float mean = 0;
    (void)arg;
    for (size_t i = 0; i < call->count; i++)
        mean += fabsf(values[i]) / (float)call->count;
    float scale = 2 * mean;
    memcpy(bytes, &scale, sizeof scale);
    memset(codes, 0, size - sizeof scale);
    for (size_t i = 0; i < call->count; i++)
        if (fabsf(values[i]) > mean)
            codes[i / 4] |= (uint8_t)((values[i] > 0 ? 1 : 2) << i % 4 * 2);
    *len = size; /* or less */
    return 0;
}

static int ternary_decode(void *arg, const struct hearth_codec_call *call, const void *bytes, size_t len,
                          float *values)
{
    const uint8_t *codes = (const uint8_t *)bytes + sizeof(float);
    float scale;
    if (len != ternary_bound(arg, call)) /* it may come from another member: check all of it */
        return HEARTH_PROTOCOL;
    memcpy(&scale, bytes, sizeof scale);
    for (size_t i = 0; i < call->count; i++) {
        int code = codes[i / 4] >> i % 4 * 2 & 3;
        values[i] = code == 0 ? 0 : code == 1 ? scale : -scale;
        if (code == 3)
            return HEARTH_PROTOCOL;
    }
    return 0;
}

int main(void)
{
    float gradient[COUNT], residual[COUNT] = {0}, mean[COUNT] = {0}, worst = 0;
    int status = HEARTH_OK;
    hearth_node *node;
    struct hearth_codec_functions ternary;
    hearth_codec_functions_init(&ternary);
    ternary.bound = ternary_bound;
    ternary.encode = ternary_encode;
    ternary.decode = ternary_decode;
    if (hearth_codec_register("ternary", &ternary) || hearth_node_open(NULL, &node))
        return fprintf(stderr, "%s\n", hearth_error_text()), 1;
    hearth_group *world = hearth_node_world(node);
    for (int step = 0; step <= STEPS && !status; step++) { /* the last one is plain, to compare with */
        for (int i = 0; i < COUNT; i++)
            gradient[i] = sinf((float)(i + hearth_group_rank(world)));
        status = hearth_all_reduce_compressed(world, gradient, COUNT, HEARTH_F32, HEARTH_OP_AVG,
                                              step < STEPS ? "ternary" : "none", residual, NULL);
        for (int i = 0; i < COUNT; i++)
            mean[i] += step < STEPS ? gradient[i] / STEPS : 0;
    }
    for (int i = 0; i < COUNT; i++)
        worst = fmaxf(worst, fabsf(mean[i] - gradient[i]));
    printf("rank %d: %s, off by %.3f\n", hearth_group_rank(world), hearth_status_name(status), (double)worst);
    hearth_node_close(node);
    return status || worst > 0.05f; /* what one step leaves out comes in a later one */
}
