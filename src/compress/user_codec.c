/* SPDX-License-Identifier: Apache-2.0 */
/* The table of user codecs, and their functions behind checks.
 *
 * The table belongs to the process, as the names do. Rows are added and never change or go, because codecs
 * that were parsed earlier point to them; so readers need no lock. */
#include "compress/user_codec.h"

#include <stdatomic.h>
#include <string.h>

#include "compress/load.h"
#include "core/sized.h"

#define ENERGY_EVERY 16   /* blocks */
#define GUARD_BYTE   0xa5 /* what a guard is filled with */

/* ---- names ---- */

static struct {
    _Atomic(int) count; /* of rows that are taken */
    struct {
        struct user_codec codec;
        _Atomic(bool) ready; /* written */
    } row[USER_CODECS_MAX];
} registered;

const struct user_codec *user_codec_find(const char *name, size_t len)
{
    for (int i = atomic_load(&registered.count) - 1; i >= 0; i--) {
        const struct user_codec *codec = &registered.row[i].codec;
        if (atomic_load(&registered.row[i].ready) && strlen(codec->name) == len &&
            memcmp(codec->name, name, len) == 0)
            return codec;
    }
    return NULL;
}

bool user_name_good(const char *name, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        bool alpha = name[i] >= 'a' && name[i] <= 'z', digit = name[i] >= '0' && name[i] <= '9';
        if (!alpha && (i == 0 || (!digit && name[i] != '-' && name[i] != '_')))
            return false;
    }
    return len >= 1 && len <= USER_NAME_MAX;
}

/* The index of a row that nobody else has; -1: all are taken. */
static int row_take(void)
{
    int at = atomic_load(&registered.count);
    while (at < USER_CODECS_MAX && !atomic_compare_exchange_weak(&registered.count, &at, at + 1))
        ;
    return at < USER_CODECS_MAX ? at : -1;
}

static bool functions_same(const struct hearth_codec_functions *a, const struct hearth_codec_functions *b)
{
    return a->arg == b->arg && a->check == b->check && a->bound == b->bound && a->encode == b->encode &&
           a->decode == b->decode;
}

void hearth_codec_functions_init_sized(struct hearth_codec_functions *functions, size_t size)
{
    const struct hearth_codec_functions defaults = {.arg = NULL};
    sized_write(functions, size, &defaults, sizeof defaults);
}

int hearth_codec_register(const char *name, const struct hearth_codec_functions *functions)
{
    static const char call[] = "codec_register";
    struct hearth_codec_functions own = {.arg = NULL};
    struct error error;
    if (!name || !functions)
        return error_call(call, HEARTH_INVALID, "name or functions is NULL");
    size_t len = strnlen(name, USER_NAME_MAX + 1);
    if (!user_name_good(name, len))
        return error_call(call, HEARTH_INVALID,
                          "the name has 1 to %d characters of a-z, 0-9, - and _ and begins with a letter",
                          USER_NAME_MAX);
    if (codec_name_taken(name))
        return error_call(call, HEARTH_INVALID, "\"%s\" is built in; choose another name", name);
    if (sized_read(&own, sizeof own, functions, "codec_functions", &error) != HEARTH_OK)
        return error_call_because(call, &error);
    if (!own.bound || !own.encode || !own.decode)
        return error_call(call, HEARTH_INVALID, "codec \"%s\": bound, encode or decode is NULL", name);
    const struct user_codec *known = user_codec_find(name, len);
    if (known && functions_same(&known->functions, &own))
        return HEARTH_OK;
    int at = row_take();
    if (at < 0)
        return error_call(call, HEARTH_LIMIT, "codec \"%s\": there were %d registrations, which is the limit",
                          name, USER_CODECS_MAX);
    memcpy(registered.row[at].codec.name, name, len + 1);
    registered.row[at].codec.functions = own;
    atomic_store(&registered.row[at].ready, true);
    return HEARTH_OK;
}

/* ---- functions ---- */

static struct hearth_codec_call call_of(const struct codec *codec, size_t count, uint64_t key)
{
    return (struct hearth_codec_call){sizeof(struct hearth_codec_call), codec->parameters, count, key};
}

bool user_parameters_good(const struct codec *codec)
{
    const struct hearth_codec_functions *f = &codec->user->functions;
    return f->check ? f->check(f->arg, codec->parameters) == 0 : codec->parameters[0] == 0;
}

size_t user_bound(const struct codec *codec, size_t count)
{
    const struct hearth_codec_functions *f = &codec->user->functions;
    struct hearth_codec_call call = call_of(codec, count, 0);
    size_t bound = f->bound(f->arg, &call);
    return bound <= USER_BOUND_MAX ? bound : 0;
}

/* What an error calls the codec. */
struct codec_name {
    char s[CODEC_TEXT_MAX];
};

static struct codec_name name_of(const struct codec *codec)
{
    struct codec_name name;
    codec_text(codec, name.s, sizeof name.s);
    return name;
}

static bool all_finite(const struct kernels *kernels, const float *values, size_t count)
{
    return kernels->quant->largest(values, count) <= FINITE_MAX;
}

