/* SPDX-License-Identifier: Apache-2.0 */
/* Known secrets, one for each direction. */
#include "support/sealed.h"
#include "support/suite.h"

void sealed_pair(struct heap *heap, bool chacha, struct records *ends[2])
{
    for (int i = 0; i < 2; i++) {
        struct records_start start = {.chacha = chacha};
        memset(start.out_secret, 0x40 + i, sizeof start.out_secret);
        memset(start.in_secret, 0x41 - i, sizeof start.in_secret);
        ends[i] = records_open_at(heap, &start);
        assert_non_null(ends[i]);
    }
}
