/* SPDX-License-Identifier: Apache-2.0 */
/* Four nodes in one process sum vectors. Build: cc threads.c $(pkg-config --cflags --libs hearth) */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include <hearth.h>

/* The text belongs to the calling thread. It names the operation, the rank and the reason. */
static void check(int status)
{
    if (status == HEARTH_OK)
        return;
    fprintf(stderr, "%s\n", hearth_error_text());
    exit(1);
}

static void *member(void *node)
{
    hearth_group *world = hearth_node_world(node);
    float x[2] = {1, (float)hearth_group_rank(world)};
    check(hearth_all_reduce(world, x, x, 2, HEARTH_F32, HEARTH_OP_SUM, NULL));
    check(hearth_group_same(world, x, sizeof x, NULL, NULL)); /* the same bytes on every member? */
    printf("rank %d has %g %g\n", hearth_group_rank(world), x[0], x[1]);
    if (x[0] != 4 || x[1] != 0 + 1 + 2 + 3)
        exit(1);
    return NULL;
}

int main(void)
{
    hearth_node *nodes[4];
    pthread_t threads[4];
    check(hearth_node_open_local(NULL, 4, nodes)); /* nodes[i] has rank i */
    for (int i = 0; i < 4; i++)
        if (pthread_create(&threads[i], NULL, member, nodes[i]) != 0)
            return 1;
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < 4; i++)
        hearth_node_close(nodes[i]);
    return 0;
}
