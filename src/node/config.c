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
#include "node/environment.h"
#include "node/node.h"
#include "node/opening.h"
#include "os/host.h"

#define BYTES_MIN          16384u /* chunk, window, eager */
#define CHUNK_BYTES_MAX    (16u << 20)
#define EAGER_BYTES_MAX    (64u << 20)
#define CONNECTIONS_MAX    8u
#define LINK_MBPS_MAX      1000000u
#define DATAGRAM_MIN       1200u /* the minimum of QUIC */
#define DATAGRAM_BYTES_MAX 65507u
#define RETRIES_MAX        1000u
#define PEER_TIMEOUT_MIN   100u /* ms; pings go out once a second, but answers to frames count too */
#define TIMEOUT_MS_MAX     (INT64_C(365) * 24 * 3600 * 1000)
#define RATE_MIN           UINT64_C(64000) /* bits a second: below, pings alone fill the line */
#define RATE_MAX           UINT64_C(1000000000000)
#define THREADS_MAX        64u
#define COUNT_MAX          65536u /* of ranks, members, descriptors */

static const struct hearth_tuning tuning_defaults = {
    .size = sizeof tuning_defaults,
    .chunk_bytes = 256u << 10,
    .window_bytes = 4u << 20,
    .eager_bytes = 256u << 10,
    .compressed_allreduce_max_bytes = (size_t)4 << 30,
    .connect_timeout_ms = 5000,
    .connect_retries = 3,
    .ops_max = 1024,
    .spin_us = 200,
    .algo = HEARTH_ALGO_AUTO,
};

void hearth_tuning_init_sized(struct hearth_tuning *tuning, size_t size)
{
    sized_write(tuning, size, &tuning_defaults, sizeof tuning_defaults);
}

const struct hearth_tuning *tuning_of(const struct hearth_config *config)
{
    return config->tuning ? config->tuning : &tuning_defaults;
}

void hearth_config_init_sized(struct hearth_config *config, size_t size)
{
    const struct hearth_config defaults = {
        .op_timeout_ms = 30 * 60 * 1000,
        .log_level = HEARTH_LOG_WARN,
        .job = "hearth",
        .rank = -1,
        .port = 52416,
        .transport = "auto",
        .link_mbps = 1000,
        .open_timeout_ms = 60 * 1000,
        .peer_timeout_ms = 30 * 1000,
        .health = "default",
        .form_timeout_ms = 5 * 60 * 1000,
        .codec = "none",
        .compress_threads = 1,
    };
    sized_write(config, size, &defaults, sizeof defaults);
}

int config_read(struct hearth_config *own, struct hearth_tuning *tuning, const struct hearth_config *given,
                struct error *error)
{
    hearth_config_init(own);
    hearth_tuning_init(tuning);
    int status = given ? sized_read(own, sizeof *own, given, "config", error) : HEARTH_OK;
    if (status == HEARTH_OK && own->tuning)
        status = sized_read(tuning, sizeof *tuning, own->tuning, "tuning", error);
    own->tuning = tuning;
    return status;
}

/* ---- numbers ---- */

/* A numeric field: the variable has the same name in capitals, after HEARTH_. */
struct config_number {
    size_t offset, width;
    bool has_sign;
    const char *name;
    uint64_t min, max;
    bool suffix; /* K, M, G may follow */
    bool open;   /* the program may set other values than the variable: checked elsewhere, or not at all */
};

#define HAS_SIGN(field) _Generic((field), int : true, int64_t : true, default : false)
#define FIELD(type, field)                                                                                   \
    offsetof(struct type, field), sizeof(((struct type *)0)->field), HAS_SIGN(((struct type *)0)->field),    \
        #field
#define TIMEOUT_MAX_U ((uint64_t)TIMEOUT_MS_MAX)

