/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the golden bytes in tests/golden: a name on a line of its own, then its bytes in hex. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define GOLDEN_MAX 24

struct golden {
    char name[16];
    uint8_t bytes[512];
    size_t len;
};

/* The number of items in the file; fails the test if there is no such file, or more items than fit. */
size_t golden_read(const char *file, struct golden items[GOLDEN_MAX]);
