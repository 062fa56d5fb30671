/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of the codecs: what is prepared, and what is timed. */
#include "bench/kernels/codec_lab.h"

#include <stdlib.h>
#include <string.h>

#include "bench/kernels/select_pairs.h"
#include "compress/block.h"
#include "compress/randomk.h"

#define PAGE         4096u
#define LINE         64u
#define SEED         UINT64_C(0x9e3779b97f4a7c15)
#define RANK         4u
#define MATRIX_SIDE  4096u
#define SORT_SHARE   16u /* of the tensor is sorted, or one would wait for it; that favours sorting */
#define PIECES       8u  /* of each thread */
#define KEEP_DIVISOR 64u /* lists are not longer than the tensor divided by this, and a few */
#define PAIR_LEN     sizeof(struct pair)

/* ---- the tensor ---- */

static size_t round_up(size_t len, size_t unit)
{
    return (len + unit - 1) / unit * unit;
}

/* Numbers around 0 with few large ones, nearly all different. */
static void fill(float *x, size_t count, uint64_t seed)
{
    for (size_t i = 0; i < count; i++) {
        uint64_t bits = draw_bits(seed, i);
        int32_t sum = (int32_t)(bits & 0xffff) + (int32_t)(bits >> 16 & 0xffff) +
                      (int32_t)(bits >> 32 & 0xffff) - 0x17ffe;
        float jitter = (float)(bits >> 40) * 0x1p-24f;
        x[i] = (float)sum * (1.0f + jitter) * 1e-7f;
    }
}

/* Where the next array begins. Arrays a power of two apart would meet in the same sets of the caches, and
 * loads would wait for stores that only look as if they were to the same address: each array begins three
 * pages and some lines later than that. */
static uint8_t *take(uint8_t **at, size_t len)
{
    uint8_t *taken = *at;
    *at += round_up(len, PAGE) + (size_t)3 * PAGE + (size_t)17 * LINE;
    return taken;
}

bool lab_open(struct lab *lab, const struct kernels *kernels, size_t count)
{
    const size_t len = count * sizeof(float), list = count / KEEP_DIVISOR + LINE,
                 factor = (size_t)MATRIX_SIDE * RANK;
    const size_t room = 4 * len + 3 * count + 2 * list * 4 + 2 * factor * 4 + (size_t)64 * PAGE;
    *lab = (struct lab){.kernels = kernels, .count = count};
    heap_init(&lab->heap, 0);
    lab->arena = aligned_alloc(PAGE, round_up(room, PAGE));
    if (!lab->arena)
        return false;
    memset(lab->arena, 0, round_up(room, PAGE)); /* the first touch of all of it */
    uint8_t *at = lab->arena;
    lab->x = (float *)(void *)take(&at, len);
    lab->e = (float *)(void *)take(&at, len);
    lab->e_new = (float *)(void *)take(&at, len);
    lab->out = (float *)(void *)take(&at, len);
    lab->payload = take(&at, 3 * count + PAGE);
    lab->list.index = (uint32_t *)(void *)take(&at, list * 4);
    lab->list.value = (float *)(void *)take(&at, list * 4);
    lab->factors.p = (float *)(void *)take(&at, factor * 4);
    lab->factors.q = (float *)(void *)take(&at, factor * 4);
    fill(lab->x, count, SEED);
    fill(lab->e, count, SEED + 1);
    return true;
}

void lab_close(struct lab *lab)
{
    free(lab->pairs);
    free(lab->arena);
}

bool lab_equal(const struct lab *a, const struct lab *b)
{
    const size_t len = a->count * sizeof(float);
    return !a->failed && !b->failed && memcmp(a->x, b->x, len) == 0 && memcmp(a->e_new, b->e_new, len) == 0 &&
           memcmp(a->out, b->out, len) == 0 && memcmp(a->payload, b->payload, 3 * a->count) == 0;
}

size_t lab_entries(const struct lab *lab)
{
    if (lab->codec.chunk == 0)
        return codec_keeps(&lab->codec, lab->count);
    size_t rest = lab->count % lab->codec.chunk;
    return lab->count / lab->codec.chunk * codec_keeps(&lab->codec, lab->codec.chunk) +
           codec_keeps(&lab->codec, rest);
}

