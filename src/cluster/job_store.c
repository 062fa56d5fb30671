/* SPDX-License-Identifier: Apache-2.0 */
/* Records of jobs. The file is read and written whole, by one process at a time. */
#include "cluster/job_store.h"

#include <stdio.h>
#include <string.h>

#include "core/list.h"
#include "os/event.h"
#include "os/private_file.h"
#include "os/sock.h"
#include "os/thread.h"

/* A job of this process. */
struct kept {
    struct list item;
    char job[JOB_NAME_MAX];
    bool due; /* the disk has an older state */
    struct view ran;
};

struct job_store {
    struct job_store_setup setup;
    struct mutex disk; /* held while writing, so that an older state never replaces a newer one */
    struct mutex lock; /* of the fields below; never held while writing */
    struct list kept;
    bool told; /* logged: it cannot be written */
    bool runs; /* the thread runs */
    bool closing;
    struct event wake; /* for the thread */
    struct thread thread;
};

/* ---- the file ---- */

static int damaged(const char *path, const char *what, struct error *error)
{
    return error_set(error, HEARTH_INVALID, RANK_NONE,
                     "%s %s: it records jobs that may still run elsewhere. Delete it if none does", path,
                     what);
}

/* NULL at *bytes: there is no file. */
static int read_file(struct heap *heap, const char *path, uint8_t **bytes, size_t *len, struct error *error)
{
    bool missing;

    *len = JOB_FILE_MAX;
    *bytes = heap_alloc_raw(heap, 1, *len);
    if (!*bytes)
        return error_set(error, HEARTH_NO_MEMORY, RANK_NONE, "no memory to read %s", path);
    int status = private_file_read(path, PRIVATE_LIST, *bytes, len, &missing, error);
    if (status) {
        heap_free(*bytes);
        *bytes = NULL;
    }
    return missing ? HEARTH_OK : status;
}

/* Calls `fn` for each entry; `raw` are its bytes. */
typedef void entry_fn(void *arg, const struct job_memory *memory, const uint8_t *raw, size_t len);

static int each_entry(struct heap *heap, const char *path, entry_fn *fn, void *arg, struct error *error)
{
    struct job_memory *memory = heap_alloc_raw(heap, 1, sizeof *memory);
    const char *what = "is damaged";
    struct reader r;
    uint8_t *bytes = NULL;
    size_t len;
    int count = 0, status;

    if (!memory)
        return error_set(error, HEARTH_NO_MEMORY, RANK_NONE, "no memory to read %s", path);
    status = read_file(heap, path, &bytes, &len, error);
    if (!status && bytes && !job_file_begin(&r, bytes, len, &count, &what))
        status = damaged(path, what, error);
    for (int i = 0; i < count && !status; i++) {
        const uint8_t *begin = r.at;
        if (!job_file_next(&r, memory))
            status = damaged(path, "is damaged", error);
        else
            fn(arg, memory, begin, (size_t)(r.at - begin));
    }
    heap_free(bytes);
    heap_free(memory);
    return status;
}

/* A change of the file: entries of the job selected by `goes` are dropped, and one is added. */
struct change {
    const char *job;
    bool (*goes)(const struct change *change, const struct job_memory *memory);
    const struct job_store *store;
    const struct job_memory *add; /* or NULL */
    struct writer entries;
    int count, gone;
};

static void copy_entry(void *arg, const struct job_memory *memory, const uint8_t *raw, size_t len)
{
    struct change *c = arg;

    if (strcmp(memory->job, c->job) == 0 && c->goes(c, memory)) {
        c->gone++;
        return;
    }
    put_bytes(&c->entries, raw, len);
    c->count++;
}

static int write_change(struct change *c, const char *path, uint8_t *bytes, struct error *error)
{
    bool there;

    if (c->add && c->count == JOB_FILE_JOBS_MAX)
        return error_set(error, HEARTH_LIMIT, RANK_NONE,
                         "%s has %d jobs already: forget ended ones (hearth job forget NAME)", path,
                         JOB_FILE_JOBS_MAX);
    if (c->add) {
        job_file_put(&c->entries, c->add);
        c->count++;
    }
    if (!c->add && c->gone == 0)
        return HEARTH_OK;
    size_t len = job_file_end(bytes, (size_t)(c->entries.at - (bytes + JOB_FILE_HEAD)), c->count);
    return private_file_write(path, bytes, len, true, &there, error);
}

static int change_file(struct heap *heap, const char *path, struct change *c, struct error *error)
{
    uint8_t *bytes = heap_alloc_raw(heap, 1, JOB_FILE_MAX);
    int lock, status;

    if (!bytes)
        return error_set(error, HEARTH_NO_MEMORY, RANK_NONE, "no memory to write %s", path);
    c->entries = writer_of(bytes + JOB_FILE_HEAD, JOB_FILE_MAX - JOB_FILE_HEAD - 4);
    status = private_file_lock(path, &lock, error);
    if (!status) {
        status = each_entry(heap, path, copy_entry, c, error);
        if (!status)
            status = write_change(c, path, bytes, error);
        private_file_unlock(lock);
    }
    heap_free(bytes);
    return status;
}

