/* SPDX-License-Identifier: Apache-2.0 */
/* Codecs of users in all-reduces: same bits on all members, nothing lost, and whatever their functions do
 * wrong ends the operation for all and changes nothing. */
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conform/mass.h"
#include "conform/reference.h"

/* ---- a codec that behaves: the elements above SHARE of the largest, as index and value ---- */

struct entry {
    uint32_t index;
    float value;
};

/* "spikes:SHARE", half if it is not said. */
static float share_of(const char *parameters)
{
    return parameters[0] ? strtof(parameters, NULL) : 0.5f;
}

static int spikes_check(void *arg, const char *parameters)
{
    (void)arg;
    return share_of(parameters) > 0 && share_of(parameters) < 1 ? 0 : -1;
}

static size_t spikes_bound(void *arg, const struct hearth_codec_call *call)
{
    (void)arg;
    return call->count * sizeof(struct entry);
}

static int spikes_encode(void *arg, const struct hearth_codec_call *call, const float *values, void *bytes,
                         size_t size, size_t *len)
{
    float largest = 0;
    size_t count = 0;
    (void)arg;
    check(call->size == sizeof *call && size == spikes_bound(arg, call), "encode is called wrongly");
    for (size_t i = 0; i < call->count; i++)
        largest = fmaxf(largest, fabsf(values[i]));
    for (size_t i = 0; i < call->count; i++)
        if (fabsf(values[i]) > largest * share_of(call->parameters)) {
            struct entry entry = {(uint32_t)i, values[i]};
            memcpy((struct entry *)bytes + count++, &entry, sizeof entry);
        }
    *len = count * sizeof(struct entry); /* 0 where all are 0 */
    return 0;
}

static int spikes_decode(void *arg, const struct hearth_codec_call *call, const void *bytes, size_t len,
                         float *values)
{
    (void)arg;
    if (len % sizeof(struct entry) != 0)
        return -1;
    for (size_t at = 0; at < len; at += sizeof(struct entry)) {
        struct entry entry;
        memcpy(&entry, (const char *)bytes + at, sizeof entry);
        if (entry.index >= call->count)
            return -1;
        values[entry.index] = entry.value;
    }
    return 0;
}

/* ---- and one that does not: rank `culprit` has `fault`. Blocking calls run on the member's thread. ---- */

enum fault {
    FAULT_NONE,
    FAULT_FAILS,     /* encode gives an error of its own */
    FAULT_NO_MEMORY, /* and one that stays as it is */
    FAULT_SAYS_MORE, /* than its bound */
    FAULT_WRITES_MORE,
    FAULT_BAD_BYTES, /* that its own decode refuses */
    FAULT_NAN,       /* and that decode to NaN */
    FAULT_FAR,       /* and so far away that the residual is infinite */
    FAULT_TWO_FACED, /* that decode at home only */
    FAULT_TWO_FACED_NAN,
    FAULT_DECODE_FAILS, /* it has no memory to decode */
    FAULT_COUNT
};

static enum fault fault;
static int culprit;
static _Thread_local int own_rank;

static bool has(enum fault which)
{
    return fault == which && own_rank == culprit;
}

/* f32 as they are, behind a byte that says which fault it has, and the key. */
#define HEAD (1 + sizeof(uint64_t))

static size_t faulty_bound(void *arg, const struct hearth_codec_call *call)
{
    (void)arg;
    return HEAD + call->count * sizeof(float);
}

static int faulty_encode(void *arg, const struct hearth_codec_call *call, const float *values, void *bytes,
                         size_t size, size_t *len)
{
    uint8_t *to = bytes;
    (void)arg;
    *len = size;
    memset(to, 0, size);
    to[0] = (uint8_t)(own_rank == culprit ? fault : FAULT_NONE);
    memcpy(to + 1, &call->key, sizeof call->key);
    memcpy(to + HEAD, values, call->count * sizeof *values);
    if (has(FAULT_SAYS_MORE))
        *len = size + 1;
    if (has(FAULT_WRITES_MORE))
        to[size] = 1;
    return has(FAULT_FAILS) ? -5 : has(FAULT_NO_MEMORY) ? HEARTH_NO_MEMORY : 0;
}