static void expect(struct lab *lab, int status)
{
    if (status != HEARTH_OK)
        atomic_store(&lab->failed, true);
}

/* ---- part by part ---- */

struct share {
    struct lab *lab;
    const struct feed *feed;
    size_t pieces;
};

/* Elements of the tensor in front of a piece. */
static size_t piece_begin(const struct share *share, size_t piece, size_t unit, size_t count)
{
    size_t begin = (count + unit - 1) / unit * piece / share->pieces * unit;
    return begin < count ? begin : count;
}

static void encode_piece(void *arg, size_t piece)
{
    struct share *share = arg;
    struct lab *lab = share->lab;
    const size_t block = coder_block(&lab->codec);
    size_t from = piece_begin(share, piece, block, lab->count);
    size_t to = piece_begin(share, piece + 1, block, lab->count);
    struct feed feed = *share->feed;
    feed.x = lab->x + from;
    feed.e = feed.e ? lab->e + from : NULL;
    feed.e_new = feed.e_new ? lab->e_new + from : NULL;
    uint8_t *payload = lab->payload + coder_len(&lab->codec, from) + (piece - 1) * PART_HEADER_LEN;
    expect(lab, coder_encode(&lab->codec, lab->kernels, &feed, from, to - from, payload));
}

static void encode_all(struct lab *lab, bool feedback)
{
    struct feed feed = {.dtype = HEARTH_F32, .gain = 1.0f};
    if (feedback) {
        feed.e = lab->e;
        feed.e_new = lab->e_new;
    }
    struct share share = {lab, &feed, lab->workers ? workers_count(lab->workers) * PIECES : 1};
    workers_run(lab->workers, encode_piece, &share, share.pieces);
}

static void encode(struct lab *lab)
{
    encode_all(lab, false);
}

static void encode_feedback(struct lab *lab)
{
    encode_all(lab, true);
}

/* Into the tensor, or always into the same block: there sums of several members are made, in the nearest
 * cache, before the tensor is written once. */
static void decode_add_to(struct lab *lab, bool near)
{
    const struct block_codec *blocks = block_codec_of(&lab->codec);
    const struct block_context context = block_context_of(&lab->codec, lab->kernels);
    size_t offset = PART_HEADER_LEN;
    const size_t block = coder_block(&lab->codec), whole = blocks->len(&lab->codec, block);
    for (size_t at = 0, count; at < lab->count; at += count, offset += whole) {
        count = lab->count - at < block ? lab->count - at : block;
        if (!blocks->decode(&context, lab->payload + offset, count, lab->out + (near ? 0 : at), BLOCK_ADD))
            expect(lab, HEARTH_PROTOCOL);
    }
}

static void decode_add(struct lab *lab)
{
    decode_add_to(lab, false);
}

static void decode_add_near(struct lab *lab)
{
    decode_add_to(lab, true);
}

/* ---- topk over the tensor ---- */

/* From one step to the next the numbers change a little: here by the gain. */
static void topk(struct lab *lab, struct topk_hint *hint)
{
    size_t keep = codec_keeps(&lab->codec, lab->count);
    const struct topk_job job = {.kernels = lab->kernels,
                                 .hint = hint,
                                 .scratch =
                                     heap_alloc_raw(&lab->heap, 1, topk_scratch_len(lab->count, keep))};
    struct feed feed = {.dtype = HEARTH_F32, .x = lab->x, .e = lab->e, .e_new = lab->e_new};
    feed.gain = 1.0f + 0.01f * (float)(lab->step++ % 3);
    int status = job.scratch ? topk_select(&job, &feed, lab->count, keep, &lab->list) : HEARTH_NO_MEMORY;
    heap_free(job.scratch);
    expect(lab, status);
    if (status != HEARTH_OK)
        return;
    sparse_encode(&lab->codec, lab->kernels, &lab->list, lab->count, lab->payload);
    sparse_put(&lab->list, HEARTH_F32, lab->e_new);
}