/* ---- for the command ---- */

struct each {
    job_file_fn *fn;
    void *arg;
};

static void show_entry(void *arg, const struct job_memory *memory, const uint8_t *raw, size_t len)
{
    const struct each *each = arg;

    (void)raw;
    (void)len;
    each->fn(each->arg, memory);
}

int job_file_each(struct heap *heap, const char *path, job_file_fn *fn, void *arg, struct error *error)
{
    struct each each = {fn, arg};

    return each_entry(heap, path, show_entry, &each, error);
}

static bool any_goes(const struct change *c, const struct job_memory *memory)
{
    (void)c;
    (void)memory;
    return true;
}

int job_file_forget(struct heap *heap, const char *path, const char *job, int *forgotten, struct error *error)
{
    struct change change = {.job = job, .goes = any_goes};
    int status = change_file(heap, path, &change, error);

    *forgotten = change.gone;
    return status;
}

/* ---- the store ---- */

/* The previous entry of this process, and those of processes that are no longer in the view. */
static bool outlived(const struct change *c, const struct job_memory *memory)
{
    struct identity other = {.node = c->store->setup.self.node, .instance = memory->process};

    return memory->process == c->store->setup.self.instance || view_find(&c->add->ran, &other) < 0;
}

static bool ours(const struct change *c, const struct job_memory *memory)
{
    return memory->process == c->store->setup.self.instance;
}

/* Logs the first failure of several. */
static void tell(struct job_store *store, const char *job, int status, const struct error *error)
{
    mutex_lock(&store->lock);
    bool news = status && !store->told;
    store->told = status != HEARTH_OK;
    mutex_unlock(&store->lock);
    if (news)
        log_write(
            &store->setup.log, HEARTH_LOG_WARN, "HEARTH-JOB-RECORD",
            "job %s: not recorded; after a restart this machine does not know that it may run elsewhere: %s",
            job, error->text);
}

static void write_kept(struct job_store *store, const struct job_memory *memory)
{
    struct change change = {.job = memory->job, .goes = outlived, .store = store, .add = memory};
    struct error error;
    int status = change_file(store->setup.heap, store->setup.path, &change, &error);

    tell(store, memory->job, status, &error);
}

static struct kept *find(struct job_store *store, const char *job)
{
    struct list *item, *after;

    LIST_EACH (item, after, &store->kept) {
        struct kept *kept = container_of(item, struct kept, item);
        if (strcmp(kept->job, job) == 0)
            return kept;
    }
    return NULL;
}

/* False: no memory. */
static bool note(struct job_store *store, const char *job, const struct view *ran, bool due)
{
    mutex_lock(&store->lock);
    struct kept *kept = find(store, job);
    if (!kept && (kept = heap_alloc(store->setup.heap, 1, sizeof *kept))) {
        snprintf(kept->job, sizeof kept->job, "%s", job);
        list_push(&store->kept, &kept->item);
    }
    if (kept) {
        struct view before = kept->ran;
        kept->ran = *ran;
        if (due) /* the same formation, in another view */
            job_record_follow(&kept->ran, &before);
        kept->due = due && store->setup.path;
    }
    mutex_unlock(&store->lock);
    return kept;
}

void job_store_keep(struct job_store *store, const char *job, const struct view *ran)
{
    struct job_memory *memory = heap_alloc(store->setup.heap, 1, sizeof *memory);
    struct error error;

    mutex_lock(&store->disk);
    if (!memory || !note(store, job, ran, false)) {
        tell(store, job, error_set(&error, HEARTH_NO_MEMORY, RANK_NONE, "no memory"), &error);
    } else if (store->setup.path) {
        snprintf(memory->job, sizeof memory->job, "%s", job);
        memory->process = store->setup.self.instance;
        memory->ran = *ran;
        write_kept(store, memory);
    }
    mutex_unlock(&store->disk);
    heap_free(memory);
}

/* The next due record; false: none. */
static bool take_due(struct job_store *store, struct job_memory *memory)
{
    struct list *item, *after;
    bool some = false;

    mutex_lock(&store->lock);
    LIST_EACH (item, after, &store->kept) {
        struct kept *kept = container_of(item, struct kept, item);
        if (some || !kept->due)
            continue;
        some = true;
        kept->due = false;
        memcpy(memory->job, kept->job, sizeof memory->job);
        memory->process = store->setup.self.instance;
        memory->ran = kept->ran;
    }
    mutex_unlock(&store->lock);
    return some;
}

