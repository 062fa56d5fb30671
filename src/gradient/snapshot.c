/* SPDX-License-Identifier: Apache-2.0 */
/* Encode and decode of a compressor's state. The bytes come from a file that anybody may have touched: all is
 * checked before it is used, and the checksum only finds accidents. */
#include "gradient/snapshot.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "compress/powersgd.h"
#include "core/bytes.h"
#include "core/crc32c.h"

#define MAGIC          "HEARTHCS"
#define MAGIC_LEN      8u
#define HEAD_LEN       40u
#define TENSOR_LEN     64u /* of one, without what has no fixed length */
#define CRC_LEN        4u
#define HOLDS_RESIDUAL 1u
#define HOLDS_FACTOR   2u /* << FACTOR_Q, FACTOR_P */
#define HOLDS_KNOWN    7u

/* ---- what a tensor holds ---- */

static size_t residual_len(const struct tensor *tensor)
{
    return tensor->form.count * residual_size(tensor->form.dtype);
}

static size_t factor_len(const struct tensor_state *state, int factor)
{
    size_t length = factor == FACTOR_Q ? state->columns : state->rows;
    return length * state->factor_rank * sizeof(float);
}

/* A residual that is not there is all zero. */
static unsigned holds_of(const struct tensor *tensor)
{
    unsigned holds = tensor->state.residual ? HOLDS_RESIDUAL : 0;
    for (int i = 0; i < FACTOR_COUNT; i++)
        holds |= !!tensor->state.factor[i] ? HOLDS_FACTOR << i : 0;
    return holds;
}

/* ---- encode ---- */

static size_t tensor_len(const struct tensor *tensor)
{
    size_t len = TENSOR_LEN + (size_t)tensor->form.ndim * 8 + strlen(tensor->name);
    if (tensor->state.residual)
        len += residual_len(tensor);
    for (int i = 0; i < FACTOR_COUNT; i++)
        if (tensor->state.factor[i])
            len += factor_len(&tensor->state, i);
    return len;
}

size_t snapshot_len(const struct tensors *tensors)
{
    size_t len = HEAD_LEN + CRC_LEN;
    for (size_t i = 0; i < tensors->count; i++)
        len += tensor_len(tensors->item[i]);
    return len;
}

static void put_tensor(struct writer *w, const struct tensor *tensor)
{
    const struct tensor_state *state = &tensor->state;
    unsigned holds = holds_of(tensor);
    put_u8(w, (uint8_t)strlen(tensor->name));
    put_u8(w, (uint8_t)tensor->form.dtype);
    put_u8(w, (uint8_t)tensor->form.ndim);
    put_u8(w, (uint8_t)holds);
    put_u32(w, holds & ~HOLDS_RESIDUAL ? state->factor_rank : 0);
    put_u64(w, state->step);
    put_u64(w, state->plain_bytes);
    put_u64(w, state->sent_bytes);
    put_f64(w, state->energy.before);
    put_f64(w, state->energy.after);
    put_u64(w, state->rows);
    put_u64(w, state->columns);
    for (int i = 0; i < tensor->form.ndim; i++)
        put_u64(w, tensor->form.dims[i]);
    put_bytes(w, tensor->name, strlen(tensor->name));
    if (state->residual)
        put_bytes(w, state->residual, residual_len(tensor));
    for (int i = 0; i < FACTOR_COUNT; i++)
        if (state->factor[i])
            put_bytes(w, state->factor[i], factor_len(state, i));
}

void snapshot_encode(const struct tensors *tensors, const struct snapshot_owner *owner, uint8_t *bytes)
{
    size_t len = snapshot_len(tensors);
    struct writer w = writer_of(bytes, len);
    put_bytes(&w, MAGIC, MAGIC_LEN);
    put_u32(&w, SNAPSHOT_VERSION);
    put_u32(&w, (uint32_t)owner->size);
    put_u32(&w, (uint32_t)owner->rank);
    put_u32(&w, (uint32_t)tensors->count);
    put_u64(&w, owner->seed);
    put_u64(&w, len);
    for (size_t i = 0; i < tensors->count; i++)
        put_tensor(&w, tensors->item[i]);
    put_u32(&w, crc32c(0, bytes, len - CRC_LEN));
    assert(!w.bad && w.at == w.end);
}

