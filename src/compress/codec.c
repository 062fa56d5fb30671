/* SPDX-License-Identifier: Apache-2.0 */
/* From the text of a codec to its numbers and back. A text is items between commas: a codec's name with its
 * number, or an option of the codec before it. */
#include "compress/codec.h"

#include <stdio.h>
#include <string.h>

#include "compress/ratio.h"
#include "compress/user_codec.h"
#include "core/text_buf.h"

#define RANK_MAX  32u
#define CHUNK_MIN 64u
#define CHUNK_MAX 65536u
#define ROWS_MAX  (UINT64_C(1) << 40)
#define SHOWN_MAX 32 /* bytes of the user's text in an error, so that the grammar has room in it too */

#define GRAMMAR                                                                                              \
    "none|fp16|bf16|int8[,stochastic]|onebit|topk:RATIO[,chunk=COUNT][,values=f32|bf16|int8]|"               \
    "randomk:RATIO[,values=...]|powersgd:RANK[,rows=COUNT][,alternate]|NAME[:...]|auto:CODEC,...; "          \
    "each [,feedback=off]"

static const char *const kind_names[CODEC_KIND_COUNT] = {
    [CODEC_NONE] = "none",       [CODEC_FP16] = "fp16",         [CODEC_BF16] = "bf16",
    [CODEC_INT8] = "int8",       [CODEC_ONEBIT] = "onebit",     [CODEC_TOPK] = "topk",
    [CODEC_RANDOMK] = "randomk", [CODEC_POWERSGD] = "powersgd", [CODEC_USER] = "", /* has its own */
};

static const char *const values_names[CODEC_VALUES_COUNT] = {
    [VALUES_F32] = "f32",
    [VALUES_BF16] = "bf16",
    [VALUES_INT8] = "int8",
};

enum option {
    OPTION_STOCHASTIC,
    OPTION_ALTERNATE,
    OPTION_CHUNK,
    OPTION_VALUES,
    OPTION_ROWS,
    OPTION_FEEDBACK
};

struct option_row {
    const char *name; /* up to its '=' */
    unsigned kinds;   /* that have it, as bits */
};

static const struct option_row options[] = {
    [OPTION_STOCHASTIC] = {"stochastic", 1u << CODEC_INT8},
    [OPTION_ALTERNATE] = {"alternate", 1u << CODEC_POWERSGD},
    [OPTION_CHUNK] = {"chunk=", 1u << CODEC_TOPK},
    [OPTION_VALUES] = {"values=", 1u << CODEC_TOPK | 1u << CODEC_RANDOMK},
    [OPTION_ROWS] = {"rows=", 1u << CODEC_POWERSGD},
    [OPTION_FEEDBACK] = {"feedback=", ~0u},
};

#define OPTION_COUNT ((int)(sizeof(options) / sizeof(options[0])))

static bool has_ratio(const struct codec *codec)
{
    return codec->kind == CODEC_TOPK || codec->kind == CODEC_RANDOMK;
}

/* A piece of the text, not terminated. */
struct item {
    const char *at;
    size_t len;
};

struct parser {
    const char *text;
    struct codec_list *list;
    unsigned seen; /* options of the last codec, as bits */
    struct error *error;
};

/* ---- text ---- */

static void print_codec(struct text_buf *buf, const struct codec *codec)
{
    char ratio[RATIO_TEXT_MAX];

    text_buf_print(buf, "%s", codec->user ? codec->user->name : kind_names[codec->kind]);
    if (codec->parameters[0])
        text_buf_print(buf, ":%s", codec->parameters);
    if (has_ratio(codec)) {
        ratio_text(codec->ratio, ratio);
        text_buf_print(buf, ":%s", ratio);
    }
    if (codec->kind == CODEC_POWERSGD)
        text_buf_print(buf, ":%u", codec->rank);
    if (codec->stochastic)
        text_buf_print(buf, ",stochastic");
    if (codec->chunk)
        text_buf_print(buf, ",chunk=%u", codec->chunk);
    if (codec->values != VALUES_F32)
        text_buf_print(buf, ",values=%s", values_names[codec->values]);
    if (codec->rows)
        text_buf_print(buf, ",rows=%llu", (unsigned long long)codec->rows);
    if (codec->alternate)
        text_buf_print(buf, ",alternate");
    if (!codec->feedback)
        text_buf_print(buf, ",feedback=off");
}

