/* SPDX-License-Identifier: Apache-2.0 */
/* The naive reference: for every element, look at all members. */
#include "conform/reference.h"

#include <inttypes.h>
#include <math.h>

/* ---- elements ---- */

/* Bits of exponent and significand (without the leading one) of the float types. */
struct format {
    int exponent_bits, fraction_bits;
};

static struct format format_of(enum hearth_dtype dtype)
{
    switch (dtype) {
    case HEARTH_F64:
        return (struct format){11, 52};
    case HEARTH_F32:
        return (struct format){8, 23};
    case HEARTH_F16:
        return (struct format){5, 10};
    default:
        return (struct format){8, 7};
    }
}

bool dtype_is_integer(enum hearth_dtype dtype)
{
    return dtype >= HEARTH_I8;
}

bool op_exists(enum hearth_op op, enum hearth_dtype dtype)
{
    return op < HEARTH_OP_BAND || dtype_is_integer(dtype);
}

bool dtype_is_signed(enum hearth_dtype dtype)
{
    return dtype < HEARTH_U8;
}

uint64_t get_bits(enum hearth_dtype dtype, const void *base, size_t index)
{
    size_t len = hearth_dtype_size(dtype);
    uint64_t bits = 0;
    memcpy(&bits, (const char *)base + index * len, len); /* the library is for little-endian machines */
    return bits;
}

void set_bits(enum hearth_dtype dtype, void *base, size_t index, uint64_t bits)
{
    size_t len = hearth_dtype_size(dtype);
    memcpy((char *)base + index * len, &bits, len);
}

uint64_t get_integer(enum hearth_dtype dtype, const void *base, size_t index)
{
    uint64_t bits = get_bits(dtype, base, index);
    int width = 8 * (int)hearth_dtype_size(dtype);
    if (dtype_is_signed(dtype) && width < 64 && (bits >> (width - 1) & 1))
        bits |= ~UINT64_C(0) << width;
    return bits;
}

static double decode(struct format f, uint64_t bits)
{
    int bias = (1 << (f.exponent_bits - 1)) - 1, most = (1 << f.exponent_bits) - 1;
    int exponent = (int)(bits >> f.fraction_bits) & most;
    uint64_t fraction = bits & ((UINT64_C(1) << f.fraction_bits) - 1);
    bool negative = bits >> (f.exponent_bits + f.fraction_bits) & 1;
    double value;
    if (exponent == most)
        value = fraction != 0 ? (double)NAN : (double)INFINITY;
    else if (exponent == 0)
        value = ldexp((double)fraction, 1 - bias - f.fraction_bits);
    else
        value = ldexp((double)(fraction | UINT64_C(1) << f.fraction_bits), exponent - bias - f.fraction_bits);
    return negative ? -value : value;
}

static uint64_t encode(struct format f, double value)
{
    int bias = (1 << (f.exponent_bits - 1)) - 1, exponent;
    uint64_t infinity = (((UINT64_C(1) << f.exponent_bits) - 1) << f.fraction_bits);
    uint64_t sign = (uint64_t)(signbit(value) != 0) << (f.exponent_bits + f.fraction_bits);
    double magnitude = fabs(value);
    if (value != value)
        return infinity | UINT64_C(1) << (f.fraction_bits - 1); /* the canonical NaN has no sign */
    if (isinf(value))
        return sign | infinity;
    frexp(magnitude, &exponent); /* magnitude < 2^exponent */
    int unit = exponent - 1 > 1 - bias ? exponent - 1 - f.fraction_bits : 1 - bias - f.fraction_bits;
    double units = nearbyint(ldexp(magnitude, -unit)); /* ties to even; may carry into the next binade */
    if (units == 0)
        return sign;
    uint64_t fraction = (uint64_t)units;
    uint64_t top = UINT64_C(1) << f.fraction_bits;
    if (fraction < top)
        return sign | fraction;
    uint64_t biased = (uint64_t)(unit + f.fraction_bits + bias);
    uint64_t bits = (biased << f.fraction_bits) + (fraction - top);
    return sign | (bits > infinity ? infinity : bits);
}

double get_number(enum hearth_dtype dtype, const void *base, size_t index)
{
    if (dtype == HEARTH_F32) {
        float value;
        memcpy(&value, (const char *)base + index * sizeof value, sizeof value);
        return (double)value;
    }
    if (!dtype_is_integer(dtype))
        return decode(format_of(dtype), get_bits(dtype, base, index));
    uint64_t bits = get_integer(dtype, base, index);
    return dtype_is_signed(dtype) ? (double)(int64_t)bits : (double)bits;
}

static uint64_t integer_of(enum hearth_dtype dtype, double value)
{
    int width = 8 * (int)hearth_dtype_size(dtype) - dtype_is_signed(dtype);
    double most = ldexp(1, width), rounded = nearbyint(value);
    if (value != value)
        return 0;
    if (rounded >= most)
        return width == 64 ? UINT64_MAX : (UINT64_C(1) << width) - 1;
    if (dtype_is_signed(dtype))
        return rounded < -most ? ~UINT64_C(0) << width : (uint64_t)(int64_t)rounded;
    return rounded <= 0 ? 0 : (uint64_t)rounded;
}

