/* SPDX-License-Identifier: Apache-2.0 */
/* Packages: a header that says what is inside, and one payload. Encoding leaves the residual alone until all
 * has gone well; decoding believes nothing that it has not checked. */
#include "compress/package.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "compress/load.h"
#include "compress/powersgd.h"
#include "compress/randomk.h"
#include "compress/ratio.h"
#include "compress/scale.h"
#include "compress/sparse.h"
#include "compress/user_codec.h"
#include "core/bytes.h"
#include "core/crc32c.h"

#define MAGIC      0x5048 /* "HP" */
#define VERSION    1
#define HEADER_LEN 56
#define CRC_AT     52
#define COUNT_MAX  (UINT64_C(1) << 40)

#define FLAG_SCALED     1u /* randomk: values count as many times as there are elements for each */
#define FLAG_STOCHASTIC 2u /* int8 */
#define FLAGS_ALL       3u

/* ---- what there is to code ---- */

static bool is_whole_topk(const struct codec *codec)
{
    return codec->kind == CODEC_TOPK && codec->chunk == 0;
}

/* powersgd's rows, if nobody said them: the divisor of count that makes the factors shortest. */
static size_t rows_for(const struct codec *codec, size_t count)
{
    if (codec->rows != 0)
        return (size_t)codec->rows;
    size_t rows = (size_t)sqrt((double)count);
    while (rows > 1 && count % rows != 0)
        rows--;
    return rows;
}

static struct matrix matrix_of(const struct codec *codec, size_t count)
{
    size_t rows = rows_for(codec, count), columns = count / rows;

    return (struct matrix){.rows = rows, .columns = columns, .rank = powersgd_rank(codec, rows, columns)};
}

static struct draw draw_of(const struct package *package)
{
    return (struct draw){
        .key = package->key, .count = package->count, .keep = codec_keeps(package->codec, package->count)};
}

static size_t align(size_t len)
{
    return (len + HEAP_ALIGN - 1) / HEAP_ALIGN * HEAP_ALIGN;
}

/* Without feedback drawn values stand for those that are not: right on average. */
static float draw_factor(const struct draw *draw, bool scaled)
{
    return scaled ? (float)((double)draw->count / (double)draw->keep) : 1;
}

/* Whether all are finite when multiplied. */
static bool all_finite(const float *values, size_t count, float factor)
{
    for (size_t i = 0; i < count; i++)
        if (!isfinite(values[i] * factor))
            return false;
    return true;
}

/* A user's codec stands in front of its payload, in one byte its length and then its text. */
static size_t user_head(const struct codec *codec, uint8_t *head)
{
    struct codec plain = *codec;
    char text[CODEC_TEXT_MAX];

    plain.feedback = true; /* the reader need not know */
    codec_text(&plain, text, sizeof text);
    head[0] = (uint8_t)strlen(text);
    memcpy(head + 1, text, head[0]);
    return 1 + (size_t)head[0];
}

/* Of a user's codec: the longest. */
static size_t payload_len(const struct package *package)
{
    const struct codec *codec = package->codec;
    size_t count = package->count;

    if (count == 0)
        return 0;
    if (codec->kind == CODEC_NONE)
        return count * dtype_size(package->dtype);
    if (is_whole_topk(codec))
        return sparse_len(codec, codec_keeps(codec, count), count);
    if (codec->kind == CODEC_RANDOMK) {
        struct codec values = codec_of_values(codec->values);
        return coder_len(&values, codec_keeps(codec, count));
    }
    if (codec->kind == CODEC_POWERSGD) {
        struct matrix m = matrix_of(codec, count);
        return (m.rows + m.columns) * m.rank * sizeof(float);
    }
    if (codec->kind == CODEC_USER)
        return user_head(codec, (uint8_t[CODEC_TEXT_MAX]){0}) + user_bound(codec, count);
    return coder_len(codec, count);
}

