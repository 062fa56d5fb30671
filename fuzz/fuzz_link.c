/* SPDX-License-Identifier: Apache-2.0 */
/* A real engine against peers that say anything: no crash, bounded memory, and every operation ends.
 *
 * The input is a list of steps. Some are frames with a right header, so that they reach the engine; a mask
 * says which fields are what the engine expects and which come from the input. Others are bytes as they are,
 * calls of the user, time, and memory that fails. */
#include <stdlib.h>
#include <string.h>

#include "collective/state.h"
#include "core/bytes.h"
#include "fake_peer.h"
#include "transport/link.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

#define MEMBERS_MAX 3
#define CALLS_MAX   16
#define STEPS_MAX   400
#define COUNT_MAX   6000u
#define MEMORY_MAX  (32u << 20)

/* ---- the member ---- */

struct user_call {
    struct completion completion;
    bool live;
    uint8_t source[COUNT_MAX * 4], target[COUNT_MAX * 4];
};

struct world {
    struct heap heap;
    struct metrics metrics;
    uint64_t now_ns;
    struct clock clock;
    struct engine *engine;
    struct group *group, *child;
    struct fake fakes[MEMBERS_MAX];
    int size, rank;
    struct group_view view;
    struct user_call calls[CALLS_MAX];
    struct user_call *last;                     /* called, maybe ended */
    uint64_t fingerprint, tag, sequence, total; /* of the last call */
};

static bool world_open(struct world *w, struct reader *r)
{
    uint8_t shape = get_u8(r);
    heap_init(&w->heap, 0);
    w->size = 2 + (shape & 1);
    w->rank = (shape >> 1) % w->size;
    w->clock.virtual_ns = &w->now_ns;
    w->now_ns = NS_PER_S;
    must(metrics_init(&w->metrics, w->size, &w->heap) == HEARTH_OK);
    struct engine_setup setup = {
        .heap = &w->heap,
        .metrics = &w->metrics,
        .clock = &w->clock,
        .rank = w->rank,
        .size = w->size,
        .ops_max = 12,
        .eager_bytes = 16384,
    };
    must(engine_open(&setup, &w->engine) == HEARTH_OK);
    w->view = (struct group_view){.group = 7,
                                  .epoch = 1,
                                  .size = w->size,
                                  .inside = {1e-6, 1e9, 1e-10, 1e-7},
                                  .across = {1e-6, 1e9, 1e-10, 1e-7},
                                  .chunk_bytes = 2048,
                                  .window_bytes = 8192,
                                  .eager_bytes = 16384};
    static const int members[MEMBERS_MAX] = {0, 1, 2};
    must(group_open(w->engine, &w->view, members, &w->group) == HEARTH_OK);
    for (int i = 0; i < w->size; i++) {
        w->fakes[i].conn.transport = &fake_transport;
        w->fakes[i].piece = SIZE_MAX;
        if (i != w->rank)
            must(engine_join(w->engine, i, &(struct conn *){&w->fakes[i].conn}, 1) == HEARTH_OK);
    }
    return !r->bad;
}

static void drain(struct world *w)
{
    struct completion *c;
    while ((c = engine_finished(w->engine))) {
        struct user_call *call = container_of(c, struct user_call, completion);
        must(call->live && c->ended);
        must(c->error.status == HEARTH_OK || (status_is_error(c->error.status) && c->error.text[0] != '\0'));
        call->live = false;
    }
}

static void world_close(struct world *w)
{
    atomic_store(&w->heap.fail_after, -1);
    engine_part(w->engine);
    drain(w);
    for (int i = 0; i < CALLS_MAX; i++)
        must(!w->calls[i].live);
    engine_close(w->engine);
    metrics_fini(&w->metrics);
    must(w->heap.blocks == 0);
    must(w->heap.bytes_peak < MEMORY_MAX);
}

/* ---- steps ---- */

