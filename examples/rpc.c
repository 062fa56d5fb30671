/* SPDX-License-Identifier: Apache-2.0 */
/* A parameter look-up: rank 0 holds a table of vectors, the others ask for rows by remote calls.
 * Build: cc rpc.c $(pkg-config --cflags --libs hearth). Run: hearth run -n 3 -- ./rpc */
#include <stdio.h>
#include <string.h>

#include <hearth.h>

#define ROWS  1000
#define WIDTH 8

static float table[ROWS][WIDTH];

/* The request: numbers of rows. The reply: the rows. Runs on a thread of the node, several at once. */
static void lookup(void *arg, hearth_rpc *rpc, const void *request, size_t len)
{
    const uint32_t *ids = request;
    size_t count = len / sizeof *ids;
    float rows[64][WIDTH];
    char text[80];
    (void)arg;
    for (size_t i = 0; i < count && i < 64; i++) {
        if (ids[i] >= ROWS) {
            snprintf(text, sizeof text, "row %u does not exist; the table has %d", ids[i], ROWS);
            hearth_rpc_fail(rpc, text);
            return;
        }
        memcpy(rows[i], table[ids[i]], sizeof rows[i]);
    }
    hearth_rpc_reply(rpc, rows, (count < 64 ? count : 64) * sizeof rows[0]);
}

static int ask(hearth_group *world, int rank)
{
    uint32_t ids[3] = {1, (uint32_t)rank * 10, ROWS - 1};
    struct hearth_message *reply;
    int status = hearth_rpc_call(world, 0, "lookup", ids, sizeof ids, NULL, &reply);
    if (status != HEARTH_OK)
        return status;
    const float *rows = reply->data;
    printf("rank %d: rows %u, %u and %u begin with %g, %g and %g\n", rank, ids[0], ids[1], ids[2], rows[0],
           rows[WIDTH], rows[2 * WIDTH]);
    hearth_message_free(reply);
    ids[0] = ROWS;
    status = hearth_rpc_call(world, 0, "lookup", ids, sizeof ids, NULL, &reply);
    if (status == HEARTH_CALL_FAILED)
        printf("rank %d: %s\n", rank, hearth_error_text());
    return status == HEARTH_CALL_FAILED ? HEARTH_OK : status;
}

int main(void)
{
    hearth_node *node;
    if (hearth_node_open(NULL, &node) != HEARTH_OK)
        return fprintf(stderr, "%s\n", hearth_error_text()), 1;
    hearth_group *world = hearth_node_world(node);
    int rank = hearth_group_rank(world), status = HEARTH_OK;
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < WIDTH; j++)
            table[i][j] = (float)i + (float)j / 10;
    if (rank == 0)
        status = hearth_rpc_register(node, "lookup", lookup, NULL, NULL);
    if (status == HEARTH_OK)
        status = hearth_barrier(world, NULL); /* the handler is there */
    if (status == HEARTH_OK && rank != 0)
        status = ask(world, rank);
    if (status == HEARTH_OK)
        status = hearth_barrier(world, NULL); /* all have asked */
    if (status != HEARTH_OK)
        fprintf(stderr, "rank %d: %s\n", rank, hearth_error_text());
    hearth_node_close(node);
    return status != HEARTH_OK;
}
