/* SPDX-License-Identifier: Apache-2.0 */
/* Chosen elements of an array: which they are (topk), and as bytes. Indices are coded near their entropy
 * (Elias-Fano), values as codec->values says. */
#pragma once

#include "compress/coder.h"
#include "core/heap.h"

#define SPARSE_COUNT_MAX UINT32_MAX /* elements of the array that indices reach */

/* Indices ascend, no two are the same. */
struct sparse {
    size_t count;
    uint32_t *index;
    float *value;
};

/* ---- selection over a whole tensor ---- */

/* Scratch of a selection, kept by the caller between steps. `threshold` only makes the next one faster: the
 * result never depends on it. */
struct topk_hint {
    uint32_t threshold; /* bits of |x|; 0: none yet */
};

/* Memory that topk_select needs besides its result, at most. */
size_t topk_scratch_len(size_t count, size_t keep);

/* acc = gain * x + e is written to feed->e_new (never NULL here; f32 or f64 as in struct feed), and the
 * `keep` elements of largest |acc| (as f32), ties by lowest index, to `found` (room for `keep` entries):
 * exactly that many, exactly those. e_new still holds them: see sparse_leave. Linear time, never a sort;
 * with a good hint one pass over memory. HEARTH_POISONED as coder_encode. */
struct topk_job {
    const struct kernels *kernels;
    struct topk_hint *hint; /* may be NULL */
    void *scratch;          /* topk_scratch_len bytes */
};
int MUST_CHECK topk_select(const struct topk_job *job, const struct feed *feed, size_t count, size_t keep,
                           struct sparse *found);

/* The `keep` entries of largest |value| of a list, ties by lowest index, stay in `list` in order; the others
 * go to `rest` (room for list->count). For owners that choose again. */
void sparse_choose(struct sparse *list, size_t keep, struct sparse *rest);

/* ---- as bytes ---- */

/* Bytes of `keep` entries of an array of `count`: fixed. The number of entries is not in them. */
size_t sparse_len(const struct codec *codec, size_t keep, size_t count);
/* Writes sparse_len bytes; list->value[i] becomes what the coded value lacks of it. All values finite. */
void sparse_encode(const struct codec *codec, const struct kernels *kernels, struct sparse *list,
                   size_t count, uint8_t *bytes);
/* As many entries as list->count says, for which there is room. Checked: HEARTH_PROTOCOL with a text if
 * indices are not ascending or not below `count`, a scale is not a number, bits that must be 0 are not. */
int MUST_CHECK sparse_decode(const struct codec *codec, const struct kernels *kernels, const uint8_t *bytes,
                             size_t count, struct sparse *list, struct error *error);

/* target[index] += value for all entries (f64 for that type, else f32). */
void sparse_add(const struct sparse *list, enum hearth_dtype dtype, void *target);
/* target[index] = value, likewise. */
void sparse_put(const struct sparse *list, enum hearth_dtype dtype, void *target);
/* The tensor is 0 but where the list says otherwise. */
void sparse_write(const struct sparse *list, const struct kernels *kernels, enum hearth_dtype dtype,
                  size_t count, void *tensor);
/* Merges lists in the order given: where several have an index their values are added in that order, in f32.
 * `sum` has room for the entries of all lists together. At most CODER_PAYLOADS_MAX lists. */
void sparse_merge(const struct sparse *lists, int list_count, struct sparse *sum);
