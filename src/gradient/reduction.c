/* SPDX-License-Identifier: Apache-2.0 */
/* The life of a compressed all-reduce: opening, method, vote, commit; and its failures. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/derived_id.h"
#include "core/hash.h"
#include "gradient/codec_pool.h"

#define NAME          "all_reduce_compressed"
#define OPENING_MAGIC UINT64_C(0x31676e696e65706f) /* "opening1" */
#define VOTE_MAGIC    UINT32_C(0x31746f76)         /* "vot1" */
#define FLAG_FEEDBACK 1u
#define STAY_LEN      (256u << 10) /* its codecs take less time than waking the thread that would drive */

enum { PHASE_WORK, PHASE_VOTE, PHASE_OUT, PHASE_FAILING };

/* ---- words ---- */

static int fail_with(struct reduction *r, int status, int rank, const char *reason)
{
    return error_set(&r->error, status, rank, "%s", reason);
}

/* Its failure with its name, as its caller hears of it. */
static struct error named_error(const struct reduction *r)
{
    char codec[CODEC_TEXT_MAX];
    const struct group *group = r->call.group->group; /* the reduction itself may be one of a few of them */
    struct error error = r->error;
    if (error.status == HEARTH_OK)
        return error;
    codec_text(&r->call.codec, codec, sizeof codec);
    error_wrap(&error, &r->error, NAME " #%llu%s by %.60s on rank %d of %d: %s",
               (unsigned long long)r->compound->sequence, tag_text(r->opts.tag).s, codec, group_rank(group),
               group_size(group), r->error.text);
    return error;
}

int reduction_poison(struct reduction *r)
{
    return fail_with(r, HEARTH_POISONED, RANK_NONE, "the sum over the members is beyond the range of f32");
}

/* The rank in a group of a member that the cluster counts so; RANK_NONE: it is none, or not known. */
static int rank_in(const hearth_group *group, int world_rank)
{
    for (int i = 0; world_rank != RANK_NONE && i < group_size(group->group); i++)
        if (group_member(group->group, i) == world_rank)
            return i;
    return RANK_NONE;
}

/* The rank that a member of one group has in another. Ranks may come from elsewhere. */
static int rank_across(const hearth_group *from, const hearth_group *to, int rank)
{
    bool known = rank >= 0 && rank < group_size(from->group);
    return known ? rank_in(to, group_member(from->group, rank)) : RANK_NONE;
}

/* An operation inside failed. Where a member has put its name to it, that member need not be in the group by
 * which we heard of it. Else the text counts ranks as that group does. */
static int fail_inside(struct reduction *r, const hearth_group *hidden, const struct error *error)
{
    int origin = rank_in(r->call.group, error->origin),
        rank = rank_across(hidden, r->call.group, error->rank);
    bool same = group_size(hidden->group) == group_size(r->call.group->group);
    r->error = *error;
    if (error->status == HEARTH_ABORTED && origin != RANK_NONE)
        rank = origin;
    if (!same && origin == RANK_NONE && rank != RANK_NONE)
        error_wrap(&r->error, error, "rank %d, which is rank %d of %d here: %s", rank, error->rank,
                   group_size(hidden->group), error->text);
    r->error.rank = rank;
    return error->status;
}

int reduction_blame(struct reduction *r, int rank, const char *why)
{
    char reason[ERROR_TEXT_MAX];
    rank = rank_across(r->hidden, r->call.group, rank);
    snprintf(reason, sizeof reason, "what rank %d sent is malformed: %.220s", rank, why);
    return fail_with(r, HEARTH_PROTOCOL, rank, reason);
}

/* What members of a group hear of our failure: who is lost is lost for them too, and so are we when our node
 * closes. What we heard from another member is passed on as it was said. */
static struct error error_for(const struct reduction *r, const hearth_group *group)
{
    struct error why = r->error.origin == RANK_NONE ? named_error(r) : r->error;
    bool lost = why.status == HEARTH_PEER_LOST || why.status == HEARTH_GROUP_BROKEN ||
                why.status == HEARTH_VIEW_CHANGED;
    bool going = why.status == HEARTH_CLOSED && atomic_load(&r->closing) != GROUP_CLOSES;
    if (why.origin == RANK_NONE)
        why.origin = group_member(group->group, group_rank(group->group));
    if (why.reason == HEARTH_REASON_NONE)
        why.reason = status_reason(why.status);
    why.status = lost || going ? HEARTH_PEER_LOST : HEARTH_ABORTED; /* their engine has its name for a loss */
    why.rank = lost ? rank_across(r->call.group, group, why.rank) : group_rank(group->group);
    return why;
}

