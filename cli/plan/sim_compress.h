/* SPDX-License-Identifier: Apache-2.0 */
/* What a step of training costs on an imagined network, codec by codec. */
#pragma once

#include "cli/plan/plan_setup.h"
#include "cli/shared/json.h"
#include "gradient/price.h"

#define MODEL_SIDE 4096 /* rows and columns of a layer */

/* A model of so many parameters: layers of MODEL_SIDE x MODEL_SIDE, one with fewer rows, and the rest, which
 * goes plain as small tensors do. */
struct model_price {
    struct reduction_choice layer;                    /* what a layer does */
    double bytes, wire_s, kernel_s, total_s, plain_s; /* of all, in flight together */
};
struct model_price model_price(const struct codec_list *list, size_t params, enum hearth_dtype dtype,
                               const struct group_view *view);

/* hearth sim --compress: `codecs` by ';', or "all". `doc`: for rows, NULL: prints a table. */
int sim_compress(const struct plan_setup *setup, const struct usage *usage, const char *codecs, json_t *doc);
