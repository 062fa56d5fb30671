/* SPDX-License-Identifier: Apache-2.0 */
/* hearth job: what this machine remembers of jobs that ran. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/shared/args.h"
#include "cli/shared/config_folder.h"
#include "cli/shared/listing.h"
#include "cluster/job_store.h"

struct job_command {
    const char *name, *key_file; /* as given */
    char path[HOME_PATH_MAX + sizeof JOB_STORE_TAIL];
    struct heap heap;
    struct listing listing;
    bool json;
    int argc, shown;
    char **argv;
};

/* ---- the list ---- */

static void print_memory(const struct job_memory *memory)
{
    printf("%s  ran with %d member%s:", memory->job, memory->ran.size, memory->ran.size == 1 ? "" : "s");
    for (int i = 0; i < memory->ran.size; i++) {
        const struct peer_info *member = &memory->ran.members[i];
        char brief[NODE_ID_SHORT];
        node_id_short(&member->id.node, brief);
        printf("%s %s", i > 0 ? "," : "", member->name[0] ? member->name : brief);
    }
    putchar('\n');
}

static void show_memory(void *arg, const struct job_memory *memory)
{
    struct job_command *job = arg;
    char text[NODE_ID_TEXT];
    job->shown++;
    if (!job->json) {
        print_memory(memory);
        return;
    }
    snprintf(text, sizeof text, "%016" PRIx64, memory->ran.instance);
    listing_row(&job->listing, json_pack("{ss so ss sI}", "name", "job", "job", json_text(memory->job),
                                         "instance", text, "epoch", (json_int_t)memory->ran.epoch));
    for (int i = 0; i < memory->ran.size; i++) {
        node_id_text(&memory->ran.members[i].id.node, text);
        listing_row(&job->listing,
                    json_pack("{ss so ss so sb}", "name", "job.member", "job", json_text(memory->job),
                              "node_id", text, "label", json_text(memory->ran.members[i].name), "leader",
                              i == memory->ran.leader));
    }
}

static int job_list(struct job_command *job, const struct usage *usage)
{
    struct error error;
    if (!listing_open(&job->listing, job->json, job->argc, job->argv))
        return EXIT_FAILED_CHECK;
    int status = job_file_each(&job->heap, job->path, show_memory, job, &error);
    int code = listing_close(&job->listing, EXIT_GOOD);
    if (status)
        return command_fail(usage->name, "%s", error.text);
    if (!job->json && job->shown == 0)
        printf("This machine remembers no job.\n");
    return code ? code : print_done();
}

/* ---- forgetting ---- */

static int job_forget(struct job_command *job, const struct usage *usage)
{
    struct error error;
    int gone;
    if (!job_name_ok(job->name))
        return args_refuse(usage, "'%.80s' is no job's name: it has 1 to %d printable characters", job->name,
                           JOB_NAME_MAX - 1);
    if (job_file_forget(&job->heap, job->path, job->name, &gone, &error))
        return command_fail(usage->name, "%s", error.text);
    if (job->json)
        return listing_one(job->argc, job->argv,
                           json_pack("{ss so sb}", "name", "job.forget", "job", json_text(job->name),
                                     "forgotten", gone > 0));
    if (gone > 0)
        printf("Forgotten: %s. A program that waits for it notices within seconds; others that remember it "
               "must be told too.\n",
               job->name);
    else
        printf("This machine does not remember %s.\n", job->name);
    return print_done();
}

/* ---- the commands ---- */

static int run_deed(int argc, char **argv)
{
    bool list = strcmp(argv[1], "list") == 0;
    struct job_command job = {.argc = argc, .argv = argv};
    char key[HOME_PATH_MAX];
    const struct arg args[] = {
        {"NAME", ARG_WORD, &job.name, .min = 1, .about = "of the job"},
        {"key-file", ARG_TEXT, &job.key_file, .value_name = "FILE",
         .about =
             "of this node; what it remembers lies beside it, as FILE" JOB_STORE_TAIL
             " (default: HEARTH_KEY_FILE, else node.key in $XDG_CONFIG_HOME/hearth or ~/.config/hearth)"},
        {"json", ARG_FLAG, &job.json, .about = "print one JSON object"},
    };
    const struct usage usages[] = {
        {"job forget",
         "Says that a job runs nowhere any more. It then starts again from its first step, without waiting "
         "for the machines that ran it. If they still run it, there are two of it, and when they meet one "
         "ends. Every machine that waits must be told.",
         "hearth job forget train", USAGE_ARGS(args)},
        {"job list",
         "Shows jobs that this machine took part in when its process or its power ended, or when it lost the "
         "others: they may still run there. It starts none of them again before so many of their members are "
         "back that the missing ones cannot go on.",
         "hearth job list", .args = args + 1, .count = sizeof args / sizeof *args - 1}};
    const struct usage *usage = &usages[list];
    int code = args_parse(usage, argc - 1, argv + 1);
    if (code == ARGS_GO)
        code = home_key_file(usage, job.key_file, key);
    if (code != ARGS_GO)
        return code;
    snprintf(job.path, sizeof job.path, "%s" JOB_STORE_TAIL, key);
    heap_init(&job.heap, 0);
    return list ? job_list(&job, usage) : job_forget(&job, usage);
}

int cmd_job(int argc, char **argv)
{
    static const struct subcommand list[] = {
        {"list", run_deed, "shows jobs that may still run on other machines", "hearth job list"},
        {"forget", run_deed, "says that a job runs nowhere, so that it may start again",
         "hearth job forget train"},
    };
    static const struct subcommand_list all = {
        " job", "job command",
        "Jobs that ran on this machine and may still run on others: it does not start them again beside\n"
        "those, and waits until it finds them or enough of them have started again.",
        list, sizeof list / sizeof *list};
    return subcommand_run(&all, argc, argv);
}