/* ---- decode ---- */

static int bad(struct error *error, const char *format, ...) __attribute__((format(printf, 2, 3)));

static int bad(struct error *error, const char *format, ...)
{
    struct error what;
    va_list args;
    va_start(args, format);
    error_vset(&what, HEARTH_INVALID, RANK_NONE, format, args);
    va_end(args);
    return error_wrap(error, &what, "saved state: %s", what.text);
}

static int bad_tensor(struct error *error, const char *name, const char *what)
{
    return bad(error, "tensor '%s': %s", name, what);
}

/* Everything before the tensors; how many there are. */
static int get_head(struct reader *r, const uint8_t *bytes, size_t len, struct snapshot_owner *owner,
                    uint32_t *count, struct error *error)
{
    char magic[MAGIC_LEN];
    get_bytes(r, magic, sizeof magic);
    uint32_t version = get_u32(r), size = get_u32(r), rank = get_u32(r);
    *count = get_u32(r);
    owner->seed = get_u64(r);
    uint64_t length = get_u64(r);
    if (memcmp(magic, MAGIC, MAGIC_LEN) != 0)
        return bad(error, "these bytes are none");
    if (version != SNAPSHOT_VERSION)
        return bad(error, "it is of version %u; this is %d", version, SNAPSHOT_VERSION);
    if (r->bad || length != len)
        return bad(error, "it has %zu bytes and says that it has %llu", len, (unsigned long long)length);
    if (crc32c(0, bytes, len - CRC_LEN) != load_u32(bytes + len - CRC_LEN))
        return bad(error, "the checksum is wrong: it is damaged");
    if (size > INT32_MAX || rank >= size)
        return bad(error, "rank %u of %u cannot be", rank, size);
    if (*count > TENSORS_MAX)
        return bad(error, "%u tensors; at most %d", *count, TENSORS_MAX);
    owner->size = (int)size;
    owner->rank = (int)rank;
    return HEARTH_OK;
}

/* One tensor without its arrays. */
struct record {
    char name[TENSOR_NAME_MAX + 1];
    struct tensor_form form;
    struct tensor_state state; /* numbers only */
    unsigned holds;
};

static uint64_t get_extent(struct reader *r)
{
    uint64_t extent = get_u64(r);
    r->bad |= extent > SIZE_MAX;
    return extent;
}

static int get_record(struct reader *r, struct record *record, struct error *error)
{
    struct tensor_state *state = &record->state;
    size_t name_len = get_u8(r);
    *record = (struct record){.form.dtype = (enum hearth_dtype)get_u8(r)};
    record->form.ndim = get_u8(r);
    record->holds = get_u8(r);
    state->factor_rank = get_u32(r);
    state->step = get_u64(r);
    state->plain_bytes = get_u64(r);
    state->sent_bytes = get_u64(r);
    state->energy.before = get_f64(r);
    state->energy.after = get_f64(r);
    state->rows = (size_t)get_extent(r);
    state->columns = (size_t)get_extent(r);
    if (record->form.ndim > TENSOR_DIMS_MAX)
        return bad(error, "a tensor has more than 8 dimensions");
    for (int i = 0; i < record->form.ndim; i++)
        record->form.dims[i] = (size_t)get_extent(r);
    get_bytes(r, record->name, name_len);
    if (r->bad)
        return bad(error, "it ends in the middle of a tensor");
    if (strlen(record->name) != name_len || !tensor_name_good(record->name))
        return bad(error, "a name is empty or not printable");
    return HEARTH_OK;
}

static bool energy_good(double x)
{
    return x >= 0 && isfinite(x);
}

static bool matrix_good(const struct record *record)
{
    size_t rows = record->state.rows, columns = record->state.columns, product;
    if (rows == 0 || columns == 0)
        return rows == columns;
    return !__builtin_mul_overflow(rows, columns, &product) && product == record->form.count;
}

static bool factors_good(const struct record *record)
{
    size_t rank = record->state.factor_rank;
    if (!(record->holds & ~HOLDS_RESIDUAL))
        return rank == 0;
    return rank >= 1 && rank <= POWERSGD_RANK_MAX && rank <= record->state.rows &&
           rank <= record->state.columns;
}

