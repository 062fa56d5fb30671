/* SPDX-License-Identifier: Apache-2.0 */
/* What a node says of its cluster, for people. */
#include "cli/cluster/status_text.h"

#include <inttypes.h>
#include <string.h>

#include "cli/shared/json.h"
#include "cli/shared/table.h"

#define LOSS_TROUBLE 0.01 /* of beats: more is said as trouble */
#define NAME_MAX_LEN 72

/* ---- members ---- */

static const json_t *members_of(const json_t *status)
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

const char *member_name(const json_t *status, int64_t rank, char *target, size_t size)
{
    const json_t *member = member_of(status, rank);
    const char *name = name_or_id(member);
    if (name[0])
        return plain_text(name, target, size);
    snprintf(target, size, "rank %" PRId64, rank);
    return target;
}

static void append(char *target, size_t size, const char *separator, const char *text)
{
    size_t at = strlen(target);
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
    char part[160];
    int64_t cores = json_count_of(member, "cores"), memory = json_count_of(member, "memory_mib");
    target[0] = 0;
    if (cores > 0) {
        snprintf(part, sizeof part, "%" PRId64 " core%s", cores, cores == 1 ? "" : "s");
        append(target, size, ", ", part);
    }
    if (memory > 0)
        append(target, size, ", ", text_bytes((double)memory * 1024 * 1024).s);
    join(json_object_get(member, "cpu"), " ", part, sizeof part);
    if (part[0])
        append(target, size, ", ", part);
    if (json_text_of(member, "system")[0])
        append(target, size, ", ", json_text_of(member, "system"));
}

static struct text micros(const json_t *object, const char *key)
{
    double us = json_real_of(object, key);
    return us > 0 ? text_time(us * 1e-6) : (struct text){""};
}

static struct text share(const json_t *object, const char *key)
{
    double part = json_real_of(object, key);
    return part > 0 ? text_share(part) : (struct text){""};
}

static struct text speed(const json_t *link)
{
    double mbit = json_real_of(link, "mbit");
    return mbit > 0 ? text_rate(mbit * 1e6 / 8) : (struct text){"?"};
}

static bool is_well(const json_t *member)
{
    const char *state = json_text_of(member, "state");
    return strcmp(state, "healthy") == 0 || strcmp(state, "self") == 0;
}

static enum paint paint_of(const json_t *member)
{
    return is_well(member) && !json_flag_of(member, "straggler") ? PAINT_NONE : PAINT_BAD;
}

/* The best one, and how many more there are. */
static void first_address(const json_t *member, char *target, size_t size)
{
    const json_t *list = json_object_get(member, "addresses");
    const char *first = json_string_value(json_array_get(list, 0));
    size_t count = json_array_size(list);
    snprintf(target, size, "%s", first ? first : "");
    if (count > 1)
        snprintf(target, size, "%s, +%zu", first ? first : "", count - 1);
}

static void add_member(struct table *table, const json_t *member, bool leads)
{
    char rank[24], address[TABLE_CELL_MAX], flags[64];
    snprintf(rank, sizeof rank, "%" PRId64, json_count_of(member, "rank"));
    first_address(member, address, sizeof address);
    join(json_object_get(member, "flags"), " ", flags, sizeof flags);
    struct text late = micros(member, "late_us");
    char role[96];
    snprintf(role, sizeof role, "%s%s%s", leads ? "leader" : "", leads && flags[0] ? ", " : "", flags);
    TABLE_ROW(table, paint_of(member), rank, json_text_of(member, "name"), json_text_of(member, "short"),
              json_text_of(member, "state"), role, micros(member, "latency_us").s, late.s,
              json_flag_of(member, "straggler") ? "slow" : "", share(member, "uptime").s, address);
}

