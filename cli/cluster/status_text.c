/* SPDX-License-Identifier: Apache-2.0 */
/* What a node says of its cluster, for people. */
#include "cli/cluster/status_text.h"

#include <inttypes.h>
#include <string.h>

#include "cli/shared/listing.h"
#include "discovery/finder.h"

#define LOSS_TROUBLE 0.01 /* of beats: more is said as trouble */
#define NAME_MAX_LEN 72

/* ---- members ---- */

static bool text_is(const json_t *object, const char *key, const char *text)
{
    return strcmp(json_text_of(object, key), text) == 0;
}

const json_t *members_of(const json_t *status)
{
    return json_object_get(json_object_get(status, "view"), "members");
}

const json_t *member_of(const json_t *status, int64_t rank)
{
    size_t i;
    json_t *member;
    json_array_foreach(members_of(status), i, member)
    {
        if (json_is_integer(json_object_get(member, "rank")) && json_count_of(member, "rank") == rank)
            return member;
    }
    return NULL;
}

static const char *name_or_id(const json_t *member)
{
    const char *name = json_text_of(member, "name");
    return name[0] ? name : json_text_of(member, "short");
}

/* "rank 7" stands for a name that is not there. */
static const char *name_or_rank(const char *name, int64_t rank, char *target, size_t size)
{
    if (name[0])
        return plain_text(name, target, size);
    snprintf(target, size, "rank %" PRId64, rank);
    return target;
}

const char *member_name(const json_t *status, int64_t rank, char *target, size_t size)
{
    return name_or_rank(name_or_id(member_of(status, rank)), rank, target, size);
}

static void append(char *target, size_t size, const char *separator, const char *text)
{
    size_t at = strlen(target);
    if (text[0])
        snprintf(target + at, size - at, "%s%s", at > 0 ? separator : "", text);
}

/* The texts of an array, one behind the other. */
static void join(const json_t *array, const char *separator, char *target, size_t size)
{
    size_t i;
    json_t *item;
    target[0] = 0;
    json_array_foreach(array, i, item)
    {
        if (json_is_string(item))
            append(target, size, separator, json_string_value(item));
    }
}

void machine_text(const json_t *member, char *target, size_t size)
{
    char part[160] = "";
    int64_t cores = json_count_of(member, "cores"), memory = json_count_of(member, "memory_mib");
    if (cores > 0)
        snprintf(part, sizeof part, "%" PRId64 " core%s", cores, cores == 1 ? "" : "s");
    snprintf(target, size, "%s", part);
    if (memory > 0)
        append(target, size, ", ", text_bytes((double)memory * 1024 * 1024).s);
    join(json_object_get(member, "cpu"), " ", part, sizeof part);
    append(target, size, ", ", part);
    append(target, size, ", ", json_text_of(member, "system"));
}

static bool is_well(const json_t *member)
{
    return text_is(member, "state", "healthy") || text_is(member, "state", "self");
}

static enum paint member_paint(const json_t *member)
{
    return is_well(member) && !json_flag_of(member, "straggler") ? PAINT_NONE : PAINT_BAD;
}

/* The best one, and how many more there are. */
static void address_cell(struct listing_cell *cell)
{
    const json_t *list = json_object_get(cell->row, "addresses");
    const char *first = json_string_value(json_array_get(list, 0));
    size_t count = json_array_size(list);
    int len = snprintf(cell->text, sizeof cell->text, "%.*s", TABLE_CELL_MAX / 2, first ? first : "");
    if (count > 1)
        snprintf(cell->text + len, sizeof cell->text - (size_t)len, ", +%zu", count - 1);
}

static void role_cell(struct listing_cell *cell)
{
    char flags[64];
    bool leads =
        json_count_of(cell->row, "rank") == json_count_of(json_object_get(cell->arg, "view"), "leader");
    snprintf(cell->text, sizeof cell->text, "%s", leads ? "leader" : "");
    join(json_object_get(cell->row, "flags"), " ", flags, sizeof flags);
    append(cell->text, sizeof cell->text, ", ", flags);
}

