/* SPDX-License-Identifier: Apache-2.0 */
/* Several jobs machines, a view that the test writes, and a network that loses, doubles and delays. */
#pragma once

#include "core/prng.h"
#include "membership/jobs.h"

#define FIXTURE_MEMBERS_MAX 12
#define MESSAGES_MAX        4096
#define LATENCY_NS          (2 * NS_PER_MS)

struct underway {
    uint64_t at_ns;
    int from, to;
    struct outbox_message *message;
};

/* What a member's owner knows. */
struct control_socket {
    bool alive;
    struct jobs *jobs;
    struct outbox box;
    struct group_spec group; /* the last that was formed; id 0: none */
    bool ended;              /* and it is over */
    char ended_text[JOB_TEXT_MAX], refused_text[JOB_TEXT_MAX], wanted[JOB_NAME_MAX];
    int formed_count, ended_count, refused_count, wanted_count;
    enum hearth_reason refused;
};

struct jobs_fixture {
    struct heap heap;
    uint64_t now_ns;
    struct prng draws;
    int lose_percent, double_percent;
    uint64_t delay_ns; /* at most so much more than LATENCY_NS, drawn for each message: messages overtake */
    bool cut[FIXTURE_MEMBERS_MAX];
    int size;
    struct control_socket members[FIXTURE_MEMBERS_MAX];
    struct view view;
    struct underway underway[MESSAGES_MAX];
    int messages;
    void (*news)(struct jobs_fixture *fixture, int control,
                 const struct job_news *news); /* for the test; may be NULL */
};

void jobs_fixture_open(struct jobs_fixture *fixture, int size, uint64_t seed);
void jobs_fixture_close(struct jobs_fixture *fixture);
/* The view is these members (bits), that one leads; another epoch, and another term if the leader changes.
 * Only those in `told` learn of it. */
void jobs_fixture_view(struct jobs_fixture *fixture, unsigned members, int leader, unsigned told,
                       bool quorum);
void jobs_fixture_crash(struct jobs_fixture *fixture, int control);
void jobs_fixture_run(struct jobs_fixture *fixture, uint64_t ns); /* lets so much time pass */
int jobs_fixture_request(struct jobs_fixture *fixture, int control, const char *job, int min,
                         const char *settings);
/* Fails the test unless these members, and no others, are in one formation that runs. */
void jobs_fixture_assert_group(const struct jobs_fixture *fixture, unsigned members);
const char *jobs_fixture_why_not(const struct jobs_fixture *fixture, int control, const char *job);
int jobs_fixture_of(const struct identity *id);
