/* SPDX-License-Identifier: Apache-2.0 */
/* Six nodes split into two groups; each group runs its own scan; then all exchange the totals. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include <hearth.h>

#define NODES 6

static void check(int status)
{
    if (status == HEARTH_OK)
        return;
    fprintf(stderr, "%s\n", hearth_error_text());
    exit(1);
}

static void *member(void *node)
{
    hearth_group *world = hearth_node_world(node), *half;
    int rank = hearth_group_rank(world);

    /* Even ranks form one group, odd ranks the other. Key: the highest old rank becomes rank 0. */
    check(hearth_group_split(world, rank % 2, -rank, NULL, &half));
    int place = hearth_group_rank(half);
    int64_t own = rank, sum, before;
    check(hearth_scan(half, &own, &sum, 1, HEARTH_I64, HEARTH_OP_SUM, NULL));
    check(hearth_exclusive_scan(half, &own, &before, 1, HEARTH_I64, HEARTH_OP_SUM, NULL));
    if (place != (NODES - 1 - rank) / 2 || hearth_group_size(half) != NODES / 2 || before + own != sum)
        exit(1);

    /* The last member of each group holds its total: 4+2+0 and 5+3+1. All learn both. */
    int64_t last[NODES], total = place == NODES / 2 - 1 ? sum : 0;
    check(hearth_all_gather(world, &total, last, 1, HEARTH_I64, NULL));
    hearth_group_close(half); /* the world stays the node's */
    if (rank == 0)
        printf("even ranks %d, odd ranks %d\n", (int)last[0], (int)last[1]);
    if (last[0] + last[2] + last[4] != 6 || last[1] + last[3] + last[5] != 9)
        exit(1);
    return NULL;
}

int main(void)
{
    hearth_node *nodes[NODES];
    pthread_t threads[NODES];
    check(hearth_node_open_local(NULL, NODES, nodes));
    for (int i = 0; i < NODES; i++)
        if (pthread_create(&threads[i], NULL, member, nodes[i]) != 0)
            return 1;
    for (int i = 0; i < NODES; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < NODES; i++)
        hearth_node_close(nodes[i]);
    return 0;
}
