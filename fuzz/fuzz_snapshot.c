/* SPDX-License-Identifier: Apache-2.0 */
/* A saved state that is accepted must encode to the bytes it came from; no bytes may do harm, or take much
 * more memory than they are long. */
#include <stdlib.h>
#include <string.h>

#include "core/bytes.h"
#include "core/crc32c.h"
#include "gradient/snapshot.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

#define CRC_LEN   4
#define LENGTH_AT 32
#define HEAD_LEN  40

/* Of one tensor, with its place in the array, at most. */
#define TENSOR_COST (sizeof(struct tensor) + 1024)

static void check(const uint8_t *bytes, size_t len)
{
    struct heap heap;
    struct tensors tensors;
    struct snapshot_owner owner;
    struct error error;
    heap_init(&heap, 0);
    tensors_init(&tensors, &heap);
    int status = snapshot_decode(&tensors, &owner, bytes, len, &error);
    if (heap.bytes_peak > 2 * len + (len / 64 + 1) * TENSOR_COST)
        abort();
    if (status == HEARTH_OK) {
        uint8_t *again = malloc(len);
        if (!again || snapshot_len(&tensors) != len)
            abort();
        snapshot_encode(&tensors, &owner, again);
        if (memcmp(again, bytes, len) != 0)
            abort();
        free(again);
    } else if (tensors.count != 0) {
        abort();
    }
    tensors_fini(&tensors);
    if (heap.blocks != 0)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    check(bytes, len);
    if (len < HEAD_LEN + CRC_LEN)
        return 0;
    /* The same with length and checksum put right: a fuzzer cannot guess them. */
    uint8_t *fixed = malloc(len);
    if (!fixed)
        return 0;
    memcpy(fixed, bytes, len);
    store_u64(fixed + LENGTH_AT, len);
    store_u32(fixed + len - CRC_LEN, crc32c(0, fixed, len - CRC_LEN));
    check(fixed, len);
    free(fixed);
    return 0;
}
