/* SPDX-License-Identifier: Apache-2.0 */
/* Configuration: defaults, the environment, checks. Settings are read from the environment here alone. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compress/codec.h"
#include "core/sized.h"
#include "membership/health.h"
#include "membership/view.h"
#include "node/launch.h"
#include "node/node.h"
#include "os/host.h"

#define BYTES_MIN          16384u /* chunk, window, eager */
#define CHUNK_BYTES_MAX    (16u << 20)
#define EAGER_BYTES_MAX    (64u << 20)
#define CONNECTIONS_MAX    8u
#define LINK_MBPS_MAX      1000000u
#define DATAGRAM_MIN       1200u /* less, QUIC does not allow */
#define DATAGRAM_BYTES_MAX 65507u
#define RETRIES_MAX        1000u
#define PEER_TIMEOUT_MIN   100u /* ms; pings go out once a second, but answers to frames count too */
#define TIMEOUT_MS_MAX     (INT64_C(365) * 24 * 3600 * 1000)
#define RATE_MIN           UINT64_C(64000) /* bits a second: with less, pings alone fill the line */
#define RATE_MAX           UINT64_C(1000000000000)
#define THREADS_MAX        64u
#define COUNT_MAX          65536u /* of ranks, members, descriptors */

void hearth_config_init_sized(struct hearth_config *config, size_t size)
{
    const struct hearth_config defaults = {
        .op_timeout_ms = 30 * 60 * 1000,
        .chunk_bytes = 256u << 10,
        .window_bytes = 4u << 20,
        .eager_bytes = 256u << 10,
        .ops_max = 1024,
        .spin_us = 200,
        .algo = HEARTH_ALGO_AUTO,
        .log_level = HEARTH_LOG_WARN,
        .job = "hearth",
        .rank = -1,
        .port = 52416,
        .transport = "auto",
        .link_mbps = 1000,
        .open_timeout_ms = 60 * 1000,
        .connect_timeout_ms = 5000,
        .connect_retries = 3,
        .peer_timeout_ms = 30 * 1000,
        .health = "default",
        .min_peers = 1,
        .form_timeout_ms = 5 * 60 * 1000,
        .secret_fd = -1,
        .codec = "none",
        .compressed_allreduce_max_bytes = (size_t)4 << 30,
        .compress_threads = 1,
    };
    sized_write(config, size, &defaults, sizeof defaults);
}

int config_read(struct hearth_config *own, const struct hearth_config *given, struct error *error)
{
    hearth_config_init(own);
    return sized_read(own, sizeof *own, given, "config", error);
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

/* A whole number, or one with up to nine digits behind the point and a unit: "100mbit", "2.5gbit". Not by
 * strtod, which reads the point by the locale. */
static int parse_rate(const char *text, uint64_t *out)
{
    static const struct {
        const char *name;
        uint64_t bits;
    } units[] = {{"", 1}, {"bit", 1}, {"kbit", 1000}, {"mbit", 1000000}, {"gbit", 1000000000}};
    const char *at = text;
    uint64_t whole = 0, part = 0, scale = 1;
    for (; *at >= '0' && *at <= '9' && whole <= RATE_MAX; at++)
        whole = whole * 10 + (uint64_t)(*at - '0');
    if (at == text || whole > RATE_MAX)
        return HEARTH_INVALID;
    if (*at == '.')
        for (at++; *at >= '0' && *at <= '9' && scale < 1000000000; at++, scale *= 10)
            part = part * 10 + (uint64_t)(*at - '0');
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        if (strcmp(at, units[i].name) != 0 || whole > RATE_MAX / units[i].bits)
            continue;
        uint64_t rate = whole * units[i].bits + part * units[i].bits / scale;
        if (rate != 0 && (rate < RATE_MIN || rate > RATE_MAX))
            return HEARTH_INVALID;
        *out = rate;
        return HEARTH_OK;
    }
    return HEARTH_INVALID;
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
        if (!text)
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
    if (algo && hearth_algo_parse(algo, &c->algo) != HEARTH_OK)
        return error_set(
            error_last(), HEARTH_INVALID, RANK_NONE,
            "HEARTH_ALGO is \"%s\"; it takes auto, ring, direct, halving, tree, star, hierarchical or "
            "exchange",
            algo);
    if (level && parse_level(level, &c->log_level) != HEARTH_OK)
        return error_set(error_last(), HEARTH_INVALID, RANK_NONE,
                         "HEARTH_LOG_LEVEL is \"%s\"; it takes error, warn, info or debug", level);
    return HEARTH_OK;
}

