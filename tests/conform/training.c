/* SPDX-License-Identifier: Apache-2.0 */
/* Opens, steps and checks them. */
#include "conform/training.h"

#include <math.h>

#include "gradient/compressor.h"
#include "gradient/sync.h"

const char *const training_codecs[TRAINING_CODECS] = {"int8",         "topk:0.02",  "topk:0.05,chunk=1024",
                                                      "randomk:0.1",  "powersgd:2", "onebit",
                                                      "randomk:0.05", "none"};

static double residual_of(const struct tensor *t, size_t k)
{
    if (!t || !t->state.residual)
        return 0;
    return t->form.dtype == HEARTH_F64 ? ((const double *)t->state.residual)[k]
                                       : (double)((const float *)t->state.residual)[k];
}

static const struct tensor *tensor_at(const struct model *m, int index)
{
    return tensors_find(&m->sync->compressor->tensors, m->sync->tensors[index].name);
}

void residuals_read(const struct model *m, struct residuals *r)
{
    for (int i = 0; i < TENSORS; i++) {
        const struct tensor *t = tensor_at(m, i);
        for (size_t k = 0; k < model_count(i); k++)
            r->of[i][k] = residual_of(t, k);
    }
}

static void residuals_open(struct residuals *r)
{
    for (int i = 0; i < TENSORS; i++)
        r->of[i] = must_alloc(model_count(i) * sizeof(double));
}

static void residuals_free(struct residuals *r)
{
    for (int i = 0; i < TENSORS; i++)
        free(r->of[i]);
}

void training_open(struct training *t, struct cluster_group *f, const char *codec, uint64_t seed)
{
    *t = (struct training){.codec = codec, .seed = seed, .leaver = -1};
    for (int i = 0; i < f->size; i++)
        model_open(&t->model[f->member[i]], cluster_group_world(f, f->member[i]), codec, HEARTH_OP_SUM);
    for (int i = 0; i < CLUSTER_GROUP_MAX; i++)
        residuals_open(&t->before[i]);
}

void training_close(struct training *t)
{
    for (int i = 0; i < CLUSTER_GROUP_MAX; i++) {
        if (t->model[i].data[0])
            model_close(&t->model[i]);
        residuals_free(&t->before[i]);
    }
}

/* ---- steps ---- */

void training_fill(struct training *t, int member)
{
    model_fill(&t->model[member], member, t->step);
    residuals_read(&t->model[member], &t->before[member]);
}

void contributors(struct training *t, const int *members, int count)
{
    t->count = count;
    memcpy(t->member, members, (size_t)count * sizeof *members);
}

void whole_step(struct cluster_group *f, int member, void *arg)
{
    struct training *t = arg;
    training_fill(t, member);
    model_ready(&t->model[member], (uint64_t)member);
    check_ok(hearth_sync_wait(t->model[member].sync, NULL));
}

void complete(struct cluster_group *f, int member, void *arg)
{
    struct training *t = arg;
    check_ok(hearth_sync_wait(t->model[member].sync, NULL));
}

void run_step(struct cluster_group *f, struct training *t, cluster_group_fn *fn)
{
    t->step++;
    contributors(t, f->member, f->size);
    cluster_group_run(f, fn, t);
}

/* ---- checks ---- */

static double get(int index, const void *data, size_t k)
{
    return get_number(model_shapes[index].dtype, data, k);
}

/* What went in is what came out, as `holder` has it, and what is left behind, with those that took part. */
static void mass_holds(const struct training *t, int holder, int index)
{
    const struct tensor *tensors[CLUSTER_GROUP_MAX];
    for (int i = 0; i < t->count; i++)
        tensors[i] = tensor_at(&t->model[t->member[i]], index);
    bool good = true;
    for (size_t k = 0; good && k < model_count(index); k++) {
        double in = 0, out = get(index, t->model[holder].data[index], k), size = fabs(out);
        for (int i = 0; i < t->count; i++) {
            int member = t->member[i];
            double x = get(index, t->model[member].before[index], k), e = t->before[member].of[index][k];
            in += x + e;
            double after = residual_of(tensors[i], k);
            out += after;
            size += fabs(x) + fabs(e) + fabs(after);
        }
        bool narrow = model_shapes[index].dtype == HEARTH_F16 || model_shapes[index].dtype == HEARTH_BF16;
        good = check(fabs(in - out) <= size * (narrow ? 0x1p-7 : 2e-6) + 1e-6,
                     "%s: tensor %d, element %zu: in %.9g, out %.9g", t->codec, index, k, in, out);
    }
}

/* A tensor that goes plain is the sum, exactly. */
static void sum_holds(const struct training *t, int holder, int index)
{
    bool good = true;
    for (size_t k = 0; good && k < model_count(index); k++) {
        double sum = 0;
        for (int i = 0; i < t->count; i++)
            sum += get(index, t->model[t->member[i]].before[index], k);
        double is = get(index, t->model[holder].data[index], k);
        good = check(is == sum, "%s: tensor %d, element %zu is %g, not %g", t->codec, index, k, is, sum);
    }
}

static void all_alike(const struct cluster_group *f, const struct training *t)
{
    for (int i = 0; i < TENSORS; i++)
        for (int k = 1; k < f->size; k++)
            check(memcmp(t->model[f->member[0]].data[i], t->model[f->member[k]].data[i], model_len(i)) == 0,
                  "%s: tensor %d differs between member %d and %d", t->codec, i, f->member[0], f->member[k]);
}

void check_step(const struct cluster_group *f, const struct training *t)
{
    bool all_there = true;
    const hearth_sync *sync = t->model[f->member[0]].sync;
    for (int i = 0; i < t->count; i++)
        all_there = all_there && t->model[t->member[i]].sync;
    all_alike(f, t);
    for (int i = 0; i < TENSORS; i++)
        if (sync->buckets[sync->tensors[i].item.bucket].plan.fused)
            sum_holds(t, f->member[0], i);
        else if (all_there)
            mass_holds(t, f->member[0], i);
    checks_end();
}

void train_on(struct cluster_group *f, struct training *t)
{
    for (int i = 0; i < 2; i++) {
        run_step(f, t, whole_step);
        check_step(f, t);
    }
}
