/* SPDX-License-Identifier: Apache-2.0 */
/* MPI's messages, measured. Started with two ranks by mpirun. */
#include <mpi.h>

#include <stdio.h>

#include "bench/peers/measure.h"
#include "bench/peers/message_loop.h"

struct mpi {
    int peer;
    MPI_Request requests[WINDOW_MAX];
};

/* Errors need no handling here: MPI's default is to say what is wrong and end all ranks. */

static bool send_one(void *self, const void *data, size_t len)
{
    const struct mpi *m = self;
    return MPI_Send(data, (int)len, MPI_BYTE, m->peer, 0, MPI_COMM_WORLD) == MPI_SUCCESS;
}

static bool recv_one(void *self, void *data, size_t len)
{
    const struct mpi *m = self;
    return MPI_Recv(data, (int)len, MPI_BYTE, m->peer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE) == MPI_SUCCESS;
}

static bool start_send(void *self, int slot, const void *data, size_t len)
{
    struct mpi *m = self;
    return MPI_Isend(data, (int)len, MPI_BYTE, m->peer, 1, MPI_COMM_WORLD, &m->requests[slot]) == MPI_SUCCESS;
}

static bool start_recv(void *self, int slot, void *data, size_t len)
{
    struct mpi *m = self;
    return MPI_Irecv(data, (int)len, MPI_BYTE, m->peer, 1, MPI_COMM_WORLD, &m->requests[slot]) == MPI_SUCCESS;
}

static bool wait_for(void *self, int slot)
{
    struct mpi *m = self;
    return MPI_Wait(&m->requests[slot], MPI_STATUS_IGNORE) == MPI_SUCCESS;
}

int main(int argc, char **argv)
{
    struct setting settings[] = {{"seconds", "0.5"}, {"window", "0"}};
    struct mpi mpi;
    int ranks;
    MPI_Init(&argc, &argv);
    struct messenger messenger = {.name = "openmpi", .algo = "default", .alloc = "private", .self = &mpi};
    messenger.send = send_one;
    messenger.recv = recv_one;
    messenger.start_send = start_send;
    messenger.start_recv = start_recv;
    messenger.wait = wait_for;
    MPI_Comm_rank(MPI_COMM_WORLD, &messenger.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    mpi.peer = 1 - messenger.rank;
    char **sizes = settings_take(argv, settings, 2);
    struct course course = {settings[0].value, settings[1].value, sizes ? sizes[0] : ""};
    if (ranks != 2)
        fprintf(stderr, "openmpi: %d ranks: messages are measured between 2\n", ranks);
    int status = sizes && ranks == 2 ? measure_messages(&messenger, &course) : 2;
    if (status)
        MPI_Abort(MPI_COMM_WORLD, status);
    MPI_Finalize();
    return 0;
}
