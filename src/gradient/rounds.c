/* SPDX-License-Identifier: Apache-2.0 */
/* Rounds of a part-wise sum.
 *
 *   REDUCTION_ALLGATHER  a round is one part: encode -> all_gather -> decode the sum of all
 *   REDUCTION_OWNER      a round has one part for each member: encode all -> all_to_all -> the owner merges
 *                        its own -> all_gather -> decode all
 *
 * A round lives in a place with its own buffers. Rounds are encoded, merged and decoded in order, so that the
 * operations of one tag start in the same order on all members. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "core/hash.h"
#include "gradient/codec_pool.h"
#include "gradient/round_cut.h"

#define PLACES      6 /* rounds in flight */
#define MEMBERS_MAX CODER_PAYLOADS_MAX

enum place_state { PLACE_FREE, PLACE_ENCODED, PLACE_GATHERING };

struct round_place {
    enum place_state state;
    struct sub first, second;
    uint8_t *send, *got, *result; /* one payload for each member; without owners got is NULL */
};

/* The work on one round, in pieces that run side by side. */
struct round_job {
    struct reduction *r;
    struct round_place *place;
    struct round_cut cut;
    struct energy energy[MEMBERS_MAX];
    _Atomic(int) status;
    struct error error; /* of the piece that set the status */
};

struct rounds {
    struct array array;
    struct round_plan plan;
    size_t encoded, merged, decoded; /* rounds that have passed this point */
    size_t available;                /* elements that may be encoded */
    struct round_place place[PLACES];
    struct round_job job;
};

/* The links that set the pace. */
static const struct link_cost *pace_of(const struct reduction *r)
{
    const hearth_group *group = r->hidden ? r->hidden : r->call.group; /* hidden comes a little later */
    const struct group_view *view = group_view(group->group);
    bool across = false;
    for (int i = 1; i < view->size; i++)
        across = across || view_place(view, i) != view_place(view, 0);
    return across ? &view->across : &view->inside;
}

/* Elements of part p of a round, and where it begins in the array. */
static struct range part_range(const struct rounds *s, const struct round_cut *cut, int p)
{
    size_t begin = cut->first + cut->part * (size_t)p, count = s->array.count;
    if (begin >= count)
        return (struct range){0}; /* no elements are left for it */
    return (struct range){.offset = begin, .count = count - begin < cut->part ? count - begin : cut->part};
}

/* ---- memory ---- */

static size_t places_of(size_t round_count)
{
    return round_count < PLACES ? round_count : PLACES;
}

/* One payload for each member. */
static size_t buffer_len(const struct round_plan *plan)
{
    return align_up(coder_len(&plan->codec, plan->part) * (size_t)plan->size, HEAP_ALIGN);
}

static size_t place_len(const struct round_plan *plan)
{
    return (plan->algo == REDUCTION_OWNER ? 3 : 1) * buffer_len(plan);
}

size_t rounds_memory(const struct codec *codec, enum reduction_algo algo, size_t count, int size)
{
    struct round_plan plan = round_plan_of(codec, algo, count, size, HUGE_VAL); /* the longest parts */
    return places_of(plan.round_count) * place_len(&plan);
}

struct rounds *rounds_open(struct reduction *r, const struct array *array)
{
    bool owner = array->algo == REDUCTION_OWNER;
    assert(r->size <= MEMBERS_MAX); /* no cluster has more */
    struct round_plan plan =
        round_plan_of(&array->codec, array->algo, array->count, r->size, pace_of(r)->bytes_per_s);
    size_t head = align_up(sizeof(struct rounds), HEAP_ALIGN), len = buffer_len(&plan);
    struct rounds *s = reduction_take(r, head + places_of(plan.round_count) * place_len(&plan));
    if (!s)
        return NULL;
    *s = (struct rounds){.array = *array, .plan = plan, .available = array->count};
    for (size_t i = 0; i < places_of(plan.round_count); i++) {
        struct round_place *place = &s->place[i];
        place->result = (uint8_t *)s + head + i * place_len(&plan);
        place->send = owner ? place->result + len : place->result;
        place->got = owner ? place->result + 2 * len : NULL;
    }
    return s;
}

void rounds_close(struct rounds *s, struct reduction *r, bool failed)
{
    if (!s)
        return;
    for (int i = 0; i < PLACES; i++) {
        sub_cancel(r, &s->place[i].first);
        sub_cancel(r, &s->place[i].second);
    }
    size_t passed =
        s->decoded < s->plan.round_count ? round_cut_at(&s->plan, s->decoded).first : s->array.count;
    if (failed && s->array.undo)
        memcpy(s->array.out.out, s->array.undo, passed * dtype_size(s->array.out.dtype));
    codec_pool_give(r->pool, s);
}

/* ---- the work of one round, in pieces ---- */

