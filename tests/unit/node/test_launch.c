/* SPDX-License-Identifier: Apache-2.0 */
/* Variables of launchers, as they really set them, and broken ones. */
#include "node/launch.h"
#include "support/suite.h"

/* "NAME=value" ..., NULL. */
static const char *get(void *arg, const char *name)
{
    size_t len = strlen(name);

    for (const char *const *entry = arg; *entry; entry++)
        if (strncmp(*entry, name, len) == 0 && (*entry)[len] == '=')
            return *entry + len + 1;
    return NULL;
}

struct good_case {
    const char *variables[12];
    const char *source;
    int rank, world, local;
    const char *rendezvous;
};

static const struct good_case good_cases[] = {
    {{NULL}, "", -1, 0, 0, ""},
    {{"RANK=1"}, "", -1, 0, 0, ""},
    {{"WORLD_SIZE=4", "RANK="}, "", -1, 0, 0, ""},
    {{"RANK=1", "WORLD_SIZE=4", "LOCAL_WORLD_SIZE=2", "MASTER_ADDR=node1", "MASTER_PORT=29500"},
     "torchrun",
     1,
     4,
     2,
     "node1:29501"},
    {{"RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=fd00::2", "MASTER_PORT=65535"},
     "torchrun",
     0,
     2,
     0,
     "[fd00::2]:1024"},
    {{"RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=[::1]", "MASTER_PORT=1"}, "torchrun", 0, 2, 0, "[::1]:2"},
    {{"RANK=1", "WORLD_SIZE=2", "LOCAL_WORLD_SIZE=2", "MASTER_ADDR=::1", "MASTER_PORT=29500"},
     "torchrun",
     1,
     2,
     2,
     "unix:@hearth-1000-torchrun-29500-__1"},
    {{"RANK=1", "WORLD_SIZE=2", "LOCAL_WORLD_SIZE=2"}, "torchrun", 1, 2, 2, "unix:@hearth-1000-torchrun-77"},
    {{"RANK=1", "WORLD_SIZE=2", "LOCAL_WORLD_SIZE=2", "MASTER_PORT=29500",
      "MASTER_ADDR=a-machine-with-a-name-that-is-far-longer-than-a-socket-takes.example"},
     "torchrun",
     1,
     2,
     2,
     "unix:@hearth-1000-torchrun-29500-a-machine--4b926c47363c42c0"},
    {{"RANK=1", "WORLD_SIZE=2"}, "torchrun", 1, 2, 0, ""},
    {{"OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_LOCAL_SIZE=2",
      "PMIX_NAMESPACE=213057537", "OMPI_MCA_ess_base_jobid=9", "PMIX_RANK=1"},
     "Open MPI",
     1,
     2,
     2,
     "unix:@hearth-1000-213057537"},
    {{"OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_LOCAL_SIZE=2",
      "OMPI_MCA_ess_base_jobid=9"},
     "Open MPI",
     1,
     2,
     2,
     "unix:@hearth-1000-9"},
    {{"OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_LOCAL_SIZE=2",
      "PMIX_NAMESPACE=prterun-a@1/x"},
     "Open MPI",
     1,
     2,
     2,
     "unix:@hearth-1000-prterun-a_1_x"},
    {{"OMPI_COMM_WORLD_RANK=3", "OMPI_COMM_WORLD_SIZE=4", "OMPI_COMM_WORLD_LOCAL_SIZE=2", "PMIX_NAMESPACE=5"},
     "Open MPI",
     3,
     4,
     2,
     ""},
    {{"PMI_RANK=1", "PMI_SIZE=2", "MPI_LOCALNRANKS=2", "MPI_LOCALRANKID=1", "PMI_FD=8", "HYDI_CONTROL_FD=7"},
     "MPICH/PMI",
     1,
     2,
     2,
     "unix:@hearth-1000-pmi-77"},
    {{"PMI_RANK=1", "PMI_SIZE=2"}, "MPICH/PMI", 1, 2, 0, ""},
    {{"SLURM_PROCID=2", "SLURM_NTASKS=4", "SLURM_NNODES=1", "SLURM_JOB_ID=88", "SLURM_STEP_ID=0"},
     "Slurm",
     2,
     4,
     4,
     "unix:@hearth-1000-slurm-88.0"},
    {{"SLURM_PROCID=2", "SLURM_NPROCS=4", "SLURM_NNODES=2", "SLURM_JOB_ID=88", "SLURM_STEP_ID=1"},
     "Slurm",
     2,
     4,
     0,
     ""},
    {{"SLURM_PROCID=1", "SLURM_STEP_NUM_TASKS=2", "SLURM_NTASKS=8", "SLURM_STEP_NUM_NODES=1",
      "SLURM_NNODES=4", "SLURM_JOB_ID=88", "SLURM_STEP_ID=1"},
     "Slurm",
     1,
     2,
     2,
     "unix:@hearth-1000-slurm-88.1"},
    /* a batch script, an interactive shell: nobody started ranks */
    {{"SLURM_PROCID=0", "SLURM_NTASKS=4", "SLURM_NNODES=1", "SLURM_JOB_ID=88"}, "", -1, 0, 0, ""},
    {{"SLURM_PROCID=0", "SLURM_NTASKS=4", "SLURM_NNODES=1", "SLURM_STEP_ID=4294967290"}, "", -1, 0, 0, ""},
    /* one launcher inside of another */
    {{"SLURM_PROCID=0", "SLURM_NTASKS=4", "SLURM_NNODES=1", "SLURM_STEP_ID=0", "PMI_RANK=3", "PMI_SIZE=4",
      "MPI_LOCALNRANKS=4"},
     "MPICH/PMI",
     3,
     4,
     4,
     "unix:@hearth-1000-pmi-77"},
    {{"SLURM_PROCID=1", "SLURM_NTASKS=4", "SLURM_NNODES=1", "SLURM_JOB_ID=3", "SLURM_STEP_ID=0", "PMI_RANK=1",
      "PMI_SIZE=4"},
     "Slurm",
     1,
     4,
     4,
     "unix:@hearth-1000-slurm-3.0"},
    {{"RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=a", "MASTER_PORT=5", "OMPI_COMM_WORLD_RANK=0",
      "OMPI_COMM_WORLD_SIZE=1"},
     "torchrun",
     1,
     2,
     0,
     "a:6"},
};