/* Floats that coding needs for the time being: chosen elements with their indices, or factors. */
static size_t scratch_count(const struct package *package, bool encoding)
{
    const struct codec *codec = package->codec;
    size_t count = package->count;

    if (count == 0)
        return 0;
    if (is_whole_topk(codec)) {
        size_t keep = codec_keeps(codec, count);
        return 2 * keep + (encoding ? topk_scratch_len(count, keep) / sizeof(float) : 0);
    }
    if (codec->kind == CODEC_RANDOMK)
        return 2 * codec_keeps(codec, count);
    if (codec->kind == CODEC_USER)
        return (encoding ? 2 : 1) * count;
    return codec->kind == CODEC_POWERSGD ? payload_len(package) / sizeof(float) : 0;
}

static int check_matrix(const struct package *package, struct error *error)
{
    size_t rows = rows_for(package->codec, package->count);

    if (package->count % rows != 0)
        return error_set(error, HEARTH_UNSUPPORTED, RANK_NONE,
                         "powersgd: %zu elements are no matrix of %zu rows", package->count, rows);
    struct matrix m = matrix_of(package->codec, package->count);
    if (!powersgd_pays(&m))
        return error_set(error, HEARTH_UNSUPPORTED, RANK_NONE,
                         "powersgd: factors of rank %u are not shorter than half of %zu x %zu elements",
                         m.rank, m.rows, m.columns);
    return HEARTH_OK;
}

int package_check(const struct package *package, struct error *error)
{
    enum hearth_dtype dtype = package->dtype;

    if (dtype != HEARTH_F32 && dtype != HEARTH_F64 && dtype != HEARTH_F16 && dtype != HEARTH_BF16)
        return error_set(error, HEARTH_UNSUPPORTED, RANK_NONE,
                         "elements of type %s: only f32, f64, f16, bf16", hearth_dtype_name(dtype));
    if (package->count > COUNT_MAX)
        return error_set(error, HEARTH_UNSUPPORTED, RANK_NONE, "%zu elements: at most 2^40", package->count);
    if (is_whole_topk(package->codec) && package->count > SPARSE_COUNT_MAX)
        return error_set(error, HEARTH_UNSUPPORTED, RANK_NONE,
                         "%zu elements: topk without chunk= takes at most %u", package->count,
                         SPARSE_COUNT_MAX);
    if (package->codec->kind == CODEC_POWERSGD && package->count > 0)
        return check_matrix(package, error);
    if (package->codec->kind == CODEC_USER && package->count > 0 &&
        user_bound(package->codec, package->count) == 0)
        return error_set(error, HEARTH_UNSUPPORTED, RANK_NONE,
                         "codec \"%s\" does not take %zu elements: its bound is 0 or above 2^48",
                         package->codec->user->name, package->count);
    return HEARTH_OK;
}

size_t package_bound(const struct package *package)
{
    return package_check(package, NULL) ? 0 : HEADER_LEN + payload_len(package);
}

/* ---- encoding ---- */

/* A package that is being written. */
struct packing {
    const struct package *package;
    const struct kernels *kernels;
    struct feed feed; /* its e_new is the residual to be, or NULL */
    bool feedback;
    void *out;      /* powersgd: the tensor as it would be decoded */
    float *scratch; /* scratch_count */
    uint8_t *payload;
    size_t payload_len; /* room for it; a user's codec may need less */
    uint8_t *user;      /* of a user's codec: payload_len bytes and a guard */
    struct error *error;
};

static int no_memory(struct error *error)
{
    return error_set(error, HEARTH_NO_MEMORY, RANK_NONE, "no memory to code a tensor");
}

/* The first element that f32 cannot hold as a finite number; `count` if there is none. */
static size_t first_unfit(const struct package *package, const void *x)
{
    const struct kernels *kernels = kernels_best();
    size_t size = dtype_size(package->dtype), i;

    for (i = 0; i < package->count; i++) {
        float narrow;
        double wide;
        const uint8_t *at = (const uint8_t *)x + i * size;
        if (package->dtype == HEARTH_F64) {
            memcpy(&wide, at, sizeof wide);
            narrow = (float)wide;
        } else {
            kernels->widen(package->dtype, &narrow, at, 1);
        }
        if (!isfinite(narrow))
            break;
    }
    return i;
}

