/* SPDX-License-Identifier: Apache-2.0 */
/* The worker, the memory and the threads of compressed all-reduces. */
#include "gradient/codec_pool.h"

#include <string.h>

/* Memory between calls, so that the next step does not have to be given it anew, page by page: for all the
 * tensors of a model that may be on their way at once, but within bounds. Calls of many lengths would fill
 * any bound, each with blocks that fit no other: so all blocks together are at most twice what was out at
 * once, lately. */
#define BLOCKS_KEPT 512
#define BYTES_KEPT  (256u << 20)
#define SMALL_LEN   (64u << 10)
#define SPARE       2u         /* times what was out at once */
#define NEAR_LEN    (1u << 20) /* of a tensor */
#define FORGET      1024u      /* a part of that is forgotten whenever all blocks are back: in some steps */

struct codec_pool {
    struct node_worker worker; /* first: the node knows it by this */
    struct attachment attachment;
    hearth_node *node;
    struct workers *workers;
    struct kernels near; /* kernels_best, with plain copies */
    struct mutex lock;   /* of what follows */
    struct list queue;   /* reductions that are the worker's */
    void *block[BLOCKS_KEPT];
    int block_count;
    size_t block_bytes; /* of those that are kept */
    size_t out_bytes;   /* of those that are in use */
    size_t most_bytes;  /* in use at once since all were back */
    size_t usual_bytes; /* the same before that; falls slowly */
    bool worker_runs, stopping;
    struct thread codec_worker;
    struct bell bell;
};

/* In front of each block. */
struct block_head {
    struct list item; /* in the list of who uses it */
    size_t len;
    uint8_t pad[HEAP_ALIGN - sizeof(struct list) - sizeof(size_t)];
};

/* ---- memory ---- */

static struct block_head *head_of(void *block)
{
    return (struct block_head *)(void *)((uint8_t *)block - sizeof(struct block_head));
}

/* The smallest kept block that is long enough, and not much too long. */
static int block_find(const struct codec_pool *w, size_t len)
{
    int best = -1;
    for (int i = 0; i < w->block_count; i++) {
        size_t have = head_of(w->block[i])->len;
        if (have >= len && have / 2 <= len + SMALL_LEN && (best < 0 || have < head_of(w->block[best])->len))
            best = i;
    }
    return best;
}

/* Out of those that are kept. The order stays: the first lies there longest. */
static void *block_remove(struct codec_pool *w, int at)
{
    void *block = w->block[at];
    w->block_count--;
    memmove(&w->block[at], &w->block[at + 1], (size_t)(w->block_count - at) * sizeof w->block[0]);
    w->block_bytes -= head_of(block)->len;
    return block;
}

static void blocks_drop(struct codec_pool *w)
{
    while (w->block_count > 0)
        heap_free(head_of(block_remove(w, w->block_count - 1)));
}

static void *block_make(struct codec_pool *w, size_t len)
{
    if (len > SIZE_MAX - sizeof(struct block_head))
        return NULL;
    struct block_head *head = heap_alloc_raw(w->node->heap, 1, sizeof *head + len);
    if (!head)
        return NULL;
    head->len = len;
    return head + 1;
}

void *codec_pool_take(struct codec_pool *w, size_t len)
{
    mutex_lock(&w->lock);
    void *block = NULL;
    int at = block_find(w, len);
    if (at >= 0) {
        block = block_remove(w, at);
    } else {
        block = block_make(w, len);
        if (!block) { /* what is kept for later is of no use now */
            blocks_drop(w);
            block = block_make(w, len);
        }
    }
    if (block) {
        list_init(&head_of(block)->item);
        w->out_bytes += head_of(block)->len;
    }
    if (w->out_bytes > w->most_bytes)
        w->most_bytes = w->out_bytes;
    mutex_unlock(&w->lock);
    return block;
}

/* How much may be kept now. */
static size_t bytes_allowed(struct codec_pool *w)
{
    if (w->out_bytes == 0) {
        size_t less = w->usual_bytes - w->usual_bytes / FORGET;
        w->usual_bytes = w->most_bytes > less ? w->most_bytes : less;
        w->most_bytes = 0;
    }
    size_t most = w->most_bytes > w->usual_bytes ? w->most_bytes : w->usual_bytes;
    size_t kept = most * SPARE - w->out_bytes;
    return kept < BYTES_KEPT ? kept : BYTES_KEPT;
}

