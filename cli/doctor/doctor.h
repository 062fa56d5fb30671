/* SPDX-License-Identifier: Apache-2.0 */
/* hearth doctor: checks of this machine, each with a verdict and, where something is wrong, the fix. */
#pragma once

#include <jansson.h>
#include <stdio.h>

#include <hearth.h>

#include "cli/shared/args.h"
#include "os/host.h"

enum verdict { VERDICT_PASS, VERDICT_WARN, VERDICT_FAIL }; /* also the exit codes, by the worst */
const char *verdict_name(enum verdict verdict);

#define FINDING_CHECK_MAX 96
#define FINDING_TEXT_MAX  400
struct finding {
    enum verdict verdict;
    char check[FINDING_CHECK_MAX]; /* a short name that stays, then whom it is about: "multicast eth0" */
    char text[FINDING_TEXT_MAX];
    char fix[FINDING_TEXT_MAX]; /* "": nothing to do */
};

#define FINDINGS_MAX 512 /* further ones are not kept: 64 addresses have four each */
struct doctor {
    const struct usage *usage;
    struct finding findings[FINDINGS_MAX];
    int count;
    struct hearth_config config; /* from the environment */
    json_t *status;              /* of the node that runs here; NULL: none does */
    struct interface interfaces[INTERFACES_MAX];
    int interface_count;
};

/* A finding about `check`; the fix of the last one, if it is no pass. */
void doctor_note(struct doctor *doctor, enum verdict verdict, const char *check, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
void doctor_fix(struct doctor *doctor, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The same, where "%s %s" names the check and whom it is about. Gives `target`. */
const char *check_about(const char *check, const char *whom, char target[static FINDING_CHECK_MAX]);

enum verdict doctor_worst(const struct doctor *doctor);
void doctor_print(const struct doctor *doctor, FILE *file);

/* The checks, by what they look at; all of them end within seconds. */
void doctor_check_files(struct doctor *doctor);   /* versions, folder, key, secret, trust list, clock */
void doctor_check_network(struct doctor *doctor); /* interfaces, multicast, mDNS, ports, own addresses */
void doctor_check_limits(struct doctor *doctor);  /* firewall, buffers, limits, memory, processor */
void doctor_check_peers(struct doctor *doctor);   /* the other members, if a node runs here */