/* ---- the operations it is made of ---- */

static void sub_done(void *arg, int status)
{
    struct sub *sub = arg;
    (void)status;
    atomic_store(&sub->done, true);
    codec_pool_ring(sub->pool);
}

static int64_t remaining_ms(const struct reduction *r)
{
    if (r->now_ns >= r->deadline_ns)
        return 0;
    return (int64_t)((r->deadline_ns - r->now_ns + NS_PER_MS - 1) / NS_PER_MS);
}

int sub_start(struct reduction *r, hearth_group *group, struct sub *sub, struct call *call, uint32_t track)
{
    struct hearth_opts opts;
    struct error error;
    hearth_opts_init(&opts);
    opts.timeout_ms = remaining_ms(r);
    opts.tag = r->opts.tag;
    opts.weight = 1;
    opts.done = sub_done;
    opts.done_arg = sub;
    call->opts = &opts;
    call->part_of = !call->opens ? r->compound : NULL;
    call->track = track;
    sub->pool = r->pool;
    sub->group = group;
    atomic_store(&sub->done, false);
    int status = node_start(group, call, r->stays ? CALLER_STAYS : CALLER_GOES, &sub->request, &error);
    if (status != HEARTH_OK) {
        sub->request = NULL;
        fail_inside(r, group, &error);
    }
    return status;
}

bool sub_ended(const struct sub *sub)
{
    return sub->request && atomic_load(&sub->done);
}

int sub_finish(struct reduction *r, struct sub *sub)
{
    struct error error;
    if (node_finish(sub->request, &error) != HEARTH_OK)
        fail_inside(r, sub->group, &error);
    sub->request = NULL;
    return error.status;
}

enum step sub_await(struct reduction *r, struct sub *sub)
{
    if (!sub_ended(sub)) {
        r->awaits = sub;
        return STEP_WAIT;
    }
    return sub_finish(r, sub) == HEARTH_OK ? STEP_DONE : STEP_FAILED;
}

void sub_cancel(struct reduction *r, struct sub *sub)
{
    if (!sub->request)
        return;
    struct error theirs = error_for(r, sub->group);
    node_abandon(sub->request, &theirs);
    sub->request = NULL;
}

int sub_all_gather(struct reduction *r, struct sub *sub, void *all, size_t len, uint32_t track)
{
    struct call call = {.kind = PLAN_ALL_GATHER,
                        .source = (uint8_t *)all + (size_t)r->rank * len,
                        .target = all,
                        .count = len,
                        .dtype = HEARTH_U8,
                        .in_place = true};
    return sub_start(r, r->hidden, sub, &call, track);
}

int sub_all_to_all(struct reduction *r, struct sub *sub, const void *source, void *target, size_t len)
{
    struct call call = {
        .kind = PLAN_ALL_TO_ALL, .source = source, .target = target, .count = len, .dtype = HEARTH_U8};
    return sub_start(r, r->hidden, sub, &call, SUB_FIRST);
}

/* ---- memory and tensors ---- */

void *reduction_take(struct reduction *r, size_t len)
{
    void *block = codec_pool_take(r->pool, len);
    if (block)
        codec_pool_list(&r->blocks, block);
    else
        fail_with(r, HEARTH_NO_MEMORY, r->rank, "no memory for its shadows and buffers");
    return block;
}

void reduction_refuse(struct reduction *r, hearth_group *inner)
{
    if (!r->begun)
        return;
    struct error why = error_for(r, inner);
    node_refuse_parts(inner, r->compound, &why);
}

/* ---- opening ---- */

