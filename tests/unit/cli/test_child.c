/* SPDX-License-Identifier: Apache-2.0 */
/* A program behind a host agent that is spawned: this test is the host agent too, when it is called so. */
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/run/agent_link.h"
#include "cli/run/child.h"
#include "cli/run/host_agent.h"
#include "support/suite.h"

#define PATIENCE 2000 /* times 10 ms */

static const char token[] = "hearth1-test-0123456789abcdefghjkmnpqrstvwxyz0123456789abcdefghjkmnpqr";

static char folder[] = "/tmp/hearth-child-XXXXXX";

static void nothing(void *arg)
{
}

struct outcome {
    struct child_process child;
    struct output output;
    char out[4096];
};

static void start(struct outcome *o, const char *script, const char *secret)
{
    char shell[] = "sh", flag[] = "-c", text[512];
    char *args[] = {shell, flag, text, NULL};
    struct vars vars;
    snprintf(text, sizeof text, "%s", script);
    assert_true(vars_open(&vars, 4));
    vars_add(&vars, "HEARTH_RANK=%d", 1);
    struct child_process_plan plan = {.vars = vars.list, .args = args, .token = secret, .rank = 1};
    assert_true(output_open(&o->output, 2, true, folder));
    o->output.idle = nothing;
    assert_true(child_process_start(&o->child, &plan, &o->output));
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

static void test_end(void **state)
{
    struct outcome o = {.out = ""};
    start(&o, "echo rank $HEARTH_RANK; exit 3", NULL);
    finish(&o);
    assert_int_equal(o.child.code, 3);
    assert_int_equal(o.child.signal, 0);
    assert_string_equal(o.out, "rank 1\n");
}

static void test_secret(void **state)
{
    struct outcome o = {.out = ""};
    start(&o, "cat /dev/fd/$HEARTH_SECRET_FD", token);
    finish(&o);
    assert_int_equal(o.child.code, 0);
    assert_string_equal(o.out, token);
    for (size_t i = 0; i < sizeof o.child.token; i++)
        assert_int_equal(o.child.token[i], 0);
}

static void test_killed(void **state)
{
    struct outcome o = {.out = ""};
    start(&o, "kill -9 $$", NULL);
    finish(&o);
    assert_int_equal(o.child.signal, SIGKILL);
    assert_int_equal(o.child.code, 128 + SIGKILL);
}

static void test_stop(void **state)
{
    struct outcome o = {.out = ""};
    start(&o, "trap 'echo asked; exit 7' TERM; echo ready; while :; do sleep 0.05; done", NULL);
    for (int i = 0; i < PATIENCE && !o.child.agent.greeted; i++)
        tend(&o);
    for (int i = 0; i < 20; i++) /* until the trap stands; without it the signal would end it all the same */
        tend(&o);
    child_process_stop(&o.child);
    child_process_stop(&o.child);
    finish(&o);
    assert_true(o.child.code == 7 || o.child.signal == SIGTERM);
}

/* Before there is a program at all. */
static void test_stop_at_once(void **state)
{
    struct outcome o = {.out = ""};
    start(&o, "sleep 100", NULL);
    child_process_stop(&o.child);
    finish(&o);
    assert_int_not_equal(o.child.code, 0);
}

static void test_not_found(void **state)
{
    struct outcome o = {.out = ""};
    char name[] = "/nonexistent/program", *args[] = {name, NULL};
    struct child_process_plan plan = {.args = args, .rank = 1};
    assert_true(output_open(&o.output, 2, true, folder));
    o.output.idle = nothing;
    assert_true(child_process_start(&o.child, &plan, &o.output));
    finish(&o);
    assert_int_equal(o.child.code, 127);
    assert_non_null(strstr(o.child.why, "cannot run '/nonexistent/program'"));
}

static void test_vars(void **state)
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

static int make_folder(void **state)
{
    signal(SIGPIPE, SIG_IGN);
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    static const char *const names[] = {"0.out", "0.err", "1.out", "1.err"};
    char path[64];
    for (int i = 0; i < 4; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        unlink(path);
    }
    return rmdir(folder);
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "run") == 0 && strcmp(argv[2], "--child") == 0)
        return host_agent_serve(STDIN_FILENO, STDOUT_FILENO);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_end),  cmocka_unit_test(test_secret),       cmocka_unit_test(test_killed),
        cmocka_unit_test(test_stop), cmocka_unit_test(test_stop_at_once), cmocka_unit_test(test_not_found),
        cmocka_unit_test(test_vars),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
