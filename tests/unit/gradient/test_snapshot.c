/* SPDX-License-Identifier: Apache-2.0 */
/* Saved state: golden bytes decode for ever, all that is kept comes back, damage and lies are refused. And
 * the table of tensors that it is made of. */
#include <math.h>

#include "core/bytes.h"
#include "core/crc32c.h"
#include "gradient/snapshot.h"
#include "support/golden.h"
#include "support/suite.h"

#define BYTES_MAX 4096
#define CRC_LEN   4
#define LENGTH_AT 32
#define FIRST_AT  40 /* first tensor */

static const struct snapshot_owner owner_saved = {.rank = 1, .size = 4, .seed = UINT64_C(0x1122334455667788)};

static struct fixture {
    struct heap heap;
    struct tensors tensors;
    struct error error;
} f;

static int setup(void **state)
{
    (void)state;
    heap_init(&f.heap, 0);
    tensors_init(&f.tensors, &f.heap);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    tensors_fini(&f.tensors);
    assert_int_equal(f.heap.blocks, 0);
    return 0;
}

static struct tensor *add(const char *name, enum hearth_dtype dtype, int ndim, const size_t *dims)
{
    struct tensor_form form = {.dtype = dtype, .ndim = ndim};
    struct tensor *tensor = NULL;
    for (int i = 0; i < ndim; i++)
        form.dims[i] = dims[i];
    assert_true(tensor_form_count(&form));
    assert_int_equal(tensors_add(&f.tensors, name, &form, &tensor, &f.error), HEARTH_OK);
    return tensor;
}

static void *copy_of(const void *source, size_t len)
{
    void *copy = heap_alloc(&f.heap, 1, len);
    assert_non_null(copy);
    if (len > 0)
        memcpy(copy, source, len);
    return copy;
}

/* The tensors of tests/golden/snapshot_v1.hex, added in another order. */
static void add_golden(void)
{
    static const float residual[] = {1.5F, -2.0F, 0.25F, 0.0F, -0.0F, 3.0F}, q[] = {0.5F, 0.25F, -1.0F},
                       p[] = {1.0F, -0.5F};
    static const double wide[] = {0.1, -1e300};
    struct tensor *tensor = add("wide", HEARTH_F64, 1, (size_t[]){2});
    tensor->state.residual = copy_of(wide, sizeof wide);
    tensor->state.step = 3;
    tensor = add("empty", HEARTH_F16, 3, (size_t[]){4, 0, 2});
    tensor->state.residual = copy_of(NULL, 0);
    tensor->state.step = 1;
    add("a scalar", HEARTH_BF16, 0, NULL);
    tensor = add("layer.1", HEARTH_F32, 2, (size_t[]){2, 3});
    tensor->state.rows = 2;
    tensor->state.columns = 3;
    tensor->state.factor_rank = 1;
    tensor->state.residual = copy_of(residual, sizeof residual);
    tensor->state.factor[FACTOR_Q] = copy_of(q, sizeof q);
    tensor->state.factor[FACTOR_P] = copy_of(p, sizeof p);
    tensor->state.step = 7;
    tensor->state.plain_bytes = 168;
    tensor->state.sent_bytes = 140;
    tensor->state.energy = (struct energy){2.5, 0.125};
}

static size_t encode(uint8_t bytes[BYTES_MAX])
{
    size_t len = snapshot_len(&f.tensors);
    assert_true(len <= BYTES_MAX);
    snapshot_encode(&f.tensors, &owner_saved, bytes);
    return len;
}

/* The bytes of the only item of the file. */
static size_t golden_bytes(uint8_t bytes[BYTES_MAX])
{
    static struct golden items[GOLDEN_MAX];
    assert_int_equal(golden_read("snapshot_v1.hex", items), 1);
    memcpy(bytes, items[0].bytes, items[0].len);
    return items[0].len;
}