static void opening_write(const struct reduction *r, struct call_opening *o)
{
    char text[CODEC_TEXT_MAX];
    codec_text(&r->call.codec, text, sizeof text);
    memset(o, 0, sizeof *o); /* all of it travels */
    o->magic = OPENING_MAGIC;
    o->codec = hash64(0, text, strlen(text));
    o->count = r->call.count;
    o->rows = r->call.rows;
    o->key = r->call.key;
    o->step = r->call.state ? r->call.state->step : 0;
    o->dtype = (uint32_t)r->call.dtype;
    o->op = (uint32_t)r->call.op;
    o->algo = (uint32_t)r->call.algo;
    o->flags = r->call.feedback ? FLAG_FEEDBACK : 0;
    o->weight = r->call.op == HEARTH_OP_AVG ? r->opts.weight : 1;
    snprintf(o->codec_text, sizeof o->codec_text, "%.63s", text); /* the hash is of all of it */
}

/* In all but weight and words. */
static bool openings_agree(const struct call_opening *a, const struct call_opening *b)
{
    return memcmp(a, b, offsetof(struct call_opening, weight)) == 0;
}

/* "1000 f32 sum by topk:0.01 (owner), step 3" */
static void opening_text(const struct call_opening *o, char *text, size_t size)
{
    char codec[sizeof o->codec_text];
    memcpy(codec, o->codec_text, sizeof codec);
    codec[sizeof codec - 1] = 0;
    for (char *c = codec; *c; c++) /* it came from elsewhere and may end on a terminal */
        *c = *c < ' ' || *c > '~' ? '?' : *c;
    const char *algo = o->algo < REDUCTION_ALGOS ? reduction_algo_name((enum reduction_algo)o->algo) : "?";
    snprintf(text, size, "%llu %s %s by %s (%s%s), step %llu", (unsigned long long)o->count,
             hearth_dtype_name((enum hearth_dtype)o->dtype), hearth_op_name((enum hearth_op)o->op), codec,
             algo, o->flags & FLAG_FEEDBACK ? "" : ", no feedback", (unsigned long long)o->step);
}

/* The same records on all members, so the same verdict. */
static int openings_check(struct reduction *r)
{
    double weight = 0;
    for (int i = 0; i < r->size; i++) {
        const struct call_opening *o = &r->openings[i];
        weight += o->weight;
        if (openings_agree(o, &r->openings[0]))
            continue;
        char theirs[160], first[160], reason[sizeof theirs + sizeof first + 64];
        opening_text(o, theirs, sizeof theirs);
        opening_text(&r->openings[0], first, sizeof first);
        snprintf(reason, sizeof reason, "rank %d called it for %s; rank 0 for %s", i, theirs, first);
        return fail_with(r, HEARTH_MISMATCH, i, reason);
    }
    if (r->call.op == HEARTH_OP_AVG && !(weight > 0))
        return fail_with(r, HEARTH_INVALID, RANK_NONE, "the weights of all members are 0");
    r->divisor = r->call.op == HEARTH_OP_AVG ? (float)weight : 1.0f;
    r->opened = true;
    return HEARTH_OK;
}

/* Groups come before the opening: once that has begun, others count on us. */
static int groups_find(struct reduction *r)
{
    int status = reduction_inner(r, INNER_ALL, &r->hidden);
    return status == HEARTH_OK && r->method->enter ? r->method->enter(r) : status;
}

static int opening_start(struct reduction *r)
{
    hearth_group *group = r->call.group;
    struct call call = {.kind = PLAN_ALL_GATHER,
                        .source = &r->openings[r->rank],
                        .target = r->openings,
                        .count = sizeof *r->openings,
                        .dtype = HEARTH_U8,
                        .in_place = true,
                        .opens = r->compound};
    int status = groups_find(r);
    if (status != HEARTH_OK) {
        struct error why = error_for(r, group);
        node_refuse(group, r->opts.tag, &why);
        return status;
    }
    opening_write(r, &r->openings[r->rank]);
    status = sub_start(r, group, &r->opening_sub, &call, 0);
    if (status != HEARTH_OK)
        return status;
    uint64_t id =
        derived_id(ID_REDUCTION, group_view(group->group)->group, r->opts.tag, r->compound->sequence);
    r->begun = true;
    r->key = hash_mix(r->call.key != 0 ? r->call.key : id, r->call.state ? r->call.state->step : 0);
    return HEARTH_OK;
}

/* ---- the end ---- */

