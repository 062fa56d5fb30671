/* SPDX-License-Identifier: Apache-2.0 */
/* The best ring order of a group. All goals become one table of costs, the more important in the higher bits:
 * leave a site, leave a host, use a path slower than the threshold, the time for a byte. The cheapest ring
 * leaves each site and each host once. As long as a ring without slow paths exists the threshold rises: the
 * last one gives the best bottleneck, and the shortest ring with it. */
#include <string.h>

#include "membership/ring_search.h"
#include "membership/topology.h"

#define WITHIN_HOST UINT32_MAX          /* faster than any measure */
#define UNMEASURED  UINT32_C(10000)     /* 1 Gbit/s, if nothing is measured */
#define TIME_UNIT   (UINT64_C(1) << 36) /* so that 64 of the longest times stay below COST_SLOW */
#define COST_SLOW   (UINT64_C(1) << 43) /* each level has room for 127 */
#define COST_HOST   (UINT64_C(1) << 50)
#define COST_SITE   (UINT64_C(1) << 57)
#define SHAKES      12 /* for large groups, at each threshold */

struct site_group {
    const struct topology *t;
    const int *members;
    int size, hosts;
    int host[VIEW_MEMBERS_MAX]; /* of each member: 0, 1, ... by their lowest member */
    int site[VIEW_MEMBERS_MAX]; /* of each member: any numbers */
    uint32_t speed[VIEW_MEMBERS_MAX][VIEW_MEMBERS_MAX];
};

/* The opposite direction stands for a path that is not measured. */
static const struct path_measure *path_of(const struct site_group *g, int from, int to)
{
    const struct path_measure *path = &g->t->paths[g->members[from] * VIEW_MEMBERS_MAX + g->members[to]];
    const struct path_measure *back = &g->t->paths[g->members[to] * VIEW_MEMBERS_MAX + g->members[from]];

    return path->mbit_x10 == 0 && back->mbit_x10 > 0 ? back : path;
}

static void sort_numbers(uint32_t *numbers, int count) /* Shell's; at most a few thousand */
{
    for (int gap = count / 2; gap > 0; gap = gap > 2 ? gap * 5 / 11 : gap - 1)
        for (int i = gap; i < count; i++) {
            uint32_t kept = numbers[i];
            int at = i;
            for (; at >= gap && numbers[at - gap] > kept; at -= gap)
                numbers[at] = numbers[at - gap];
            numbers[at] = kept;
        }
}

/* ---- Measures ---- */

static void number_hosts(struct site_group *g, const uint64_t *hosts)
{
    for (int i = 0; i < g->size; i++) {
        int same = 0;
        while (same < i && hosts[same] != hosts[i])
            same++;
        g->host[i] = same < i ? g->host[same] : g->hosts++;
    }
}

static uint32_t median_speed(const struct site_group *g)
{
    uint32_t known[VIEW_MEMBERS_MAX * VIEW_MEMBERS_MAX];
    int count = 0;

    for (int i = 0; i < g->size; i++)
        for (int j = 0; j < g->size; j++)
            if (g->host[i] != g->host[j] && path_of(g, i, j)->mbit_x10 > 0)
                known[count++] = path_of(g, i, j)->mbit_x10;
    if (count == 0)
        return UNMEASURED;
    sort_numbers(known, count);
    return known[(count - 1) / 2];
}

static void fill_speeds(struct site_group *g)
{
    uint32_t median = median_speed(g);

    for (int i = 0; i < g->size; i++)
        for (int j = 0; j < g->size; j++) {
            uint32_t measured = path_of(g, i, j)->mbit_x10;
            g->speed[i][j] = g->host[i] == g->host[j] ? WITHIN_HOST : measured > 0 ? measured : median;
        }
}

/* ---- Sites ---- */

/* Speeds between hosts, tenths of Mbit/s, the same in both directions; 0: not measured. */
struct site_paths {
    int hosts;
    uint32_t speed[VIEW_MEMBERS_MAX][VIEW_MEMBERS_MAX];
};

