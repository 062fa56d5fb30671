/* SPDX-License-Identifier: Apache-2.0 */
/* Threads run, carry a name and take no signals; locks exclude; the process is known after a fork. */
#define _GNU_SOURCE 1 /* pthread_getname_np, sched_setaffinity */
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "os/thread.h"
#include "support/suite.h"

struct report {
    int runs;
    sigset_t mask;
    char name[64];
};

static void report_self(void *arg)
{
    struct report *r = arg;

    r->runs++;
    pthread_sigmask(SIG_SETMASK, NULL, &r->mask);
    pthread_getname_np(pthread_self(), r->name, sizeof r->name);
}

TEST(a_thread_runs_named_and_without_signals)
{
    static const int signals[] = {SIGINT,  SIGTERM, SIGHUP,  SIGUSR1, SIGUSR2,
                                  SIGCHLD, SIGALRM, SIGPIPE, SIGWINCH};
    struct report r = {0};
    struct thread t;
    sigset_t before, after;

    pthread_sigmask(SIG_SETMASK, NULL, &before);
    assert_int_equal(thread_start(&t, "hearth-a-long-name", report_self, &r), HEARTH_OK);
    thread_join(&t);
    pthread_sigmask(SIG_SETMASK, NULL, &after);
    assert_int_equal(r.runs, 1);
    assert_string_equal(r.name, "hearth-a-long-n");
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++) {
        assert_int_equal(sigismember(&r.mask, signals[i]), 1);
        assert_int_equal(sigismember(&after, signals[i]), sigismember(&before, signals[i]));
    }
}

#define ROUNDS 20000

static struct counter {
    struct mutex lock;
    long value;
} c;

static void count_up(void *arg)
{
    (void)arg;
    for (int i = 0; i < ROUNDS; i++) {
        mutex_lock(&c.lock);
        c.value++;
        mutex_unlock(&c.lock);
        if (i % 1000 == 0)
            thread_yield();
    }
}

TEST(a_mutex_excludes)
{
    struct thread threads[4];

    assert_int_equal(mutex_init(&c.lock), HEARTH_OK);
    for (int i = 0; i < 4; i++)
        assert_int_equal(thread_start(&threads[i], "count", count_up, NULL), HEARTH_OK);
    for (int i = 0; i < 4; i++)
        thread_join(&threads[i]);
    assert_int_equal(c.value, 4 * ROUNDS);
    mutex_fini(&c.lock);
}

TEST(processors_are_counted)
{
    int count = cpu_count();

    assert_in_range(count, 1, 65536);
    thread_relax();
#if defined(HEARTH_POSIX)
    print_message("affinity is not looked at in the posix build: skipped\n");
#else
    cpu_set_t before, one;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    CPU_ZERO(&one);
    for (size_t cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; cpu++)
        if (CPU_ISSET(cpu, &before))
            CPU_SET(cpu, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    int alone = cpu_count();
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
    assert_int_equal(alone, 1);
#endif
}

TEST(the_process_id_differs_after_a_fork)
{
    int parent = process_id(), status;

    pid_t child = fork();
    if (child == 0)
        _exit(process_id() != parent ? 0 : 1);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_int_equal(process_id(), parent);
}
