/* SPDX-License-Identifier: Apache-2.0 */
/* The public functions of messages: arguments are checked, codecs run on the caller's or the finishing
 * thread; message/ does the rest. */
#include <string.h>

#include "core/sized.h"
#include "node/call.h"
#include "node/copier.h"

/* What a call needs until its operation has ended, beyond the caller's own memory. */
struct message_job {
    struct hearth_iovec *parts;
    void *encoded;                 /* a send: what travels */
    struct hearth_message *coded;  /* a receive: what came, if it came coded */
    struct hearth_message **whole; /* where the decoded message goes; NULL: into buffer */
    void *buffer;
    size_t got;   /* a receive: bytes that it has */
    void *staged; /* host memory that stands for a device's */
    struct hearth_memory memory;
    struct copy_range *ranges; /* a receive: where on the device the bytes go */
    size_t range_count;
    struct heap *heap;
    bool lasts; /* longer than the call, on the heap */
};

struct message_args {
    const char *name;
    hearth_group *group;
    int rank;
    uint64_t tag;
    struct hearth_opts opts;
    hearth_request **request; /* NULL: the call waits */
    struct message_job job;   /* of a call that waits */
    struct hearth_memory memory;
};

/* ---- checks ---- */

static int args_check(struct message_args *a, const struct hearth_opts *given, bool receives)
{
    if (!a->group)
        return error_call(a->name, HEARTH_INVALID, "group is NULL");
    if (node_forked(a->group->node))
        return error_call(a->name, HEARTH_FORKED, "%s", hearth_status_text(HEARTH_FORKED));
    int status = call_opts_read(a->name, given, &a->opts), size = group_size(a->group->group);
    if (status != HEARTH_OK)
        return status;
    bool any = receives && a->rank == HEARTH_ANY_RANK;
    if (!any && (a->rank < 0 || a->rank >= size))
        return error_call(a->name, HEARTH_INVALID, "rank is %d; the group has ranks 0 to %d", a->rank,
                          size - 1);
    if (!receives && a->tag == HEARTH_ANY_TAG)
        return error_call(a->name, HEARTH_INVALID, "tag is HEARTH_ANY_TAG, which is for receives");
    if (a->opts.timeout_ms == -1)
        a->opts.timeout_ms = a->group->node->config.op_timeout_ms;
    return memory_choose(a->name, a->group, a->opts.memory, &a->memory);
}

static int parts_check(const char *name, const struct hearth_iovec *parts, size_t count, size_t *len)
{
    *len = 0;
    if (count > HEARTH_IOVEC_MAX)
        return error_call(name, HEARTH_INVALID, "%zu parts; at most %d are possible", count,
                          HEARTH_IOVEC_MAX);
    if (!parts && count > 0)
        return error_call(name, HEARTH_INVALID, "parts is NULL, but count is %zu", count);
    for (size_t i = 0; i < count; i++) {
        if (!parts[i].data && parts[i].len > 0)
            return error_call(name, HEARTH_INVALID, "parts[%zu].data is NULL, but its len is %zu", i,
                              parts[i].len);
        if (__builtin_add_overflow(*len, parts[i].len, len) || *len > INT64_MAX)
            return error_call(name, HEARTH_INVALID, "the parts have 2^63 bytes or more");
    }
    return HEARTH_OK;
}

static int bytes_check(const char *name, const void *data, size_t len)
{
    if (!data && len > 0)
        return error_call(name, HEARTH_INVALID, "the buffer is NULL, but len is %zu", len);
    if (len > INT64_MAX)
        return error_call(name, HEARTH_INVALID, "len is 2^63 or more");
    return HEARTH_OK;
}

static bool is_coded(const struct hearth_opts *opts)
{
    return opts->codec && strcmp(opts->codec, "none") != 0;
}

/* ---- running ---- */

static int no_memory(const char *name)
{
    return error_call(name, HEARTH_NO_MEMORY, "%s", hearth_status_text(HEARTH_NO_MEMORY));
}

