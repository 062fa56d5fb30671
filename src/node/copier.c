/* SPDX-License-Identifier: Apache-2.0 */
/* The thread that copies, and the memory that it copies to. */
#include "node/copier.h"

#include "core/sized.h"

#define PIECE_LEN   ((size_t)1 << 20)   /* one call of the adapter, and what a lane waits for at least */
#define BLOCKS_KEPT 64                  /* between calls */
#define BYTES_KEPT  ((size_t)256 << 20) /* likewise */

enum { QUEUE_IN, QUEUE_OUT, QUEUES };

struct copier {
    hearth_node *node;
    struct mutex lock; /* of what follows */
    struct list queue[QUEUES];
    int turn; /* whose it is */
    bool stopping;
    void *block[BLOCKS_KEPT];
    int block_count;
    size_t block_bytes; /* of those that are kept */
    struct thread thread;
    bool runs;
    struct bell bell;
};

const struct hearth_memory memory_host = {.size = sizeof memory_host};

void hearth_memory_init_sized(struct hearth_memory *memory, size_t size)
{
    sized_write(memory, size, &memory_host, sizeof memory_host);
}

int memory_read(const char *call, const struct hearth_memory *given, struct hearth_memory *own)
{
    struct error why;
    *own = memory_host;
    if (sized_read(own, sizeof *own, given, "memory", &why) != HEARTH_OK)
        return error_call_because(call, &why);
    bool some = own->copy_in || own->copy_out || own->wait;
    if (some && !(own->copy_in && own->copy_out && own->wait))
        return error_call(call, HEARTH_INVALID, "memory.%s is NULL; set all three functions, or none",
                          !own->copy_in    ? "copy_in"
                          : !own->copy_out ? "copy_out"
                                           : "wait");
    return HEARTH_OK;
}

int memory_choose(const char *call, const hearth_group *group, const struct hearth_memory *given,
                  struct hearth_memory *own)
{
    if (given)
        return memory_read(call, given, own);
    *own = group->memory;
    return HEARTH_OK;
}

int hearth_group_set_memory(hearth_group *group, const struct hearth_memory *memory)
{
    struct hearth_memory own;
    if (!group)
        return error_call("group_set_memory", HEARTH_INVALID, "group is NULL");
    int status = memory_read("group_set_memory", memory ? memory : &memory_host, &own);
    if (status == HEARTH_OK)
        group->memory = own;
    return status;
}

/* ---- copying ---- */

static int adapter_failed(struct error *error, const char *function, int code, const struct copy_range *range)
{
    if (!range)
        return error_set(error, HEARTH_COPY_FAILED, RANK_NONE, "the memory adapter's %s returned %d",
                         function, code);
    return error_set(error, HEARTH_COPY_FAILED, RANK_NONE,
                     "the memory adapter's %s returned %d for %zu bytes at device address %p", function, code,
                     range->len, range->device);
}

static int piece_copy(const struct hearth_memory *m, bool out, const struct copy_range *piece,
                      struct error *error)
{
    int code = out ? m->copy_out(m->arg, piece->device, piece->host, piece->len)
                   : m->copy_in(m->arg, piece->host, piece->device, piece->len);
    return code == 0 ? HEARTH_OK : adapter_failed(error, out ? "copy_out" : "copy_in", code, piece);
}

/* Also after a failure: what was begun must not go on in memory that is used for something else. */
static int pieces_wait(const struct hearth_memory *m, int status, struct error *error)
{
    int code = m->wait(m->arg);
    return status != HEARTH_OK || code == 0 ? status : adapter_failed(error, "wait", code, NULL);
}

int copy_now(const struct hearth_memory *memory, bool out, const struct copy_range *ranges, size_t count,
             struct error *error)
{
    int status = HEARTH_OK;
    for (size_t i = 0; i < count && status == HEARTH_OK; i++)
        if (ranges[i].len > 0)
            status = piece_copy(memory, out, &ranges[i], error);
    return pieces_wait(memory, status, error);
}

/* The next pieces of the job, together about PIECE_LEN: a job of many small ranges waits once for several. */
static int job_advance(struct copy_job *job, struct error *error)
{
    size_t len = 0;
    int status = HEARTH_OK;
    while (status == HEARTH_OK && job->range < job->count && len < PIECE_LEN) {
        const struct copy_range *range = &job->ranges[job->range];
        size_t left = range->len - job->offset, room = PIECE_LEN - len;
        struct copy_range piece = {.device = (uint8_t *)range->device + job->offset,
                                   .host = (uint8_t *)range->host + job->offset,
                                   .len = left < room ? left : room};
        if (piece.len > 0)
            status = piece_copy(&job->memory, job->out, &piece, error);
        len += piece.len;
        job->offset += piece.len;
        if (job->offset == range->len) {
            job->range++;
            job->offset = 0;
        }
    }
    job->passed += len;
    return len > 0 ? pieces_wait(&job->memory, status, error) : status;
}

/* True: the job has ended, and is its owner's. */
static bool job_step(struct copy_job *job)
{
    struct error error;
    error_clear(&error);
    if (atomic_load(&job->stop))
        error_set(&error, HEARTH_CANCELLED, RANK_NONE, "the copy was stopped");
    else
        (void)job_advance(job, &error);
    bool ended = error.status != HEARTH_OK || job->range == job->count;
    if (!ended && job->moved)
        job->moved(job, job->passed);
    if (ended)
        job->done(job, &error);
    return ended;
}

/* ---- the thread ---- */

/* With the lock: the next job, out of its queue. In and out take turns. */
static struct copy_job *job_take(struct copier *c)
{
    for (int i = 0; i < QUEUES; i++) {
        c->turn = (c->turn + 1) % QUEUES;
        struct list *queue = &c->queue[c->turn];
        if (list_empty(queue))
            continue;
        struct copy_job *job = container_of(queue->next, struct copy_job, item);
        list_remove(&job->item);
        return job;
    }
    return NULL;
}

