/* SPDX-License-Identifier: Apache-2.0 */
/* Words of a line, one space between two, and the strings of a TXT record: both hold the same fields. */
#include "discovery/mdns_line.h"

#include <stdio.h>
#include <string.h>

/* ---- characters ---- */

static bool printable(const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (text[i] < ' ' || text[i] > '~')
            return false;
    return true;
}

/* What does not print becomes '?'; cut to size. */
static void name_take(char *target, size_t size, const char *source, size_t len)
{
    size_t n = len < size - 1 ? len : size - 1;

    for (size_t i = 0; i < n; i++)
        target[i] = printable(source + i, 1) ? source[i] : '?';
    target[n] = '\0';
}

/* Of lower case. */
static int digit_of(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static void hex_write(char *text, const uint8_t *bytes, size_t len)
{
    for (size_t i = 0; i < len; i++)
        snprintf(text + 2 * i, 3, "%02x", bytes[i]);
}

/* Exactly 2 * count digits. */
static bool hex_read(uint8_t *bytes, size_t count, const char *text, size_t len)
{
    if (len != 2 * count)
        return false;
    for (size_t i = 0; i < count; i++) {
        int high = digit_of(text[2 * i]), low = digit_of(text[2 * i + 1]);
        if (high < 0 || low < 0)
            return false;
        bytes[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}

/* 1 to len_max digits of a base up to 16. */
static bool number_read(uint64_t *value, unsigned base, size_t len_max, const char *text, size_t len)
{
    *value = 0;
    if (len == 0 || len > len_max)
        return false;
    for (size_t i = 0; i < len; i++) {
        int digit = digit_of(text[i]);
        if (digit < 0 || (unsigned)digit >= base)
            return false;
        *value = *value * base + (unsigned)digit;
    }
    return true;
}

/* ---- addresses ---- */

void mdns_addr_text(const struct sock_addr *addr, char *text, size_t size)
{
    char full[SOCK_TEXT_MAX];

    sock_addr_text(addr, full, sizeof full);
    char *end = strrchr(full, full[0] == '[' ? ']' : ':');
    if (end)
        *end = '\0';
    snprintf(text, size, "%s", full + (full[0] == '['));
}

bool mdns_addr_parse(const char *text, uint16_t port, struct sock_addr *out)
{
    struct net_addr net;

    if (text[0] == '[' || sock_addr_parse(text, port, out) != HEARTH_OK || sock_addr_port(out) != port)
        return false;
    const char *colon = strchr(text, ':');
    if (colon && !strchr(colon + 1, ':')) /* IPv4 with a port */
        return false;
    /* The first byte of multicast and broadcast addresses is known. */
    return sock_addr_to_net(out, &net) && !sock_addr_wildcard(out) &&
           net.bytes[0] < (net.family == 4 ? 224 : 255);
}

/* ---- fields ---- */

/* The first MDNS_TXT_ITEMS are those of a TXT record. */
enum field { VERSION, SPACE, NODE, INSTANCE, FLAGS, NAME, PORT, KEY, INTERFACE, ADDRESS };

static const struct {
    const char *txt, *wrong;
} fields[] = {
    [VERSION] = {"v=", "the version is not a number from 1 on"},
    [SPACE] = {"ns=", "the namespace is not 32 hexadecimal digits"},
    [NODE] = {"id=", "the node id is not 64 hexadecimal digits"},
    [INSTANCE] = {"in=", "the instance is not 16 hexadecimal digits, or 0"},
    [FLAGS] = {"fl=", "the flags are not hexadecimal"},
    [NAME] = {"name=", "the name is too long"},
    [PORT] = {NULL, "the port is not a number from 1 to 65535"},
    [KEY] = {NULL, "the key is missing or too long"},
    [INTERFACE] = {NULL, "the interface is missing or too long"},
    [ADDRESS] = {NULL, "the address is missing, or not one that can be dialled"},
};

#define TXT_MUST (1u << VERSION | 1u << SPACE | 1u << NODE | 1u << INSTANCE)

#define DECIMAL_LEN  9 /* digits: fits into 32 bits */
#define FLAGS_LEN    8
#define INSTANCE_LEN 16

static bool text_take(char *target, size_t size, const char *text, size_t len)
{
    if (len == 0 || len >= size)
        return false;
    memcpy(target, text, len);
    target[len] = '\0';
    return true;
}

/* An address comes before its port, and with a final 0. */
static bool field_read(struct sighting *s, enum field field, const char *text, size_t len)
{
    uint64_t value = 0;
    bool good;

    switch (field) {
    case VERSION:
        good = number_read(&value, 10, DECIMAL_LEN, text, len) && value > 0;
        s->version = (uint32_t)value;
        return good;
    case SPACE:
        return hex_read(s->space, NAMESPACE_LEN, text, len);
    case NODE:
        return hex_read(s->id.node.bytes, NODE_ID_LEN, text, len);
    case INSTANCE:
        return len == INSTANCE_LEN && number_read(&s->id.instance, 16, len, text, len) && s->id.instance != 0;
    case FLAGS:
        good = number_read(&value, 16, FLAGS_LEN, text, len);
        s->flags = (uint32_t)value;
        return good;
    case NAME:
        name_take(s->name, sizeof s->name, text, len);
        return len < sizeof s->name;
    case PORT:
        good = number_read(&value, 10, DECIMAL_LEN, text, len) && value > 0 && value <= UINT16_MAX;
        s->port = (uint16_t)value;
        if (s->addr.len > 0)
            sock_addr_set_port(&s->addr, s->port);
        return good;
    case KEY:
        return text_take(s->key, sizeof s->key, text, len);
    case INTERFACE:
        return text_take(s->interface, sizeof s->interface, text, len);
    default:
        return mdns_addr_parse(text, 0, &s->addr);
    }
}

static int bad(const char **what, const char *text)
{
    *what = text;
    return HEARTH_PROTOCOL;
}

/* ---- words ---- */

struct words {
    const char *at, *end;
};

#define WORD_MAX 128 /* with its final 0 */

/* The next word; false: there is none, or it is too long. The last one may be anything up to the end. */
static bool word_next(struct words *w, char word[static WORD_MAX], size_t *len)
{
    const char *start = w->at;

    if (!start)
        return false;
    const char *space = memchr(start, ' ', (size_t)(w->end - start));
    const char *stop = space ? space : w->end;
    *len = (size_t)(stop - start);
    if (*len == 0 || *len >= WORD_MAX)
        return false;
    memcpy(word, start, *len);
    word[*len] = '\0';
    w->at = space ? space + 1 : NULL;
    return true;
}

static bool rest_take(const struct words *w, char *target, size_t size)
{
    size_t len = w->at ? (size_t)(w->end - w->at) : 0;

    target[0] = '\0';
    return len == 0 || text_take(target, size, w->at, len);
}

/* Reads `count` words as these fields, and the rest of the line as the name. */
static int fields_parse(struct sighting *s, struct words *w, const enum field *order, int count,
                        const char **what)
{
    char word[WORD_MAX];
    size_t len;

    for (int i = 0; i < count; i++)
        if (!word_next(w, word, &len) || !field_read(s, order[i], word, len))
            return bad(what, fields[order[i]].wrong);
    return rest_take(w, s->name, sizeof s->name) ? HEARTH_OK : bad(what, fields[NAME].wrong);
}

/* Looks at a whole line and takes its first word. */
static int line_begin(struct words *w, char verb[static WORD_MAX], const char **what)
{
    size_t len = (size_t)(w->end - w->at);

    if (len >= MDNS_LINE_MAX)
        return bad(what, "the line is too long");
    if (!printable(w->at, len))
        return bad(what, "bytes that are not printable");
    return word_next(w, verb, &len) ? HEARTH_OK : bad(what, "no word");
}

bool mdns_input_next(struct mdns_input *in, const char **line, size_t *len)
{
    for (;;) {
        size_t left = in->len - in->taken;
        const char *stop = memchr(in->bytes + in->taken, '\n', left);
        bool skip = in->skipping;
        *line = in->bytes + in->taken;
        *len = stop ? (size_t)(stop - *line) : left;
        if (!stop && !skip && left < MDNS_LINE_MAX)
            break;
        in->taken += *len + !!stop;
        in->skipping = !stop;
        if (!skip)
            return true;
        if (!stop)
            break;
    }
    in->len -= in->taken;
    memmove(in->bytes, in->bytes + in->taken, in->len);
    in->taken = 0;
    return false;
}

/* ---- from the helper ---- */

int mdns_line_parse(struct mdns_line *line, const char *text, size_t len, const char **what)
{
    static const enum field found[] = {KEY, INTERFACE, ADDRESS, PORT, VERSION, SPACE, NODE, INSTANCE, FLAGS};
    struct words w = {text, text + len};
    char verb[WORD_MAX];

    memset(line, 0, sizeof *line);
    if (line_begin(&w, verb, what) != HEARTH_OK)
        return HEARTH_PROTOCOL;
    if (strcmp(verb, "found") == 0) {
        line->kind = MDNS_FOUND;
        return fields_parse(&line->sighting, &w, found, sizeof found / sizeof found[0], what);
    }
    if (strcmp(verb, "lost") == 0) {
        line->kind = MDNS_LOST;
        bool good = word_next(&w, verb, &len) && field_read(&line->sighting, KEY, verb, len) && !w.at;
        return good ? HEARTH_OK : bad(what, "lost: not one key");
    }
    if (strcmp(verb, "ready") != 0 && strcmp(verb, "warn") != 0)
        return bad(what, "an unknown word");
    line->kind = verb[0] == 'r' ? MDNS_READY : MDNS_WARN;
    return rest_take(&w, line->text, sizeof line->text) ? HEARTH_OK : bad(what, "the text is too long");
}

/* ---- lines ---- */

static size_t fits(int len, size_t size)
{
    return len > 0 && (size_t)len < size && len <= MDNS_LINE_MAX ? (size_t)len : 0;
}

struct node_text {
    char space[2 * NAMESPACE_LEN + 1], node[2 * NODE_ID_LEN + 1], name[MDNS_NAME_MAX];
};

static struct node_text node_text(const struct sighting *s)
{
    struct node_text t;

    hex_write(t.space, s->space, NAMESPACE_LEN);
    hex_write(t.node, s->id.node.bytes, NODE_ID_LEN);
    name_take(t.name, sizeof t.name, s->name, strnlen(s->name, MDNS_NAME_MAX));
    return t;
}

size_t mdns_line_publish(const struct sighting *self, char *target, size_t size)
{
    if (!self)
        return fits(snprintf(target, size, "publish\n"), size);
    struct node_text t = node_text(self);
    return fits(snprintf(target, size, "publish %s %s %016llx %u %x %s\n", t.space, t.node,
                         (unsigned long long)self->id.instance, self->port, self->flags, t.name),
                size);
}

size_t mdns_line_found(const struct sighting *s, char *target, size_t size)
{
    struct node_text t = node_text(s);
    char addr[SOCK_TEXT_MAX];

    mdns_addr_text(&s->addr, addr, sizeof addr);
    return fits(snprintf(target, size, "found %s %s %s %u %u %s %s %016llx %x %s\n", s->key, s->interface,
                         addr, sock_addr_port(&s->addr), s->version, t.space, t.node,
                         (unsigned long long)s->id.instance, s->flags, t.name),
                size);
}

size_t mdns_line_address(const char *interface, const struct sock_addr *addrs, int count, char *target,
                         size_t size)
{
    int len = snprintf(target, size, "address %s", interface);
    char text[SOCK_TEXT_MAX];

    for (int i = 0; i < count && fits(len, size) > 0; i++) {
        mdns_addr_text(&addrs[i], text, sizeof text);
        len += snprintf(target + len, size - (size_t)len, " %s", text);
    }
    if (fits(len, size) > 0)
        len += snprintf(target + len, size - (size_t)len, "\n");
    return fits(len, size);
}

/* ---- to the helper ---- */

static int address_parse(struct mdns_command *c, struct words *w, const char **what)
{
    char word[WORD_MAX];
    size_t len;

    if (!word_next(w, word, &len) || !text_take(c->interface, sizeof c->interface, word, len))
        return bad(what, fields[INTERFACE].wrong);
    while (w->at) {
        if (c->count == MDNS_ADDRESSES)
            return bad(what, "too many addresses");
        if (!word_next(w, word, &len) || !mdns_addr_parse(word, 0, &c->addrs[c->count]))
            return bad(what, fields[ADDRESS].wrong);
        c->count++;
    }
    return HEARTH_OK;
}

int mdns_command_parse(struct mdns_command *c, const char *text, size_t len, const char **what)
{
    static const enum field publish[] = {SPACE, NODE, INSTANCE, PORT, FLAGS};
    struct words w = {text, text + len};
    char verb[WORD_MAX];

    memset(c, 0, sizeof *c);
    if (line_begin(&w, verb, what) != HEARTH_OK)
        return HEARTH_PROTOCOL;
    if (strcmp(verb, "publish") == 0) {
        c->kind = MDNS_PUBLISH;
        return w.at ? fields_parse(&c->self, &w, publish, sizeof publish / sizeof publish[0], what)
                    : HEARTH_OK;
    }
    if (strcmp(verb, "address") == 0) {
        c->kind = MDNS_ADDRESS;
        return address_parse(c, &w, what);
    }
    c->kind = MDNS_QUIT;
    return strcmp(verb, "quit") == 0 && !w.at ? HEARTH_OK : bad(what, "an unknown word");
}

/* ---- the TXT record ---- */

void mdns_txt_write(const struct sighting *self, char items[static MDNS_TXT_ITEMS][MDNS_TXT_ITEM_MAX])
{
    struct node_text t = node_text(self);

    snprintf(items[VERSION], MDNS_TXT_ITEM_MAX, "v=%d", MDNS_VERSION);
    snprintf(items[SPACE], MDNS_TXT_ITEM_MAX, "ns=%s", t.space);
    snprintf(items[NODE], MDNS_TXT_ITEM_MAX, "id=%s", t.node);
    snprintf(items[INSTANCE], MDNS_TXT_ITEM_MAX, "in=%016llx", (unsigned long long)self->id.instance);
    snprintf(items[FLAGS], MDNS_TXT_ITEM_MAX, "fl=%x", self->flags);
    snprintf(items[NAME], MDNS_TXT_ITEM_MAX, "name=%s", t.name);
}

int mdns_txt_read(struct sighting *s, unsigned *seen, const void *item, size_t len, const char **what)
{
    const char *text = item;

    for (int i = 0; i < MDNS_TXT_ITEMS; i++) {
        size_t name_len = strlen(fields[i].txt);
        if (len < name_len || memcmp(text, fields[i].txt, name_len) != 0)
            continue;
        if ((*seen & 1u << i) != 0)
            return bad(what, "the same key twice");
        *seen |= 1u << i;
        bool good = field_read(s, (enum field)i, text + name_len, len - name_len);
        return good ? HEARTH_OK : bad(what, fields[i].wrong);
    }
    return HEARTH_OK;
}

bool mdns_txt_whole(unsigned seen)
{
    return (seen & TXT_MUST) == TXT_MUST;
}
