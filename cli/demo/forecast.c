/* SPDX-License-Identifier: Apache-2.0 */
/* What the race's codecs would cost for a model of today, from the cost model. */
#include "cli/demo/forecast.h"

#include "cli/plan/sim_compress.h"

#define PARAMS UINT64_C(1000000000)
#define RANKS  2
#define RATE   (1e9 / 8)
#define PATH_S 5e-3 /* half of the round trip */

/* As FORECAST_COMMAND sees it. */
void forecast_all(const struct race *race, struct forecast *forecasts)
{
    struct hearth_config config;
    hearth_config_init(&config);
    struct group_view view = {.size = RANKS, .algo = HEARTH_AUTO};
    view.across = view.inside = (struct link_cost){PATH_S, RATE, 0, 0};
    view.chunk_bytes = config.chunk_bytes;
    view.window_bytes = config.window_bytes;
    for (int i = 0; i < race->lane_count; i++) {
        struct codec_list list;
        struct error error;
        forecasts[i] = (struct forecast){.bytes = 0};
        if (codec_parse(race->lanes[i].codec, &list, &error))
            continue;
        struct model_price price = model_price(&list, PARAMS, HEARTH_F32, &view);
        forecasts[i] = (struct forecast){price.bytes, price.total_s};
    }
}
