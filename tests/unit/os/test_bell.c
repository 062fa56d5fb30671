/* SPDX-License-Identifier: Apache-2.0 */
/* No ring is lost, deadlines end a wait, and the progress thread sleeps on while a caller waits. */
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "os/bell.h"
#include "os/clock.h"
#include "support/suite.h"

#define HOUR_NS (3600 * NS_PER_S)

/* Lets other threads run for a moment: only ever followed by a look whether something did NOT happen. */
static void pause_ms(long ms)
{
    nanosleep(&(struct timespec){.tv_nsec = ms * (long)NS_PER_MS}, NULL);
}

static struct bell b;

static int bell_begin(void **state)
{
    return bell_init(&b);
}

static int bell_end(void **state)
{
    bell_fini(&b);
    return 0;
}

#define WITH_BELL(name) TEST_WITH(name, bell_begin, bell_end)

WITH_BELL(a_ring_since_heard_ends_the_wait_at_once)
{
    for (int side = BELL_CALLER; side <= BELL_PROGRESS; side++) {
        uint32_t heard = bell_heard(&b);
        bell_ring(&b);
        assert_int_not_equal(bell_heard(&b), heard);
        bell_wait(&b, (enum bell_side)side, heard, 0, NEVER_NS);
        bell_wait(&b, (enum bell_side)side, heard, HOUR_NS, NEVER_NS);
        heard = bell_heard(&b);
        bell_ring_all(&b);
        bell_wait(&b, (enum bell_side)side, heard, 0, NEVER_NS);
    }
}

WITH_BELL(deadlines_end_the_wait)
{
    static const uint64_t spins_ns[] = {0, 20 * NS_PER_US, HOUR_NS};

    for (int side = BELL_CALLER; side <= BELL_PROGRESS; side++) {
        for (size_t i = 0; i < sizeof spins_ns / sizeof spins_ns[0]; i++) {
            bell_wait(&b, (enum bell_side)side, bell_heard(&b), spins_ns[i], 0);
            bell_wait(&b, (enum bell_side)side, bell_heard(&b), spins_ns[i], clock_real());
            uint64_t deadline_ns = clock_real() + 3 * NS_PER_MS;
            while (clock_real() < deadline_ns)
                bell_wait(&b, (enum bell_side)side, bell_heard(&b), spins_ns[i], deadline_ns);
        }
    }
    assert_int_equal(b.attending, 0);
    assert_int_equal(b.sleepers[BELL_CALLER], 0);
    assert_int_equal(b.sleepers[BELL_PROGRESS], 0);
}

struct sleeper {
    enum bell_side side;
    uint64_t spin_ns;
    uint32_t heard;
    _Atomic(int) returned, id;
    struct thread thread;
};

static void sleep_once(void *arg)
{
    struct sleeper *s = arg;

    s->id = (int)syscall(SYS_gettid);
    bell_wait(&b, s->side, s->heard, s->spin_ns, NEVER_NS);
    s->returned = 1;
}

/* Whether the system says that the thread sleeps: being counted, it may still be on its way. */
static bool asleep(int id)
{
    char path[64], line[512] = "";

    snprintf(path, sizeof path, "/proc/self/task/%d/stat", id);
    FILE *file = fopen(path, "r");
    if (!file)
        return false;
    bool got = fgets(line, sizeof line, file);
    fclose(file);
    const char *name_end = got ? strrchr(line, ')') : NULL;
    return name_end && name_end[1] == ' ' && name_end[2] == 'S';
}

/* Returns when the new thread spins, or sleeps and has done so for a while. */
static void sleeper_start(struct sleeper *s, enum bell_side side, uint64_t spin_ns)
{
    *s = (struct sleeper){.side = side, .spin_ns = spin_ns, .heard = bell_heard(&b)};
    uint32_t sleeping = b.sleepers[side], spinning = b.attending;
    assert_int_equal(thread_start(&s->thread, "sleeper", sleep_once, s), HEARTH_OK);
    while (b.sleepers[side] == sleeping && b.attending == spinning)
        thread_yield();
    for (int looks = 0; spin_ns == 0 && looks < 3; pause_ms(1))
        looks = asleep(s->id) ? looks + 1 : 0;
}

