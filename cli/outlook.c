/* SPDX-License-Identifier: Apache-2.0 */
/* What the race's codecs would cost for a model of today, from the cost model. */
#include "cli/outlook.h"

#include "gradient/price.h"

#define LAYER_SIDE   4096
#define LAYERS       60 /* of LAYER_SIDE x LAYER_SIDE: 1.007e9 weights */
#define RATE         (1e9 / 8)
#define WAY_S        5e-3
#define GAMMA_S      1e-10
#define CHUNK_BYTES  ((size_t)256 << 10)
#define WINDOW_BYTES ((size_t)4 << 20)

void outlook_all(const struct race *race, struct outlook *outlooks)
{
    static const int host[2] = {0, 1};
    struct view view = {.size = 2, .host = host, .algo = HEARTH_AUTO};
    view.across = view.inside = (struct link_cost){WAY_S, RATE, GAMMA_S, 0};
    view.chunk_bytes = CHUNK_BYTES;
    view.window_bytes = WINDOW_BYTES;
    struct tensor_shape layer = {.count = (size_t)LAYER_SIDE * LAYER_SIDE,
                                 .rows = LAYER_SIDE,
                                 .columns = LAYER_SIDE,
                                 .dtype = HEARTH_F32};
    for (int i = 0; i < RACE_LANES; i++) {
        struct codec_list list;
        struct reduction_choice choice;
        struct error error;
        if (codec_parse(race->lanes[i].codec, &list, &error)) {
            outlooks[i] = (struct outlook){.bytes = 0};
            continue;
        }
        reduction_choose(&list, &layer, &view, &choice);
        outlooks[i] = (struct outlook){choice.price.bytes * LAYERS, choice.price.total_s * LAYERS};
    }
}