struct edge {
    int a, b;
    uint32_t speed;
};

static int find_root(const int *parent, int node)
{
    while (parent[node] != node)
        node = parent[node];
    return node;
}

/* The lower root wins, so that a site has the number of its lowest host. */
static void join(int *parent, int a, int b)
{
    a = find_root(parent, a);
    b = find_root(parent, b);
    parent[a < b ? b : a] = a < b ? a : b;
}

/* Prim's algorithm, restarted where no measured path leads on; `tree` gets a number for each host. */
static int spanning_forest(const struct site_paths *paths, struct edge *edges, int *tree)
{
    uint32_t best[VIEW_MEMBERS_MAX] = {0};
    int from[VIEW_MEMBERS_MAX], count = 0;
    bool in[VIEW_MEMBERS_MAX] = {false};

    for (int round = 0; round < paths->hosts; round++) {
        int next = -1;
        for (int h = 0; h < paths->hosts; h++)
            if (!in[h] && (next < 0 || best[h] > best[next]))
                next = h;
        in[next] = true;
        tree[next] = next;
        if (best[next] > 0) {
            edges[count++] = (struct edge){from[next], next, best[next]};
            tree[next] = tree[from[next]];
        }
        for (int h = 0; h < paths->hosts; h++)
            if (!in[h] && paths->speed[next][h] > best[h]) {
                best[h] = paths->speed[next][h];
                from[h] = next;
            }
    }
    return count;
}

static void sort_fastest_first(struct edge *edges, int count)
{
    for (int i = 1; i < count; i++)
        for (int j = i; j > 0 && edges[j].speed > edges[j - 1].speed; j--) {
            struct edge kept = edges[j];
            edges[j] = edges[j - 1];
            edges[j - 1] = kept;
        }
}

/* How many of the sorted edges are inside sites. The widest gap counts; of equal ones the first. */
static int kept_edges(const struct edge *edges, int count)
{
    int kept = count;

    for (int k = 1; k < count; k++) {
        uint64_t last = edges[k - 1].speed, next = edges[k].speed, typical = edges[k / 2].speed;
        if (2 * next >= typical || 2 * last < 3 * next)
            continue;
        if (kept == count || last * edges[kept].speed > edges[kept - 1].speed * next)
            kept = k;
    }
    return kept;
}

static int hosts_under(const int *parent, int hosts, int root)
{
    int count = 0;

    for (int h = 0; h < hosts; h++)
        count += find_root(parent, h) == root;
    return count;
}

/* Hosts into sites; site[host] is the lowest host of its site. The edges of a maximum spanning tree are
 * sorted. Where one is much slower than the one before it, and slower than half of the typical speed before
 * it, it and all slower ones are cut; what stays connected is a site. The slower direction of a path counts:
 * a ring needs only one of them, but members of a site send in both. */
static void topology_sites(const struct site_paths *paths, int *site)
{
    struct edge edges[VIEW_MEMBERS_MAX];
    int parent[VIEW_MEMBERS_MAX], tree[VIEW_MEMBERS_MAX], largest = 0;
    int count = spanning_forest(paths, edges, tree);

    for (int h = 0; h < paths->hosts; h++)
        parent[h] = h;
    sort_fastest_first(edges, count);
    int kept = kept_edges(edges, count);
    for (int e = 0; e < kept; e++)
        join(parent, edges[e].a, edges[e].b);
    for (int h = 1; h < paths->hosts; h++)
        if (hosts_under(parent, paths->hosts, h) > hosts_under(parent, paths->hosts, largest))
            largest = h;
    /* Parts without a measured path between them count as near. */
    for (int h = 0; h < paths->hosts; h++)
        if (tree[h] == h && tree[largest] != h)
            join(parent, h, largest);
    for (int h = 0; h < paths->hosts; h++)
        site[h] = find_root(parent, h);
}

