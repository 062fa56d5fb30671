/* SPDX-License-Identifier: Apache-2.0 */
/* What a machine remembers of jobs: beyond a process, for several processes, whatever the disk does. */
#include <unistd.h>

#include "cluster/job_store.h"
#include "support/suite.h"

#define PROCESSES 2

static struct heap heap;
static char folder[64], path[96];
static struct job_store *store[PROCESSES];
static struct view view, found;
static struct error error;
static int warnings;

static void hear(void *arg, enum hearth_log_level level, const char *id, const char *text)
{
    warnings += level == HEARTH_LOG_WARN && strcmp(id, "HEARTH-JOB-RECORD") == 0;
}

static struct identity process(int machine, int number)
{
    struct identity id = {.instance = 100 + (uint64_t)number};

    id.node.bytes[0] = (uint8_t)machine;
    return id;
}

static void start(int number, const char *where)
{
    struct job_store_setup setup = {.heap = &heap, .path = where, .self = process(0, number)};

    setup.log = (struct log){.sink = hear, .level = HEARTH_LOG_DEBUG};
    assert_int_equal(job_store_open(&setup, &store[number]), HEARTH_OK);
}

static int begin(void **state)
{
    heap_init(&heap, 0);
    snprintf(folder, sizeof folder, "/tmp/hearth-jobs-XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof path, "%s/node.key.jobs", folder);
    warnings = 0;
    memset(&view, 0, sizeof view);
    view.instance = 7;
    view.epoch = 3;
    view.term = 1;
    view.size = 3;
    view.members[0].id = process(0, 0);
    view.members[1].id = process(0, 1);
    view.members[2].id = process(5, 2);
    snprintf(view.members[2].name, sizeof view.members[2].name, "bob");
    return 0;
}

static int end(void **state)
{
    char command[128];

    for (int i = 0; i < PROCESSES; i++) {
        job_store_close(store[i]);
        store[i] = NULL;
    }
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return heap.blocks == 0 ? system(command) : -1;
}

static bool recalls(int number, const char *job)
{
    bool some;

    memset(&found, 0, sizeof found);
    if (job_store_recall(store[number], job, &found, &some, &error))
        fail_msg("%s", error.text);
    return some;
}

/* As a process that is killed: nothing is told to its store. */
static void restart(int number)
{
    job_store_close(store[number]);
    start(number, path);
}

TEST_WITH(a_process_that_starts_again_knows, begin, end)
{
    start(0, path);
    assert_false(recalls(0, "train"));
    job_store_keep(store[0], "train", &view);
    job_store_keep(store[0], "other", &view);
    assert_true(recalls(0, "train"));
    restart(0);
    assert_true(recalls(0, "train"));
    assert_int_equal(found.instance, 7);
    assert_int_equal(found.epoch, 3);
    assert_int_equal(found.size, 3);
    assert_string_equal(found.members[2].name, "bob");
    view.epoch = 4;
    job_store_keep_soon(store[0], "train", &view);
    assert_true(recalls(0, "train"));
    assert_int_equal(found.epoch, 4);
    restart(0); /* what is due is written before it closes */
    assert_true(recalls(0, "train"));
    assert_int_equal(found.epoch, 4);
    job_store_keep(store[0], "train", &view);
    job_store_drop(store[0], "train");
    restart(0);
    assert_false(recalls(0, "train"));
    assert_true(recalls(0, "other"));
    assert_int_equal(warnings, 0);
}

/* Another process of this machine goes on when one has ended. */
TEST_WITH(processes_of_one_machine_remember_for_each_other, begin, end)
{
    start(0, path);
    start(1, path);
    job_store_keep(store[0], "train", &view);
    job_store_keep(store[1], "train", &view);
    job_store_drop(store[0], "train");
    restart(0);
    assert_true(recalls(0, "train"));
    job_store_drop(store[1], "train");
    restart(0);
    assert_false(recalls(0, "train"));
    job_store_keep(store[1], "train", &view);
    view.members[1].id.instance++; /* that one has died: what it left is outlived with the next formation */
    job_store_keep(store[0], "train", &view);
    job_store_drop(store[0], "train");
    restart(0);
    assert_false(recalls(0, "train"));
}

static void count_entries(void *arg, const struct job_memory *memory)
{
    int *count = arg;

    assert_string_equal(memory->job, "other");
    ++*count;
}

TEST_WITH(a_person_may_forget_a_job, begin, end)
{
    int gone = -1, count = 0;

    start(0, path);
    assert_int_equal(job_file_forget(&heap, path, "train", &gone, &error), HEARTH_OK);
    assert_int_equal(gone, 0);
    assert_int_not_equal(access(path, F_OK), 0);
    job_store_keep(store[0], "train", &view);
    job_store_keep(store[0], "other", &view);
    restart(0);
    assert_int_equal(job_file_forget(&heap, path, "train", &gone, &error), HEARTH_OK);
    assert_int_equal(gone, 1);
    assert_false(recalls(0, "train"));
    assert_int_equal(job_file_each(&heap, path, count_entries, &count, &error), HEARTH_OK);
    assert_int_equal(count, 1);
}

TEST_WITH(a_damaged_file_is_not_passed_over, begin, end)
{
    bool some;

    start(0, path);
    job_store_keep(store[0], "train", &view);
    restart(0);
    assert_int_equal(truncate(path, 20), 0);
    assert_int_equal(job_store_recall(store[0], "train", &found, &some, &error), HEARTH_INVALID);
    assert_non_null(strstr(error.text, path));
    assert_non_null(strstr(error.text, "is damaged"));
    job_store_keep(store[0], "train", &view); /* nor written over */
    assert_int_equal(warnings, 1);
}

/* The job goes on, and the log says what is lost. */
TEST_WITH(a_disk_that_cannot_be_written_is_told_once, begin, end)
{
    start(0, "/proc/hearth-cannot-be-here/node.key.jobs");
    job_store_keep(store[0], "train", &view);
    job_store_keep(store[0], "train", &view);
    assert_int_equal(warnings, 1);
    assert_true(recalls(0, "train")); /* while it lives */
}

TEST_WITH(without_a_file_it_lasts_as_long_as_the_process, begin, end)
{
    char job[JOB_NAME_MAX];
    uint64_t instance;

    start(0, NULL);
    job_store_keep(store[0], "train", &view);
    job_store_keep_soon(store[0], "train", &view);
    assert_true(recalls(0, "train"));
    assert_true(job_store_kept(store[0], 0, job, &instance));
    assert_string_equal(job, "train");
    assert_int_equal(instance, 7);
    assert_false(job_store_kept(store[0], 1, job, &instance));
    job_store_drop(store[0], "train");
    assert_false(recalls(0, "train"));
}

TEST_WITH(there_is_room_for_so_many, begin, end)
{
    char job[JOB_NAME_MAX];

    start(0, path);
    for (int i = 0; i <= JOB_FILE_JOBS_MAX; i++) {
        assert_int_equal(warnings, 0);
        snprintf(job, sizeof job, "job %d", i);
        job_store_keep(store[0], job, &view);
    }
    assert_int_equal(warnings, 1);
    restart(0);
    assert_true(recalls(0, "job 0"));
    assert_false(recalls(0, job));
}