static const struct config_number config_numbers[] = {
    {FIELD(hearth_config, op_timeout_ms), 1, TIMEOUT_MAX_U, false, false},
    {FIELD(hearth_config, memory_max), 0, SIZE_MAX / 2, true, true},
    {FIELD(hearth_config, rank), 0, COUNT_MAX - 1, false, true},
    {FIELD(hearth_config, world_size), 1, COUNT_MAX, false, true},
    {FIELD(hearth_config, port), 0, UINT16_MAX, false, false},
    {FIELD(hearth_config, link_mbps), 1, LINK_MBPS_MAX, false, false},
    {FIELD(hearth_config, open_timeout_ms), 1, TIMEOUT_MAX_U, false, false},
    {FIELD(hearth_config, peer_timeout_ms), PEER_TIMEOUT_MIN, TIMEOUT_MAX_U, false, false},
    {FIELD(hearth_config, form_timeout_ms), 1, TIMEOUT_MAX_U, false, false},
    {FIELD(hearth_config, trust_network), 0, 1, false, false},
    {FIELD(hearth_config, plain), 0, 1, false, false},
    {FIELD(hearth_config, compress_threads), 1, THREADS_MAX, false, false},
};

static const struct config_number tuning_numbers[] = {
    {FIELD(hearth_tuning, chunk_bytes), BYTES_MIN, CHUNK_BYTES_MAX, true, false},
    {FIELD(hearth_tuning, window_bytes), BYTES_MIN, SIZE_MAX / 2, true, false},
    {FIELD(hearth_tuning, eager_bytes), BYTES_MIN, EAGER_BYTES_MAX, true, false},
    {FIELD(hearth_tuning, compressed_allreduce_max_bytes), 0, SIZE_MAX / 2, true, false},
    {FIELD(hearth_tuning, connect_timeout_ms), 1, TIMEOUT_MAX_U, false, false},
    {FIELD(hearth_tuning, connect_retries), 0, RETRIES_MAX, false, false},
    {FIELD(hearth_tuning, connections), 0, CONNECTIONS_MAX, false, false},
    {FIELD(hearth_tuning, datagram_bytes), 0, DATAGRAM_BYTES_MAX, false, false},
    {FIELD(hearth_tuning, ops_max), 1, 1u << 20, false, false},
    {FIELD(hearth_tuning, spin_us), 0, 1000000, false, false},
};

static const struct config_number environment_numbers[] = {
    {FIELD(hearth_environment, secret_fd), 0, COUNT_MAX - 1, false, true},
};

#define COUNT_OF(array) (sizeof(array) / sizeof *(array))

/* Little-endian: big-endian machines are refused before a number counts. A negative number is above every
 * maximum. */
static uint64_t number_get(const struct config_number *n, const void *from)
{
    uint64_t value = 0;
    memcpy(&value, (const uint8_t *)from + n->offset, n->width);
    return n->has_sign && n->width == sizeof(int32_t) ? (uint64_t)(int32_t)value : value;
}

