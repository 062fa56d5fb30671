/* SPDX-License-Identifier: Apache-2.0 */
/* Names and sizes of element types, operations and algorithms, and the library's version. */
#include "core/types.h"

#include <string.h>

#include "core/error.h"

static const char *const dtype_names[DTYPE_COUNT] = {
    [HEARTH_F32] = "f32", [HEARTH_F64] = "f64", [HEARTH_F16] = "f16", [HEARTH_BF16] = "bf16",
    [HEARTH_I8] = "i8",   [HEARTH_I32] = "i32", [HEARTH_I64] = "i64", [HEARTH_U8] = "u8",
    [HEARTH_U32] = "u32", [HEARTH_U64] = "u64",
};

static const uint8_t dtype_sizes[DTYPE_COUNT] = {
    [HEARTH_F32] = 4, [HEARTH_F64] = 8, [HEARTH_F16] = 2, [HEARTH_BF16] = 2, [HEARTH_I8] = 1,
    [HEARTH_I32] = 4, [HEARTH_I64] = 8, [HEARTH_U8] = 1,  [HEARTH_U32] = 4,  [HEARTH_U64] = 8,
};

static const char *const op_names[OP_COUNT] = {
    [HEARTH_OP_SUM] = "sum", [HEARTH_OP_AVG] = "avg",   [HEARTH_OP_PROD] = "prod", [HEARTH_OP_MIN] = "min",
    [HEARTH_OP_MAX] = "max", [HEARTH_OP_BAND] = "band", [HEARTH_OP_BOR] = "bor",   [HEARTH_OP_BXOR] = "bxor",
};

static const char *const algo_names[ALGO_COUNT] = {
    [HEARTH_ALGO_AUTO] = "auto",
    [HEARTH_ALGO_RING] = "ring",
    [HEARTH_ALGO_DIRECT] = "direct",
    [HEARTH_ALGO_HALVING] = "halving",
    [HEARTH_ALGO_TREE] = "tree",
    [HEARTH_ALGO_STAR] = "star",
    [HEARTH_ALGO_HIERARCHICAL] = "hierarchical",
    [HEARTH_ALGO_EXCHANGE] = "exchange",
};

/* Index of `name` in the list, or HEARTH_INVALID, which is negative. `what` it names, for the text. */
static int name_find(const char *const *names, int count, const char *name, const char *what, const void *out)
{
    if (!name || !out)
        return error_set(error_last(), HEARTH_INVALID, RANK_NONE, "%s_parse: %s is NULL", what,
                         name ? what : "name");
    for (int i = 0; i < count; i++)
        if (strcmp(names[i], name) == 0)
            return i;
    return error_set(error_last(), HEARTH_INVALID, RANK_NONE, "%s_parse: unknown name \"%.32s%s\"", what,
                     name, strlen(name) > 32 ? "..." : "");
}

uint32_t hearth_version(void)
{
    return (uint32_t)HEARTH_VERSION_MAJOR << 16 | (uint32_t)HEARTH_VERSION_MINOR << 8 | HEARTH_VERSION_PATCH;
}

#define TEXT_OF(number)   #number
#define TEXT_OF_2(number) TEXT_OF(number)

const char *hearth_version_string(void)
{
    return TEXT_OF_2(HEARTH_VERSION_MAJOR) "." TEXT_OF_2(HEARTH_VERSION_MINOR) "." TEXT_OF_2(
        HEARTH_VERSION_PATCH);
}

/* Enums come from callers: compared as unsigned numbers, so that a negative one is unknown too. */

size_t dtype_size(enum hearth_dtype dtype)
{
    return (unsigned)dtype < DTYPE_COUNT ? dtype_sizes[(unsigned)dtype] : 0;
}

size_t hearth_dtype_size(enum hearth_dtype dtype)
{
    return dtype_size(dtype);
}

bool op_takes(enum hearth_op op, enum hearth_dtype dtype)
{
    return op < HEARTH_OP_BAND || dtype >= HEARTH_I8;
}

const char *hearth_dtype_name(enum hearth_dtype dtype)
{
    return (unsigned)dtype < DTYPE_COUNT ? dtype_names[(unsigned)dtype] : "?";
}

const char *hearth_op_name(enum hearth_op op)
{
    return (unsigned)op < OP_COUNT ? op_names[(unsigned)op] : "?";
}

const char *hearth_algo_name(enum hearth_algo algo)
{
    return (unsigned)algo < ALGO_COUNT ? algo_names[(unsigned)algo] : "?";
}

int hearth_dtype_parse(const char *name, enum hearth_dtype *dtype)
{
    int found = name_find(dtype_names, DTYPE_COUNT, name, "dtype", dtype);
    if (found < 0)
        return HEARTH_INVALID;
    *dtype = (enum hearth_dtype)found;
    return HEARTH_OK;
}

int hearth_op_parse(const char *name, enum hearth_op *op)
{
    int found = name_find(op_names, OP_COUNT, name, "op", op);
    if (found < 0)
        return HEARTH_INVALID;
    *op = (enum hearth_op)found;
    return HEARTH_OK;
}

int hearth_algo_parse(const char *name, enum hearth_algo *algo)
{
    int found = name_find(algo_names, ALGO_COUNT, name, "algo", algo);
    if (found < 0)
        return HEARTH_INVALID;
    *algo = (enum hearth_algo)found;
    return HEARTH_OK;
}

int view_place(const struct group_view *view, int rank)
{
    if (view->site)
        return view->site[rank];
    return view->host ? view->host[rank] : 0;
}

void view_order(const struct group_view *view, const int *ranks, int count, int *order)
{
    int found = 0;
    for (int place = 0; place < view->size; place++)
        for (int i = 0; i < count; i++)
            if (ranks[i] == (!!view->order ? view->order[place] : place))
                order[found++] = i;
}
