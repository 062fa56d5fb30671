/* SPDX-License-Identifier: Apache-2.0 */
/* Staged operations, and collectives as such. */
#include "node/staging.h"

/* Two jobs, one after the other: in and out. Of the first job and the stand-in the one that ends last submits
 * the second. */
struct staging {
    hearth_node *node;
    struct copier *copier;
    hearth_request *request, *stand_in;
    staging_offer_fn *offer;
    const char *name;
    int rank, size; /* in the group */
    struct copy_range *in, *out;
    size_t in_count, out_count;
    struct copy_job job;
    struct mutex lock;  /* of what follows */
    bool copying;       /* the first job has not ended */
    bool ended;         /* the stand-in has */
    bool good;          /* and it has a result */
    bool failed;        /* the first job has: the stand-in is given up */
    struct error error; /* of the first job */
};

static void staging_free(struct staging *s)
{
    mutex_fini(&s->lock);
    copier_give(s->copier, s);
}

/* ---- the end ---- */

/* The second job has ended: nobody else knows the staging any more. */
static void out_done(struct copy_job *job, const struct error *error)
{
    struct staging *s = container_of(job, struct staging, job);
    hearth_request *request = s->request;
    struct error why = s->error;
    node_settling(request); /* from here on nobody cancels the stand-in */
    if (!s->failed && node_finish(s->stand_in, &why) == HEARTH_OK && error->status != HEARTH_OK)
        error_set(&why, error->status, s->rank,
                  "%s on rank %d of %d: it has succeeded, but its result is not on the device: %s", s->name,
                  s->rank, s->size, error->text);
    staging_free(s); /* before anybody hears: it may be called again at once */
    node_settle(request, &why);
}

static void out_submit(struct staging *s, bool good)
{
    s->job.out = true;
    s->job.ranges = s->out;
    s->job.count = good ? s->out_count : 0;
    s->job.moved = NULL;
    s->job.done = out_done;
    atomic_store(&s->job.stop, false);
    copier_submit(s->copier, &s->job);
}

void staging_ended(void *arg, int status)
{
    struct staging *s = arg;
    mutex_lock(&s->lock);
    bool copying = s->copying, failed = s->failed;
    s->ended = true;
    s->good = status == HEARTH_OK;
    if (copying)
        atomic_store(&s->job.stop, true);
    mutex_unlock(&s->lock);
    if (!copying && !failed)
        out_submit(s, s->good);
}

/* ---- input ---- */

static void in_moved(struct copy_job *job, size_t len)
{
    struct staging *s = container_of(job, struct staging, job);
    s->offer(s->stand_in, len);
}

/* The input did not come: the others hear why. */
static void give_up(struct staging *s, const struct error *error)
{
    struct error theirs;
    error_set(&s->error, error->status, s->rank, "%s on rank %d of %d: %s", s->name, s->rank, s->size,
              error->text);
    error_set(&theirs, HEARTH_ABORTED, s->rank, "%s: rank %d of %d could not read its input: %s", s->name,
              s->rank, s->size, error->text);
    node_abandon(s->stand_in, &theirs);
    out_submit(s, false);
}

static void in_done(struct copy_job *job, const struct error *error)
{
    struct staging *s = container_of(job, struct staging, job);
    if (error->status == HEARTH_OK)
        s->offer(s->stand_in, SIZE_MAX); /* it may end in this call */
    mutex_lock(&s->lock);
    s->copying = false;
    s->failed = error->status != HEARTH_OK && !s->ended;
    bool ended = s->ended;
    mutex_unlock(&s->lock);
    if (ended)
        out_submit(s, s->good);
    else if (s->failed)
        give_up(s, error);
}

/* ---- the beginning ---- */

void staging_in(struct staging *s, const void *device, void *host, size_t len)
{
    s->in[s->in_count++] = (struct copy_range){.device = (void *)(uintptr_t)device, .host = host, .len = len};
}

void staging_out(struct staging *s, void *device, const void *host, size_t len)
{
    s->out[s->out_count++] =
        (struct copy_range){.device = device, .host = (void *)(uintptr_t)host, .len = len};
}

/* One block: the staging, its ranges, the host memory. */
static struct staging *block_cut(const struct staging_setup *setup, struct copier *copier, void **host)
{
    size_t head =
        align_up(sizeof(struct staging) + 2 * setup->ranges * sizeof(struct copy_range), HEAP_ALIGN);
    struct staging *s = setup->len <= SIZE_MAX / 2 ? copier_take(copier, head + setup->len) : NULL;
    if (!s)
        return NULL;
    *s = (struct staging){.copier = copier, .node = setup->group->node, .in = (struct copy_range *)(s + 1)};
    s->out = s->in + setup->ranges;
    *host = (uint8_t *)s + head;
    if (mutex_init(&s->lock) == HEARTH_OK)
        return s;
    copier_give(copier, s);
    return NULL;
}

static void stand_in_cancel(void *arg)
{
    struct staging *s = arg;
    node_cancel_part(s->stand_in);
}