static int votes_check(struct reduction *r)
{
    for (int i = 0; i < r->size; i++) {
        bool vote = r->votes[i].magic == VOTE_MAGIC;
        if (vote && r->votes[i].poisoned == 0)
            continue;
        char reason[96];
        snprintf(reason, sizeof reason,
                 vote ? "the input of rank %d holds NaN or Inf, or is beyond f32"
                      : "rank %d sent a vote that is none",
                 i);
        return fail_with(r, vote ? HEARTH_POISONED : HEARTH_PROTOCOL, i, reason);
    }
    return HEARTH_OK;
}

static_assert(sizeof(struct call_opening) + sizeof(struct vote) == COMPARE_BYTES, "as prices count them");

static int vote_start(struct reduction *r)
{
    r->sent_bytes += COMPARE_BYTES * (uint64_t)(r->size - 1); /* the opening, too */
    r->votes[r->rank] = (struct vote){.magic = VOTE_MAGIC, .poisoned = atomic_load(&r->poisoned)};
    return sub_all_gather(r, &r->vote_sub, r->votes, sizeof *r->votes, SUB_CONTROL);
}

static uint64_t plain_bytes(const struct reduction *r)
{
    return 2 * (uint64_t)(r->size - 1) * r->call.count * dtype_size(r->call.dtype) / (uint64_t)r->size;
}

static void count(const struct reduction *r)
{
    struct metrics *m = &r->call.group->node->metrics;
    atomic_fetch_add_explicit(&m->compression.plain_bytes, plain_bytes(r), memory_order_relaxed);
    atomic_fetch_add_explicit(&m->compression.sent_bytes, r->sent_bytes, memory_order_relaxed);
    atomic_fetch_add_explicit(&m->compression.compress_ns, r->compress_ns, memory_order_relaxed);
    atomic_fetch_add_explicit(&m->compression.expand_ns, r->expand_ns, memory_order_relaxed);
}

static void state_commit(struct reduction *r)
{
    struct tensor_state *state = r->call.state;
    if (r->call.residual && r->e_new)
        r->kernels->copy_far(r->call.residual, r->e_new, r->call.count * residual_size(r->call.dtype));
    if (!state)
        return;
    if (r->e_new && r->e_new == state->shadow)
        tensor_swap_residual(state);
    state->step++;
    state->energy = r->energy;
    state->sent_bytes += r->sent_bytes;
    state->plain_bytes += plain_bytes(r);
}

void method_close(struct reduction *r, bool failed)
{
    if (r->work)
        r->method->close(r, failed);
    r->work = NULL;
}

/* Ends all that is in flight; nobody waits for us. */
static void let_go(struct reduction *r, bool failed)
{
    method_close(r, failed);
    sub_cancel(r, &r->vote_sub);
    if (failed && r->hidden)
        reduction_refuse(r, r->hidden);
    node_close_compound(r->call.group, r->compound);
    r->begun = false;
}

/* Our own failures end the opening too; where something came from outside, what the opening says about it
 * is better than what an operation inside found. */
static enum step fail(struct reduction *r, bool ours)
{
    assert(r->error.status != HEARTH_OK);
    let_go(r, true);
    r->phase = PHASE_FAILING;
    if (ours)
        sub_cancel(r, &r->opening_sub);
    return STEP_MORE;
}

static enum step failing(struct reduction *r)
{
    struct error why = r->error;
    r->awaits = NULL;
    if (!device_rests(r))
        return STEP_WAIT;
    enum step step = r->opening_sub.request ? sub_await(r, &r->opening_sub) : STEP_FAILED;
    if (step == STEP_WAIT)
        return step;
    if (step == STEP_DONE && openings_check(r) == HEARTH_OK)
        r->error = why;
    return STEP_FAILED;
}

static enum step voting(struct reduction *r)
{
    enum step step = sub_await(r, &r->vote_sub);
    if (step == STEP_WAIT)
        return step;
    if (step == STEP_FAILED || votes_check(r) != HEARTH_OK)
        return fail(r, false);
    if (r->call.state)
        tensor_commits(r->call.state);
    r->method->publish(r);
    state_commit(r);
    count(r);
    let_go(r, false);
    device_out(r);
    r->phase = PHASE_OUT;
    return STEP_MORE;
}

static enum step delivering(struct reduction *r)
{
    r->awaits = NULL;
    enum step step = device_out_await(r);
    if (step == STEP_FAILED)
        error_wrap(&r->error, &r->error, "it has succeeded, but its result is not on the device: %s",
                   r->error.text);
    return step;
}