TEST_WITH(test_golden, setup, teardown)
{
    uint8_t golden[BYTES_MAX], bytes[BYTES_MAX];
    struct snapshot_owner owner;
    size_t golden_len = golden_bytes(golden);
    assert_true(golden_len > 100);
    add_golden();
    assert_int_equal(encode(bytes), golden_len);
    assert_memory_equal(bytes, golden, golden_len);
    tensors_fini(&f.tensors);

    assert_int_equal(snapshot_decode(&f.tensors, &owner, golden, golden_len, &f.error), HEARTH_OK);
    assert_int_equal(owner.rank, 1);
    assert_int_equal(owner.size, 4);
    assert_true(owner.seed == owner_saved.seed);
    assert_int_equal(f.tensors.count, 4);
    const struct tensor *layer = tensors_find(&f.tensors, "layer.1");
    assert_non_null(layer);
    assert_int_equal(layer->form.count, 6);
    assert_int_equal(layer->form.dims[1], 3);
    assert_int_equal(layer->state.count, 6);
    assert_int_equal(layer->state.columns, 3);
    assert_int_equal(layer->state.factor_rank, 1);
    assert_int_equal(layer->state.step, 7);
    assert_int_equal(layer->state.plain_bytes, 168);
    assert_int_equal(layer->state.sent_bytes, 140);
    assert_true(layer->state.energy.before == 2.5 && layer->state.energy.after == 0.125);
    assert_true(((float *)layer->state.residual)[5] == 3.0F);
    assert_true(layer->state.factor[FACTOR_Q][2] == -1.0F && layer->state.factor[FACTOR_P][1] == -0.5F);
    assert_true(((double *)tensors_find(&f.tensors, "wide")->state.residual)[0] == 0.1);
    assert_int_equal(tensors_find(&f.tensors, "a scalar")->form.count, 1);
    assert_null(tensors_find(&f.tensors, "a scalar")->state.residual);
    assert_int_equal(tensors_find(&f.tensors, "empty")->form.count, 0);
}

TEST_WITH(test_empty, setup, teardown)
{
    uint8_t bytes[BYTES_MAX];
    struct snapshot_owner owner;
    size_t len = encode(bytes);
    assert_int_equal(len, FIRST_AT + CRC_LEN);
    assert_int_equal(snapshot_decode(&f.tensors, &owner, bytes, len, &f.error), HEARTH_OK);
    assert_int_equal(f.tensors.count, 0);
}

static void assert_decode_fails(const uint8_t *bytes, size_t len, const char *word)
{
    struct snapshot_owner owner = {.rank = 77};
    assert_int_equal(snapshot_decode(&f.tensors, &owner, bytes, len, &f.error), HEARTH_INVALID);
    if (!strstr(f.error.text, word))
        fail_msg("'%s' does not say '%s'", f.error.text, word);
    assert_int_equal(owner.rank, 77);
    assert_int_equal(f.tensors.count, 0);
    assert_int_equal(f.heap.blocks, 0);
}

/* Every byte that is changed, and every end that is missing. */
TEST_WITH(test_damage, setup, teardown)
{
    uint8_t bytes[BYTES_MAX];
    size_t len = golden_bytes(bytes);
    for (size_t i = 0; i < len; i++) {
        bytes[i] ^= 0x10;
        assert_decode_fails(bytes, len, "saved state");
        bytes[i] ^= 0x10;
    }
    for (size_t i = 0; i < len; i++) {
        uint8_t *cut = malloc(i > 0 ? i : 1); /* exact, so that a sanitizer sees the first byte beyond */
        assert_non_null(cut);
        memcpy(cut, bytes, i);
        assert_decode_fails(cut, i, "saved state");
        if (i >= FIRST_AT + CRC_LEN) {
            store_u64(cut + LENGTH_AT, i);
            store_u32(cut + i - CRC_LEN, crc32c(0, cut, i - CRC_LEN));
            assert_decode_fails(cut, i, "saved state");
        }
        free(cut);
    }
}

/* The golden bytes with some of them replaced, and a checksum that says they are right. */
struct lie {
    size_t at, len;
    uint64_t value;
    const char *word;
};

static void tell(const struct lie *lie)
{
    uint8_t bytes[BYTES_MAX], value[8];
    size_t len = golden_bytes(bytes);
    store_u64(value, lie->value);
    memcpy(bytes + lie->at, value, lie->len);
    store_u32(bytes + len - CRC_LEN, crc32c(0, bytes, len - CRC_LEN));
    assert_decode_fails(bytes, len, lie->word);
}