/* The job; for a call that does not wait also a copy of its parts. NULL: none is needed, or no memory. */
static int job_make(struct message_args *a, const struct hearth_iovec **parts, size_t count, bool needed,
                    struct message_job **out)
{
    struct heap *heap = a->group->node->heap;
    bool copies = a->request && *parts && count > 0;
    *out = NULL;
    if (!needed && !copies)
        return HEARTH_OK;
    struct message_job *job = a->request ? heap_alloc(heap, 1, sizeof *job) : &a->job;
    if (job && copies)
        job->parts = heap_alloc_raw(heap, count, sizeof *job->parts);
    if (!job || (copies && !job->parts)) {
        heap_free(job);
        return no_memory(a->name);
    }
    job->heap = heap;
    job->lasts = a->request;
    if (copies)
        *parts = memcpy(job->parts, *parts, count * sizeof *job->parts);
    *out = job;
    return HEARTH_OK;
}

/* ---- device memory: copied by the caller's thread and by the one that finishes ---- */

static void job_free(struct message_job *job)
{
    heap_free(job->coded);
    heap_free(job->encoded);
    heap_free(job->staged);
    heap_free(job->ranges);
    heap_free(job->parts);
    if (job->lasts)
        heap_free(job);
}

/* Host memory for `len` bytes of one buffer (`parts` NULL) or of parts, and what belongs where. */
static int stage(const struct message_args *a, struct message_job *job, void *buffer, size_t len,
                 const struct hearth_iovec *parts, size_t count)
{
    job->memory = a->memory;
    job->range_count = parts ? count : 1;
    job->staged = heap_alloc_raw(job->heap, 1, len);
    job->ranges = heap_alloc_raw(job->heap, job->range_count, sizeof *job->ranges);
    if (!job->staged || !job->ranges)
        return no_memory(a->name);
    uint8_t *at = job->staged;
    job->ranges[0] = (struct copy_range){buffer, at, len};
    for (size_t i = 0; parts && i < count; at += parts[i].len, i++)
        job->ranges[i] = (struct copy_range){parts[i].data, at, parts[i].len};
    return HEARTH_OK;
}

static bool is_staged(const struct message_args *a, size_t len)
{
    return memory_is_device(&a->memory) && len > 0;
}

/* What is sent comes from the device. */
static int stage_send(const struct message_args *a, struct message_send *send, struct message_job *job)
{
    struct error why;
    int status = stage(a, job, (void *)(uintptr_t)send->data, send->len, send->parts, send->count);
    if (status == HEARTH_OK &&
        copy_now(&job->memory, false, job->ranges, job->range_count, &why) != HEARTH_OK)
        status = error_call_because(a->name, &why);
    send->data = job->staged;
    send->parts = NULL;
    return status;
}

static int stage_recv(const struct message_args *a, struct message_recv *recv, struct message_job *job)
{
    int status = stage(a, job, recv->buffer, recv->len, recv->parts, recv->count);
    recv->buffer = job->staged;
    recv->parts = NULL;
    return status;
}

/* The first `len` bytes of what was received go to the device. */
static void unstage(struct message_job *job, size_t len, struct error *error)
{
    struct error why;
    size_t count = 0;
    for (; count < job->range_count && len > 0; count++) {
        struct copy_range *range = &job->ranges[count];
        range->len = range->len < len ? range->len : len;
        len -= range->len;
    }
    if (copy_now(&job->memory, true, job->ranges, count, &why) != HEARTH_OK)
        error_wrap(error, &why, "receive: %s", why.text);
}

static int run(const struct message_args *a, const struct node_begin *begin)
{
    hearth_request *request;
    if (a->request)
        return node_begin(a->group, begin, CALLER_GOES, a->request, error_last());
    int status = node_begin(a->group, begin, CALLER_WAITS, &request, error_last());
    if (status != HEARTH_OK)
        return status;
    if (node_settled(request))
        status = request->completion.error.status;
    else
        status = node_wait(request, NEVER_NS); /* the operation has its own deadline */
    if (status != HEARTH_OK)
        *error_last() = request->completion.error;
    node_release(request);
    return status;
}