void codec_text(const struct codec *codec, char *text, size_t size)
{
    struct text_buf buf = text_buf_of(text, size);

    print_codec(&buf, codec);
}

size_t codec_list_text(const struct codec_list *list, char *text, size_t size)
{
    struct text_buf buf = text_buf_of(text, size);

    for (int i = 0; i < list->count; i++) {
        text_buf_print(&buf, "%s", i > 0 ? "," : list->automatic ? "auto:" : "");
        print_codec(&buf, &list->codec[i]);
    }
    return buf.len;
}

/* ---- errors ---- */

/* Up to SHOWN_MAX bytes of what the user wrote, fit to be printed. */
static void shown(char target[SHOWN_MAX + 4], struct item item)
{
    size_t len = item.len < SHOWN_MAX ? item.len : SHOWN_MAX;

    for (size_t i = 0; i < len; i++)
        target[i] = item.at[i] >= ' ' && item.at[i] <= '~' ? item.at[i] : '?';
    memcpy(target + len, len < item.len ? "..." : "", len < item.len ? 4 : 1);
}

static int bad(const struct parser *parser, struct item item, const char *what)
{
    char whole[SHOWN_MAX + 4], place[SHOWN_MAX + 4];

    shown(whole, (struct item){parser->text, strlen(parser->text)});
    shown(place, item);
    return error_set(parser->error, HEARTH_INVALID, RANK_NONE, "codec \"%s\", at \"%s\": %s; %s", whole,
                     place, what, GRAMMAR);
}

/* ---- numbers ---- */

static bool parse_count(struct item item, uint64_t max, uint64_t *value)
{
    uint64_t v = 0;

    if (item.len == 0)
        return false;
    for (size_t i = 0; i < item.len; i++) {
        if (item.at[i] < '0' || item.at[i] > '9')
            return false;
        v = v * 10 + (uint64_t)(item.at[i] - '0');
        if (v > max)
            return false;
    }
    *value = v;
    return v > 0;
}

static bool item_is(struct item item, const char *word)
{
    return strlen(word) == item.len && memcmp(item.at, word, item.len) == 0;
}

/* ---- options ---- */

static int set_option(const struct parser *parser, enum option option, struct item item, struct codec *codec)
{
    size_t skip = strlen(options[option].name);
    struct item value = {item.at + skip, item.len - skip};
    uint64_t chunk;
    int kind = 0;

    switch (option) {
    case OPTION_STOCHASTIC:
        codec->stochastic = true;
        return HEARTH_OK;
    case OPTION_ALTERNATE:
        codec->alternate = true;
        return HEARTH_OK;
    case OPTION_CHUNK:
        if (!parse_count(value, CHUNK_MAX, &chunk) || chunk < CHUNK_MIN || (chunk & (chunk - 1)) != 0)
            return bad(parser, item, "a power of two 64..65536");
        codec->chunk = (uint32_t)chunk;
        return HEARTH_OK;
    case OPTION_VALUES:
        while (kind < CODEC_VALUES_COUNT && !item_is(value, values_names[kind]))
            kind++;
        codec->values = (enum codec_values)kind;
        return kind < CODEC_VALUES_COUNT ? HEARTH_OK : bad(parser, item, "f32, bf16 or int8");
    case OPTION_ROWS:
        return parse_count(value, ROWS_MAX, &codec->rows) ? HEARTH_OK : bad(parser, item, "a count, 1..2^40");
    case OPTION_FEEDBACK:
        codec->feedback = false;
        return item_is(value, "off") ? HEARTH_OK : bad(parser, item, "only off can be said");
    }
    return HEARTH_OK;
}

