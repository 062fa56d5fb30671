/* SPDX-License-Identifier: Apache-2.0 */
/* Hearth's messages, measured. Uses hearth.h only; rank, world and transport come from the
 * environment. */
#include <stdio.h>
#include <string.h>

#include <hearth.h>

#include "bench/peers/measure.h"
#include "bench/peers/message_loop.h"

#define WAIT_MS 60000

enum tags { TURNS, STREAM };

struct own {
    hearth_node *node;
    hearth_group *world;
    int peer;
    hearth_request *requests[WINDOW_MAX];
};

static bool good(int status)
{
    if (status != HEARTH_OK)
        fprintf(stderr, "hearth: %s\n", hearth_error_text());
    return status == HEARTH_OK;
}

static bool send_one(void *self, const void *data, size_t len)
{
    const struct own *o = self;
    return good(hearth_send(o->world, o->peer, TURNS, data, len, NULL));
}

static bool recv_one(void *self, void *data, size_t len)
{
    const struct own *o = self;
    return good(hearth_recv(o->world, o->peer, TURNS, data, len, NULL, NULL));
}

static bool start_send(void *self, int slot, const void *data, size_t len)
{
    struct own *o = self;
    return good(hearth_send_nb(o->world, o->peer, STREAM, data, len, NULL, &o->requests[slot]));
}

static bool start_recv(void *self, int slot, void *data, size_t len)
{
    struct own *o = self;
    return good(hearth_recv_nb(o->world, o->peer, STREAM, data, len, NULL, NULL, &o->requests[slot]));
}

static bool wait_for(void *self, int slot)
{
    struct own *o = self;
    int status = hearth_request_wait(o->requests[slot], WAIT_MS);
    hearth_request_close(o->requests[slot]);
    return good(status);
}

static void *take(void *self, size_t len)
{
    const struct own *o = self;
    return hearth_mem_alloc(o->node, len);
}

static void give(void *self, void *memory)
{
    const struct own *o = self;
    hearth_mem_free(o->node, memory);
}

static bool setup(struct own *own, struct messenger *messenger)
{
    if (!good(hearth_node_open(NULL, &own->node)))
        return false;
    own->world = hearth_node_world(own->node);
    messenger->rank = hearth_group_rank(own->world);
    own->peer = 1 - messenger->rank;
    messenger->send = send_one;
    messenger->recv = recv_one;
    messenger->start_send = start_send;
    messenger->start_recv = start_recv;
    messenger->wait = wait_for;
    if (hearth_group_size(own->world) == 2)
        return true;
    fprintf(stderr, "hearth: %d ranks: messages are measured between 2\n", hearth_group_size(own->world));
    return false;
}

int main(int argc, char **argv)
{
    struct setting settings[] = {{"seconds", "0.5"}, {"window", "0"}, {"alloc", "private"}};
    static struct own own;
    char **sizes = settings_take(argv, settings, 3);
    (void)argc;
    if (!sizes)
        return 2;
    struct messenger messenger = {
        .name = "hearth", .algo = "messages", .alloc = settings[2].value, .self = &own};
    if (strcmp(messenger.alloc, "shared") == 0) {
        messenger.take = take;
        messenger.give = give;
    }
    struct course course = {settings[0].value, settings[1].value, sizes[0]};
    int status = setup(&own, &messenger) ? measure_messages(&messenger, &course) : 1;
    hearth_node_close(own.node);
    return status;
}
