/* SPDX-License-Identifier: Apache-2.0 */
/* Rounds of a part-wise sum.
 *
 *   REDUCTION_ALLGATHER  a round is one part: encode -> all_gather -> decode the sum of all
 *   REDUCTION_OWNER      a round has one part for each member: encode all -> all_to_all -> the owner merges
 * its own
 *                  -> all_gather -> decode all
 *
 * A round lives in a place with its own buffers. Rounds are encoded, merged and decoded in order, so that the
 * operations of one tag start in the same order on all members. */
#include "gradient/rounds.h"

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
    uint8_t *send, *got, *result; /* one payload for each member; send and got only with owners */
};

struct rounds {
    struct array array;
    struct round_plan plan;
    size_t encoded, merged, decoded; /* rounds that have passed this point */
    size_t available;                /* elements that may be encoded */
    struct round_place place[PLACES];
    uint8_t *memory;
    _Atomic(int) status; /* of pieces that run side by side */
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

static void place_lay(struct round_place *place, uint8_t *at, enum reduction_algo algo, size_t len)
{
    place->result = at;
    if (algo == REDUCTION_OWNER) {
        place->send = at + len;
        place->got = at + 2 * len;
    }
}

int rounds_open(struct reduction *r, const struct array *array, struct rounds **out)
{
    assert(r->size <= MEMBERS_MAX); /* no cluster has more */
    struct rounds *s = reduction_take(r, sizeof *s);
    if (!s)
        return r->error.status;
    *s = (struct rounds){.array = *array};
    s->plan = round_plan_of(&array->codec, array->algo, array->count, r->size, pace_of(r)->bytes_per_s);
    s->available = array->count;
    size_t places = places_of(s->plan.round_count), len = place_len(&s->plan);
    s->memory = reduction_take(r, places * len + 1);
    if (!s->memory) {
        codec_pool_give(r->pool, s);
        return r->error.status;
    }
    for (size_t i = 0; i < places; i++)
        place_lay(&s->place[i], s->memory + i * len, array->algo, buffer_len(&s->plan));
    *out = s;
    return HEARTH_OK;
}

void rounds_close(struct rounds *s, struct reduction *r, bool failed)
{
    if (!s)
        return;
    for (int i = 0; i < PLACES; i++) {
        sub_cancel(r, &s->place[i].first);
        sub_cancel(r, &s->place[i].second);
    }
    size_t size = dtype_size(s->array.out.dtype);
    size_t passed =
        s->decoded < s->plan.round_count ? round_cut_at(&s->plan, s->decoded).first : s->array.count;
    if (failed && s->array.undo)
        memcpy(s->array.out.out, s->array.undo, passed * size);
    codec_pool_give(r->pool, s->memory);
    codec_pool_give(r->pool, s);
}

/* ---- the work of one round, in pieces ---- */

struct round_job {
    struct rounds *rounds;
    struct reduction *r;
    struct round_place *place;
    struct round_cut cut;
    struct energy energy[MEMBERS_MAX];
    struct error error;
};

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
    struct array *a = &job->rounds->array;
    struct range range = part_range(job->rounds, &job->cut, (int)p);
    uint8_t *payloads = a->algo == REDUCTION_OWNER ? job->place->send : job->place->result;
    size_t at = a->algo == REDUCTION_OWNER ? p : (size_t)job->r->rank;
    struct feed feed = part_feed(job->rounds, job->r, range.offset);
    feed.energy = &job->energy[p];
    uint8_t *payload = payloads + at * job->cut.len;
    int status = coder_encode(&a->codec, job->r->kernels, &feed, range.offset, range.count, payload);
    fill_up(&a->codec, range.count, payload, job->cut.len);
    if (status != HEARTH_OK)
        atomic_store(&job->r->poisoned, true);
}

static int encode_round(struct rounds *s, struct reduction *r)
{
    struct round_job *job = reduction_take(r, sizeof *job);
    if (!job)
        return r->error.status;
    *job = (struct round_job){.rounds = s, .r = r, .place = &s->place[s->encoded % PLACES]};
    job->cut = round_cut_at(&s->plan, s->encoded);
    reduction_compress(r, encode_piece, job, (size_t)job->cut.parts);
    for (int p = 0; s->array.is_tensor && p < job->cut.parts; p++) {
        r->energy.before += job->energy[p].before;
        r->energy.after += job->energy[p].after;
    }
    size_t len = job->cut.len;
    struct round_place *place = job->place;
    codec_pool_give(r->pool, job);
    place->state = s->array.algo == REDUCTION_OWNER ? PLACE_ENCODED : PLACE_GATHERING;
    s->encoded++;
    r->sent_bytes += len * (size_t)(r->size - 1);
    return s->array.algo == REDUCTION_OWNER
               ? sub_all_to_all(r, &place->first, place->send, place->got, len)
               : sub_all_gather(r, &place->second, place->result, len, SUB_SECOND);
}

/* Our part of a round, from all. */
struct merging {
    struct rounds *rounds;
    struct reduction *r;
    struct round_place *place;
    struct round_cut cut;
    struct range range;
    int status;
    struct error error;
};