/* The option that an item sets; OPTION_COUNT if it is none. */
static int option_of(struct item item)
{
    int i;

    for (i = 0; i < OPTION_COUNT; i++) {
        size_t len = strlen(options[i].name);
        bool valued = options[i].name[len - 1] == '=';
        if ((valued ? item.len >= len : item.len == len) && memcmp(item.at, options[i].name, len) == 0)
            break;
    }
    return i;
}

static int parse_option(struct parser *parser, struct item item)
{
    int option = option_of(item);

    if (option == OPTION_COUNT)
        return bad(parser, item, "no such option");
    if (parser->list->count == 0)
        return bad(parser, item, "an option before any codec");
    struct codec *codec = &parser->list->codec[parser->list->count - 1];
    if (!(options[option].kinds & 1u << codec->kind))
        return bad(parser, item, "not an option of this codec");
    if (parser->seen & 1u << option)
        return bad(parser, item, "said twice");
    parser->seen |= 1u << option;
    return set_option(parser, (enum option)option, item, codec);
}

/* ---- codecs ---- */

static int parse_number(const struct parser *parser, struct item item, struct item value, struct codec *codec)
{
    uint64_t rank = 0;

    if (has_ratio(codec))
        return value.at && ratio_parse(value.at, value.len, &codec->ratio)
                   ? HEARTH_OK
                   : bad(parser, item, "wants a ratio above 0, at most 1");
    if (codec->kind != CODEC_POWERSGD)
        return value.at ? bad(parser, item, "this codec takes no number") : HEARTH_OK;
    if (!value.at || !parse_count(value, RANK_MAX, &rank))
        return bad(parser, item, "wants a rank, 1..32");
    codec->rank = (uint32_t)rank;
    return HEARTH_OK;
}

/* Of a user's codec: what stands behind its name. */
static int parse_parameters(const struct parser *parser, struct item item, struct item value,
                            struct codec *codec)
{
    bool good = value.len <= CODEC_PARAMETERS_MAX && (value.len > 0 || !value.at);

    for (size_t i = 0; good && i < value.len; i++)
        good = value.at[i] > ' ' && value.at[i] <= '~';
    if (!good)
        return bad(parser, item, "parameters: 1..63 printable");
    if (value.len > 0)
        memcpy(codec->parameters, value.at, value.len);
    return user_parameters_good(codec) ? HEARTH_OK : bad(parser, item, "the codec refuses its parameters");
}

/* The kind that a name means; CODEC_USER if none that is built in. */
static enum codec_kind kind_of(struct item name)
{
    int kind = 0;

    while (kind < CODEC_USER && !item_is(name, kind_names[kind]))
        kind++;
    return (enum codec_kind)kind;
}

static struct item name_in(struct item item)
{
    const char *colon = memchr(item.at, ':', item.len);

    return (struct item){item.at, colon ? (size_t)(colon - item.at) : item.len};
}

/* "name" or "name:number" starts a codec of the list. */
static int parse_name(struct parser *parser, struct item item)
{
    struct item name = name_in(item);
    bool valued = name.len < item.len;
    struct item value = {valued ? name.at + name.len + 1 : NULL, valued ? item.len - name.len - 1 : 0};
    enum codec_kind kind = kind_of(name);
    const struct user_codec *user = kind == CODEC_USER ? user_codec_find(name.at, name.len) : NULL;

    if (item_is(name, "auto"))
        return bad(parser, item, parser->list->automatic ? "no auto inside auto" : "auto: wants codecs");
    if (kind == CODEC_USER && !user)
        return bad(parser, item, "no such codec here");
    if (parser->list->count == CODEC_LIST_MAX)
        return bad(parser, item, "more than 8 codecs");
    if (parser->list->count == 1 && !parser->list->automatic)
        return bad(parser, item, "several codecs need auto:");
    struct codec *codec = &parser->list->codec[parser->list->count++];
    *codec = (struct codec){.kind = kind, .feedback = true, .user = user};
    parser->seen = 0;
    return user ? parse_parameters(parser, item, value, codec) : parse_number(parser, item, value, codec);
}