int staging_open(const struct staging_setup *setup, struct staging **out, void **host, struct error *error)
{
    hearth_node *node = setup->group->node;
    struct copier *copier = copier_of(node);
    struct staging *s = copier ? block_cut(setup, copier, host) : NULL;
    int status = HEARTH_NO_MEMORY;
    if (s) {
        struct node_task task = {
            .cancel = stand_in_cancel, .arg = s, .done = setup->done, .done_arg = setup->done_arg};
        status = node_request(node, &task, &s->request);
    }
    if (status != HEARTH_OK) {
        error_set(error, status, RANK_NONE,
                  status == HEARTH_NO_MEMORY ? "%s: no host memory for %zu bytes of device buffers"
                                             : "%s of %zu bytes of device memory: the node is closing",
                  setup->name, setup->len);
        if (s)
            staging_free(s);
        if (status == HEARTH_NO_MEMORY)
            node_refuse(setup->group, setup->tag, error);
        return status;
    }
    s->offer = setup->offer;
    s->name = setup->name;
    s->rank = group_rank(setup->group->group);
    s->size = group_size(setup->group->group);
    s->copying = true; /* so that a stand-in that ends while it is started waits for staging_go */
    s->job.memory = *setup->memory;
    error_clear(&s->error);
    *out = s;
    return HEARTH_OK;
}

void staging_go(struct staging *s, hearth_request *stand_in, hearth_request **request)
{
    *request = s->request;
    s->stand_in = stand_in;
    s->job.ranges = s->in;
    s->job.count = s->in_count;
    s->job.moved = in_moved;
    s->job.done = in_done;
    copier_submit(s->copier, &s->job);
}

void staging_drop(struct staging *s)
{
    node_drop_request(s->request);
    staging_free(s);
}

/* ---- collectives ---- */

/* Where the buffers of a collective are staged. In place one of them contains the other. */
struct staged_layout {
    size_t len;
    size_t source, target; /* offsets */
    bool in_place;
};

static struct staged_layout layout_of(const struct call *call, const struct call_region *source,
                                      const struct call_region *target)
{
    struct staged_layout l = {.in_place = call->in_place && source->len > 0 && target->len > 0};
    if (call->kind == PLAN_ALL_TO_ALL)
        l.in_place = false; /* the engine would copy the input aside before it has come */
    if (!l.in_place) {
        l.target = align_up(source->len, HEAP_ALIGN);
        l.len = l.target + target->len;
    } else if (source->len >= target->len) {
        l.target = (size_t)(target->at - source->at);
        l.len = source->len;
    } else {
        l.source = (size_t)(source->at - target->at);
        l.len = target->len;
    }
    return l;
}

/* The stand-in of a collective on host memory. The device's memory is written in the end only: nothing is to
 * be restored. */
static int stand_in_start(hearth_group *group, struct call *call, struct staging *s, hearth_request **request)
{
    struct hearth_opts opts = *call->opts;
    hearth_request *stand_in;
    opts.done = staging_ended;
    opts.done_arg = s;
    opts.flags &= ~(uint32_t)HEARTH_FLAG_RESTORE;
    call->opts = &opts;
    call->held = s->in_count > 0;
    int status = node_start(group, call, CALLER_GOES, &stand_in, error_last());
    if (status == HEARTH_OK)
        staging_go(s, stand_in, request);
    else
        staging_drop(s);
    return status;
}

static struct staging_setup setup_of(hearth_group *group, const struct call *call,
                                     const struct hearth_memory *memory)
{
    return (struct staging_setup){
        .group = group,
        .memory = memory,
        .name = plan_kind_name(call->kind),
        .tag = call->opts->tag,
        .ranges = 1,
        .done = call->opts->done,
        .done_arg = call->opts->done_arg,
        .offer = node_offer,
    };
}

int staging_start(hearth_group *group, const struct call *call, const struct hearth_memory *memory,
                  const struct call_region *source, const struct call_region *target,
                  hearth_request **request)
{
    struct staged_layout layout = layout_of(call, source, target);
    struct call stand_in = *call;
    struct staging_setup setup = setup_of(group, call, memory);
    bool broadcast = call->kind == PLAN_BROADCAST, root = call->root == group_rank(group->group);
    size_t in_len = broadcast && !root ? 0 : source->len, out_len = broadcast && root ? 0 : target->len;
    struct staging *s;
    void *host;
    setup.len = layout.len;
    int status = staging_open(&setup, &s, &host, error_last());
    if (status != HEARTH_OK)
        return status;
    stand_in.source = (uint8_t *)host + layout.source;
    stand_in.target = (uint8_t *)host + layout.target;
    stand_in.in_place = layout.in_place;
    if (in_len > 0)
        staging_in(s, source->at, (uint8_t *)host + layout.source, in_len);
    if (out_len > 0)
        staging_out(s, (void *)(uintptr_t)target->at, stand_in.target, out_len);
    return stand_in_start(group, &stand_in, s, request);
}

int staging_start_ranges(hearth_group *group, const struct call *call, const struct staged_ranges *staged,
                         hearth_request **request)
{
    struct call stand_in = *call;
    struct staging_setup setup = setup_of(group, call, staged->memory);
    struct staging *s;
    void *none;
    setup.ranges = staged->count;
    int status = staging_open(&setup, &s, &none, error_last());
    if (status != HEARTH_OK)
        return status;
    for (size_t i = 0; i < staged->count; i++) {
        const struct copy_range *range = &staged->ranges[i];
        staging_in(s, range->device, range->host, range->len);
        if (staged->out)
            staging_out(s, range->device, range->host, range->len);
    }
    return stand_in_start(group, &stand_in, s, request);
}
