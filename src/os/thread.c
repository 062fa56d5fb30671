/* SPDX-License-Identifier: Apache-2.0 */
/* Threads and locks on pthreads. */
#define _GNU_SOURCE 1 /* pthread_setname_np, sched_getaffinity */
#include "os/thread.h"

#include <assert.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int mutex_init(struct mutex *m)
{
    return pthread_mutex_init(&m->handle, NULL) == 0 ? HEARTH_OK : HEARTH_SYSTEM;
}

/* These fail for our own mistakes only. */
static void must(int err)
{
    assert(err == 0);
    (void)err;
}

void mutex_fini(struct mutex *m)
{
    must(pthread_mutex_destroy(&m->handle));
}

void mutex_lock(struct mutex *m)
{
    must(pthread_mutex_lock(&m->handle));
}

void mutex_unlock(struct mutex *m)
{
    must(pthread_mutex_unlock(&m->handle));
}

/* For people who look at the process with a debugger or top: failure does no harm. */
static void thread_name_self(const char *name)
{
#if defined(__APPLE__)
    pthread_setname_np(name);
#elif defined(__linux__)
    pthread_setname_np(pthread_self(), name);
#else
    (void)name;
#endif
}

static void *thread_main(void *arg)
{
    struct thread *t = arg;

    thread_name_self(t->name);
    t->run(t->arg);
    return NULL;
}

int thread_start(struct thread *t, const char *name, void (*run)(void *arg), void *arg)
{
    sigset_t all, before;

    t->run = run;
    t->arg = arg;
    size_t len = strnlen(name, sizeof t->name - 1);
    memcpy(t->name, name, len);
    t->name[len] = '\0';

    /* A new thread inherits the mask: block here, so that not even its first instruction takes a signal. */
    sigfillset(&all);
    if (pthread_sigmask(SIG_SETMASK, &all, &before) != 0)
        return HEARTH_SYSTEM;
    int err = pthread_create(&t->handle, NULL, thread_main, t);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return err == 0 ? HEARTH_OK : HEARTH_SYSTEM;
}

void thread_join(struct thread *t)
{
    must(pthread_join(t->handle, NULL));
}

void thread_yield(void)
{
    sched_yield();
}

void thread_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb" ::: "memory"); /* `yield` does nothing on most cores; this waits a little */
#else
    __asm__ volatile("" ::: "memory");
#endif
}

int cpu_count(void)
{
    int count = 0;

#if defined(__linux__) && !defined(HEARTH_POSIX)
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0)
        count = CPU_COUNT(&set);
#endif
    if (count < 1)
        count = (int)sysconf(_SC_NPROCESSORS_ONLN);
    return count < 1 ? 1 : count;
}

typedef _Atomic(int) kept_id;

/* A page that a forked child finds empty; NULL: the system has none. It lives as long as the process. */
static kept_id *page_make(_Atomic(kept_id *) *place)
{
    kept_id *none = NULL;
#if defined(MADV_WIPEONFORK) && !defined(HEARTH_POSIX)
    size_t len = (size_t)sysconf(_SC_PAGESIZE);
    void *page = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED)
        return NULL;
    if (madvise(page, len, MADV_WIPEONFORK) == 0 && atomic_compare_exchange_strong(place, &none, page))
        return page;
    munmap(page, len);
#else
    (void)place;
#endif
    return none;
}

/* A system call each time would cost more than a short message. */
int process_id(void)
{
    static _Atomic(kept_id *) page;
    kept_id *kept = atomic_load(&page);
    int id = kept ? atomic_load_explicit(kept, memory_order_relaxed) : 0;
    if (id != 0)
        return id;
    kept = kept ? kept : page_make(&page);
    id = (int)getpid();
    if (kept)
        atomic_store_explicit(kept, id, memory_order_relaxed);
    return id;
}
