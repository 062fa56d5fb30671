/* SPDX-License-Identifier: Apache-2.0 */
/* hearth run: starts a program as the ranks of one job, here or on several hosts. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/commands.h"
#include "cli/run/job.h"
#include "cli/shared/args.h"
#include "cli/shared/route.h"
#include "cli/shared/secret_handover.h"
#include "os/random.h"

#define GRACE_DEFAULT 10.0    /* seconds */
#define GRACE_MAX     86400.0 /* a day */
#define ADDRESS_MAX   (HOST_NAME_LEN + 16)

extern char **environ;

struct run_command {
    int count; /* -n; 0: as --hosts says */
    const char *host_list, *bind, *rendezvous, *env, *secret_file;
    int transport; /* index of transport_name; 0: not given */
    bool trust, plain;
    struct job_plan job_plan;
    struct secret_handover handover;
    struct hosts hosts;
    bool spread; /* over several machines */
    char job[17];
    char master[HOST_NAME_LEN], meeting[ADDRESS_MAX]; /* MASTER_ADDR, HEARTH_RENDEZVOUS */
    uint16_t port, user_port;                         /* MASTER_PORT; as the user set it, or 0 */
    struct route route;                               /* to the other hosts; its interface is shown */
};

static const char *transport_name(int index)
{
    static const char *const names[] = {"auto", "tcp", "quic", "shm"};
    return index < 4 ? names[index] : NULL;
}

/* ---- where ---- */

static const struct host *first_remote(const struct hosts *hosts)
{
    for (int i = 0; i < hosts->count; i++) {
        if (!hosts->list[i].local)
            return &hosts->list[i];
    }
    return NULL;
}

static int settle_hosts(struct run_command *run, const struct usage *usage)
{
    char why[512];
    if (!run->job_plan.args || !run->job_plan.args[0])
        return args_refuse(usage, "there is no program to run; put it last, after --");
    if (run->job_plan.grace_s > GRACE_MAX)
        return args_refuse(usage, "--grace is longer than a day");
    if (!hosts_parse(run->host_list ? run->host_list : "localhost", &run->hosts, why, sizeof why))
        return args_refuse(usage, "--hosts: %s", why);
    if (!hosts_fill(&run->hosts, run->count, why, sizeof why))
        return args_refuse(usage, "%s", why);
    run->spread = run->hosts.machines > 1;
    return run->spread ? ARGS_GO : route_check_bind(usage, run->bind); /* others have other interfaces */
}

static int settle_secret_handover(struct run_command *run, const struct usage *usage)
{
    int code = secret_handover_settle(usage, run->secret_file, run->plain, &run->handover);
    if (code == ARGS_GO && run->handover.plain && run->spread && !run->trust)
        return args_refuse(
            usage, "with --plain (or HEARTH_PLAIN) ranks on several hosts connect unencrypted; if anyone on "
                   "the network between them may read and change that, add --i-trust-this-network");
    if (code == ARGS_GO)
        code = secret_handover_check_trust(usage, &run->handover, first_remote(&run->hosts));
    return code;
}

/* ---- the meeting point ---- */

static void join_port(char *text, size_t size, const char *host, unsigned port)
{
    bool six = strchr(host, ':') && host[0] != '[';
    snprintf(text, size, six ? "[%s]:%u" : "%s:%u", host, port);
}

/* Whether "host:port", "[v6]:port", "host", "v6" or "unix:name" has a port or needs none; and its host. */
static bool split_host(const char *text, char *host, size_t size)
{
    const char *end = text[0] == '[' ? strchr(text, ']') : NULL, *colon = strchr(end ? end : text, ':');
    bool has_port = strncmp(text, "unix:", 5) == 0 || (colon && (end || !strchr(colon + 1, ':')));
    size_t open = text[0] == '[', len = end ? (size_t)(end - text) : strlen(text);
    if (has_port && !end)
        len = (size_t)(strrchr(text, ':') - text);
    snprintf(host, size, "%.*s", (int)(len - open), text + open);
    return has_port;
}