static void do_call(struct world *w, struct reader *r)
{
    struct user_call *user = NULL;
    for (int i = 0; i < CALLS_MAX; i++)
        if (!w->calls[i].live)
            user = &w->calls[i];
    uint8_t kind = get_u8(r), flags = get_u8(r);
    size_t count = get_u16(r) % COUNT_MAX / (size_t)w->size;
    if (!user)
        return;
    size_t counts[MEMBERS_MAX] = {count, count / 2, count / 3};
    struct hearth_opts opts = {.size = sizeof opts, .timeout_ms = 1000, .weight = 1, .tag = flags >> 6};
    opts.flags = flags & 1 ? HEARTH_FLAG_RESTORE : 0;
    struct call call = {
        .kind = (enum plan_kind)(kind % PLAN_KIND_COUNT),
        .source = user->source,
        .target = flags & 2 ? user->source : user->target,
        .in_place = flags & 2,
        .count = kind % PLAN_KIND_COUNT == PLAN_BARRIER ? 0 : count,
        .dtype = flags & 4 ? HEARTH_F32 : HEARTH_BF16,
        .op = flags & 8 ? HEARTH_OP_AVG : HEARTH_OP_MAX,
        .root = (flags >> 4 & 3) % w->size,
        .opts = &opts,
    };
    if (call.kind == PLAN_SCAN || call.kind == PLAN_EXCLUSIVE_SCAN)
        call.op = HEARTH_OP_SUM;
    if (call.kind == PLAN_ALL_TO_ALL && (flags & 1)) {
        call.vector = true;
        call.in_counts = call.out_counts = counts;
    }
    if (call.kind == PLAN_REDUCE_SCATTER || call.kind == PLAN_ALL_GATHER || call.kind == PLAN_GATHER ||
        call.kind == PLAN_SCATTER)
        call.in_place = false, call.target = user->target;
    struct group *group = w->child && (flags & 32) ? w->child : w->group;
    struct error error = {0};
    if (group_start(group, &call, &user->completion, &error) != HEARTH_OK) {
        must(error.text[0] != '\0');
        return;
    }
    user->live = true;
    w->last = user;
    if (!user->completion.op)
        return;
    const struct op *op = user->completion.op;
    w->fingerprint = op->record.fingerprint;
    w->tag = op->tag;
    w->sequence = op->sequence;
}

/* What the peer should say: bytes to us, and the length of the frame that it is the turn of. */
static void expect(const struct world *w, int peer, struct frame *frame)
{
    const struct op *op = w->last && w->last->live ? w->last->completion.op : NULL;
    int32_t flow = op ? op->program->in_of[peer] : -1;
    if (flow < 0)
        return;
    const struct flow_table *table = &op->program->in[flow];
    const struct plan *plan = &op->program->plan;
    struct flow_cursor at = op->in[flow].floor;
    frame->total = table->bytes;
    for (uint32_t skip = frame->step % 70; skip > 0 && flow_more(table, &at); skip--)
        flow_next(plan, table, &at);
    if (!flow_more(table, &at))
        return;
    const struct move *move = flow_move(plan, table, &at);
    frame->lane = (uint32_t)flow_lane(plan, &at);
    frame->step = move->from_step;
    frame->length = (uint32_t)plan_recv_bytes(plan, flow_lane(plan, &at), move);
}

enum right {
    RIGHT_GROUP = 1,
    RIGHT_CALL = 2,
    RIGHT_FINGERPRINT = 4,
    RIGHT_PIECE = 8,
    RIGHT_SEQUENCE = 16,
    RIGHT_PAYLOAD = 32
};

/* Any status, also one that is no error or none at all. */
static uint32_t error_of(uint8_t *payload, uint32_t variety)
{
    static const int statuses[] = {
        HEARTH_ABORTED,
        HEARTH_PENDING,
        HEARTH_OK,
        HEARTH_INVALID,
        HEARTH_UNSUPPORTED,
        HEARTH_TIMEOUT,
        HEARTH_CANCELLED,
        HEARTH_MISMATCH,
        HEARTH_DIFFERS,
        HEARTH_POISONED,
        HEARTH_NO_MEMORY,
        HEARTH_LIMIT,
        HEARTH_PEER_LOST,
        HEARTH_PROTOCOL,
        HEARTH_VIEW_CHANGED,
        HEARTH_FORKED,
        HEARTH_CLOSED,
        HEARTH_GROUP_BROKEN,
        HEARTH_SYSTEM,
        1,
        -1,
        INT32_MIN,
    };
    struct error error = {.status = HEARTH_ABORTED,
                          .reason = (enum hearth_reason)(variety % 5),
                          .rank = (int)(variety % 4) - 1,
                          .origin = (int)(variety % 6) - 1,
                          .text = "because"};
    uint32_t len = (uint32_t)error_encode(&error, payload, FRAME_CONTROL_MAX);
    store_u32(payload, (uint32_t)statuses[variety / 4 % (sizeof statuses / sizeof *statuses)]);
    return len;
}

/* A payload that decodes (but for what error_of may say), for the kinds that have one. */
static uint32_t payload_of(const struct world *w, uint8_t kind, int peer, uint8_t *payload, uint32_t variety)
{
    struct hello_record hello = {1, 1, 0, (uint32_t)peer, (uint32_t)w->size, 1};
    struct call_record call = {.state = (uint8_t)(variety % 4), .root = RANK_NONE, .fingerprint = variety};
    if (variety & 64)
        call.fingerprint = w->fingerprint;
    if (call.state == CALL_UNKNOWN || call.state == CALL_PASSED)
        call = (struct call_record){.state = call.state, .root = 0};
    switch (kind) {
    case FRAME_HELLO:
        return (uint32_t)hello_encode(&hello, payload, FRAME_CONTROL_MAX);
    case FRAME_ANSWER:
        return (uint32_t)call_encode(&call, payload, FRAME_CONTROL_MAX);
    case FRAME_ABORT:
    case FRAME_VERDICT:
    case FRAME_BYE:
        return error_of(payload, variety);
    case FRAME_DISPUTE:
        return variety & 1 ? error_of(payload, variety) : 0;
    default:
        return 0;
    }
}