/* Where the tensors of the golden bytes stand. */
enum {
    SCALAR_AT = FIRST_AT,
    EMPTY_AT = SCALAR_AT + 64 + 8,
    LAYER_AT = EMPTY_AT + 64 + 3 * 8 + 5,
    LAYER_RESIDUAL_AT = LAYER_AT + 64 + 2 * 8 + 7,
    LAYER_Q_AT = LAYER_RESIDUAL_AT + 6 * 4,
    WIDE_AT = LAYER_Q_AT + 5 * 4,
    WIDE_RESIDUAL_AT = WIDE_AT + 64 + 8 + 4,
};

TEST_WITH(test_lies, setup, teardown)
{
    static const struct lie lies[] = {
        {0, 1, 'X', "none"},
        {8, 4, 2, "version 2"},
        {12, 4, 1, "rank 1 of 1"},
        {12, 4, UINT32_MAX, "cannot be"},
        {20, 4, 3, "after the last tensor"},
        {20, 4, 5, "middle of a tensor"},
        {20, 4, TENSORS_MAX + 1, "at most 65536"},
        {LENGTH_AT, 8, 1, "says that it has 1"},
        {SCALAR_AT, 1, 0, "name"},
        {SCALAR_AT + 64, 1, 0x1b, "name"},
        {SCALAR_AT + 64, 1, 0, "name"},
        {SCALAR_AT + 64, 1, 0x7f, "name"},
        {SCALAR_AT + 64, 1, 'x', "ascend"},
        {SCALAR_AT + 1, 1, HEARTH_I32, "type"},
        {SCALAR_AT + 1, 1, 255, "type"},
        {SCALAR_AT + 2, 1, 9, "8 dimensions"},
        {LAYER_AT + 3, 1, 15, "does not know"},
        {LAYER_AT + 4, 4, 0, "'layer.1': its factors"},
        {LAYER_AT + 4, 4, 3, "'layer.1': its factors"},
        {SCALAR_AT + 4, 4, 1, "factors"},
        {LAYER_AT + 32, 8, UINT64_C(0x7ff8000000000000), "energy"},
        {LAYER_AT + 32, 8, UINT64_C(0x7ff0000000000000), "energy"},
        {LAYER_AT + 40, 8, UINT64_C(0xbff0000000000000), "energy"},
        {LAYER_AT + 48, 8, 3, "rows x columns"},
        {LAYER_AT + 48, 8, 0, "rows x columns"},
        {LAYER_AT + 48, 8, (UINT64_C(1) << 63) + 2, "rows x columns"},
        {LAYER_AT + 64, 8, UINT64_C(1) << 62, "too many elements"},
        {WIDE_AT + 64, 8, UINT64_C(1) << 59, "'wide': it ends"},
        {WIDE_AT + 64, 8, UINT64_C(1) << 60, "too many elements"},
        {WIDE_AT + 64, 8, 3, "'wide': it ends"},
        {LAYER_RESIDUAL_AT, 4, 0x7fc00000, "'layer.1': there is NaN"},
        {LAYER_RESIDUAL_AT + 20, 4, 0xff800000, "'layer.1': there is NaN"},
        {LAYER_Q_AT + 8, 4, 0x7f800001, "'layer.1': there is NaN"},
        {WIDE_RESIDUAL_AT + 8, 8, UINT64_C(0xfff0000000000000), "'wide': there is NaN"},
    };
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++)
        tell(&lies[i]);
}

TEST_WITH(test_no_memory, setup, teardown)
{
    uint8_t bytes[BYTES_MAX];
    struct snapshot_owner owner;
    size_t len = golden_bytes(bytes);
    int status = HEARTH_NO_MEMORY;
    for (int64_t n = 0; status != HEARTH_OK; n++) {
        f.heap.fail_after = n;
        status = snapshot_decode(&f.tensors, &owner, bytes, len, &f.error);
        if (status == HEARTH_OK)
            break;
        assert_int_equal(status, HEARTH_NO_MEMORY);
        assert_int_equal(f.heap.blocks, 0);
    }
    assert_int_equal(f.tensors.count, 4);
}

/* ---- tensors by name ---- */