static int poisoned(const struct packing *packing)
{
    size_t at = first_unfit(packing->package, packing->feed.x);

    if (at == packing->package->count)
        return error_set(packing->error, HEARTH_POISONED, RANK_NONE,
                         "the residual holds NaN or Inf, or with it, or scaled, the source is beyond f32");
    return error_set(packing->error, HEARTH_POISONED, RANK_NONE,
                     "element %zu of %zu is NaN, Inf or beyond f32", at, packing->package->count);
}

static int pack_parts(struct packing *packing)
{
    const struct package *package = packing->package;

    return coder_encode(package->codec, packing->kernels, &packing->feed, 0, package->count,
                        packing->payload);
}

static int pack_topk(struct packing *packing)
{
    const struct package *package = packing->package;
    size_t keep = codec_keeps(package->codec, package->count);
    struct sparse found = {.value = packing->scratch, .index = (uint32_t *)(void *)(packing->scratch + keep)};
    struct topk_job job = {.kernels = packing->kernels, .scratch = packing->scratch + 2 * keep};

    int status = topk_select(&job, &packing->feed, package->count, keep, &found);
    if (status)
        return status;
    sparse_encode(package->codec, packing->kernels, &found, package->count, packing->payload);
    sparse_put(&found, package->dtype, packing->feed.e_new);
    return HEARTH_OK;
}

static int pack_randomk(struct packing *packing)
{
    const struct package *package = packing->package;
    struct codec codec = codec_of_values(package->codec->values);
    struct draw draw = draw_of(package);
    float *values = packing->scratch, *left = values + draw.keep;
    struct feed feed = {.dtype = HEARTH_F32, .x = values, .e_new = left, .gain = 1, .key = package->key};

    int status = randomk_gather(&draw, packing->kernels, &packing->feed, 0, draw.keep, values);
    if (status)
        return status;
    if (!all_finite(values, draw.keep, 2 * draw_factor(&draw, !packing->feedback)))
        return HEARTH_POISONED; /* twice: coding may make them a little larger */
    status = coder_encode(&codec, packing->kernels, &feed, 0, draw.keep, packing->payload);
    if (!status && packing->feedback)
        randomk_leave(&draw, left, 0, draw.keep, package->dtype, packing->feed.e_new);
    return status;
}

/* P, then Q. */
static struct factors factors_of(const struct matrix *m, float *scratch)
{
    return (struct factors){.p = scratch, .q = scratch + m->rows * m->rank};
}

/* One power iteration from a Q that is drawn. What it makes of the matrix is not wanted here, only that it
 * is finite. */
static int pack_powersgd(struct packing *packing)
{
    const struct package *package = packing->package;
    struct matrix m = matrix_of(package->codec, package->count);
    struct factors factors = factors_of(&m, packing->scratch);

    powersgd_seed(packing->kernels, package->key, m.columns, m.rank, factors.q);
    int status = powersgd_load(&m, packing->kernels, &packing->feed, &factors, 0, m.rows);
    if (status)
        return status;
    powersgd_orthonormal(packing->kernels, package->key, m.rows, m.rank, factors.p);
    powersgd_project(&m, packing->kernels, &packing->feed, &factors, 0, m.columns);
    struct powersgd_end end = {.p_sum = factors.p,
                               .q_sum = factors.q,
                               .p_own = factors.p,
                               .q_own = factors.q,
                               .out = packing->out,
                               .residual = packing->feed.e_new,
                               .dtype = package->dtype,
                               .divisor = 1};
    status = powersgd_finish(&m, packing->kernels, &end, 0, m.rows);
    if (!status)
        store_f32s(packing->payload, packing->scratch, (m.rows + m.columns) * m.rank);
    return status;
}

