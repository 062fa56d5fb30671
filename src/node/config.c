/* SPDX-License-Identifier: Apache-2.0 */
/* Configuration: defaults, the environment, checks. The only file that reads the environment. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "node/node.h"

#define BYTES_MIN       16384u /* chunk, window, eager */
#define CHUNK_BYTES_MAX (16u << 20)
#define EAGER_BYTES_MAX (64u << 20)
#define TIMEOUT_MS_MAX  (INT64_C(365) * 24 * 3600 * 1000)

void hearth_config_init(struct hearth_config *config)
{
    *config = (struct hearth_config){
        .size = sizeof *config,
        .op_timeout_ms = 30 * 60 * 1000,
        .chunk_bytes = 256u << 10,
        .window_bytes = 4u << 20,
        .eager_bytes = 256u << 10,
        .ops_max = 1024,
        .spin_us = 50,
        .algo = HEARTH_AUTO,
        .log_level = HEARTH_LOG_WARN,
    };
}

void hearth_opts_init(struct hearth_opts *opts)
{
    *opts = (struct hearth_opts){.size = sizeof *opts, .timeout_ms = -1, .weight = 1.0};
}

/* ---- the environment ---- */

/* A whole number with an optional K, M or G, within limits. */
static int parse_number(const char *text, bool suffix, uint64_t min, uint64_t max, uint64_t *out)
{
    char *end;
    errno = 0;
    uint64_t value = strtoull(text, &end, 10);
    if (end == text || errno != 0 || text[0] == '-' || text[0] == '+' || text[0] == ' ')
        return HEARTH_INVALID;
    int shift = *end == 'K' ? 10 : *end == 'M' ? 20 : *end == 'G' ? 30 : 0;
    if (suffix && shift > 0)
        end++;
    else
        shift = 0;
    if (*end != '\0' || value > UINT64_MAX >> shift)
        return HEARTH_INVALID;
    value <<= shift;
    if (value < min || value > max)
        return HEARTH_INVALID;
    *out = value;
    return HEARTH_OK;
}

static int parse_level(const char *text, enum hearth_log_level *level)
{
    static const char *const names[] = {"error", "warn", "info", "debug"};
    for (int i = 0; i < 4; i++) {
        if (strcmp(text, names[i]) == 0) {
            *level = (enum hearth_log_level)(i + 1);
            return HEARTH_OK;
        }
    }
    return HEARTH_INVALID;
}

/* One variable with a number. */
struct variable {
    const char *name;
    bool suffix;
    uint64_t min, max, *value;
};

static int read_numbers(const struct variable *variables, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct variable *v = &variables[i];
        const char *text = getenv(v->name);
        if (text == NULL)
            continue;
        if (parse_number(text, v->suffix, v->min, v->max, v->value) != HEARTH_OK)
            return error_set(error_last(), HEARTH_INVALID, RANK_NONE,
                             "%s is \"%s\"; it takes a whole number%s from %" PRIu64 " to %" PRIu64, v->name,
                             text, v->suffix ? " (K, M, G allowed)" : "", v->min, v->max);
    }
    return HEARTH_OK;
}

static int read_names(struct hearth_config *c)
{
    const char *algo = getenv("HEARTH_ALGO"), *level = getenv("HEARTH_LOG_LEVEL");
    if (algo != NULL && hearth_algo_parse(algo, &c->algo) != HEARTH_OK)
        return error_set(
            error_last(), HEARTH_INVALID, RANK_NONE,
            "HEARTH_ALGO is \"%s\"; it takes auto, ring, direct, halving, tree, star, hierarchical or "
            "exchange",
            algo);
    if (level != NULL && parse_level(level, &c->log_level) != HEARTH_OK)
        return error_set(error_last(), HEARTH_INVALID, RANK_NONE,
                         "HEARTH_LOG_LEVEL is \"%s\"; it takes error, warn, info or debug", level);
    return HEARTH_OK;
}