static void print_members(const json_t *status, FILE *file)
{
    const json_t *view = json_object_get(status, "view");
    int64_t leader = json_count_of(view, "leader");
    struct table table;
    size_t i;
    json_t *member;
    table_open(&table, "rllllrrlrl");
    TABLE_ROW(&table, PAINT_DIM, "rank", "name", "id", "health", "role", "latency", "late", "", "answered",
              "address");
    json_array_foreach(members_of(status), i, member)
        add_member(&table, member, json_count_of(member, "rank") == leader);
    table_print(&table, file, "  ");
    table_close(&table);
}

/* ---- the head ---- */

static bool is_guest(const json_t *member)
{
    size_t i;
    json_t *flag;
    json_array_foreach(json_object_get(member, "flags"), i, flag)
    {
        if (json_is_string(flag) && strcmp(json_string_value(flag), "guest") == 0)
            return true;
    }
    return false;
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
        heard += !is_guest(member) && strcmp(json_text_of(member, "state"), "dead") != 0;
    }
    if (members % 2 == 0 && members > 0)
        snprintf(target, size, "%zu of %zu heard, %zu needed, or %zu with the leader", heard, members,
                 members / 2 + 1, members / 2);
    else
        snprintf(target, size, "%zu of %zu heard, %zu needed", heard, members, members / 2 + 1);
}

static void print_head(const json_t *status, FILE *file)
{
    const json_t *cluster = json_object_get(status, "cluster"), *self = json_object_get(status, "self");
    const json_t *view = json_object_get(status, "view");
    char text[NAME_MAX_LEN], quorum[128];
    const char *bold = paint(file, PAINT_BOLD), *none = paint(file, PAINT_NONE);
    fprintf(file, "%scluster %s%s", bold, plain_text(json_text_of(cluster, "name"), text, sizeof text), none);
    fprintf(file, "  this node: %s", plain_text(json_text_of(self, "name"), text, sizeof text));
    fprintf(file, " (%s), port %" PRId64, plain_text(json_text_of(self, "short"), text, sizeof text),
            json_count_of(self, "port"));
    fprintf(file, ", transport %s, %s\n", plain_text(json_text_of(self, "transport"), text, sizeof text),
            json_flag_of(self, "plain") ? "not encrypted" : "encrypted");
    quorum_text(status, quorum, sizeof quorum);
    fprintf(file, "view     epoch %" PRId64 ", term %" PRId64, json_count_of(view, "epoch"),
            json_count_of(view, "term"));
    fprintf(file, ", leader %s; %s\n",
            member_of(status, json_count_of(view, "leader"))
                ? member_name(status, json_count_of(view, "leader"), text, sizeof text)
                : "none",
            quorum);
}

/* ---- trouble ---- */

struct trouble {
    FILE *file;
    int count;
};