static int faulty_decode(void *arg, const struct hearth_codec_call *call, const void *bytes, size_t len,
                         float *values)
{
    const uint8_t *from = bytes;
    (void)arg;
    if (len != faulty_bound(NULL, call) || memcmp(from + 1, &call->key, sizeof call->key) != 0 ||
        from[0] == FAULT_BAD_BYTES)
        return -1;
    memcpy(values, from + HEAD, len - HEAD);
    if (from[0] == FAULT_TWO_FACED && own_rank != culprit)
        return -7;
    if (from[0] == FAULT_NAN || (from[0] == FAULT_TWO_FACED_NAN && own_rank != culprit))
        values[call->count - 1] = NAN;
    if (from[0] == FAULT_FAR)
        values[0] = values[0] > 0 ? -3.4e38f : 3.4e38f;
    return has(FAULT_DECODE_FAILS) && from[0] != FAULT_DECODE_FAILS ? HEARTH_NO_MEMORY : 0;
}

static size_t never_bound(void *arg, const struct hearth_codec_call *call)
{
    (void)arg;
    return call->count > 0 ? 0 : 1;
}

static void codecs_register(void)
{
    struct hearth_codec_functions f;
    hearth_codec_functions_init(&f);
    f.check = spikes_check;
    f.bound = spikes_bound;
    f.encode = spikes_encode;
    f.decode = spikes_decode;
    assert_int_equal(hearth_codec_register("spikes", &f), HEARTH_OK);
    hearth_codec_functions_init(&f);
    f.bound = faulty_bound;
    f.encode = faulty_encode;
    f.decode = faulty_decode;
    assert_int_equal(hearth_codec_register("faulty", &f), HEARTH_OK);
    f.bound = never_bound;
    assert_int_equal(hearth_codec_register("never", &f), HEARTH_OK);
}

/* ---- what goes well ---- */

static void step_member(struct fixture *c, int rank, void *arg)
{
    own_rank = rank;
    check_status(mass_step(c, arg, rank), HEARTH_OK);
}

static void run_steps(struct fixture *c, struct mass *m, int steps)
{
    mass_open(m, c->size);
    for (int step = 0; step < steps; step++) {
        m->seed++;
        mass_fill_all(m, c->size);
        fixture_run(c, step_member, m);
        mass_check(m, c->size);
        checks_end();
    }
    mass_close(m, c->size);
}

TEST(test_same_bits_and_nothing_lost)
{
    static const enum hearth_dtype types[] = {HEARTH_F32, HEARTH_F64, HEARTH_F16, HEARTH_BF16};
    static const size_t counts[] = {1, 1000, 4100, 100000};
    static const char *const codecs[] = {"spikes", "spikes:0.9", "faulty"};
    codecs_register();
    for (int size = 2; size <= 4; size++) {
        struct fixture c;
        fixture_open(&c, size, NULL);
        for (size_t k = 0; k < 3; k++)
            for (size_t t = 0; t < 4; t++)
                for (size_t n = 0; n < 4; n++) {
                    enum hearth_op op = (k + n) & 1 ? HEARTH_OP_AVG : HEARTH_OP_SUM;
                    struct mass m = mass_of(codecs[k], op, counts[n], k * 100 + n);
                    m.dtype = types[t];
                    for (int i = 0; op == HEARTH_OP_AVG && i < size; i++)
                        m.weight[i] = 1 + 1.5 * i;
                    run_steps(&c, &m, 3);
                }
        fixture_close(&c);
    }
}

/* The last one has nothing but zeros, of which nothing is sent. */
static void zeros_member(struct fixture *c, int rank, void *arg)
{
    struct mass *m = arg;
    if (rank == c->size - 1 || m->seed == 0)
        memset(m->x[rank], 0, m->count * sizeof(float));
    step_member(c, rank, m);
}

