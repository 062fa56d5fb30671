/* SPDX-License-Identifier: Apache-2.0 */
/* The tensors of a compressor, by name: what each looks like and what is kept of it between steps. */
#pragma once

#include "compress/sparse.h"
#include "core/error.h"
#include "core/heap.h"
#include "gradient/price.h"

#define TENSORS_MAX     65536
#define TENSOR_NAME_MAX 255
#define TENSOR_DIMS_MAX 8
#define TENSOR_TEXT_MAX 256 /* of a form as text: "f32 [4096, 1024]" */

/* How the user described it. Unused dims are 0. */
struct tensor_form {
    enum hearth_dtype dtype; /* f32, f64, f16, bf16 */
    int ndim;
    size_t dims[TENSOR_DIMS_MAX];
    size_t count; /* product of the dims */
};

/* powersgd's factors: Q of columns x rank and, when alternating, P of rows x rank. */
enum { FACTOR_Q, FACTOR_P, FACTOR_COUNT };

/* How to take the last step back: what it has replaced stands in the shadows until the next one. */
struct tensor_undo {
    bool there;                          /* false: nothing can be taken back */
    bool residual, factor[FACTOR_COUNT]; /* that were exchanged with their shadows */
    struct energy energy;
    uint64_t step, plain_bytes, sent_bytes;
};

/* While an operation of the tensor is in flight only that touches it. */
struct tensor_state {
    enum hearth_dtype dtype;
    size_t count;
    size_t rows, columns; /* as a matrix; rows 0: it is none */
    void *residual;       /* `count` of f64 for f64 tensors, else of f32; NULL: all zero */
    void *shadow;         /* as long: where the next residual is written; NULL: not there yet */
    float *factor[FACTOR_COUNT], *factor_shadow[FACTOR_COUNT]; /* NULL: not there yet */
    uint32_t factor_rank;                                      /* that all of them have */
    uint64_t step; /* operations that ended well: what randomk and powersgd draw by */
    uint64_t plain_bytes, sent_bytes;
    struct energy energy;  /* of the last step */
    struct topk_hint hint; /* makes selection faster, changes nothing */
    struct tensor_undo undo;
    bool plain; /* the operation in flight is an ordinary all_reduce */
};

struct tensor {
    struct tensor_form form;
    struct tensor_state state;

    /* Of the compressor, under its lock. */
    uint64_t in_flight;      /* number of the operation that uses the state; 0: none does */
    hearth_request *request; /* of that operation, as soon as it is known; NULL: a blocking call */
    uint64_t step;           /* the state's, when its last operation started */
    hearth_done_fn *done;    /* the caller's, of that operation */
    void *done_arg;
    hearth_compressor *owner;
    struct reduction_choice choice;
    uint64_t choice_version; /* of the policy it was made by; 0: there is no lasting choice yet */

    char name[]; /* terminated */
};

struct tensors {
    struct heap *heap;
    struct tensor **item; /* by the bytes of their names, ascending */
    size_t count, room;
};

/* 1 to TENSOR_NAME_MAX printable characters (ASCII). */
bool tensor_name_good(const char *name);
bool tensor_dtype_good(enum hearth_dtype dtype);
/* Sets form->count; false: the elements would need 2^63 bytes or more, as residual too. */
bool tensor_form_count(struct tensor_form *form);
/* The caller's tensor and its form, checked. HEARTH_INVALID or HEARTH_UNSUPPORTED names what is wrong. */
int MUST_CHECK tensor_read(const struct hearth_tensor *given, struct hearth_tensor *own,
                           struct tensor_form *form, struct error *error);
void tensor_form_text(const struct tensor_form *form, char *text, size_t size);
bool tensor_form_same(const struct tensor_form *a, const struct tensor_form *b);

/* Frees what the state holds and makes it as it was before the first step. */
void tensor_forget(struct tensor *tensor);
/* Of another matrix or rank than before (all as powersgd uses them): old factors mean nothing any more. */
void tensor_reshape(struct tensor_state *state, size_t rows, size_t columns, uint32_t rank);

/* A step ends well: before anything of it is kept. */
void tensor_commits(struct tensor_state *state);
void tensor_count_plain(struct tensor_state *state, int size); /* a plain one has, among so many members */
/* What the step has written in the shadow is kept; the shadow keeps what was before. */
void tensor_swap_residual(struct tensor_state *state);
void tensor_swap_factor(struct tensor_state *state, int which);
/* Takes the last step back. False: that cannot be done. */
bool tensor_undo(struct tensor_state *state);
void tensor_drop_factors(struct tensor_state *state);

void tensors_init(struct tensors *tensors, struct heap *heap);
void tensors_fini(struct tensors *tensors);                                   /* frees all of them */
struct tensor *tensors_find(const struct tensors *tensors, const char *name); /* NULL: there is none */
/* The name is good and there is none such yet. HEARTH_LIMIT, HEARTH_NO_MEMORY. */
int MUST_CHECK tensors_add(struct tensors *tensors, const char *name, const struct tensor_form *form,
                           struct tensor **out, struct error *error);
void tensors_remove(struct tensors *tensors, struct tensor *tensor); /* frees it */
