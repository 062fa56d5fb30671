/* SPDX-License-Identifier: Apache-2.0 */
/* An imagined cluster for `plan` and `sim`: from flags to a view, to the plans of all ranks and a dry run. */
#include "cli/plan/plan_setup.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/shared/text.h"

#define MESSAGES_MAX 200000000
#define PLANS_SHARE  0.1 /* of the progress; the rest is the dry run */

const char *plan_setup_kind(int index)
{
    return index < PLAN_KIND_COUNT ? plan_kind_name((enum plan_kind)index) : NULL;
}

const char *plan_setup_dtype(int index)
{
    return index < DTYPE_COUNT ? hearth_dtype_name((enum hearth_dtype)index) : NULL;
}

const char *plan_setup_algo(int index)
{
    return index < ALGO_COUNT ? hearth_algo_name((enum hearth_algo)index) : NULL;
}

/* ---- from flags ---- */

void plan_setup_init(struct plan_setup *setup)
{
    struct hearth_tuning tuning;
    hearth_tuning_init(&tuning);
    *setup = (struct plan_setup){.ranks = 8, .bytes = 1 << 20, .rate = 1e9 / 8, .rtt_s = 200e-6};
    setup->inside_rate = 40e9 / 8;
    setup->inside_rtt_s = 2e-6;
    setup->chunk_bytes = tuning.chunk_bytes;
    setup->window_bytes = tuning.window_bytes;
    setup->memory_max = (size_t)4 << 30;
    setup->messages_max = MESSAGES_MAX;
}

void plan_setup_args(struct plan_setup *s, struct arg *args)
{
    const struct arg all[PLAN_SETUP_ARGS] = {
        {"kind", ARG_CHOICE, &s->kind, .about = "collective (default all_reduce)", .choice = plan_setup_kind},
        {"ranks", ARG_INT, &s->ranks, .about = "members (default 8)", .min = 1, .max = PLAN_SETUP_RANKS_MAX},
        {"bytes", ARG_SIZE, &s->bytes, .given = &s->bytes_given,
         .about = "the whole buffer; where each rank has a part, all parts together (default 1M)", .min = 1},
        {"dtype", ARG_CHOICE, &s->dtype, .about = "type of the elements (default f32)",
         .choice = plan_setup_dtype},
        {"root", ARG_INT, &s->root, .about = "of broadcast, reduce, gather, scatter (default 0)",
         .max = PLAN_SETUP_RANKS_MAX},
        {"hosts", ARG_INTS, &s->hosts,
         .about = "ranks on each host, repeated as needed: 4,4 (default: all on one)"},
        {"rate", ARG_RATE, &s->rate, .about = "of a member's port, each way (default 1gbit)"},
        {"rtt", ARG_DURATION, &s->rtt_s,
         .about = "there and back; a message takes half of it (default 200us)"},
        {"inside-rate", ARG_RATE, &s->inside_rate, .about = "with --hosts: within a host (default 40gbit)"},
        {"inside-rtt", ARG_DURATION, &s->inside_rtt_s, .about = "with --hosts: within a host (default 2us)"},
        {"combine", ARG_RATE, &s->combine_rate, .about = "how fast a member adds (default: in no time)"},
        {"overhead", ARG_DURATION, &s->overhead_s, .about = "a member's own work per message (default 0)"},
        {"chunk", ARG_SIZE, &s->chunk_bytes, .about = "largest payload of a frame (default 256K)", .min = 1},
        {"window", ARG_SIZE, &s->window_bytes,
         .about = "memory of an operation's lanes in flight (default 4M)", .min = 1},
        {"slots", ARG_INT, &s->slots, .word = "auto", .min = 1, .max = 1 << 20,
         .about = "frames that may wait at a receiver, per sender (default auto: window / chunk)"},
        {"memory-max", ARG_SIZE, &s->memory_max, .about = "what needs more is left out (default 4G)",
         .min = 1},
        {"messages-max", ARG_INT, &s->messages_max,
         .about = "what needs more is left out (default 200000000)", .min = 1, .max = INT32_MAX},
    };
    memcpy(args, all, sizeof all);
}