WITH_BELL(the_progress_sleeps_on_while_a_caller_waits)
{
    static const uint64_t spins_ns[] = {0, HOUR_NS};

    for (size_t i = 0; i < sizeof spins_ns / sizeof spins_ns[0]; i++) {
        struct sleeper progress_thread, callers[2];
        sleeper_start(&progress_thread, BELL_PROGRESS, 0);
        sleeper_start(&callers[0], BELL_CALLER, spins_ns[i]);
        sleeper_start(&callers[1], BELL_CALLER, 0);
        bell_ring(&b);
        thread_join(&callers[0].thread);
        thread_join(&callers[1].thread);
        pause_ms(10);
        assert_int_equal(progress_thread.returned, 0);
        assert_int_equal(b.sleepers[BELL_CALLER], 0);
        assert_int_equal(b.attending, 0);
        bell_ring(&b);
        thread_join(&progress_thread.thread);
        assert_int_equal(progress_thread.returned, 1);
    }
}

WITH_BELL(a_lone_spinner_hears_and_the_progress_sleeps_on)
{
    struct sleeper progress_thread, caller;

    sleeper_start(&progress_thread, BELL_PROGRESS, 0);
    sleeper_start(&caller, BELL_CALLER, HOUR_NS);
    bell_ring(&b);
    thread_join(&caller.thread);
    pause_ms(10);
    assert_int_equal(progress_thread.returned, 0);
    bell_ring_all(&b);
    thread_join(&progress_thread.thread);
}

WITH_BELL(ring_all_wakes_both_sides)
{
    struct sleeper sleepers[4];

    for (int i = 0; i < 4; i++)
        sleeper_start(&sleepers[i], i % 2 ? BELL_PROGRESS : BELL_CALLER, 0);
    bell_ring_all(&b);
    for (int i = 0; i < 4; i++)
        thread_join(&sleepers[i].thread);
}

WITH_BELL(an_attending_caller_leaves_unheard_rings_to_the_progress)
{
    struct sleeper progress_thread;

    sleeper_start(&progress_thread, BELL_PROGRESS, 0);
    bell_attend(&b);
    bell_attend(&b);
    uint32_t unheard = bell_heard(&b);
    bell_ring(&b);
    uint32_t heard = bell_heard(&b);
    bell_leave(&b, unheard); /* another one still attends */
    pause_ms(10);
    assert_int_equal(progress_thread.returned, 0);
    bell_leave(&b, heard); /* the last one has heard all */
    pause_ms(10);
    assert_int_equal(progress_thread.returned, 0);
    bell_attend(&b);
    bell_leave(&b, unheard);
    thread_join(&progress_thread.thread);
    assert_int_equal(b.attending, 0);
}

#define TURNS 5000

/* Two threads take turns on a plain number: only the bells order their accesses. */
struct game {
    struct bell bell[2];
    uint64_t spin_ns;
    int number;
};

static void play(struct game *g, int me)
{
    struct bell *mine = &g->bell[me];
    uint32_t heard = 0;

    for (int i = 0; i < TURNS; i++) {
        while (bell_heard(mine) == heard)
            bell_wait(mine, me ? BELL_PROGRESS : BELL_CALLER, heard, g->spin_ns, NEVER_NS);
        heard++;
        g->number++;
        bell_ring(&g->bell[!me]);
    }
}

static void play_second(void *arg)
{
    play(arg, 1);
}

TEST(turns_are_never_lost)
{
    static const uint64_t spins_ns[] = {0, 1, 50 * NS_PER_US};

    for (size_t i = 0; i < sizeof spins_ns / sizeof spins_ns[0]; i++) {
        struct game g = {.spin_ns = spins_ns[i]};
        struct thread second;
        assert_int_equal(bell_init(&g.bell[0]), HEARTH_OK);
        assert_int_equal(bell_init(&g.bell[1]), HEARTH_OK);
        bell_ring(&g.bell[0]);
        assert_int_equal(thread_start(&second, "second", play_second, &g), HEARTH_OK);
        play(&g, 0);
        thread_join(&second);
        assert_int_equal(g.number, 2 * TURNS);
        bell_fini(&g.bell[0]);
        bell_fini(&g.bell[1]);
    }
}

#define ROUNDS 60000

/* Both sides answer each other after pauses that vary by some microseconds, as long as a wake-up takes: some
 * rings fall into the gap between the sleeper's last look and its sleep. */
struct gap {
    struct bell bell;
    _Atomic(int) work;
};

