/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes of one process, a thread for each, checks that every thread may use, and a guard against hanging. */
#pragma once

#include <hearth.h>
#include <pthread.h>

#include "support/suite.h"

#define MEMBERS_MAX   16 /* room for them */
#define MEMBERS_USUAL 8  /* as far as tests go that try every size */
#define TEXT_MAX      512

struct fixture {
    int size;
    hearth_node *nodes[MEMBERS_MAX];
    hearth_group *world[MEMBERS_MAX];
    pthread_barrier_t meeting;
};

/* Opens `size` nodes or fails the test. `config` may be NULL. Each open gives the guard a fresh start. */
void fixture_open(struct fixture *c, int size, const struct hearth_config *config);
/* Closes the nodes that are still open, in the order of their ranks. */
void fixture_close(struct fixture *c);
/* The defaults of both; the config has this tuning. */
void config_tuned(struct hearth_config *config, struct hearth_tuning *tuning);
/* Small chunks, window and eager budget: many lanes, blocks and grants. */
void config_small(struct hearth_config *config);

/* Runs fn on a thread per member and waits for all; fails the test if a check failed. */
typedef void member_fn(struct fixture *c, int rank, void *arg);
void fixture_run(struct fixture *c, member_fn *fn, void *arg);
/* Nodes that are open for one run of fn; and for several, after each of which the group must work. */
void fixture_once(int size, const struct hearth_config *config, member_fn *fn, void *arg);
void fixture_often(int times, int size, const struct hearth_config *config, member_fn *fn, void *arg);
/* Inside a member_fn: waits until all members are here, without Hearth. */
void fixture_meet(struct fixture *c);
/* Inside a member_fn, after an operation in which members disagreed. A member that had returned already hears
 * of it from a later call: that becomes its status and text. The group works then. */
void hear_late(hearth_group *group, int *status, char text[TEXT_MAX]);
/* A barrier on every world: it must work, and nothing of what was before may be in its way. */
void fixture_works(struct fixture *c);

/* cmocka's asserts jump, which only the main thread may. These note and print; checks_end (and fixture_run)
 * fail the test. They return whether the condition held. */
#define check(condition, ...) check_note((condition), __FILE__, __LINE__, __VA_ARGS__)
bool check_note(bool good, const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
#define check_status(got, wanted) check_status_note((got), (wanted), __FILE__, __LINE__, #got)
#define check_ok(got)             check_status(got, HEARTH_OK)
bool check_status_note(int got, int wanted, const char *file, int line, const char *call);
/* And its error says a word. */
#define check_error(got, wanted, word) check_error_note((got), (wanted), (word), __FILE__, __LINE__, #got)
bool check_error_note(int got, int wanted, const char *word, const char *file, int line, const char *call);
/* That a text contains a word. */
#define check_text(text, word) check_text_note((text), (word), __FILE__, __LINE__)
bool check_text_note(const char *text, const char *word, const char *file, int line);
void checks_end(void);
bool checks_failed(void);

/* How much slower than usual this build is: sanitizers. */
int slow_factor(void);
bool under_asan(void);
bool under_tsan(void);

/* ---- small things ---- */

uint64_t draw(uint64_t *seed); /* the next of a sequence of 64-bit numbers */
uint64_t draw_below(uint64_t *seed, uint64_t limit);
uint64_t hash_bytes(const void *bytes, size_t len);
void *must_alloc(size_t len); /* never NULL; exactly len bytes, so that a sanitizer sees the first beyond */
/* The value of a counter or gauge without labels in hearth_node_metrics_text. */
uint64_t metric(hearth_node *node, const char *name);
/* Memory of all nodes together. */
uint64_t cluster_memory(const struct fixture *c);
void sleep_ms(int ms); /* to let something happen; never to conclude that it has */
struct hearth_opts opts_default(void);
/* hearth_all_reduce of i32 in place. */
int sum_in_place(hearth_group *group, int32_t *x, size_t count, const struct hearth_opts *opts);
int sum_in_place_nb(hearth_group *group, int32_t *x, size_t count, const struct hearth_opts *opts,
                    hearth_request **request);
