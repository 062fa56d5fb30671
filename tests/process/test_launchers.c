/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks from those who start them: the real mpirun of Open MPI and MPICH, the real torchrun, and by hand what
 * torchrun and Slurm set. Started as `test_launchers member` it is one rank: it opens, sums, and says who it
 * is; as `test_launchers mortal` rank 1 dies in its first life. */
#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "process/team.h"
#include "support/ports.h"
#include "support/watchdog.h"

#define RANKS      3
#define OUTPUT_MAX 65536

/* ---- a rank ---- */

static bool is_first_life(void)
{
    const char *lives = getenv("TORCHELASTIC_RESTART_COUNT");
    return lives && strcmp(lives, "0") == 0;
}

static int rank_main(bool mortal)
{
    struct hearth_config config;
    hearth_node *node = NULL;
    int64_t sum = 0;
    hearth_config_init(&config);
    if (!check_ok(hearth_config_env(&config)))
        return 1;
    config.open_timeout_ms = 20000 * slow_factor();
    if (!check_ok(hearth_node_open(&config, &node)))
        return 1;
    hearth_group *world = hearth_node_world(node);
    if (mortal && hearth_group_rank(world) == 1 && is_first_life())
        kill(getpid(), SIGKILL);
    sum = hearth_group_rank(world) + 1;
    check_ok(hearth_all_reduce(world, &sum, &sum, 1, HEARTH_I64, HEARTH_OP_SUM, NULL));
    printf("rank %d of %d: sum %lld\n", hearth_group_rank(world), hearth_group_size(world), (long long)sum);
    fflush(stdout);
    hearth_node_close(node);
    return checks_failed();
}

/* ---- the real launchers ---- */

static const char *self; /* this program's file */

/* In the child: a group of its own, so that all of it can be ended. */
static void become(char *const *command, int output)
{
    static const char *const ours[] = {
        "HEARTH_RANK", "HEARTH_WORLD_SIZE", "HEARTH_RENDEZVOUS", "HEARTH_PEERS",
        "RANK",        "WORLD_SIZE",        "MASTER_ADDR",       "MASTER_PORT"};
    setpgid(0, 0);
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
        unsetenv(ours[i]);
    setenv("OMP_NUM_THREADS", "1", 1); /* else torchrun says that it sets it */
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    dup2(output, STDOUT_FILENO);
    dup2(output, STDERR_FILENO);
    execvp(command[0], command);
    _exit(127);
}

/* Runs a command to its end; its output, and how it ended. -1: it did not in time. */
static int run(char *const *command, char *output, size_t size)
{
    int ends[2], end = -1;
    size_t len = 0;
    ssize_t got;
    assert_int_equal(pipe(ends), 0);
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        become(command, ends[1]);
    close(ends[1]);
    while (len + 1 < size && (got = read(ends[0], output + len, size - 1 - len)) > 0)
        len += (size_t)got;
    output[len] = '\0';
    close(ends[0]);
    waitpid(pid, &end, 0); /* the watchdog looks on */
    kill(-pid, SIGKILL);
    return WIFEXITED(end) ? WEXITSTATUS(end) : -1;
}

static void ranks_check(const char *output, int size)
{
    for (int i = 0; i < size; i++) {
        char line[64];
        snprintf(line, sizeof line, "rank %d of %d: sum %d\n", i, size, size * (size + 1) / 2);
        check(strstr(output, line), "nobody says \"%.*s\"; this was said:\n%s", (int)strlen(line) - 1, line,
              output);
    }
}

static bool installed(const char *program)
{
    char path[256];
    const char *const places[] = {"/usr/bin", "/usr/local/bin", "/opt/homebrew/bin"};
    if (program[0] == '/')
        return access(program, X_OK) == 0;
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        snprintf(path, sizeof path, "%s/%s", places[i], program);
        if (access(path, X_OK) == 0)
            return true;
    }
    return false;
}

/* What the command said, once all ranks have come to the right sum. */
static const char *launched(const char *program, const char *package, char *const *command)
{
    static char output[OUTPUT_MAX];
    if (!installed(program)) {
        print_message("skipped: %s is not installed (package %s)\n", program, package);
        skip();
    }
    watchdog(100 * (unsigned)slow_factor(), program);
    int code = run(command, output, sizeof output);
    check(code == 0, "%s ended with %d:\n%s", program, code, output);
    ranks_check(output, RANKS);
    checks_end();
    return output;
}

TEST(open_mpi)
{
    char *command[] = {(char *)"mpirun.openmpi",
                       (char *)"--oversubscribe",
                       (char *)"-n",
                       (char *)"3",
                       (char *)self,
                       (char *)"member",
                       NULL};
    launched("mpirun.openmpi", "openmpi-bin", command);
}