/* Between two hosts the fastest path of their members counts, and the slower of its two directions. */
static void fill_sites(struct site_group *g)
{
    struct site_paths each = {.hosts = g->hosts}, both = {.hosts = g->hosts};
    int site[VIEW_MEMBERS_MAX];

    for (int i = 0; i < g->size; i++)
        for (int j = 0; j < g->size; j++) {
            uint32_t *speed = &each.speed[g->host[i]][g->host[j]];
            if (g->host[i] != g->host[j] && path_of(g, i, j)->mbit_x10 > *speed)
                *speed = path_of(g, i, j)->mbit_x10;
        }
    for (int a = 0; a < g->hosts; a++)
        for (int b = 0; b < g->hosts; b++) {
            uint32_t there = each.speed[a][b], back = each.speed[b][a];
            both.speed[a][b] = back < there ? back : there;
        }
    topology_sites(&both, site);
    for (int i = 0; i < g->size; i++)
        g->site[i] = site[g->host[i]];
}

/* ---- The search ---- */

static void fill_costs(const struct site_group *g, uint32_t threshold, struct ring_search_costs *costs)
{
    costs->size = g->size;
    for (int i = 0; i < g->size; i++)
        for (int j = 0; j < g->size; j++) {
            uint32_t speed = g->speed[i][j];
            uint64_t cost = speed == WITHIN_HOST ? 0 : TIME_UNIT / speed;
            cost += speed < threshold ? COST_SLOW : 0;
            cost += g->host[i] != g->host[j] ? COST_HOST : 0;
            cost += g->site[i] != g->site[j] ? COST_SITE : 0;
            costs->cost[i][j] = cost;
        }
}

static int slow_paths(uint64_t length)
{
    return (int)(length / COST_SLOW % (COST_HOST / COST_SLOW));
}

/* Members by site, then host, then index: the start of every search, and the result if all paths are
 * equal. */
static void plain_order(const struct site_group *g, int *order)
{
    for (int i = 0; i < g->size; i++) {
        int at = i;
        for (; at > 0; at--) {
            int before = order[at - 1];
            if (g->site[before] < g->site[i] ||
                (g->site[before] == g->site[i] && g->host[before] <= g->host[i]))
                break;
            order[at] = before;
        }
        order[at] = i;
    }
}

/* True: `order` has no path slower than the threshold. The random draws are the same on every machine. */
static bool search(const struct site_group *g, uint32_t threshold, int *order)
{
    struct ring_search_costs costs;
    int trial[VIEW_MEMBERS_MAX];
    size_t bytes = (size_t)g->size * sizeof *order;
    uint64_t draw = threshold;

    fill_costs(g, threshold, &costs);
    if (g->size <= RING_SEARCH_EXACT_MAX) {
        ring_search_exact(&costs, order);
        return slow_paths(ring_search_length(&costs, order)) == 0;
    }
    ring_search_better(&costs, order);
    for (int i = 0; i < SHAKES && slow_paths(ring_search_length(&costs, order)) > 0; i++) {
        draw = draw * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        memcpy(trial, order, bytes);
        ring_search_shake(trial, g->size, draw >> 32);
        ring_search_better(&costs, trial);
        if (ring_search_length(&costs, trial) < ring_search_length(&costs, order))
            memcpy(order, trial, bytes);
    }
    return slow_paths(ring_search_length(&costs, order)) == 0;
}

static int different_speeds(const struct site_group *g, uint32_t *speeds)
{
    int count = 0, kept = 0;

    for (int i = 0; i < g->size; i++)
        for (int j = 0; j < g->size; j++)
            if (g->speed[i][j] != WITHIN_HOST)
                speeds[count++] = g->speed[i][j];
    sort_numbers(speeds, count);
    for (int i = 0; i < count; i++)
        if (kept == 0 || speeds[i] != speeds[kept - 1])
            speeds[kept++] = speeds[i];
    return kept;
}