TEST(test_empty_payloads)
{
    struct fixture c;
    codecs_register();
    fixture_open(&c, 3, NULL);
    for (uint64_t seed = 0; seed < 2; seed++) {
        struct mass m = mass_of("spikes", HEARTH_OP_SUM, 5000, seed);
        mass_open(&m, 3);
        mass_fill_all(&m, 3);
        fixture_run(&c, zeros_member, &m);
        mass_check(&m, 3);
        checks_end();
        mass_close(&m, 3);
    }
    fixture_close(&c);
}

TEST(test_two_levels)
{
    static const int host[] = {0, 1, 0, 1, 2};
    struct fixture c;
    codecs_register();
    fixture_open_known(&c, 5, host, 1);
    for (int k = 0; k < 2; k++) {
        struct mass m = mass_of(k == 0 ? "spikes" : "faulty", HEARTH_OP_AVG, 70000, 1);
        m.algo = HEARTH_ALGO_HIERARCHICAL;
        run_steps(&c, &m, 3);
    }
    fixture_close(&c);
}

/* Without feedback what is not sent is lost, and the result is exactly what payloads hold. */
static void lossy_member(struct fixture *c, int rank, void *arg)
{
    float x[4] = {(float)rank + 1, 0.1f, -0.1f, 0};
    (void)arg;
    check_ok(hearth_all_reduce_compressed(c->world[rank], x, 4, HEARTH_F32, HEARTH_OP_SUM,
                                          "spikes,feedback=off", NULL, NULL));
    check(x[0] == 6 && x[1] == 0 && x[2] == 0 && x[3] == 0, "%g %g %g %g", x[0], x[1], x[2], x[3]);
    struct hearth_opts opts = opts_default();
    opts.algo = HEARTH_ALGO_DIRECT;
    check_error(
        hearth_all_reduce_compressed(c->world[rank], x, 4, HEARTH_F32, HEARTH_OP_SUM, "spikes", NULL, &opts),
        HEARTH_UNSUPPORTED, "user");
    check_ok(hearth_all_reduce_compressed(c->world[rank], x, 4, HEARTH_F32, HEARTH_OP_SUM, "never", NULL,
                                          NULL)); /* its bound is 0: plain */
    check(x[0] == 18, "%g", x[0]);
}

TEST(test_without_feedback)
{
    codecs_register();
    fixture_once(3, NULL, lossy_member, NULL);
}

/* ---- wherever a codec is named ---- */

#define ROWS 64u

/* Numbers that differ by member and step, few of them large. */
static void draw_all(float *x, int rank, int step)
{
    uint64_t seed = (uint64_t)(100 * step + rank + 1);
    for (size_t i = 0; i < ROWS * ROWS; i++) {
        double unit = (double)(draw(&seed) >> 11) * 0x1p-53 - 0.5;
        x[i] = (float)(unit * unit * unit);
    }
}

static void sync_member(struct fixture *c, int rank, void *arg)
{
    static const char *const names[] = {"ruled", "standard"};
    static float data[4][2][ROWS * ROWS];
    hearth_sync *sync;
    char text[TEXT_MAX];
    (void)arg;
    check_ok(hearth_sync_open(c->world[rank], NULL, HEARTH_OP_AVG, &sync)); /* the config's: spikes:0.25 */
    hearth_compressor *compressor = hearth_sync_compressor(sync);
    check_ok(hearth_compressor_add_rule(compressor, "rul*", "faulty"));
    for (int t = 0; t < 2; t++) {
        struct hearth_tensor tensor = {sizeof tensor, names[t], data[rank][t],
                                       HEARTH_F32,    2,        (size_t[]){ROWS, ROWS}};
        check(hearth_sync_add(sync, &tensor) == t, "add");
    }
    for (int step = 0; step < 3; step++) {
        for (int t = 0; t < 2; t++) {
            draw_all(data[rank][t], rank, step);
            check_ok(hearth_sync_ready(sync, t));
        }
        check_ok(hearth_sync_wait(sync, NULL));
        int same = 0;
        check_ok(hearth_group_same(c->world[rank], data[rank], sizeof data[rank], NULL, &same));
    }
    check(hearth_compressor_explain(compressor, "ruled", text, sizeof text) > 0, "explain");
    check_text(text, "faulty by allgather");
    check(hearth_compressor_explain(compressor, "standard", text, sizeof text) > 0, "explain");
    check_text(text, "spikes:0.25 by allgather");
    struct hearth_compressor_stats stats = {.size = sizeof stats};
    check_ok(hearth_compressor_stats(compressor, "standard", &stats));
    check(stats.steps == 3 && stats.residual_norm > 0 && stats.captured > 0.1 && stats.captured < 1,
          "%g captured", stats.captured);
    check_ok(hearth_compressor_stats(compressor, "ruled", &stats)); /* it loses nothing */
    check(stats.residual_norm == 0 && stats.captured == 1, "%g captured", stats.captured);
    hearth_sync_close(sync);
}

