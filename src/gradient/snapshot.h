/* SPDX-License-Identifier: Apache-2.0 */
/* What is kept of all tensors, as bytes and back: docs/payloads.md, "Saved state". */
#pragma once

#include "gradient/tensors.h"

#define SNAPSHOT_VERSION 1

/* Whose it is. */
struct snapshot_owner {
    int rank, size;
    uint64_t seed; /* that codecs draw by */
};

/* No tensor is in flight. */
size_t snapshot_len(const struct tensors *tensors);
/* Writes snapshot_len bytes. */
void snapshot_encode(const struct tensors *tensors, const struct snapshot_owner *owner, uint8_t *bytes);
/* Into `tensors`, which is empty. Takes no more memory than the bytes account for. HEARTH_INVALID says what
 * is wrong and where; HEARTH_NO_MEMORY; `tensors` is empty again then. */
int MUST_CHECK snapshot_decode(struct tensors *tensors, struct snapshot_owner *owner, const uint8_t *bytes,
                               size_t len, struct error *error);
