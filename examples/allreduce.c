/* SPDX-License-Identifier: Apache-2.0 */
/* The members of a job add up vectors. Build: cc allreduce.c $(pkg-config --cflags --libs hearth)
 * Run: hearth run -n 4 -- ./allreduce, or under mpirun, torchrun, srun; alone it is a world of one. */
#include <stdio.h>

#include <hearth.h>

int main(void)
{
    hearth_node *node;
    if (hearth_node_open(NULL, &node) != HEARTH_OK) /* rank, size and rendezvous come from the launcher */
        return fprintf(stderr, "%s\n", hearth_error_text()), 1;

    hearth_group *world = hearth_node_world(node);
    int size = hearth_group_size(world);
    float x[2] = {1, (float)hearth_group_rank(world)};
    int status = hearth_all_reduce(world, x, x, 2, HEARTH_F32, HEARTH_OP_SUM, NULL);
    if (status == HEARTH_OK)
        status = hearth_group_same(world, x, sizeof x, NULL, NULL); /* the same bytes on every member? */
    if (status != HEARTH_OK)
        fprintf(stderr, "%s\n", hearth_error_text()); /* names the operation, the rank and the reason */
    else
        printf("rank %d of %d has %g %g\n", hearth_group_rank(world), size, x[0], x[1]);
    hearth_node_close(node);
    return status != HEARTH_OK || x[0] != (float)size || x[1] != (float)(size * (size - 1) / 2);
}
