/* SPDX-License-Identifier: Apache-2.0 */
/* Words of a line, one space between two; the strings of a TXT record. */
#include "discovery/mdns_line.h"

#include <stdio.h>
#include <string.h>

/* ---- messages ---- */

static bool printable(const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (text[i] < ' ' || text[i] > '~')
            return false;
    return true;
}

/* Whatever it is, as one may show it; cut to size. */
static void name_take(char *target, size_t size, const char *source, size_t len)
{
    size_t n = len < size - 1 ? len : size - 1;

    for (size_t i = 0; i < n; i++)
        target[i] = printable(source + i, 1) ? source[i] : '?';
    target[n] = '\0';
}

static int digit_of(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static void hex_write(char *text, const uint8_t *bytes, size_t len)
{
    static const char digits[] = "0123456789abcdef";

    for (size_t i = 0; i < len; i++) {
        text[2 * i] = digits[bytes[i] >> 4];
        text[2 * i + 1] = digits[bytes[i] & 15];
    }
    text[2 * len] = '\0';
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

/* ---- fields that lines and TXT records share ---- */

#define NUMBER_LEN   9 /* of decimal digits: fits into 32 bits */
#define FLAGS_LEN    8
#define INSTANCE_LEN 16

static bool instance_read(uint64_t *instance, const char *text, size_t len)
{
    return len == INSTANCE_LEN && number_read(instance, 16, INSTANCE_LEN, text, len) && *instance != 0;
}

static bool flags_read(uint32_t *flags, const char *text, size_t len)
{
    uint64_t value;
    bool good = number_read(&value, 16, FLAGS_LEN, text, len);
    *flags = (uint32_t)value;
    return good;
}

static bool version_read(uint32_t *version, const char *text, size_t len)
{
    uint64_t value;
    bool good = number_read(&value, 10, NUMBER_LEN, text, len) && value > 0;
    *version = (uint32_t)value;
    return good;
}

static bool port_read(uint16_t *port, const char *text, size_t len)
{
    uint64_t value;
    bool good = number_read(&value, 10, NUMBER_LEN, text, len) && value > 0 && value <= UINT16_MAX;
    *port = (uint16_t)value;
    return good;
}

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

    if (len >= size)
        return false;
    if (len > 0)
        memcpy(target, w->at, len);
    target[len] = '\0';
    return true;
}

static bool text_take(struct words *w, char *target, size_t size)
{
    char word[WORD_MAX];
    size_t len;

    if (!word_next(w, word, &len) || len >= size)
        return false;
    memcpy(target, word, len + 1);
    return true;
}

static int bad(const char **what, const char *text)
{
    *what = text;
    return HEARTH_PROTOCOL;
}

/* ---- from the helper ---- */

/* SPACE NODE INSTANCE, as `found` and `publish` have them. */
static const char *who_parse(struct words *w, uint8_t *space, struct identity *id)
{
    char word[WORD_MAX];
    size_t len;

    if (!word_next(w, word, &len) || !hex_read(space, NAMESPACE_LEN, word, len))
        return "the namespace is not 32 hexadecimal digits";
    if (!word_next(w, word, &len) || !hex_read(id->node.bytes, NODE_ID_LEN, word, len))
        return "the node id is not 64 hexadecimal digits";
    if (!word_next(w, word, &len) || !instance_read(&id->instance, word, len))
        return "the instance is not 16 hexadecimal digits, or 0";
    return NULL;
}

static int found_parse(struct sighting *s, struct words *w, const char **what)
{
    char addr[WORD_MAX], word[WORD_MAX];
    uint16_t port = 0;
    size_t len;

    if (!text_take(w, s->key, sizeof s->key))
        return bad(what, "the key is missing or too long");
    if (!text_take(w, s->interface, sizeof s->interface))
        return bad(what, "the interface is missing or too long");
    if (!word_next(w, addr, &len))
        return bad(what, "the address is missing");
    if (!word_next(w, word, &len) || !port_read(&port, word, len))
        return bad(what, "the port is not a number from 1 to 65535");
    if (!mdns_addr_parse(addr, port, &s->addr))
        return bad(what, "the address is not one that can be dialled");
    if (!word_next(w, word, &len) || !version_read(&s->version, word, len))
        return bad(what, "the version is not a number from 1 on");
    const char *wrong = who_parse(w, s->space, &s->id);
    if (wrong)
        return bad(what, wrong);
    if (!word_next(w, word, &len) || !flags_read(&s->flags, word, len))
        return bad(what, "the flags are not hexadecimal");
    if (!rest_take(w, s->name, sizeof s->name))
        return bad(what, "the name is too long");
    return HEARTH_OK;
}

int mdns_line_parse(struct mdns_line *line, const char *text, size_t len, const char **what)
{
    struct words w = {text, text + len};
    char verb[WORD_MAX];
    size_t verb_len;

    memset(line, 0, sizeof *line);
    if (len >= MDNS_LINE_MAX || !printable(text, len))
        return bad(what, len >= MDNS_LINE_MAX ? "the line is too long" : "bytes that are not printable");
    if (!word_next(&w, verb, &verb_len))
        return bad(what, "no word");
    if (strcmp(verb, "found") == 0) {
        line->kind = MDNS_FOUND;
        return found_parse(&line->sighting, &w, what);
    }
    if (strcmp(verb, "lost") == 0) {
        line->kind = MDNS_LOST;
        if (!text_take(&w, line->sighting.key, sizeof line->sighting.key) || w.at)
            return bad(what, "lost: not one key");
        return HEARTH_OK;
    }
    if (strcmp(verb, "ready") != 0 && strcmp(verb, "warn") != 0)
        return bad(what, "an unknown word");
    line->kind = verb[0] == 'r' ? MDNS_READY : MDNS_WARN;
    if (!rest_take(&w, line->text, sizeof line->text))
        return bad(what, "the text is too long");
    return HEARTH_OK;
}

/* ---- lines ---- */

static size_t fits(int len, size_t size)
{
    return len > 0 && (size_t)len < size && len <= MDNS_LINE_MAX ? (size_t)len : 0;
}

struct who_text {
    char space[2 * NAMESPACE_LEN + 1], node[2 * NODE_ID_LEN + 1], name[MDNS_NAME_MAX];
};

static struct who_text who_text(const uint8_t *space, const struct identity *id, const char *name)
{
    struct who_text t;

    hex_write(t.space, space, NAMESPACE_LEN);
    hex_write(t.node, id->node.bytes, NODE_ID_LEN);
    name_take(t.name, sizeof t.name, name, strnlen(name, MDNS_NAME_MAX));
    return t;
}

size_t mdns_line_publish(const struct announcement *a, char *target, size_t size)
{
    if (!a)
        return fits(snprintf(target, size, "publish\n"), size);
    struct who_text t = who_text(a->space, &a->id, a->name);
    return fits(snprintf(target, size, "publish %s %s %016llx %u %x %s\n", t.space, t.node,
                         (unsigned long long)a->id.instance, a->port, a->flags, t.name),
                size);
}

size_t mdns_line_found(const struct sighting *s, char *target, size_t size)
{
    struct who_text t = who_text(s->space, &s->id, s->name);
    char addr[SOCK_TEXT_MAX];

    mdns_addr_text(&s->addr, addr, sizeof addr);
    return fits(snprintf(target, size, "found %s %s %s %u %u %s %s %016llx %x %s\n", s->key, s->interface,
                         addr, sock_addr_port(&s->addr), s->version, t.space, t.node,
                         (unsigned long long)s->id.instance, s->flags, t.name),
                size);
}

size_t mdns_line_address(const char *interface, const char *const *addrs, int count, char *target,
                         size_t size)
{
    int len = snprintf(target, size, "address %s", interface);

    for (int i = 0; i < count && fits(len, size) > 0; i++)
        len += snprintf(target + len, size - (size_t)len, " %s", addrs[i]);
    if (fits(len, size) > 0)
        len += snprintf(target + len, size - (size_t)len, "\n");
    return fits(len, size);
}

/* ---- to the helper ---- */

static int publish_parse(struct announcement *a, struct words *w, const char **what)
{
    char word[WORD_MAX];
    size_t len;

    if (!w->at)
        return HEARTH_OK;
    const char *wrong = who_parse(w, a->space, &a->id);
    if (wrong)
        return bad(what, wrong);
    if (!word_next(w, word, &len) || !port_read(&a->port, word, len))
        return bad(what, "the port is not a number from 1 to 65535");
    if (!word_next(w, word, &len) || !flags_read(&a->flags, word, len))
        return bad(what, "the flags are not hexadecimal");
    if (!rest_take(w, a->name, sizeof a->name))
        return bad(what, "the name is too long");
    return HEARTH_OK;
}

static int address_parse(struct mdns_command *c, struct words *w, const char **what)
{
    char word[WORD_MAX];
    size_t len;

    if (!text_take(w, c->interface, sizeof c->interface))
        return bad(what, "the interface is missing or too long");
    while (w->at) {
        if (c->count == MDNS_ADDRESSES)
            return bad(what, "too many addresses");
        if (!word_next(w, word, &len) || !mdns_addr_parse(word, 0, &c->addrs[c->count]))
            return bad(what, "an address is not one that can be dialled");
        c->count++;
    }
    return HEARTH_OK;
}

int mdns_command_parse(struct mdns_command *c, const char *text, size_t len, const char **what)
{
    struct words w = {text, text + len};
    char verb[WORD_MAX];
    size_t verb_len;

    memset(c, 0, sizeof *c);
    if (len >= MDNS_LINE_MAX || !printable(text, len))
        return bad(what, len >= MDNS_LINE_MAX ? "the line is too long" : "bytes that are not printable");
    if (!word_next(&w, verb, &verb_len))
        return bad(what, "no word");
    if (strcmp(verb, "publish") == 0) {
        c->kind = MDNS_PUBLISH;
        return publish_parse(&c->announcement, &w, what);
    }
    if (strcmp(verb, "address") == 0) {
        c->kind = MDNS_ADDRESS;
        return address_parse(c, &w, what);
    }
    c->kind = MDNS_QUIT;
    if (strcmp(verb, "quit") != 0 || w.at)
        return bad(what, "an unknown word");
    return HEARTH_OK;
}

/* ---- the TXT record ---- */

enum { TXT_VERSION, TXT_SPACE, TXT_NODE, TXT_INSTANCE, TXT_FLAGS, TXT_NAME };

static const char *const txt_names[MDNS_TXT_ITEMS] = {"v=", "ns=", "id=", "in=", "fl=", "name="};

#define TXT_MUST (1u << TXT_VERSION | 1u << TXT_SPACE | 1u << TXT_NODE | 1u << TXT_INSTANCE)

void mdns_txt_write(const struct announcement *a, char items[static MDNS_TXT_ITEMS][MDNS_TXT_ITEM_MAX])
{
    struct who_text t = who_text(a->space, &a->id, a->name);

    snprintf(items[TXT_VERSION], MDNS_TXT_ITEM_MAX, "v=%d", MDNS_VERSION);
    snprintf(items[TXT_SPACE], MDNS_TXT_ITEM_MAX, "ns=%s", t.space);
    snprintf(items[TXT_NODE], MDNS_TXT_ITEM_MAX, "id=%s", t.node);
    snprintf(items[TXT_INSTANCE], MDNS_TXT_ITEM_MAX, "in=%016llx", (unsigned long long)a->id.instance);
    snprintf(items[TXT_FLAGS], MDNS_TXT_ITEM_MAX, "fl=%x", a->flags);
    snprintf(items[TXT_NAME], MDNS_TXT_ITEM_MAX, "name=%s", t.name);
}

static const char *txt_value(struct sighting *s, int field, const char *text, size_t len)
{
    switch (field) {
    case TXT_VERSION:
        return version_read(&s->version, text, len) ? NULL : "v= is not a number from 1 on";
    case TXT_SPACE:
        return hex_read(s->space, NAMESPACE_LEN, text, len) ? NULL : "ns= is not 32 hexadecimal digits";
    case TXT_NODE:
        return hex_read(s->id.node.bytes, NODE_ID_LEN, text, len) ? NULL : "id= is not 64 hexadecimal digits";
    case TXT_INSTANCE:
        return instance_read(&s->id.instance, text, len) ? NULL
                                                         : "in= is not 16 hexadecimal digits, or it is 0";
    case TXT_FLAGS:
        return flags_read(&s->flags, text, len) ? NULL : "fl= is not hexadecimal";
    default:
        name_take(s->name, sizeof s->name, text, len);
        return len < sizeof s->name ? NULL : "name= is too long";
    }
}

int mdns_txt_read(struct sighting *s, unsigned *seen, const void *item, size_t len, const char **what)
{
    const char *text = item;

    for (int i = 0; i < MDNS_TXT_ITEMS; i++) {
        size_t name_len = strlen(txt_names[i]);
        if (len < name_len || memcmp(text, txt_names[i], name_len) != 0)
            continue;
        if ((*seen & 1u << i) != 0)
            return bad(what, "the same key twice");
        *seen |= 1u << i;
        const char *wrong = txt_value(s, i, text + name_len, len - name_len);
        return !wrong ? HEARTH_OK : bad(what, wrong);
    }
    return HEARTH_OK;
}

bool mdns_txt_whole(unsigned seen)
{
    return (seen & TXT_MUST) == TXT_MUST;
}
