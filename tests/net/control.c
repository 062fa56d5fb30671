/* SPDX-License-Identifier: Apache-2.0 */
/* Parses control lines: first all of a line, then, if it is good, it takes effect. */
#include "net/control.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_LEN     256
#define CHANGES_MAX  16
#define TIME_MAX_NS  (3600 * NS_PER_S)
#define QUEUE_MAX    (1024.0 * 1024 * 1024)
#define ALL_PORTS(f) ((f)->count == 32 ? UINT32_MAX : (UINT32_C(1) << (f)->count) - 1)

struct words {
    char text[LINE_LEN];
    char *word[WORDS_MAX];
    int count;
    char why[TEXT_LEN]; /* the error, "" for none */
};

__attribute__((format(printf, 2, 3))) static bool refuse(struct words *w, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(w->why, sizeof w->why, format, args);
    va_end(args);
    return false;
}

/* ---- values ---- */

struct unit {
    const char *name;
    double factor;
};

static const struct unit RATE_UNITS[] = {{"", 1},       {"k", 1e3},    {"m", 1e6},    {"g", 1e9},
                                         {"kbit", 1e3}, {"mbit", 1e6}, {"gbit", 1e9}, {NULL, 0}};
static const struct unit TIME_UNITS[] = {{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}, {"", 0}, {NULL, 0}};
static const struct unit LEN_UNITS[] = {{"", 1}, {"k", 1024}, {"m", 1024 * 1024}, {NULL, 0}};
static const struct unit SHARE_UNITS[] = {{"", 1}, {"%", 0.01}, {NULL, 0}};

/* A number with a unit, at most max after conversion. A unit with factor 0 is good only for the number 0. */
static bool parse_value(const char *text, const struct unit *unit, double max, double *value)
{
    char *end;
    if (!isdigit((unsigned char)text[0]) && text[0] != '.')
        return false; /* strtod would take "inf", signs and blanks */
    double number = strtod(text, &end);
    while (unit->name && strcmp(unit->name, end) != 0)
        unit++;
    if (!unit->name || (unit->factor == 0 && number > 0) || !(number * unit->factor <= max))
        return false;
    *value = number * unit->factor;
    return true;
}

static bool parse_rate(const char *text, double *value)
{
    *value = 0;
    return strcmp(text, "none") == 0 || parse_value(text, RATE_UNITS, (double)RATE_MAX, value);
}

static bool parse_time(const char *text, double *value)
{
    return parse_value(text, TIME_UNITS, (double)TIME_MAX_NS, value);
}

static bool parse_share(const char *text, double *value)
{
    return parse_value(text, SHARE_UNITS, 1, value);
}

/* A whole number below `limit`, at *text, which moves on. */
static bool parse_port(const char **text, int limit, int *port)
{
    char *end;
    if (!isdigit((unsigned char)**text))
        return false;
    long number = strtol(*text, &end, 10);
    if (number >= limit)
        return false;
    *port = (int)number;
    *text = end;
    return true;
}

/* "0,2", "*" or "all" as bits. */
static bool parse_ports(struct words *w, const struct fabric *f, const char *text, uint32_t *ports)
{
    const char *at = text;
    *ports = 0;
    if (strcmp(text, "*") == 0 || strcmp(text, "all") == 0) {
        *ports = ALL_PORTS(f);
        return true;
    }
    for (;;) {
        int port;
        if (!parse_port(&at, f->count, &port) || (*at != 0 && *at != ','))
            return refuse(w, "\"%s\": ports are 0 to %d, as in 0,2, or all", text, f->count - 1);
        *ports |= UINT32_C(1) << port;
        if (*at++ == 0)
            return true;
    }
}

/* ---- set ---- */

enum key {
    KEY_RATE,
    KEY_UP,
    KEY_DOWN,
    KEY_QUEUE,
    KEY_DELAY,
    KEY_JITTER,
    KEY_LOSS,
    KEY_GILBERT,
    KEY_REORDER,
    KEY_DUPLICATE,
    KEY_COUNT
};

static const struct {
    const char *name, *like;
    bool line; /* is it known for a>b? */
} KEYS[KEY_COUNT] = {
    [KEY_RATE] = {"rate", "100m or none", true},
    [KEY_UP] = {"up", "100m or none", false},
    [KEY_DOWN] = {"down", "100m or none", false},
    [KEY_QUEUE] = {"queue", "256k, 50ms or none", true},
    [KEY_DELAY] = {"delay", "10ms", true},
    [KEY_JITTER] = {"jitter", "2ms", true},
    [KEY_LOSS] = {"loss", "1%", true},
    [KEY_GILBERT] = {"gilbert", "ENTER/LEAVE or ENTER/LEAVE/LOSS, as in 1%/25%/100%", true},
    [KEY_REORDER] = {"reorder", "SHARE/TIME, as in 5%/2ms", true},
    [KEY_DUPLICATE] = {"duplicate", "1%", true},
};

