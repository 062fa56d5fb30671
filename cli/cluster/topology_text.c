/* SPDX-License-Identifier: Apache-2.0 */
/* The map of a cluster from what a node says of it. */
#include "cli/cluster/status_text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/shared/listing.h"

#define MAP_MAX      64 /* members: membership/view.h */
#define NAME_MAX_LEN 72
#define SLOW_SHARE   0.5 /* of the fastest way: below it a way is painted */
#define SLOWER_SHARE 0.1

struct path {
    double mbit, round_trip_us, loss; /* 0: not known */
};

struct map {
    const json_t *status;
    int size; /* members; ranks are 0 to size - 1 */
    char names[MAP_MAX][NAME_MAX_LEN];
    struct path paths[MAP_MAX][MAP_MAX];
    int order[MAP_MAX], order_len; /* of the ring */
    int site[MAP_MAX], sites;      /* by rank */
    double fastest;
    int slow_from, slow_to; /* the slowest way of the ring; -1: none is known */
};

/* ---- reading ---- */

static void read_paths(struct map *map)
{
    size_t i;
    json_t *link;
    json_array_foreach(json_object_get(map->status, "links"), i, link)
    {
        int64_t from = json_count_of(link, "from"), to = json_count_of(link, "to");
        if (from < 0 || to < 0 || from >= map->size || to >= map->size || from == to)
            continue;
        struct path *path = &map->paths[from][to];
        *path = (struct path){json_real_of(link, "mbit"), json_real_of(link, "round_trip_us"),
                              json_real_of(link, "loss")};
        map->fastest = path->mbit > map->fastest ? path->mbit : map->fastest;
    }
}

static void read_order(struct map *map)
{
    bool seen[MAP_MAX] = {false};
    size_t i;
    json_t *item;
    json_array_foreach(json_object_get(map->status, "order"), i, item)
    {
        int64_t rank = json_integer_value(item);
        if (rank < 0 || rank >= map->size || seen[rank])
            continue;
        seen[rank] = true;
        map->order[map->order_len++] = (int)rank;
    }
}

static void read_sites(struct map *map)
{
    size_t i;
    json_t *item;
    json_array_foreach(json_object_get(map->status, "sites"), i, item)
    {
        int64_t site = json_integer_value(item);
        if (i >= (size_t)map->size || site < 0 || site >= MAP_MAX)
            continue;
        map->site[i] = (int)site;
        map->sites = site >= map->sites ? (int)site + 1 : map->sites;
    }
    if (map->sites == 0)
        map->sites = 1;
}

static bool in_ring(const struct map *map, int from, int to)
{
    for (int i = 0; i < map->order_len && map->order_len > 1; i++) {
        if (map->order[i] == from && map->order[(i + 1) % map->order_len] == to)
            return true;
    }
    return false;
}

static void find_bottleneck(struct map *map)
{
    double least = 0;
    map->slow_from = map->slow_to = -1;
    for (int i = 0; i < map->order_len && map->order_len > 1; i++) {
        int from = map->order[i], to = map->order[(i + 1) % map->order_len];
        double mbit = map->paths[from][to].mbit;
        if (mbit > 0 && (map->slow_from < 0 || mbit < least)) {
            least = mbit;
            map->slow_from = from;
            map->slow_to = to;
        }
    }
}

/* NULL: no memory. */
static struct map *map_open(const json_t *status)
{
    struct map *map = calloc(1, sizeof *map);
    if (!map) {
        fprintf(stderr, "hearth topology: no memory\n");
        return NULL;
    }
    map->status = status;
    for (; map->size < MAP_MAX && member_of(status, map->size); map->size++)
        member_name(status, map->size, map->names[map->size], NAME_MAX_LEN);
    read_paths(map);
    read_order(map);
    read_sites(map);
    find_bottleneck(map);
    return map;
}

/* ---- for people ---- */