TEST(test_config_rules_and_syncs)
{
    struct hearth_config config;
    codecs_register();
    hearth_config_init(&config);
    config.codec = "spikes:0.25";
    fixture_once(3, &config, sync_member, NULL);
}

/* ---- what goes wrong changes nothing ---- */

static void fault_member(struct fixture *c, int rank, void *arg)
{
    own_rank = rank;
    int status = mass_step(c, arg, rank);
    char word[16];
    snprintf(word, sizeof word, "rank %d", culprit);
    bool faced = fault == FAULT_TWO_FACED || fault == FAULT_TWO_FACED_NAN;
    int own = faced                                                     ? HEARTH_ABORTED
              : fault == FAULT_NO_MEMORY || fault == FAULT_DECODE_FAILS ? HEARTH_NO_MEMORY
                                                                        : HEARTH_INVALID;
    if (rank == culprit) {
        check_status(status, own);
        check_text(hearth_error_text(), "faulty");
    } else if (faced) { /* one of them may have heard of the other's verdict first */
        check(status == HEARTH_PROTOCOL || status == HEARTH_ABORTED, "%s", hearth_status_name(status));
        check_text(hearth_error_text(), word);
        check(status == HEARTH_ABORTED || hearth_error_rank() == culprit, "blames %d", hearth_error_rank());
    } else {
        check_status(status, HEARTH_ABORTED);
        check_text(hearth_error_text(), word);
        check_text(hearth_error_text(), "faulty");
    }
}

TEST(test_faults)
{
    struct fixture c;
    codecs_register();
    fixture_open(&c, 3, NULL);
    struct mass m = mass_of("faulty", HEARTH_OP_SUM, 5000, 3);
    mass_open(&m, 3);
    for (int s = 1; s < FAULT_COUNT; s++) {
        fault = FAULT_NONE;
        mass_fill_all(&m, 3);
        fixture_run(&c, step_member, &m);
        fault = (enum fault)s;
        culprit = s % 3;
        mass_fill_all(&m, 3);
        if (fault == FAULT_FAR)
            set_number(m.dtype, m.x[culprit], 0, 3e38);
        fixture_run(&c, fault_member, &m);
        mass_check_untouched(&m, 3);
        fixture_works(&c);
        checks_end();
    }
    fault = FAULT_NONE;
    mass_fill_all(&m, 3);
    fixture_run(&c, step_member, &m); /* as if nothing had been */
    mass_check(&m, 3);
    checks_end();
    mass_close(&m, 3);
    fixture_close(&c);
}

static void poison_member(struct fixture *c, int rank, void *arg)
{
    own_rank = rank;
    if (check_status(mass_step(c, arg, rank), HEARTH_POISONED))
        check_text(hearth_error_text(), "rank 1");
}

TEST(test_poison)
{
    struct fixture c;
    codecs_register();
    fixture_open(&c, 3, NULL);
    struct mass m = mass_of("spikes", HEARTH_OP_SUM, 5000, 3);
    run_steps(&c, &m, 1);
    mass_open(&m, 3);
    mass_fill_all(&m, 3);
    set_number(m.dtype, m.x[1], 4444, INFINITY);
    fixture_run(&c, poison_member, &m);
    mass_check_untouched(&m, 3);
    checks_end();
    mass_close(&m, 3);
    fixture_close(&c);
}

