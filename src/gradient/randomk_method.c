/* SPDX-License-Identifier: Apache-2.0 */
/* randomk: the chosen values are an array that all members have alike; it is summed by rounds, in the form
 * that its values travel in. */
#include "compress/randomk.h"

#include "gradient/codec_pool.h"

#define PIECE (1u << 20) /* elements that one piece of gathering covers, about */

struct shared {
    struct draw draw;
    float *values, *left, *sum; /* [keep]: ours, what coding them lost (NULL: nothing is), of all */
    size_t pieces;
    struct energy *energies; /* [pieces] */
    size_t gathered;         /* pieces */
    struct rounds *rounds;
};

static struct draw draw_of(const struct reduction *r)
{
    return (struct draw){
        .key = r->key, .count = r->call.count, .keep = codec_keeps(&r->call.codec, r->call.count)};
}

static bool loses(const struct reduction_call *call)
{
    return call->feedback && call->codec.values != VALUES_F32;
}

static int shared_open(struct reduction *r)
{
    size_t len = codec_keeps(&r->call.codec, r->call.count) * sizeof(float),
           pieces = r->call.count / PIECE + 1;
    struct shared *s = reduction_take(r, sizeof *s);
    float *values = reduction_take(r, (loses(&r->call) ? 3 : 2) * len);
    struct energy *energies = reduction_energies(r, pieces);
    if (!s || !values || !energies)
        return r->error.status;
    float *sum = values + len / sizeof *values;
    *s = (struct shared){.values = values, .sum = sum, .pieces = pieces, .energies = energies};
    s->left = loses(&r->call) ? sum + len / sizeof *sum : NULL;
    r->work = s;
    return HEARTH_OK;
}

static void shared_close(struct reduction *r, bool failed)
{
    struct shared *s = r->work;
    rounds_close(s->rounds, r, failed);
}

static void gather_piece(void *arg, size_t piece)
{
    struct reduction *r = arg;
    struct shared *s = r->work;
    size_t from = share_at(s->draw.keep, piece, s->pieces), to = share_at(s->draw.keep, piece + 1, s->pieces);
    struct feed feed = reduction_feed(r);
    feed.energy = &s->energies[piece];
    if (from < to && randomk_gather(&s->draw, r->kernels, &feed, from, to, s->values + from) != HEARTH_OK)
        atomic_store(&r->poisoned, true);
}

static int sum_start(struct reduction *r, struct shared *s)
{
    s->draw = draw_of(r);
    struct array array = {
        .codec = codec_of_values(r->call.codec.values),
        .feed = {.dtype = HEARTH_F32, .x = s->values, .e_new = s->left, .gain = 1, .key = r->key},
        .count = s->draw.keep,
        .out = {.out = s->sum, .dtype = HEARTH_F32, .divisor = 1},
    };
    array.algo = rounds_algo(r, &array.codec, array.count);
    s->rounds = rounds_open(r, &array);
    if (s->rounds)
        rounds_offer(s->rounds, 0);
    return s->rounds ? HEARTH_OK : r->error.status;
}

static void gather_next(void *arg, size_t piece)
{
    struct reduction *r = arg;
    struct shared *s = r->work;
    gather_piece(r, s->gathered + piece);
}

/* A few pieces more, one for each thread: the first rounds are on the wire meanwhile. */
static void gather_some(struct reduction *r, struct shared *s)
{
    struct workers *workers = codec_pool_workers(r->pool);
    size_t some = workers_count(workers), left = s->pieces - s->gathered;
    some = some < left ? some : left;
    reduction_compress(r, gather_next, r, some);
    s->gathered += some;
    rounds_offer(s->rounds, share_at(s->draw.keep, s->gathered, s->pieces));
    if (s->gathered == s->pieces)
        reduction_measure(r, s->energies, s->pieces);
}

static enum step shared_step(struct reduction *r)
{
    struct shared *s = r->work;
    if (!s->rounds)
        return step_of(sum_start(r, s));
    enum step step = rounds_step(s->rounds, r);
    if (step != STEP_WAIT || s->gathered == s->pieces)
        return step;
    gather_some(r, s);
    return STEP_MORE;
}

static void scatter_piece(void *arg, size_t piece)
{
    struct reduction *r = arg;
    struct shared *s = r->work;
    size_t from = share_at(s->draw.keep, piece, s->pieces), to = share_at(s->draw.keep, piece + 1, s->pieces);
    if (from == to)
        return;
    /* Without feedback each is sent so seldom that it must count for those that were not. */
    double factor = r->call.feedback ? 1.0 : (double)s->draw.count / (double)s->draw.keep;
    struct randomk_out out = {
        .out = r->call.buffer, .dtype = r->call.dtype, .factor = (float)factor, .divisor = r->divisor};
    randomk_scatter(&s->draw, r->kernels, s->sum + from, from, to, &out);
    if (s->left)
        randomk_leave(&s->draw, s->left + from, from, to, r->call.dtype, r->e_new);
}

static void shared_publish(struct reduction *r)
{
    struct shared *s = r->work;
    reduction_expand(r, scatter_piece, r, s->pieces);
}

static size_t shared_memory(const struct reduction_call *call, int size)
{
    size_t keep = codec_keeps(&call->codec, call->count);
    struct codec values = codec_of_values(call->codec.values);
    return (loses(call) ? 3 : 2) * keep * sizeof(float) + rounds_memory(&values, REDUCTION_OWNER, keep, size);
}

const struct method method_randomk = {
    .open = shared_open,
    .step = shared_step,
    .publish = shared_publish,
    .close = shared_close,
    .memory = shared_memory,
};
