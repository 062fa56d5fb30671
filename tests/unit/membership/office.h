/* SPDX-License-Identifier: Apache-2.0 */
/* Several jobs machines, a census that the test writes, and a network that loses, doubles and delays. */
#ifndef TESTS_UNIT_MEMBERSHIP_OFFICE_H
#define TESTS_UNIT_MEMBERSHIP_OFFICE_H

#include "core/prng.h"
#include "membership/jobs.h"

#define DESKS_MAX   12
#define LETTERS_MAX 4096
#define LATENCY_NS  (2 * NS_PER_MS)

struct underway {
    uint64_t at_ns;
    int from, to;
    struct outbox_letter *letter;
};

/* What a member's owner knows. */
struct desk {
    bool alive;
    struct jobs *jobs;
    struct outbox box;
    struct formation group; /* the last that was formed; id 0: none */
    bool ended;             /* and it is over */
    char ended_text[JOB_TEXT_MAX], refused_text[JOB_TEXT_MAX], wanted[JOB_NAME_MAX];
    int formed_count, ended_count, refused_count, wanted_count;
};

struct office {
    struct heap heap;
    uint64_t now_ns;
    struct prng draws;
    int lose_percent, double_percent;
    uint64_t delay_ns; /* at most so much more than LATENCY_NS, drawn for each letter: letters overtake */
    bool cut[DESKS_MAX];
    int size;
    struct desk desks[DESKS_MAX];
    struct census census;
    struct underway underway[LETTERS_MAX];
    int letters;
    void (*news)(struct office *office, int desk,
                 const struct job_news *news); /* for the test; may be NULL */
};

void office_open(struct office *office, int size, uint64_t seed);
void office_close(struct office *office);
/* The census is these members (bits), that one leads; another epoch, and another term if the leader changes.
 * Only those in `told` learn of it. */
void office_census(struct office *office, unsigned members, int leader, unsigned told, bool quorum);
void office_crash(struct office *office, int desk);
void office_run(struct office *office, uint64_t ns); /* lets so much time pass */
int office_wish(struct office *office, int desk, const char *job, int min, const char *settings);
/* Fails the test unless these desks, and no others, are in one formation that runs. */
void office_assert_group(const struct office *office, unsigned members);
const char *office_why_not(const struct office *office, int desk, const char *job);
int office_desk_of(const struct identity *id);

#endif