static bool discover_known(const char *text)
{
    return strcmp(text, "mdns") == 0 || strcmp(text, "off") == 0;
}

/* What concerns compression and slow lines. */
static int read_line(struct hearth_config *c)
{
    struct codec_list list;
    struct error why;
    const char *rate = getenv("HEARTH_RATE"), *codec = getenv("HEARTH_CODEC");
    if (rate && parse_rate(rate, &c->rate) != HEARTH_OK)
        return error_set(error_last(), HEARTH_INVALID, RANK_NONE,
                         "HEARTH_RATE is \"%s\"; it takes bits a second, 100mbit or 2.5gbit, from %" PRIu64
                         " to %" PRIu64 ", or 0 for no limit",
                         rate, RATE_MIN, RATE_MAX);
    if (codec && codec_parse(codec, &list, &why) != HEARTH_OK)
        return error_set(error_last(), HEARTH_INVALID, RANK_NONE, "HEARTH_CODEC is \"%s\": %s", codec,
                         why.text);
    c->codec = codec ? codec : c->codec;
    return HEARTH_OK;
}

static void read_strings(struct hearth_config *c)
{
    const struct {
        const char *name, **field;
    } strings[] = {
        {"HEARTH_PEERS", &c->peers},
        {"HEARTH_RENDEZVOUS", &c->rendezvous},
        {"HEARTH_JOB", &c->job},
        {"HEARTH_BIND", &c->bind},
        {"HEARTH_ADVERTISE", &c->advertise},
        {"HEARTH_TRANSPORT", &c->transport},
        {"HEARTH_SITE", &c->site},
        {"HEARTH_SECRET", &c->secret},
        {"HEARTH_SECRET_FILE", &c->secret_file},
        {"HEARTH_KEY_FILE", &c->key_file},
        {"HEARTH_DISCOVER", &c->discover},
        {"HEARTH_SEEDS", &c->seeds},
        {"HEARTH_MDNS", &c->mdns},
        {"HEARTH_HEALTH", &c->health},
    };
    for (size_t i = 0; i < sizeof strings / sizeof *strings; i++)
        if (getenv(strings[i].name))
            *strings[i].field = getenv(strings[i].name);
}

/* Where key and secret are kept. A path that does not start at the root means nothing, says the standard. */
static int read_folder(struct hearth_config *c)
{
    const char *config = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
    int len = 0;
    if (config && config[0] == '/')
        len = snprintf(c->folder, sizeof c->folder, "%s/hearth", config);
    else if (home && home[0] == '/')
        len = snprintf(c->folder, sizeof c->folder, "%s/.config/hearth", home);
    if (len >= (int)sizeof c->folder)
        return error_set(
            error_last(), HEARTH_INVALID, RANK_NONE,
            "%s is longer than %zu bytes: give HEARTH_KEY_FILE and HEARTH_SECRET_FILE, and unset it",
            config && config[0] == '/' ? "XDG_CONFIG_HOME" : "HOME",
            sizeof c->folder - sizeof "/.config/hearth");
    return HEARTH_OK;
}

static const char *environment(void *arg, const char *name)
{
    (void)arg;
    return getenv(name);
}