int user_decode(const struct codec *codec, const struct kernels *kernels, const struct user_payload *payload,
                float *values, struct error *error)
{
    const struct hearth_codec_functions *f = &codec->user->functions;
    struct hearth_codec_call call = call_of(codec, payload->count, payload->key);
    memset(values, 0, payload->count * sizeof *values); /* nothing of the payload before */
    int status = f->decode(f->arg, &call, payload->bytes, payload->len, values);
    if (status == HEARTH_NO_MEMORY)
        return error_set(error, status, RANK_NONE, "codec \"%s\": decode has no memory", name_of(codec).s);
    if (status != HEARTH_OK)
        return error_set(error, HEARTH_PROTOCOL, RANK_NONE,
                         "codec \"%s\": decode of %zu bytes to %zu elements refused them with %d",
                         name_of(codec).s, payload->len, payload->count, status);
    if (!all_finite(kernels, values, payload->count))
        return error_set(error, HEARTH_PROTOCOL, RANK_NONE,
                         "codec \"%s\": %zu bytes decode to numbers that are not finite", name_of(codec).s,
                         payload->len);
    return HEARTH_OK;
}

/* Calls encode. What it may write to has a guard behind it. */
static int payload_make(const struct codec *codec, const struct user_work *work, uint64_t key, size_t *len,
                        struct error *error)
{
    const struct hearth_codec_functions *f = &codec->user->functions;
    struct hearth_codec_call call = call_of(codec, work->count, key);
    size_t bound = work->bound, wrote = 0;
    uint8_t guard[USER_GUARD_LEN];
    memset(guard, GUARD_BYTE, sizeof guard);
    memcpy(work->bytes + bound, guard, sizeof guard);
    int status = f->encode(f->arg, &call, work->values, work->bytes, bound, &wrote);
    bool passes = status == HEARTH_NO_MEMORY || status == HEARTH_LIMIT || status == HEARTH_UNSUPPORTED;
    if (status != HEARTH_OK)
        return error_set(error, passes ? status : HEARTH_INVALID, RANK_NONE,
                         "codec \"%s\": encode of %zu elements failed with %d (%s)", name_of(codec).s,
                         work->count, status, hearth_status_text(status));
    if (wrote > bound || memcmp(work->bytes + bound, guard, sizeof guard) != 0)
        return error_set(error, HEARTH_INVALID, RANK_NONE,
                         "codec \"%s\": encode of %zu elements wrote more than its bound of %zu bytes (it "
                         "says %zu)",
                         name_of(codec).s, work->count, bound, wrote);
    *len = wrote;
    return HEARTH_OK;
}

/* values = gain * x + e. */
static int values_load(const struct kernels *kernels, const struct feed *feed, const struct user_work *work)
{
    uint32_t most = 0;
    for (size_t at = 0, count; at < work->count; at += count) {
        count = work->count - at < CODER_BLOCK ? work->count - at : CODER_BLOCK;
        uint32_t largest = load_block(kernels, feed, at, count, work->values + at);
        most = largest > most ? largest : most;
    }
    if (most <= FINITE_MAX)
        return HEARTH_OK;
    memset(work->values, 0, work->count * sizeof *work->values);
    return HEARTH_POISONED;
}

/* What the payload lacks of the values, in their place and as the next residual. False: it is not finite. */
static bool rest_keep(const struct kernels *kernels, const struct feed *feed, const struct user_work *work)
{
    bool finite = true;
    for (size_t at = 0, count; at < work->count; at += count) {
        count = work->count - at < CODER_BLOCK ? work->count - at : CODER_BLOCK;
        float *value = work->values + at;
        bool measure = feed->energy && at / CODER_BLOCK % ENERGY_EVERY == 0;
        if (measure)
            feed->energy->before += squares(HEARTH_F32, value, 0, count);
        for (size_t i = 0; i < count; i++)
            value[i] -= work->decoded[at + i];
        if (measure)
            feed->energy->after += squares(HEARTH_F32, value, 0, count);
        finite = finite && all_finite(kernels, value, count);
        stream_block(kernels, feed, at, count, value);
    }
    kernels->stream_end();
    return finite;
}

int user_encode(const struct codec *codec, const struct kernels *kernels, const struct feed *feed,
                const struct user_work *work, size_t *len, struct error *error)
{
    int loaded = values_load(kernels, feed, work);
    int status = payload_make(codec, work, feed->key, len, error);
    if (status != HEARTH_OK)
        return status;
    struct user_payload own = {.bytes = work->bytes, .len = *len, .count = work->count, .key = feed->key};
    struct error why;
    status = user_decode(codec, kernels, &own, work->decoded, &why);
    if (status != HEARTH_OK)
        return error_set(error, status == HEARTH_PROTOCOL ? HEARTH_INVALID : status, RANK_NONE,
                         "what it encoded itself: %s", why.text);
    if (!rest_keep(kernels, feed, work))
        return error_set(
            error, HEARTH_INVALID, RANK_NONE,
            "codec \"%s\": what it decodes is too far from what it encoded for a residual in f32",
            name_of(codec).s);
    return loaded;
}