int hearth_config_env(struct hearth_config *config)
{
    if (config == NULL || config->size != sizeof *config)
        return error_set(error_last(), HEARTH_INVALID, RANK_NONE,
                         "config_env: call hearth_config_init first");
    struct hearth_config c = *config;
    uint64_t timeout = (uint64_t)c.op_timeout_ms, chunk = c.chunk_bytes, window = c.window_bytes;
    uint64_t eager = c.eager_bytes, memory = c.memory_max, ops = c.ops_max, spin = c.spin_us;
    const struct variable variables[] = {
        {"HEARTH_OP_TIMEOUT_MS", false, 1, (uint64_t)TIMEOUT_MS_MAX, &timeout},
        {"HEARTH_CHUNK_BYTES", true, BYTES_MIN, CHUNK_BYTES_MAX, &chunk},
        {"HEARTH_WINDOW_BYTES", true, BYTES_MIN, SIZE_MAX / 2, &window},
        {"HEARTH_EAGER_BYTES", true, BYTES_MIN, EAGER_BYTES_MAX, &eager},
        {"HEARTH_MEMORY_MAX", true, 0, SIZE_MAX / 2, &memory},
        {"HEARTH_OPS_MAX", false, 1, 1u << 20, &ops},
        {"HEARTH_SPIN_US", false, 0, 1000000, &spin},
    };
    int status = read_numbers(variables, sizeof variables / sizeof *variables);
    if (status == HEARTH_OK)
        status = read_names(&c);
    if (status != HEARTH_OK)
        return status;
    c.op_timeout_ms = (int64_t)timeout;
    c.chunk_bytes = chunk;
    c.window_bytes = window;
    c.eager_bytes = eager;
    c.memory_max = memory;
    c.ops_max = (uint32_t)ops;
    c.spin_us = (uint32_t)spin;
    *config = c;
    return HEARTH_OK;
}

/* ---- checks ---- */

static int out_of_range(struct error *error, const char *field, uint64_t value, uint64_t min, uint64_t max)
{
    if (value >= min && value <= max)
        return HEARTH_OK;
    return error_set(error, HEARTH_INVALID, RANK_NONE,
                     "config: %s is %" PRIu64 "; it must be from %" PRIu64 " to %" PRIu64, field, value, min,
                     max);
}

static bool little_endian(void)
{
    const uint16_t one = 1;
    return *(const uint8_t *)&one == 1;
}

int config_check(const struct hearth_config *c, struct error *error)
{
    if (!little_endian())
        return error_set(error, HEARTH_UNSUPPORTED, RANK_NONE,
                         "open: this machine is big-endian; elements travel as they stand in memory");
    if (c->size != sizeof *c)
        return error_set(error, HEARTH_INVALID, RANK_NONE,
                         "config: size is %zu, not %zu: call hearth_config_init", c->size, sizeof *c);
    if (c->algo < HEARTH_AUTO || c->algo > HEARTH_EXCHANGE)
        return error_set(error, HEARTH_INVALID, RANK_NONE, "config: algo is %d, which there is not",
                         (int)c->algo);
    if (c->log_level < HEARTH_LOG_ERROR || c->log_level > HEARTH_LOG_DEBUG)
        return error_set(error, HEARTH_INVALID, RANK_NONE, "config: log_level is %d, which there is not",
                         (int)c->log_level);
    int status =
        out_of_range(error, "op_timeout_ms", (uint64_t)c->op_timeout_ms, 1, (uint64_t)TIMEOUT_MS_MAX);
    if (status == HEARTH_OK)
        status = out_of_range(error, "chunk_bytes", c->chunk_bytes, BYTES_MIN, CHUNK_BYTES_MAX);
    if (status == HEARTH_OK)
        status = out_of_range(error, "window_bytes", c->window_bytes, BYTES_MIN, SIZE_MAX / 2);
    if (status == HEARTH_OK)
        status = out_of_range(error, "eager_bytes", c->eager_bytes, BYTES_MIN, EAGER_BYTES_MAX);
    if (status == HEARTH_OK)
        status = out_of_range(error, "ops_max", c->ops_max, 1, 1u << 20);
    if (status == HEARTH_OK)
        status = out_of_range(error, "spin_us", c->spin_us, 0, 1000000);
    return status;
}