/* Not straight into the target: a codec that writes too much must not spoil it. */
static int pack_user(struct packing *packing)
{
    const struct package *package = packing->package;
    size_t head = user_head(package->codec, packing->payload), len;
    struct user_work work = {.count = package->count,
                             .bound = packing->payload_len - head,
                             .values = packing->scratch,
                             .decoded = packing->scratch + package->count,
                             .bytes = packing->user};

    int status = user_encode(package->codec, packing->kernels, &packing->feed, &work, &len, packing->error);
    if (status)
        return status;
    memcpy(packing->payload + head, work.bytes, len);
    packing->payload_len = head + len;
    return HEARTH_OK;
}

static int pack_payload(struct packing *packing)
{
    const struct package *package = packing->package;

    if (package->count == 0)
        return HEARTH_OK;
    switch (package->codec->kind) {
    case CODEC_NONE:
        memcpy(packing->payload, packing->feed.x, payload_len(package));
        return HEARTH_OK;
    case CODEC_RANDOMK:
        return pack_randomk(packing);
    case CODEC_POWERSGD:
        return pack_powersgd(packing);
    case CODEC_USER:
        return pack_user(packing);
    default:
        return is_whole_topk(package->codec) ? pack_topk(packing) : pack_parts(packing);
    }
}

static void put_header(const struct packing *packing, uint8_t *bytes, size_t len)
{
    const struct package *package = packing->package;
    const struct codec *codec = package->codec;
    bool matrix = codec->kind == CODEC_POWERSGD && package->count > 0;
    struct writer w = writer_of(bytes, HEADER_LEN);
    unsigned flags = codec->kind == CODEC_RANDOMK && !packing->feedback ? FLAG_SCALED : 0;

    put_u16(&w, MAGIC);
    put_u8(&w, VERSION);
    put_u8(&w, (uint8_t)codec->kind);
    put_u8(&w, (uint8_t)codec->values);
    put_u8(&w, (uint8_t)package->dtype);
    put_u8(&w, (uint8_t)(flags | (codec->stochastic ? FLAG_STOCHASTIC : 0)));
    put_u8(&w, 0);
    put_f64(&w, codec->ratio);
    put_u32(&w, codec->chunk);
    put_u32(&w, codec->rank);
    put_u64(&w, matrix ? rows_for(codec, package->count) : 0);
    put_u64(&w, package->count);
    put_u64(&w, package->key);
    put_u32(&w, 0);
    put_u32(&w, crc32c(crc32c(0, bytes, CRC_AT), bytes + HEADER_LEN, len - HEADER_LEN));
    assert(!w.bad && w.at == w.end);
}

int package_encode(const struct package *package, struct heap *heap, const struct package_io *io, size_t *len,
                   struct error *error)
{
    int status = package_check(package, error);
    if (status)
        return status;
    size_t bound = HEADER_LEN + payload_len(package);
    if (io->size < bound)
        return error_set(error, HEARTH_LIMIT, RANK_NONE, "the package has %zu bytes, the target only %zu",
                         bound, io->size);
    const struct codec *codec = package->codec;
    bool feedback = io->residual && codec->feedback && codec->kind != CODEC_NONE;
    bool power = codec->kind == CODEC_POWERSGD, works_in_shadow = is_whole_topk(codec) || power;
    size_t residual_len = package->count * residual_size(package->dtype);
    size_t shadow_len = feedback || works_in_shadow ? align(residual_len) : 0;
    size_t out_len = power ? align(package->count * dtype_size(package->dtype)) : 0;
    size_t scratch_len = align(scratch_count(package, true) * sizeof(float));
    size_t user_len = codec->kind == CODEC_USER ? bound - HEADER_LEN + USER_GUARD_LEN : 0;
    uint8_t *memory = heap_alloc_raw(heap, 1, shadow_len + out_len + scratch_len + user_len);
    if (!memory)
        return no_memory(error);
    struct packing packing = {.package = package,
                              .kernels = kernels_best(),
                              .feed = {.dtype = package->dtype,
                                       .x = io->source,
                                       .e = feedback ? io->residual : NULL,
                                       .e_new = shadow_len > 0 ? memory : NULL,
                                       .gain = 1,
                                       .key = package->key},
                              .feedback = feedback,
                              .out = memory + shadow_len,
                              .scratch = (float *)(void *)(memory + shadow_len + out_len),
                              .payload = io->bytes + HEADER_LEN,
                              .payload_len = bound - HEADER_LEN,
                              .user = memory + shadow_len + out_len + scratch_len,
                              .error = error};
    status = pack_payload(&packing);
    if (status == HEARTH_POISONED)
        status = poisoned(&packing);
    if (!status) {
        *len = HEADER_LEN + packing.payload_len;
        put_header(&packing, io->bytes, *len);
        if (feedback && package->count > 0)
            memcpy(io->residual, memory, residual_len);
    }
    heap_free(memory);
    return status;
}

