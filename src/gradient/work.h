/* SPDX-License-Identifier: Apache-2.0 */
/* A compressed all-reduce at work: a machine that is stepped by one thread, the caller's or the codec pool's
 * worker. Only for the files of this room.
 *
 *   opening   all_gather of what each member called, under the user's tag: it takes the operation's number
 *             and finds members that called something else
 *   method    the codec's own way: some all_to_all, all_gather, all_reduce of bytes on an inner group of the
 *             same members, which is kept from call to call, and arithmetic between them
 *   vote      all_gather: nobody's input was poison, everybody has all it needs
 *   publish   shadows become the state; cannot fail
 *
 * Opening and method run side by side. Whoever fails before its vote cancels what it has in flight and
 * refuses what it has not started yet, so that nobody waits for it. */
#pragma once

#include <stdatomic.h>

#include "gradient/tensors.h"
#include "node/copier.h"
#include "os/workers.h"

/* One compressed all-reduce, as it was called. */
struct reduction_call {
    hearth_group *group;
    void *buffer; /* in place */
    size_t count;
    enum hearth_dtype dtype;
    enum hearth_op op;
    struct codec codec;         /* chosen; the same on all members */
    enum reduction_algo algo;   /* likewise */
    size_t rows, columns;       /* powersgd */
    void *residual;             /* the caller's, updated by one copy at the end; NULL: see state */
    struct tensor_state *state; /* swapped at the end; NULL: nothing is kept */
    bool feedback; /* false: what is not sent is lost; residual and state's residual are not touched */
    uint64_t key;  /* what codecs draw by; 0: by the operation's number. state: mixed with its step */
    const struct hearth_opts *opts; /* NULL: the defaults */
    struct hearth_memory memory;    /* of buffer and residual; without functions: host memory */
    void *staged; /* device memory: the buffer is copied here, and the result stays here; NULL: back to it */
};

/* Arguments are checked here (types, operation, options, the guard's limit). A refused call uses no sequence
 * number. Errors go to the thread's last error. `request` NULL: waits for the end. */
int reduction_start(const struct reduction_call *call, hearth_request **request);

/* Memory that the call needs on this member beyond the user's buffers, shadows included. */
size_t reduction_memory(const struct reduction_call *call, int size);

enum step { STEP_MORE, STEP_WAIT, STEP_DONE, STEP_FAILED }; /* FAILED: reduction->error says why */

/* Where share number `place` of `shares` equal ones begins. */
static inline size_t share_at(size_t count, size_t place, size_t shares)
{
    return (size_t)((unsigned __int128)count * place / shares);
}

static inline enum step step_of(int status)
{
    return status == HEARTH_OK ? STEP_MORE : STEP_FAILED;
}

/* One operation that the reduction is made of. */
struct sub {
    hearth_request *request; /* NULL: not started, or finished with */
    _Atomic(bool) done;
    struct codec_pool *pool; /* to ring */
    const hearth_group *group;
};

enum { SUB_FIRST = 1, SUB_SECOND = 2, SUB_CONTROL = 3 }; /* tracks on the inner groups */

struct reduction;

struct method {
    /* Takes the memory it needs; sets reduction->work. HEARTH_OK, or a status with reduction->error. */
    int (*open)(struct reduction *r);
    int (*enter)(struct reduction *r); /* before the opening: finds further groups; NULL: there are none */
    enum step (*step)(struct reduction *r);
    void (*publish)(struct reduction *r);            /* writes the buffer where step has not; cannot fail */
    void (*close)(struct reduction *r, bool failed); /* failed: puts the buffer back; only if it was opened */
    size_t (*memory)(const struct reduction_call *call, int size);
    bool works_in_shadow; /* needs e_new even where nothing is kept */
};
extern const struct method method_block, method_topk, method_randomk, method_powersgd, method_plain,
    method_two_level, method_user;

/* What a member says at the opening. Travels as it is: docs/payloads.md. */
struct call_opening {
    uint64_t magic;
    uint64_t codec; /* hash of its text */
    uint64_t count, rows, key, step;
    uint32_t dtype, op, algo, flags;
    double weight;
    char codec_text[64]; /* for people; cut */
};

/* What a member says in the end. */
struct vote {
    uint32_t magic;
    uint32_t poisoned; /* 1: its input holds NaN or Inf */
};

enum { GROUP_CLOSES = 1, NODE_CLOSES = 2 };

/* Device memory on its way in or out: reduction_device.c. */
struct device_copy {
    struct copier *copier; /* NULL: host memory */
    struct codec_pool *pool;
    _Atomic(int) state;
    _Atomic(size_t) passed; /* bytes that are copied */
    size_t before;          /* bytes before the buffer's: the residual's */
    struct copy_range ranges[2];
    size_t count;
    struct copy_job job;
    struct error error;
};

struct reduction {
    struct list item; /* in the codec pool */
    struct codec_pool *pool;
    struct reduction_call call;
    struct hearth_opts opts;
    const struct kernels *kernels;
    int rank, size;
    hearth_request *request;      /* NULL: a caller waits */
    bool stays;                   /* that caller drives the node from begin to end (node_come) */
    uint64_t deadline_ns, now_ns; /* when it ends; when its step began */
    _Atomic(bool) cancelled, poisoned;
    _Atomic(int) closing; /* 0, or who is going */
    int phase;            /* reduction.c */
    struct error error;   /* why it failed, without its own name */
    struct sub opening_sub, vote_sub;
    struct sub *awaits;            /* with STEP_WAIT: what a driver may wait for; NULL: nothing but a ring */
    struct call_opening *openings; /* [size] */
    struct vote *votes;            /* [size] */
    bool opened;
    float divisor;                  /* once opened: what sums are divided by */
    struct compound own, *compound; /* `own`, or that of the reduction it works for */
    bool begun;                     /* others count on our parts */
    uint64_t key;
    hearth_group *hidden; /* the inner group that it runs on */
    const struct method *method;
    void *work;         /* the method's; NULL: it is not open */
    struct list blocks; /* memory of the codec pool that it has */
    void *e_old;        /* residual before, or NULL */
    void *e_new;        /* shadow of the residual, or NULL: nothing is kept */
    struct energy energy;
    uint64_t sent_bytes;
    uint64_t compress_ns, expand_ns; /* of work so far */
    struct device_copy device;
};