static int place_on_hosts(struct plan_setup *s, const struct usage *usage)
{
    if (s->hosts.count == 0)
        return ARGS_GO;
    s->host = calloc((size_t)s->ranks, sizeof *s->host);
    if (!s->host)
        return args_refuse(usage, "no memory for %d ranks", s->ranks);
    size_t rank = 0, host = 0, ranks = (size_t)s->ranks;
    for (; rank < ranks; host++) {
        size_t here = s->hosts.item[host % s->hosts.count];
        if (here > ranks - rank)
            return args_refuse(usage, "--hosts does not fit --ranks %d: host %zu would hold ranks %zu to %zu",
                               s->ranks, host, rank, rank + here - 1);
        for (size_t i = 0; i < here; i++)
            s->host[rank++] = (int)host;
    }
    if (host < s->hosts.count)
        return args_refuse(usage, "--hosts names %zu hosts, but --ranks %d fill only %zu of them",
                           s->hosts.count, s->ranks, host);
    return ARGS_GO;
}

static bool is_parted(enum plan_kind kind)
{
    return kind == PLAN_REDUCE_SCATTER || kind == PLAN_ALL_GATHER || kind == PLAN_GATHER ||
           kind == PLAN_SCATTER || kind == PLAN_ALL_TO_ALL;
}

static bool is_rooted(enum plan_kind kind)
{
    return kind == PLAN_BROADCAST || kind == PLAN_REDUCE || kind == PLAN_GATHER || kind == PLAN_SCATTER;
}

/* Elements as the call counts them; parts are rounded up, so that none is empty. */
static size_t count_of(const struct plan_setup *s, size_t element_len)
{
    size_t count = s->bytes / element_len, ranks = (size_t)s->ranks;
    if (s->kind == PLAN_BARRIER)
        return 0;
    return is_parted((enum plan_kind)s->kind) ? (count + ranks - 1) / ranks : count;
}

int plan_setup_build(struct plan_setup *s, const struct usage *usage)
{
    enum hearth_dtype dtype = (enum hearth_dtype)s->dtype;
    size_t element_len = hearth_dtype_size(dtype);
    double gamma_s = s->combine_rate > 0 ? 1 / s->combine_rate : 0;
    if (s->root >= s->ranks)
        return args_refuse(usage, "--root %d is not a rank; with --ranks %d they go from 0 to %d", s->root,
                           s->ranks, s->ranks - 1);
    if (s->bytes % element_len)
        return args_refuse(usage, "--bytes %zu is not a whole number of %s elements of %zu bytes", s->bytes,
                           hearth_dtype_name(dtype), element_len);
    int code = place_on_hosts(s, usage);
    if (code != ARGS_GO)
        return code;
    s->view = (struct group_view){.size = s->ranks, .host = s->host, .algo = HEARTH_ALGO_AUTO};
    s->view.across = (struct link_cost){s->rtt_s / 2, s->rate, gamma_s, s->overhead_s};
    s->view.inside = s->view.across;
    if (s->host)
        s->view.inside = (struct link_cost){s->inside_rtt_s / 2, s->inside_rate, gamma_s, s->overhead_s};
    s->view.chunk_bytes = s->chunk_bytes;
    s->view.window_bytes = s->window_bytes;
    if (s->slots == 0)
        s->slots = s->window_bytes > s->chunk_bytes ? (int)(s->window_bytes / s->chunk_bytes) : 1;
    s->call = (struct plan_call){.kind = (enum plan_kind)s->kind, .size = s->ranks, .host = s->host};
    s->call.root = is_rooted(s->call.kind) ? s->root : 0;
    s->call.count = count_of(s, element_len);
    s->call.raw_len = (uint32_t)element_len;
    s->call.acc_len = dtype == HEARTH_F16 || dtype == HEARTH_BF16 ? 4 : (uint32_t)element_len;
    s->call.chunk_bytes = s->chunk_bytes;
    s->call.window_bytes = s->window_bytes;
    return ARGS_GO;
}