/* ---- decoding ---- */

/* A package that is being read, its header checked. */
struct unpacking {
    struct package package;
    struct codec codec;
    const struct kernels *kernels;
    bool scaled;
    const uint8_t *payload;
    size_t payload_len;
    void *out;      /* becomes the target when all is well */
    float *scratch; /* scratch_count */
    struct error *error;
};

static int malformed(struct error *error, const char *what)
{
    return error_set(error, HEARTH_PROTOCOL, RANK_NONE, "package: %s", what);
}

/* Fields that a codec does not have are 0. */
static bool codec_sane(const struct codec *codec)
{
    bool topk = codec->kind == CODEC_TOPK, sparse = topk || codec->kind == CODEC_RANDOMK;
    bool powersgd = codec->kind == CODEC_POWERSGD;
    bool ratio = sparse ? codec->ratio >= RATIO_MIN && codec->ratio <= 1 : codec->ratio == 0;
    bool chunk = codec->chunk == 0 || (topk && codec->chunk >= 64 && codec->chunk <= CODER_BLOCK_MAX &&
                                       (codec->chunk & (codec->chunk - 1)) == 0);
    bool rank = powersgd ? codec->rank >= 1 && codec->rank <= POWERSGD_RANK_MAX : codec->rank == 0;

    return ratio && chunk && rank && (sparse || codec->values == VALUES_F32) &&
           (powersgd || codec->rows == 0) && (!codec->stochastic || codec->kind == CODEC_INT8);
}

/* The user's codec whose text stands before the payload; then the payload begins behind it. */
static int get_user(struct unpacking *unpacking)
{
    char text[CODEC_TEXT_MAX] = "", again[CODEC_TEXT_MAX] = "";
    struct codec_list list;
    size_t len = unpacking->payload_len > 0 ? unpacking->payload[0] : 0;

    if (len == 0 || unpacking->payload_len - 1 < len)
        return malformed(unpacking->error, "does not say by which codec of a user it is");
    memcpy(text, unpacking->payload + 1, len);
    bool known = strlen(text) == len && codec_parse(text, &list, NULL) == HEARTH_OK;
    if (!known && codec_names_unknown(text))
        return error_set(unpacking->error, HEARTH_UNSUPPORTED, RANK_NONE,
                         "package: it is by codec \"%s\", which is not registered here "
                         "(hearth_codec_register)",
                         text);
    if (known)
        codec_text(&list.codec[0], again, sizeof again);
    if (!known || list.codec[0].kind != CODEC_USER || !list.codec[0].feedback || strcmp(text, again) != 0)
        return malformed(unpacking->error, "what it says for a codec is none of a user");
    unpacking->codec = list.codec[0];
    unpacking->payload += 1 + len;
    unpacking->payload_len -= 1 + len;
    return HEARTH_OK;
}