/* One member has another codec, or none of the name, or no memory for it. */
static void missing_member(struct fixture *c, int rank, void *arg)
{
    const char *other = arg;
    float x[100] = {1}, e[100] = {0};
    const char *codec = rank == 1 ? other : "spikes";
    bool unknown = strncmp(other, "spikes", 6) != 0;
    int status =
        hearth_all_reduce_compressed(c->world[rank], x, 100, HEARTH_F32, HEARTH_OP_SUM, codec, e, NULL);
    if (!unknown)
        check_status(status, HEARTH_MISMATCH);
    else
        check_status(status, rank == 1 ? HEARTH_INVALID : HEARTH_ABORTED);
    check_text(hearth_error_text(), other);
    check(x[0] == 1 && e[0] == 0, "something has changed");
}

TEST(test_missing_on_one_member)
{
    static const char *const others[] = {"absent", "absent:3", "auto:spikes,absent", "spikes:0.75"};
    struct fixture c;
    codecs_register();
    fixture_open(&c, 3, NULL);
    for (int i = 0; i < 4; i++) {
        fixture_run(&c, missing_member, (void *)(uintptr_t)others[i]);
        fixture_works(&c);
        struct mass m = mass_of("spikes", HEARTH_OP_SUM, 1000, 3);
        run_steps(&c, &m, 1);
    }
    fixture_close(&c);
}

static void guard_member(struct fixture *c, int rank, void *arg)
{
    check_error(mass_step(c, arg, rank), HEARTH_LIMIT, "compressed_allreduce_max_bytes");
}

TEST(test_memory_limit)
{
    struct hearth_config config;
    struct hearth_tuning tuning;
    struct fixture c;
    codecs_register();
    config_tuned(&config, &tuning);
    tuning.compressed_allreduce_max_bytes = 4u << 20;
    fixture_open(&c, 3, &config);
    struct mass fits = mass_of("spikes", HEARTH_OP_SUM, 80000, 3),
                not = mass_of("spikes", HEARTH_OP_SUM, 100000, 3);
    run_steps(&c, &fits, 1);
    mass_open(&not, 3);
    mass_fill_all(&not, 3);
    fixture_run(&c, guard_member, &not );
    mass_check_untouched(&not, 3);
    checks_end();
    mass_close(&not, 3);
    fixture_close(&c);
}

static void cancel_member(struct fixture *c, int rank, void *arg)
{
    struct mass *m = arg;
    hearth_request *request;
    own_rank = rank;
    mass_remember(m, rank);
    int status = hearth_all_reduce_compressed_nb(c->world[rank], m->x[rank], m->count, m->dtype, m->op,
                                                 m->codec, m->e[rank], NULL, &request);
    if (!check_status(status, HEARTH_OK))
        return;
    if (rank == 1) {
        sleep_ms((int)(m->seed % 4));
        check_status(hearth_request_cancel(request), HEARTH_OK);
        status = hearth_request_test(request);
        check(status == HEARTH_CANCELLED || status == HEARTH_OK, "%s", hearth_status_name(status));
    } else {
        status = hearth_request_wait(request, -1);
        check(status == HEARTH_ABORTED || status == HEARTH_OK, "%s", hearth_status_name(status));
    }
    hearth_request_close(request);
    if (status != HEARTH_OK) /* else the cancel came too late */
        mass_check_member(m, rank);
}

TEST(test_cancel)
{
    struct fixture c;
    codecs_register();
    fixture_open(&c, 3, NULL);
    for (uint64_t k = 0; k < 12; k++) {
        struct mass m = mass_of("spikes", HEARTH_OP_AVG, 200000, k);
        mass_open(&m, 3);
        mass_fill_all(&m, 3);
        fixture_run(&c, step_member, &m);
        fixture_run(&c, cancel_member, &m);
        fixture_works(&c);
        mass_fill_all(&m, 3);
        fixture_run(&c, step_member, &m);
        mass_check(&m, 3);
        checks_end();
        mass_close(&m, 3);
    }
    fixture_close(&c);
}