static void dawdle(int turns)
{
    for (volatile int left = turns * 20; left > 0; left--)
        continue;
}

static void ring_in_gaps(void *arg)
{
    struct gap *g = arg;

    for (int i = 0; i < ROUNDS; i++) {
        dawdle(i % 61);
        g->work = 1;
        bell_ring(&g->bell);
        for (int looks = 0; g->work; looks++)
            if (looks % 4096 == 4095)
                thread_yield();
    }
}

TEST(rings_between_look_and_sleep_are_heard)
{
    struct gap g = {.work = 0};
    struct thread ringer;

    assert_int_equal(bell_init(&g.bell), HEARTH_OK);
    assert_int_equal(thread_start(&ringer, "ringer", ring_in_gaps, &g), HEARTH_OK);
    for (int taken = 0; taken < ROUNDS;) {
        uint32_t heard = bell_heard(&g.bell);
        if (atomic_exchange(&g.work, 0))
            dawdle(++taken % 97);
        else
            bell_wait(&g.bell, taken % 2 ? BELL_PROGRESS : BELL_CALLER, heard, 0, NEVER_NS);
    }
    thread_join(&ringer);
    bell_fini(&g.bell);
}

#define RINGERS 3
#define CALLERS 2
#define ITEMS   3000 /* per ringer */

/* Ringers bring work one item at a time and wait until it is taken: a ring that reaches nobody hangs the
 * test. Callers come and go; the progress thread stays. */
struct house {
    struct bell bell;
    _Atomic(int) waiting[RINGERS];
    _Atomic(int) taken, next_ringer;
    _Atomic(bool) over;
};

static void bring_work(void *arg)
{
    struct house *h = arg;
    int me = h->next_ringer++;

    for (int i = 0; i < ITEMS; i++) {
        h->waiting[me] = 1;
        bell_ring(&h->bell);
        while (h->waiting[me])
            thread_yield();
    }
}

static void take_work(struct house *h)
{
    for (int i = 0; i < RINGERS; i++)
        if (atomic_exchange(&h->waiting[i], 0))
            h->taken++;
}

static void keep_house(void *arg)
{
    struct house *h = arg;

    while (!h->over) {
        uint32_t heard = bell_heard(&h->bell);
        take_work(h);
        if (!h->over)
            bell_wait(&h->bell, BELL_PROGRESS, heard, 0, NEVER_NS);
    }
}

/* One stay: half of the callers attend, the others only wait and owe a look before they go. */
static void call_once(struct house *h, int visit)
{
    bool attends = visit % 2;
    uint64_t until_ns = clock_real() + (uint64_t)(visit % 7) * 20 * NS_PER_US;

    if (attends)
        bell_attend(&h->bell);
    uint32_t heard = bell_heard(&h->bell);
    take_work(h);
    if (!h->over)
        bell_wait(&h->bell, BELL_CALLER, heard, visit % 3 ? 5 * NS_PER_US : 0, until_ns);
    if (attends)
        bell_leave(&h->bell, heard);
    else
        take_work(h);
}

static void call_at_house(void *arg)
{
    struct house *h = arg;

    for (int visit = 0; !h->over; visit++) {
        call_once(h, visit);
        if (visit % 5 == 0)
            pause_ms(1);
    }
}

TEST(nobody_waits_for_ever_when_callers_come_and_go)
{
    struct house h = {.taken = 0};
    struct thread progress_thread, ringers[RINGERS], callers[CALLERS];

    assert_int_equal(bell_init(&h.bell), HEARTH_OK);
    assert_int_equal(thread_start(&progress_thread, "progress thread", keep_house, &h), HEARTH_OK);
    for (int i = 0; i < CALLERS; i++)
        assert_int_equal(thread_start(&callers[i], "caller", call_at_house, &h), HEARTH_OK);
    for (int i = 0; i < RINGERS; i++)
        assert_int_equal(thread_start(&ringers[i], "ringer", bring_work, &h), HEARTH_OK);
    for (int i = 0; i < RINGERS; i++)
        thread_join(&ringers[i]);
    h.over = true;
    bell_ring_all(&h.bell);
    for (int i = 0; i < CALLERS; i++)
        thread_join(&callers[i]);
    thread_join(&progress_thread);
    assert_int_equal(h.taken, RINGERS * ITEMS);
    bell_fini(&h.bell);
}