static enum step working(struct reduction *r)
{
    if (!r->opened && sub_ended(&r->opening_sub)) {
        if (sub_finish(r, &r->opening_sub) != HEARTH_OK || openings_check(r) != HEARTH_OK)
            return fail(r, false);
        return STEP_MORE;
    }
    r->awaits = NULL;
    enum step step = device_in(r);
    if (step == STEP_DONE)
        step = r->method->step(r);
    if (step == STEP_FAILED)
        return fail(r, r->error.status == HEARTH_NO_MEMORY || r->error.status == HEARTH_COPY_FAILED);
    if (step != STEP_DONE)
        return step;
    if (!r->opened) {
        r->awaits = &r->opening_sub;
        return STEP_WAIT;
    }
    if (vote_start(r) != HEARTH_OK)
        return fail(r, true);
    r->phase = PHASE_VOTE;
    return STEP_MORE;
}

enum step reduction_step(struct reduction *r, uint64_t now_ns)
{
    uint64_t mode = fpmode_enter();
    enum step step = STEP_MORE;
    r->now_ns = now_ns;
    if (r->phase == PHASE_OUT) { /* for the others it has ended */
        step = delivering(r);
    } else if (r->phase != PHASE_FAILING && atomic_load(&r->closing)) {
        fail_with(r, HEARTH_CLOSED, r->rank, "the node or the group is closing");
        step = fail(r, true);
    } else if (r->phase == PHASE_WORK && atomic_load(&r->cancelled)) { /* later, others may have gone on */
        fail_with(r, HEARTH_CANCELLED, r->rank, "cancelled");
        step = fail(r, true);
    } else if (r->phase == PHASE_FAILING) {
        if (atomic_load(&r->closing) || atomic_load(&r->cancelled))
            sub_cancel(r, &r->opening_sub); /* nobody is to wait for what it says */
        step = failing(r);
    } else {
        step = r->phase == PHASE_VOTE ? voting(r) : working(r);
    }
    fpmode_leave(mode);
    return step;
}

static void reduction_free(struct reduction *r)
{
    codec_pool_give_all(r->pool, &r->blocks);
    codec_pool_give(r->pool, r);
}

void reduction_settle(struct reduction *r)
{
    hearth_request *request = r->request;
    struct error error = named_error(r);
    node_settling(request);
    reduction_free(r); /* before anybody hears: it may be called again at once */
    node_settle(request, &error);
}

/* ---- the beginning ---- */

const struct method *method_of_codec(const struct codec *codec)
{
    if (codec_is_blockwise(codec))
        return &method_block;
    if (codec->kind == CODEC_TOPK)
        return &method_topk;
    if (codec->kind == CODEC_USER)
        return &method_user;
    return codec->kind == CODEC_RANDOMK ? &method_randomk : &method_powersgd;
}

static const struct method *method_of(const struct reduction_call *call)
{
    if (call->codec.kind == CODEC_NONE || call->algo == REDUCTION_PLAIN)
        return &method_plain;
    return call->algo == REDUCTION_TWO_LEVEL ? &method_two_level : method_of_codec(&call->codec);
}

size_t reduction_memory(const struct reduction_call *call, int size)
{
    size_t residual = call->count * residual_size(call->dtype);
    return method_of(call)->memory(call, size) + (call->feedback ? residual : 0) + device_memory(call) +
           (size_t)size * (sizeof(struct call_opening) + sizeof(struct vote)) + sizeof(struct reduction);
}

/* Where the next residual is written. */
static int shadow_make(struct reduction *r)
{
    struct tensor_state *state = r->call.state;
    size_t len = r->call.count * residual_size(r->call.dtype);
    bool needed = r->method->works_in_shadow;
    if (r->call.feedback && state) {
        if (!state->shadow)
            state->shadow = heap_alloc_raw(r->call.group->node->heap, 1, len);
        if (!state->shadow)
            return fail_with(r, HEARTH_NO_MEMORY, r->rank, "no memory for the residual");
        r->e_old = state->residual;
        r->e_new = state->shadow;
        return HEARTH_OK;
    }
    if (!needed && (!r->call.feedback || !r->call.residual))
        return HEARTH_OK;
    r->e_old = r->call.feedback ? r->call.residual : NULL;
    r->e_new = reduction_take(r, len);
    return r->e_new ? HEARTH_OK : r->error.status;
}