/* What nobody said so far, the launcher may know. */
static int read_launcher(struct hearth_config *c)
{
    struct launch launch;
    /* A place to meet that was given is not the launcher's: then its ranks may be another job's. */
    bool given = c->peers || c->rendezvous || c->world_size > 0;
    if (given && c->rank >= 0)
        return HEARTH_OK;
    int status = launch_read(environment, NULL, host_parent(), host_user(), &launch, error_last());
    if (status != HEARTH_OK)
        return status;
    c->rank = c->rank < 0 ? launch.rank : c->rank;
    c->world_size = c->world_size == 0 && !c->peers ? launch.world_size : c->world_size;
    if (!c->peers && !c->rendezvous)
        snprintf(c->launcher, sizeof c->launcher, "%s", launch.rendezvous);
    return HEARTH_OK;
}

/* What concerns encryption; the strings are read with the others. */
static int read_trust(struct hearth_config *c)
{
    uint64_t trust = c->trust_network != 0, plain = c->plain != 0;
    uint64_t secret_fd = c->secret_fd < 0 ? COUNT_MAX : (uint64_t)c->secret_fd;
    const struct variable variables[] = {
        {"HEARTH_TRUST_NETWORK", false, 0, 1, &trust},
        {"HEARTH_PLAIN", false, 0, 1, &plain},
        {"HEARTH_SECRET_FD", false, 0, COUNT_MAX - 1, &secret_fd},
    };
    int status = read_numbers(variables, sizeof variables / sizeof *variables);
    if (status != HEARTH_OK)
        return status;
    c->trust_network = (int)trust;
    c->plain = (int)plain;
    c->secret_fd = secret_fd == COUNT_MAX ? -1 : (int)secret_fd;
    return read_folder(c);
}

/* What concerns a home cluster. */
static int read_home(struct hearth_config *c)
{
    uint64_t peers = c->min_peers, forming = (uint64_t)c->form_timeout_ms;
    const struct variable variables[] = {
        {"HEARTH_MIN_PEERS", false, 0, VIEW_MEMBERS_MAX - 1, &peers},
        {"HEARTH_FORM_TIMEOUT_MS", false, 1, (uint64_t)TIMEOUT_MS_MAX, &forming},
    };
    const char *discover = getenv("HEARTH_DISCOVER"), *health = getenv("HEARTH_HEALTH");
    int status = read_numbers(variables, sizeof variables / sizeof *variables);
    if (status != HEARTH_OK)
        return status;
    if (discover && !discover_known(discover))
        return error_set(error_last(), HEARTH_INVALID, RANK_NONE,
                         "HEARTH_DISCOVER is \"%s\"; it takes mdns or off", discover);
    if (health && !health_preset_find(health))
        return error_set(error_last(), HEARTH_INVALID, RANK_NONE,
                         "HEARTH_HEALTH is \"%s\"; it takes default, low-latency or high-latency", health);
    c->min_peers = (uint32_t)peers;
    c->form_timeout_ms = (int64_t)forming;
    return HEARTH_OK;
}