static void merge_part(void *arg, size_t piece)
{
    struct merging *m = arg;
    struct rounds *s = m->rounds;
    struct reduction *r = m->r;
    (void)piece; /* it is one */
    const uint8_t *payloads[MEMBERS_MAX];
    for (int i = 0; i < r->size; i++)
        payloads[i] = m->place->got + (size_t)i * m->cut.len;
    struct feed owner = part_feed(s, r, m->range.offset);
    owner.key = hash_mix(owner.key, s->merged + 1); /* the coder counts from the part's begin */
    struct payloads all = {.count = r->size, .bytes = payloads};
    uint8_t *sum = m->place->result + (size_t)r->rank * m->cut.len;
    m->status = coder_merge(&s->array.codec, r->kernels, &all, &owner, m->range.count, sum, &m->error);
    fill_up(&s->array.codec, m->range.count, sum, m->cut.len);
}

static int merge_round(struct rounds *s, struct reduction *r)
{
    struct merging m = {.rounds = s, .r = r, .place = &s->place[s->merged % PLACES]};
    m.cut = round_cut_at(&s->plan, s->merged);
    m.range = part_range(s, &m.cut, r->rank);
    int status = sub_finish(r, &m.place->first);
    if (status != HEARTH_OK)
        return status;
    reduction_expand(r, merge_part, &m, 1);
    if (m.status != HEARTH_OK)
        return reduction_blame(r, m.error.rank, m.error.text);
    s->merged++;
    m.place->state = PLACE_GATHERING;
    r->sent_bytes += m.cut.len * (size_t)(r->size - 1);
    return sub_all_gather(r, &m.place->second, m.place->result, m.cut.len, SUB_SECOND);
}

static void decode_piece(void *arg, size_t p)
{
    struct round_job *job = arg;
    struct array *a = &job->rounds->array;
    struct reduction *r = job->r;
    struct range range = part_range(job->rounds, &job->cut, (int)p);
    const uint8_t *bytes[MEMBERS_MAX];
    struct payloads payloads = {.count = a->algo == REDUCTION_OWNER ? 1 : r->size, .bytes = bytes};
    for (int i = 0; i < payloads.count; i++)
        bytes[i] = job->place->result + (a->algo == REDUCTION_OWNER ? p : (size_t)i) * job->cut.len;
    size_t size = dtype_size(a->out.dtype);
    struct coder_out out = a->out;
    out.out = (uint8_t *)out.out + range.offset * size;
    out.divisor = out.divisor != 0 ? out.divisor : r->divisor;
    if (a->undo)
        r->kernels->copy_far(a->undo + range.offset * size, out.out, range.count * size);
    struct error error;
    int status = coder_decode(&a->codec, r->kernels, &payloads, &out, range.count, &error);
    int before = HEARTH_OK;
    if (status == HEARTH_OK || !atomic_compare_exchange_strong(&job->rounds->status, &before, status))
        return;
    job->error = error;
    if (a->algo == REDUCTION_OWNER)
        job->error.rank = (int)p; /* there was only its payload */
}

static int decode_round(struct rounds *s, struct reduction *r)
{
    struct round_place *place = &s->place[s->decoded % PLACES];
    int status = sub_finish(r, &place->second);
    if (status != HEARTH_OK)
        return status;
    struct round_job *job = reduction_take(r, sizeof *job);
    if (!job)
        return r->error.status;
    *job = (struct round_job){.rounds = s, .r = r, .place = place, .cut = round_cut_at(&s->plan, s->decoded)};
    s->decoded++; /* from here on there is something to put back */
    reduction_expand(r, decode_piece, job, (size_t)job->cut.parts);
    status = atomic_load(&s->status);
    if (status == HEARTH_POISONED)
        reduction_poison(r);
    else if (status != HEARTH_OK)
        reduction_blame(r, job->error.rank, job->error.text);
    codec_pool_give(r->pool, job);
    place->state = PLACE_FREE;
    return status;
}

/* ---- which is next ---- */

static enum step done_or_failed(int status)
{
    return status == HEARTH_OK ? STEP_MORE : STEP_FAILED;
}

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
        return done_or_failed(decode_round(s, r));
    if (s->array.algo == REDUCTION_OWNER && s->merged < s->encoded &&
        sub_ended(&s->place[s->merged % PLACES].first))
        return done_or_failed(merge_round(s, r));
    if (s->encoded < s->plan.round_count && s->encoded - s->decoded < PLACES && is_available(s))
        return done_or_failed(encode_round(s, r));
    r->awaits = oldest->state == PLACE_GATHERING ? &oldest->second : &oldest->first;
    if (sub_ended(r->awaits))
        r->awaits = &r->opening_sub; /* its divisor is all that is missing */
    return STEP_WAIT;
}

enum reduction_algo rounds_algo(const struct reduction *r, const struct codec *codec, size_t count)
{
    return round_algo(codec, count, r->size, pace_of(r));
}