/* Items with '=' are options, unless that stands in a codec's parameters. */
static bool is_option(struct item item)
{
    return memchr(item.at, '=', name_in(item).len) || option_of(item) < OPTION_COUNT;
}

static int parse_items(struct parser *parser, const char *at)
{
    for (;;) {
        struct item item = {at, strcspn(at, ",")};
        int status = is_option(item) ? parse_option(parser, item) : parse_name(parser, item);
        if (status)
            return status;
        if (at[item.len] == '\0')
            return HEARTH_OK;
        at += item.len + 1;
    }
}

static bool codecs_equal(const struct codec *a, const struct codec *b)
{
    char text[2][CODEC_TEXT_MAX];

    codec_text(a, text[0], sizeof text[0]);
    codec_text(b, text[1], sizeof text[1]);
    return strcmp(text[0], text[1]) == 0;
}

/* What can be seen only when all options are known. */
static int check_whole(const struct parser *parser)
{
    const struct codec_list *list = parser->list;
    struct item whole = {parser->text, strlen(parser->text)};

    for (int i = 0; i < list->count; i++) {
        if (list->codec[i].stochastic && list->codec[i].feedback)
            return bad(parser, whole, "stochastic needs feedback=off");
        for (int k = 0; k < i; k++)
            if (codecs_equal(&list->codec[i], &list->codec[k]))
                return bad(parser, whole, "a codec is there twice");
    }
    if (codec_list_text(list, NULL, 0) >= CODEC_TEXT_MAX)
        return bad(parser, whole, "longer than 255 bytes");
    return HEARTH_OK;
}

int codec_parse(const char *text, struct codec_list *list, struct error *error)
{
    struct codec_list parsed = {.count = 0};
    struct parser parser = {.text = text ? text : "none", .list = &parsed, .error = error};
    const char *at = parser.text;

    size_t len = strlen(parser.text);
    if (len >= CODEC_TEXT_MAX)
        return bad(&parser, (struct item){parser.text, len}, "longer than 255 bytes");
    if (strncmp(at, "auto:", 5) == 0) {
        parsed.automatic = true;
        at += 5;
    }
    int status = parse_items(&parser, at);
    if (!status)
        status = check_whole(&parser);
    if (!status)
        *list = parsed;
    return status;
}

bool codec_names_unknown(const char *text)
{
    bool automatic = strncmp(text, "auto:", 5) == 0;

    for (const char *at = automatic ? text + 5 : text;; at++) {
        struct item item = {at, strcspn(at, ",")}, name = name_in(item);
        if (!is_option(item) && kind_of(name) == CODEC_USER && user_name_good(name.at, name.len) &&
            !user_codec_find(name.at, name.len))
            return true;
        at += item.len;
        if (*at == 0)
            return false;
    }
}

bool codec_name_taken(const char *name)
{
    struct item item = {name, strlen(name)};

    return kind_of(item) != CODEC_USER || option_of(item) < OPTION_COUNT || item_is(item, "auto");
}

/* ---- what follows from the numbers ---- */

size_t codec_keeps(const struct codec *codec, size_t count)
{
    return count == 0 ? 0 : ratio_of(codec->ratio, count); /* at least 1, at most count: 0 < ratio <= 1 */
}

struct codec codec_of_values(enum codec_values values)
{
    static const enum codec_kind kind[CODEC_VALUES_COUNT] = {
        [VALUES_F32] = CODEC_NONE,
        [VALUES_BF16] = CODEC_BF16,
        [VALUES_INT8] = CODEC_INT8,
    };

    return (struct codec){.kind = kind[values], .feedback = true};
}

bool codec_is_blockwise(const struct codec *codec)
{
    return codec->kind < CODEC_TOPK || (codec->kind == CODEC_TOPK && codec->chunk != 0);
}