int hearth_config_env(struct hearth_config *config)
{
    struct hearth_config c;
    int status = config_read(&c, config, error_last());
    if (status != HEARTH_OK)
        return status;
    uint64_t timeout = (uint64_t)c.op_timeout_ms, chunk = c.chunk_bytes, window = c.window_bytes;
    uint64_t eager = c.eager_bytes, memory = c.memory_max, ops = c.ops_max, spin = c.spin_us;
    uint64_t rank = c.rank < 0 ? COUNT_MAX : (uint64_t)c.rank, members = (uint64_t)c.world_size,
             port = c.port;
    uint64_t connections = c.connections, rate = c.link_mbps, opening = (uint64_t)c.open_timeout_ms;
    uint64_t connecting = (uint64_t)c.connect_timeout_ms, retries = c.connect_retries;
    uint64_t silence = (uint64_t)c.peer_timeout_ms;
    uint64_t shadows = c.compressed_allreduce_max_bytes, threads = c.compress_threads;
    uint64_t datagram = c.datagram_bytes;
    const struct variable variables[] = {
        {"HEARTH_OP_TIMEOUT_MS", false, 1, (uint64_t)TIMEOUT_MS_MAX, &timeout},
        {"HEARTH_CHUNK_BYTES", true, BYTES_MIN, CHUNK_BYTES_MAX, &chunk},
        {"HEARTH_WINDOW_BYTES", true, BYTES_MIN, SIZE_MAX / 2, &window},
        {"HEARTH_EAGER_BYTES", true, BYTES_MIN, EAGER_BYTES_MAX, &eager},
        {"HEARTH_MEMORY_MAX", true, 0, SIZE_MAX / 2, &memory},
        {"HEARTH_OPS_MAX", false, 1, 1u << 20, &ops},
        {"HEARTH_SPIN_US", false, 0, 1000000, &spin},
        {"HEARTH_RANK", false, 0, COUNT_MAX - 1, &rank},
        {"HEARTH_WORLD_SIZE", false, 1, COUNT_MAX, &members},
        {"HEARTH_PORT", false, 0, UINT16_MAX, &port},
        {"HEARTH_CONNECTIONS", false, 0, CONNECTIONS_MAX, &connections},
        {"HEARTH_DATAGRAM_BYTES", false, 0, DATAGRAM_BYTES_MAX, &datagram},
        {"HEARTH_LINK_MBPS", false, 1, LINK_MBPS_MAX, &rate},
        {"HEARTH_OPEN_TIMEOUT_MS", false, 1, (uint64_t)TIMEOUT_MS_MAX, &opening},
        {"HEARTH_CONNECT_TIMEOUT_MS", false, 1, (uint64_t)TIMEOUT_MS_MAX, &connecting},
        {"HEARTH_CONNECT_RETRIES", false, 0, RETRIES_MAX, &retries},
        {"HEARTH_PEER_TIMEOUT_MS", false, PEER_TIMEOUT_MIN, (uint64_t)TIMEOUT_MS_MAX, &silence},
        {"HEARTH_COMPRESSED_ALLREDUCE_MAX_BYTES", true, 0, SIZE_MAX / 2, &shadows},
        {"HEARTH_COMPRESS_THREADS", false, 1, THREADS_MAX, &threads},
    };
    status = read_numbers(variables, sizeof variables / sizeof *variables);
    if (status == HEARTH_OK)
        status = read_names(&c);
    if (status == HEARTH_OK)
        status = read_line(&c);
    if (status == HEARTH_OK)
        status = read_trust(&c);
    if (status == HEARTH_OK)
        status = read_home(&c);
    if (status != HEARTH_OK)
        return status;
    c.op_timeout_ms = (int64_t)timeout;
    c.chunk_bytes = chunk;
    c.window_bytes = window;
    c.eager_bytes = eager;
    c.memory_max = memory;
    c.ops_max = (uint32_t)ops;
    c.spin_us = (uint32_t)spin;
    c.rank = rank == COUNT_MAX ? -1 : (int)rank;
    c.world_size = (int)members;
    c.port = (uint16_t)port;
    c.connections = (uint32_t)connections;
    c.datagram_bytes = (uint32_t)datagram;
    c.link_mbps = (uint32_t)rate;
    c.open_timeout_ms = (int64_t)opening;
    c.connect_timeout_ms = (int64_t)connecting;
    c.connect_retries = (uint32_t)retries;
    c.peer_timeout_ms = (int64_t)silence;
    c.compressed_allreduce_max_bytes = shadows;
    c.compress_threads = (uint32_t)threads;
    read_strings(&c);
    status = read_launcher(&c);
    if (status == HEARTH_OK)
        sized_write(config, config->size, &c, sizeof c);
    return status;
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

static int check_line(const struct hearth_config *c, struct error *error)
{
    struct codec_list list;
    struct error why;
    if (c->rate != 0 && (c->rate < RATE_MIN || c->rate > RATE_MAX))
        return error_set(error, HEARTH_INVALID, RANK_NONE,
                         "config: rate is %" PRIu64 " bits a second; it must be 0, or from %" PRIu64
                         " to %" PRIu64,
                         c->rate, RATE_MIN, RATE_MAX);
    if (codec_parse(c->codec, &list, &why) != HEARTH_OK)
        return error_set(error, HEARTH_INVALID, RANK_NONE, "config: codec: %s", why.text);
    return HEARTH_OK;
}

static int check_home(const struct hearth_config *c, struct error *error)
{
    const uint32_t roles = HEARTH_ROLE_DEMO | HEARTH_ROLE_BENCH | HEARTH_ROLE_GUEST;
    if (c->discover && !discover_known(c->discover))
        return error_set(error, HEARTH_INVALID, RANK_NONE, "config: discover is \"%s\"; it takes mdns or off",
                         c->discover);
    if (!c->health || !health_preset_find(c->health))
        return error_set(error, HEARTH_INVALID, RANK_NONE,
                         "config: health is \"%s\"; it takes default, low-latency or high-latency",
                         c->health ? c->health : "(null)");
    if ((c->roles & ~roles) != 0)
        return error_set(error, HEARTH_INVALID, RANK_NONE, "config: roles has bits that there are not: %x",
                         (unsigned)(c->roles & ~roles));
    return HEARTH_OK;
}

int config_check(const struct hearth_config *c, struct error *error)
{
    if (!little_endian())
        return error_set(error, HEARTH_UNSUPPORTED, RANK_NONE,
                         "open: this machine is big-endian; elements travel as they stand in memory");
    if (c->algo < HEARTH_ALGO_AUTO || c->algo > HEARTH_ALGO_EXCHANGE)
        return error_set(error, HEARTH_INVALID, RANK_NONE, "config: algo is %d, which there is not",
                         (int)c->algo);
    if (c->log_level < HEARTH_LOG_ERROR || c->log_level > HEARTH_LOG_DEBUG)
        return error_set(error, HEARTH_INVALID, RANK_NONE, "config: log_level is %d, which there is not",
                         (int)c->log_level);
    const struct {
        const char *name;
        uint64_t value, min, max;
    } ranges[] = {
        {"op_timeout_ms", (uint64_t)c->op_timeout_ms, 1, (uint64_t)TIMEOUT_MS_MAX},
        {"chunk_bytes", c->chunk_bytes, BYTES_MIN, CHUNK_BYTES_MAX},
        {"window_bytes", c->window_bytes, BYTES_MIN, SIZE_MAX / 2},
        {"eager_bytes", c->eager_bytes, BYTES_MIN, EAGER_BYTES_MAX},
        {"ops_max", c->ops_max, 1, 1u << 20},
        {"spin_us", c->spin_us, 0, 1000000},
        {"connections", c->connections, 0, CONNECTIONS_MAX},
        {"datagram_bytes", c->datagram_bytes, c->datagram_bytes > 0 ? DATAGRAM_MIN : 0, DATAGRAM_BYTES_MAX},
        {"link_mbps", c->link_mbps, 1, LINK_MBPS_MAX},
        {"open_timeout_ms", (uint64_t)c->open_timeout_ms, 1, (uint64_t)TIMEOUT_MS_MAX},
        {"connect_timeout_ms", (uint64_t)c->connect_timeout_ms, 1, (uint64_t)TIMEOUT_MS_MAX},
        {"connect_retries", c->connect_retries, 0, RETRIES_MAX},
        {"peer_timeout_ms", (uint64_t)c->peer_timeout_ms, PEER_TIMEOUT_MIN, (uint64_t)TIMEOUT_MS_MAX},
        {"min_peers", c->min_peers, 0, VIEW_MEMBERS_MAX - 1},
        {"form_timeout_ms", (uint64_t)c->form_timeout_ms, 1, (uint64_t)TIMEOUT_MS_MAX},
        {"compressed_allreduce_max_bytes", c->compressed_allreduce_max_bytes, 0, SIZE_MAX / 2},
        {"compress_threads", c->compress_threads, 1, THREADS_MAX},
    };
    int status = check_line(c, error);
    if (status == HEARTH_OK)
        status = check_home(c, error);
    for (size_t i = 0; status == HEARTH_OK && i < sizeof ranges / sizeof *ranges; i++)
        status = out_of_range(error, ranges[i].name, ranges[i].value, ranges[i].min, ranges[i].max);
    return status;
}
