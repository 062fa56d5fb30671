/* SPDX-License-Identifier: Apache-2.0 */
/* Which hosts belong together: those that fast ways join, where there is a gap between fast and slow.
 *
 * The fastest ways that join all hosts without a circle (a maximum spanning tree) are sorted. Where one of
 * them is much slower than the one before it, and slower than half of what is typical before it, it and all
 * slower ones are cut, and what still hangs together is a site. A way counts as fast as its slower direction:
 * a ring needs only one of them, but a site's members send both ways. */
#include "membership/topology_sites.h"

#include <string.h>

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

/* The lower root wins, so that a site is called by its lowest host. */
static void join(int *parent, int a, int b)
{
    a = find_root(parent, a);
    b = find_root(parent, b);
    parent[a < b ? b : a] = a < b ? a : b;
}

/* Prim's algorithm, begun anew wherever measured ways do not reach; `tree` gets a number for each host. */
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

/* How many of the sorted edges are ways inside of sites. The widest gap counts; of equal ones the first. */
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

void topology_sites(const struct site_paths *paths, int *site)
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
    /* Where nothing was measured between two parts, nothing says that they are far from each other. */
    for (int h = 0; h < paths->hosts; h++)
        if (tree[h] == h && tree[largest] != h)
            join(parent, h, largest);
    for (int h = 0; h < paths->hosts; h++)
        site[h] = find_root(parent, h);
}
