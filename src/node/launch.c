/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the variables of launchers.
 *
 * The order matters where one launcher started another: torchrun inside Slurm, mpirun inside a batch script
 * whose SLURM_PROCID every rank inherits. The launcher nearest to the process wins. RANK and WORLD_SIZE are
 * common words, so they count only together; a variable of one launcher only must have its partner. */
#include "node/launch.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/hash.h"
#include "os/sock.h"

#define WORLD_MAX     (1 << 20) /* far above the limit of a node, whose error is better */
#define PORT_LOWEST   1024
#define JOB_MAX       96
#define CLEAN_MAX     (SOCK_NAME_MAX - 18) /* of a job in the name of a socket, after "hearth-4294967295-" */
#define CLEAN_TAIL    17                   /* "-" and a hash */
#define SLURM_STEP_ID 0xfffffff0 /* from here on: batch scripts, interactive shells, not started by srun */

struct source {
    const char *(*get)(void *arg, const char *name);
    void *arg;
    int parent_process;
    uint32_t user;
    struct error *error;
};

static const char *value(const struct source *s, const char *name)
{
    const char *text = s->get(s->arg, name);
    return text && text[0] ? text : NULL;
}

/* ---- numbers ---- */

static bool parse(const char *text, int64_t min, int64_t max, int64_t *out)
{
    char *end;

    if (text[0] < '0' || text[0] > '9')
        return false;
    errno = 0;
    long long number = strtoll(text, &end, 10);
    if (errno != 0 || *end != '\0' || number < min || number > max)
        return false;
    *out = number;
    return true;
}

/* A variable that may be missing: then *out stays. */
static int number(const struct source *s, const char *name, int min, int max, int *out)
{
    const char *text = value(s, name);
    int64_t n;

    if (!text)
        return HEARTH_OK;
    if (!parse(text, min, max, &n))
        return error_set(s->error, HEARTH_INVALID, RANK_NONE,
                         "%s is \"%.64s\"; it takes a whole number from %d to %d", name, text, min, max);
    *out = (int)n;
    return HEARTH_OK;
}

struct names {
    const char *rank, *size, *local;
};

/* Rank, world size and, where there is one, the number of ranks on this host. */
static int numbers(const struct source *s, const struct names *names, struct launch *out)
{
    int status = number(s, names->size, 1, WORLD_MAX, &out->world_size);
    if (status == HEARTH_OK)
        status = number(s, names->rank, 0, WORLD_MAX - 1, &out->rank);
    if (status == HEARTH_OK && names->local)
        status = number(s, names->local, 1, WORLD_MAX, &out->local_size);
    if (status != HEARTH_OK)
        return status;
    if (out->rank < 0 || out->world_size == 0)
        return error_set(s->error, HEARTH_INVALID, RANK_NONE, "%s is \"%s\", but %s is not set",
                         out->rank < 0 ? names->size : names->rank,
                         value(s, out->rank < 0 ? names->size : names->rank),
                         out->rank < 0 ? names->rank : names->size);
    if (out->rank >= out->world_size)
        return error_set(s->error, HEARTH_INVALID, RANK_NONE, "%s is \"%d\", but %s is \"%d\"", names->rank,
                         out->rank, names->size, out->world_size);
    if (out->local_size > out->world_size)
        return error_set(s->error, HEARTH_INVALID, RANK_NONE, "%s is \"%d\", but %s is \"%d\"", names->local,
                         out->local_size, names->size, out->world_size);
    return HEARTH_OK;
}

/* ---- where to meet ---- */

/* A private socket, named by user and job, if all ranks are on this host. A long job name ends in its
 * hash. */
static void meet_here(const struct source *s, const char *job, struct launch *out)
{
    char clean[CLEAN_MAX + 1], tail[CLEAN_TAIL + 1] = "";
    size_t len = 0, max = CLEAN_MAX;

    if (out->local_size != out->world_size)
        return;
    if (strnlen(job, CLEAN_MAX + 1) > CLEAN_MAX) {
        snprintf(tail, sizeof tail, "-%016" PRIx64, hash64(0, job, strlen(job)));
        max -= CLEAN_TAIL;
    }
    for (; job[len] && len < max; len++) {
        char c = job[len];
        bool good = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
                    c == '_' || c == '-';
        clean[len] = good ? c : '_';
    }
    clean[len] = '\0';
    snprintf(out->rendezvous, sizeof out->rendezvous, "unix:@hearth-%u-%s%s", (unsigned)s->user, clean, tail);
}

static void meet_children(const struct source *s, const char *prefix, struct launch *out)
{
    char job[JOB_MAX];

    snprintf(job, sizeof job, "%s%d", prefix, s->parent_process);
    meet_here(s, job, out);
}