static void __attribute__((format(printf, 2, 3))) complain(struct trouble *t, const char *format, ...)
{
    char text[512], plain[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fprintf(t->file, "%s! %s%s\n", paint(t->file, PAINT_BAD), plain_text(text, plain, sizeof plain),
            paint(t->file, PAINT_NONE));
    t->count++;
}

static void view_trouble(struct trouble *t, const json_t *status)
{
    const json_t *view = json_object_get(status, "view");
    const char *state = json_text_of(view, "state"), *why = json_text_of(view, "why");
    if (strcmp(state, "stranded") == 0)
        complain(t, "stranded: too few members are heard, nothing is decided here%s%s", why[0] ? ": " : "",
                 why);
    else if (strcmp(state, "member") != 0)
        complain(t, "%s%s%s", state[0] ? state : "in no view", why[0] ? ": " : "", why);
    if (json_flag_of(json_object_get(status, "self"), "plain"))
        complain(t, "nothing is encrypted here, and nobody proves who he is (plain)");
}

static void member_trouble(struct trouble *t, const json_t *status)
{
    size_t i;
    json_t *member;
    json_array_foreach(members_of(status), i, member)
    {
        if (!is_well(member) && !is_guest(member))
            complain(t, "%s is %s", name_or_id(member), json_text_of(member, "state"));
        if (json_flag_of(member, "straggler"))
            complain(t, "%s is slow: %s", name_or_id(member), json_text_of(member, "slow_why"));
    }
}

static void link_trouble(struct trouble *t, const json_t *status)
{
    size_t i;
    json_t *link;
    json_array_foreach(json_object_get(status, "links"), i, link)
    {
        char from[NAME_MAX_LEN], to[NAME_MAX_LEN];
        if (json_real_of(link, "loss") > LOSS_TROUBLE)
            complain(t, "%s -> %s loses %s",
                     member_name(status, json_count_of(link, "from"), from, sizeof from),
                     member_name(status, json_count_of(link, "to"), to, sizeof to),
                     text_share(json_real_of(link, "loss")).s);
    }
}

static void sighting_trouble(struct trouble *t, const json_t *status)
{
    const json_t *discovery = json_object_get(status, "discovery");
    size_t i;
    json_t *node;
    json_array_foreach(json_object_get(status, "nodes"), i, node)
    {
        if (strcmp(json_text_of(node, "cluster"), "ours") == 0 && !json_flag_of(node, "member"))
            complain(t, "%s at %s is no member: %s", name_or_id(node), json_text_of(node, "address"),
                     json_text_of(node, "why")[0] ? json_text_of(node, "why")
                                                  : "it has not been reached yet");
    }
    if (discovery && !json_flag_of(discovery, "mdns") && json_text_of(discovery, "text")[0])
        complain(t, "%s", json_text_of(discovery, "text"));
}

int status_trouble(const json_t *status, FILE *file)
{
    struct trouble trouble = {.file = file};
    view_trouble(&trouble, status);
    member_trouble(&trouble, status);
    link_trouble(&trouble, status);
    sighting_trouble(&trouble, status);
    return trouble.count;
}

/* ---- links, transports, jobs ---- */

static void add_link(struct table *table, const json_t *status, const json_t *link)
{
    char from[NAME_MAX_LEN], to[NAME_MAX_LEN], probes[24] = "", age[24] = "";
    if (json_count_of(link, "probes") > 0) {
        snprintf(probes, sizeof probes, "%" PRId64, json_count_of(link, "probes"));
        snprintf(age, sizeof age, "%" PRId64 " s", json_count_of(link, "age_s"));
    }
    TABLE_ROW(table, json_real_of(link, "loss") > LOSS_TROUBLE ? PAINT_BAD : PAINT_NONE,
              member_name(status, json_count_of(link, "from"), from, sizeof from),
              member_name(status, json_count_of(link, "to"), to, sizeof to), speed(link).s,
              micros(link, "round_trip_us").s, share(link, "loss").s, json_text_of(link, "kind"), probes,
              age);
}

static void print_links(const json_t *status, FILE *file)
{
    const json_t *links = json_object_get(status, "links");
    size_t count = json_array_size(links), i;
    struct table table;
    json_t *link;
    if (count == 0)
        return;
    table_open(&table, "llrrrlrr");
    TABLE_ROW(&table, PAINT_DIM, "from", "to", "speed", "round trip", "loss", "kind", "probes", "age");
    json_array_foreach(links, i, link)
    {
        if (i < STATUS_LINKS_SHOWN)
            add_link(&table, status, link);
    }
    fprintf(file, "\nlinks\n");
    table_print(&table, file, "  ");
    table_close(&table);
    if (count > STATUS_LINKS_SHOWN)
        fprintf(file, "  and %zu more: hearth topology\n", count - STATUS_LINKS_SHOWN);
}

/* The rank of a peer is its rank in a job: the view counts its members in another order. */
static const char *peer_name(const json_t *peer, char *target, size_t size)
{
    if (json_text_of(peer, "name")[0])
        return plain_text(json_text_of(peer, "name"), target, size);
    snprintf(target, size, "rank %" PRId64, json_count_of(peer, "rank"));
    return target;
}

static void print_peers(const json_t *status, FILE *file)
{
    const json_t *peers = json_object_get(status, "peers");
    struct table table;
    size_t i;
    json_t *peer;
    if (json_array_size(peers) == 0)
        return;
    table_open(&table, "lllll");
    TABLE_ROW(&table, PAINT_DIM, "job", "peer", "transport", "address", "why");
    json_array_foreach(peers, i, peer)
    {
        char name[NAME_MAX_LEN];
        TABLE_ROW(&table, PAINT_NONE, json_text_of(peer, "job"), peer_name(peer, name, sizeof name),
                  json_text_of(peer, "transport"), json_text_of(peer, "address"), json_text_of(peer, "why"));
    }
    fprintf(file, "\ntransports\n");
    table_print(&table, file, "  ");
    table_close(&table);
}

static void print_jobs(const json_t *status, FILE *file)
{
    const json_t *jobs = json_object_get(status, "jobs");
    struct table table;
    size_t i;
    json_t *job;
    if (json_array_size(jobs) == 0)
        return;
    table_open(&table, "lrrr");
    TABLE_ROW(&table, PAINT_DIM, "job", "at least", "waiting", "running");
    json_array_foreach(jobs, i, job)
    {
        char text[3][24];
        snprintf(text[0], sizeof text[0], "%" PRId64, json_count_of(job, "min"));
        snprintf(text[1], sizeof text[1], "%" PRId64, json_count_of(job, "waiting"));
        snprintf(text[2], sizeof text[2], "%" PRId64, json_count_of(job, "running"));
        TABLE_ROW(&table, PAINT_NONE, json_text_of(job, "job"), text[0], text[1], text[2]);
    }
    fprintf(file, "\njobs\n");
    table_print(&table, file, "  ");
    table_close(&table);
}

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
    if (status_trouble(status, file) > 0)
        fprintf(file, "\n");
    print_head(status, file);
    fprintf(file, "\n");
    print_members(status, file);
    print_links(status, file);
    print_peers(status, file);
    print_jobs(status, file);
    print_tail(status, file);
}