static void write_soon(void *arg)
{
    struct job_store *store = arg;
    struct job_memory memory;

    for (;;) {
        struct sock_wait item = {.fd = store->wake.read_fd, .want_recv = true};
        mutex_lock(&store->lock);
        bool closing = store->closing;
        mutex_unlock(&store->lock);
        mutex_lock(&store->disk);
        while (take_due(store, &memory))
            write_kept(store, &memory);
        mutex_unlock(&store->disk);
        if (closing)
            return;
        sock_wait(&item, 1, NEVER_NS);
        event_clear(&store->wake);
    }
}

void job_store_keep_soon(struct job_store *store, const char *job, const struct view *ran)
{
    struct error error;

    if (!note(store, job, ran, true)) {
        tell(store, job, error_set(&error, HEARTH_NO_MEMORY, RANK_NONE, "no memory"), &error);
        return;
    }
    if (!store->setup.path)
        return;
    mutex_lock(&store->lock);
    if (!store->runs)
        store->runs = thread_start(&store->thread, "hearth-jobs", write_soon, store) == HEARTH_OK;
    mutex_unlock(&store->lock);
    event_signal(&store->wake);
}

void job_store_drop(struct job_store *store, const char *job)
{
    struct change change = {.job = job, .goes = ours, .store = store};
    struct error error;

    mutex_lock(&store->disk);
    mutex_lock(&store->lock);
    struct kept *kept = find(store, job);
    if (kept)
        list_remove(&kept->item);
    mutex_unlock(&store->lock);
    if (kept && store->setup.path && change_file(store->setup.heap, store->setup.path, &change, &error))
        log_write(&store->setup.log, HEARTH_LOG_WARN, "HEARTH-JOB-RECORD",
                  "job %s has ended, but its record stays (hearth job forget %s): %s", job, job, error.text);
    mutex_unlock(&store->disk);
    heap_free(kept);
}

bool job_store_kept(struct job_store *store, int i, char job[static JOB_NAME_MAX], uint64_t *instance)
{
    struct list *item, *after;
    bool some = false;

    mutex_lock(&store->lock);
    LIST_EACH (item, after, &store->kept) {
        const struct kept *kept = container_of(item, struct kept, item);
        if (i-- != 0)
            continue;
        some = true;
        memcpy(job, kept->job, JOB_NAME_MAX);
        *instance = kept->ran.instance;
    }
    mutex_unlock(&store->lock);
    return some;
}

/* ---- recalling ---- */

struct recall {
    const char *job;
    struct view *ran;
    bool some;
};

/* The last written one stands last. */
static void recall_entry(void *arg, const struct job_memory *memory, const uint8_t *raw, size_t len)
{
    struct recall *recall = arg;

    (void)raw;
    (void)len;
    if (strcmp(memory->job, recall->job) != 0)
        return;
    *recall->ran = memory->ran;
    recall->some = true;
}

int job_store_recall(struct job_store *store, const char *job, struct view *ran, bool *some,
                     struct error *error)
{
    struct recall recall = {job, ran, false};
    int status = HEARTH_OK;

    mutex_lock(&store->lock);
    const struct kept *kept = find(store, job);
    if (kept)
        *ran = kept->ran;
    *some = kept;
    mutex_unlock(&store->lock);
    if (*some || !store->setup.path)
        return HEARTH_OK;
    status = each_entry(store->setup.heap, store->setup.path, recall_entry, &recall, error);
    *some = recall.some;
    return status;
}

/* ---- opening and closing ---- */

static void free_store(struct job_store *store)
{
    event_close(&store->wake);
    heap_free((void *)(uintptr_t)store->setup.path);
    heap_free(store);
}

int job_store_open(const struct job_store_setup *setup, struct job_store **out)
{
    struct job_store *store = heap_alloc(setup->heap, 1, sizeof *store);

    if (!store)
        return HEARTH_NO_MEMORY;
    store->setup = *setup;
    store->wake = (struct event){-1, -1};
    list_init(&store->kept);
    store->setup.path = setup->path ? heap_strdup(setup->heap, setup->path) : NULL;
    int status = setup->path && !store->setup.path ? HEARTH_NO_MEMORY : event_open(&store->wake);
    if (!status)
        status = mutex_init(&store->disk);
    if (!status && mutex_init(&store->lock)) {
        mutex_fini(&store->disk);
        status = HEARTH_SYSTEM;
    }
    if (status) {
        free_store(store);
        return status;
    }
    *out = store;
    return HEARTH_OK;
}

void job_store_close(struct job_store *store)
{
    struct list *item, *after;

    if (!store)
        return;
    mutex_lock(&store->lock);
    store->closing = true;
    mutex_unlock(&store->lock);
    event_signal(&store->wake);
    if (store->runs)
        thread_join(&store->thread);
    LIST_EACH (item, after, &store->kept)
        heap_free(container_of(item, struct kept, item));
    mutex_fini(&store->lock);
    mutex_fini(&store->disk);
    free_store(store);
}