static void cancel_by_request(void *arg)
{
    struct reduction *r = arg;
    atomic_store(&r->cancelled, true);
    codec_pool_ring(r->pool);
}

static struct reduction *reduction_make(const struct reduction_call *call, struct error *error)
{
    hearth_node *node = call->group->node;
    struct codec_pool *w = codec_pool_of(node);
    struct reduction *r = w ? codec_pool_take(w, sizeof *r) : NULL;
    if (!r) {
        error_set(error, HEARTH_NO_MEMORY, RANK_NONE, "all_reduce_compressed: no memory");
        return NULL;
    }
    memset(r, 0, sizeof *r);
    list_init(&r->item);
    list_init(&r->own.item);
    list_init(&r->blocks);
    r->compound = &r->own;
    r->pool = w;
    r->call = *call;
    r->opts = *call->opts;
    r->call.opts = &r->opts;
    r->kernels = codec_pool_kernels(w, call->count * dtype_size(call->dtype));
    r->rank = group_rank(call->group->group);
    r->size = group_size(call->group->group);
    r->now_ns = node_now(node);
    r->deadline_ns = r->now_ns + (uint64_t)r->opts.timeout_ms * NS_PER_MS;
    r->method = method_of(call);
    r->openings = reduction_take(r, (size_t)r->size * sizeof *r->openings);
    r->votes = reduction_take(r, (size_t)r->size * sizeof *r->votes);
    int status = r->openings && r->votes ? device_open(r) : HEARTH_NO_MEMORY;
    if (status == HEARTH_OK)
        status = shadow_make(r);
    if (status == HEARTH_OK)
        status = r->method->open(r);
    if (status == HEARTH_OK)
        return r;
    *error = named_error(r);
    reduction_free(r);
    return NULL;
}

/* It does not begin: r->error says why. */
static int give_up(struct reduction *r)
{
    int status = r->error.status;
    let_go(r, true);
    sub_cancel(r, &r->opening_sub);
    *error_last() = named_error(r);
    reduction_free(r);
    return status;
}

/* Makes it and starts the opening. What fails here is told to the others, so that they do not wait. */
static int reduction_begin(const struct reduction_call *call, bool stays, struct reduction **out)
{
    struct error error;
    struct reduction *r = reduction_make(call, &error);
    if (!r) {
        *error_last() = error;
        node_refuse(call->group, call->opts->tag, &error);
        return error.status;
    }
    r->stays = stays;
    int status = opening_start(r);
    if (status == HEARTH_OK) {
        *out = r;
        return HEARTH_OK;
    }
    return give_up(r);
}

int work_run(const struct reduction_call *call)
{
    struct reduction *r;
    hearth_node *node = call->group->node;
    bool quick = call->codec.kind != CODEC_USER; /* a user's functions take what time they like */
    bool stays = quick && call->count * dtype_size(call->dtype) <= STAY_LEN;
    uint32_t heard = bell_heard(node->bell);
    if (stays)
        node_come(node);
    int status = reduction_begin(call, stays, &r);
    if (status == HEARTH_OK)
        codec_pool_drive(r->pool, r, &heard);
    if (stays)
        node_go(node, heard);
    if (status != HEARTH_OK)
        return status;
    struct error error = named_error(r);
    reduction_free(r);
    if (error.status != HEARTH_OK)
        *error_last() = error;
    if (call->opts->done)
        call->opts->done(call->opts->done_arg, error.status);
    return error.status;
}

int work_start(const struct reduction_call *call, hearth_request **request)
{
    struct reduction *r;
    int status = reduction_begin(call, false, &r);
    if (status != HEARTH_OK)
        return status;
    struct node_task task = {
        .cancel = cancel_by_request, .arg = r, .done = call->opts->done, .done_arg = call->opts->done_arg};
    hearth_request *made = NULL;
    status = node_request(call->group->node, &task, &made);
    if (status == HEARTH_OK) {
        r->request = made;
        *request = made;
        status = codec_pool_submit(r->pool, r);
        if (status == HEARTH_OK)
            return HEARTH_OK;
    }
    fail_with(r, status, r->rank, hearth_status_text(status));
    if (made)
        node_drop_request(made);
    return give_up(r);
}
