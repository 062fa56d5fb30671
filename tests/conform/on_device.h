/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes of one process whose worlds have a fake device. */
#pragma once

#include "conform/reference.h"

#define DEVICE_LEN ((size_t)128 << 20)

/* All members have the same device. */
void open_device(struct fixture *c, int size, const struct hearth_config *config, struct fake_device *device);
/* No copy was wrong, and none is under way. */
void close_device(struct fixture *c, struct fake_device *device);

/* An operation in which the adapter of rank 1 fails; the others are in host memory. */
struct failure {
    struct fake_device *device; /* of rank 1; the others are in host memory */
    const char *word;
    bool before; /* the results */
    bool nonblocking;
    size_t count;
};