static uint64_t deadline_of(const struct message_args *a, uint64_t now_ns)
{
    return now_ns + (uint64_t)a->opts.timeout_ms * NS_PER_MS;
}

/* ---- sends ---- */

static int send_begin(struct group *group, const void *what, struct completion *completion,
                      struct error *error)
{
    return group_message_send(group, what, completion, error);
}

static void send_finish(void *arg, struct error *error)
{
    (void)error;
    job_free(arg);
}

/* What travels is a package of the codec. */
static int encode(const struct message_args *a, struct message_send *send, struct message_job *job)
{
    const struct hearth_opts *o = &a->opts;
    size_t element = hearth_dtype_size(o->dtype), count = send->len / element;
    if (send->parts)
        return error_call(a->name, HEARTH_UNSUPPORTED, "opts.codec with parts: send one buffer");
    if (send->len % element != 0)
        return error_call(a->name, HEARTH_INVALID,
                          "len is %zu, not a multiple of %zu, the size of %s (opts.dtype)", send->len,
                          element, hearth_dtype_name(o->dtype));
    size_t bound = hearth_codec_bound(o->codec, count, o->dtype), len;
    if (bound == 0)
        return error_call_because(a->name, error_last());
    job->encoded = heap_alloc_raw(job->heap, 1, bound);
    if (!job->encoded)
        return no_memory(a->name);
    uint64_t key = atomic_load(&a->group->node->calls);
    int status =
        hearth_codec_compress(o->codec, key, send->data, count, o->dtype, NULL, job->encoded, bound, &len);
    if (status != HEARTH_OK)
        return error_call_because(a->name, error_last());
    send->coded = true;
    send->plain_len = send->len;
    send->dtype = o->dtype;
    send->data = job->encoded;
    send->len = len;
    return HEARTH_OK;
}

static int send_run(struct message_args *a, struct message_send *send, const struct hearth_opts *opts)
{
    struct message_job *job = NULL;
    int status = args_check(a, opts, false);
    bool coded = is_coded(&a->opts), staged = is_staged(a, send->len);
    if (status == HEARTH_OK)
        status = job_make(a, &send->parts, send->count, coded || staged, &job);
    if (status == HEARTH_OK && staged)
        status = stage_send(a, send, job);
    if (status == HEARTH_OK && coded)
        status = encode(a, send, job);
    if (status != HEARTH_OK) {
        if (job)
            job_free(job);
        return status;
    }
    send->to = a->rank;
    send->tag = a->tag;
    send->sync = a->opts.flags & HEARTH_FLAG_SYNC_SEND;
    send->priority = a->opts.priority;
    send->now_ns = node_now(a->group->node);
    send->deadline_ns = deadline_of(a, send->now_ns);
    struct node_begin begin = {.name = a->name,
                               .start = send_begin,
                               .what = send,
                               .alone = true,
                               .done = a->opts.done,
                               .done_arg = a->opts.done_arg,
                               .finish = job ? send_finish : NULL,
                               .finish_arg = job};
    return run(a, &begin);
}

static int send_bytes(struct message_args a, const void *data, size_t len, const struct hearth_opts *opts)
{
    struct message_send send = {.data = data, .len = len};
    int status = bytes_check(a.name, data, len);
    return status != HEARTH_OK ? status : send_run(&a, &send, opts);
}

static int send_parts(struct message_args a, const struct hearth_iovec *parts, size_t count,
                      const struct hearth_opts *opts)
{
    struct message_send send = {.parts = parts, .count = count};
    int status = parts_check(a.name, parts, count, &send.len);
    return status != HEARTH_OK ? status : send_run(&a, &send, opts);
}

static int request_check(const char *name, hearth_request **request)
{
    return request ? HEARTH_OK : error_call(name, HEARTH_INVALID, "request is NULL");
}

int hearth_send(hearth_group *group, int to, uint64_t tag, const void *data, size_t len,
                const struct hearth_opts *opts)
{
    return send_bytes((struct message_args){.name = "send", .group = group, .rank = to, .tag = tag}, data,
                      len, opts);
}