TEST(test_mpich)
{
    char *command[] = {(char *)"mpirun.mpich", (char *)"-n",     (char *)"3",
                       (char *)self,           (char *)"member", NULL};
    launched("mpirun.mpich", "mpich", command);
}

/* The options without a meaning for these ranks, -r and -t, get torch 1.13 along with Python 3.11. */
static const char *torchrun(const char *option, const char *mode)
{
    char *command[] = {(char *)"/usr/bin/torchrun",
                       (char *)"-r",
                       (char *)"9:1",
                       (char *)"-t",
                       (char *)"9:1",
                       (char *)option,
                       (char *)"--nproc_per_node=3",
                       (char *)"--max_restarts=1",
                       (char *)"--monitor_interval=0.2",
                       (char *)"--no_python",
                       (char *)self,
                       (char *)mode,
                       NULL};
    return launched(command[0], "python3-torch", command);
}

/* MASTER_ADDR is a name, MASTER_PORT one that the system handed out. */
TEST(torchrun_standalone)
{
    torchrun("--standalone", "member");
}

/* All ranks are started again and meet at the port of their first lives. */
TEST(torchrun_restarts)
{
    char option[32];
    snprintf(option, sizeof option, "--master_port=%u", (unsigned)free_port());
    assert_non_null(strstr(torchrun(option, "mortal"), "failed (exitcode: "));
}

/* Two jobs at once, of one user on one host, do not meet each other. */
TEST(two_jobs_of_one_user)
{
    static char output[OUTPUT_MAX];
    char script[1024];
    const char *mpirun = installed("mpirun.mpich") ? "mpirun.mpich" : "mpirun.openmpi --oversubscribe";
    if (!installed("mpirun.mpich") && !installed("mpirun.openmpi")) {
        print_message("skipped: there is no mpirun\n");
        skip();
    }
    snprintf(script, sizeof script, "%s -n 2 %s member & a=$!; %s -n 3 %s member & b=$!; wait $a && wait $b",
             mpirun, self, mpirun, self);
    char *command[] = {(char *)"sh", (char *)"-c", script, NULL};
    watchdog(100 * (unsigned)slow_factor(), "two jobs");
    check(run(command, output, sizeof output) == 0, "one of two jobs failed:\n%s", output);
    ranks_check(output, 2);
    ranks_check(output, 3);
    checks_end();
}

/* ---- by hand ---- */

static uint16_t master_port;

static void by_hand(struct team *team, int rank, void *arg)
{
    const char *launcher = arg;
    bool torch = strcmp(launcher, "torchrun") == 0;
    unsetenv("HEARTH_RANK");
    unsetenv("HEARTH_WORLD_SIZE");
    unsetenv("HEARTH_RENDEZVOUS");
    set_number_env(torch ? "RANK" : "SLURM_PROCID", rank);
    set_number_env(torch ? "LOCAL_RANK" : "SLURM_LOCALID", rank);
    set_number_env(torch ? "WORLD_SIZE" : "SLURM_NTASKS", team->size);
    set_number_env(torch ? "LOCAL_WORLD_SIZE" : "SLURM_NNODES", torch ? team->size : 1);
    if (torch) {
        setenv("MASTER_ADDR", "127.0.0.1", 1);
        set_number_env("MASTER_PORT", master_port);
    } else {
        set_number_env("SLURM_JOB_ID", master_port);
        setenv("SLURM_STEP_ID", "0", 1);
    }
    hearth_node *node = member_open();
    if (!node)
        return;
    hearth_group *world = hearth_node_world(node);
    int64_t sum = 1;
    check(hearth_group_rank(world) == rank && hearth_group_size(world) == team->size,
          "%s: rank %d of %d is %d of %d", launcher, rank, team->size, hearth_group_rank(world),
          hearth_group_size(world));
    check_ok(hearth_all_reduce(world, &sum, &sum, 1, HEARTH_I64, HEARTH_OP_SUM, NULL));
    check(sum == team->size, "%s: the sum is %lld", launcher, (long long)sum);
    hearth_node_close(node);
}

static void started_by_hand(const char *launcher)
{
    struct team team;
    watchdog(60 * (unsigned)slow_factor(), launcher);
    master_port = free_port();
    team_start(&team, RANKS, "auto", by_hand, (void *)launcher);
    team_join(&team, 30);
    team_free(&team);
    checks_end();
}

TEST(test_torchrun)
{
    started_by_hand("torchrun");
}

TEST(test_slurm)
{
    started_by_hand("slurm");
}

int main(int argc, char **argv)
{
    bool mortal = argc == 2 && strcmp(argv[1], "mortal") == 0;
    if (mortal || (argc == 2 && strcmp(argv[1], "member") == 0))
        return rank_main(mortal);
    self = realpath(argv[0], NULL);
    if (!self) {
        fprintf(stderr, "%s: %s\n", argv[0], strerror(errno));
        return 1;
    }
    return suite_run();
}