/* The machine of rank 0 as the others know it. */
static int settle_master(struct run_command *run, const struct usage *usage)
{
    const struct host *zero = &run->hosts.list[0];
    const char *master = run->spread ? run->route.address : "127.0.0.1";
    bool good = true;
    snprintf(run->route.interface, sizeof run->route.interface, "chosen there");
    if (run->spread && !zero->local)
        master = host_address(zero);
    else if (run->spread)
        good = run->bind ? route_bind(run->bind, &run->route)
                         : route_to(host_address(first_remote(&run->hosts)), true, &run->route);
    if (!good)
        return args_refuse(usage, "%s; name the address that others are to use with --bind or --rendezvous",
                           run->route.why);
    snprintf(run->master, sizeof run->master, "%s", master);
    return ARGS_GO;
}

/* A variable that the user has set: what came with a RANK is another launcher's, for its own ranks. */
static const char *said_by_user(const char *name)
{
    return getenv("RANK") ? NULL : env_value(name);
}

static int read_port(struct run_command *run, const struct usage *usage)
{
    const char *text = said_by_user("MASTER_PORT");
    int64_t port;
    if (!text)
        return ARGS_GO;
    if (!args_int(text, 1, UINT16_MAX, &port))
        return args_refuse(usage, "MASTER_PORT is '%.64s'; a port is a number from 1 to %d", text,
                           UINT16_MAX);
    run->user_port = (uint16_t)port;
    return ARGS_GO;
}

static int settle_meeting(struct run_command *run, const struct usage *usage)
{
    uint64_t draw;
    run->port = route_ports(); /* the rendezvous has the next */
    if (random_bytes(&draw, sizeof draw) || run->port == 0)
        return args_refuse(usage, "no random numbers, or no free port");
    if (run->port + 1 == run->user_port)
        run->port--;
    snprintf(run->job, sizeof run->job, "%016llx", (unsigned long long)draw);
    if (run->rendezvous && strlen(run->rendezvous) >= HOST_NAME_LEN)
        return args_refuse(usage, "--rendezvous is longer than %d characters", HOST_NAME_LEN - 1);
    bool has_port = run->rendezvous && split_host(run->rendezvous, run->master, sizeof run->master);
    int code = run->rendezvous && run->spread ? ARGS_GO : settle_master(run, usage);
    if (has_port)
        snprintf(run->meeting, sizeof run->meeting, "%s", run->rendezvous);
    else if (run->rendezvous || run->spread)
        join_port(run->meeting, sizeof run->meeting, run->rendezvous ? run->rendezvous : run->master,
                  run->port + 1U);
    else
        snprintf(run->meeting, sizeof run->meeting, "unix:@hearth-run-%s", run->job);
    return code;
}

/* Where programs of torch.distributed meet. */
static int settle_torch(struct run_command *run, const struct usage *usage)
{
    const char *address = said_by_user("MASTER_ADDR"), *colon = strrchr(run->meeting, ':');
    unsigned long taken = colon ? strtoul(colon + 1, NULL, 10) : 0;
    if (address && strlen(address) >= sizeof run->master)
        return args_refuse(usage, "MASTER_ADDR is longer than %d characters", HOST_NAME_LEN - 1);
    if (address)
        snprintf(run->master, sizeof run->master, "%s", address);
    if (run->user_port && run->user_port == taken)
        return args_refuse(usage, "MASTER_PORT and --rendezvous name the same port, %lu", taken);
    if (run->user_port)
        run->port = run->user_port;
    else if (run->port == taken)
        run->port++; /* free too: the rendezvous is where the user wants it */
    return ARGS_GO;
}

/* ---- variables ---- */