void set_number(enum hearth_dtype dtype, void *base, size_t index, double value)
{
    if (dtype == HEARTH_F32 && value == value) {
        float single = (float)value;
        memcpy((char *)base + index * sizeof single, &single, sizeof single);
        return;
    }
    bool integer = dtype_is_integer(dtype);
    set_bits(dtype, base, index, integer ? integer_of(dtype, value) : encode(format_of(dtype), value));
}

static uint64_t truncate_bits(enum hearth_dtype dtype, uint64_t bits)
{
    int width = 8 * (int)hearth_dtype_size(dtype);
    return width == 64 ? bits : bits & ((UINT64_C(1) << width) - 1);
}

uint64_t identity_bits(enum hearth_dtype dtype, enum hearth_op op)
{
    double value = op == HEARTH_OP_PROD  ? 1
                   : op == HEARTH_OP_MIN ? (double)INFINITY
                   : op == HEARTH_OP_MAX ? -(double)INFINITY
                                         : 0;
    if (op == HEARTH_OP_BAND)
        return truncate_bits(dtype, UINT64_MAX);
    if (!dtype_is_integer(dtype))
        return encode(format_of(dtype), value);
    return truncate_bits(dtype, integer_of(dtype, value));
}

/* ---- filling ---- */

static double any_float(const struct job *job, uint64_t *seed)
{
    double fraction = 1 + (double)(draw(seed) >> 12) * 0x1p-52;
    double sign = draw(seed) & 1 ? -1 : 1;
    int exponent = (int)draw_below(seed, 17) - 8;
    if (job->op == HEARTH_OP_PROD && kind_has_op(job->kind))
        exponent = -(int)draw_below(seed, 2);
    return sign * ldexp(fraction, exponent);
}

static double whole_number(const struct job *job, uint64_t *seed)
{
    bool prod = job->op == HEARTH_OP_PROD && kind_has_op(job->kind);
    double magnitude = prod ? (double)(1 + draw_below(seed, 2)) : (double)draw_below(seed, 9);
    return dtype_is_signed(job->dtype) && (draw(seed) & 1) ? -magnitude : magnitude;
}

static uint64_t any_integer(const struct job *job, uint64_t *seed)
{
    uint64_t bits = draw(seed);
    bool wide = hearth_dtype_size(job->dtype) == 8;
    if (!wide || job->op != HEARTH_OP_AVG || !kind_has_op(job->kind))
        return bits;
    return dtype_is_signed(job->dtype) ? (uint64_t)((int64_t)bits >> 16) : bits >> 16;
}

void fill_values(const struct job *job, int rank, void *base, size_t count)
{
    uint64_t seed = job->seed * 64 + (uint64_t)rank;
    for (size_t i = 0; i < count; i++) {
        if (job->values == WHOLE)
            set_number(job->dtype, base, i, whole_number(job, &seed));
        else if (dtype_is_integer(job->dtype))
            set_bits(job->dtype, base, i, any_integer(job, &seed));
        else
            set_number(job->dtype, base, i, any_float(job, &seed));
    }
}

/* ---- reductions ---- */

static uint64_t combine_integers(const struct job *job, int from, int to, size_t index)
{
    enum hearth_dtype d = job->dtype;
    uint64_t acc = get_integer(d, job->input[from], index);
    for (int r = from + 1; r < to; r++) {
        uint64_t x = get_integer(d, job->input[r], index);
        bool less = dtype_is_signed(d) ? (int64_t)x < (int64_t)acc : x < acc;
        switch (job->op) {
        case HEARTH_OP_PROD:
            acc *= x;
            break;
        case HEARTH_OP_MIN:
            acc = less ? x : acc;
            break;
        case HEARTH_OP_MAX:
            acc = less ? acc : x;
            break;
        case HEARTH_OP_BAND:
            acc &= x;
            break;
        case HEARTH_OP_BOR:
            acc |= x;
            break;
        case HEARTH_OP_BXOR:
            acc ^= x;
            break;
        default:
            acc += x;
        }
    }
    return truncate_bits(d, acc);
}

/* Values are such that all sums are exact in f64. */
static uint64_t average_integers(const struct job *job, int from, int to, size_t index)
{
    double sum = 0, weight = 0;
    for (int r = from; r < to; r++) {
        sum += job->weight[r] * get_number(job->dtype, job->input[r], index);
        weight += job->weight[r];
    }
    return truncate_bits(job->dtype, integer_of(job->dtype, sum / weight));
}

struct expected {
    long double value;
    double bound;
};

