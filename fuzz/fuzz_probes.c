/* SPDX-License-Identifier: Apache-2.0 */
/* PROBE, MEASURED and results: what is accepted must encode to the bytes it came from; the first byte chooses
 * which of them it is. */
#include <stdlib.h>
#include <string.h>

#include "cluster/probe_messages.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

static void same(const uint8_t *bytes, size_t len, const uint8_t *again, size_t again_len)
{
    if (len != again_len || memcmp(bytes, again, len) != 0)
        abort();
}

static void try_order(const uint8_t *bytes, size_t len)
{
    uint8_t again[PROBE_MESSAGE_MAX];
    struct probe_order order;
    const char *what = NULL;

    if (probe_order_decode(&order, bytes, len, &what)) {
        size_t again_len = probe_order_encode(&order, again, sizeof again);
        /* An IPv4 address in IPv6 clothes becomes an IPv4 address. */
        if (again_len == len)
            same(bytes, len, again, again_len);
        else if (again_len == 0 || again_len > len)
            abort();
    } else if (!what) {
        abort();
    }
}

static void try_measured(const uint8_t *bytes, size_t len)
{
    uint8_t again[MEASURED_MESSAGE_MAX];
    struct measured measured;
    const char *what = NULL;

    if (measured_decode(&measured, bytes, len, &what))
        same(bytes, len, again, measured_encode(&measured, again, sizeof again));
    else if (!what)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    struct probe_result result;
    uint8_t again[RESULT_LEN];

    if (len < 1)
        return 0;
    if (bytes[0] % 3 == 0) {
        try_order(bytes + 1, len - 1);
    } else if (bytes[0] % 3 == 1) {
        try_measured(bytes + 1, len - 1);
    } else if (probe_result_decode(&result, bytes + 1, len - 1)) {
        probe_result_encode(&result, again);
        same(bytes + 1, len - 1, again, sizeof again);
    }
    return 0;
}