static void topk_steady(struct lab *lab)
{
    topk(lab, &lab->hint);
}

static void topk_cold(struct lab *lab)
{
    topk(lab, NULL);
}

static void list_decode_add(struct lab *lab)
{
    struct error error;
    lab->list.count = codec_keeps(&lab->codec, lab->count);
    int status = sparse_decode(&lab->codec, lab->kernels, lab->payload, lab->count, &lab->list, &error);
    expect(lab, status);
    if (status == HEARTH_OK)
        sparse_add(&lab->list, HEARTH_F32, lab->out);
}

/* ---- randomk: values go as f32, where they are put is the payload ---- */

static void randomk_piece(void *arg, size_t piece)
{
    struct share *share = arg;
    struct lab *lab = share->lab;
    const struct draw draw = {lab->step, lab->count, codec_keeps(&lab->codec, lab->count)};
    size_t from = piece_begin(share, piece, 1, draw.keep), to = piece_begin(share, piece + 1, 1, draw.keep);
    expect(lab,
           randomk_gather(&draw, lab->kernels, share->feed, from, to, (float *)(void *)lab->payload + from));
}

static void randomk_feedback(struct lab *lab)
{
    const struct feed feed = {.dtype = HEARTH_F32, .x = lab->x, .e_new = lab->x, .gain = 1.0f};
    struct share share = {lab, &feed, lab->workers ? workers_count(lab->workers) * PIECES : 1};
    lab->step++;
    workers_run(lab->workers, randomk_piece, &share, share.pieces);
}

/* ---- powersgd ---- */

static size_t matrix_side(size_t count)
{
    size_t side = MATRIX_SIDE;
    while (side * side > count)
        side /= 2;
    return side;
}

static size_t matrix_count(size_t count)
{
    return matrix_side(count) * matrix_side(count);
}

static struct matrix matrix_of(const struct lab *lab)
{
    size_t side = matrix_side(lab->count);
    return (struct matrix){side, side, powersgd_rank(&lab->codec, side, side)};
}

static void powersgd_prepare(struct lab *lab)
{
    const struct matrix m = matrix_of(lab);
    powersgd_seed(lab->kernels, SEED, m.columns, m.rank, lab->factors.q);
}

/* All that a member computes for a step; the sums are left out. */
static void powersgd_step(struct lab *lab)
{
    const struct matrix m = matrix_of(lab);
    const struct feed feed = {
        .dtype = HEARTH_F32, .x = lab->x, .e = lab->e, .e_new = lab->e_new, .gain = 1.0f};
    const struct factors *f = &lab->factors;
    const struct powersgd_end end = {.p_sum = f->p,
                                     .q_sum = f->q,
                                     .p_own = f->p,
                                     .q_own = f->q,
                                     .out = lab->out,
                                     .residual = lab->e_new,
                                     .dtype = HEARTH_F32,
                                     .divisor = 1.0f};
    powersgd_orthonormal(lab->kernels, SEED, m.columns, m.rank, f->q);
    expect(lab, powersgd_load(&m, lab->kernels, &feed, f, 0, m.rows));
    powersgd_orthonormal(lab->kernels, SEED, m.rows, m.rank, f->p);
    powersgd_project(&m, lab->kernels, &feed, f, 0, m.columns);
    expect(lab, powersgd_finish(&m, lab->kernels, &end, 0, m.rows));
}

/* ---- what others do ---- */

static void pairs_prepare(struct lab *lab)
{
    if (!lab->pairs)
        lab->pairs = aligned_alloc(LINE, round_up(lab->count * PAIR_LEN, LINE));
    if (lab->pairs)
        memset(lab->pairs, 0, lab->count * PAIR_LEN);
    else
        expect(lab, HEARTH_NO_MEMORY);
}

static void make_pairs(struct lab *lab, size_t count)
{
    size_t begin = (size_t)(draw_bits(SEED, lab->step++) % count);
    pairs_of(lab->pairs, lab->x, lab->e, count, begin);
}

static void nth_element(struct lab *lab)
{
    if (!lab->pairs)
        return;
    make_pairs(lab, lab->count);
    pairs_nth(lab->pairs, lab->count, codec_keeps(&lab->codec, lab->count));
}