static struct text mbit_cell(const struct path *path)
{
    struct text t = {"?"};
    if (path->mbit > 0)
        snprintf(t.s, sizeof t.s, "%.*f", path->mbit < 10 ? 1 : 0, path->mbit);
    return t;
}

static struct text trip_cell(const struct path *path)
{
    struct text t = {"?"};
    if (path->round_trip_us > 0)
        snprintf(t.s, sizeof t.s, "%.*f", path->round_trip_us < 10000 ? 2 : 0, path->round_trip_us / 1000);
    return t;
}

static void print_matrix(const struct map *map, FILE *file, const char *head,
                         struct text (*cell)(const struct path *path))
{
    char align[MAP_MAX + 3] = "rl", numbers[MAP_MAX][12];
    struct text cells[MAP_MAX];
    const char *row[MAP_MAX + 2] = {"", ""};
    struct table table;
    memset(align + 2, 'r', (size_t)map->size);
    align[map->size + 2] = 0;
    table_open(&table, align);
    for (int i = 0; i < map->size; i++) {
        snprintf(numbers[i], sizeof numbers[i], "%d", i);
        row[i + 2] = numbers[i];
    }
    table_row(&table, PAINT_DIM, row, (size_t)map->size + 2);
    for (int from = 0; from < map->size; from++) {
        row[0] = numbers[from];
        row[1] = map->names[from];
        for (int to = 0; to < map->size; to++) {
            cells[to] = from == to ? (struct text){"-"} : cell(&map->paths[from][to]);
            row[to + 2] = cells[to].s;
        }
        table_row(&table, PAINT_NONE, row, (size_t)map->size + 2);
    }
    fprintf(file, "\n%s\n", head);
    table_print(&table, file, "  ");
    table_close(&table);
}

/* "desk =940=> nas =94=> desk" */
static void print_ring(const struct map *map, FILE *file)
{
    if (map->order_len < 2)
        return;
    fprintf(file, "\nring  %s", map->names[map->order[0]]);
    for (int i = 0; i < map->order_len; i++) {
        int from = map->order[i], to = map->order[(i + 1) % map->order_len];
        bool slow = from == map->slow_from && to == map->slow_to;
        fprintf(file, " %s=%s=>%s %s", slow ? paint(file, PAINT_BAD) : "", mbit_cell(&map->paths[from][to]).s,
                slow ? paint(file, PAINT_NONE) : "", map->names[to]);
    }
    if (map->slow_from < 0)
        fprintf(file, "\n      none of its paths is measured yet\n");
    else
        fprintf(file, "\n      slowest path: %s -> %s, %s\n", map->names[map->slow_from],
                map->names[map->slow_to],
                text_rate(map->paths[map->slow_from][map->slow_to].mbit * 1e6 / 8).s);
}

static void print_sites(const struct map *map, FILE *file)
{
    fprintf(file, "\nsites\n");
    for (int site = 0; site < map->sites; site++) {
        const char *before = " ";
        fprintf(file, "  %d:", site);
        for (int rank = 0; rank < map->size; rank++) {
            if (map->site[rank] != site)
                continue;
            fprintf(file, "%s%s", before, map->names[rank]);
            before = ", ";
        }
        fprintf(file, "\n");
    }
}

static void machine_cell(struct listing_cell *cell)
{
    machine_text(cell->row, cell->text, sizeof cell->text);
}

void topology_print(const json_t *status, FILE *file)
{
    static const struct column columns[] = {
        {"rank", "rank", .form = FORM_NUMBER},
        {"name", "name", .form = FORM_TEXT},
        {"machine", .write = machine_cell},
    };
    const struct listing_table machines = {LISTING_COLUMNS(columns)};
    struct map *map = map_open(status);
    if (!map)
        return;
    fprintf(file, "%d member%s, %d site%s\n", map->size, map->size == 1 ? "" : "s", map->sites,
            map->sites == 1 ? "" : "s");
    listing_print(&machines, members_of(status), file, "  ");
    if (map->size > 1) {
        print_matrix(map, file, "Mbit/s, from the row's member to the column's", mbit_cell);
        print_matrix(map, file, "round trip, ms", trip_cell);
        print_ring(map, file);
        print_sites(map, file);
    }
    free(map);
}