static int get_header(struct unpacking *unpacking, const uint8_t *bytes, size_t len)
{
    struct error *error = unpacking->error;
    struct codec *codec = &unpacking->codec;
    struct package *package = &unpacking->package;
    struct reader r = reader_of(bytes, len);

    if (len < HEADER_LEN)
        return malformed(error, "shorter than its header");
    if (get_u16(&r) != MAGIC)
        return malformed(error, "does not begin as one");
    if (get_u8(&r) != VERSION)
        return malformed(error, "of another version");
    if (load_u32(bytes + CRC_AT) != crc32c(crc32c(0, bytes, CRC_AT), bytes + HEADER_LEN, len - HEADER_LEN))
        return malformed(error, "the checksum is wrong");
    unsigned kind = get_u8(&r), values = get_u8(&r), dtype = get_u8(&r), flags = get_u8(&r),
             reserved = get_u8(&r);
    codec->ratio = get_f64(&r);
    codec->chunk = get_u32(&r);
    codec->rank = get_u32(&r);
    codec->rows = get_u64(&r);
    uint64_t count = get_u64(&r);
    package->key = get_u64(&r);
    reserved |= get_u32(&r);
    if (kind >= CODEC_KIND_COUNT || values >= CODEC_VALUES_COUNT || flags > FLAGS_ALL || reserved != 0)
        return malformed(error, "a codec, values, flags or reserved field is none of this version");
    codec->kind = (enum codec_kind)kind;
    codec->values = (enum codec_values)values;
    codec->stochastic = flags & FLAG_STOCHASTIC;
    unpacking->scaled = flags & FLAG_SCALED;
    if (!codec_sane(codec) || (unpacking->scaled && codec->kind != CODEC_RANDOMK))
        return malformed(error, "a number of the codec is out of range");
    package->codec = codec;
    package->dtype = (enum hearth_dtype)dtype;
    package->count = (size_t)count;
    if (count > COUNT_MAX || codec->rows > count)
        return malformed(error, "a count is out of range");
    unpacking->payload = bytes + HEADER_LEN;
    unpacking->payload_len = len - HEADER_LEN;
    int status = kind == CODEC_USER && count > 0 ? get_user(unpacking) : HEARTH_OK;
    if (status)
        return status;
    if (package_check(package, NULL))
        return malformed(error, "the codec does not take such a tensor");
    return HEARTH_OK;
}

static int unpack_parts(struct unpacking *unpacking)
{
    struct payloads payloads = {.count = 1, .bytes = &unpacking->payload};
    struct coder_out out = {.out = unpacking->out, .dtype = unpacking->package.dtype, .divisor = 1};

    return coder_decode(&unpacking->codec, unpacking->kernels, &payloads, &out, unpacking->package.count,
                        unpacking->error);
}

static int unpack_topk(struct unpacking *unpacking)
{
    size_t count = unpacking->package.count, keep = codec_keeps(&unpacking->codec, count);
    struct sparse list = {
        .count = keep, .value = unpacking->scratch, .index = (uint32_t *)(void *)(unpacking->scratch + keep)};

    int status = sparse_decode(&unpacking->codec, unpacking->kernels, unpacking->payload, count, &list,
                               unpacking->error);
    if (status)
        return status;
    if (!all_finite(list.value, keep, 1))
        return HEARTH_POISONED;
    sparse_write(&list, unpacking->kernels, unpacking->package.dtype, count, unpacking->out);
    return HEARTH_OK;
}

static int unpack_randomk(struct unpacking *unpacking)
{
    const struct package *package = &unpacking->package;
    struct codec codec = codec_of_values(unpacking->codec.values);
    struct draw draw = draw_of(package);
    struct payloads payloads = {.count = 1, .bytes = &unpacking->payload};
    float *values = unpacking->scratch, factor = draw_factor(&draw, unpacking->scaled);
    struct coder_out decoded = {.out = values, .dtype = HEARTH_F32, .divisor = 1};
    struct randomk_out out = {.out = unpacking->out, .dtype = package->dtype, .factor = factor, .divisor = 1};

    int status = coder_decode(&codec, unpacking->kernels, &payloads, &decoded, draw.keep, unpacking->error);
    if (status)
        return status;
    if (!all_finite(values, draw.keep, factor))
        return HEARTH_POISONED;
    randomk_scatter(&draw, unpacking->kernels, values, 0, draw.keep, &out);
    return HEARTH_OK;
}