static void do_frame(struct world *w, struct reader *r, int peer)
{
    static uint8_t payload[1 << 13];
    struct fake *fake = &w->fakes[peer];
    uint8_t right = get_u8(r), kind = get_u8(r), variety = get_u8(r), header[FRAME_HEADER_LEN];
    /* The corpora know the kinds up to bye by this arithmetic. */
    struct frame frame = {.kind = kind == UINT8_MAX ? FRAME_LEAVE : (uint8_t)(1 + kind % FRAME_BYE),
                          .epoch = 1,
                          .weight = variety & 7};
    frame.flags = frame.kind == FRAME_DATA && (kind & 0x80) ? FRAME_EAGER : 0;
    frame.lane = get_u8(r);
    frame.step = get_u8(r);
    frame.total = frame.length = get_u16(r) % (frame.kind == FRAME_DATA ? 4096 : FRAME_CONTROL_MAX);
    frame.credit = get_u16(r);
    frame.group = right & RIGHT_GROUP ? 7 : variety & 1 && w->child ? 8 : variety;
    frame.tag = right & RIGHT_CALL ? w->tag : variety & 3;
    frame.sequence = right & RIGHT_CALL ? w->sequence + (variety & 0x80 ? variety & 3 : 0) : variety & 15;
    frame.fingerprint = right & RIGHT_FINGERPRINT ? w->fingerprint : variety;
    if (right & RIGHT_PIECE)
        expect(w, peer, &frame);
    if (frame.kind == FRAME_GRANT && (right & RIGHT_PIECE)) {
        const struct op *op = w->last && w->last->live ? w->last->completion.op : NULL;
        int32_t flow = op ? op->program->out_of[peer] : -1;
        frame.total = flow >= 0 ? op->program->out[flow].bytes : 0;
    }
    memset(payload, variety, sizeof payload);
    if (frame.kind != FRAME_DATA && (right & RIGHT_PAYLOAD))
        frame.length = payload_of(w, frame.kind, peer, payload, variety);
    else if (frame.kind != FRAME_DATA)
        frame.length %= FRAME_CONTROL_MAX + 1;
    fake->sequence += right & RIGHT_SEQUENCE ? 1 : variety;
    frame.link_sequence = fake->sequence;
    if (frame.length > sizeof payload)
        return;
    frame_encode(&frame, header);
    fake_put(fake, header, sizeof header);
    fake_put(fake, payload, frame.length);
}

static void do_group(struct world *w, uint8_t what)
{
    struct group_view view = w->view;
    static const int members[MEMBERS_MAX] = {0, 1, 2};
    if (what & 1 && !w->child) {
        view.group = 8;
        if (group_open(w->engine, &view, members, &w->child) != HEARTH_OK)
            w->child = NULL;
    } else if (w->child) {
        group_close(w->child);
        w->child = NULL;
    }
}

static void do_step(struct world *w, struct reader *r)
{
    uint8_t what = get_u8(r), more;
    int peer = (w->rank + 1 + (what >> 4) % (w->size - 1)) % w->size;
    switch (what & 15) {
    case 0:
        do_call(w, r);
        break;
    case 1:
        more = get_u8(r);
        if (w->calls[more % CALLS_MAX].live)
            completion_cancel(&w->calls[more % CALLS_MAX].completion);
        break;
    case 2:
        w->now_ns += (uint64_t)get_u8(r) * 5 * NS_PER_MS;
        break;
    case 3:
        atomic_store(&w->heap.fail_after, (int64_t)get_u8(r) - 1);
        break;
    case 4:
        do_group(w, get_u8(r));
        break;
    case 5:
        more = get_u8(r);
        w->fakes[peer].full = more & 1;
        w->fakes[peer].piece = more & 2 ? (more >> 2) + 1u : SIZE_MAX;
        break;
    case 6:
        more = get_u8(r);
        more = reader_left(r) < more ? (uint8_t)reader_left(r) : more;
        fake_put(&w->fakes[peer], r->at, more);
        r->at += more;
        break;
    case 7:
        w->fakes[peer].gone = get_u8(r) == 0;
        break;
    default:
        do_frame(w, r, peer);
    }
    for (int i = 0; i < 10000 && engine_progress(w->engine); i++)
        drain(w);
    drain(w);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    struct world *w = calloc(1, sizeof *w);
    struct reader r = reader_of(bytes, len);
    must(w);
    if (world_open(w, &r)) {
        for (int i = 0; i < STEPS_MAX && reader_left(&r) > 0; i++)
            do_step(w, &r);
    }
    /* Whatever was said: time ends it. */
    w->now_ns += 3600 * NS_PER_S;
    for (int i = 0; i < 10000 && engine_progress(w->engine); i++)
        drain(w);
    drain(w);
    must(list_empty(&w->engine->active));
    world_close(w);
    free(w);
    return 0;
}
