/* SPDX-License-Identifier: Apache-2.0 */
/* hearth_all_reduce, measured. Uses hearth.h only; rank, world and transport come from the environment. */
#include <stdio.h>
#include <string.h>

#include <hearth.h>

#include "bench/peers/measure.h"

struct own {
    hearth_node *node;
    hearth_group *world;
    struct hearth_opts opts;
    bool shared;
    float *buffer;
    size_t count;
};

static bool good(int status)
{
    if (status != HEARTH_OK)
        fprintf(stderr, "hearth: %s\n", hearth_error_text());
    return status == HEARTH_OK;
}

static bool prepare(void *self, float **buffer, size_t count)
{
    struct own *o = self;
    if (o->shared)
        *buffer = hearth_mem_alloc(o->node, count * sizeof(float));
    o->buffer = *buffer;
    o->count = count;
    return good(o->buffer ? HEARTH_OK : HEARTH_NO_MEMORY);
}

static bool all_reduce(void *self)
{
    struct own *o = self;
    return good(
        hearth_all_reduce(o->world, o->buffer, o->buffer, o->count, HEARTH_F32, HEARTH_OP_SUM, &o->opts));
}

static void finish(void *self)
{
    struct own *o = self;
    if (o->shared)
        hearth_mem_free(o->node, o->buffer);
}

static bool greatest(void *self, double *values, size_t count)
{
    struct own *o = self;
    return good(hearth_all_reduce(o->world, values, values, count, HEARTH_F64, HEARTH_OP_MAX, NULL));
}

int main(int argc, char **argv)
{
    struct setting settings[] = {{"seconds", "0.5"}, {"algo", "auto"}, {"alloc", "private"}};
    struct own own = {0};
    char **sizes = settings_take(argv, settings, 3);
    (void)argc;
    if (!sizes)
        return 2;
    hearth_opts_init(&own.opts);
    own.shared = strcmp(settings[2].value, "shared") == 0;
    if (!own.shared && strcmp(settings[2].value, "private") != 0) {
        fprintf(stderr, "hearth: --alloc %s: shared or private\n", settings[2].value);
        return 2;
    }
    if (hearth_algo_parse(settings[1].value, &own.opts.algo) != HEARTH_OK) {
        fprintf(stderr, "hearth: --algo %s: no such algorithm\n", settings[1].value);
        return 2;
    }
    if (!good(hearth_node_open(NULL, &own.node)))
        return 1;
    own.world = hearth_node_world(own.node);
    struct peer peer = {
        .name = "hearth", .algo = settings[1].value, .alloc = settings[2].value, .self = &own};
    peer.rank = hearth_group_rank(own.world);
    peer.ranks = hearth_group_size(own.world);
    peer.prepare = prepare;
    peer.all_reduce = all_reduce;
    peer.finish = finish;
    peer.greatest = greatest;
    int status = measure(&peer, settings[0].value, sizes);
    hearth_node_close(own.node);
    return status;
}