static size_t sorted_count(size_t count)
{
    return count < SORT_SHARE ? count : count / SORT_SHARE;
}

static void sort(struct lab *lab)
{
    if (!lab->pairs)
        return;
    make_pairs(lab, sorted_count(lab->count));
    pairs_sort(lab->pairs, sorted_count(lab->count));
}

/* ---- the list ---- */

#define TOPK         "topk:0.01,values=int8"
#define TOPK_CHUNK   "topk:0.015625,chunk=4096,values=int8"
#define TOPK_CHUNK_1 "topk:0.01,chunk=4096,values=int8"

const struct lab_row lab_rows[] = {
    {"bf16.encode", "bf16", .target = 0.95, .run = encode},
    {"bf16.encode_feedback", "bf16", .flags = LAB_SPLIT, .run = encode_feedback},
    {"bf16.decode_add", "bf16", .target = 1.5, .prepare = encode, .run = decode_add},
    {"fp16.encode", "fp16", .target = 0.95, .run = encode},
    {"fp16.encode_feedback", "fp16", .flags = LAB_SPLIT, .run = encode_feedback},
    {"fp16.decode_add", "fp16", .target = 1.5, .prepare = encode, .run = decode_add},
    {"int8.encode", "int8", .target = 0.95, .run = encode},
    {"int8.encode_feedback", "int8", .target = 2.2, .flags = LAB_SPLIT, .run = encode_feedback},
    {"int8.decode_reduce", "int8", .target = 1.4, .prepare = encode, .run = decode_add},
    {"onebit.encode", "onebit", .run = encode},
    {"onebit.encode_feedback", "onebit", .flags = LAB_SPLIT, .run = encode_feedback},
    {"onebit.decode_add", "onebit", .prepare = encode, .run = decode_add},
    {"topk_chunk.encode_feedback", TOPK_CHUNK, .target = 2.4, .flags = LAB_SPLIT, .run = encode_feedback},
    {"topk_chunk.decode_add", TOPK_CHUNK_1, .flags = LAB_ENTRIES, .prepare = encode, .run = decode_add},
    {"topk.encode_feedback", TOPK, .target = 2.4, .prepare = topk_steady, .run = topk_steady},
    {"topk.encode_cold", TOPK, .target = 3.5, .run = topk_cold},
    {"topk.decode_add", TOPK, .flags = LAB_ENTRIES, .prepare = topk_cold, .run = list_decode_add},
    {"sparse.decode_add", TOPK_CHUNK_1, .entries_m = 250, .flags = LAB_ENTRIES, .prepare = encode,
     .run = decode_add_near},
    {"randomk.encode_feedback", "randomk:0.01", .target = 0.4, .flags = LAB_SPLIT | LAB_DRAWS_X,
     .run = randomk_feedback},
    {"powersgd.step", "powersgd:4", .target = 5, .prepare = powersgd_prepare, .run = powersgd_step,
     .used = matrix_count},
    {"reference.nth_element", TOPK, .reference = 10, .flags = LAB_REFERENCE, .prepare = pairs_prepare,
     .run = nth_element},
    {"reference.sort", TOPK, .reference = 100, .flags = LAB_REFERENCE, .prepare = pairs_prepare, .run = sort,
     .used = sorted_count},
};
const size_t lab_row_count = sizeof lab_rows / sizeof *lab_rows;

size_t lab_used(const struct lab_row *row, size_t count)
{
    return row->used ? row->used(count) : count;
}

void lab_prepare(struct lab *lab, const struct lab_row *row)
{
    struct codec_list list = {.count = 0};
    struct error error;
    expect(lab, codec_parse(row->codec, &list, &error));
    lab->codec = list.codec[0];
    lab->hint = (struct topk_hint){0};
    lab->step = 0;
    if (row->prepare)
        row->prepare(lab);
}

void lab_restore(struct lab *lab, const struct lab_row *row)
{
    if (row->flags & LAB_DRAWS_X)
        fill(lab->x, lab->count, SEED);
}