void codec_pool_give(struct codec_pool *w, void *block)
{
    if (!block)
        return;
    list_remove(&head_of(block)->item);
    mutex_lock(&w->lock);
    w->out_bytes -= head_of(block)->len;
    w->block_bytes += head_of(block)->len;
    if (w->block_count == BLOCKS_KEPT)
        heap_free(head_of(block_remove(w, 0)));
    w->block[w->block_count++] = block;
    for (size_t allowed = bytes_allowed(w); w->block_bytes > allowed;)
        heap_free(head_of(block_remove(w, 0)));
    mutex_unlock(&w->lock);
}

void codec_pool_list(struct list *blocks, void *block)
{
    list_push(blocks, &head_of(block)->item);
}

void codec_pool_give_all(struct codec_pool *w, struct list *blocks)
{
    while (!list_empty(blocks))
        codec_pool_give(w, container_of(blocks->next, struct block_head, item) + 1);
}

/* ---- the worker ---- */

void codec_pool_ring(struct codec_pool *w)
{
    bell_ring_all(&w->bell);
}

const struct kernels *codec_pool_kernels(const struct codec_pool *w, size_t len)
{
    return len <= NEAR_LEN ? &w->near : kernels_best();
}

struct workers *codec_pool_workers(struct codec_pool *w)
{
    return w->workers;
}

/* Steps each of the worker's reductions once. True: something moved. Without the lock while stepping: only
 * the worker takes reductions out of the queue. */
static bool codec_worker_round(struct codec_pool *w)
{
    bool moved = false;
    mutex_lock(&w->lock);
    struct list *item = w->queue.next;
    while (item != &w->queue) {
        struct reduction *r = container_of(item, struct reduction, item);
        mutex_unlock(&w->lock);
        enum step step = reduction_step(r, node_now(w->node));
        mutex_lock(&w->lock);
        item = item->next;
        moved = moved || step != STEP_WAIT;
        if (step != STEP_DONE && step != STEP_FAILED)
            continue;
        list_remove(&r->item);
        mutex_unlock(&w->lock);
        reduction_settle(r);
        mutex_lock(&w->lock);
        item = w->queue.next; /* others may have come and gone */
    }
    mutex_unlock(&w->lock);
    return moved;
}

static bool codec_worker_may_go(struct codec_pool *w)
{
    mutex_lock(&w->lock);
    bool go = w->stopping && list_empty(&w->queue);
    mutex_unlock(&w->lock);
    return go;
}

static void codec_worker_run(void *arg)
{
    struct codec_pool *w = arg;
    while (!codec_worker_may_go(w)) {
        uint32_t heard = bell_heard(&w->bell);
        if (!codec_worker_round(w) && !codec_worker_may_go(w))
            bell_wait(&w->bell, BELL_CALLER, heard, 0, NEVER_NS);
    }
}

int codec_pool_submit(struct codec_pool *w, struct reduction *r)
{
    int status = HEARTH_OK;
    mutex_lock(&w->lock);
    if (w->stopping) {
        status = HEARTH_CLOSED;
    } else if (!w->worker_runs && w->node->progress_runs) {
        status = thread_start(&w->codec_worker, "hearth-codec", codec_worker_run, w);
        w->worker_runs = status == HEARTH_OK;
    }
    if (status == HEARTH_OK)
        list_push(&w->queue, &r->item);
    mutex_unlock(&w->lock);
    codec_pool_ring(w);
    return status;
}

void codec_pool_drive(struct codec_pool *w, struct reduction *r, uint32_t *driven)
{
    for (;;) {
        uint32_t heard = bell_heard(&w->bell);
        enum step step = reduction_step(r, node_now(w->node));
        if (step == STEP_DONE || step == STEP_FAILED)
            return;
        if (step == STEP_MORE)
            continue;
        /* It has its own deadline; but the opening may find that it will never end. */
        const _Atomic(bool) *also = r->opened ? NULL : &r->opening_sub.done;
        bool drives = r->awaits && r->awaits->request;
        if (drives && r->stays) {
            node_wait_here(r->awaits->request, NEVER_NS, also, driven);
        } else if (drives) {
            node_wait_also(r->awaits->request, NEVER_NS, also);
        } else { /* others must drive */
            if (r->stays)
                node_go(w->node, *driven);
            bell_wait(&w->bell, BELL_CALLER, heard, 0, NEVER_NS);
            if (r->stays)
                node_come(w->node);
        }
    }
}