/* A private socket if all ranks are on this host; else the port after the one that torch itself uses. */
static int meet_master(const struct source *s, const char *host, struct launch *out)
{
    int port = 0;
    int status = number(s, "MASTER_PORT", 1, UINT16_MAX, &port);
    const char *format = strchr(host, ':') && host[0] != '[' ? "[%s]:%d" : "%s:%d";
    char job[JOB_MAX];

    if (status != HEARTH_OK)
        return status;
    if (port == 0)
        return error_set(s->error, HEARTH_INVALID, RANK_NONE,
                         "MASTER_ADDR is \"%.128s\", but MASTER_PORT is not set", host);
    if (strlen(host) > 255)
        return error_set(s->error, HEARTH_INVALID, RANK_NONE, "MASTER_ADDR is \"%.64s...\": too long", host);
    if (out->local_size == out->world_size) {
        snprintf(job, sizeof job, "torchrun-%d-%.64s", port, host);
        meet_here(s, job, out);
        return HEARTH_OK;
    }
    port = port == UINT16_MAX ? PORT_LOWEST : port + 1;
    snprintf(out->rendezvous, sizeof out->rendezvous, format, host, port);
    return HEARTH_OK;
}

/* ---- launchers ---- */

static int read_torchrun(const struct source *s, struct launch *out)
{
    const char *host = value(s, "MASTER_ADDR");

    out->source = "torchrun";
    int status = numbers(s, &(struct names){"RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"}, out);
    if (status != HEARTH_OK)
        return status;
    if (host)
        return meet_master(s, host, out);
    meet_children(s, "torchrun-", out);
    return HEARTH_OK;
}

static int read_openmpi(const struct source *s, struct launch *out)
{
    const char *job = value(s, "PMIX_NAMESPACE");

    out->source = "Open MPI";
    int status = numbers(
        s, &(struct names){"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"},
        out);
    if (status != HEARTH_OK)
        return status;
    job = job ? job : value(s, "OMPI_MCA_ess_base_jobid");
    if (job)
        meet_here(s, job, out);
    else
        meet_children(s, "openmpi-", out);
    return HEARTH_OK;
}

/* Hydra does not name the job. */
static int read_pmi(const struct source *s, struct launch *out)
{
    out->source = "MPICH/PMI";
    int status = numbers(s, &(struct names){"PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS"}, out);
    if (status == HEARTH_OK)
        meet_children(s, "pmi-", out);
    return status;
}

static int read_slurm(const struct source *s, struct launch *out)
{
    const char *sizes[] = {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"};
    const char *nodes[] = {"SLURM_STEP_NUM_NODES", "SLURM_NNODES"};
    const char *id = value(s, "SLURM_JOB_ID"), *step = value(s, "SLURM_STEP_ID");
    int size = 0, node = 0, hosts = 0;
    char job[JOB_MAX];

    while (size < 2 && !value(s, sizes[size]))
        size++;
    while (node < 1 && !value(s, nodes[node]))
        node++;
    out->source = "Slurm";
    int status = numbers(s, &(struct names){"SLURM_PROCID", sizes[size], NULL}, out);
    if (status == HEARTH_OK)
        status = number(s, nodes[node], 1, WORLD_MAX, &hosts);
    if (status != HEARTH_OK)
        return status;
    if (hosts == 1)
        out->local_size = out->world_size;
    snprintf(job, sizeof job, "slurm-%.40s.%.40s", id ? id : "0", step);
    meet_here(s, job, out);
    return HEARTH_OK;
}

/* A batch script has SLURM_PROCID too, but no ranks. */
static bool slurm_step(const struct source *s)
{
    const char *step = value(s, "SLURM_STEP_ID");
    int64_t id;

    return value(s, "SLURM_PROCID") && step && !(parse(step, 0, INT64_MAX, &id) && id >= SLURM_STEP_ID);
}

int launch_read(const char *(*get)(void *arg, const char *name), void *arg, int parent_process, uint32_t user,
                struct launch *out, struct error *error)
{
    struct source s = {get, arg, parent_process, user, error};
    struct launch launch = {.rank = RANK_NONE, .source = ""};
    int status = HEARTH_OK;

    if (value(&s, "RANK") && value(&s, "WORLD_SIZE"))
        status = read_torchrun(&s, &launch);
    else if (value(&s, "OMPI_COMM_WORLD_RANK") || value(&s, "OMPI_COMM_WORLD_SIZE"))
        status = read_openmpi(&s, &launch);
    else if (slurm_step(&s) && !value(&s, "MPI_LOCALNRANKS")) /* srun --mpi=pmi2 sets PMI_RANK too */
        status = read_slurm(&s, &launch);
    else if (value(&s, "PMI_RANK") || value(&s, "PMI_SIZE"))
        status = read_pmi(&s, &launch);
    if (status == HEARTH_OK)
        *out = launch;
    return status;
}