struct change {
    enum key key;
    bool in_time; /* of a queue: value[0] is a time */
    double value[3];
};

/* "a/b/c" in place; how many parts, 0 for too many. */
static int split(char *text, char *part[3])
{
    int count = 0;
    for (char *at = text; at; count++) {
        if (count == 3)
            return 0;
        part[count] = at;
        at = strchr(at, '/');
        if (at)
            *at++ = 0;
    }
    return count;
}

static bool parse_gilbert(char *text, struct change *c)
{
    char *part[3];
    int count = split(text, part);
    c->value[1] = c->value[2] = 1;
    if (count == 1)
        return parse_share(part[0], &c->value[0]) && c->value[0] == 0;
    return count && parse_share(part[0], &c->value[0]) && parse_share(part[1], &c->value[1]) &&
           (count == 2 || parse_share(part[2], &c->value[2]));
}

static bool parse_reorder(char *text, struct change *c)
{
    char *part[3];
    int count = split(text, part);
    if (count == 1)
        return parse_share(part[0], &c->value[0]) && c->value[0] == 0;
    return count == 2 && parse_share(part[0], &c->value[0]) && parse_time(part[1], &c->value[1]);
}

static bool parse_queue(const char *text, struct change *c)
{
    if (strcmp(text, "none") == 0 || parse_value(text, LEN_UNITS, QUEUE_MAX, &c->value[0]))
        return true;
    c->in_time = true;
    return parse_time(text, &c->value[0]);
}

static bool parse_change(struct words *w, char *name, char *text, struct change *c)
{
    char said[64];
    bool good = false;
    *c = (struct change){.key = KEY_RATE};
    snprintf(said, sizeof said, "%s", text);
    while (c->key < KEY_COUNT && strcmp(KEYS[c->key].name, name) != 0)
        c->key++;
    switch (c->key) {
    case KEY_RATE:
    case KEY_UP:
    case KEY_DOWN:
        good = parse_rate(text, &c->value[0]);
        break;
    case KEY_QUEUE:
        good = parse_queue(text, c);
        break;
    case KEY_DELAY:
    case KEY_JITTER:
        good = parse_time(text, &c->value[0]);
        break;
    case KEY_LOSS:
    case KEY_DUPLICATE:
        good = parse_share(text, &c->value[0]);
        break;
    case KEY_GILBERT:
        good = parse_gilbert(text, c);
        break;
    case KEY_REORDER:
        good = parse_reorder(text, c);
        break;
    case KEY_COUNT:
        return refuse(
            w,
            "set: there is no \"%.40s\"; there are rate, up, down, queue, delay, jitter, loss, gilbert, "
            "reorder, duplicate",
            name);
    }
    return good || refuse(w, "set: %s \"%s\": say it like %s", name, said, KEYS[c->key].like);
}

/* What is booked already takes as much longer or shorter as the rate says. */
static void set_rate(struct stage *stage, double rate, uint64_t now)
{
    if (rate > 0 && stage->rate && stage->free_ns > now)
        stage->free_ns = now + (uint64_t)((double)(stage->free_ns - now) * (double)stage->rate / rate);
    stage->rate = (uint64_t)rate;
}

static void set_queue(struct stage *stage, const struct change *c)
{
    stage->queue_len = c->in_time ? 0 : (uint64_t)c->value[0];
    stage->queue_ns = c->in_time ? (uint64_t)c->value[0] : 0;
}

static void set_port(struct port *port, const struct change *c, uint64_t now)
{
    if (c->key == KEY_RATE || c->key == KEY_UP)
        set_rate(&port->up, c->value[0], now);
    if (c->key == KEY_RATE || c->key == KEY_DOWN)
        set_rate(&port->down, c->value[0], now);
    if (c->key == KEY_QUEUE)
        set_queue(&port->down, c);
}

static void set_effect(struct effects *e, const struct change *c)
{
    if (c->key == KEY_DELAY)
        e->delay_ns = (uint64_t)c->value[0];
    if (c->key == KEY_JITTER)
        e->jitter_ns = (uint64_t)c->value[0];
    if (c->key == KEY_LOSS)
        e->loss = c->value[0];
    if (c->key == KEY_DUPLICATE)
        e->duplicate = c->value[0];
    if (c->key == KEY_REORDER) {
        e->reorder = c->value[0];
        e->reorder_ns = (uint64_t)c->value[1];
    }
    if (c->key == KEY_GILBERT) {
        e->bad_enter = c->value[0];
        e->bad_leave = c->value[1];
        e->bad_loss = c->value[2];
    }
}