static int unpack_powersgd(struct unpacking *unpacking)
{
    struct matrix m = matrix_of(&unpacking->codec, unpacking->package.count);
    struct factors factors = factors_of(&m, unpacking->scratch);
    struct powersgd_end end = {.p_sum = factors.p,
                               .q_sum = factors.q,
                               .out = unpacking->out,
                               .dtype = unpacking->package.dtype,
                               .divisor = 1};

    load_f32s(unpacking->scratch, unpacking->payload, (m.rows + m.columns) * m.rank);
    return powersgd_finish(&m, unpacking->kernels, &end, 0, m.rows);
}

static int unpack_user(struct unpacking *unpacking)
{
    const struct package *package = &unpacking->package;
    struct user_payload payload = {.bytes = unpacking->payload,
                                   .len = unpacking->payload_len,
                                   .count = package->count,
                                   .key = package->key};

    int status =
        user_decode(&unpacking->codec, unpacking->kernels, &payload, unpacking->scratch, unpacking->error);
    if (status)
        return status;
    put_block(unpacking->kernels, package->dtype, unpacking->out, 0, package->count, unpacking->scratch);
    unpacking->kernels->stream_end();
    return HEARTH_OK;
}

/* A user's codec decides itself how long a payload is, up to its bound. */
static bool payload_len_good(const struct unpacking *unpacking)
{
    const struct package *package = &unpacking->package;

    if (package->codec->kind == CODEC_USER && package->count > 0)
        return unpacking->payload_len <= user_bound(package->codec, package->count);
    return unpacking->payload_len == payload_len(package);
}

static int unpack_payload(struct unpacking *unpacking)
{
    switch (unpacking->codec.kind) {
    case CODEC_NONE:
        memcpy(unpacking->out, unpacking->payload, payload_len(&unpacking->package));
        return HEARTH_OK;
    case CODEC_RANDOMK:
        return unpack_randomk(unpacking);
    case CODEC_POWERSGD:
        return unpack_powersgd(unpacking);
    case CODEC_USER:
        return unpack_user(unpacking);
    default:
        return is_whole_topk(&unpacking->codec) ? unpack_topk(unpacking) : unpack_parts(unpacking);
    }
}

int package_decode(struct heap *heap, const uint8_t *bytes, size_t len, const struct package_out *out,
                   struct error *error)
{
    struct unpacking unpacking = {.kernels = kernels_best(), .error = error};
    const struct package *package = &unpacking.package;

    int status = get_header(&unpacking, bytes, len);
    if (status)
        return status;
    if (package->count != out->count || package->dtype != out->dtype)
        return error_set(error, HEARTH_INVALID, RANK_NONE,
                         "the package holds %zu elements of type %s, the target %zu of type %s",
                         package->count, hearth_dtype_name(package->dtype), out->count,
                         hearth_dtype_name(out->dtype));
    if (!payload_len_good(&unpacking))
        return error_set(error, HEARTH_PROTOCOL, RANK_NONE, "package: has %zu bytes, should have %s%zu", len,
                         package->codec->kind == CODEC_USER ? "at most " : "",
                         HEADER_LEN + payload_len(package));
    if (out->count == 0)
        return HEARTH_OK;
    size_t out_len = align(out->count * dtype_size(out->dtype));
    uint8_t *memory = heap_alloc_raw(heap, 1, out_len + scratch_count(package, false) * sizeof(float));
    if (!memory)
        return no_memory(error);
    unpacking.out = memory;
    unpacking.scratch = (float *)(void *)(memory + out_len);
    status = unpack_payload(&unpacking);
    if (status == HEARTH_POISONED)
        status = malformed(error, "holds numbers that are not finite");
    if (!status)
        memcpy(out->target, memory, out->count * dtype_size(out->dtype));
    heap_free(memory);
    return status;
}
