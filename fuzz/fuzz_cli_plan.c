/* SPDX-License-Identifier: Apache-2.0 */
/* What the starter of a measurement or of the demo tells others: any bytes are refused with what is wrong, or
 * they are a plan within all limits, which can be encoded and read again. */
#include <stdlib.h>
#include <string.h>

#include "cli/cluster/cluster_plan.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

static void must(bool condition)
{
    if (!condition)
        abort();
}

static void look(const struct cluster_plan *plan)
{
    if (plan->kind == CLUSTER_PLAN_BENCH) {
        must(plan->bench.size_count >= 1 && plan->bench.size_count <= CLUSTER_SIZES_MAX);
        for (uint32_t i = 0; i < plan->bench.size_count; i++)
            must(plan->bench.sizes[i] <= CLUSTER_BYTES_MAX);
        return;
    }
    uint64_t pixels = (uint64_t)plan->demo.width * plan->demo.height;
    must(((uint64_t)plan->demo.train_count + plan->demo.test_count) * pixels <= CLUSTER_BYTES_MAX);
    must(plan->demo.lanes <= CLUSTER_LANES_MAX && plan->demo.batch <= plan->demo.train_count);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    uint8_t whole[CLUSTER_PLAN_LEN] = {0}, again[CLUSTER_PLAN_LEN];
    struct cluster_plan plan, second;
    const char *why;
    memcpy(whole, bytes, len < sizeof whole ? len : sizeof whole);
    if (!cluster_plan_decode(&plan, whole, &why)) {
        must(why);
        return 0;
    }
    look(&plan);
    cluster_plan_encode(&plan, again);
    must(cluster_plan_decode(&second, again, &why));
    return 0;
}