static struct round_job *job_begin(struct rounds *s, struct reduction *r, size_t round)
{
    struct round_job *job = &s->job;
    job->r = r;
    job->place = &s->place[round % PLACES];
    job->cut = round_cut_at(&s->plan, round);
    atomic_store(&job->status, HEARTH_OK);
    return job;
}

static struct rounds *rounds_of(struct round_job *job)
{
    return container_of(job, struct rounds, job);
}

/* Only the first failure counts. */
static void job_fail(struct round_job *job, int status, const struct error *error)
{
    int before = HEARTH_OK;
    if (status != HEARTH_OK && atomic_compare_exchange_strong(&job->status, &before, status))
        job->error = *error;
}

static int job_end(struct round_job *job)
{
    int status = atomic_load(&job->status);
    if (status == HEARTH_POISONED)
        return reduction_poison(job->r);
    return status == HEARTH_OK ? status : reduction_blame(job->r, job->error.rank, job->error.text);
}

static struct feed feed_at(const struct feed *feed, size_t offset)
{
    struct feed part = *feed;
    size_t step = residual_size(feed->dtype);
    part.x = (const uint8_t *)feed->x + offset * dtype_size(feed->dtype);
    part.e = feed->e ? (const uint8_t *)feed->e + offset * step : NULL;
    part.e_new = feed->e_new ? (uint8_t *)feed->e_new + offset * step : NULL;
    return part;
}

/* The feed of a part. Where the array names no key, the reduction's: it is known only since the opening. */
static struct feed part_feed(const struct rounds *s, struct reduction *r, size_t offset)
{
    struct feed feed = feed_at(&s->array.feed, offset);
    if (feed.key == 0)
        feed.key = reduction_feed(r).key;
    return feed;
}

/* Payloads of a round are equally long; behind that of a shorter part there are zeros. */
static void fill_up(const struct codec *codec, size_t count, uint8_t *payload, size_t len)
{
    size_t used = coder_len(codec, count);
    memset(payload + used, 0, len - used);
}

static void encode_piece(void *arg, size_t p)
{
    struct round_job *job = arg;
    struct rounds *s = rounds_of(job);
    struct range range = part_range(s, &job->cut, (int)p);
    size_t at = s->array.algo == REDUCTION_OWNER ? p : (size_t)job->r->rank;
    struct feed feed = part_feed(s, job->r, range.offset);
    job->energy[p] = (struct energy){0};
    feed.energy = &job->energy[p];
    uint8_t *payload = job->place->send + at * job->cut.len;
    int status = coder_encode(&s->array.codec, job->r->kernels, &feed, range.offset, range.count, payload);
    fill_up(&s->array.codec, range.count, payload, job->cut.len);
    if (status != HEARTH_OK)
        atomic_store(&job->r->poisoned, true);
}

static int encode_round(struct rounds *s, struct reduction *r)
{
    struct round_job *job = job_begin(s, r, s->encoded);
    struct round_place *place = job->place;
    size_t len = job->cut.len;
    reduction_compress(r, encode_piece, job, (size_t)job->cut.parts);
    for (int p = 0; s->array.is_tensor && p < job->cut.parts; p++) {
        r->energy.before += job->energy[p].before;
        r->energy.after += job->energy[p].after;
    }
    s->encoded++;
    r->sent_bytes += len * (size_t)(r->size - 1);
    if (s->array.algo == REDUCTION_OWNER) {
        place->state = PLACE_ENCODED;
        return sub_all_to_all(r, &place->first, place->send, place->got, len);
    }
    place->state = PLACE_GATHERING;
    return sub_all_gather(r, &place->second, place->result, len, SUB_SECOND);
}

/* Our part of a round, from all. */
static void merge_part(void *arg, size_t piece)
{
    struct round_job *job = arg;
    struct rounds *s = rounds_of(job);
    struct reduction *r = job->r;
    struct range range = part_range(s, &job->cut, r->rank);
    const uint8_t *bytes[MEMBERS_MAX];
    struct error error;
    (void)piece; /* it is one */
    for (int i = 0; i < r->size; i++)
        bytes[i] = job->place->got + (size_t)i * job->cut.len;
    struct feed feed = part_feed(s, r, range.offset);
    feed.key = hash_mix(feed.key, s->merged + 1); /* the coder counts from the part's begin */
    struct payloads all = {.count = r->size, .bytes = bytes};
    uint8_t *sum = job->place->result + (size_t)r->rank * job->cut.len;
    struct coder_owner owner = {&feed, range.count, sum};
    job_fail(job, coder_merge(&s->array.codec, r->kernels, &all, &owner, &error), &error);
    fill_up(&s->array.codec, range.count, sum, job->cut.len);
}