/* ---- for graphviz ---- */

/* As a text in double quotes. */
static void dot_text(FILE *file, const char *text)
{
    char plain[TABLE_CELL_MAX];
    plain_text(text, plain, sizeof plain);
    for (const char *c = plain; *c; c++)
        fprintf(file, "%s%c", *c == '"' || *c == '\\' ? "\\" : "", *c);
}

static void dot_node(const struct map *map, int rank, FILE *file)
{
    char machine[TABLE_CELL_MAX];
    machine_text(member_of(map->status, rank), machine, sizeof machine);
    fprintf(file, "    n%d [label=\"%d ", rank, rank);
    dot_text(file, map->names[rank]);
    fprintf(file, "\\n");
    dot_text(file, machine);
    fprintf(file, "\"];\n");
}

static const char *dot_colour(const struct map *map, const struct path *path)
{
    if (path->mbit <= 0)
        return "gray";
    double share = path->mbit / map->fastest;
    return share >= SLOW_SHARE ? "forestgreen" : share >= SLOWER_SHARE ? "orange" : "red";
}

static void dot_path(const struct map *map, int from, int to, FILE *file)
{
    const struct path *path = &map->paths[from][to];
    if (path->mbit <= 0 && path->round_trip_us <= 0)
        return;
    fprintf(file, "  n%d -> n%d [color=%s, label=\"%s", from, to, dot_colour(map, path),
            path->mbit > 0 ? text_rate(path->mbit * 1e6 / 8).s : "not measured");
    if (path->round_trip_us > 0)
        fprintf(file, "\\n%s", text_time(path->round_trip_us * 1e-6).s);
    fprintf(file, "\"%s%s];\n", in_ring(map, from, to) ? ", penwidth=3" : ", constraint=false",
            path->mbit > 0 ? "" : ", style=dashed");
}

void topology_dot(const json_t *status, FILE *file)
{
    struct map *map = map_open(status);
    if (!map)
        return;
    fprintf(file, "digraph hearth {\n  label=\"cluster ");
    dot_text(file, json_text_of(json_object_get(status, "cluster"), "name"));
    fprintf(file, ", epoch %" PRId64 "; thick: the ring\";\n",
            json_count_of(json_object_get(status, "view"), "epoch"));
    fprintf(file, "  node [shape=box];\n  edge [fontsize=9];\n");
    for (int site = 0; site < map->sites; site++) {
        fprintf(file, "  subgraph cluster_%d {\n    label=\"site %d\";\n", site, site);
        for (int rank = 0; rank < map->size; rank++) {
            if (map->site[rank] == site)
                dot_node(map, rank, file);
        }
        fprintf(file, "  }\n");
    }
    for (int from = 0; from < map->size; from++) {
        for (int to = 0; to < map->size; to++)
            dot_path(map, from, to, file);
    }
    fprintf(file, "}\n");
    free(map);
}

/* ---- for programs ---- */

json_t *topology_part(const json_t *status)
{
    struct map *map = map_open(status);
    const json_t *view = json_object_get(status, "view");
    json_t *slow = json_null();
    if (!map)
        return NULL;
    if (map->slow_from >= 0)
        slow = json_pack("{sisisf}", "from", map->slow_from, "to", map->slow_to, "mbit",
                         map->paths[map->slow_from][map->slow_to].mbit);
    free(map);
    return json_pack("{sO? s{sO? sO?} sO? sO? sO? so}", "cluster", json_object_get(status, "cluster"), "view",
                     "epoch", json_object_get(view, "epoch"), "members", json_object_get(view, "members"),
                     "links", json_object_get(status, "links"), "order", json_object_get(status, "order"),
                     "sites", json_object_get(status, "sites"), "bottleneck", slow);
}