/* ---- for the codec pool ---- */

enum step reduction_step(struct reduction *r, uint64_t now_ns);
/* It has ended: tells whoever waits, and frees it. */
void reduction_settle(struct reduction *r);

/* ---- for compressed_api.c: arguments are checked, opts is complete, the state is ours and let go at the end
 * ---- */

int work_run(const struct reduction_call *call);
int work_start(const struct reduction_call *call, hearth_request **request);

/* ---- reduction_device.c: where buffers are in host memory, all of it has been done ---- */

size_t device_memory(const struct reduction_call *call); /* that it needs */
/* Host memory takes the place of the call's. HEARTH_OK or r->error. */
int MUST_CHECK device_open(struct reduction *r);
enum step device_in(struct reduction *r);        /* STEP_DONE: the method may step */
void device_out(struct reduction *r);            /* the result has been published */
enum step device_out_await(struct reduction *r); /* STEP_DONE or STEP_FAILED: it is there, or not */
bool device_rests(struct reduction *r);          /* nothing is copied; else that ends soon */

/* ---- for methods ---- */

/* A part under the track; the opening has none. */
int MUST_CHECK sub_start(struct reduction *r, hearth_group *group, struct sub *sub, struct call *call,
                         uint32_t track);
bool sub_ended(const struct sub *sub);
/* It has ended: its status; a failure is in r->error. */
int MUST_CHECK sub_finish(struct reduction *r, struct sub *sub);
/* STEP_WAIT: it has not ended; STEP_DONE: it has, and well; STEP_FAILED. */
enum step sub_await(struct reduction *r, struct sub *sub);
void sub_cancel(struct reduction *r, struct sub *sub); /* for r->error; harmless if it is not in flight */
/* all_gather of `len` bytes a member in place, all_to_all of `len` bytes for each. */
int MUST_CHECK sub_all_gather(struct reduction *r, struct sub *sub, void *all, size_t len, uint32_t track);
int MUST_CHECK sub_all_to_all(struct reduction *r, struct sub *sub, const void *source, void *target,
                              size_t len);

/* The inner group of the members that the kind says, ours among them. */
int MUST_CHECK reduction_inner(struct reduction *r, enum inner_kind kind, hearth_group **out);
bool leads_host(const struct group_view *view, int rank);        /* it is the first one there */
void reduction_refuse(struct reduction *r, hearth_group *inner); /* its members do not wait for us */
const struct method *method_of_codec(const struct codec *codec); /* of any but none */

/* Work on all pieces by the codec pool's threads, before or after what it is done to has been under way. */
void reduction_compress(struct reduction *r, workers_fn *run, void *arg, size_t pieces);
void reduction_expand(struct reduction *r, workers_fn *run, void *arg, size_t pieces);

/* Memory of the codec pool, until the end or codec_pool_give; a failure is in r->error. */
void *reduction_take(struct reduction *r, size_t len);
void method_close(struct reduction *r, bool failed); /* if it is open */
/* Of pieces that run side by side each has its own energy: zero, [pieces]. They are added in their order. */
struct energy *reduction_energies(struct reduction *r, size_t pieces);
void reduction_measure(struct reduction *r, const struct energy *energies, size_t pieces);
int reduction_poison(struct reduction *r); /* a sum is beyond f32, seen alike by all: sets r->error */
/* Bytes of that member (of the hidden group) are malformed: sets r->error, HEARTH_PROTOCOL. */
int reduction_blame(struct reduction *r, int rank, const char *why);
struct feed reduction_feed(struct reduction *r); /* of the whole tensor */
/* Input and residual (NULL: none) added, from this element on, into an array of the residual's type: gives
 * the element where it ends. Poison is noted. */
size_t reduction_load(struct reduction *r, const void *residual, void *sum, size_t from);

/* ---- rounds.c: the sum of one array over all members by a part-wise codec, in rounds that run side by side:
 * while one is on the wire the next is encoded and the one before is decoded ---- */

struct array {
    struct codec codec;       /* part-wise */
    enum reduction_algo algo; /* REDUCTION_ALLGATHER or REDUCTION_OWNER */
    struct feed feed;         /* key 0: the reduction's, once it is known */
    size_t count;
    struct coder_out out; /* divisor 0: the reduction's, once it is known */
    uint8_t *undo;        /* where what `out` held goes first; NULL: it need not be kept */
    bool is_tensor;       /* its energy is the reduction's */
};

struct rounds;

struct rounds *rounds_open(struct reduction *r, const struct array *array); /* NULL: see r->error */
/* Only so many of the array's first elements are there yet; all, unless this is called. */
void rounds_offer(struct rounds *rounds, size_t available);
enum step rounds_step(struct rounds *rounds, struct reduction *r);
/* Failed: `out` gets back what it held, if `undo` was given. NULL is allowed. */
void rounds_close(struct rounds *rounds, struct reduction *r, bool failed);
size_t rounds_memory(const struct codec *codec, enum reduction_algo algo, size_t count, int size);
/* Of a small dense thing: by which way it is summed. */
enum reduction_algo rounds_algo(const struct reduction *r, const struct codec *codec, size_t count);