/* ---- nodes ---- */

/* Where a node stands to us, in one cell. */
static const char *standing(const json_t *node)
{
    if (strcmp(json_text_of(node, "cluster"), "ours") != 0)
        return "other cluster";
    return json_flag_of(node, "member") ? "member" : "not a member";
}

static void add_node(struct table *table, const json_t *node, const char *before)
{
    const char *id = json_text_of(node, "id"), *stands = standing(node);
    bool same = strcmp(id, before) == 0; /* another address of the one above */
    char space[16] = "";
    if (strcmp(stands, "other cluster") == 0)
        snprintf(space, sizeof space, "%.8s", json_text_of(node, "namespace"));
    TABLE_ROW(table, strcmp(stands, "not a member") == 0 ? PAINT_BAD : PAINT_NONE,
              same ? "" : json_text_of(node, "name"), same ? "" : json_text_of(node, "short"),
              json_text_of(node, "address"), stands, space, json_text_of(node, "why"));
}

static void add_nodes(struct table *table, const json_t *nodes, bool ours)
{
    const char *before = "";
    size_t i;
    json_t *node;
    json_array_foreach(nodes, i, node)
    {
        if ((strcmp(json_text_of(node, "cluster"), "ours") == 0) != ours)
            continue;
        add_node(table, node, before);
        before = json_text_of(node, "id");
    }
}

void nodes_print(const json_t *nodes, FILE *file)
{
    struct table table;
    table_open(&table, "llllll");
    TABLE_ROW(&table, PAINT_DIM, "name", "id", "address", "", "namespace", "why");
    add_nodes(&table, nodes, true);
    add_nodes(&table, nodes, false);
    if (json_array_size(nodes) > 0)
        table_print(&table, file, "");
    table_close(&table);
}