int hearth_send_nb(hearth_group *group, int to, uint64_t tag, const void *data, size_t len,
                   const struct hearth_opts *opts, hearth_request **request)
{
    struct message_args a = {.name = "send_nb", .group = group, .rank = to, .tag = tag, .request = request};
    int status = request_check(a.name, request);
    return status != HEARTH_OK ? status : send_bytes(a, data, len, opts);
}

int hearth_sendv(hearth_group *group, int to, uint64_t tag, const struct hearth_iovec *parts, size_t count,
                 const struct hearth_opts *opts)
{
    return send_parts((struct message_args){.name = "sendv", .group = group, .rank = to, .tag = tag}, parts,
                      count, opts);
}

int hearth_sendv_nb(hearth_group *group, int to, uint64_t tag, const struct hearth_iovec *parts, size_t count,
                    const struct hearth_opts *opts, hearth_request **request)
{
    struct message_args a = {.name = "sendv_nb", .group = group, .rank = to, .tag = tag, .request = request};
    int status = request_check(a.name, request);
    return status != HEARTH_OK ? status : send_parts(a, parts, count, opts);
}

/* ---- receives ---- */

static int recv_begin(struct group *group, const void *what, struct completion *completion,
                      struct error *error)
{
    return group_message_recv(group, what, completion, error);
}

/* Elements of the package that came, into the receive's memory. */
static void decode(struct message_job *job, struct error *error)
{
    struct hearth_message *coded = job->coded, *whole = NULL;
    const struct message_block *how = container_of(coded, struct message_block, message);
    void *target = job->buffer;
    if (job->whole) {
        whole = message_alloc(job->heap, how->plain_len);
        if (!whole) {
            error_set(error, HEARTH_NO_MEMORY, coded->rank, "receive: no memory for %zu bytes",
                      how->plain_len);
            return;
        }
        whole->rank = coded->rank;
        whole->tag = coded->tag;
        target = whole->data;
    }
    size_t count = how->plain_len / hearth_dtype_size(how->dtype);
    int status = hearth_codec_decompress(coded->data, coded->len, target, count, how->dtype);
    if (status != HEARTH_OK) {
        heap_free(whole);
        error_set(error, HEARTH_PROTOCOL, coded->rank, "receive from rank %d: %s", coded->rank,
                  error_last()->text);
        return;
    }
    if (whole)
        *job->whole = whole;
}

static void recv_finish(void *arg, struct error *error)
{
    struct message_job *job = arg;
    if (error->status == HEARTH_OK && job->coded)
        decode(job, error);
    if (error->status == HEARTH_OK && job->staged)
        unstage(job, job->got, error);
    job_free(job);
}

static int received_check(const struct message_args *a, struct hearth_received *received)
{
    struct error why;
    if (!received)
        return HEARTH_OK;
    int status = sized_check(received, a->name, "received", &why);
    return status == HEARTH_OK ? status : error_set(error_last(), status, RANK_NONE, "%s", why.text);
}

static int recv_run(struct message_args *a, struct message_recv *recv, const struct hearth_opts *opts)
{
    struct message_job *job = NULL;
    int status = args_check(a, opts, true);
    if (status == HEARTH_OK)
        status = received_check(a, recv->received);
    if (status == HEARTH_OK)
        status = job_make(a, &recv->parts, recv->count, !recv->probe, &job);
    if (status != HEARTH_OK)
        return status;
    recv->from = a->rank;
    recv->tag = a->tag;
    recv->dtype = a->opts.dtype;
    recv->now_ns = node_now(a->group->node);
    recv->deadline_ns = deadline_of(a, recv->now_ns);
    if (job) {
        recv->coded = &job->coded;
        recv->got = &job->got;
        job->whole = recv->message;
        status = is_staged(a, recv->len) ? stage_recv(a, recv, job) : HEARTH_OK;
        job->buffer = recv->buffer;
    }
    if (status != HEARTH_OK) {
        job_free(job);
        return status;
    }
    struct node_begin begin = {.name = a->name,
                               .start = recv_begin,
                               .what = recv,
                               .alone = true,
                               .done = a->opts.done,
                               .done_arg = a->opts.done_arg,
                               .finish = job ? recv_finish : NULL,
                               .finish_arg = job};
    return run(a, &begin);
}