static void number_set(const struct config_number *n, void *to, uint64_t value)
{
    memcpy((uint8_t *)to + n->offset, &value, n->width);
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

/* A whole number, or one with up to nine decimals and a unit: "100mbit", "2.5gbit". Not by strtod, which
 * depends on the locale. */
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

static int read_numbers(const struct config_number *numbers, size_t count, void *into)
{
    for (size_t i = 0; i < count; i++) {
        const struct config_number *n = &numbers[i];
        char name[64] = "HEARTH_";
        uint64_t value;
        for (size_t at = strlen(name), k = 0; n->name[k] != '\0'; k++, at++)
            name[at] = n->name[k] >= 'a' && n->name[k] <= 'z' ? (char)(n->name[k] - 'a' + 'A') : n->name[k];
        const char *text = getenv(name);
        if (!text)
            continue;
        if (parse_number(text, n->suffix, n->min, n->max, &value) != HEARTH_OK)
            return error_set(error_last(), HEARTH_INVALID, RANK_NONE,
                             "%s is \"%s\"; it takes a whole number%s from %" PRIu64 " to %" PRIu64, name,
                             text, n->suffix ? " (K, M, G allowed)" : "", n->min, n->max);
        number_set(n, into, value);
    }
    return HEARTH_OK;
}

static int read_names(struct hearth_config *c, struct hearth_tuning *tuning)
{
    const char *algo = getenv("HEARTH_ALGO"), *level = getenv("HEARTH_LOG_LEVEL");
    const char *transport = getenv("HEARTH_TRANSPORT");
    enum mesh_choice choice;
    if (algo && hearth_algo_parse(algo, &tuning->algo) != HEARTH_OK)
        return error_set(
            error_last(), HEARTH_INVALID, RANK_NONE,
            "HEARTH_ALGO is \"%s\"; it takes auto, ring, direct, halving, tree, star, hierarchical or "
            "exchange",
            algo);
    if (level && parse_level(level, &c->log_level) != HEARTH_OK)
        return error_set(error_last(), HEARTH_INVALID, RANK_NONE,
                         "HEARTH_LOG_LEVEL is \"%s\"; it takes error, warn, info or debug", level);
    if (transport && !opening_transport(transport, &choice))
        return error_set(error_last(), HEARTH_INVALID, RANK_NONE,
                         "HEARTH_TRANSPORT is \"%s\"; it takes auto, tcp, quic or shm", transport);
    return HEARTH_OK;
}

static bool discover_known(const char *text)
{
    return strcmp(text, "mdns") == 0 || strcmp(text, "off") == 0;
}

/* Settings of compression and slow lines. */
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

/* The folder of key and secret. The standard says to ignore a relative path. */
static int read_folder(struct hearth_environment *e)
{
    const char *config = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
    int len = 0;
    memset(e->folder, 0, sizeof e->folder);
    if (config && config[0] == '/')
        len = snprintf(e->folder, sizeof e->folder, "%s/hearth", config);
    else if (home && home[0] == '/')
        len = snprintf(e->folder, sizeof e->folder, "%s/.config/hearth", home);
    if (len >= (int)sizeof e->folder)
        return error_set(
            error_last(), HEARTH_INVALID, RANK_NONE,
            "%s is longer than %zu bytes: give HEARTH_KEY_FILE and HEARTH_SECRET_FILE, and unset it",
            config && config[0] == '/' ? "XDG_CONFIG_HOME" : "HOME",
            sizeof e->folder - sizeof "/.config/hearth");
    return HEARTH_OK;
}

static const char *environment(void *arg, const char *name)
{
    (void)arg;
    return getenv(name);
}

/* Fills in missing values from the launcher. */
static int read_launcher(struct hearth_config *c, struct hearth_environment *e)
{
    struct launch launch;
    /* With a given meeting place the launcher's ranks may belong to another job. */
    bool given = c->peers || c->rendezvous || c->world_size > 0;
    if (given && c->rank >= 0)
        return HEARTH_OK;
    int status = launch_read(environment, NULL, host_parent(), host_user(), &launch, error_last());
    if (status != HEARTH_OK)
        return status;
    c->rank = c->rank < 0 ? launch.rank : c->rank;
    c->world_size = c->world_size == 0 && !c->peers ? launch.world_size : c->world_size;
    memset(e->rendezvous, 0, sizeof e->rendezvous);
    if (!c->peers && !c->rendezvous)
        snprintf(e->rendezvous, sizeof e->rendezvous, "%s", launch.rendezvous);
    return HEARTH_OK;
}

/* Settings of a home cluster. The strings are read with the others. */
static int read_home(void)
{
    const char *discover = getenv("HEARTH_DISCOVER"), *health = getenv("HEARTH_HEALTH");
    if (discover && !discover_known(discover))
        return error_set(error_last(), HEARTH_INVALID, RANK_NONE,
                         "HEARTH_DISCOVER is \"%s\"; it takes mdns or off", discover);
    if (health && !health_preset_find(health))
        return error_set(error_last(), HEARTH_INVALID, RANK_NONE,
                         "HEARTH_HEALTH is \"%s\"; it takes default, low-latency or high-latency", health);
    return HEARTH_OK;
}

/* Reads all first, so that either all values are taken or none. */
struct findings {
    struct hearth_config config;
    struct hearth_tuning tuning;
    struct hearth_environment environment;
};

static int find_all(struct findings *f)
{
    int status = read_numbers(config_numbers, COUNT_OF(config_numbers), &f->config);
    if (status == HEARTH_OK)
        status = read_numbers(tuning_numbers, COUNT_OF(tuning_numbers), &f->tuning);
    if (status == HEARTH_OK)
        status = read_numbers(environment_numbers, COUNT_OF(environment_numbers), &f->environment);
    if (status == HEARTH_OK)
        status = read_names(&f->config, &f->tuning);
    if (status == HEARTH_OK)
        status = read_line(&f->config);
    if (status == HEARTH_OK)
        status = read_folder(&f->environment);
    if (status == HEARTH_OK)
        status = read_home();
    if (status != HEARTH_OK)
        return status;
    read_strings(&f->config);
    return read_launcher(&f->config, &f->environment);
}

int hearth_config_env(struct hearth_config *config)
{
    struct findings found;
    struct hearth_tuning before;
    int status = config_read(&found.config, &before, config, error_last());
    if (status == HEARTH_OK && !config)
        status =
            error_set(error_last(), HEARTH_INVALID, RANK_NONE, "config_env: hearth_config_init comes first");
    if (status != HEARTH_OK)
        return status;
    found.tuning = before;
    found.environment = *environment_of(&found.config);
    status = find_all(&found);
    if (status != HEARTH_OK)
        return status;
    struct hearth_config *c = &found.config;
    const struct hearth_tuning *given =
        config->size >= offsetof(struct hearth_config, tuning) + sizeof given ? config->tuning : NULL;
    bool tuned = memcmp(&found.tuning, &before, sizeof before) != 0;
    bool left = memcmp(&found.environment, environment_of(c), sizeof found.environment) != 0;
    c->tuning = tuned ? kept_forever(&found.tuning, sizeof found.tuning) : given;
    c->environment = left ? kept_forever(&found.environment, sizeof found.environment) : c->environment;
    if ((tuned && !c->tuning) || (left && !c->environment))
        return error_set(error_last(), HEARTH_NO_MEMORY, RANK_NONE, "config_env: no memory");
    sized_write(config, config->size, c, sizeof *c);
    return HEARTH_OK;
}

/* ---- checks ---- */

static int check_numbers(const struct config_number *numbers, size_t count, const void *of,
                         struct error *error)
{
    for (size_t i = 0; i < count; i++) {
        const struct config_number *n = &numbers[i];
        uint64_t value = number_get(n, of);
        char text[24];
        if (n->open || (value >= n->min && value <= n->max))
            continue;
        if (n->has_sign)
            snprintf(text, sizeof text, "%" PRId64, (int64_t)value);
        else
            snprintf(text, sizeof text, "%" PRIu64, value);
        return error_set(error, HEARTH_INVALID, RANK_NONE,
                         "config: %s is %s; it must be from %" PRIu64 " to %" PRIu64, n->name, text, n->min,
                         n->max);
    }
    return HEARTH_OK;
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
        return error_set(error, HEARTH_INVALID, RANK_NONE, "config: roles: unknown bits %x",
                         (unsigned)(c->roles & ~roles));
    return HEARTH_OK;
}

int config_check(const struct hearth_config *c, struct error *error)
{
    if (!little_endian())
        return error_set(error, HEARTH_UNSUPPORTED, RANK_NONE,
                         "open: this machine is big-endian; elements travel as they stand in memory");
    const struct hearth_tuning *tuning = tuning_of(c);
    if (tuning->algo < HEARTH_ALGO_AUTO || tuning->algo > HEARTH_ALGO_EXCHANGE)
        return error_set(error, HEARTH_INVALID, RANK_NONE, "config: algo: unknown algorithm %d",
                         (int)tuning->algo);
    if (tuning->datagram_bytes > 0 && tuning->datagram_bytes < DATAGRAM_MIN)
        return error_set(error, HEARTH_INVALID, RANK_NONE,
                         "config: datagram_bytes is %" PRIu32 "; it must be 0, or from %u to %u",
                         tuning->datagram_bytes, DATAGRAM_MIN, DATAGRAM_BYTES_MAX);
    if (c->log_level < HEARTH_LOG_ERROR || c->log_level > HEARTH_LOG_DEBUG)
        return error_set(error, HEARTH_INVALID, RANK_NONE, "config: log_level: unknown level %d",
                         (int)c->log_level);
    int status = check_line(c, error);
    if (status == HEARTH_OK)
        status = check_home(c, error);
    if (status == HEARTH_OK)
        status = check_numbers(config_numbers, COUNT_OF(config_numbers), c, error);
    return status == HEARTH_OK ? check_numbers(tuning_numbers, COUNT_OF(tuning_numbers), tuning, error)
                               : status;
}