static int merge_round(struct rounds *s, struct reduction *r)
{
    struct round_job *job = job_begin(s, r, s->merged);
    int status = sub_finish(r, &job->place->first);
    if (status != HEARTH_OK)
        return status;
    reduction_expand(r, merge_part, job, 1);
    status = job_end(job);
    if (status != HEARTH_OK)
        return status;
    s->merged++;
    job->place->state = PLACE_GATHERING;
    r->sent_bytes += job->cut.len * (size_t)(r->size - 1);
    return sub_all_gather(r, &job->place->second, job->place->result, job->cut.len, SUB_SECOND);
}

static void decode_piece(void *arg, size_t p)
{
    struct round_job *job = arg;
    struct array *a = &rounds_of(job)->array;
    struct reduction *r = job->r;
    bool owner = a->algo == REDUCTION_OWNER;
    struct range range = part_range(rounds_of(job), &job->cut, (int)p);
    const uint8_t *bytes[MEMBERS_MAX];
    struct payloads payloads = {.count = owner ? 1 : r->size, .bytes = bytes};
    for (int i = 0; i < payloads.count; i++)
        bytes[i] = job->place->result + (owner ? p : (size_t)i) * job->cut.len;
    size_t size = dtype_size(a->out.dtype);
    struct coder_out out = a->out;
    out.out = (uint8_t *)out.out + range.offset * size;
    out.divisor = out.divisor != 0 ? out.divisor : r->divisor;
    if (a->undo)
        r->kernels->copy_far(a->undo + range.offset * size, out.out, range.count * size);
    struct error error;
    int status = coder_decode(&a->codec, r->kernels, &payloads, &out, range.count, &error);
    if (owner)
        error.rank = (int)p; /* there was only its payload */
    job_fail(job, status, &error);
}

static int decode_round(struct rounds *s, struct reduction *r)
{
    struct round_job *job = job_begin(s, r, s->decoded);
    int status = sub_finish(r, &job->place->second);
    if (status != HEARTH_OK)
        return status;
    s->decoded++; /* from here on there is something to put back */
    reduction_expand(r, decode_piece, job, (size_t)job->cut.parts);
    job->place->state = PLACE_FREE;
    return job_end(job);
}

/* ---- which is next ---- */

void rounds_offer(struct rounds *s, size_t available)
{
    s->available = available;
}

static bool is_available(const struct rounds *s)
{
    struct round_cut cut = round_cut_at(&s->plan, s->encoded);
    size_t end = cut.first + cut.part * (size_t)cut.parts;
    return s->available >= (end < s->array.count ? end : s->array.count);
}

/* What came first goes first: it makes room for what follows. */
enum step rounds_step(struct rounds *s, struct reduction *r)
{
    struct round_place *oldest = &s->place[s->decoded % PLACES];
    if (s->decoded == s->plan.round_count)
        return STEP_DONE;
    if (r->opened && oldest->state == PLACE_GATHERING && sub_ended(&oldest->second))
        return step_of(decode_round(s, r));
    if (s->array.algo == REDUCTION_OWNER && s->merged < s->encoded &&
        sub_ended(&s->place[s->merged % PLACES].first))
        return step_of(merge_round(s, r));
    if (s->encoded < s->plan.round_count && s->encoded - s->decoded < PLACES && is_available(s))
        return step_of(encode_round(s, r));
    r->awaits = oldest->state == PLACE_GATHERING ? &oldest->second : &oldest->first;
    if (sub_ended(r->awaits))
        r->awaits = &r->opening_sub; /* its divisor is all that is missing */
    return STEP_WAIT;
}

enum reduction_algo rounds_algo(const struct reduction *r, const struct codec *codec, size_t count)
{
    return round_algo(codec, count, r->size, pace_of(r));
}

/* ---- the tensor itself, by codecs that code part by part ---- */

static size_t undo_len(const struct reduction_call *call)
{
    return call->count * dtype_size(call->dtype);
}

static int block_open(struct reduction *r)
{
    struct array array = {
        .codec = r->call.codec,
        .algo = r->call.algo,
        .feed = reduction_feed(r),
        .count = r->call.count,
        .out = {.out = r->call.buffer, .dtype = r->call.dtype},
        .undo = reduction_take(r, undo_len(&r->call)),
        .is_tensor = true,
    };
    array.feed.key = 0;
    r->work = array.undo ? rounds_open(r, &array) : NULL;
    return r->work ? HEARTH_OK : r->error.status;
}

static enum step block_step(struct reduction *r)
{
    return rounds_step(r->work, r);
}

static void block_publish(struct reduction *r)
{
    (void)r; /* the result stands in the buffer already */
}

static void block_close(struct reduction *r, bool failed)
{
    rounds_close(r->work, r, failed);
}

static size_t block_memory(const struct reduction_call *call, int size)
{
    return undo_len(call) + rounds_memory(&call->codec, call->algo, call->count, size);
}

const struct method method_block = {
    .open = block_open,
    .step = block_step,
    .publish = block_publish,
    .close = block_close,
    .memory = block_memory,
};