static void slow_cell(struct listing_cell *cell)
{
    snprintf(cell->text, sizeof cell->text, "%s", json_flag_of(cell->row, "straggler") ? "slow" : "");
}

/* ---- the head ---- */

static bool is_guest(const json_t *member)
{
    char flags[64];
    join(json_object_get(member, "flags"), " ", flags, sizeof flags);
    return strstr(flags, "guest");
}

/* How many of a view must be there to decide: a majority, or half of them with the leader. Guests do not
 * count. */
static void quorum_text(const json_t *status, char *target, size_t size)
{
    size_t members = 0, heard = 0, i;
    json_t *member;
    json_array_foreach(members_of(status), i, member)
    {
        members += !is_guest(member);
        heard += !is_guest(member) && !text_is(member, "state", "dead");
    }
    int len = snprintf(target, size, "%zu of %zu heard, %zu needed", heard, members, members / 2 + 1);
    if (members % 2 == 0 && members > 0)
        snprintf(target + len, size - (size_t)len, ", or %zu with the leader", members / 2);
}

static void print_head(const json_t *status, FILE *file)
{
    const json_t *self = json_object_get(status, "self"), *view = json_object_get(status, "view");
    int64_t leader = json_count_of(view, "leader");
    char text[4][NAME_MAX_LEN], quorum[128];
    const char *bold = paint(file, PAINT_BOLD), *none = paint(file, PAINT_NONE);
    fprintf(file, "%scluster %s%s  this node: %s (%s), port %" PRId64 ", transport %s, %s\n", bold,
            plain_text(json_text_of(json_object_get(status, "cluster"), "name"), text[0], NAME_MAX_LEN), none,
            plain_text(json_text_of(self, "name"), text[1], NAME_MAX_LEN),
            plain_text(json_text_of(self, "short"), text[2], NAME_MAX_LEN), json_count_of(self, "port"),
            plain_text(json_text_of(self, "transport"), text[3], NAME_MAX_LEN),
            json_flag_of(self, "plain") ? "not encrypted" : "encrypted");
    quorum_text(status, quorum, sizeof quorum);
    fprintf(file, "view     epoch %" PRId64 ", term %" PRId64 ", leader %s; %s\n",
            json_count_of(view, "epoch"), json_count_of(view, "term"),
            member_of(status, leader) ? member_name(status, leader, text[0], NAME_MAX_LEN) : "none", quorum);
}

/* ---- trouble ---- */