TEST_WITH(test_table, setup, teardown)
{
    enum { COUNT = 1000 };
    char name[16];
    for (int i = 0; i < COUNT; i++) { /* 7 and 1000 have no common divisor: every number once */
        snprintf(name, sizeof name, "t%d", i * 7 % COUNT);
        assert_null(tensors_find(&f.tensors, name));
        struct tensor *tensor = add(name, HEARTH_F32, 1, (size_t[]){(size_t)i});
        assert_ptr_equal(tensors_find(&f.tensors, name), tensor);
    }
    assert_int_equal(f.tensors.count, COUNT);
    for (size_t i = 1; i < COUNT; i++)
        assert_true(strcmp(f.tensors.item[i - 1]->name, f.tensors.item[i]->name) < 0);
    for (int i = 0; i < COUNT; i += 2) {
        snprintf(name, sizeof name, "t%d", i);
        tensors_remove(&f.tensors, tensors_find(&f.tensors, name));
        assert_null(tensors_find(&f.tensors, name));
    }
    assert_int_equal(f.tensors.count, COUNT / 2);
    assert_int_equal(tensors_find(&f.tensors, "t7")->form.count, 1);
}

TEST_WITH(test_table_limit, setup, teardown)
{
    char name[16];
    struct tensor_form form = {.dtype = HEARTH_F32, .count = 1};
    struct tensor *tensor;
    for (int i = 0; i < TENSORS_MAX; i++) {
        snprintf(name, sizeof name, "t%05d", i); /* ascending: nothing has to move */
        assert_int_equal(tensors_add(&f.tensors, name, &form, &tensor, &f.error), HEARTH_OK);
    }
    assert_int_equal(tensors_add(&f.tensors, "u", &form, &tensor, &f.error), HEARTH_LIMIT);
    assert_non_null(strstr(f.error.text, "65536"));
}

TEST(test_names)
{
    char name[TENSOR_NAME_MAX + 2];
    memset(name, 'n', sizeof name);
    name[TENSOR_NAME_MAX + 1] = 0;
    assert_false(tensor_name_good(name));
    name[TENSOR_NAME_MAX] = 0;
    assert_true(tensor_name_good(name));
    assert_true(tensor_name_good(" ~"));
    assert_false(tensor_name_good(""));
    assert_false(tensor_name_good("a\tb"));
    assert_false(tensor_name_good("a\x7f"));
    assert_false(tensor_name_good("\xc3\xa4"));
}

TEST(test_forms)
{
    char text[TENSOR_TEXT_MAX], cut[8];
    struct tensor_form scalar = {.dtype = HEARTH_BF16}, matrix = {.ndim = 2, .dims = {4096, 1024}};
    assert_true(tensor_form_count(&scalar) && tensor_form_count(&matrix));
    assert_int_equal(scalar.count, 1);
    assert_int_equal(matrix.count, 4096 * 1024);
    tensor_form_text(&scalar, text, sizeof text);
    assert_string_equal(text, "bf16 []");
    tensor_form_text(&matrix, text, sizeof text);
    assert_string_equal(text, "f32 [4096, 1024]");
    tensor_form_text(&matrix, cut, sizeof cut);
    assert_string_equal(cut, "f32 [40");
    struct tensor_form other = matrix;
    assert_true(tensor_form_same(&matrix, &other));
    other.dims[1] = 1023;
    assert_false(tensor_form_same(&matrix, &other));
    other = matrix;
    other.ndim = 1;
    assert_false(tensor_form_same(&matrix, &other));
    other = matrix;
    other.dtype = HEARTH_F64;
    assert_false(tensor_form_same(&matrix, &other));
    other = (struct tensor_form){.ndim = 3, .dims = {SIZE_MAX, SIZE_MAX, 0}};
    assert_true(tensor_form_count(&other) && other.count == 0);
    other.dims[2] = 1;
    assert_false(tensor_form_count(&other));
}

/* Factors of another matrix or rank mean nothing; the residual stays. */
TEST_WITH(test_reshape, setup, teardown)
{
    add_golden();
    struct tensor_state *layer = &tensors_find(&f.tensors, "layer.1")->state;
    tensor_reshape(layer, 2, 3, 1);
    assert_non_null(layer->factor[FACTOR_Q]);
    tensor_reshape(layer, 2, 3, 2);
    assert_null(layer->factor[FACTOR_Q]);
    assert_null(layer->factor[FACTOR_P]);
    assert_int_equal(layer->factor_rank, 0);
    assert_non_null(layer->residual);
    layer->factor[FACTOR_Q] = copy_of((float[6]){0}, 6 * sizeof(float));
    layer->factor_rank = 2;
    tensor_reshape(layer, 3, 2, 2);
    assert_null(layer->factor[FACTOR_Q]);
    assert_int_equal(layer->rows, 3);
    assert_int_equal(layer->step, 7);
}