static int record_check(struct record *record, struct error *error)
{
    if (!tensor_dtype_good(record->form.dtype))
        return bad_tensor(error, record->name, "its type cannot be compressed");
    if (!tensor_form_count(&record->form))
        return bad_tensor(error, record->name, "it has too many elements");
    if (record->holds & ~HOLDS_KNOWN)
        return bad_tensor(error, record->name, "it holds what this version does not know");
    if (!energy_good(record->state.energy.before) || !energy_good(record->state.energy.after))
        return bad_tensor(error, record->name, "an energy is negative or not finite");
    if (!matrix_good(record))
        return bad_tensor(error, record->name, "rows x columns is not its number of elements");
    if (!factors_good(record))
        return bad_tensor(error, record->name, "its factors cannot have that rank");
    return HEARTH_OK;
}

static bool all_finite(const void *numbers, size_t len, size_t element)
{
    const uint8_t *bytes = numbers;
    uint64_t inf = element == sizeof(double) ? UINT64_C(0x7ff0000000000000) : UINT64_C(0x7f800000);
    bool good = true;
    for (size_t i = 0; i < len; i += element) {
        uint64_t bits = element == sizeof(double) ? load_u64(bytes + i) : load_u32(bytes + i);
        good = good && (bits & inf) != inf;
    }
    return good;
}

/* An array of numbers, each of `element` bytes, in memory of its own; NULL: see the error. */
static void *get_array(struct reader *r, struct heap *heap, const char *name, size_t len, size_t element,
                       struct error *error)
{
    void *numbers = NULL;
    if (reader_left(r) < len)
        bad_tensor(error, name, "it ends in the middle of the numbers");
    else if (!all_finite(r->at, len, element))
        bad_tensor(error, name, "there is NaN or Inf among the numbers");
    else if (!(numbers = heap_alloc_raw(heap, 1, len)))
        error_set(error, HEARTH_NO_MEMORY, RANK_NONE, "saved state: no memory for tensor '%s'", name);
    else
        get_bytes(r, numbers, len);
    return numbers;
}

static int get_arrays(struct reader *r, struct tensor *t, unsigned holds, struct heap *heap,
                      struct error *error)
{
    struct tensor_state *state = &t->state;
    size_t element = residual_size(state->dtype);
    if ((holds & HOLDS_RESIDUAL) &&
        !(state->residual = get_array(r, heap, t->name, residual_len(t), element, error)))
        return error->status;
    for (int i = 0; i < FACTOR_COUNT; i++)
        if ((holds & HOLDS_FACTOR << i) &&
            !(state->factor[i] = get_array(r, heap, t->name, factor_len(state, i), sizeof(float), error)))
            return error->status;
    return HEARTH_OK;
}

static int get_tensor(struct reader *r, struct tensors *tensors, struct error *error)
{
    struct record record;
    struct tensor *tensor;
    int status = get_record(r, &record, error);
    if (status == HEARTH_OK)
        status = record_check(&record, error);
    if (status != HEARTH_OK)
        return status;
    if (tensors->count > 0 && strcmp(tensors->item[tensors->count - 1]->name, record.name) >= 0)
        return bad_tensor(error, record.name, "names do not ascend");
    status = tensors_add(tensors, record.name, &record.form, &tensor, error);
    if (status != HEARTH_OK)
        return status;
    record.state.dtype = record.form.dtype;
    record.state.count = record.form.count;
    tensor->state = record.state;
    return get_arrays(r, tensor, record.holds, tensors->heap, error);
}

int snapshot_decode(struct tensors *tensors, struct snapshot_owner *owner, const uint8_t *bytes, size_t len,
                    struct error *error)
{
    struct snapshot_owner found;
    uint32_t count = 0;
    assert(tensors->count == 0);
    if (len < HEAD_LEN + CRC_LEN)
        return bad(error, "it is too short to be one");
    struct reader r = reader_of(bytes, len - CRC_LEN);
    int status = get_head(&r, bytes, len, &found, &count, error);
    for (uint32_t i = 0; i < count && status == HEARTH_OK; i++)
        status = get_tensor(&r, tensors, error);
    if (status == HEARTH_OK && reader_left(&r) > 0)
        status = bad(error, "there are bytes after the last tensor");
    if (status == HEARTH_OK)
        *owner = found;
    else
        tensors_fini(tensors);
    return status;
}