static void set_line(struct line *line, const struct change *c, uint64_t now)
{
    if (c->key == KEY_RATE)
        set_rate(&line->stage, c->value[0], now);
    if (c->key == KEY_QUEUE)
        set_queue(&line->stage, c);
    set_effect(&line->effects, c);
}

static void apply(struct fabric *f, uint32_t from, uint32_t to, bool lines, const struct change *c,
                  uint64_t now)
{
    for (int a = 0; a < f->count; a++) {
        if (!(from >> a & 1))
            continue;
        if (!lines)
            set_port(&f->ports[a], c, now);
        for (int b = 0; b < f->count; b++) {
            if (lines && to >> b & 1)
                set_line(&f->lines[a][b], c, now);
            else if (!lines)
                set_effect(&f->lines[a][b].effects, c);
        }
    }
}

static bool run_set(struct control *control, struct words *w, uint64_t now, FILE *answer)
{
    struct change changes[CHANGES_MAX];
    uint32_t from, to = ALL_PORTS(control->fabric);
    int count = (w->count - 2) / 2;
    (void)answer;
    if (w->count < 4 || w->count % 2 || count > CHANGES_MAX)
        return refuse(w, "set: say set WHERE KEY VALUE [KEY VALUE]..., as in set 0 rate 1g delay 10ms");
    char *arrow = strchr(w->word[1], '>');
    if (arrow)
        *arrow = 0;
    if (!parse_ports(w, control->fabric, w->word[1], &from) ||
        (arrow && !parse_ports(w, control->fabric, arrow + 1, &to)))
        return false;
    for (int i = 0; i < count; i++) {
        if (!parse_change(w, w->word[2 + 2 * i], w->word[3 + 2 * i], &changes[i]))
            return false;
        if (arrow && !KEYS[changes[i].key].line)
            return refuse(w, "set: %s belongs to a port, not to a line", KEYS[changes[i].key].name);
    }
    for (int i = 0; i < count; i++)
        apply(control->fabric, from, to, arrow, &changes[i], now);
    return true;
}

/* ---- the other commands ---- */

static bool run_partition(struct control *control, struct words *w, uint64_t now, FILE *answer)
{
    struct fabric *f = control->fabric;
    uint32_t sets[PORTS_MAX], seen = 0;
    int count = 0;
    (void)now;
    (void)answer;
    if (w->count != 2)
        return refuse(w, "partition: say which ports stay together, as in partition 0,1|2,3");
    for (char *at = w->word[1]; at; count++) {
        char *next = strchr(at, '|');
        if (next)
            *next++ = 0;
        if (count == PORTS_MAX || !parse_ports(w, f, at, &sets[count]))
            return *w->why ? false : refuse(w, "partition: more than %d sets", PORTS_MAX);
        if (seen & sets[count])
            return refuse(w, "partition: a port is in two sets");
        seen |= sets[count];
        at = next;
    }
    if (count < 2)
        return refuse(w, "partition: one set is no partition; heal joins all");
    for (int p = 0; p < f->count; p++) {
        f->ports[p].group = GROUP_ANY;
        for (int i = 0; i < count; i++)
            if (sets[i] >> p & 1)
                f->ports[p].group = i;
    }
    return true;
}

static bool run_freeze(struct control *control, struct words *w, uint64_t now, FILE *answer)
{
    uint32_t ports;
    (void)now;
    (void)answer;
    if (w->count != 2)
        return refuse(w, "%s: say which ports, as in %s 2", w->word[0], w->word[0]);
    if (!parse_ports(w, control->fabric, w->word[1], &ports))
        return false;
    for (int p = 0; p < control->fabric->count; p++)
        if (ports >> p & 1)
            control->fabric->ports[p].frozen = w->word[0][0] == 'f';
    return true;
}

static bool run_heal(struct control *control, struct words *w, uint64_t now, FILE *answer)
{
    (void)now;
    (void)answer;
    if (w->count != 1)
        return refuse(w, "heal: takes nothing");
    fabric_heal(control->fabric);
    return true;
}

static bool run_stats(struct control *control, struct words *w, uint64_t now, FILE *answer)
{
    (void)now;
    if (w->count != 1)
        return refuse(w, "stats: takes nothing");
    fputs("ok ", answer);
    fabric_stats(control->fabric, answer);
    return true;
}