static void best_order(const struct site_group *g, int *order)
{
    uint32_t speeds[VIEW_MEMBERS_MAX * VIEW_MEMBERS_MAX];
    int trial[VIEW_MEMBERS_MAX];
    int low = 0, high = different_speeds(g, speeds); /* low is possible, high is not */

    plain_order(g, order);
    if (high == 0) /* one host */
        return;
    (void)search(g, speeds[0], order);
    while (high - low > 1) {
        int middle = low + (high - low) / 2;
        memcpy(trial, order, sizeof trial);
        if (search(g, speeds[middle], trial)) {
            memcpy(order, trial, sizeof trial);
            low = middle;
        } else {
            high = middle;
        }
    }
}

/* ---- The result ---- */

static int site_size(const struct site_group *g, int member)
{
    int count = 0;

    for (int i = 0; i < g->size; i++)
        count += g->site[i] == g->site[member];
    return count;
}

/* The order begins with the largest site (of equal ones that of the lowest member), at its first member; with
 * one site, at the first member of the lowest one's host. */
static int first_place(const struct site_group *g, const int *order)
{
    const int *block = g->site;
    int lowest = 0, n = g->size;

    for (int i = 1; i < n; i++)
        if (site_size(g, i) > site_size(g, lowest))
            lowest = i;
    if (site_size(g, lowest) == n)
        block = g->host;
    for (int at = 0; at < n; at++) {
        int before = order[(at + n - 1) % n];
        if (block[order[at]] == block[lowest] && block[before] != block[lowest])
            return at;
    }
    for (int at = 0; at < n; at++) /* one host */
        if (order[at] == lowest)
            return at;
    return 0;
}

static void slower(uint32_t *slowest, uint32_t mbit_x10)
{
    if (mbit_x10 > 0 && (*slowest == 0 || mbit_x10 < *slowest))
        *slowest = mbit_x10;
}

static void larger(uint32_t *largest, uint32_t us)
{
    if (us > *largest)
        *largest = us;
}

/* Both directions measure the same round trip; the longer one has waited in a full queue. */
static void shorter_trip(const struct site_group *g, int a, int b, uint32_t *us)
{
    const int m[2] = {g->members[a], g->members[b]};

    for (int k = 0; k < 2; k++) {
        uint32_t seen = g->t->paths[m[k] * VIEW_MEMBERS_MAX + m[1 - k]].round_trip_us;
        if (seen > 0 && (*us == 0 || seen < *us))
            *us = seen;
    }
}

/* No round trip is longer than one over a third member. */
static uint32_t trip_inside(const struct site_group *g, int from, int to)
{
    uint32_t us = 0;

    shorter_trip(g, from, to, &us);
    for (int over = 0; over < g->size; over++) {
        uint32_t there = 0, on = 0;
        shorter_trip(g, from, over, &there);
        shorter_trip(g, over, to, &on);
        if (there > 0 && on > 0 && there + on < us)
            us = there + on;
    }
    return us;
}

/* All paths between two sites use the same line. */
static uint32_t trip_between(const struct site_group *g, int from, int to)
{
    uint32_t us = 0;

    if (g->site[from] == g->site[to])
        return trip_inside(g, from, to);
    for (int a = 0; a < g->size; a++)
        for (int b = 0; g->site[a] == g->site[from] && b < g->size; b++)
            if (g->site[b] == g->site[to])
                shorter_trip(g, a, b, &us);
    return us;
}

/* If no path of the ring is measured yet: the slowest of all paths inside sites, or between them. */
static void describe_like(const struct site_group *g, bool inside, uint32_t *mbit_x10)
{
    if (*mbit_x10 > 0)
        return;
    for (int i = 0; i < g->size; i++)
        for (int j = 0; j < g->size; j++)
            if (g->host[i] != g->host[j] && (g->site[i] == g->site[j]) == inside)
                slower(mbit_x10, path_of(g, i, j)->mbit_x10);
}