void plan_setup_fini(struct plan_setup *setup)
{
    free(setup->host);
    setup->host = NULL;
}

/* ---- numbers ---- */

struct plan_call plan_setup_call(const struct plan_setup *setup, enum hearth_algo algo, int rank)
{
    struct plan_call call = setup->call;
    call.algo = algo;
    call.rank = rank;
    return call;
}

int plan_setup_choose(const struct plan_setup *setup, const struct usage *usage, enum hearth_algo algo,
                      enum hearth_algo *chosen)
{
    struct plan_call call = plan_setup_call(setup, algo, 0);
    struct error error;
    return select_algo(&call, &setup->view, chosen, &error) ? args_refuse(usage, "%s", error.text) : ARGS_GO;
}

double plan_setup_price(const struct plan_setup *setup, enum hearth_algo algo)
{
    struct plan_call call = plan_setup_call(setup, algo, 0);
    return select_price(&call, algo, &setup->view);
}

size_t plan_setup_bytes(const struct plan_setup *s)
{
    size_t parts = is_parted(s->call.kind) ? (size_t)s->ranks : 1;
    return s->call.count * s->call.raw_len * parts;
}

double plan_setup_bound(const struct plan_setup *s)
{
    double n = s->ranks, whole = (double)plan_setup_bytes(s) / s->rate, others = whole * (n - 1) / n;
    if (s->ranks == 1 || s->host)
        return 0;
    if (s->call.kind == PLAN_BARRIER)
        return 0;
    if (s->call.kind == PLAN_ALL_REDUCE)
        return 2 * others;
    return is_parted(s->call.kind) ? others : whole;
}

void plan_setup_line(const struct plan_setup *s, char *text, size_t size)
{
    char hosts[48] = "", buffer[64] = "";
    if (s->host)
        snprintf(hosts, sizeof hosts, " on %d hosts", s->host[s->ranks - 1] + 1);
    if (s->call.kind != PLAN_BARRIER)
        snprintf(buffer, sizeof buffer, " of %s of %s", text_bytes((double)plan_setup_bytes(s)).s,
                 hearth_dtype_name((enum hearth_dtype)s->dtype));
    snprintf(text, size, "%s%s, %s rank%s%s, %s, rtt %s", plan_kind_name(s->call.kind), buffer,
             text_count((uint64_t)s->ranks).s, s->ranks == 1 ? "" : "s", hosts, text_rate(s->rate).s,
             text_time(s->rtt_s).s);
}

uint64_t plan_messages(const struct plan *plan)
{
    uint64_t count = 0;
    for (uint32_t m = 0; m < plan->move_count; m++)
        count += (plan->moves[m].bits & MOVE_SEND) != 0;
    return count * plan->lanes;
}

uint64_t plan_sent(const struct plan *plan)
{
    uint64_t sum = 0;
    for (uint32_t m = 0; m < plan->move_count; m++) {
        if (!(plan->moves[m].bits & MOVE_SEND))
            continue;
        for (uint64_t lane = 0; lane < plan->lanes; lane++)
            sum += plan_send_bytes(plan, lane, &plan->moves[m]);
    }
    return sum;
}

/* ---- dry runs ---- */

int plan_setup_write(const struct plan_setup *setup, const struct plan_range *range, struct heap *heap,
                     struct plan **plans, struct error *error)
{
    struct plan *list = heap_alloc(heap, (size_t)range->count, sizeof *list);
    int status = HEARTH_OK, written = 0;
    if (!list)
        return error_set(error, HEARTH_NO_MEMORY, RANK_NONE, "no memory for the plans");
    while (written < range->count && !status) {
        struct plan_call call = plan_setup_call(setup, range->algo, range->first + written);
        status = plan_write(&call, heap, &list[written], error);
        written += !status;
        if (range->progress)
            progress_show(range->progress, PLANS_SHARE * written / range->count);
    }
    if (status)
        plan_setup_free(list, written);
    else
        *plans = list;
    return status;
}