/* What another machine's login does not know: HEARTH_ variables, and those that --env names. */
static void pass_vars(const struct run_command *run, struct vars *vars)
{
    for (char **var = environ; *var; var++) {
        size_t len = strcspn(*var, "=");
        bool asked = strncmp(*var, "HEARTH_", 7) == 0;
        for (const char *at = run->env; at && *at && !asked; at += strcspn(at, ","), at += *at == ',')
            asked = strcspn(at, ",") == len && strncmp(at, *var, len) == 0;
        if (asked && (*var)[len])
            vars_add(vars, "%s", *var);
    }
}

static struct rank_place find_place(const struct run_command *run, int rank)
{
    const struct hosts *hosts = &run->hosts;
    struct rank_place p = {.rank = rank,
                           .size = hosts->ranks,
                           .host = hosts_find(hosts, rank)->machine,
                           .meeting = run->meeting,
                           .job = run->job,
                           .master = run->master,
                           .port = run->port};
    for (int r = 0; r < hosts->ranks; r++) {
        bool shared = hosts_find(hosts, r)->machine == p.host;
        p.local_rank += shared && r < rank;
        p.local_size += shared;
    }
    return p;
}

static void set_vars(void *arg, int rank, const struct host *host, struct vars *vars)
{
    const struct run_command *run = arg;
    const struct rank_place place = find_place(run, rank);
    const char *threads = getenv("OMP_NUM_THREADS");
    if (!host->local)
        pass_vars(run, vars);
    vars_add_place(vars, &place);
    if (run->bind && (host->local || !route_owns(run->bind))) /* an address of ours is nothing elsewhere */
        vars_add(vars, "HEARTH_BIND=%s", run->bind);
    if (run->transport >= 0)
        vars_add(vars, "HEARTH_TRANSPORT=%s", transport_name(run->transport));
    if (run->trust)
        vars_add(vars, "HEARTH_TRUST_NETWORK=1");
    vars_add(vars, "HEARTH_PLAIN=%d", run->handover.plain);
    if (!run->handover.plain && run->handover.fresh_keys)
        vars_add(vars, "HEARTH_KEY_FILE=fresh");
    if (host->local && run->handover.file[0])
        vars_add(vars, "HEARTH_SECRET_FILE=%s", run->handover.file);
    /* As torchrun does: ranks that share a machine would each start a thread for every processor of it. */
    if (threads && !host->local)
        vars_add(vars, "OMP_NUM_THREADS=%s", threads);
    else if (!threads && place.local_size > 1)
        vars_add(vars, "OMP_NUM_THREADS=1");
}

/* ---- the command ---- */

static void show_plan(const struct run_command *run)
{
    fprintf(stderr, "hearth run: job %s, %d ranks, rendezvous %s", run->job, run->hosts.ranks, run->meeting);
    if (run->spread && run->route.interface[0])
        fprintf(stderr, " (interface %s)", run->route.interface);
    fputc('\n', stderr);
    if (run->handover.plain)
        fprintf(stderr,
                "hearth run: plain: nothing is encrypted, and anyone who can reach a rank may join\n");
    else
        fprintf(stderr, "hearth run: connections are encrypted; the secret is %s%s\n",
                run->handover.file[0] ? "in " : "", run->handover.source);
    for (int i = 0, rank = 0; i < run->hosts.count; i++) {
        const struct host *host = &run->hosts.list[i];
        fprintf(stderr, "hearth run: ranks %d to %d on %s (%s)\n", rank, rank + host->count - 1, host->name,
                host->local ? "this machine" : "over ssh");
        rank += host->count;
    }
}

static int start(struct run_command *run, const struct usage *usage)
{
    struct job_plan *plan = &run->job_plan;
    (void)usage;
    plan->hosts = &run->hosts;
    plan->set_vars = set_vars;
    plan->arg = run;
    plan->secret = run->handover.secret;
    plan->elsewhere = run->handover.file[0];
    run->handover.secret = NULL; /* the job's from now on */
    if (plan->verbose)
        show_plan(run);
    return job_run(plan);
}

