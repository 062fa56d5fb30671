/* SPDX-License-Identifier: Apache-2.0 */
/* What a link waits for when nothing moves. */
#include "transport/link.h"

/* The pipe waits for room in its connection, and the descriptor will show it. Where bytes are kept until the
 * peer has them, the descriptor has room long before the connection has: `due` tells. */
static bool wants_room(const struct pipe *pipe)
{
    if (pipe->conn->transport->holding)
        return pipe_holds(pipe);
    return pipe->out_busy && pipe->out_done < pipe->out_free;
}

uint64_t link_due(const struct link *link)
{
    uint64_t due = NEVER_NS;
    for (int i = 0; i < link->pipe_count && link->up; i++) {
        const struct holding *holding = link->pipes[i].conn->transport->holding;
        uint64_t at = holding ? holding->due(link->pipes[i].conn) : NEVER_NS;
        due = at < due ? at : due;
    }
    return due;
}

size_t link_waits(const struct link *link, struct sock_wait *items, size_t max)
{
    size_t count = 0;
    for (int i = 0; i < link->pipe_count && link->up && count < max; i++) {
        const struct pipe *pipe = &link->pipes[i];
        items[count++] = (struct sock_wait){
            .fd = pipe->conn->transport->descriptor(pipe->conn),
            .want_recv = link_reads(link, i),
            /* Room in shared memory does not show there: the peer signals it. */
            .want_send = wants_room(pipe) && !pipe->conn->transport->sharing,
        };
    }
    return count;
}

void link_attend(struct link *link, const struct sock_wait *items, size_t count)
{
    for (size_t i = 0; i < count && link->up && i < (size_t)link->pipe_count; i++)
        if (items[i].ready)
            link->pipes[i].conn->transport->attend(link->pipes[i].conn);
    link->looks = 0;
}

void link_doze(struct link *link, bool asleep)
{
    for (int i = 0; i < link->pipe_count && link->up; i++) {
        const struct pipe *pipe = &link->pipes[i];
        pipe->conn->transport->doze(pipe->conn, asleep, wants_room(pipe));
    }
}

bool link_stuck(const struct link *link)
{
    for (int i = 0; i < link->pipe_count && link->up; i++)
        if (wants_room(&link->pipes[i]))
            return true;
    return false;
}

uint64_t link_heard(const struct link *link)
{
    uint64_t heard = 0;
    for (int i = 0; i < link->pipe_count; i++)
        heard += ((uint64_t)link->pipes[i].in_sequence << 32) + link->pipes[i].in_done;
    return heard;
}