static int recv_bytes(struct message_args a, void *buffer, size_t len, const struct hearth_opts *opts,
                      struct hearth_received *received)
{
    struct message_recv recv = {.buffer = buffer, .len = len, .received = received};
    int status = bytes_check(a.name, buffer, len);
    return status != HEARTH_OK ? status : recv_run(&a, &recv, opts);
}

static int recv_parts(struct message_args a, const struct hearth_iovec *parts, size_t count,
                      const struct hearth_opts *opts, struct hearth_received *received)
{
    struct message_recv recv = {.parts = parts, .count = count, .received = received};
    int status = parts_check(a.name, parts, count, &recv.len);
    return status != HEARTH_OK ? status : recv_run(&a, &recv, opts);
}

int hearth_recv(hearth_group *group, int from, uint64_t tag, void *buffer, size_t len,
                const struct hearth_opts *opts, struct hearth_received *received)
{
    return recv_bytes((struct message_args){.name = "recv", .group = group, .rank = from, .tag = tag}, buffer,
                      len, opts, received);
}

int hearth_recv_nb(hearth_group *group, int from, uint64_t tag, void *buffer, size_t len,
                   const struct hearth_opts *opts, struct hearth_received *received, hearth_request **request)
{
    struct message_args a = {.name = "recv_nb", .group = group, .rank = from, .tag = tag, .request = request};
    int status = request_check(a.name, request);
    return status != HEARTH_OK ? status : recv_bytes(a, buffer, len, opts, received);
}

int hearth_recvv(hearth_group *group, int from, uint64_t tag, const struct hearth_iovec *parts, size_t count,
                 const struct hearth_opts *opts, struct hearth_received *received)
{
    return recv_parts((struct message_args){.name = "recvv", .group = group, .rank = from, .tag = tag}, parts,
                      count, opts, received);
}

int hearth_recvv_nb(hearth_group *group, int from, uint64_t tag, const struct hearth_iovec *parts,
                    size_t count, const struct hearth_opts *opts, struct hearth_received *received,
                    hearth_request **request)
{
    struct message_args a = {
        .name = "recvv_nb", .group = group, .rank = from, .tag = tag, .request = request};
    int status = request_check(a.name, request);
    return status != HEARTH_OK ? status : recv_parts(a, parts, count, opts, received);
}

int hearth_probe(hearth_group *group, int from, uint64_t tag, const struct hearth_opts *opts,
                 struct hearth_received *received)
{
    struct message_args a = {.name = "probe", .group = group, .rank = from, .tag = tag};
    struct message_recv recv = {.probe = true, .received = received};
    int status = recv_run(&a, &recv, opts);
    return status == HEARTH_TIMEOUT ? HEARTH_PENDING : status;
}

int hearth_message_recv(hearth_group *group, int from, uint64_t tag, const struct hearth_opts *opts,
                        struct hearth_message **message)
{
    struct message_args a = {.name = "message_recv", .group = group, .rank = from, .tag = tag};
    struct message_recv recv = {.message = message};
    return message ? recv_run(&a, &recv, opts) : error_call(a.name, HEARTH_INVALID, "message is NULL");
}

int hearth_message_recv_nb(hearth_group *group, int from, uint64_t tag, const struct hearth_opts *opts,
                           struct hearth_message **message, hearth_request **request)
{
    struct message_args a = {
        .name = "message_recv_nb", .group = group, .rank = from, .tag = tag, .request = request};
    struct message_recv recv = {.message = message};
    int status = request_check(a.name, request);
    if (status == HEARTH_OK && !message)
        status = error_call(a.name, HEARTH_INVALID, "message is NULL");
    return status != HEARTH_OK ? status : recv_run(&a, &recv, opts);
}

void hearth_message_free(struct hearth_message *message)
{
    heap_free(message);
}