int cmd_run(int argc, char **argv)
{
    static struct run_command run; /* a list of hosts is large for a stack */
    run = (struct run_command){.job_plan.grace_s = GRACE_DEFAULT, .transport = -1};
    const struct arg args[] = {
        {"n", ARG_INT, &run.count, .about = "processes (default 1, or as many as --hosts names)", .min = 1,
         .max = RANKS_MAX},
        {"hosts", ARG_TEXT, &run.host_list, .value_name = "LIST",
         .about =
             "where to run: a,b:2 is one rank on a and two on b, in the order of ranks; a larger -n gives "
             "each host one more in turn. Other hosts are reached by ssh, without a password"},
        {"bind", ARG_TEXT, &run.bind, .value_name = "IFACE|ADDR",
         .about = "network to use (default: the one that leads to the first other host)"},
        {"rendezvous", ARG_TEXT, &run.rendezvous, .value_name = "HOST[:PORT]",
         .about = "where the ranks meet: an address of rank 0's machine"},
        {"transport", ARG_CHOICE, &run.transport, .about = "transport between ranks",
         .choice = transport_name},
        {"secret-file", ARG_TEXT, &run.secret_file, .value_name = "FILE",
         .about = "the cluster secret for the ranks (default: HEARTH_SECRET, HEARTH_SECRET_FILE or "
                  "HEARTH_SECRET_FD, else a new one for this job only)"},
        {"plain", ARG_FLAG, &run.plain, .about = "no secret, no encryption; for ranks of one machine only"},
        {"i-trust-this-network", ARG_FLAG, &run.trust,
         .about = "with --plain: allow several hosts, though anyone between them can read and change all"},
        {"ssh", ARG_TEXT, &run.job_plan.ssh, .value_name = "COMMAND",
         .about = "to use instead of ssh; split at spaces"},
        {"env", ARG_TEXT, &run.env, .value_name = "NAMES",
         .about = "variables to pass to other hosts, separated by commas; those that begin with HEARTH_ "
                  "always are, but for the secret"},
        {"grace", ARG_DURATION, &run.job_plan.grace_s,
         .about = "how long the other ranks may end by themselves after a failure (default 10s)"},
        {"output", ARG_TEXT, &run.job_plan.dir, .value_name = "DIR",
         .about = "write DIR/RANK.out and DIR/RANK.err instead of lines with the rank in front"},
        {"no-prefix", ARG_FLAG, &run.job_plan.no_prefix, .about = "print lines without the rank in front"},
        {"verbose", ARG_FLAG, &run.job_plan.verbose,
         .about = "print where ranks run, the network, and where the secret comes from"},
        {"PROGRAM [ARGUMENTS]", ARG_REST, &run.job_plan.args, .min = 1,
         .about = "what to run; HEARTH_RANK, or RANK and the other variables of torchrun, tell its rank"},
    };
    const struct usage usage = {
        "run",
        "Starts a program as the ranks of one job and waits until all have ended. Signals are passed on; a "
        "second Ctrl-C kills. When a rank fails, the others are stopped. Rank 0 reads standard input. "
        "Connections between ranks are encrypted with a secret that only they have.",
        "hearth run -n 4 -- ./train --epochs 3", USAGE_ARGS(args)};
    if (argc == 2 && strcmp(argv[1], "--child") == 0) /* at the other end of ssh */
        return host_agent_serve(STDIN_FILENO, STDOUT_FILENO);
    static int (*const steps[])(struct run_command *, const struct usage *) = {
        settle_hosts, settle_secret_handover, read_port, settle_meeting, settle_torch, start};
    int code = args_parse(&usage, argc, argv);
    for (size_t i = 0; i < sizeof steps / sizeof *steps && code == ARGS_GO; i++)
        code = steps[i](&run, &usage);
    secret_handover_close(&run.handover);
    return code;
}
