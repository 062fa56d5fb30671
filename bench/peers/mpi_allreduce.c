/* SPDX-License-Identifier: Apache-2.0 */
/* MPI_Allreduce, measured. Compiled with Open MPI's mpicc and with MPICH's, started by their mpirun. */
#include <mpi.h>

#include <string.h>

#include "bench/peers/measure.h"

struct mpi {
    float *buffer;
    int count;
};

/* Errors need no handling here: MPI's default is to say what is wrong and end all ranks. */

static bool prepare(void *self, float **buffer, size_t count)
{
    *(struct mpi *)self = (struct mpi){*buffer, (int)count};
    return true;
}

static bool all_reduce(void *self)
{
    const struct mpi *m = self;
    return MPI_Allreduce(MPI_IN_PLACE, m->buffer, m->count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD) ==
           MPI_SUCCESS;
}

static void finish(void *self)
{
    (void)self;
}

static bool greatest(void *self, double *values, size_t count)
{
    (void)self;
    return MPI_Allreduce(MPI_IN_PLACE, values, (int)count, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD) ==
           MPI_SUCCESS;
}

/* What was linked names itself, so a row cannot carry the wrong name. */
static const char *library_name(void)
{
    char text[MPI_MAX_LIBRARY_VERSION_STRING];
    int len;
    MPI_Get_library_version(text, &len);
    return strncmp(text, "Open MPI", 8) == 0 ? "openmpi" : strncmp(text, "MPICH", 5) == 0 ? "mpich" : "mpi";
}

int main(int argc, char **argv)
{
    struct setting settings[] = {{"seconds", "0.5"}};
    struct mpi mpi = {0};
    MPI_Init(&argc, &argv);
    struct peer peer = {.name = library_name(), .algo = "default", .alloc = "private", .self = &mpi};
    peer.prepare = prepare;
    peer.all_reduce = all_reduce;
    peer.finish = finish;
    peer.greatest = greatest;
    MPI_Comm_rank(MPI_COMM_WORLD, &peer.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &peer.ranks);
    char **sizes = settings_take(argv, settings, 1);
    int status = sizes ? measure(&peer, settings[0].value, sizes) : 2;
    if (status)
        MPI_Abort(MPI_COMM_WORLD, status);
    MPI_Finalize();
    return 0;
}