static bool run_seed(struct control *control, struct words *w, uint64_t now, FILE *answer)
{
    char *end = NULL;
    (void)answer;
    if (w->count == 2 && isdigit((unsigned char)w->word[1][0])) {
        uint64_t seed = strtoull(w->word[1], &end, 0);
        if (*end == 0) {
            fabric_seed(control->fabric, seed, now);
            return true;
        }
    }
    return refuse(w, "seed: say a whole number, as in seed 42");
}

static const struct {
    const char *name;
    bool (*run)(struct control *control, struct words *w, uint64_t now, FILE *answer);
} COMMANDS[] = {
    {"set", run_set},   {"partition", run_partition}, {"freeze", run_freeze}, {"thaw", run_freeze},
    {"heal", run_heal}, {"stats", run_stats},         {"seed", run_seed},
};
#define COMMAND_COUNT (sizeof COMMANDS / sizeof COMMANDS[0])

static bool words_split(struct words *w, const char *line)
{
    char *save = NULL;
    w->count = 0;
    w->why[0] = 0;
    if (strlen(line) >= sizeof w->text)
        return refuse(w, "a line has at most %d bytes", LINE_LEN - 1);
    snprintf(w->text, sizeof w->text, "%s", line);
    for (char *at = strtok_r(w->text, " \t\r", &save); at; at = strtok_r(NULL, " \t\r", &save)) {
        if (w->count == WORDS_MAX)
            return refuse(w, "a line has at most %d words", WORDS_MAX);
        w->word[w->count++] = at;
    }
    return w->count > 0 || refuse(w, "an empty line");
}

static bool run_words(struct control *control, struct words *w, uint64_t now, FILE *answer)
{
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        if (strcmp(COMMANDS[i].name, w->word[0]) == 0)
            return COMMANDS[i].run(control, w, now, answer);
    return refuse(w, "there is no \"%.40s\"; there are set, partition, freeze, thaw, heal, stats, seed, at",
                  w->word[0]);
}

/* ---- at ---- */

/* Keeps a line for later. It is tried on a copy first, so that a bad one is refused now. */
static bool keep(struct control *control, struct words *w, const char *line, uint64_t now)
{
    double wait_ns;
    struct words rest;
    if (w->count < 3 || !parse_time(w->word[1], &wait_ns))
        return refuse(w, "at: say when and what, as in at 2.5s freeze 3");
    if (control->later_count == LATER_MAX)
        return refuse(w, "at: %d lines wait already", LATER_MAX);
    const char *what = line + (w->word[2] - w->text);
    struct control *trial = calloc(1, sizeof *trial);
    struct fabric *copy = malloc(sizeof *copy);
    bool good = trial && copy && strcmp(w->word[2], "at") != 0 && strcmp(w->word[2], "stats") != 0;
    if (!good)
        refuse(w, trial && copy ? "at: \"at\" and \"stats\" are for now only" : "no memory");
    if (good) {
        *copy = *control->fabric;
        trial->fabric = copy;
        good = words_split(&rest, what) && run_words(trial, &rest, now, NULL);
        if (!good)
            refuse(w, "at: %.200s", rest.why);
    }
    free(copy);
    free(trial);
    if (!good)
        return false;
    uint64_t at_ns = now + (uint64_t)wait_ns;
    size_t i = control->later_count++;
    for (; i > 0 && control->later[i - 1].at_ns > at_ns; i--)
        control->later[i] = control->later[i - 1];
    control->later[i].at_ns = at_ns;
    snprintf(control->later[i].line, LINE_LEN, "%s", what);
    return true;
}

void control_line(struct control *control, const char *line, uint64_t now, FILE *answer)
{
    struct words w;
    long before = ftell(answer);
    bool good = words_split(&w, line) && (strcmp(w.word[0], "at") == 0 ? keep(control, &w, line, now)
                                                                       : run_words(control, &w, now, answer));
    if (!good)
        fprintf(answer, "error %s", w.why);
    else if (ftell(answer) == before)
        fputs("ok", answer);
}

void control_run(struct control *control, uint64_t now)
{
    while (control->later_count && control->later[0].at_ns <= now) {
        struct words w;
        if (!words_split(&w, control->later[0].line) || !run_words(control, &w, now, NULL))
            fprintf(stderr, "hearth-switch: %s: %s\n", control->later[0].line, w.why);
        control->later_count--;
        memmove(control->later, control->later + 1, control->later_count * sizeof control->later[0]);
    }
}

uint64_t control_next(const struct control *control)
{
    return control->later_count ? control->later[0].at_ns : UINT64_MAX;
}
