/* SPDX-License-Identifier: Apache-2.0 */
/* Full rounds have parts of whole blocks. What is left for the last one, all of a small array, is shared out
 * evenly: a part that is filled up travels twice to everybody. */
#include "gradient/round_cut.h"

#define PAYLOAD_MAX   (256u << 10) /* bytes of a part, about */
#define PAYLOAD_MIN   (64u << 10)
#define PAYLOAD_S     0.01 /* and so long on the wire: what the first and the last round cost is not hidden */
#define PART_MAX      (1u << 20) /* elements */
#define PART_MIN      (32u << 10)
#define ROUNDS_WISHED 4 /* at least, if there is enough for them */

static size_t parts_of(enum reduction_algo algo, int size)
{
    return algo == REDUCTION_OWNER ? (size_t)size : 1;
}

static size_t payload_of(double bytes_per_s)
{
    double bytes = bytes_per_s * PAYLOAD_S;
    return bytes < PAYLOAD_MIN ? PAYLOAD_MIN : bytes > PAYLOAD_MAX ? PAYLOAD_MAX : (size_t)bytes;
}

/* Chunks of topk are chosen from as a whole; all other codecs can end a part anywhere. */
static size_t grain_of(const struct codec *codec)
{
    return codec->kind == CODEC_TOPK ? coder_block(codec) : 1;
}

static size_t part_of(const struct round_plan *p, size_t payload)
{
    size_t block = coder_block(&p->codec), parts = parts_of(p->algo, p->size);
    size_t len = coder_len(&p->codec, block) - PART_HEADER_LEN;
    size_t most = payload / (len > 0 ? len : 1) * block;
    most = most < PART_MAX ? most : PART_MAX;
    size_t part = p->count / (parts * ROUNDS_WISHED);
    part = part < PART_MIN ? PART_MIN : part;
    part = part < most ? part : most;
    size_t all = (p->count + parts - 1) / parts;
    part = part < all ? part : all;
    return align_up(part > 0 ? part : 1, block);
}

struct round_plan round_plan_of(const struct codec *codec, enum reduction_algo algo, size_t count, int size,
                                double bytes_per_s)
{
    struct round_plan p = {.codec = *codec, .algo = algo, .count = count, .size = size};
    p.part = part_of(&p, payload_of(bytes_per_s));
    size_t step = p.part * parts_of(algo, size);
    p.round_count = (count + step - 1) / step;
    return p;
}

struct round_cut round_cut_at(const struct round_plan *p, size_t round)
{
    size_t parts = parts_of(p->algo, p->size);
    struct round_cut cut = {.first = round * p->part * parts, .part = p->part, .parts = (int)parts};
    size_t rest = p->count - cut.first;
    if (rest < p->part * parts)
        cut.part = align_up((rest + parts - 1) / parts, grain_of(&p->codec));
    cut.len = coder_len(&p->codec, cut.part < rest ? cut.part : rest);
    return cut;
}

uint64_t round_plan_bytes(const struct round_plan *p)
{
    uint64_t others = (uint64_t)p->size - 1, times = p->algo == REDUCTION_OWNER ? 2 : 1;
    if (p->round_count == 0)
        return 0;
    uint64_t full = round_cut_at(p, 0).len, last = round_cut_at(p, p->round_count - 1).len;
    return times * others * (full * (p->round_count - 1) + last);
}

/* By owners less is sent, but it takes one hop more. */
enum reduction_algo round_algo(const struct codec *codec, size_t count, int size,
                               const struct link_cost *pace)
{
    struct round_plan gather = round_plan_of(codec, REDUCTION_ALLGATHER, count, size, pace->bytes_per_s);
    struct round_plan owner = round_plan_of(codec, REDUCTION_OWNER, count, size, pace->bytes_per_s);
    double gather_s = pace->alpha_s + (double)round_plan_bytes(&gather) / pace->bytes_per_s;
    double owner_s = 2 * pace->alpha_s + (double)round_plan_bytes(&owner) / pace->bytes_per_s;
    return gather_s <= owner_s ? REDUCTION_ALLGATHER : REDUCTION_OWNER;
}