static struct expected combine_floats(const struct job *job, int from, int to, size_t index)
{
    struct format f = format_of(job->dtype);
    bool average = job->op == HEARTH_OP_AVG, extreme = job->op == HEARTH_OP_MIN || job->op == HEARTH_OP_MAX;
    bool half = hearth_dtype_size(job->dtype) == 2;
    double unit = job->dtype == HEARTH_F64 ? 0x1p-53 : 0x1p-24; /* of the type that sums are kept in */
    long double acc = 0, size = 0, weight = 0;
    for (int r = from; r < to; r++) {
        long double x = (long double)get_number(job->dtype, job->input[r], index);
        long double w = average ? (long double)job->weight[r] : 1;
        weight += w;
        size += fabsl(w * x);
        if (r == from)
            acc = w * x;
        else if (job->op == HEARTH_OP_PROD)
            acc *= x;
        else if (extreme)
            acc = (job->op == HEARTH_OP_MIN) == (x < acc) ? x : acc;
        else
            acc += w * x;
    }
    struct expected e = {.value = average ? acc / weight : acc};
    long double scale = job->op == HEARTH_OP_PROD ? fabsl(e.value) : average ? size / weight : size;
    bool exact = extreme || (job->values == WHOLE && !average);
    if (!exact)
        e.bound = 2 * (to - from + 3) * unit * (double)scale;
    if (half && !exact)
        e.bound += ldexp(fabs((double)e.value), -f.fraction_bits - 1) * 1.001 + 0x1p-24;
    return e;
}

static bool element_holds(const struct job *job, int rank, size_t input_index, size_t target_index)
{
    int from = 0, to = job->size;
    if (job->kind == SCAN)
        to = rank + 1;
    if (job->kind == EXCLUSIVE_SCAN)
        to = rank;
    uint64_t got = get_bits(job->dtype, job->target[rank], target_index);
    if (to == 0) {
        uint64_t identity = identity_bits(job->dtype, job->op);
        return got == identity || check(false, "%s: rank %d, element %zu: 0x%" PRIx64 " is not the identity",
                                        job_name(job), rank, target_index, got);
    }
    if (dtype_is_integer(job->dtype)) {
        uint64_t wanted = job->op == HEARTH_OP_AVG ? average_integers(job, from, to, input_index)
                                                   : combine_integers(job, from, to, input_index);
        return got == wanted || check(false, "%s: rank %d, element %zu: 0x%" PRIx64 ", not 0x%" PRIx64,
                                      job_name(job), rank, target_index, got, wanted);
    }
    struct expected e = combine_floats(job, from, to, input_index);
    double value = get_number(job->dtype, job->target[rank], target_index);
    return fabsl((long double)value - e.value) <= (long double)e.bound ||
           check(false, "%s: rank %d, element %zu: %.17g, not %.17g within %g", job_name(job), rank,
                 target_index, value, (double)e.value, e.bound);
}

static bool reduction_holds(const struct job *job, int rank)
{
    bool scatter = job->kind == REDUCE_SCATTER || job->kind == REDUCE_SCATTERV;
    size_t first = scatter ? job_own_offset(job, rank) : 0;
    for (size_t i = 0; i < job_target_count(job, rank); i++)
        if (!element_holds(job, rank, first + i, i))
            return false;
    return true;
}

/* ---- moving data ---- */

static bool part_holds(const struct job *job, int rank, size_t target_at, int from, size_t source_at,
                       size_t count)
{
    size_t element = hearth_dtype_size(job->dtype);
    return count == 0 ||
           memcmp((const char *)job->target[rank] + target_at * element,
                  (const char *)job->input[from] + source_at * element, count * element) == 0 ||
           check(false, "%s: rank %d does not hold what rank %d gave (%zu elements at %zu)", job_name(job),
                 rank, from, count, target_at);
}

/* Where what `from` sends to `to` stands in from's source. */
static size_t sent_at(const struct job *job, int from, int to)
{
    size_t at = 0;
    for (int i = 0; i < to; i++)
        at += job->counts[from * job->size + i];
    return at;
}

static bool all_parts_hold(const struct job *job, int rank)
{
    size_t at = 0;
    for (int from = 0; from < job->size; from++) {
        bool exchange = job->kind == ALL_TO_ALLV, vector = kind_is_vector(job->kind);
        size_t count = exchange ? job->counts[from * job->size + rank]
                       : vector ? job->counts[from]
                                : job->count;
        size_t source_at = exchange                  ? sent_at(job, from, rank)
                           : job->kind == ALL_TO_ALL ? (size_t)rank * job->count
                                                     : 0;
        if (!part_holds(job, rank, at, from, source_at, count))
            return false;
        at += count;
    }
    return true;
}

bool reference_holds(const struct job *job, int rank)
{
    if (job_target_count(job, rank) == 0)
        return true;
    switch (job->kind) {
    case BROADCAST:
        return part_holds(job, rank, 0, job->root, 0, job->count);
    case SCATTER:
    case SCATTERV:
        return part_holds(job, rank, 0, job->root, job_own_offset(job, rank), job_target_count(job, rank));
    case ALL_GATHER:
    case ALL_GATHERV:
    case GATHER:
    case GATHERV:
    case ALL_TO_ALL:
    case ALL_TO_ALLV:
        return all_parts_hold(job, rank);
    default:
        return reduction_holds(job, rank);
    }
}