void plan_setup_free(struct plan *plans, int count)
{
    for (int i = 0; i < count; i++)
        plan_fini(&plans[i]);
    heap_free(plans);
}

/* Looks at a few ranks to see whether all of them would be too much: the root, one after it, one in the
 * middle, the last. Ranks other than the root differ little. */
static int foresee(const struct plan_setup *s, enum hearth_algo algo, struct heap *heap, struct error *error)
{
    int samples[] = {s->call.root, (s->call.root + 1) % s->ranks, s->ranks / 2, s->ranks - 1};
    double messages = 0, len = 0;
    for (int i = 0; i < 4; i++) {
        double weight = i ? (s->ranks - 1) / 3.0 : 1;
        struct plan *plan;
        int status = plan_setup_write(s, &(struct plan_range){algo, samples[i], 1, NULL}, heap, &plan, error);
        if (status)
            return status;
        messages += weight * fmax((double)plan_messages(plan), (double)plan->lanes);
        len += weight * (double)plan->move_count * sizeof(struct move);
        plan_setup_free(plan, 1);
    }
    if (messages > s->messages_max)
        return error_set(error, HEARTH_LIMIT, RANK_NONE, "about %s messages, more than %s (--messages-max)",
                         text_count((uint64_t)messages).s, text_count((uint64_t)s->messages_max).s);
    if (len > (double)s->memory_max)
        return error_set(error, HEARTH_LIMIT, RANK_NONE, "plans of about %s, more than %s (--memory-max)",
                         text_bytes(len).s, text_bytes((double)s->memory_max).s);
    return HEARTH_OK;
}

static bool run_progress(void *arg, double share)
{
    if (arg)
        progress_show(arg, PLANS_SHARE + share * (1 - PLANS_SHARE));
    return true;
}

static int rehearse(const struct plan_setup *s, enum hearth_algo algo, struct heap *heap,
                    struct progress *progress, struct dry_result *result, struct error *error)
{
    const struct dry_net net = {.inside = s->view.inside,
                                .across = s->view.across,
                                .host = s->host,
                                .slots = (uint32_t)s->slots,
                                .progress = run_progress,
                                .progress_arg = progress};
    struct plan *plans;
    int status = foresee(s, algo, heap, error);
    if (!status)
        status = plan_setup_write(s, &(struct plan_range){algo, 0, s->ranks, progress}, heap, &plans, error);
    if (status)
        return status;
    status = dryrun(plans, s->ranks, &net, heap, result, error);
    plan_setup_free(plans, s->ranks);
    return status;
}

void plan_setup_rehearse(const struct plan_setup *setup, enum hearth_algo algo, const char *label,
                         struct rehearsal *out)
{
    struct progress progress;
    struct heap heap;
    struct error error;
    assert(algo != HEARTH_ALGO_AUTO);
    *out = (struct rehearsal){.price_s = plan_setup_price(setup, algo)};
    heap_init(&heap, setup->memory_max);
    error_clear(&error);
    progress_start(&progress, "%s", label ? label : "");
    int status = rehearse(setup, algo, &heap, label ? &progress : NULL, &out->result, &error);
    if (label)
        progress_hide(&progress);
    out->done = status == HEARTH_OK;
    out->failed =
        status && status != HEARTH_LIMIT && status != HEARTH_NO_MEMORY && status != HEARTH_UNSUPPORTED;
    if (status == HEARTH_NO_MEMORY)
        snprintf(out->why, sizeof out->why, "more than %s of memory (--memory-max)",
                 text_bytes((double)setup->memory_max).s);
    else
        snprintf(out->why, sizeof out->why, "%s", error.text);
}