/* ---- opening and closing ---- */

static void queue_close(struct codec_pool *w, const hearth_group *group)
{
    struct list *item, *after;
    mutex_lock(&w->lock);
    LIST_EACH (item, after, &w->queue) {
        struct reduction *r = container_of(item, struct reduction, item);
        if (!group || r->call.group == group)
            atomic_store(&r->closing, !group ? NODE_CLOSES : GROUP_CLOSES);
    }
    mutex_unlock(&w->lock);
    codec_pool_ring(w);
}

static bool queue_has(struct codec_pool *w, const hearth_group *group)
{
    bool has = false;
    struct list *item, *after;
    mutex_lock(&w->lock);
    LIST_EACH (item, after, &w->queue)
        has = has || container_of(item, struct reduction, item)->call.group == group;
    mutex_unlock(&w->lock);
    return has;
}

static void codec_pool_leave(struct node_worker *worker, hearth_group *group)
{
    struct codec_pool *w = container_of(worker, struct codec_pool, worker);
    queue_close(w, group);
    while (queue_has(w, group))
        if (w->worker_runs)
            thread_yield();
        else
            codec_worker_round(w);
}

static bool codec_pool_step(struct node_worker *worker)
{
    return codec_worker_round(container_of(worker, struct codec_pool, worker));
}

static void codec_pool_stop(struct node_worker *worker)
{
    struct codec_pool *w = container_of(worker, struct codec_pool, worker);
    queue_close(w, NULL);
    mutex_lock(&w->lock);
    w->stopping = true;
    mutex_unlock(&w->lock);
    codec_pool_ring(w);
    if (w->worker_runs)
        thread_join(&w->codec_worker);
    while (!codec_worker_may_go(w)) /* on virtual time */
        codec_worker_round(w);
    workers_stop(w->workers);
    w->workers = NULL;
}

static void codec_pool_drop(struct attachment *attachment)
{
    struct codec_pool *w = container_of(attachment, struct codec_pool, attachment);
    blocks_drop(w);
    bell_fini(&w->bell);
    mutex_fini(&w->lock);
    heap_free(w);
}

static struct codec_pool *codec_pool_open(hearth_node *node)
{
    struct codec_pool *w = heap_alloc(node->heap, 1, sizeof *w);
    if (!w)
        return NULL;
    const struct kernels *plain = kernels_named("scalar");
    w->near = *kernels_best();
    w->near.copy_far = plain->copy_far;
    w->near.stream = plain->stream;
    w->near.stream_end = plain->stream_end;
    w->node = node;
    w->worker =
        (struct node_worker){.stop = codec_pool_stop, .leave = codec_pool_leave, .step = codec_pool_step};
    w->attachment.drop = codec_pool_drop;
    list_init(&w->queue);
    list_init(&w->attachment.item);
    if (mutex_init(&w->lock) != HEARTH_OK) {
        heap_free(w);
        return NULL;
    }
    if (bell_init(&w->bell) != HEARTH_OK) {
        mutex_fini(&w->lock);
        heap_free(w);
        return NULL;
    }
    if (node->config.compress_threads > 1)
        w->workers = workers_start(node->heap, node->config.compress_threads);
    return w;
}

struct codec_pool *codec_pool_of(hearth_node *node)
{
    struct node_worker *worker = atomic_load(&node->worker);
    if (worker)
        return container_of(worker, struct codec_pool, worker);
    struct codec_pool *w = codec_pool_open(node);
    if (!w)
        return NULL;
    if (!atomic_compare_exchange_strong(&node->worker, &worker, &w->worker)) {
        workers_stop(w->workers); /* another thread was faster */
        codec_pool_drop(&w->attachment);
        return container_of(worker, struct codec_pool, worker);
    }
    node_attach(node, &w->attachment);
    return w;
}