bool copier_step(struct copier *c)
{
    mutex_lock(&c->lock);
    struct copy_job *job = job_take(c);
    mutex_unlock(&c->lock);
    if (!job)
        return false;
    if (!job_step(job)) { /* it stays the first of its queue */
        mutex_lock(&c->lock);
        list_push(c->queue[job->out ? QUEUE_OUT : QUEUE_IN].next, &job->item);
        mutex_unlock(&c->lock);
    }
    return true;
}

static bool may_go(struct copier *c)
{
    mutex_lock(&c->lock);
    bool go = c->stopping && list_empty(&c->queue[QUEUE_IN]) && list_empty(&c->queue[QUEUE_OUT]);
    mutex_unlock(&c->lock);
    return go;
}

static void copier_run(void *arg)
{
    struct copier *c = arg;
    while (!may_go(c)) {
        uint32_t heard = bell_heard(&c->bell);
        if (!copier_step(c) && !may_go(c))
            bell_wait(&c->bell, BELL_CALLER, heard, 0, NEVER_NS);
    }
}

void copier_submit(struct copier *c, struct copy_job *job)
{
    struct list *queue = &c->queue[job->out ? QUEUE_OUT : QUEUE_IN];
    list_init(&job->item);
    job->range = job->offset = job->passed = 0;
    mutex_lock(&c->lock);
    if (job->count == 0)
        list_push(queue->next,
                  &job->item); /* first: there is nothing to copy: somebody only waits for its end */
    else
        list_push(queue, &job->item);
    mutex_unlock(&c->lock);
    bell_ring_all(&c->bell);
}

/* ---- opening and closing ---- */

static struct copier *copier_open(hearth_node *node)
{
    struct copier *c = heap_alloc(node->heap, 1, sizeof *c);
    if (!c)
        return NULL;
    c->node = node;
    for (int i = 0; i < QUEUES; i++)
        list_init(&c->queue[i]);
    if (mutex_init(&c->lock) != HEARTH_OK) {
        heap_free(c);
        return NULL;
    }
    if (bell_init(&c->bell) != HEARTH_OK) {
        mutex_fini(&c->lock);
        heap_free(c);
        return NULL;
    }
    c->runs = node->progress_runs && thread_start(&c->thread, "hearth-copy", copier_run, c) == HEARTH_OK;
    if (c->runs || !node->progress_runs) /* on virtual time whoever drives the node copies */
        return c;
    copier_free(c);
    return NULL;
}

struct copier *copier_of(hearth_node *node)
{
    struct copier *known = atomic_load(&node->copier);
    if (known)
        return known;
    struct copier *c = copier_open(node);
    if (c && !atomic_compare_exchange_strong(&node->copier, &known, c)) {
        copier_stop(c); /* another thread was faster */
        copier_free(c);
        return known;
    }
    return c;
}

void copier_stop(struct copier *c)
{
    if (!c)
        return;
    mutex_lock(&c->lock);
    c->stopping = true;
    mutex_unlock(&c->lock);
    bell_ring_all(&c->bell);
    if (c->runs)
        thread_join(&c->thread);
    while (!may_go(c)) /* on virtual time */
        copier_step(c);
}

/* ---- memory ---- */

/* In front of each block. */
struct host_block {
    size_t len;
    uint8_t pad[HEAP_ALIGN - sizeof(size_t)];
};

static struct host_block *host_block_of(void *block)
{
    return (struct host_block *)block - 1;
}

/* With the lock, out of those that are kept. */
static void *block_remove(struct copier *c, int at)
{
    void *block = c->block[at];
    c->block[at] = c->block[--c->block_count];
    c->block_bytes -= host_block_of(block)->len;
    return block;
}

static void blocks_drop(struct copier *c)
{
    while (c->block_count > 0)
        heap_free(host_block_of(block_remove(c, c->block_count - 1)));
}

void copier_free(struct copier *c)
{
    if (!c)
        return;
    blocks_drop(c);
    bell_fini(&c->bell);
    mutex_fini(&c->lock);
    heap_free(c);
}

/* The shortest kept block that is long enough and not much too long, or -1. */
static int block_find(const struct copier *c, size_t len)
{
    int best = -1;
    for (int i = 0; i < c->block_count; i++) {
        size_t have = host_block_of(c->block[i])->len;
        if (have >= len && have / 2 <= len && (best < 0 || have < host_block_of(c->block[best])->len))
            best = i;
    }
    return best;
}

static void *block_make(struct copier *c, size_t len)
{
    if (len > SIZE_MAX - sizeof(struct host_block))
        return NULL;
    struct host_block *head = heap_alloc_raw(c->node->heap, 1, sizeof *head + len);
    if (!head)
        return NULL;
    head->len = len;
    return head + 1;
}

void *copier_take(struct copier *c, size_t len)
{
    mutex_lock(&c->lock);
    int at = block_find(c, len);
    void *block = at >= 0 ? block_remove(c, at) : block_make(c, len);
    if (!block) { /* what is kept for later is of no use now */
        blocks_drop(c);
        block = block_make(c, len);
    }
    mutex_unlock(&c->lock);
    return block;
}

void copier_give(struct copier *c, void *block)
{
    if (!block)
        return;
    mutex_lock(&c->lock);
    size_t len = host_block_of(block)->len;
    if (c->block_count < BLOCKS_KEPT && len <= BYTES_KEPT - c->block_bytes) {
        c->block[c->block_count++] = block;
        c->block_bytes += len;
        block = NULL;
    }
    mutex_unlock(&c->lock);
    if (block)
        heap_free(host_block_of(block));
}