/* One more. */
static int __attribute__((format(printf, 2, 3))) complain(FILE *file, const char *format, ...)
{
    char text[512], plain[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fprintf(file, "%s! %s%s\n", paint(file, PAINT_BAD), plain_text(text, plain, sizeof plain),
            paint(file, PAINT_NONE));
    return 1;
}

static int view_trouble(const json_t *status, FILE *file)
{
    const json_t *view = json_object_get(status, "view");
    const char *state = json_text_of(view, "state"), *why = json_text_of(view, "why");
    int count = 0;
    if (strcmp(state, "stranded") == 0)
        state = "stranded: too few members are heard, nothing is decided here";
    if (strcmp(state, "member") != 0)
        count += complain(file, "%s%s%s", state[0] ? state : "in no view", why[0] ? ": " : "", why);
    if (json_flag_of(json_object_get(status, "self"), "plain"))
        count += complain(file, "nothing is encrypted here, and there is no authentication (plain)");
    return count;
}

static int member_trouble(const json_t *status, FILE *file)
{
    int count = 0;
    size_t i;
    json_t *member;
    json_array_foreach(members_of(status), i, member)
    {
        if (!is_well(member) && !is_guest(member))
            count += complain(file, "%s is %s", name_or_id(member), json_text_of(member, "state"));
        if (json_flag_of(member, "straggler"))
            count += complain(file, "%s is slow: %s", name_or_id(member), json_text_of(member, "slow_why"));
    }
    return count;
}

static int link_trouble(const json_t *status, FILE *file)
{
    int count = 0;
    size_t i;
    json_t *link;
    json_array_foreach(json_object_get(status, "links"), i, link)
    {
        char from[NAME_MAX_LEN], to[NAME_MAX_LEN];
        if (json_real_of(link, "loss") > LOSS_TROUBLE)
            count += complain(file, "%s -> %s loses %s",
                              member_name(status, json_count_of(link, "from"), from, sizeof from),
                              member_name(status, json_count_of(link, "to"), to, sizeof to),
                              text_share(json_real_of(link, "loss")).s);
    }
    return count;
}

static int sighting_trouble(const json_t *status, FILE *file)
{
    const json_t *discovery = json_object_get(status, "discovery");
    int count = 0;
    size_t i;
    json_t *node;
    json_array_foreach(json_object_get(status, "nodes"), i, node)
    {
        const char *why = json_text_of(node, "why");
        if (text_is(node, "cluster", "ours") && !json_flag_of(node, "member"))
            count += complain(file, "%s at %s is no member: %s", name_or_id(node),
                              json_text_of(node, "address"), why[0] ? why : "it has not been reached yet");
    }
    if (discovery && !json_flag_of(discovery, "mdns") && json_text_of(discovery, "text")[0] &&
        !text_is(discovery, "text", FINDER_OFF))
        count += complain(file, "%s", json_text_of(discovery, "text"));
    return count;
}

/* ---- links, transports, jobs ---- */

static void member_cell(struct listing_cell *cell)
{
    member_name(cell->arg, json_count_of(cell->row, cell->column->key), cell->text, sizeof cell->text);
}

static void age_cell(struct listing_cell *cell)
{
    cell->text[0] = 0;
    if (json_count_of(cell->row, "probes") > 0)
        snprintf(cell->text, sizeof cell->text, "%" PRId64 " s", json_count_of(cell->row, "age_s"));
}

static enum paint link_paint(const json_t *link)
{
    return json_real_of(link, "loss") > LOSS_TROUBLE ? PAINT_BAD : PAINT_NONE;
}

/* The rank of a peer is its rank in a job: the view counts its members in another order. */
static void peer_cell(struct listing_cell *cell)
{
    name_or_rank(json_text_of(cell->row, "name"), json_count_of(cell->row, "rank"), cell->text,
                 sizeof cell->text);
}

static const struct column member_columns[] = {
    {"rank", "rank", .form = FORM_NUMBER},
    {"name", "name", .form = FORM_TEXT},
    {"id", "short", .form = FORM_TEXT},
    {"health", "state", .form = FORM_TEXT},
    {"role", .write = role_cell},
    {"latency", "latency_us", FORM_US, .none = ""},
    {"late", "late_us", FORM_US, .none = ""},
    {"", .write = slow_cell},
    {"answered", "uptime", FORM_SHARE, .none = ""},
    {"address", .write = address_cell},
};
static const struct column link_columns[] = {
    {"from", "from", .write = member_cell},        {"to", "to", .write = member_cell},
    {"speed", "mbit", FORM_MBIT, .none = "?"},     {"round trip", "round_trip_us", FORM_US, .none = ""},
    {"loss", "loss", FORM_SHARE, .none = ""},      {"kind", "kind", .form = FORM_TEXT},
    {"probes", "probes", FORM_NUMBER, .none = ""}, {"age", .form = FORM_NUMBER, .write = age_cell},
};
static const struct column peer_columns[] = {
    {"job", "job", .form = FORM_TEXT},
    {"peer", .write = peer_cell},
    {"transport", "transport", .form = FORM_TEXT},
    {"address", "address", .form = FORM_TEXT},
    {"why", "why", .form = FORM_TEXT},
};
static const struct column job_columns[] = {
    {"job", "job", .form = FORM_TEXT},
    {"at least", "min", .form = FORM_NUMBER},
    {"waiting", "waiting", .form = FORM_NUMBER},
    {"running", "running", .form = FORM_NUMBER},
};

static void print_tail(const json_t *status, FILE *file)
{
    const json_t *discovery = json_object_get(status, "discovery"),
                 *traffic = json_object_get(status, "traffic");
    char text[256], seeds[256], plain[256];
    join(json_object_get(discovery, "seeds"), ", ", seeds, sizeof seeds);
    fprintf(file, "\n");
    if (json_text_of(discovery, "text")[0])
        fprintf(file, "discovery  %s\n", plain_text(json_text_of(discovery, "text"), text, sizeof text));
    if (seeds[0])
        fprintf(file, "seeds      %s\n", plain_text(seeds, plain, sizeof plain));
    if (traffic)
        fprintf(file, "traffic    %s sent, %s received\n", text_bytes(json_real_of(traffic, "sent")).s,
                text_bytes(json_real_of(traffic, "received")).s);
}

void status_print(const json_t *status, FILE *file)
{
    static const struct {
        const char *key, *title;
        struct listing_table table;
    } sections[] = {
        {"links", "links", {LISTING_COLUMNS(link_columns), .paint = link_paint, .most = STATUS_LINKS_SHOWN}},
        {"peers", "transports", {LISTING_COLUMNS(peer_columns)}},
        {"jobs", "jobs", {LISTING_COLUMNS(job_columns)}}};
    int troubles = view_trouble(status, file);
    troubles += member_trouble(status, file);
    troubles += link_trouble(status, file);
    troubles += sighting_trouble(status, file);
    if (troubles > 0)
        fprintf(file, "\n");
    print_head(status, file);
    fprintf(file, "\n");
    const struct listing_table members = {LISTING_COLUMNS(member_columns), .arg = status,
                                          .paint = member_paint};
    listing_print(&members, members_of(status), file, "  ");
    for (size_t i = 0; i < sizeof sections / sizeof *sections; i++) {
        const json_t *rows = json_object_get(status, sections[i].key);
        struct listing_table table = sections[i].table;
        size_t count = json_array_size(rows);
        table.arg = status;
        if (count == 0)
            continue;
        fprintf(file, "\n%s\n", sections[i].title);
        listing_print(&table, rows, file, "  ");
        if (table.most > 0 && count > table.most)
            fprintf(file, "  and %zu more: hearth topology\n", count - table.most);
    }
    print_tail(status, file);
}

/* ---- nodes ---- */

static void standing_cell(struct listing_cell *cell)
{
    bool ours = text_is(cell->row, "cluster", "ours"), member = json_flag_of(cell->row, "member");
    snprintf(cell->text, sizeof cell->text, "%s",
             !ours    ? "other cluster"
             : member ? "member"
                      : "not a member");
}

static void space_cell(struct listing_cell *cell)
{
    bool ours = text_is(cell->row, "cluster", "ours");
    snprintf(cell->text, sizeof cell->text, "%.8s", ours ? "" : json_text_of(cell->row, "namespace"));
}

static enum paint node_paint(const json_t *node)
{
    return text_is(node, "cluster", "ours") && !json_flag_of(node, "member") ? PAINT_BAD : PAINT_NONE;
}

/* Ours first. A further address of a node stands below the first, without its name. */
static json_t *sort_nodes(const json_t *nodes)
{
    json_t *sorted = json_array(), *node;
    for (int ours = 1; ours >= 0; ours--) {
        const char *before = "";
        size_t i;
        json_array_foreach(nodes, i, node)
        {
            if (text_is(node, "cluster", "ours") != ours)
                continue;
            json_t *row = json_copy(node);
            if (text_is(node, "id", before))
                json_object_update_new(row, json_pack("{ssss}", "name", "", "short", ""));
            before = json_text_of(node, "id");
            json_array_append_new(sorted, row);
        }
    }
    return sorted;
}

void nodes_print(const json_t *nodes, FILE *file)
{
    static const struct column columns[] = {
        {"name", "name", .form = FORM_TEXT},       {"id", "short", .form = FORM_TEXT},
        {"address", "address", .form = FORM_TEXT}, {"", .write = standing_cell},
        {"namespace", .write = space_cell},        {"why", "why", .form = FORM_TEXT},
    };
    const struct listing_table table = {LISTING_COLUMNS(columns), .paint = node_paint};
    json_t *sorted = sort_nodes(nodes);
    if (json_array_size(sorted) > 0)
        listing_print(&table, sorted, file, "");
    json_decref(sorted);
}
