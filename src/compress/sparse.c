/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of chosen elements: as bytes, added, merged. */
#include "compress/sparse.h"

#include <assert.h>
#include <string.h>

#include "compress/choose.h"
#include "compress/elias.h"
#include "compress/values.h"

size_t sparse_len(const struct codec *codec, size_t keep, size_t count)
{
    struct elias elias = elias_of(keep, count);
    return elias.low_len + elias.high_len + values_len(codec->values, keep);
}

void sparse_encode(const struct codec *codec, const struct kernels *kernels, struct sparse *list,
                   size_t count, uint8_t *bytes)
{
    struct elias elias = elias_of(list->count, count);
    struct values values = {codec->values, kernels, list->count};
    uint8_t *value_bytes = bytes + elias.low_len + elias.high_len;
    memset(bytes + elias.low_len, 0, elias.high_len);
    for (size_t from = 0, number; from < list->count; from += number) {
        number = piece_of(from, list->count);
        elias_encode(&elias, list->index + from, from, number, bytes);
        values_encode(&values, list->value + from, from, number, value_bytes);
    }
}

int sparse_decode(const struct codec *codec, const struct kernels *kernels, const uint8_t *bytes,
                  size_t count, struct sparse *list, struct error *error)
{
    size_t keep = list->count;
    struct elias elias = elias_of(keep, count);
    struct values values = {codec->values, kernels, keep};
    struct elias_reader reader = {.elias = elias, .bytes = bytes};
    const uint8_t *value_bytes = bytes + elias.low_len + elias.high_len;
    for (size_t from = 0, number; from < keep; from += number) {
        number = piece_of(from, keep);
        if (!elias_read(&reader, list->index + from, number))
            return error_set(error, HEARTH_PROTOCOL, RANK_NONE,
                             "indices %zu.. of a list of %zu do not ascend or are not below %zu", from, keep,
                             count);
        if (!values_decode(&values, value_bytes, from, number, list->value + from))
            return error_set(error, HEARTH_PROTOCOL, RANK_NONE,
                             "among values %zu.. of a list of %zu one is not a number", from, keep);
    }
    if (!elias_ends(&reader))
        return error_set(error, HEARTH_PROTOCOL, RANK_NONE,
                         "bits beside the indices of a list of %zu are not 0", keep);
    return HEARTH_OK;
}

void sparse_add(const struct sparse *list, enum hearth_dtype dtype, void *target)
{
    for (size_t i = 0; i < list->count; i++)
        if (dtype == HEARTH_F64)
            ((double *)target)[list->index[i]] += (double)list->value[i];
        else
            ((float *)target)[list->index[i]] += list->value[i];
}

void sparse_put(const struct sparse *list, enum hearth_dtype dtype, void *target)
{
    for (size_t i = 0; i < list->count; i++)
        if (dtype == HEARTH_F64)
            ((double *)target)[list->index[i]] = (double)list->value[i];
        else
            ((float *)target)[list->index[i]] = list->value[i];
}

void sparse_write(const struct sparse *list, const struct kernels *kernels, enum hearth_dtype dtype,
                  size_t count, void *tensor)
{
    size_t size = dtype_size(dtype);
    memset(tensor, 0, count * size);
    if (size >= sizeof(float))
        sparse_put(list, dtype, tensor);
    else
        for (size_t i = 0; i < list->count; i++)
            kernels->narrow(dtype, (uint8_t *)tensor + list->index[i] * size, &list->value[i], 1);
}

/* ---- merging: a heap of the lists, the one with the lowest index on top, of equal ones the first ------- */

struct merge {
    const struct sparse *lists;
    int count;                        /* lists that are not over */
    uint64_t key[CODER_PAYLOADS_MAX]; /* index, then list */
    size_t next[CODER_PAYLOADS_MAX];  /* entry of each list */
};

static void sink(struct merge *m, int at)
{
    uint64_t key = m->key[at];
    for (int child; (child = 2 * at + 1) < m->count; at = child) {
        child += child + 1 < m->count && m->key[child + 1] < m->key[child];
        if (key <= m->key[child])
            break;
        m->key[at] = m->key[child];
    }
    m->key[at] = key;
}

static void merge_init(struct merge *m, const struct sparse *lists, int list_count)
{
    m->lists = lists;
    m->count = 0;
    for (int i = 0; i < list_count; i++) {
        m->next[i] = 0;
        if (lists[i].count > 0)
            m->key[m->count++] = (uint64_t)lists[i].index[0] << 32 | (uint32_t)i;
    }
    for (int at = m->count / 2; at-- > 0;)
        sink(m, at);
}

void sparse_merge(const struct sparse *lists, int list_count, struct sparse *sum)
{
    struct merge m;
    size_t count = 0;
    assert(list_count <= CODER_PAYLOADS_MAX);
    for (merge_init(&m, lists, list_count); m.count > 0; sink(&m, 0)) {
        uint32_t index = (uint32_t)(m.key[0] >> 32), from = (uint32_t)m.key[0];
        const struct sparse *list = &lists[from];
        float value = list->value[m.next[from]++];
        if (count > 0 && sum->index[count - 1] == index) {
            sum->value[count - 1] += value;
        } else {
            sum->index[count] = index;
            sum->value[count++] = value;
        }
        if (m.next[from] < list->count)
            m.key[0] = (uint64_t)list->index[m.next[from]] << 32 | from;
        else
            m.key[0] = m.key[--m.count];
    }
    sum->count = count;
}