static void describe_paths(const struct site_group *g, struct ring_order *out)
{
    for (int i = 0; i < out->size; i++) {
        int next = (i + 1) % out->size, from = out->order[i], to = out->order[next];
        const struct path_measure *path = path_of(g, from, to);
        bool inside = out->site[i] == out->site[next];
        if (g->host[from] == g->host[to])
            continue;
        slower(inside ? &out->inside_mbit_x10 : &out->across_mbit_x10, path->mbit_x10);
        larger(inside ? &out->inside_us : &out->across_us, trip_between(g, from, to));
    }
    describe_like(g, true, &out->inside_mbit_x10);
    describe_like(g, false, &out->across_mbit_x10);
}

static void study(struct site_group *g, const uint64_t *hosts)
{
    number_hosts(g, hosts);
    fill_speeds(g);
    fill_sites(g);
}

static void describe(const struct site_group *g, const int *order, struct ring_order *out)
{
    int first = first_place(g, order);

    memset(out, 0, sizeof *out);
    out->size = g->size;
    for (int i = 0; i < g->size; i++) {
        out->order[i] = order[(first + i) % g->size];
        if (i == 0 || g->site[out->order[i]] != g->site[out->order[i - 1]])
            out->sites++;
        out->site[i] = out->sites - 1;
    }
    describe_paths(g, out);
}

void topology_arrange(const struct topology *t, const int *members, const uint64_t *hosts, int count,
                      struct ring_order *out)
{
    struct site_group g = {.t = t, .members = members, .size = count};
    int order[VIEW_MEMBERS_MAX] = {0};

    memset(out, 0, sizeof *out);
    if (count == 0)
        return;
    study(&g, hosts);
    best_order(&g, order);
    describe(&g, order, out);
}

/* ---- Another order ---- */

static bool any_measured(const struct site_group *g)
{
    for (int i = 0; i < g->size; i++)
        for (int j = 0; j < g->size; j++)
            if (g->host[i] != g->host[j] && path_of(g, i, j)->mbit_x10 > 0)
                return true;
    return false;
}

/* The merits of an order. */
struct merits {
    int sites, hosts; /* number of changes */
    uint32_t slowest;
};

static struct merits merits_of(const struct site_group *g, const int *order)
{
    struct merits m = {.slowest = WITHIN_HOST};

    for (int i = 0; i < g->size; i++) {
        int from = order[i], to = order[(i + 1) % g->size];
        m.sites += g->site[from] != g->site[to];
        m.hosts += g->host[from] != g->host[to];
        m.slowest = g->speed[from][to] < m.slowest ? g->speed[from][to] : m.slowest;
    }
    return m;
}

static bool clearly_better(const struct merits *a, const struct merits *b)
{
    if (a->sites != b->sites)
        return a->sites < b->sites;
    if (a->hosts != b->hosts)
        return a->hosts < b->hosts;
    return (uint64_t)a->slowest * 10 > (uint64_t)b->slowest * 11;
}

bool topology_rearrange(const struct topology *t, const int *members, const uint64_t *hosts, int count,
                        const int *now, struct ring_order *out)
{
    struct site_group g = {.t = t, .members = members, .size = count};
    int order[VIEW_MEMBERS_MAX] = {0};

    study(&g, hosts);
    if (!any_measured(&g))
        return false;
    best_order(&g, order);
    struct merits best = merits_of(&g, order), old = merits_of(&g, now);
    describe(&g, clearly_better(&best, &old) ? order : now, out);
    return true;
}

uint32_t topology_bottleneck(const struct topology *t, const int *order, int count)
{
    struct site_group g = {.t = t, .members = order, .size = count};
    uint32_t slowest = WITHIN_HOST;

    for (int i = 0; i < count; i++) /* hosts are not known here; PATH_SAME_HOST marks paths inside one */
        g.host[i] = i;
    if (!any_measured(&g))
        return WITHIN_HOST;
    uint32_t median = median_speed(&g);
    for (int i = 0; i < count && count > 1; i++) {
        const struct path_measure *path = path_of(&g, i, (i + 1) % count);
        uint32_t speed = path->kind == PATH_SAME_HOST ? WITHIN_HOST
                         : path->mbit_x10 > 0         ? path->mbit_x10
                                                      : median;
        slowest = speed < slowest ? speed : slowest;
    }
    return slowest;
}