TEST(launchers_are_read)
{
    for (size_t i = 0; i < sizeof good_cases / sizeof good_cases[0]; i++) {
        const struct good_case *c = &good_cases[i];
        struct launch launch;
        struct error error;
        if (launch_read(get, (void *)(uintptr_t)c->variables, 77, 1000, &launch, &error) != HEARTH_OK)
            fail_msg("case %zu: %s", i, error.text);
        assert_string_equal(launch.source, c->source);
        assert_int_equal(launch.rank, c->rank);
        assert_int_equal(launch.world_size, c->world);
        assert_int_equal(launch.local_size, c->local);
        assert_string_equal(launch.rendezvous, c->rendezvous);
    }
}

TEST(broken_values_are_named)
{
    static const struct {
        const char *variables[6];
        const char *name, *value;
    } cases[] = {
        {{"RANK=x", "WORLD_SIZE=2"}, "RANK is", "\"x\""},
        {{"RANK=-1", "WORLD_SIZE=2"}, "RANK is", "\"-1\""},
        {{"RANK=0", "WORLD_SIZE=0"}, "WORLD_SIZE is", "\"0\""},
        {{"RANK=2", "WORLD_SIZE=2"}, "RANK is \"2\"", "WORLD_SIZE is \"2\""},
        {{"RANK=1", "WORLD_SIZE=2", "LOCAL_WORLD_SIZE=3"},
         "LOCAL_WORLD_SIZE is \"3\"",
         "WORLD_SIZE is \"2\""},
        {{"RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=a"}, "MASTER_PORT is not set", "\"a\""},
        {{"RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=a", "MASTER_PORT=70000"}, "MASTER_PORT is", "\"70000\""},
        {{"RANK=1", "WORLD_SIZE=2 "}, "WORLD_SIZE is", "\"2 \""},
        {{"OMPI_COMM_WORLD_RANK=1"}, "OMPI_COMM_WORLD_RANK is \"1\"", "OMPI_COMM_WORLD_SIZE is not set"},
        {{"OMPI_COMM_WORLD_SIZE=1"}, "OMPI_COMM_WORLD_SIZE is \"1\"", "OMPI_COMM_WORLD_RANK is not set"},
        {{"PMI_RANK=1", "PMI_SIZE=99999999999999999999"}, "PMI_SIZE is", "\"99999999999999999999\""},
        {{"SLURM_PROCID=1", "SLURM_STEP_ID=0"}, "SLURM_PROCID is \"1\"", "is not set"},
        {{"SLURM_PROCID=1", "SLURM_STEP_ID=0", "SLURM_NTASKS=2", "SLURM_NNODES=two"},
         "SLURM_NNODES is",
         "\"two\""},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct launch launch = {.rank = 42};
        struct error error;
        int status = launch_read(get, (void *)(uintptr_t)cases[i].variables, 77, 1000, &launch, &error);
        if (status != HEARTH_INVALID || !strstr(error.text, cases[i].name) ||
            !strstr(error.text, cases[i].value))
            fail_msg("case %zu: %d %s", i, status, status ? error.text : "");
        assert_int_equal(launch.rank, 42);
    }
}
