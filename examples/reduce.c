/* SPDX-License-Identifier: Apache-2.0 */
/* Every member counts its share of the points in a quarter of a circle; rank 0 sums them and prints pi.
 * The others close and end as soon as they have sent their numbers; rank 0 may still be working.
 * Build: cc reduce.c $(pkg-config --cflags --libs hearth). Run: hearth run -n 3 -- ./reduce */
#include <inttypes.h>
#include <stdio.h>

#include <hearth.h>

#define POINTS 1000 /* along each side of the square */

static int64_t count_inside(int first, int step)
{
    int64_t inside = 0;
    for (int y = first; y < POINTS; y += step)
        for (int x = 0; x < POINTS; x++)
            inside += (2 * x + 1) * (2 * x + 1) + (2 * y + 1) * (2 * y + 1) < 4 * POINTS * POINTS;
    return inside;
}

int main(void)
{
    hearth_node *node;
    if (hearth_node_open(NULL, &node) != HEARTH_OK)
        return fprintf(stderr, "%s\n", hearth_error_text()), 1;

    hearth_group *world = hearth_node_world(node);
    int rank = hearth_group_rank(world);
    int64_t inside = count_inside(rank, hearth_group_size(world)), all = 0;
    int status = hearth_reduce(world, &inside, &all, 1, HEARTH_I64, HEARTH_OP_SUM, 0, NULL);
    if (status != HEARTH_OK)
        fprintf(stderr, "%s\n", hearth_error_text());
    else if (rank == 0)
        printf("pi is about %.4f\n", 4.0 * (double)all / POINTS / POINTS);
    hearth_node_close(node);
    return status != HEARTH_OK;
}
