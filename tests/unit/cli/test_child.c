/* SPDX-License-Identifier: Apache-2.0 */
/* A program behind a host agent that is spawned: this test is the host agent too, when it is called so. */
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/run/child.h"
#include "support/suite.h"

#define PATIENCE 2000 /* times 10 ms */

static char folder[] = "/tmp/hearth-child-XXXXXX";

static void nothing(void *arg)
{
    (void)arg;
}

struct outcome {
    struct child_process child;
    struct output output;
    char out[4096];
};

static void start_plan(struct outcome *o, const struct child_process_plan *plan)
{
    assert_true(output_open(&o->output, 2, true, folder));
    o->output.idle = nothing;
    assert_true(child_process_start(&o->child, plan, &o->output));
}

static void start(struct outcome *o, const char *script, const struct secret *secret)
{
    char shell[] = "sh", flag[] = "-c", text[512];
    char *args[] = {shell, flag, text, NULL};
    struct vars vars;
    snprintf(text, sizeof text, "%s", script);
    assert_true(vars_open(&vars, 4));
    vars_add(&vars, "HEARTH_RANK=%d", 1);
    struct child_process_plan plan = {.vars = vars.list, .args = args, .secret = secret, .rank = 1};
    start_plan(o, &plan);
    vars_free(vars.list);
}

static void tend(struct outcome *o)
{
    struct pollfd polls[CHILD_PROCESS_POLLS];
    child_process_polls(&o->child, polls);
    (void)poll(polls, CHILD_PROCESS_POLLS, 10);
    child_process_tend(&o->child);
}

static void finish(struct outcome *o)
{
    char path[64];
    for (int i = 0; i < PATIENCE && !child_process_over(&o->child); i++)
        tend(o);
    assert_true(child_process_over(&o->child));
    output_close(&o->output);
    snprintf(path, sizeof path, "%s/1.out", folder);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    o->out[fread(o->out, 1, sizeof o->out - 1, file)] = 0;
    fclose(file);
}

TEST(test_end)
{
    struct outcome o = {.out = ""};
    start(&o, "echo rank $HEARTH_RANK; exit 3", NULL);
    finish(&o);
    assert_int_equal(o.child.code, 3);
    assert_int_equal(o.child.signal, 0);
    assert_string_equal(o.out, "rank 1\n");
}

TEST(test_secret)
{
    struct outcome o = {.out = ""};
    struct secret *secret;
    struct error error;
    char token[SECRET_TOKEN_MAX];
    assert_int_equal(secret_draw("test", &secret, &error), HEARTH_OK);
    start(&o, "cat /dev/fd/$HEARTH_SECRET_FD", secret);
    finish(&o);
    secret_token(secret, token);
    assert_int_equal(o.child.code, 0);
    assert_string_equal(o.out, token);
    secret_close(secret);
}

TEST(test_killed)
{
    struct outcome o = {.out = ""};
    start(&o, "kill -9 $$", NULL);
    finish(&o);
    assert_int_equal(o.child.signal, SIGKILL);
    assert_int_equal(o.child.code, 128 + SIGKILL);
}

TEST(test_stop)
{
    struct outcome o = {.out = ""};
    start(&o, "trap 'echo asked; exit 7' TERM; echo ready; while :; do sleep 0.05; done", NULL);
    for (int i = 0; i < PATIENCE && !o.child.greeted; i++)
        tend(&o);
    for (int i = 0; i < 20; i++) /* until the trap stands; without it the signal would end it all the same */
        tend(&o);
    child_process_stop(&o.child);
    child_process_stop(&o.child);
    finish(&o);
    assert_true(o.child.code == 7 || o.child.signal == SIGTERM);
}

/* Before there is a program at all. */
TEST(test_stop_at_once)
{
    struct outcome o = {.out = ""};
    start(&o, "sleep 100", NULL);
    child_process_stop(&o.child);
    finish(&o);
    assert_int_not_equal(o.child.code, 0);
}

TEST(test_not_found)
{
    struct outcome o = {.out = ""};
    char name[] = "/nonexistent/program", *args[] = {name, NULL};
    struct child_process_plan plan = {.args = args, .rank = 1};
    start_plan(&o, &plan);
    finish(&o);
    assert_int_equal(o.child.code, 127);
    assert_non_null(strstr(o.child.why, "cannot run '/nonexistent/program'"));
}

TEST(test_vars)
{
    struct vars vars;
    assert_true(vars_open(&vars, 2));
    vars_add(&vars, "A=%s", "x");
    vars_add(&vars, "B=%d", 2);
    assert_false(vars.full);
    vars_add(&vars, "C=3");
    assert_true(vars.full);
    assert_string_equal(vars.list[1], "B=2");
    assert_null(vars.list[2]);
    vars_free(vars.list);
    vars_free(NULL);
}

int main(int argc, char **argv)
{
    static const char *const names[] = {"0.out", "0.err", "1.out", "1.err"};
    if (argc == 3 && strcmp(argv[1], "run") == 0 && strcmp(argv[2], "--child") == 0)
        return host_agent_serve(STDIN_FILENO, STDOUT_FILENO);
    signal(SIGPIPE, SIG_IGN);
    if (!mkdtemp(folder))
        return 1;
    int result = suite_run();
    for (int i = 0; i < 4; i++) {
        char path[64];
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        unlink(path);
    }
    return rmdir(folder) || result;
}
